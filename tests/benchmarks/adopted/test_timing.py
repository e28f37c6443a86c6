"""One closure on two sides, with sides that answer as a GPU's would: the graph, and what a failure costs."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.adopted.session import WARM_UP
from benchmarks.adopted.sides import ScriptCase
from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import Failure, StepFailed
from benchmarks.plan import Protocol
from benchmarks.trial_file import Status

FACTS = {
    "first_call_s": 1.0,
    "expected_s": 1e-5,
    "inputs": [],
    "outputs": [],
    "changed": [],
    "prepared": False,
    "repeats": True,
    "bits": "",
    "held": "",
    "on_gpu": True,
}
AGREE = {"compared": True, "right": True, "why": "", "norm": 0.0, "peak": 0.0}


class AnsweringSide:
    """A side that waits at a timer.  answers: by step, over those of a side in which all is well."""

    def __init__(self, **answers: Any) -> None:
        self.asked: list[str] = []
        own = {"examine": FACTS, "compare": AGREE, "check_after": AGREE, "bundle": "", "drop": None}
        self.answers = {**own, "keep_outputs": {"outputs": 1}, **answers}

    def post(self, step: str, limit_s: float, op: str, **fields: Any) -> None:
        self.asked.append(op)
        self.fields = fields

    def collect(self) -> list[Any]:
        answer = self.answers.get(self.asked[-1])
        if isinstance(answer, Failure):
            raise StepFailed(answer)
        if self.asked[-1] == "bundle":
            return [answer if self.fields["graph"] else ""]
        if self.asked[-1] != "samples":
            return [answer]
        order = self.fields["order"]
        return [{"seconds": [1e-5] * len(order), "busy_s": 1.0, "starved": dict.fromkeys(order, 0), "spot": None}]

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        self.post(step, limit_s, op, **fields)
        return self.collect()


def run(base: AnsweringSide, head: AnsweringSide) -> tuple[ScriptCase, Mapping[str, Any]]:
    pools = SimpleNamespace(pools={"base": base, "head": head}, lost={}, quiet=Quiet(), flush_s=0.0)
    pools.ready = lambda roles: None
    protocol = Protocol(rounds=5, deadline_s=10.0, warm_up=WARM_UP)
    case = ScriptCase(pools, "script/call", protocol, random.Random(0), Path("."))
    arms = case.run()["arms"]
    return case, {arm.partition("/")[0]: entry for arm, entry in arms.items()}


def test_short_closures_of_a_gpu_are_timed_in_a_graph_on_both_sides() -> None:
    base, head = AnsweringSide(), AnsweringSide()
    pair, arms = run(base, head)
    assert pair.method == "graph"
    assert [len(arm["seconds"]) for arm in arms.values()] == [5, 5]
    assert base.asked.count("bundle") == head.asked.count("bundle") == 1


def test_where_one_side_cannot_be_captured_neither_is() -> None:
    base, head = AnsweringSide(), AnsweringSide(bundle="RuntimeError: it synchronizes")
    pair, arms = run(base, head)
    assert (pair.method, pair.no_graph) == ("events", True)
    assert base.asked.count("bundle") == head.asked.count("bundle") == 2
    assert arms["base"]["status"] == Status.OK
    assert "it synchronizes" in pair.warnings[0]


def test_long_closures_and_those_that_change_inputs_are_timed_by_events() -> None:
    for facts in ({**FACTS, "expected_s": 1e-3}, {**FACTS, "changed": ["0.x"]}):
        pair, _ = run(AnsweringSide(examine=facts), AnsweringSide(examine=facts))
        assert pair.method == "events"


def test_on_a_host_a_sample_has_as_many_calls_as_its_clock_needs() -> None:
    facts = {**FACTS, "on_gpu": False}
    pair, arms = run(AnsweringSide(examine=facts), AnsweringSide(examine=facts))
    assert pair.method == "clock"
    assert arms["base"]["calls_per_sample"] == 50


def test_a_side_that_fails_costs_itself_and_the_other_is_timed() -> None:
    head = AnsweringSide(samples=Failure(Status.ERROR, "an illegal access"))
    _, arms = run(AnsweringSide(), head)
    assert arms["head"]["status"] == Status.ERROR
    assert len(arms["base"]["seconds"]) == 5
    wrong = AnsweringSide(compare={**AGREE, "right": False, "why": "output 0 differs"})
    _, arms = run(AnsweringSide(), wrong)
    assert (arms["head"]["status"], arms["base"]["status"]) == (Status.WRONG, Status.OK)
    assert wrong.asked.count("samples") == 0


def test_outputs_that_change_from_call_to_call_are_not_compared() -> None:
    facts = {**FACTS, "repeats": False}
    base = AnsweringSide(examine=facts)
    pair, _ = run(base, AnsweringSide())
    assert "equal calls give different outputs (base)" in pair.warnings[0]
    assert "keep_outputs" not in base.asked


@pytest.mark.parametrize(("bits", "asks"), [("a", False), ("b", True), ("", True)])
def test_outputs_of_the_same_bits_need_not_be_sent(bits: str, asks: bool) -> None:
    base = AnsweringSide(examine={**FACTS, "bits": "a" if bits else ""})
    _, arms = run(base, AnsweringSide(examine={**FACTS, "bits": bits}))
    assert ("keep_outputs" in base.asked) is asks
    assert arms["head"]["error"] == {"norm": 0.0, "peak": 0.0}
