"""The Parquet cache: never a wrong row, whatever happens to the files or to the cache itself."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from ci.records import cache
from ci.records.cache import CACHED, ParsedFiles, ParsedUnit, Parts, table_of

SCHEMA = pa.schema([CACHED.field(name) for name in ("commit", "env", "kernel", "date", "seconds")])


def rows(name: str, *values: float) -> pa.Table:
    return table_of({"kernel": name, "seconds": list(values), "date": 0}, len(values), SCHEMA)


def told(listed: list[dict]) -> set[str]:
    found = [f"{row['kernel']}/{row['seconds']:g}" for row in listed]
    assert len(set(found)) == len(found), "no row twice"
    return set(found)


class Folder:
    """Small text files, some numbers each; "bad" is a problem; counts how often a file is parsed."""

    def __init__(self, path: Path) -> None:
        self.path, self.store, self.parsed = path, path / "cache" / "table.parquet", list[str]()

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.write_text(text)
        return file

    def parse(self, unit: str) -> tuple[pa.Table, list[str]]:
        self.parsed.append(unit)
        text = (self.path / unit).read_text()
        if text == "bad":
            return SCHEMA.empty_table(), [f"{unit}: bad"]
        return rows(unit, *map(float, text.split())), []

    def load(self, version: int = 1) -> tuple[set[str], list[str]]:
        units = {file.name: [file] for file in sorted(self.path.glob("*.txt"))}
        found = ParsedFiles(units, self.parse, Parts(self.store, SCHEMA, version))
        return told([row for table in found.rows() for row in table.to_pylist()]), found.problems

    def files(self) -> list[Path]:
        return sorted(self.store.glob("*.parquet"))

    def kept(self) -> set[str]:
        """The rows as another engine reads them: plain Parquet, no index."""
        return told(ds.dataset(self.store).to_table().to_pylist())


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path)
    folder.write("a.txt", "1 2")
    folder.write("b.txt", "3")
    return folder


def test_parses_once_and_tells_problems_each_time(folder: Folder) -> None:
    folder.write("c.txt", "bad")
    first = folder.load()
    assert first == ({"a.txt/1", "a.txt/2", "b.txt/3"}, ["c.txt: bad"])
    assert folder.load() == first
    assert folder.parsed == ["a.txt", "b.txt", "c.txt"]
    folder.write("c.txt", "4")
    assert folder.load()[1] == []
    assert (folder.store.parent / ".gitignore").read_text() == "*\n"


def test_sees_changed_new_and_deleted_files(folder: Folder) -> None:
    folder.load()
    folder.write("a.txt", "4 5")
    folder.write("c.txt", "6")
    (folder.path / "b.txt").unlink()
    assert folder.load()[0] == {"a.txt/4", "a.txt/5", "c.txt/6"} == folder.kept()
    assert folder.parsed == ["a.txt", "b.txt", "a.txt", "c.txt"]


def test_a_file_replaced_within_the_clocks_resolution_is_seen_and_one_that_is_as_it_was_is_not_parsed(
    folder: Folder,
) -> None:
    """Same size and time, as after an atomic replace within one tick, or a fresh clone: the inode differs."""
    for text in ("7", "7"):
        folder.load()
        file = folder.path / "b.txt"
        before = file.stat()
        os.utime(folder.write("draft", text), ns=(before.st_atime_ns, before.st_mtime_ns))
        os.replace(folder.path / "draft", file)
    assert "b.txt/7" in folder.load()[0]
    assert folder.parsed == ["a.txt", "b.txt", "b.txt"]


DAMAGE: dict[str, Callable[[Path], object]] = {
    "gone": lambda part: part.unlink(),
    "torn": lambda part: part.write_bytes(b"PAR1 torn"),
    "empty": lambda part: part.write_bytes(b""),
    "cut": lambda part: part.write_bytes(part.read_bytes()[:-100]),
    "a page": lambda part: part.write_bytes(part.read_bytes()[:100] + bytes(200) + part.read_bytes()[300:]),
    "foreign": lambda part: pq.write_table(pa.table({"other": [1]}), part),
    "what was seen": lambda part: (part.parent / ".files.json").write_text('{"a.txt": 7}'),
    "nothing was seen": lambda part: (part.parent / ".files.json").unlink(),
    "a killed writer's": lambda part: part.with_name(".part-0.parquet").write_bytes(b"PAR1"),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_lost_or_damaged_cache_only_costs_time(folder: Folder, damage: Callable[[Path], object]) -> None:
    first = folder.load()
    damage(folder.files()[0])
    assert folder.load() == first
    folder.parsed.clear()
    assert folder.load() == first
    assert folder.parsed == []
    assert folder.kept() == first[0]
    folder.write("c.txt", "4")
    folder.load()
    assert not list(folder.store.glob(".part-*"))


def test_another_version_of_the_rows_is_made_anew(folder: Folder) -> None:
    folder.load()
    folder.load(version=2)
    assert folder.parsed == ["a.txt", "b.txt"] * 2


def test_an_unwritable_cache_only_costs_time(folder: Folder) -> None:
    (folder.path / "cache").write_text("a file where the folder should be")
    assert folder.load() == folder.load()
    assert folder.parsed == ["a.txt", "b.txt"] * 2


def test_no_files_at_all(tmp_path: Path) -> None:
    assert Folder(tmp_path).load() == (set(), [])
    assert not list(tmp_path.iterdir())


def test_one_more_file_leaves_full_parts_alone(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "PART_ROWS", 32)
    folder.write("aa.txt", " ".join(map(str, range(100, 140))))
    folder.load()
    [full] = (path for path in folder.files() if pq.read_metadata(path).num_rows >= 32)
    before = full.stat().st_mtime_ns
    for number in range(20):
        folder.write(f"n{number:02d}.txt", str(200 + number))
        folder.load()
    assert folder.kept() == folder.load()[0]
    assert len(folder.kept()) == 63
    assert len(folder.files()) == 2
    assert full.stat().st_mtime_ns == before


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
            name = f"u{{number}}"
            parts = Parts(Path({str(folder.store)!r}), SCHEMA, 1)
            assert parts.put({{name: rows("x", number)}}, {{name: ParsedUnit(str(number))}})
    """
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    running = [subprocess.Popen([*argv, *map(str, range(first, 12, 2))]) for first in range(2)]
    assert [process.wait() for process in running] == [0, 0]
    assert folder.kept() == {f"x/{number}" for number in range(12)}
    assert len(Parts(folder.store, SCHEMA, 1).units()) == 12


def test_what_is_put_takes_the_place_of_what_was_there(folder: Folder) -> None:
    parts = Parts(folder.store, SCHEMA, 1)
    for value, digest in ((1, "d"), (1, "d"), (2, "e")):
        assert parts.put({"u": rows("x", value)}, {"u": ParsedUnit(digest)})
        assert folder.kept() == {f"x/{value}"}
