"""Trials side by side: how many, what is at work while one is timed, whose a fault is, and what stays when it ends."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.coordinator import lanes, ranks
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.lanes import BY_ITSELF, LANES_VARIABLE, Quiet, SideBySide
from benchmarks.coordinator.orders import PlannedTrial
from benchmarks.coordinator.trial import measure
from benchmarks.plan import PlannedArm, PlannedCase, Protocol, Selection, UsageError
from tests.benchmarks.hostile.kernels import KERNELS
from tests.benchmarks.hostile.test_hostile_kernels import tree_of

QUICK = Protocol(rounds=4, trials=3, deadline_s=30.0)
SMALL = Selection(cases=("small",))
TIMED = ("samples", "whole", "tune")
"""Requests during which nothing else may be at work."""


@pytest.fixture
def three_lanes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU."""
    monkeypatch.setenv(LANES_VARIABLE, "3")


class Requests:
    """Every request to measuring processes: (trial's thread, op, begin, end)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[int, str, float, float]] = []
        begun: dict[Any, tuple[int, str, float]] = {}
        post, collect = ranks.WorkerPool.post, ranks.WorkerPool.collect

        def posts(pool: Any, step: str, limit_s: float, op: str, *rest: Any, **fields: Any) -> None:
            begun[pool] = threading.get_ident(), op, time.monotonic()
            post(pool, step, limit_s, op, *rest, **fields)

        def collects(pool: Any) -> list[Any]:
            try:
                return collect(pool)
            finally:
                self.seen.append((*begun.pop(pool), time.monotonic()))

        monkeypatch.setattr(ranks.WorkerPool, "post", posts)
        monkeypatch.setattr(ranks.WorkerPool, "collect", collects)

    def beside(self, ops: tuple[str, ...]) -> list[tuple[str, str]]:
        """Pairs of requests of different trials at the same time, the first of them one of `ops`."""
        return [
            (one, other)
            for thread, one, begin, end in self.seen
            for others, other, from_, to in self.seen
            if one in ops and thread != others and from_ < end and begin < to
        ]


@pytest.mark.slow
def test_nothing_is_at_work_beside_samples_and_much_beside_the_rest(toy_tree, three_lanes, monkeypatch):
    requests = Requests(monkeypatch)
    lines = list(measure(["steady"], [Checkout(role, toy_tree(role)) for role in ("base", "head")], QUICK, None, SMALL))
    assert sorted(line["trial"] for line in lines) == [0, 1, 2]
    for line in lines:
        arms = line["cases"]["small"]["arms"]
        assert {arm["status"] for arm in arms.values()} == {"ok", "unsupported"}
        assert all(len(arm["seconds"]) == 4 for arm in arms.values() if "seconds" in arm)
    assert requests.beside(TIMED) == []
    assert {other for _, other in requests.beside(("join", "case", "build", "check"))} & {"join", "case", "build"}


TUNING = """
@steady.backend("ours", config=lambda case, arch: {"tile": 16}, tries=lambda case, arch: [("library", {})])
def ours(case, inputs, *, tile=8, order="rows"):
    out, call = doubled(inputs)

    class Chosen:
        def tune(self):
            log("tune", case.name)

        def __call__(self):
            return call()

    return Chosen()

