"""Points from a CSV: what a pandas user would read by hand, whatever the blocks, and everything that can be wrong."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.dataset as ds
import pytest

from ci.records import derived, foreign, foreign_csv, imported, store
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
    assert sorted(imported.imported_machines(tmp_path / "results")) == ["m1", "m2", "unknown"]
    other = tmp_path / "other"
    other.mkdir()
    assert bring(other, text, machine="new name").machines == {
        next(iter(imported.imported_machines(other / "results")))
    }
    assert next(iter(imported.imported_machines(other / "results"))).startswith("new_name-")


def test_an_interrupted_import_goes_on_where_it_was(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(foreign_csv, "BLOCK_BYTES", 80)
    text = "series,commit,time,value\n" + "".join(f"s,c{n},{n * 1000},{n + 1}\n" for n in range(30))
    read, parsed = foreign_csv.tables, list[bytes]()

    def counted(header: Any, content: bytes, *rest: Any) -> Any:
        parsed.append(content)
        if len(parsed) == 4:
            raise KeyboardInterrupt
        return read(header, content, *rest)

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


# Files of other benchmark tools: what their numbers become, held against the files themselves.


FILES = Path(__file__).parents[2] / "recordings" / "foreign"
SERIES = ["machine", "kernel", "backend", "case"]


def brought(
    tmp_path: Path, *paths: Path, kind: str | None = None, **given: Any
) -> tuple[foreign.Brought, pd.DataFrame]:
    """Import files into an empty folder, and read the frame."""
    done = foreign.bring(foreign.sources(paths), tmp_path / "results", ImportOptions(**given), kind)
    return done, derived.derive(store.load(tmp_path / "results"))


def seconds(frame: pd.DataFrame) -> dict[tuple[str, ...], float]:
    return {tuple(map(str, row[:4])): row[4] for row in frame[[*SERIES, "seconds"]].itertuples(index=False)}


# ---- nccl-tests, rccl-tests --------------------------------------------------------------------------------------


def test_a_log_of_nccl_tests_with_mpi_prefixes(tmp_path: Path) -> None:
    done, frame = brought(tmp_path, FILES / "nccl_tests_mpi.txt", commit="v1", date_ms=1_790_000_000_000)
    assert (done.points, done.problems) == (6, [])
    assert seconds(frame) == pytest.approx(
        {
            ("node-a", "all_reduce", "nccl", "w4_fp32_1KB"): 28.33e-6,
            ("node-a", "all_reduce", "nccl_in_place", "w4_fp32_1KB"): 28.05e-6,
            ("node-a", "all_reduce", "nccl", "w4_fp32_256KB"): 40.10e-6,
            ("node-a", "all_reduce", "nccl_in_place", "w4_fp32_256KB"): 41.20e-6,
            ("node-a", "all_reduce", "nccl", "w4_fp32_64MB"): 612.5e-6,
            ("node-a", "all_reduce", "nccl_in_place", "w4_fp32_64MB"): math.nan,
        },
        nan_ok=True,
    )
    wrong = frame[frame["status"] == "wrong"].iloc[0]
    assert (wrong["backend"], wrong["why"]) == ("nccl_in_place", "7 elements are wrong")
    large = frame[(frame["case"] == "w4_fp32_64MB") & (frame["backend"] == "nccl")].iloc[0]
    assert (large["algbw"], large["busbw"]) == pytest.approx((109.57, 164.35), rel=1e-4), "as the log says"
    assert (large["world"], large["device"], large["library"]) == (4, "NVIDIA H100 80GB HBM3", "NCCL 2.28.9")
    assert (large["commit"], str(large["date"])) == ("v1", "2026-09-21 14:13:20+00:00")


def test_a_log_with_two_runs_of_rccl_tests(tmp_path: Path) -> None:
    done, frame = brought(tmp_path, FILES / "rccl_tests_two.txt")
    assert [problem.why for problem in done.problems] == [
        "line 36: no row of its table: '1048576        torn'; left out"
    ]
    found = seconds(frame)
    assert found["mi300x-1", "all_gather", "rccl", "w2_fp16_4MB"] == pytest.approx(90e-6)
    assert found["mi300x-1", "all_gather", "rccl_in_place", "w2_fp16_1MB"] == pytest.approx(49e-6)
    repeated = frame[frame["kernel"] == "broadcast"].iloc[0]
    assert (repeated["backend"], repeated["case"]) == ("rccl_in_place", "w2_bf16_1MB_root1")
    assert (repeated["seconds"], repeated["samples"]) == (pytest.approx(53.43e-6), 2), "a cycle repeats a size"
    gather = frame[(frame["case"] == "w2_fp16_4MB") & (frame["backend"] == "rccl")].iloc[0]
    assert gather["busbw"] == pytest.approx(23.30, rel=1e-3)
    assert (gather["library"], gather["runtime"]) == ("RCCL 2.22.3", "ROCm 6.3.0.0")


def test_the_json_of_nccl_tests(tmp_path: Path) -> None:
    done, frame = brought(tmp_path, FILES / "nccl_tests.json")
    assert done.points == 3
    first = frame[(frame["case"] == "w2_fp32_1MB") & (frame["backend"] == "nccl")].iloc[0]
    assert (first["kernel"], first["machine"], first["device"]) == ("all_to_all", "node-c", "NVIDIA H200")
    assert (first["seconds"], first["busbw"]) == pytest.approx((20.5e-6, 25.57), rel=1e-3)
    assert str(first["date"]) == "2026-07-10 08:30:00+00:00"


def test_a_log_that_does_not_name_its_collective_is_refused_until_it_is_named(tmp_path: Path) -> None:
    text = "".join(line for line in (FILES / "rccl_tests_two.txt").open() if "_perf" not in line)
    (tmp_path / "log.txt").write_text(text)
    done, _ = brought(tmp_path, tmp_path / "log.txt")
    assert (done.points, done.refused) == (0, 1)
    assert "--kernel" in done.problems[0].why
    assert brought(tmp_path, tmp_path / "log.txt", kernel="all_gather")[0].points > 0
    (tmp_path / "reduce_scatter.txt").write_text(text)
    assert "reduce_scatter" in set(brought(tmp_path, tmp_path / "reduce_scatter.txt")[1]["kernel"])


@pytest.mark.parametrize("keep", [10, 14])
def test_an_interrupted_log_is_refused(tmp_path: Path, keep: int) -> None:
    lines = (FILES / "nccl_tests_mpi.txt").read_text().splitlines(keepends=True)
    (tmp_path / "log.txt").write_text("".join(lines[: keep + 3]))
    done, _ = brought(tmp_path, tmp_path / "log.txt", kind="nccl-tests")
    assert "interrupted" in done.problems[0].why


# ---- hyperfine, Google Benchmark ---------------------------------------------------------------------------------


def test_hyperfine(tmp_path: Path) -> None:
    done, frame = brought(tmp_path, FILES / "hyperfine.json", machine="laptop")
    frame = frame.set_index("case")
    sort = frame.loc[".\N{DIVISION SLASH}build\N{DIVISION SLASH}sort --rows 1000 [rows=1000]"]
    assert (sort["kernel"], sort["machine"], sort["samples"]) == ("sort", "laptop", 5)
    assert (sort["seconds"], sort["seconds_low"]) == pytest.approx((0.0204, 0.0199))
    assert frame.loc["sleep 0.1", "seconds"] == pytest.approx(0.1011)
    failed = frame[frame["status"] == "error"]
    assert (len(failed), failed["why"].iloc[0]) == (1, "the command failed")
    assert [problem.why.partition(":")[0] for problem in done.problems] == ["odd"]


def test_google_benchmark(tmp_path: Path) -> None:
    done, frame = brought(tmp_path, FILES / "google_benchmark.json")
    frame = frame.set_index("kernel")
    copy = frame.loc["BM_Copy"]
    assert (copy["machine"], copy["case"], copy["samples"]) == ("bench-1", "4096\N{DIVISION SLASH}8", 3)
    assert (copy["seconds"], copy["gbs"]) == pytest.approx((102e-9, 80.0)), "repetitions, not their mean"
    assert frame.loc["BM_Sum", "seconds"] == pytest.approx(4e-6), "the median of the aggregates"
    assert (frame.loc["BM_Bad", "status"], frame.loc["BM_Bad", "why"]) == ("error", "no such device")
    assert str(copy["date"]) == "2026-03-01 11:00:00+00:00"
    assert [problem.why for problem in done.problems] == ["BM_BigO: has no real_time in a unit of time; left out"]


# ---- asv ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree of another project: formats 1 and 2, two machines, file names with a time, a torn file."""
    return Path(shutil.copytree(FILES.with_name("asv_of_others"), tmp_path / "theirs"))


