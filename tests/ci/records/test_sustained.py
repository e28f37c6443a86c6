"""Records of sustained calls: a folder of their own, never pooled with spaced ones, and shown beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.records import store
from ci.records.sustained import beside
from tests.ci import made_trials
from tests.ci.made_trials import HEAD, TIMES, declaration, ok, tree, trial

MACHINE = made_trials.MACHINE["name"]


def sustained(number: int = 0, slower: float = 1.2, **more):
    """A trial in bursts: triton as fast as blas there, and twice as slow where calls are spaced."""
    triton, blas = ([slower * one for one in TIMES] for _ in range(2))
    cases = {"m16": {"head/triton": ok(triton), "head/blas": ok(blas)}}
    line = trial(
        cases, number, session="6" * 16, trees={"head": tree(declared=declaration(yardstick="2" * 16))}, **more
    )
    line["protocol"] |= {"regime": "sustained", "burst_s": 0.3}
    return line | {"id": f"{number:016x}"}


def test_the_two_regimes_of_one_file_are_recorded_apart(tmp_path: Path) -> None:
    file = made_trials.write(tmp_path / "t.jsonl", trial(), sustained(), trial(number=1), sustained(1))
    results = tmp_path / "results"
    done = store.record([file], results)
    assert (done.added, done.known, done.problems) == (4, 0, [])
    assert [path.parent.parent.name for path in done.paths] == ["results", "results_sustained"]
    spaced, bursts = store.load(results), store.load(tmp_path / "results_sustained")
    assert spaced[spaced["backend"] == "triton"]["seconds"].tolist() == [pytest.approx(1e-3)]
    assert bursts[bursts["backend"] == "triton"]["seconds"].tolist() == [pytest.approx(1.2e-3)]
    assert set(spaced["yardstick"].astype(str)) == {"1" * 16}
    again = store.record([file], results)
    assert (again.added, again.known) == (0, 4)


def test_both_regimes_stand_beside_each_other(tmp_path: Path) -> None:
    results = tmp_path / "results"
    lines = [trial(number=n) for n in range(3)] + [sustained(n) for n in range(3)]
    store.record([made_trials.write(tmp_path / "t.jsonl", *lines)], results)
    rows = {row.backend: row for row in beside(results)}
    ours = rows["triton"]
    assert (ours.kernel, ours.case, ours.machine) == ("gemm", "m16", MACHINE)
    assert (ours.sustained.commit, ours.spaced.commit) == (HEAD, HEAD)
    assert (ours.spaced.seconds, ours.sustained.seconds) == (pytest.approx(1e-3), pytest.approx(1.2e-3))
    assert (ours.spaced.ratio, ours.sustained.ratio) == (pytest.approx(0.5), pytest.approx(1.0))
    assert ours.sustained.low <= 1.0 <= ours.sustained.high
    assert rows["blas"].baseline
    assert beside(tmp_path / "nothing") == []
