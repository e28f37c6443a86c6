"""`ridgeline records export`, and that other engines read what we write: exports, the cache, imported records."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.records import derived, store
from ci.records.frame import VERSION

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "results"
GUIDE = (ROOT / ".github/guides/tables.md").read_text(encoding="utf-8")
KEY = ["machine", "commit", "env", "kernel", "backend", "case"]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments], standalone_mode=True)


def sortable(frame: pd.DataFrame) -> pd.DataFrame:
    texts = dict.fromkeys(KEY, str)
    return frame.astype(texts).sort_values(KEY, ignore_index=True)


def test_parquet_holds_the_frame_with_derived_units(tmp_path: Path) -> None:
    assert run("export", "--results", RESULTS, "--out", tmp_path / "history").exit_code == 0
    expected = sortable(derived.derive(store.load(RESULTS)))
    read = sortable(pd.read_parquet(tmp_path / "history"))
    assert set(read.columns) == set(expected.columns)
    columns = [*KEY, "seconds", "tflops", "busbw", "paired_ratio", "baseline_ratio", "status", "baseline_name"]
    for column in columns:
        pd.testing.assert_series_equal(read[column], expected[column], check_dtype=False, check_categorical=False)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_text_formats_hold_the_same_rows(tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"history.{kind}"
    chosen = ["--machine", "h200x1-537ca5d2", "--kernel", "gemm", "--since", "2026-11-21"]
    done = run("export", "--results", RESULTS, "--out", out, "--format", kind, "--json", *chosen)
    frame = store.load(RESULTS, "h200x1-537ca5d2")
    expected = sortable(frame[(frame["kernel"] == "gemm") & (frame["date"] >= pd.Timestamp("2026-11-21", tz="UTC"))])
    assert json.loads(done.output)["rows"] == len(expected) > 0
    read = sortable(pd.read_csv(out) if kind == "csv" else pd.read_json(out, lines=True))
    pd.testing.assert_series_equal(read["seconds"], expected["seconds"], check_dtype=False)
    assert read["kernel"].unique().tolist() == ["gemm"]


def test_nothing_that_matches_is_said(tmp_path: Path) -> None:
    done = run("export", "--results", RESULTS, "--out", tmp_path / "history", "--kernel", "nothing")
    assert "no record matches" in done.output
    dry = run("export", "--results", RESULTS, "--out", tmp_path / "history", "--kernel", "gemm", "--dry-run")
    assert "rows would be in" in dry.output
    assert not (tmp_path / "history").exists()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    empty = run("export", "--results", RESULTS, "--out", "")
    assert (empty.exit_code, "'--out': '' names no path" in empty.output) == (3, True)
    done = run("export", "--results", RESULTS, "--out", tmp_path / "file")
    assert done.exit_code == 3
    assert "name another: --out" in done.output


def test_the_queries_of_the_guide_run(tmp_path: Path) -> None:
    recorded = [f"--machine={path.name}" for path in RESULTS.glob("h200*")]  # `make check` adds its machine
    run("export", "--results", RESULTS, "--out", tmp_path / "history", *recorded)
    code = re.search(r"```python\n(import duckdb.*?)```", GUIDE, flags=re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "gemm_all_scatter" in done.stdout
    assert "h200x1-537ca5d2" in done.stdout


@pytest.mark.slow
def test_the_cache_is_read_by_two_engines(tmp_path: Path) -> None:
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results, ignore=shutil.ignore_patterns(".cache"))
    frame = store.load(results)
    folder = results / ".cache" / f"v{VERSION}"
    columns = "machine, count(*), count(DISTINCT record), median(seconds)"
    query = f"SELECT {columns} FROM '{folder}/*/*.parquet' GROUP BY ALL"
    found = {row[0]: row[1:] for row in duckdb.sql(query).fetchall()}
    for machine, rows in frame.groupby("machine", observed=True):
        records = len(rows[["commit", "env"]].drop_duplicates())
        assert found[str(machine)] == (len(rows), records, pytest.approx(rows["seconds"].median()))
    read = pd.read_parquet(folder, columns=["machine", "kernel", "seconds"], filters=[("kernel", "==", "gemm")])
    assert len(read) == (frame["kernel"] == "gemm").sum()


def test_import_says_what_it_did(tmp_path: Path) -> None:
    files = ROOT / "tests" / "recordings" / "foreign"
    done = run("import", files, "--results", tmp_path / "results", "--json")
    said = json.loads(done.output)
    assert done.exit_code == 0
    assert (said["added"], said["refused"]) == (5, 0)
    assert said["machines"] == ["bench-1", "mi300x-1", "node-a", "node-c", "unknown"]
    again = run("import", files, "--results", tmp_path / "results")
    assert "imported 0 points of 0 files, 5 files known already" in again.output
    assert run("import", tmp_path / "none", "--results", tmp_path / "results").exit_code == 3
    bad = run("import", files, "--date", "yesterday")
    assert bad.exit_code == 3
    assert "no ISO date" in bad.output
