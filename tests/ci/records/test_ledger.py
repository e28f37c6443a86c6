"""Explanations in results/: kept once, replaced by later ones, and never lost."""

from __future__ import annotations

import dataclasses

import pytest

from ci.judging import policy
from ci.judging.recorded import GateError, gate
from ci.records import ledger, store
from ci.records.ledger import Explanation, RecordedCause, TriedCause, machine_folders
from tests.ci.made_trials import BASE, ENV, HEAD, MACHINE, failed, trial, write
from tests.ci.sweeps.made_lines import line

CASE, NODE, OLDER, NEWER = "gemm/triton/m64", "h200x1-1a2b3c4d", "b" * 40, "a" * 40
SHOWN = Explanation(
    (CASE,),
    CASE,
    "proven",
    "knob num_stages 3 → 2: putting it back leaves +0.01 % of +5.84 %: proven",
    (TriedCause("knob", "num_stages", "3 → 2", "explains all", 0.99, 1.0001, 0.998, 1.002, 3),),
    ("LDS bytes: 3 → 2",),
    1,
    3,
    12.5,
)
RECORDED = RecordedCause(NODE, OLDER, NEWER, SHOWN)


def test_what_is_kept_is_read_back_and_is_no_machine(tmp_path):
    (path,) = ledger.record_causes(tmp_path, [RECORDED])
    assert path == tmp_path / "causes" / f"{NODE}.jsonl"
    assert ledger.causes_in(tmp_path) == ([RECORDED], [])
    assert machine_folders(tmp_path) == []
    before = path.read_bytes()
    ledger.record_causes(tmp_path, [RECORDED])
    assert path.read_bytes() == before


def test_later_experiments_on_the_same_case_count_and_others_stay(tmp_path):
    other = dataclasses.replace(RECORDED, base="c" * 40)
    again = dataclasses.replace(RECORDED, explanation=dataclasses.replace(SHOWN, state="partly"))
    ledger.record_causes(tmp_path, [RECORDED, other])
    ledger.record_causes(tmp_path, [again])
    assert ledger.causes_in(tmp_path)[0] == [again, other]


def test_what_rests_on_no_experiment_is_not_kept(tmp_path):
    left = dataclasses.replace(RECORDED, explanation=Explanation((CASE,), CASE, "not examined", "not examined: ..."))
    assert ledger.record_causes(tmp_path, [left]) == []
    assert ledger.causes_in(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("line", "why"), [("{", "not JSON"), ('{"format": "x"}', "it is missing"), ("[]", "an object")]
)
def test_a_line_that_cannot_be_used_is_said_and_stays(tmp_path, line, why):
    (path,) = ledger.record_causes(tmp_path, [RECORDED])
    path.write_text(path.read_text() + line + "\n")
    found, said = ledger.causes_in(tmp_path)
    assert found == [RECORDED]
    assert why in said[0]
    assert str(path) in said[0]
    ledger.record_causes(tmp_path, [dataclasses.replace(RECORDED, base="c" * 40)])
    assert line in path.read_text().splitlines()


def test_a_pair_of_commits_has_its_own(tmp_path):
    assert ledger.causes_of([RECORDED], OLDER, NEWER, NODE) == (SHOWN,)
    assert ledger.causes_of([RECORDED], NEWER, OLDER, NODE) == ()
    assert ledger.causes_of([RECORDED], OLDER, NEWER, "other") == ()


# Lines of sweeps in results/, apart from the records of cases.


POINTS = [({"num_warps": 8}, 0.9), ({"num_warps": 2}, 1.3)]
PLACE = f"sweeps/{MACHINE['name']}/{HEAD[:8]}-{ENV}-gemm"


def swept(results):
    """The lines of the record of the sweep."""
    return store.recorded_trials(results / PLACE, [])


def test_a_sweep_is_kept_apart_from_the_cases(tmp_path):
    results = tmp_path / "results"
    done = store.record([write(tmp_path / "t.jsonl", trial(), line(POINTS), line(POINTS, rung=1))], results)
    assert (done.added, done.known) == (3, 0)
    assert [path.relative_to(results).as_posix() for path in done.paths][-1].startswith(f"{PLACE}.")
    assert len(store.load(results)) == 2, "two backends of one case"
    assert not store.load(results).attrs["problems"]
    assert [one.sweep.rung for one in swept(results)] == [0, 1]


def test_a_sweep_alone_is_no_record_of_cases(tmp_path):
    results = tmp_path / "results"
    store.record([write(tmp_path / "t.jsonl", line(POINTS))], results)
    assert store.load(results).empty
    assert sorted(path.name for path in results.iterdir() if path.is_dir()) == ["sweeps"]
    with pytest.raises(GateError):
        gate(results, BASE, HEAD, policy.load())


def test_other_results_under_a_known_id_are_refused_and_said(tmp_path):
    one = line(POINTS)
    store.record([write(tmp_path / "t.jsonl", one)], tmp_path / "results")
    other = {**one, "cases": {"m16": {**one["cases"]["m16"], "arms": {"head/triton": failed("wrong")}}}}
    done = store.record([write(tmp_path / "t.jsonl", other)], tmp_path / "results")
    assert (done.added, done.known) == (0, 0)
    assert "recorded already with other results" in done.problems[0].why
