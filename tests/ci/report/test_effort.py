"""How long a run takes is arithmetic on recorded trials, and the limit is that of the nightly job."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from benchmarks.coordinator import lanes
from ci.pools.file import FILE, load
from ci.report import effort, run_summary
from ci.report.run_summary import EXPLAINED, ORDER, minutes, seconds_of
from ci.trials.trial import Trial
from tests.ci.made_trials import MACHINE, declaration, failed, ok, parsed, tree, trial

ROOT = Path(__file__).resolve().parents[3]


def printed(what: Any, width: int = 120) -> str:
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(what)
    return out.getvalue()


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
    shown = printed(effort.table(efforts, 8, 3))
    assert "expected on 8 GPUs, 3 trials" in shown
    assert shown.splitlines()[-1].split() == ["gather", "2", "10", "30", "2.0", "m"]


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
        one for path in sorted((ROOT / "results").glob("*/*.notes.jsonl*")) for one in read(path).trials
    )
    efforts = effort.expected(counts, known, trials=3)
    assert all(one.source for one in efforts)
    assert 30 < sum(one.seconds for one in efforts) / 60 < effort.NIGHTLY_LIMIT_MIN * 2 / 3


# Where the seconds of a run went: all of them, in the order of a trial, as a sentence, a table and JSON.


def lasting(**more: object) -> Trial:
    return parsed({**trial(), **more})


SPENT = {"rounds": 2.0, "checks": 1.0, "start": 0.5}


def test_the_seconds_of_all_trials_add_up_to_those_of_the_command() -> None:
    found = seconds_of([lasting(spent_s=SPENT, ahead_s=4.0), lasting(spent_s=SPENT, ahead_s=0.0)], whole_s=15.0)
    assert found
    assert list(found.phases) == ["start", "checks", "rounds", "before the trials", "outside of measuring"]
    assert (found.whole_s, found.measuring_s) == (15.0, 4.0)
    most = "before the trials 4.0 s, outside of measuring 4.0 s, checks 2.0 s"
    assert found.sentence() == f"measuring: 4.0 of 15.0 s (27 %); most of the rest: {most}"
    assert found.as_json()["measuring_s"] == 4.0
    assert "rounds" in printed(found.table())
    assert printed(found.table()).splitlines()[-1].split() == ["all", "15.0", "100"]


def test_trials_that_do_not_say_it_have_no_table() -> None:
    assert seconds_of([]) is None
    assert seconds_of([lasting(), lasting(spent_s=SPENT)]) is None


def test_an_operator_that_this_machine_cannot_measure_takes_no_phase_from_the_others() -> None:
    nothing = {"m16": {"head/triton": failed("skipped"), "head/blas": failed("unsupported")}}
    found = seconds_of(
        [
            lasting(spent_s=SPENT, ahead_s=1.0),
            parsed({**trial(nothing, 1, kernel="reduce_scatter"), "spent_s": {}, "ahead_s": 2.0}),
            parsed({**trial(nothing, 2, kernel="all_to_all"), "spent_s": {}, "ahead_s": 0.0}),
        ],
        whole_s=8.0,
    )
    assert found
    assert found.phases == {**SPENT, "before the trials": 3.0, "outside of measuring": 1.5}
    assert found.whole_s == 8.0
    assert found.sentence().startswith("measuring: 2.0 of 8.0 s (25 %)")


def test_a_run_that_could_measure_nothing_says_where_its_seconds_went() -> None:
    found = seconds_of([lasting(spent_s={}, ahead_s=1.0)], whole_s=3.0)
    assert found
    most = "outside of measuring 2.0 s, before the trials 1.0 s"
    assert found.sentence() == f"measuring: 0.0 of 3.0 s (0 %); most of the rest: {most}"


def test_a_phase_of_a_later_version_is_shown_last() -> None:
    found = seconds_of([lasting(spent_s={"thinking": 1.0, "rounds": 1.0})])
    assert found
    assert list(found.phases)[-1] == "thinking"


def test_every_phase_that_is_written_is_explained() -> None:
    written = {*lanes.PHASES.values(), lanes.WARM_UP, lanes.COMPILING, lanes.BETWEEN}
    assert written <= EXPLAINED.keys()
    assert set(ORDER) == EXPLAINED.keys()


def test_minutes() -> None:
    assert [minutes(one) for one in (3.4, 99.0, 170.0)] == ["3 s", "99 s", "3 min"]


def test_the_table_says_how_many_trials_were_prepared_side_by_side() -> None:
    for count, wanted in ((None, False), (1, False), (3, True)):
        found = seconds_of([lasting(spent_s=SPENT, side_by_side=count), lasting(spent_s=SPENT)])
        assert found
        assert ("3 trials were prepared side by side, each was timed alone" in printed(found.table())) == wanted


# How a person reads a bring-up: what failed is last, with what to do; what is alike is said once.


def row(name: str, status: str, text: str, next_step: str = "") -> dict[str, Any]:
    return {"name": name, "status": status, "text": text, "next_step": next_step, "numbers": {}, "detail": ""}


def step(name: str, *rows: dict[str, Any]) -> dict[str, Any]:
    return {"step": name, "status": "pass", "seconds": 1.0, "at": "2026-11-22T08:00:00+00:00", "rows": list(rows)}


NO_GPU = "Triton compiles for GPUs only"
DOCUMENT = {
    "machine": {"kind": "gpu", "count": 2, "market_name": "H200 SXM", "device": "NVIDIA H200", "arch": "sm_90"},
    "environment": {"torch": "2.11.0", "triton": "3.6.0", "hip": None, "cuda": "13.0"},
    "seconds": 84.2,
    "steps": [
        step("git", row("git", "pass", "git version 2.39.5, 7 commits up to HEAD")),
        step("heap", row("allocate", "fail", "failed: no\x1b[31m peers", "check IOMMU"), row("write", "pass", "ok")),
        step("package/aiter", row("aiter", "not here", "not installed")),
        step("package/flydsl", row("flydsl", "not here", "not installed")),
        step(
            "backend/gemm",
            row("gemm/blas", "pass", "baseline, right in m16 (error 1.0e-03)"),
            row("gemm/triton", "not here", f"backend, m16: {NO_GPU}"),
            row("gemm/torch", "pass", "backend, right in m16 (error 1.0e-03)"),
        ),
        step("backend/all_gather", row("all_gather/gluon", "not here", f"backend, w2: {NO_GPU}")),
    ],
}  # fmt: skip

SHOWN = """\
2 x H200 SXM (sm_90), torch 2.11.0, triton 3.6.0, cuda 13.0

pass
  git: git version 2.39.5, 7 commits up to HEAD
  heap: write: ok
  gemm/blas, gemm/torch: right

not here
  package/aiter, package/flydsl: not installed
  gemm/triton, all_gather/gluon: Triton compiles for GPUs only

fail
  heap: allocate: failed: no[31m peers
  -> check IOMMU

4 pass, 4 not here, 1 fail; 84 s
"""


def shown(width: int) -> str:
    stream = io.StringIO()
    run_summary.show_bringup(DOCUMENT, Console(file=stream, width=width, highlight=False))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


def test_what_failed_is_last_and_what_is_alike_is_said_once() -> None:
    assert shown(120) == SHOWN
    assert shown(80) == SHOWN


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_terminal_loses_no_word(width: int) -> None:
    assert sorted(shown(width).split()) == sorted(SHOWN.split())
    assert max(map(len, shown(width).splitlines()[1:])) <= width