def test_a_tree_of_asv(tmp_path: Path, tree: Path) -> None:
    done, frame = brought(tmp_path, tree)
    found = seconds(frame)
    assert found["fast", "io.time_read", "asv", "rows=10,kind=csv"] == 1e-3
    assert found["fast", "io.time_read", "asv", "rows=1000,kind=a\N{DIVISION SLASH}b"] == 4e-3
    assert ("fast", "io.time_read", "asv", "rows=1000,kind=csv") not in found, "asv skipped it"
    assert found["slow", "io.time_old", "asv", "all"] == 0.25
    assert found["slow", "io.time_read", "asv", "1000"] == 2.0
    assert math.isnan(found["slow", "io.time_gone", "asv", "all"])
    assert set(frame.loc[frame["status"] == "error", "why"]) == {"failed under asv"}
    assert {(row.machine, row.env, row.torch) for row in frame.itertuples()} == {
        ("fast", "conda-py3.12", "2.9"),
        ("slow", "py2.7-numpy", ""),
    }
    said = sorted(f"{Path(problem.where).name}: {problem.why}" for problem in done.problems)
    assert len(said) == 2
    assert "bad: holds what asv does not write (1 results for 2 combinations of parameters); left out" in said[0]
    assert "no sound JSON, was its writer interrupted?" in said[1]
    assert not {"io.track_rate", "io.peakmem_read"} & set(frame["kernel"]), "no times"


