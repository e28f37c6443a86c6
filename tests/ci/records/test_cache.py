"""The Parquet cache: never a wrong row, whatever happens to the files or to the cache itself."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ci.records import cache

SCHEMA = pa.schema([("name", pa.string()), ("value", pa.float64())])


class Folder:
    """Small text files, one number each; "bad" is a problem; counts how often a file is parsed."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.parsed = path, path / "cache" / "table.parquet", []

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        return file

    def load(self, version: int = 1) -> tuple[dict[str, float], list[str]]:
        def parse(unit: str) -> tuple[list[dict[str, Any]], list[str]]:
            self.parsed.append(unit)
            text = (self.path / unit).read_text()
            return (
                ([], [f"{unit}: bad"])
                if text == "bad"
                else ([{"name": unit, "value": float(v)} for v in text.split()], [])
            )

        units = {file.name: [file] for file in sorted(self.path.glob("*.txt"))}
        table, problems = cache.table(units, parse, SCHEMA, self.store, version)
        rows = table.to_pylist()
        assert all(row[cache.UNIT] == row["name"] for row in rows)
        return {f"{row['name']}/{row['value']:g}": row["value"] for row in rows}, problems


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write("a.txt", "1 2")
    folder.write("b.txt", "3")
    return folder


def test_parses_once(folder: Folder) -> None:
    first = folder.load()
    assert first == ({"a.txt/1": 1, "a.txt/2": 2, "b.txt/3": 3}, [])
    assert folder.load() == first
    assert folder.parsed == ["a.txt", "b.txt"]


def test_sees_changed_new_and_deleted_files(folder: Folder) -> None:
    folder.load()
    folder.write("a.txt", "4 5")
    folder.write("c.txt", "6")
    (folder.path / "b.txt").unlink()
    assert set(folder.load()[0]) == {"a.txt/4", "a.txt/5", "c.txt/6"}
    assert folder.parsed == ["a.txt", "b.txt", "a.txt", "c.txt"]


def test_a_file_replaced_within_the_clocks_resolution_is_seen(folder: Folder) -> None:
    """Same size and time, as after an atomic replace within one tick: the inode differs."""
    folder.load()
    file = folder.path / "b.txt"
    before = file.stat()
    draft = folder.path / "draft"
    draft.write_text("7")
    os.utime(draft, ns=(before.st_atime_ns, before.st_mtime_ns))
    os.replace(draft, file)
    assert "b.txt/7" in folder.load()[0]


def test_a_touched_file_is_hashed_but_not_parsed(folder: Folder) -> None:
    """A fresh clone has new times and inodes for the same content."""
    folder.load()
    os.utime(folder.path / "a.txt", (1, 1))
    folder.load()
    assert folder.parsed == ["a.txt", "b.txt"]


def test_problems_are_told_at_every_load(folder: Folder) -> None:
    folder.write("c.txt", "bad")
    assert folder.load()[1] == ["c.txt: bad"]
    assert folder.load() == ({"a.txt/1": 1, "a.txt/2": 2, "b.txt/3": 3}, ["c.txt: bad"])
    assert folder.parsed.count("a.txt") == 1


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.unlink(),
        lambda s: s.write_bytes(b"PAR1 torn"),
        lambda s: s.write_bytes(b""),
        lambda s: s.write_bytes(s.read_bytes()[:-100]),
        lambda s: pq.write_table(pa.table({"other": [1]}), s),
    ],
)
def test_a_lost_or_damaged_cache_only_costs_time(folder: Folder, damage: Any) -> None:
    first = folder.load()
    damage(folder.store)
    assert folder.load() == first
    folder.parsed.clear()
    assert folder.load() == first
    assert folder.parsed == []


def test_another_version_of_the_rows_is_made_anew(folder: Folder) -> None:
    folder.load()
    folder.load(version=2)
    assert folder.parsed == ["a.txt", "b.txt"] * 2


def test_an_unwritable_cache_only_costs_time(folder: Folder) -> None:
    (folder.path / "cache").write_text("a file where the folder should be")
    assert folder.load() == folder.load()
    assert folder.parsed == ["a.txt", "b.txt"] * 2


def test_no_files_at_all(tmp_path: Path) -> None:
    assert Folder(tmp_path).load() == ({}, [])


def test_git_ignores_the_cache(folder: Folder) -> None:
    folder.load()
    assert (folder.store.parent / ".gitignore").read_text() == "*\n"
