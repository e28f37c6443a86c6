"""How long a run takes is arithmetic on recorded trials, and the limit is that of the nightly job."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import pytest
import yaml
from rich.console import Console

from ci.pools.file import FILE, load
from ci.report import effort
from tests.ci.made_trials import MACHINE, declaration, failed, ok, parsed, tree, trial

ROOT = Path(__file__).resolve().parents[3]


def recorded(kernel="gather", world=2, seconds=60.0, number=0, cases=2, machine=MACHINE, started="2026-11-01"):
    """A trial of that many cases with two timed backends each, and one case that was skipped."""
    names = [f"c{i}" for i in range(cases)] + ["skipped"]
    declared = declaration(kernel, cases=names)
    for case in declared["cases"]:
        case["world"] = world
    results = {name: {"head/triton": ok(), "head/blas": ok()} for name in names[:-1]}
    results["skipped"] = {"head/triton": failed("skipped"), "head/blas": failed("error")}
    line = trial(results, number, kernel=kernel, trees={"head": tree(declared=declared)}, machine=machine)
    return parsed({**line, "duration_s": seconds, "started_at": f"{started}T00:00:00+00:00"})


def test_a_pace_is_seconds_by_timed_arm_apart_for_first_and_later_trials():
    trials = [recorded(seconds=60.0), recorded(seconds=20.0, number=1), recorded(seconds=24.0, number=2)]
    assert effort.paces(trials) == {("gather", 2): effort.Pace(2.0, 15.0, 5.5, MACHINE["name"])}


def test_an_earlier_commit_with_fewer_backends_does_not_count():
    one = recorded(seconds=400.0, started="2026-10-01")
    earlier = dataclasses.replace(one, checkouts={"head": dataclasses.replace(one.checkouts["head"], commit="0" * 40)})
    assert effort.paces([recorded(seconds=8.0), earlier])["gather", 2].first_s == 2.0


def test_of_several_machines_the_newest_trial_says_which_counts():
    old, new = {**MACHINE, "name": "old"}, {**MACHINE, "name": "new"}
    trials = [recorded(seconds=8.0, machine=new, started="2026-11-02"), recorded(seconds=800.0, machine=old)]
    assert effort.paces(trials)["gather", 2] == effort.Pace(2.0, 2.0, 2.0, "new")


def test_trials_of_a_cpu_do_not_count():
    cpu = {**MACHINE, "kind": "cpu"}
    assert effort.paces([recorded(machine=cpu)]) == {}


def test_the_sum_is_cases_times_arms_times_seconds():
    known = {("gather", 2): effort.Pace(3.0, 2.0, 1.0, "m")}
    [found] = effort.expected({"gather": {2: 10}}, known, trials=3)
    assert found == effort.Effort("gather", 2, 10, 30.0, 30 * (2.0 + 2 * 1.0), "m")


def test_more_ranks_than_recorded_take_longer_and_fewer_do_not_take_less():
    known = {("gather", 2): effort.Pace(1.0, 2.0, 1.0, "m"), ("gather", 4): effort.Pace(1.0, 3.0, 1.0, "n")}
    found = {one.world: one for one in effort.expected({"gather": {1: 1, 2: 1, 4: 1, 8: 1}}, known, 1)}
    assert [found[world].seconds for world in (1, 2, 4, 8)] == pytest.approx([2.0, 2.0, 3.0, 3.0 * effort.DOUBLING])
    assert found[8].source == "n (w4 x 1.40)"
    assert found[2].source == "m"


def test_what_no_record_knows_is_said_and_not_guessed():
    efforts = effort.expected({"gather": {2: 1}, "new": {1: 5}}, {("gather", 2): effort.Pace(1, 60.0, 60.0, "m")}, 3)
    said = "3 minutes in all; the nightly job may take 240; not counted, because no record says: new"
    assert effort.verdict(efforts) == said


def test_what_does_not_fit_has_a_next_step():
    efforts = effort.expected({"gather": {2: 300}}, {("gather", 2): effort.Pace(1, 60.0, 60.0, "m")}, 1)
    assert effort.verdict(efforts).startswith("300 minutes in all; the nightly job may take 240: too long; run it in")


def test_the_table_shows_the_arithmetic():
    efforts = effort.expected({"gather": {2: 10}}, {("gather", 2): effort.Pace(3.0, 2.0, 1.0, "m")}, 3)
    out = io.StringIO()
    Console(file=out, width=120).print(effort.table(efforts, 8, 3))
    assert "expected on 8 GPUs, 3 trials" in out.getvalue()
    assert out.getvalue().splitlines()[-1].split() == ["gather", "2", "10", "30", "2.0", "m"]


def test_the_limit_is_that_of_the_pools_which_the_workflow_takes():
    workflow = yaml.safe_load((ROOT / ".github/workflows/nightly.yml").read_text())
    assert "matrix.leg.minutes" in str(workflow["jobs"])
    assert {pool.minutes for pool in load(FILE).pools.values()} == {effort.NIGHTLY_LIMIT_MIN}


@pytest.mark.slow
def test_the_nightly_run_of_eight_gpus_fits_by_the_records_of_this_repository():
    """With every case that is declared, and a third of the limit to spare for backends that the records lack."""
    from ci.trials.file import read
    from kernels.registry import discover

    counts = {}
    for name, kernel in discover().kernels.items():
        for case in kernel.cases:
            if case.tier != "sweep":
                counts.setdefault(name, {}).setdefault(case.world, 0)
                counts[name][case.world] += 1
    known = effort.paces(
        one for path in sorted((ROOT / "results").glob("*/*.notes.jsonl")) for one in read(path).trials
    )
    efforts = effort.expected(counts, known, trials=3)
    assert all(one.source for one in efforts)
    assert 30 < sum(one.seconds for one in efforts) / 60 < effort.NIGHTLY_LIMIT_MIN * 2 / 3
