"""Points from a CSV: what a pandas user would read by hand, whatever the blocks, and everything that can be wrong."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

from ci.records import cache, foreign, foreign_csv, store
from ci.records.foreign_csv import ImportOptions


def bring(tmp_path: Path, text: str | bytes, name: str = "points.csv", **given: Any) -> foreign.Brought:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return foreign.bring(foreign.sources([path]), tmp_path / "results", ImportOptions(**given))


def points(tmp_path: Path) -> list[tuple[Any, ...]]:
    """kernel, commit, seconds of the frame, oldest first."""
    frame = store.load(tmp_path / "results")
    told = frame[["kernel", "commit", "seconds"]].astype({"kernel": str, "commit": str})
    return list(told.itertuples(index=False, name=None))


def kept(tmp_path: Path) -> pd.DataFrame:
    return ds.dataset(tmp_path / "results" / "imported", partitioning="hive").to_table().to_pandas()


def problems(done: foreign.Brought) -> list[str]:
    return [problem.why for problem in done.problems]


def test_the_format_of_detect(tmp_path: Path) -> None:
    done = bring(tmp_path, "series,commit,time,value\ngemm/triton/m64,a1,2026-01-02T00:00:00Z,2.5\nx,a0,2026-01-01,1\n")
    assert (done.points, done.problems, done.machines) == (2, [], {"unknown"})
    frame = store.load(tmp_path / "results")
    assert frame[["kernel", "backend", "case"]].astype(str).to_numpy().tolist() == [
        ["x", "csv", "all"],
        ["gemm", "triton", "m64"],
    ]
    assert frame["seconds"].tolist() == [1.0, 2.5]
    assert [str(date.date()) for date in frame["date"]] == ["2026-01-01", "2026-01-02"]


@pytest.mark.parametrize("block", [150, 1 << 20])
def test_blocks_make_no_difference(tmp_path: Path, monkeypatch: Any, block: int) -> None:
    """Held against pandas reading the whole file; names with quotes, commas and line breaks in them."""
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", block)
    rng = np.random.default_rng(1)
    plain = pd.DataFrame(
        {
            "series": rng.choice(["a", 'b "quoted"', "c, with comma", "d\nbroken"], 40),
            "commit": [f"c{n}" for n in range(40)],
            "value": rng.integers(1, 1000, 40) / 8,
            "time": rng.permutation(40) * 86_400 + 1_600_000_000,
        }
    )
    assert bring(tmp_path, plain.to_csv(index=False)).points == 40
    columns = (plain.sort_values("time")[name].tolist() for name in ("series", "commit", "value"))
    assert points(tmp_path) == [(" ".join(series.split()), *rest) for series, *rest in zip(*columns, strict=True)]


def test_bad_values_are_counted_and_left_out(tmp_path: Path) -> None:
    values = ["1.5", "nan", "inf", "-inf", "", "abc", "0", "-1", "2.5"]
    rows = "".join(f"s,c{n},2026-01-{n + 1:02d},{value}\n" for n, value in enumerate(values))
    done = bring(tmp_path, "series,commit,time,value\n" + rows + "s,c99\n")
    assert [value for _, _, value in points(tmp_path)] == [1.5, 2.5]
    assert problems(done) == [
        "7 values are no finite numbers above 0; left out",
        "1 rows have another number of cells than the header; left out",
    ]


def test_dates_in_every_spelling(tmp_path: Path) -> None:
    texts = ["1600000000", "1600000000000", "1600000000000000", "1600000000000000000", "2020-09-13T12:26:40+00:00"]
    texts += ["2020-09-13 13:26:40+01:00", "1600000000.0", "tomorrow", "-5", "2262-01-01", ""]
    found = foreign_csv.moments(texts)
    assert (found[:7] == np.datetime64("2020-09-13T12:26:40.000")).all()
    assert np.isnat(found[7:]).all()
    done = bring(tmp_path, "commit,time,value\na,tomorrow,1\nb,0,2\nc,1999-01-01,3\n")
    assert [commit for _, commit, _ in points(tmp_path)] == ["b", "c"], "a clock set back is an early date"
    assert problems(done) == ["1 rows have a time that is no date from 1970 to 2100; left out"]


def test_without_times_the_order_of_the_file_counts(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 16)
    bring(tmp_path, "commit,value\nz,1\nm,2\na,3\nz,4\nb,5\n")
    assert [(commit, value) for _, commit, value in points(tmp_path)] == [("z", 4), ("m", 2), ("a", 3), ("b", 5)]


def test_without_commits_points_are_numbered_within_their_series(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 16)
    bring(tmp_path, "series,value\na,1\nb,2\na,3\na,4\nb,5\n")
    found = [(series, int(commit), value) for series, commit, value in sorted(points(tmp_path))]
    assert found == [("a", 0, 1), ("a", 1, 3), ("a", 2, 4), ("b", 0, 2), ("b", 1, 5)]


def test_one_point_and_a_bare_header(tmp_path: Path) -> None:
    assert bring(tmp_path, "value\n7").points == 1
    assert points(tmp_path) == [("series", "00000000", 7.0)]
    assert bring(tmp_path, "value\n", "empty.csv").points == 0


def test_mixed_units(tmp_path: Path) -> None:
    rows = "series,commit,unit,value\na,c1,ms,2\na,c2,us,2000\na,c3,,2\na,c4,MB,55\na,c5,\N{MICRO SIGN}s,-1\n"
    done = bring(tmp_path, rows, unit="s")
    assert [value for _, _, value in points(tmp_path)] == pytest.approx([2e-3, 2e-3, 2.0])
    assert problems(done) == [
        "1 values are no finite numbers above 0; left out",
        "1 values in 'MB', no unit of time: kept, on no page",
    ]
    assert math.isnan(kept(tmp_path).set_index("unit").loc["MB", "seconds"])
    assert bring(tmp_path, "value\n3\n", "other.csv", unit="ns").points == 1
    assert min(value for _, _, value in points(tmp_path)) == pytest.approx(3e-9)


def test_several_machines_and_a_name_from_the_user(tmp_path: Path) -> None:
    text = "machine,series,commit,value\nm1,a,c,1\nm2,a,c,2\n,a,c,3\n"
    assert bring(tmp_path, text).machines == {"m1", "m2", "unknown"}
    assert sorted(cache.imported_machines(tmp_path / "results")) == ["m1", "m2", "unknown"]
    other = tmp_path / "other"
    other.mkdir()
    assert bring(other, text, machine="new name").machines == {next(iter(cache.imported_machines(other / "results")))}
    assert next(iter(cache.imported_machines(other / "results"))).startswith("new_name-")


def test_an_interrupted_import_goes_on_where_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 80)
    text = "series,commit,time,value\n" + "".join(f"s,c{n},{n * 1000},{n + 1}\n" for n in range(30))
    read, parsed = foreign_csv.tables, list[int]()

    def counted(header: Any, block: foreign_csv.CsvBlock, *rest: Any) -> Any:
        parsed.append(block.offset)
        if len(parsed) == 4:
            raise KeyboardInterrupt
        return read(header, block, *rest)

    monkeypatch.setattr(foreign_csv, "tables", counted)
    with pytest.raises(KeyboardInterrupt):
        bring(tmp_path, text)
    done = bring(tmp_path, text)
    assert len(parsed) == len(set(parsed)) + 1, "only the block that was interrupted is read again"
    assert [value for _, _, value in points(tmp_path)] == list(range(1, 31))
    assert (done.added, bring(tmp_path, text).known) == (1, 1)


def test_a_csv_that_was_written_anew_replaces_its_points(tmp_path: Path, monkeypatch: Any) -> None:
    """History was rewritten: commits are gone, blocks are fewer."""
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 64)
    bring(tmp_path, "commit,time,value\n" + "".join(f"c{n},{n},{n + 1}\n" for n in range(40)))
    bring(tmp_path, "commit,time,value\nd0,5,9\n")
    assert points(tmp_path) == [("series", "d0", 9.0)]


def test_no_utf8_and_windows_line_ends(tmp_path: Path) -> None:
    done = bring(tmp_path, b"\xef\xbb\xbfSeries, Commit ,Value\r\ncaf\xe9,c1,1\r\n\xff\xfe,c2,2\r\n")
    assert done.points == 2
    assert {kernel for kernel, _, _ in points(tmp_path)} == {"caf\ufffd", "\ufffd\ufffd"}


def test_two_engines_query_many_points(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 1 << 18)
    rng = np.random.default_rng(0)
    count = 60_000
    table = pd.DataFrame(
        {
            "series": [f"k{n % 40}/triton/m{n % 200}" for n in range(count)],
            "commit": [f"{n // 200:08x}" for n in range(count)],
            "time": [1_600_000_000 + n // 200 * 3600 for n in range(count)],
            "value": rng.uniform(1e-6, 1e-3, count).round(9),
        }
    )
    assert bring(tmp_path, table.to_csv(index=False), machine="m1").points == count
    expected = table[table["series"].str.startswith("k7/")]["value"].median()
    files = tmp_path / "results" / "imported" / "*" / "*.parquet"
    query = f"SELECT median(seconds), count(*), min(machine) FROM read_parquet('{files}', hive_partitioning = true)"
    assert duckdb.sql(f"{query} WHERE kernel = 'k7'").fetchall()[0] == (pytest.approx(expected), count // 40, "m1")
    rows = pd.read_parquet(tmp_path / "results" / "imported", filters=[("kernel", "==", "k7"), ("machine", "==", "m1")])
    assert (rows["seconds"].median(), len(rows)) == (pytest.approx(expected), count // 40)
