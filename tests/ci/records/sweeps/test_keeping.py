"""Lines of sweeps in results/, apart from the records of cases."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ci.judging import policy
from ci.judging.recorded import GateError, gate
from ci.records import store
from ci.records.ledger import sweeps_in
from ci.records.store import RecordError
from tests.ci.made_trials import BASE, ENV, HEAD, MACHINE, failed, tree, trial, write
from tests.ci.sweeps.made_sweeps import line

POINTS = [({"num_warps": 8}, 0.9), ({"num_warps": 2}, 1.3)]
PLACE = f"sweeps/{MACHINE['name']}/{HEAD[:8]}-{ENV}-gemm.jsonl.gz"


def test_a_sweep_is_kept_apart_from_the_cases(tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = store.record([write(tmp_path / "t.jsonl", trial(), line(POINTS), line(POINTS, rung=1))], results)
    assert (done.added, done.known) == (3, 0)
    assert [path.relative_to(results).as_posix() for path in done.paths][-1] == PLACE
    assert len(store.load(results)) == 2, "two backends of one case"
    assert not store.load(results).attrs["problems"]
    assert [one.sweep.rung for one in sweeps_in(results)[0]] == [0, 1]


def test_a_sweep_alone_is_no_record_of_cases(tmp_path: Path) -> None:
    results = tmp_path / "results"
    store.record([write(tmp_path / "t.jsonl", line(POINTS))], results)
    assert store.load(results).empty
    assert sorted(path.name for path in results.iterdir() if path.is_dir()) == ["sweeps"]
    with pytest.raises(GateError):
        gate(results, BASE, HEAD, policy.load())


def test_the_same_lines_in_any_order_and_number_give_the_same_bytes(tmp_path: Path) -> None:
    lines = [line(POINTS), line(POINTS, rung=1), line(POINTS, batch=1, case="m64")]
    wanted = None
    for number, order in enumerate(itertools.permutations(lines)):
        results = tmp_path / f"results{number}"
        for one in order:
            store.record([write(tmp_path / "t.jsonl", one, one)], results)
        again = store.record([write(tmp_path / "t.jsonl", *order)], results)
        assert (again.added, again.known) == (0, 3)
        content = (results / PLACE).read_bytes()
        wanted = wanted or content
        assert content == wanted


def test_a_dry_run_counts_and_writes_nothing(tmp_path: Path) -> None:
    done = store.record([write(tmp_path / "t.jsonl", line(POINTS))], tmp_path / "results", dry_run=True)
    assert (done.added, len(done.paths)) == (1, 1)
    assert not (tmp_path / "results").exists()


def test_other_results_under_a_known_id_are_refused_and_said(tmp_path: Path) -> None:
    one = line(POINTS)
    store.record([write(tmp_path / "t.jsonl", one)], tmp_path / "results")
    other = {**one, "cases": {"m16": {**one["cases"]["m16"], "arms": {"head/triton": failed("wrong")}}}}
    done = store.record([write(tmp_path / "t.jsonl", other)], tmp_path / "results")
    assert (done.added, done.known) == (0, 0)
    assert "recorded already with other results" in done.problems[0].why


def test_local_changes_belong_to_no_commit(tmp_path: Path) -> None:
    dirty = line(POINTS, trees={"head": tree(dirty=True)})
    done = store.record([write(tmp_path / "t.jsonl", dirty)], tmp_path / "results")
    assert done.added == 0
    assert "has local changes" in done.problems[0].why


def test_a_damaged_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "results" / PLACE
    path.parent.mkdir(parents=True)
    path.write_bytes(b"\x1f\x8b damaged")
    with pytest.raises(RecordError, match="nothing was changed"):
        store.record([write(tmp_path / "t.jsonl", line(POINTS))], tmp_path / "results")
    assert path.read_bytes() == b"\x1f\x8b damaged"
