"""The Parquet cache: never a wrong row, whatever happens to the files or to the cache itself."""

from __future__ import annotations

import datetime
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ci.records import cache
from ci.records.cache import ParsedUnit, Parts
from ci.records.rows import TEXT

SCHEMA = pa.schema([("name", TEXT), ("value", pa.float64()), ("date", pa.timestamp("ms", tz="UTC"))])
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def rows(name: str, *values: float) -> pa.Table:
    """Rows whose date is their value, in seconds."""
    dated = [{"name": name, "value": v, "date": EPOCH + datetime.timedelta(seconds=v)} for v in values]
    return pa.Table.from_pylist(dated, schema=SCHEMA)


class Folder:
    """Small text files, one number each; "bad" is a problem; counts how often a file is parsed."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.parsed = path, path / "cache" / "table.parquet", []

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        return file

    def load(self, version: int = 1) -> tuple[dict[str, float], list[str]]:
        def parse(unit: str) -> tuple[pa.Table, list[str]]:
            self.parsed.append(unit)
            text = (self.path / unit).read_text()
            return (
                (SCHEMA.empty_table(), [f"{unit}: bad"])
                if text == "bad"
                else (rows(unit, *map(float, text.split())), [])
            )

        units = {file.name: [file] for file in sorted(self.path.glob("*.txt"))}
        found = cache.index(units, parse, SCHEMA, self.store, version)
        listed = [row for table in found.rows() for row in table.to_pylist()]
        assert len({(row["name"], row["value"]) for row in listed}) == len(listed), "no row twice"
        return {f"{row['name']}/{row['value']:g}": row["value"] for row in listed}, found.problems

    def files(self) -> list[Path]:
        return sorted(self.store.glob("*.parquet"))

    def kept(self) -> dict[str, float]:
        """The rows as another engine reads them: plain Parquet, no index."""
        found = ds.dataset(self.store).to_table().to_pylist()
        return {f"{row['name']}/{row['value']:g}": row["value"] for row in found}


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


def test_problems_are_told_at_every_load_without_reading_again(folder: Folder) -> None:
    folder.write("c.txt", "bad")
    assert folder.load()[1] == ["c.txt: bad"]
    assert folder.load() == ({"a.txt/1": 1, "a.txt/2": 2, "b.txt/3": 3}, ["c.txt: bad"])
    assert folder.parsed == ["a.txt", "b.txt", "c.txt"]
    folder.write("c.txt", "4")
    assert folder.load()[1] == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda s: s.unlink(),
        lambda s: s.write_bytes(b"PAR1 torn"),
        lambda s: s.write_bytes(b""),
        lambda s: s.write_bytes(s.read_bytes()[:-100]),
        lambda s: s.write_bytes(s.read_bytes()[:100] + bytes(200) + s.read_bytes()[300:]),
        lambda s: pq.write_table(pa.table({"other": [1]}), s),
        lambda s: (s.parent / ".files.json").write_text('{"a.txt": 7}'),
        lambda s: (s.parent / ".files.json").unlink(),
    ],
)
def test_a_lost_or_damaged_cache_only_costs_time(folder: Folder, damage: Any) -> None:
    first = folder.load()
    damage(folder.files()[0])
    assert folder.load() == first
    folder.parsed.clear()
    assert folder.load() == first
    assert folder.parsed == []
    assert folder.kept() == first[0]


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


def test_one_more_file_rewrites_small_parts_only(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PART_ROWS", 32)
    folder.write("large.txt", " ".join(map(str, range(100, 140))))
    folder.load()
    large = folder.files()[0]
    before = large.stat().st_mtime_ns
    for number in range(20):
        folder.write(f"n{number:02d}.txt", str(200 + number))
        folder.load()
    assert folder.kept() == folder.load()[0]
    assert len(folder.kept()) == 63
    assert len(folder.files()) <= 8, "small parts are merged"
    assert large.stat().st_mtime_ns == before, "the large one is not touched"


def test_a_part_is_in_the_order_of_dates(folder: Folder) -> None:
    folder.write("a.txt", "9 5 7")
    folder.load()
    assert pq.read_table(folder.files()[0])["value"].to_pylist() == [3, 5, 7, 9]


def test_who_reads_while_parts_are_replaced_sees_no_row_twice(folder: Folder) -> None:
    """As if a writer had been killed between two steps: both generations are there."""
    folder.load()
    old = {path: path.read_bytes() for path in folder.files()}
    folder.write("c.txt", "4")
    first = folder.load()
    for path, content in old.items():
        path.write_bytes(content)
    assert folder.load() == first


@pytest.mark.slow
def test_two_writers_lose_nothing(folder: Folder) -> None:
    """Two processes put six units each into one folder at once."""
    code = f"""
        import sys
        from pathlib import Path
        from tests.ci.records.test_cache import SCHEMA, rows
        from ci.records.cache import Parts, ParsedUnit
        for number in map(int, sys.argv[1:]):
            store = Parts(Path({str(folder.store)!r}), SCHEMA, 1)
            name = f"u{{number}}"
            assert store.put([store.part({{name: rows("x", number)}}, {{name: ParsedUnit(str(number))}})])
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    running = [subprocess.Popen([*argv, *map(str, range(first, 12, 2))]) for first in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert sorted(folder.kept().values()) == list(range(12))
    assert len(Parts(folder.store, SCHEMA, 1).units()) == 12


def test_what_a_killed_writer_left_is_taken_away(folder: Folder) -> None:
    folder.load()
    (folder.store / ".part-0.parquet.1").write_bytes(b"PAR1")
    assert folder.kept() == folder.load()[0], "no engine reads a hidden file"
    folder.write("c.txt", "4")
    folder.load()
    assert not list(folder.store.glob(".part-*"))


def test_what_another_writer_has_put_is_not_written_twice(folder: Folder) -> None:
    store = Parts(folder.store, SCHEMA, 1)
    for _ in range(2):
        assert store.put([store.part({"u": rows("x", 1)}, {"u": ParsedUnit("d")})])
    assert store.put([store.part({"u": rows("x", 2)}, {"u": ParsedUnit("e")})])
    assert folder.kept() == {"x/2": 2}


def test_git_ignores_the_cache(folder: Folder) -> None:
    folder.load()
    assert (folder.store.parent / ".gitignore").read_text() == "*\n"
