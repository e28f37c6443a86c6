"""Derived columns against the formulas worked out by hand, row by row."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from benchmarks.programs.reader import readers
from ci.__main__ import main
from ci.history import reading, triage
from ci.history.types import Direction, EventKind
from ci.records import derived, importing, rates, store
from ci.records import derived as derive
from ci.records import store as records
from ci.records.devices import DeviceAtWork, combined, devices_at_work, devices_in, devices_text
from ci.records.importing import ImportOptions, bring
from ci.records.rates import Rate
from kernels.hardware import DEVICES, by_market_name, roofline_seconds
from kernels.spec import Cost
from tests.ci import made_trials
from tests.kit import commits_of_one_second, git

GEMM = {
    "machine": "m",
    "commit": "a" * 40,
    "env": "e",
    "kernel": "gemm",
    "backend": "triton",
    "baseline": False,
    "case": "c",
    "market_name": "MI300X",
    "arch": "gfx942",
    "device": "AMD Instinct MI300X",
    "dtype": "fp16",
    "world": 1,
    "seconds": 1e-3,
    "flops": 2.0 * 4096**3,
    "hbm_bytes": 3.0 * 4096**2 * 2,
    "link_bytes": 0.0,
    "payload_bytes": 0.0,
}
GATHER = {
    **GEMM,
    "kernel": "all_gather",
    "flops": 0.0,
    "hbm_bytes": 2e9,
    "link_bytes": 0.875e9,
    "payload_bytes": 1e9,
    "world": 8,
    "seconds": 4e-3,
}


def frame(*rows):
    return derive.derive(pd.DataFrame(rows))


def test_gemm_by_hand():
    row = frame(GEMM).iloc[0]
    assert row["tflops"] == pytest.approx(137.438953472)
    assert row["gbs"] == pytest.approx(100.663296)
    assert row["peak_share"] == pytest.approx(2 * 4096**3 / 1307.4e12 / 1e-3)
    assert math.isnan(row["algbw"])
    assert math.isnan(row["busbw"])


def test_all_gather_follows_nccl_tests():
    """nccl-tests: algbw = S / t, busbw = algbw * (n - 1) / n for an all-gather."""
    row = frame(GATHER).iloc[0]
    assert row["algbw"] == pytest.approx(250.0)
    assert row["busbw"] == pytest.approx(250.0 * 7 / 8)
    assert math.isnan(row["tflops"]), "a copy has no FLOP rate"


def test_roofline_of_every_known_device_is_that_of_the_kernels_package():
    for device in DEVICES:
        for base in (GEMM, GATHER, {**GATHER, "world": 2}):
            row = frame({**base, "market_name": device.market_name}).iloc[0]
            cost = Cost(*(int(base[key]) for key in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")))
            world = int(base["world"])
            expected = roofline_seconds(cost, "fp16", device, world) / base["seconds"]
            assert row["peak_share"] == pytest.approx(expected), device.market_name


def test_a_partition_is_measured_by_its_own_peak():
    whole = by_market_name("MI300X")
    part = {
        **GEMM,
        "market_name": "MI300X (1/8 partition)",
        "compute_units": 38.0,
        "chip_id": "74a1",
        "memory_bytes": 192.0 * 2**30,
    }
    assert frame(part).iloc[0]["peak_share"] == pytest.approx(2 * 4096**3 / (whole.peak("fp16") / 8) / 1e-3)


@pytest.mark.parametrize(
    "change",
    [
        {"market_name": "", "arch": "cpu"},
        {"market_name": None, "arch": "gfx1201"},
        {"dtype": "int4"},
        {"flops": np.nan},
    ],
)
def test_no_share_where_the_peak_or_the_cost_is_unknown(change):
    assert math.isnan(frame({**GEMM, **change}).iloc[0]["peak_share"])


def test_ratio_to_the_fastest_baseline_beside_it_and_its_name():
    rows = [
        GEMM,
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.8e-3},
        {**GEMM, "backend": "slow library", "baseline": True, "seconds": 2e-3},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.1e-3, "machine": "another"},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": 0.1e-3, "env": "another"},
        {**GEMM, "backend": "blas", "baseline": True, "seconds": np.nan, "case": "d"},
        {**GEMM, "case": "d"},
    ]
    found = frame(*rows)
    ratio, name = found["baseline_ratio"], found["baseline_name"]
    assert ratio[0] == pytest.approx(0.8), "above 1 ours is faster, and 1 ms against 0.8 ms is slower"
    assert ratio[1] == pytest.approx(1.0)
    assert math.isnan(ratio[6]), "a baseline that failed is not a baseline"
    assert list(name) == ["blas", "blas", "blas", "blas", "blas", "", ""]


def test_an_empty_frame_stays_empty(tmp_path):
    empty = derive.derive(records.load(tmp_path))
    assert len(empty) == 0
    assert {"tflops", "gbs", "algbw", "busbw", "peak_share", "baseline_ratio", "baseline_name"} <= set(empty.columns)


# Formulas of rates, and the unit in which a case is quoted.


ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("flops", "hbm", "link", "rate"),
    [
        (0, 1e6, 1e6, "busbw"),
        (0, 1e6, 0, "gbs"),
        (1e6, 1e6, 0, "gbs"),
        (1e9, 1e6, 0, "tflops"),
        (1e9, 1e6, 1e6, "tflops"),
        (1e9, 0, 0, "tflops"),
        (np.nan, np.nan, np.nan, "time"),
        (0, 0, 0, "time"),
    ],
)
def test_a_case_is_quoted_in_the_unit_of_the_field(flops, hbm, link, rate):
    assert rates.headline(SimpleNamespace(flops=flops, hbm_bytes=hbm, link_bytes=link)) == rate


def test_a_single_number_and_a_column_give_the_same_rates():
    flops, world, seconds = (pd.Series(column, dtype=float) for column in ([1e12, 3e12], [1, 8], [1e-3, 2e-2]))
    for rate in rates.AMOUNT:
        column = rates.value(rate, flops, world, seconds)
        singles = [rates.value(rate, *numbers) for numbers in zip(flops, world, seconds, strict=True)]
        assert list(column) == singles
    assert rates.value(Rate.TFLOPS, 3e12, 8, 2e-2) == pytest.approx(1200.0)
    assert rates.value(Rate.BUSBW, 3e12, 8, 2e-2) == pytest.approx(150e3)


def test_rates_start_without_pandas():
    code = "import sys, ci.records.rates; sys.exit(any(name in sys.modules for name in ('pandas', 'numpy', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


# `ridgeline records export`, and that other engines read what we write: exports, the cache, imported records.


RESULTS = ROOT / "tests/recordings/results"
"""Records of two machines as they were on 2026-11-28: no night changes them."""
GUIDE = (ROOT / ".github/guides/tables.md").read_text(encoding="utf-8")
KEY = ["machine", "commit", "env", "kernel", "backend", "case"]


def run(*arguments):
    return CliRunner().invoke(main, [str(one) for one in arguments], standalone_mode=True)


def sortable(frame):
    texts = dict.fromkeys(KEY, str)
    return frame.astype(texts).sort_values(KEY, ignore_index=True)


def test_parquet_holds_the_frame_with_derived_units(tmp_path):
    assert run("export", "--results", RESULTS, "--out", tmp_path / "history").exit_code == 0
    expected = sortable(derived.derive(store.load(RESULTS)))
    read = sortable(pd.read_parquet(tmp_path / "history"))
    assert set(read.columns) == set(expected.columns)
    columns = [*KEY, "seconds", "tflops", "busbw", "paired_ratio", "baseline_ratio", "status", "baseline_name"]
    for column in columns:
        pd.testing.assert_series_equal(read[column], expected[column], check_dtype=False, check_categorical=False)


def test_what_is_chosen_is_written(tmp_path):
    chosen = ["--machine", "h200x2-aabbbde0", "--kernel", "gemm"]
    done = run("export", "--results", RESULTS, "--out", tmp_path / "history", "--json", *chosen)
    frame = store.load(RESULTS, "h200x2-aabbbde0")
    expected = sortable(frame[frame["kernel"] == "gemm"])
    assert json.loads(done.output)["rows"] == len(expected) > 0
    read = sortable(pd.read_parquet(tmp_path / "history"))
    pd.testing.assert_series_equal(read["seconds"], expected["seconds"], check_dtype=False)
    assert read["kernel"].unique().tolist() == ["gemm"]


@pytest.mark.slow
def test_the_queries_of_the_guide_run(tmp_path):
    run("export", "--results", RESULTS, "--out", tmp_path / "history")
    code = re.search(r"```python\n(import duckdb.*?)```", GUIDE, flags=re.DOTALL)
    assert code is not None
    done = subprocess.run([sys.executable, "-c", code[1]], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "gemm" in done.stdout
    assert "h200x2-aabbbde0" in done.stdout


def test_import_says_what_it_did(tmp_path):
    files = ROOT / "tests" / "recordings" / "programs"
    results = ("--results", tmp_path / "results")
    done = run("import", files / "hyperfine.json", *results, "--machine", "node-3", "--json")
    rows = json.loads(done.output)["rows"]
    assert [(row["case"], row["status"]) for row in rows][2:] == [("sleep 0.1", "ok"), ("odd", "failed")]
    assert (rows[2]["value"], rows[2]["unit"], rows[2]["ranks"], rows[2]["note"]) == (0.1011, "s", 1, "")
    again = run("import", files / "hyperfine.json", *results, "--machine", "node-3")
    assert "4 rows of 0 files, 1 file known already; node-3" in again.output
    frame = records.load(tmp_path / "results")
    assert frame["case"].tolist().count("sleep 0.1") == 1
    assert frame["seconds"].min() == pytest.approx(0.0204)
    assert run("import", files, *results).exit_code == 3, "nobody knows perf_report.csv without its name"
    assert run("import", tmp_path / "none", *results).exit_code == 3
    for wrong, said in {"--reads=xml": "hyperfine", "--unit=min": "TFLOPS"}.items():
        bad = run("import", files, wrong)
        assert bad.exit_code == 3
        assert said in bad.output


def test_of_a_folder_hidden_files_are_left_out_and_one_that_is_named_is_read(tmp_path):
    names = ("b/a.csv", "a.csv", ".b.csv", ".git/c.csv")
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    files = importing.files_in([tmp_path, tmp_path / ".b.csv"])
    assert [str(file.relative_to(tmp_path)) for file in files] == ["a.csv", "b/a.csv", ".b.csv"]


# What each GPU reported while it measured, read of trials and kept with their rows.


def gpu_reading(clock, power, throttle):
    """Of two devices, the second 100 MHz slower."""
    first = {"sm_clock_mhz": clock, "power_w": power, "temperature_c": power / 10, "throttle": throttle}
    return {**first, "others": [{**first, "sm_clock_mhz": clock - 100}]}


DURING = [
    gpu_reading(345, 80, "idle"),
    gpu_reading(1980, 120, "none"),
    gpu_reading(1500, 690, "software power cap"),
    gpu_reading(1400, 695, "software power cap, hardware thermal"),
]


def line(**facts):
    return {**made_trials.trial(), "state": {"during": DURING}, **facts}


def test_devices_are_read_at_work_only():
    first, second = devices_at_work([made_trials.parsed(line())])
    assert first == DeviceAtWork(1450.0, 692.5, 69.5, 0.5)
    assert second == first._replace(clock_mhz=1350.0)
    assert devices_at_work([made_trials.parsed(line(state={}))]) == []


def test_several_trials_keep_the_median_and_the_worst_of_heat():
    trials = [[DeviceAtWork(1000.0 + n, 700.0, 60.0 + n, None)] for n in range(3)]
    assert combined([*trials, []]) == [DeviceAtWork(1001.0, 700.0, 62.0, None)]


def test_the_rows_of_a_record_say_what_its_gpus_did(tmp_path):
    store.record([made_trials.write(tmp_path / "trials.jsonl", line())], tmp_path / "results")
    texts = set(store.load(tmp_path / "results")["devices"])
    assert [devices_in(text) for text in texts] == [devices_at_work([made_trials.parsed(line())])]
    assert devices_text([]) == ""
    assert devices_in("") == []


# What others measured, in the history: the right side is charged, and no date tells the order.

STEP = 12
"""The commit at which a side becomes faster, of twice as many."""


@pytest.mark.parametrize(("ours", "library"), [(1.0, 0.6), (0.6, 1.0)])
def test_the_side_that_became_faster_is_charged(tmp_path, monkeypatch, ours, library):
    folder = tmp_path / "clone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    drawn = random.Random(1)
    for number, commit in enumerate(commits_of_one_second(folder, 2 * STEP)):
        times = {
            "ours": 9e-6 * (ours if number >= STEP else 1.0) * drawn.gauss(1, 0.003),
            "rccl": 1e-5 * (library if number >= STEP else 1.0) * drawn.gauss(1, 0.003),
        }
        log = tmp_path / f"{number}.csv"
        log.write_text("case,backend,seconds\n" + "".join(f"a,{name},{time}\n" for name, time in times.items()))
        said = ImportOptions("csv", "m1", "copy", commit, baselines=("rccl",))
        assert bring([log], folder / "results", readers(), said).added == 1
    [event] = reading.history(folder / "results", None, triage.load(folder / "events.toml")).events
    side = EventKind.LIBRARY if library < 1 else EventKind.KERNEL
    assert (event.kind, event.direction) == (side, Direction.FASTER)
    assert event.first_bad.hash == git(folder, "rev-list", "--reverse", "HEAD").split()[STEP]