def another("""


@pytest.mark.slow
def test_what_chooses_by_times_does_so_with_nothing_else_at_work(toy_tree, toy_log, three_lanes, monkeypatch):
    requests = Requests(monkeypatch)
    declared = '@steady.backend("ours", config=lambda case, arch: {"tile": 16})\ndef ours('
    tree = toy_tree("tree", replace={declared: TUNING})
    lines = list(measure(["steady"], [Checkout("head", tree)], QUICK, None, SMALL))
    assert {line["cases"]["small"]["arms"]["head/ours"]["status"] for line in lines} == {"ok"}
    assert toy_log.read_text().count("tune") == sum(op == "tune" for _, op, _, _ in requests.seen) == len(lines)
    assert requests.beside(TIMED) == []


@pytest.mark.slow
def test_the_seconds_of_the_lines_are_those_of_the_clock(toy_tree, three_lanes):
    begin = time.monotonic()
    lines = list(measure(["steady"], [Checkout("head", toy_tree("tree"))], QUICK, None, SMALL))
    whole_s = time.monotonic() - begin
    told = sum(sum(line["spent_s"].values()) for line in lines)
    assert told == pytest.approx(sum(line["duration_s"] for line in lines), abs=0.01)
    assert told + sum(line["ahead_s"] for line in lines) < whole_s
    assert all(line["duration_s"] > line["spent_s"]["rounds"] > 0 for line in lines)
    assert {line["side_by_side"] for line in lines} == {3}


@pytest.mark.slow
def test_a_kernel_that_kills_the_parent_of_all_costs_itself_only(tmp_path, three_lanes):
    killer = next(kernel for kernel in KERNELS if kernel.name == "kills_parent")
    tree = tree_of(tmp_path / "tree", [killer])
    protocol = Protocol(rounds=3, trials=2, deadline_s=10.0)
    cases = Selection(cases=("one", "small"))
    lines = list(measure([killer.name, "steady"], [Checkout("head", tree)], protocol, None, cases))
    wanted = [(name, trial) for name in (killer.name, "steady") for trial in (0, 1)]
    assert sorted((line["kernel"], line["trial"]) for line in lines) == wanted
    for line in lines:
        arms = [arm for case in line["cases"].values() for arm in case["arms"].values()]
        wanted = {killer.status} if line["kernel"] == killer.name else {"ok", "unsupported", "skipped"}
        assert {arm["status"] for arm in arms} <= wanted, arms


@pytest.mark.slow
def test_who_leaves_early_leaves_no_process(toy_tree, three_lanes):
    tree = toy_tree("tree")
    with contextlib.closing(measure(["steady"], [Checkout("head", tree)], QUICK, None, SMALL)) as lines:
        next(lines)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lane")]
    assert not measuring_below(os.getpid())


def measuring_below(process: int) -> list[str]:
    """Working folders of processes below this one that measure: each has one of its own."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            below = entry.name.isdigit() and f"\nPPid:\t{process}\n" in (entry / "status").read_text()
            if below:
                found += measuring_below(int(entry.name))
                folder = os.readlink(entry / "cwd")
                found += [folder] if "/ridgeline-" in folder else []
    return found


def test_what_one_raises_ends_the_others():
    quiet, stopped = Quiet(), []

    def works() -> dict[str, Any]:
        try:
            with quiet.lane(0):
                while True:
                    quiet.pause()
                    time.sleep(0.001)
        except BaseException as error:
            stopped.append(type(error).__name__)
            raise

    def fails() -> dict[str, Any]:
        raise OSError("no disk")

    with pytest.raises(OSError, match="no disk"):
        list(lanes.run([works, works, fails, works], 3, quiet))
    assert stopped == ["Stopped", "Stopped"]


def needing(**arm: Any) -> tuple[PlannedCase, ...]:
    """A case of 10 bytes whose only arm has these fields."""
    return (PlannedCase("c", 1, (PlannedArm("head", "a", **arm),), "graph", 1, 1, 0, memory_bytes=10),)


def test_what_would_keep_others_waiting_has_no_other_beside_it():
    """A library that compiles itself at its first use, as long as it has not; ranks; a kernel that failed."""
    quiet, beside = Quiet(room=100), {}

    def trial(one: PlannedTrial) -> dict[str, Any]:
        [lane] = [lane for lane in quiet._lanes if lane.needs != 1]
        beside[one.kernel, one.number] = lane.needs
        return {"ahead_s": 0.0, "duration_s": 0.0, "kernel": one.kernel}

    wanted = [
        PlannedTrial("plain", 0, needing(first_call_s=60.0)),  # it is not installed
        PlannedTrial("builds", 0, needing(first_call_s=60.0, libraries="humming 0.1")),
        PlannedTrial("builds", 1, needing(first_call_s=60.0, libraries="humming 0.1")),
        PlannedTrial("ranks", 0, (PlannedCase("w2", 2, (), "graph", 1, 1, 0, memory_bytes=10),)),
        PlannedTrial("skipped", 0, (PlannedCase("w2", 2, (), "graph", 1, 1, 0, "one GPU", memory_bytes=10),)),
    ]
    lanes_of = SideBySide(quiet, {}, lambda line: True, lambda seconds: None)
    assert len(list(lanes_of.lines(trial, wanted, 1))) == 5
    assert beside == {
        ("plain", 0): 10,
        ("builds", 0): BY_ITSELF,
        ("builds", 1): 10,
        ("ranks", 0): BY_ITSELF,
        ("skipped", 0): 0,
    }


def test_within_a_turn_the_longest_come_first():
    took, order = {"quick": 1.0, "slow": 9.0, "middle": 4.0}, []

    def trial(one: PlannedTrial) -> dict[str, Any]:
        order.append((one.kernel, one.number))
        return {"ahead_s": 0.0, "duration_s": took[one.kernel], "kernel": one.kernel}

    wanted = [PlannedTrial(name, number, needing()) for number in (0, 1, 2) for name in took]
    wanted = [one for one in wanted if one != PlannedTrial("middle", 2, needing())]
    list(SideBySide(Quiet(), {}, lambda line: True, lambda seconds: None).lines(trial, wanted, 1))
    assert order[:2] == [("quick", 0), ("slow", 0)], "nothing is known yet: as they were planned"
    assert sorted(order[:5]) == sorted([("quick", 0), ("slow", 0), ("middle", 0), ("slow", 1), ("quick", 1)])
    assert order[-3:] == [("slow", 2), ("middle", 1), ("quick", 2)]


def test_a_line_that_is_not_sound_is_measured_again_by_itself_and_its_seconds_are_told():
    quiet, lost, alone, hung, both = Quiet(room=100), [], [], [], threading.Barrier(2)
    known: dict[str, Any] = {"bad": {("c", "head/a"): "hung before"}}

    def trial(one: PlannedTrial) -> dict[str, Any]:
        again = bool(alone)
        if not again:
            both.wait(30.0)
        if one.kernel == "bad":
            hung.append(known["bad"])
            alone.append(len(quiet._lanes) == 1)
            known["bad"] = {("c", "head/b"): "hung beside others"}
        if not again:
            both.wait(30.0)
        return {"ahead_s": 1.0, "duration_s": 2.0, "kernel": one.kernel, "again": again}

    wanted = [PlannedTrial("bad", 0, needing()), PlannedTrial("good", 0, needing())]
    lanes_of = SideBySide(quiet, known, lambda line: line["kernel"] != "bad", lost.append)
    lines = {line["kernel"]: line for line in lanes_of.lines(trial, wanted, 2)}
    assert lines["bad"]["again"]
    assert not lines["good"]["again"]
    assert alone == [False, True]
    assert hung[1] == hung[0], "what hung beside others is tried by itself"
    assert lost == [3.0]


@pytest.mark.parametrize(
    ("kind", "cores", "processes", "load", "wanted"),
    [
        ("gpu", 16, 1, 0.0, 8),
        ("gpu", 64, 1, 0.0, 16),
        ("gpu", 16, 2, 0.0, 4),
        ("gpu", 16, 2, 4.0, 3),
        ("gpu", 16, 2, 15.0, 1),
        ("gpu", 4, 2, 0.0, 1),
        ("gpu", 2, 1, 0.0, 1),
        ("cpu", 64, 1, 0.0, 1),
    ],
)
def test_free_cores_decide_how_many(monkeypatch, tmp_path, kind, cores, processes, load, wanted):
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(lanes, "QUOTA", tmp_path / "none")
    assert lanes.how_many(kind, cores, processes) == wanted


def test_a_quota_of_the_container_counts(monkeypatch, tmp_path):
    monkeypatch.delenv(LANES_VARIABLE, raising=False)
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(lanes, "QUOTA", tmp_path / "cpu.max")
    for written, wanted in (("200000 100000\n", 1), ("400000 100000\n", 2), ("max 100000\n", 16)):
        lanes.QUOTA.write_text(written)
        assert lanes.how_many("gpu", 64, 1) == wanted


def test_what_is_asked_for_must_be_a_number(monkeypatch):
    monkeypatch.setenv(LANES_VARIABLE, "2")
    assert lanes.how_many("cpu", 1, 2) == 2
    for wrong in ("0", "17", "many", "-1", "1.5"):
        monkeypatch.setenv(LANES_VARIABLE, wrong)
        with pytest.raises(UsageError, match=r"from 1 to 16"):
            lanes.how_many("gpu", 64, 1)
