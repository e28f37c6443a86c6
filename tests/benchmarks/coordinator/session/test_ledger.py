"""Where the seconds go: each to the request in flight, none twice, and what is left to the coordinator."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from benchmarks.coordinator.lanes import PHASES, SecondsLedger, phase
from benchmarks.worker.requests import CASE_STEPS, Service


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def spend(ledger: SecondsLedger, clock: Clock, op: str, seconds: float, **fields: object) -> None:
    ledger.sent("pool", op, fields)
    clock.now += seconds
    ledger.answered("pool")


def opened(clock: Clock) -> SecondsLedger:
    ledger = SecondsLedger(clock)
    ledger.open()
    return ledger


def test_each_second_is_that_of_its_request(clock: Clock) -> None:
    ledger = opened(clock)
    spend(ledger, clock, "join", 1.0)
    spend(ledger, clock, "samples", 0.25, warm_up=True)
    clock.now += 0.75
    spend(ledger, clock, "samples", 2.0, warm_up=False)
    spend(ledger, clock, "poison", 0.5)
    spend(ledger, clock, "check", 0.5)
    whole_s, found = ledger.close()
    assert found == {"start": 1.0, "warm-up": 0.25, "rounds": 2.0, "checks": 1.0, "between": 0.75}
    assert whole_s == sum(found.values()) == 5.0


def test_a_trial_has_its_own_seconds_only_and_knows_what_was_ahead_of_it(clock: Clock) -> None:
    ledger = SecondsLedger(clock)
    spend(ledger, clock, "probe", 3.0)
    assert ledger.open() == 3.0
    spend(ledger, clock, "case", 1.0)
    assert ledger.close() == (1.0, {"inputs": 1.0})
    clock.now += 2.0
    assert ledger.open() == 2.0
    assert ledger.close() == (0.0, {})


def test_requests_of_two_checkouts_at_once_count_once(clock: Clock) -> None:
    ledger = opened(clock)
    for pool in ("base", "head"):
        ledger.sent(pool, "build", {})
        clock.now += 1.0
    for pool in ("base", "head"):
        clock.now += 1.0
        ledger.answered(pool)
    assert ledger.close() == (4.0, {"set-up": 4.0})


def test_processes_that_are_killed_have_no_request_any_more(clock: Clock) -> None:
    ledger = opened(clock)
    ledger.sent("base", "quit", {})
    ledger.sent("head", "quit", {})
    clock.now += 1.0
    ledger.answered("base")
    ledger.answered("base")
    ledger.answered("head")
    spend(ledger, clock, "case", 1.0)
    assert ledger.close() == (2.0, {"end": 1.0, "inputs": 1.0})


def test_compiling_is_a_part_of_first_calls(clock: Clock) -> None:
    ledger = opened(clock)
    spend(ledger, clock, "call", 3.0)
    assert ledger.close(2.5) == (3.0, {"first calls": 0.5, "compiling": 2.5})
    ledger.open()
    spend(ledger, clock, "call", 1.0)
    assert ledger.close(2.0) == (1.0, {"compiling": 1.0}), "of several ranks at once, the sum is longer"


def test_the_seconds_of_trials_side_by_side_add_up_to_those_of_the_clock(clock: Clock) -> None:
    """One prepares for 4 s; beside its second and third a second one is under way, which is timed in the third."""
    ledger, other = opened(clock), ThreadPoolExecutor(1)
    ledger.sent("a", "case", {})
    clock.now += 1.0
    assert other.submit(ledger.open).result() == 0.0
    other.submit(ledger.sent, "b", "join", {}).result()
    clock.now += 1.0
    other.submit(ledger.answered, "b").result()
    ledger.answered("a")
    other.submit(ledger.sent, "b", "samples", {}).result()
    clock.now += 1.0
    other.submit(ledger.answered, "b").result()
    assert other.submit(ledger.close).result() == (1.5, {"start": 0.5, "rounds": 1.0})
    spend(ledger, clock, "case", 1.0)
    assert ledger.close() == (2.5, {"inputs": 2.5})


def test_who_waits_for_a_compiler_takes_no_share_of_who_is_timed(clock: Clock) -> None:
    ledger, other = opened(clock), ThreadPoolExecutor(1)
    ledger.sent("a", "fill", {})
    clock.now += 1.0
    other.submit(ledger.open).result()
    other.submit(ledger.sent, "b", "samples", {}).result()
    clock.now += 2.0
    other.submit(ledger.answered, "b").result()
    assert other.submit(ledger.close).result() == (2.0, {"rounds": 2.0})
    ledger.answered("a")
    assert ledger.close() == (1.0, {"compiling": 1.0})
    ledger.lost(1.0)
    assert ledger.open() == 1.0


def test_every_request_of_a_case_has_a_phase() -> None:
    joining = {"join", "case", "quit"} | {"launches", "fill"}  # the last two of processes that compile
    assert {*CASE_STEPS, *joining} == PHASES.keys()
    assert all(hasattr(Service, f"do_{op}") for op in joining)
    assert phase("new", {}) == "new"
