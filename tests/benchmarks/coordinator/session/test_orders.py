"""Orders of a session: in turns, within the plan, read one by one, and refused by what is wrong with them."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import MeasureOrder, in_turns, read
from benchmarks.coordinator.trial import measure
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError


def case(name: str) -> PlannedCase:
    return PlannedCase(name, 1, (), "clock", 1, 1, 0)


PLANS = {"gemm": [case("m1"), case("m16")], "gather": [case("w2")]}


def turns(*orders: MeasureOrder) -> list[tuple[str, int, list[str]]]:
    return [(one.kernel, one.number, [case.name for case in one.cases]) for one in in_turns(orders, PLANS)]


def test_the_trials_of_several_kernels_take_turns() -> None:
    both = turns(MeasureOrder("gemm", ("m16",), 4, 2), MeasureOrder("gather", (), 1, 1))
    assert both == [("gemm", 4, ["m16"]), ("gather", 1, ["w2"]), ("gemm", 5, ["m16"])]
    assert turns(MeasureOrder("", (), 0, 1)) == [("gemm", 0, ["m1", "m16"]), ("gather", 0, ["w2"])]
    assert turns(MeasureOrder("", (), 0, 1, ("gemm",))) == [("gather", 0, ["w2"])]
    assert turns() == []


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (MeasureOrder("gemn", (), 0, 1), "no kernel 'gemn'; known: gather, gemm"),
        (MeasureOrder("gemm", ("m2",), 0, 1), "gemm has no planned case 'm2'; there are: m1, m16"),
        (MeasureOrder("gemm", (), 0, 1, rounds={"m2": 80}), "gemm has no planned case 'm2'; there are: m1, m16"),
    ],
)
def test_an_order_outside_the_plan_is_refused(order: MeasureOrder, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        turns(order)


def test_orders_are_read_line_by_line_until_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    order = {"kernel": "gemm", "cases": ["m1"], "first_trial": 2, "trials": 3}
    lines = io.StringIO(f"{json.dumps([order])}\n[]\nnever read\n")
    assert list(read(lines)) == [[MeasureOrder("gemm", ("m1",), 2, 3)]]
    assert capsys.readouterr().err.splitlines() == ['{"asks": "orders"}'] * 2
    assert list(read(io.StringIO(""))) == [], "who asks no more is gone"


@pytest.mark.parametrize(
    "line",
    [
        *("{", "{}", '[{"kernel": "gemm"}]', '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 0}]', "[1]"),
        '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 1, "rounds": 80}]',
        '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 1, "rounds": {"m1": 0}}]',
        '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 1, "rounds": {"m1": 1000000}}]',
        '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 1, "rounds": {"m1": "many"}}]',
    ],
)
def test_a_wrong_order_is_named(line: str) -> None:
    with pytest.raises(UsageError, match="order"):
        list(read(io.StringIO(f"{line}\n")))


def test_a_session_measures_what_it_is_told_and_says_where_the_seconds_went(toy_tree, toy_log: Path) -> None:
    lines = []

    def orders():
        yield [MeasureOrder("", (), 0, 1)]
        assert [line["trial"] for line in lines] == [0], "the first is in our hands before the second is asked for"
        yield [MeasureOrder("steady", ("small",), 1, 2, rounds={"small": 7})]

    tree = toy_tree("tree")
    protocol = Protocol(rounds=2, cache="hot")
    for line in measure(["steady"], [Checkout("head", tree)], protocol, None, Selection(), 0, orders()):
        lines.append(line)
    assert [(line["trial"], list(line["cases"])) for line in lines] == [
        (0, list(lines[0]["cases"])),
        (1, ["small"]),
        (2, ["small"]),
    ]
    assert len({line["session"] for line in lines}) == 1
    timed = [line["cases"]["small"]["arms"]["head/ours"]["seconds"] for line in lines]
    assert [len(seconds) for seconds in timed] == [2, 7, 7]
    for line in lines:
        assert sum(line["spent_s"].values()) == pytest.approx(line["duration_s"], abs=0.01)
        assert {"start", "inputs", "checks", "rounds"} <= line["spent_s"].keys()
    assert lines[0]["ahead_s"] > lines[1]["ahead_s"], "describing comes once"