def test_what_is_no_time_is_kept_with_its_unit(tmp_path: Path, tree: Path) -> None:
    brought(tmp_path, tree)
    kept = pd.read_parquet(tmp_path / "results" / "imported", columns=["machine", "kernel", "value", "unit", "seconds"])
    kept = kept[kept["seconds"].isna() & kept["value"].notna()]
    assert set(kept[["kernel", "value", "unit"]].itertuples(index=False, name=None)) == {
        ("io.track_rate", 55.5, "MB\N{DIVISION SLASH}s"),
        ("io.peakmem_read", 1e6, "bytes"),
    }


def test_our_own_asv_files_keep_their_names(tmp_path: Path) -> None:
    results = Path(__file__).parents[3] / "results"
    shutil.copytree(results / "h200x1-537ca5d2", tmp_path / "theirs" / "h200x1-537ca5d2")
    store.make_asv_files(tmp_path / "theirs")
    frames = brought(tmp_path, tmp_path / "theirs")[1], store.load(results, "h200x1-537ca5d2")
    series = (frame.dropna(subset="seconds").set_index(["commit", *SERIES])["seconds"] for frame in frames)
    found, expected = ({tuple(map(str, key)): value for key, value in one.items()} for one in series)
    assert found == pytest.approx(expected)


# ---- the store ---------------------------------------------------------------------------------------------------


def test_twice_is_once_and_a_changed_file_replaces(tmp_path: Path, tree: Path) -> None:
    first, before = brought(tmp_path, tree)
    again, after = brought(tmp_path, tree)
    assert (first.added, again.added, again.known, again.points) == (2, 0, 2, 0)
    pd.testing.assert_frame_equal(before, after)
    path = tree / "slow" / "dddddddd-py2.7-numpy.json"
    path.write_text(path.read_text().replace("0.25", "0.5"))
    changed, frame = brought(tmp_path, tree)
    assert (changed.added, changed.known) == (1, 1)
    assert seconds(frame)["slow", "io.time_old", "asv", "all"] == 0.5
    assert len(frame) == len(before)


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    done = foreign.bring(foreign.sources([FILES]), tmp_path / "results", ImportOptions(), dry_run=True)
    assert done.points > 10
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_imported_and_own_records_stand_in_one_frame(tmp_path: Path) -> None:
    results = tmp_path / "results"
    for machine in ("h200x1-537ca5d2", "h200x2-aabbbde0"):
        shutil.copytree(Path(__file__).parents[3] / "results" / machine, results / machine)
    own = store.load(results)
    foreign.bring(foreign.sources([FILES / "nccl_tests_mpi.txt"]), results, ImportOptions(machine="h200x1-537ca5d2"))
    both = store.load(results)
    assert len(both) == len(own) + 6
    assert len(store.load(results, "h200x1-537ca5d2")) == (own["machine"] == "h200x1-537ca5d2").sum() + 6
    assert (both["date"].to_numpy()[1:] >= both["date"].to_numpy()[:-1]).all()


