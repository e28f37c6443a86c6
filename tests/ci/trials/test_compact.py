"""A trial without its samples: what is kept of them, and that the line comes back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.records.pooling import Place, pool
from ci.trials import compact, file
from ci.trials.pooled import PooledLine
from ci.trials.trial import Trial
from tests.ci.made_trials import (
    BASE,
    ENV,
    GONE,
    HEAD,
    TIMES,
    changed,
    declaration,
    failed,
    ok,
    parsed,
    tree,
    trial,
    write,
)

PATH = "machine=m/kernel=k/month=2026-11/part-0.parquet"


def skewed(seconds: list[float], skew: Any) -> dict[str, Any]:
    return {**ok(seconds), "skew_s": skew}


def reread(one: Trial) -> Trial:
    found = file.parse_line(one.text.encode())
    assert isinstance(found, Trial), found
    return found


def test_what_is_kept_is_what_numpy_says() -> None:
    collapsed = [*TIMES[:-1], 3.1e-3]
    arms = {"head/triton": ok(collapsed), "head/blas": ok(TIMES[::-1]), "head/hip": failed("error")}
    declared = declaration(backends=("triton", "blas", "hip"))
    full = parsed(trial({"m16": arms}, trees={"head": tree(declared=declared)}))
    small = reread(compact.compacted(full, PATH))
    arm = small.cases["m16"].arms["head", "triton"]
    assert arm.kept is not None
    assert (arm.rounds, len(arm.seconds), arm.kept.collapsed, arm.kept.longest) == (8, 0, 1, 3.1e-3)
    assert arm.median == np.median(collapsed)
    assert (arm.kept.q25, arm.kept.q75) == tuple(np.percentile(collapsed, [25, 75]))
    assert arm.kept.log_ratio == {"blas": np.median(np.log(np.array(TIMES[::-1]) / collapsed))}
    assert small.cases["m16"].arms["head", "blas"].kept.log_ratio == {}  # type: ignore[union-attr]
    assert small.cases["m16"].arms["head", "hip"].kept is None
    assert small.samples is not None
    assert small.samples.path == PATH


times = st.lists(st.floats(1e-9, 3600.0) | st.integers(1, 3600), min_size=1, max_size=9)
arms = st.dictionaries(
    st.sampled_from(["head/triton", "head/blas", "base/triton"]),
    st.builds(skewed, times, st.none() | st.lists(st.floats(0.0, 1.0), max_size=9)) | st.just(failed("hang")),
    min_size=1,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.sampled_from(["m16", "m64"]), arms, min_size=1))
def test_every_trial_comes_back(cases: dict[str, Any]) -> None:
    line = trial(cases, trees={"head": tree(), "base": tree(BASE)})
    full = parsed(line)
    small = compact.compacted(full, PATH)
    back = compact.restored(reread(small), compact.samples_of(full)[::-1])
    assert json.loads(back.text) == line
    assert compact.same_results(small, full)
    assert compact.same_results(full, small)
    assert reread(small).text == small.text
    assert [a.kept for *_, a in reread(small).arms()] == [a.kept for *_, a in small.arms()]


def test_trials_of_which_one_is_compact_are_not_pooled_without_it() -> None:
    """The samples of the others are a part of what was measured: nothing is said until what is kept of all is there."""
    one, two = (parsed(trial(number=number)) for number in range(2))
    place = Place(one.machine.name, HEAD, ENV)
    mixed = pool([compact.compacted(one, PATH), two], place)
    assert [cell.trials for cell in pool([one, two], place).cells.values() if cell.trials] != []
    assert [cell.trials for cell in mixed.cells.values() if cell.trials] == []


@pytest.mark.parametrize("spoil", ["another time", "a sample less", "an arm less", "another skew"])
def test_other_samples_are_refused(spoil: str) -> None:
    full = parsed(trial({"m16": {"head/triton": skewed(TIMES, [1e-6] * 8), "head/blas": ok()}}))
    small, samples = compact.compacted(full, PATH), compact.samples_of(full)
    first = samples[0]
    if spoil == "another time":
        first.seconds[3] *= 1 + 1e-15
    elif spoil == "another skew":
        first.skew_s[0] = 0.0
    elif spoil == "an arm less":
        samples = samples[1:]
    else:
        samples[0] = compact.ArmSamples(first.case, first.role, first.backend, first.seconds[:-1], first.skew_s)
    with pytest.raises(compact.Altered, match="not those that were recorded"):
        compact.restored(small, samples)


def test_a_compact_trial_with_other_results_is_a_conflict(tmp_path: Path) -> None:
    one = trial()
    other = {**trial({"m16": {"head/triton": ok([2e-3] * 8)}}), "id": one["id"]}
    small = compact.compacted(parsed(one), PATH)
    path = write(tmp_path / "t.jsonl", json.loads(small.text), one, other)
    found = file.read(path)
    assert [t.id for t in found.trials] == [one["id"]]
    assert [(r.number, r.fault) for r in found.rejected] == [(3, file.Fault.CONFLICT)]


def test_a_measured_file_has_no_compact_trials() -> None:
    """What is judged at once must hold its samples: a stranger's line does not say where to fetch them."""
    small = compact.compacted(parsed(trial()), PATH).text.encode()
    found = file.parse([small, json.dumps(trial(number=1)).encode()], 1)
    trials, rejected = found.trials, found.rejected
    assert [one.number for one in trials] == [1]
    assert "samples elsewhere" in rejected[0].why


ARM = "cases m16 arms head/triton"


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("version", 2, "version is 2; allowed: 1"),
        ("samples", GONE, "samples is null"),
        (f"{ARM} seconds", TIMES, "an object"),
        (f"{ARM} seconds median", GONE, "median is null"),
        (f"{ARM} seconds rounds", 0, "rounds is 0"),
        (f"{ARM} status", "hang", "only if, the status is ok"),
        ("machine", {"name": "../x"}, "machine.name"),
        ("cases", [], "cases is []"),
        ("cases m16", 3, "cases"),
        (f"{ARM} seconds log_ratio", 1, "an object"),
    ],
)
def test_a_spoilt_compact_line_is_named(path: str, value: Any, said: str) -> None:
    line = changed(json.loads(compact.compacted(parsed(trial()), PATH).text), path, value)
    found = file.parse_line(json.dumps(line).encode())
    assert isinstance(found, file.Rejected)
    assert found.fault is file.Fault.NOT_A_TRIAL
    assert said in found.why


POOLED = {
    "format": "ridgeline-pooled",
    "version": 1,
    "kernel": "gemm",
    "trials": ["a"],
    "columns": [],
    "cells": [["triton", "m16", 1e-3, 9e-4, 2e-3, 1e-3, 1e-3, 8, 1, "blas", 0.5, 0.4, 0.6]],
}


def test_a_pooled_line_is_read_as_it_was_written() -> None:
    found = file.parse_line(json.dumps(POOLED).encode())
    assert isinstance(found, PooledLine)
    assert PooledLine.of(json.loads(found.text)) == found
    paired = found.times["triton", "m16"].paired
    assert paired is not None
    assert (paired.name, paired.high) == ("blas", 0.6)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"cells": [["triton", "m16"]]},
        {"cells": [3]},
        {"cells": [["triton", "m16", "x", *[1] * 10]]},
        {"cells": [["triton", "m16", *[1] * 7, "blas", None, None, None]]},
        {"trials": None},
    ],
)
def test_a_spoilt_pooled_line_is_named(change: dict[str, Any]) -> None:
    assert isinstance(file.parse_line(json.dumps({**POOLED, **change}).encode()), file.Rejected)
