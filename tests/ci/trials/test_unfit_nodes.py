"""Trials of nodes that failed their preflight: no verdict rests on them, and the reason is said."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.shapes import Unfit
from ci.judging.judge import judge
from ci.judging.policy import load
from ci.judging.types import Verdict
from ci.trials.comparisons import comparisons
from ci.trials.trial import Trial, unfit
from tests.ci.made_trials import BASE, TIMES, failed, ok, parsed, tree, trial

ECC = {
    "kind": "ECC",
    "level": "error",
    "text": "GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors",
    "next_step": "reset or replace it",
}
NUMA = {"kind": "NUMA balancing", "level": "warning", "text": "automatic NUMA balancing is on"}
SAID = "the node failed its preflight: GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors; reset or replace it"


def paired(number: int, *problems: dict[str, str], head: dict[str, Any] | None = None) -> Trial:
    """A trial in which head is twice as slow, or what is given."""
    slow = head or ok([2 * seconds for seconds in TIMES])
    arms = {"base/triton": ok(), "head/triton": slow, "base/blas": ok(), "head/blas": ok()}
    line = trial({"m16": arms}, number, trees={"base": tree(BASE), "head": tree()})
    return parsed({**line, "preflight": {"problems": list(problems), "facts": {"numa_balancing": 0}}})


def verdict(*trials: Trial):  # type: ignore[no-untyped-def]
    [case] = judge(comparisons(trials), load()).cases
    return case


def test_what_a_trial_says_of_its_node() -> None:
    found = paired(0, ECC, NUMA)
    assert [(fault.kind, fault.fatal) for fault in found.faults] == [("ECC", True), ("NUMA balancing", False)]
    assert unfit(found.faults) == "GPU 3 (0000:c1:00.0): 2 uncorrected ECC errors; reset or replace it"
    assert unfit(paired(0, NUMA).faults) == unfit(parsed(trial()).faults) == ""


def test_a_warning_leaves_the_verdict_alone() -> None:
    assert verdict(*(paired(number, NUMA) for number in range(5))).verdict is Verdict.SLOWER


@pytest.mark.parametrize("head", [None, failed("wrong")], ids=["slower", "wrong"])
def test_on_a_failed_node_nothing_can_be_told(head: dict[str, Any] | None) -> None:
    """Not even a wrong result: it may be the memory's."""
    found = verdict(*(paired(number, ECC, head=head) for number in range(5)))
    assert (found.verdict, found.evidence, found.wants_more) == (Verdict.CANNOT_TELL, (SAID,), False)


def test_trials_of_a_failed_node_are_left_out() -> None:
    fit = [paired(number) for number in range(5)]
    found = verdict(*fit, paired(5, ECC, head=failed("wrong")), paired(6, ECC))
    assert (found.verdict, found.trials) == (Verdict.SLOWER, 5)
    assert f"2 of 7 trials left out: {SAID}" in found.warnings


@pytest.mark.parametrize(
    "preflight", [[], {}, {"problems": [{"kind": "ECC"}]}, {"problems": [{**ECC, "level": "fatal"}]}]
)
def test_a_preflight_that_is_none_is_refused(preflight: object) -> None:
    with pytest.raises(Unfit, match="preflight"):
        parsed({**trial(), "preflight": preflight})
