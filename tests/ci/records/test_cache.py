"""The Parquet cache: never a wrong row, whatever happens to the files or to the cache itself."""

from __future__ import annotations

import pyarrow.dataset as ds
import pytest

from ci.records import cache
from ci.records.cache import SCHEMA, RowCache, digest_of, table_of
from ci.records.importing import COLUMNS, imported_times, keep, part_of, source_digest


class Records:
    """Small text files, some numbers each; "bad" is a problem; counts how often a file is parsed."""

    def __init__(self, path):
        self.path, self.parsed = path, list[str]()

    def write(self, name, text):
        (self.path / name).write_text(text)

    def parse(self, file):
        self.parsed.append(file.name)
        text = file.read_text()
        if text == "bad":
            return SCHEMA.empty_table(), [f"{file.name}: bad"]
        numbers = list(map(float, text.split()))
        return table_of({"kernel": file.name, "seconds": numbers, "date": 0}, len(numbers)), []

    def load(self):
        files = {digest_of(file.name, [file]): file for file in sorted(self.path.glob("*.txt"))}
        records = {digest: lambda file=file: self.parse(file) for digest, file in files.items()}
        rows, problems = RowCache(self.path / "cache").rows(records, others_go=True)
        return shown(rows), problems

    def files(self):
        return sorted((self.path / "cache").glob("*.parquet"))


def shown(rows):
    return sorted(f"{row['kernel']}/{row['seconds']:g}" for row in rows.to_pylist())


@pytest.fixture
def records(tmp_path):
    records = Records(tmp_path)
    records.write("a.txt", "1 2")
    records.write("b.txt", "3")
    return records


def test_a_record_is_parsed_once_and_its_problems_are_told_each_time(records):
    records.write("c.txt", "bad")
    first = records.load()
    assert first == (["a.txt/1", "a.txt/2", "b.txt/3"], ["c.txt: bad"])
    assert records.load() == first
    assert records.parsed == ["a.txt", "b.txt", "c.txt", "c.txt"]
    assert shown(ds.dataset(records.files()).to_table()) == first[0], "any engine reads it"


def test_changed_new_and_deleted_records_are_seen(records):
    records.load()
    records.write("a.txt", "4 5")
    records.write("c.txt", "6")
    (records.path / "b.txt").unlink()
    assert records.load()[0] == ["a.txt/4", "a.txt/5", "c.txt/6"]
    assert records.parsed == ["a.txt", "b.txt", "a.txt", "c.txt"]
    assert len(records.files()) == 2, "what no record has any more is gone"


DAMAGE = {
    "gone": lambda file: file.unlink(),
    "torn": lambda file: file.write_bytes(b"PAR1 torn"),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-100]),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_made_again(records, how):
    first = records.load()
    DAMAGE[how](records.files()[0])
    assert records.load() == first
    assert len(records.parsed) == 3, "the others are as they were"
    assert records.load() == first
    assert len(records.parsed) == 3


def test_a_damaged_byte_anywhere_makes_no_wrong_row(records):
    """Some bytes of a Parquet file say nothing; a damaged page is noticed by its checksum."""
    first = records.load()
    for place in range(16):
        content = bytearray(records.files()[0].read_bytes())
        content[len(content) * place // 16] ^= 0xFF
        records.files()[0].write_bytes(content)
        assert records.load() == first, place
    assert len(records.parsed) > 2 + 8, "most are made again"


def test_another_version_parses_anew(records, monkeypatch):
    records.load()
    monkeypatch.setattr(cache, "VERSION", cache.VERSION + 1)
    assert records.load()[0] == ["a.txt/1", "a.txt/2", "b.txt/3"]
    assert records.parsed == ["a.txt", "b.txt"] * 2


def test_a_cache_that_cannot_be_written_only_costs_time(records):
    (records.path / "cache").write_text("a file")
    assert records.load() == records.load() == (["a.txt/1", "a.txt/2", "b.txt/3"], [])


# ---- imported rows: the same kind of file, of which the rows cannot be made again ------------------------------------


def rows(name, *seconds):
    return table_of({"kernel": name, "seconds": list(seconds), "date": 0}, len(seconds), COLUMNS)


def test_of_an_imported_file_the_newest_counts(tmp_path):
    x, y = (part_of(tmp_path, "m", tmp_path / name) for name in "xy")
    keep(x, rows("x", 1.0), "1", 1)
    keep(y, rows("y", 2.0), "1", 2)
    keep(x, rows("x", 5.0), "2", 3)
    [table], problems = imported_times(tmp_path)
    assert (sorted(table["seconds"].to_pylist()), problems) == ([2.0, 5.0], [])
    assert (source_digest(x), source_digest(tmp_path / "z")) == ("2", "")
    DAMAGE["cut"](y)
    [table], problems = imported_times(tmp_path, "m")
    assert (table["seconds"].to_pylist(), len(problems), source_digest(y)) == ([5.0], 1, "")
