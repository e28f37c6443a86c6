"""Orders of a session: in turns, within the plan, read one by one, and refused by what is wrong with them."""

from __future__ import annotations

import io
import json
import os
import site
from pathlib import Path

import pytest

from benchmarks.coordinator import orders
from benchmarks.coordinator.checkouts import Checkout, kernel_files
from benchmarks.coordinator.orders import MeasureOrder, Sources, in_turns, read
from benchmarks.coordinator.trial import measure
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError


def case(name):
    return PlannedCase(name, 1, (), "clock")


PLANS = {"gemm": [case("m1"), case("m16")], "gather": [case("w2")]}


def turns(*orders):
    return [(one.kernel, one.number, [case.name for case in one.cases]) for one in in_turns(orders, PLANS)]


def test_the_trials_of_several_kernels_take_turns():
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
def test_an_order_outside_the_plan_is_refused(order, said):
    with pytest.raises(UsageError, match=said):
        turns(order)


def test_orders_are_read_line_by_line_until_there_is_none(capsys):
    order = {"kernel": "gemm", "cases": ["m1"], "first_trial": 2, "trials": 3}
    lines = io.StringIO(f"{json.dumps([order])}\n[]\nnever read\n")
    assert list(read(lines)) == [[MeasureOrder("gemm", ("m1",), 2, 3)]]
    assert capsys.readouterr().err.splitlines() == ['{"asks": "orders"}'] * 2
    assert list(read(io.StringIO(""))) == [], "who asks no more is gone"


@pytest.mark.parametrize(
    "line",
    [
        *("{", "{}", '[{"kernel": "gemm"}]', '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 0}]', "[1]"),
        '[{"kernel": "g", "cases": [], "first_trial": 0, "trials": 1, "rounds": {"m1": 0}}]',
    ],
)
def test_a_wrong_order_is_named(line):
    with pytest.raises(UsageError, match="order"):
        list(read(io.StringIO(f"{line}\n")))


def test_a_session_measures_what_it_is_told_and_says_where_the_seconds_went(toy_tree, toy_log):
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
    assert {"start", "inputs", "checks", "rounds"} <= lines[0]["spent_s"].keys()
    assert lines[0]["ahead_s"] > lines[1]["ahead_s"], "describing comes once"


# What a session reads is what later processes read: changes of contents count, and nothing else.


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A checkout with a package of kernels, and a folder of installed packages."""
    (tmp_path / "tree/toy/parts").mkdir(parents=True)
    (tmp_path / "tree/pyproject.toml").write_text('[tool.ridgeline]\nkernels = ["toy"]\n')
    (tmp_path / "tree/toy/__init__.py").write_text("")
    (tmp_path / "tree/toy/parts/table.csv").write_text("1\n")
    (tmp_path / "installed").mkdir()
    monkeypatch.setattr(orders, "_installed", lambda python: [tmp_path / "installed"])
    return tmp_path / "tree"


def sources_of(tree):
    return Sources(lambda: kernel_files([Checkout("head", tree)]), ["python"])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("tree/toy/__init__.py", "x = 1\n"),
        ("tree/toy/parts/table.csv", "2\n"),
        ("tree/toy/parts/new.py", ""),
        ("installed/late.pth", "import os\n"),
        ("installed/sitecustomize.py", ""),
    ],
)
def test_a_file_that_is_written_is_named_with_what_was_measured(tree, path, text):
    found = sources_of(tree)
    (tree.parent / path).write_text(text)
    assert found.changed() == [tree.parent / path]
    with pytest.raises(UsageError, match=f"{Path(path).name} changed while gemm was measured"):
        found.refuse_changed("gemm")


def test_several_are_counted_and_one_that_is_gone_is_one(tree):
    found = sources_of(tree)
    (tree / "toy/parts/table.csv").unlink()
    (tree / "toy/new.py").write_text("")
    with pytest.raises(UsageError, match="new.py and 1 more changed"):
        found.refuse_changed("gemm")


def test_what_says_the_same_or_is_read_by_nobody_is_no_change(tree):
    found = sources_of(tree)
    (tree / "toy/__pycache__").mkdir()
    (tree / "toy/__pycache__/x.py").write_text("")
    (tree / "toy/parts/built.o").write_text("")
    (tree.parent / "installed/module.py").write_text("")
    os.utime(tree / "toy/__init__.py", ns=(1, 1))
    (tree / "toy/parts/table.csv").write_text("1\n")
    found.refuse_changed("gemm")


def test_the_folders_of_a_python_and_of_our_own_are_looked_at(tmp_path):
    theirs = tmp_path / "env/lib/python3.12/site-packages"
    theirs.mkdir(parents=True)
    found = set(orders._installed(tmp_path / "env/bin/python"))
    assert {theirs, Path(site.getsitepackages()[0])} <= found