def test_two_imports_of_one_point_are_one_row_the_later(tmp_path: Path) -> None:
    for name, value in (("a.csv", 1.0), ("b.csv", 2.0)):
        (tmp_path / name).write_text(f"series,commit,time,value\nx,c1,2026-01-01,{value}\n")
        _, frame = brought(tmp_path, tmp_path / name)
    assert frame["seconds"].tolist() == [2.0]


def test_a_damaged_import_is_named_and_never_taken_away(tmp_path: Path) -> None:
    brought(tmp_path, FILES / "hyperfine.json", machine="m")
    part = next((tmp_path / "results" / "imported").rglob("*.parquet"))
    part.write_bytes(part.read_bytes()[:-50])
    frame = store.load(tmp_path / "results")
    assert len(frame) == 0
    assert "damaged or of another version" in frame.attrs["problems"][0]
    assert len(brought(tmp_path, FILES / "hyperfine.json", machine="m", commit="again")[1]) > 0
    assert part.exists()


def test_a_history_too_large_for_pages_is_left_to_other_engines(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("ci.records.imported.MOST_ROWS", 2)
    _, frame = brought(tmp_path, FILES / "google_benchmark.json")
    assert len(frame) == 0
    assert "3 imported rows are more than the 2 that pages take" in frame.attrs["problems"][0]


HOSTILE = [
    *("<script>alert(1)</script>", "a/b/c/d", "../../etc", "x" * 5000, "\u202egnp", "__proto__", "\ud800", "a\x00b\nc"),
    *("", " ", "'; DROP TABLE x", "machine=y", "%2e%2e"),
]


def test_hostile_names_are_kept_harmless(tmp_path: Path) -> None:
    names = [f"BM{number}{text}" for number, text in enumerate(HOSTILE)]
    runs = [{"name": name, "run_type": "iteration", "real_time": 1.0, "time_unit": "us"} for name in names]
    for number, host in enumerate(HOSTILE):
        data = {"context": {"host_name": host, "date": "2026-01-01T00:00:00+00:00", "n": number}, "benchmarks": runs}
        (tmp_path / f"{number}.json").write_text(json.dumps(data))
    done, frame = brought(tmp_path, *(tmp_path / f"{number}.json" for number in range(len(HOSTILE))))
    assert done.refused == 0
    texts = {text for column in frame.select_dtypes("category") for text in frame[column].unique()}
    assert all(text.isprintable() or "\u202e" in text for text in texts)
    assert max(map(len, texts)) <= 1000
    assert not any("/" in text for text in texts)
    inside = {path.relative_to(tmp_path / "results").parts[:1] for path in (tmp_path / "results").rglob("*.parquet")}
    assert inside == {("imported",)}
    assert len(frame["kernel"].unique()) == len(HOSTILE)
    assert np.isfinite(frame["seconds"]).all()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", "hello", "of no known format"),
        ("a.json", "{", "no sound JSON"),
        ("a.json", "[" * 100_000, "no sound JSON"),
        ("a.json", "[1]", "is JSON, but not of"),
        ("a.json", '{"results": [], "params": 3, "commit_hash": "x", "version": 9}', "asv format 9"),
        ("a.json", '{"context": {"date": "yesterday"}, "benchmarks": []}', "no ISO date"),
        (
            "a.json",
            '{"results": {}, "params": {}, "commit_hash": "x", "version": 2, "date": 1e18}',
            "a clock was set wrong",
        ),
        ("a.csv", "1,2\n3,4\n", "no header with a column `value`"),
        ("a.csv", "", "no header with a column `value`"),
        ("a.csv", "value,value\n1,2\n", "each name once"),
    ],
)
def test_a_refused_file_is_a_sentence_and_the_rest_is_imported(
    tmp_path: Path, name: str, content: str, said: str
) -> None:
    (tmp_path / name).write_text(content)
    done, frame = brought(tmp_path, tmp_path / name, FILES / "hyperfine.json", tmp_path / "missing.txt", machine="m")
    assert said in done.problems[0].why
    assert "cannot be read: No such file" in done.problems[-1].why
    assert (done.refused, done.added, len(frame)) == (2, 1, 3)
