"""Every baseline and every backend of ours in one small case, called and compared with the reference.

As `ridgeline verify` does it, so that a crash or a hang of one costs that one only.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.bringup.steps import BACKENDS, Row, failed, not_here, passed
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.session.progress import Report
from benchmarks.coordinator.trial import Session
from benchmarks.plan import PlannedArm, PlannedCase, Protocol, Selection
from benchmarks.trial_file import FAILED, Status

DEADLINE_S = 120.0
"""For one step of one arm: a first call may compile for a minute."""

BUDGET_S = 420.0
"""After this no further kernel is begun: ten minutes is what a first contact may take.  What a library compiles on
first use is not counted: it comes last, and takes the time that its adapter declares."""

OTHER_CASES = 2
"""Further cases that are tried for an installed library that does not support the smallest."""


def tried(
    checkout: Checkout, done: Sequence[str], heap: str, on_progress: Report
) -> Generator[tuple[str, float, list[Row]], None, None]:
    """(name, seconds, rows) of every part that is not done, as soon as it is known; last what is said of the modules.

    Raises UsageError or CheckoutError before anything runs.
    """
    begin = time.monotonic()
    protocol = Protocol(rounds=0, trials=1, cache="hot", deadline_s=DEADLINE_S, heap=heap)
    with Session([checkout], protocol, Selection("sweep"), on_progress) as session:
        plans = session.plans(session.choose([]))
        until = time.monotonic() + BUDGET_S
        for part, name, cases in parts(plans, done):
            part_begin = time.monotonic()
            rows = list(_kernel(session, name, cases) if part_begin < until else [_too_late(name)])
            yield part, time.monotonic() - part_begin, rows
        yield BACKENDS.name, time.monotonic() - begin, _modules(session, len(plans))


def parts(
    plans: Mapping[str, Sequence[PlannedCase]], done: Sequence[str]
) -> Iterator[tuple[str, str, list[PlannedCase]]]:
    """(part, kernel, its cases) of what is not done; last the arms whose library compiles itself on first use."""
    for last in (False, True):
        for name, cases in plans.items():
            own = [with_arms(case, [arm for arm in case.arms if compiles(arm) is last]) for case in cases]
            part = f"{BACKENDS.name}/{name}{'/compiling' if last else ''}"
            if any(case.arms for case in own) and part not in done:
                yield part, name, own


def compiles(arm: PlannedArm) -> bool:
    """Whether its library is installed, and may take longer for set-up and first call than other steps."""
    return bool(arm.libraries) and arm.first_call_s > DEADLINE_S


def with_arms(case: PlannedCase, arms: Sequence[PlannedArm]) -> PlannedCase:
    """The case with these arms only."""
    return dataclasses.replace(case, arms=tuple(arms))


def _too_late(name: str) -> Row:
    said = f"not begun: the kernels before it took {BUDGET_S:.0f} s"
    return not_here(name, said, "run `ridgeline bringup` again: it goes on here")


def _modules(session: Session, count: int) -> list[Row]:
    broken = session.descriptions["head"].broken
    rows = [failed("module", f"{one['module']} does not import: {one['reason']}", "correct it") for one in broken]
    return [passed("declared", f"{count} kernels"), *rows]


def _kernel(session: Session, name: str, cases: Sequence[PlannedCase]) -> Iterator[Row]:
    """The rows of one kernel: the smallest case, and further ones for the arms that do not support it."""
    declared = session.descriptions["head"].kernels[name]
    order = smallest_first(cases, declared["costs"])
    if not order:
        yield not_here(name, next((case.skip for case in cases if case.skip), "it declares no case"))
        return
    left = {arm.key for arm in order[0].arms}
    retried = {arm.key for arm in order[0].arms if arm.libraries}
    rows: dict[str, Row] = {}
    for case in order[: 1 + OTHER_CASES]:
        entries = session.checks({name: [with_arms(case, [arm for arm in case.arms if arm.key in left])]})
        for _, entry in entries:
            for key, arm in entry["arms"].items():
                if key not in rows or arm["status"] != Status.UNSUPPORTED:
                    rows[key] = row_of(name, case.name, key.partition("/")[2], arm, declared["baselines"])
                if arm["status"] != Status.UNSUPPORTED or key not in retried:
                    left.discard(key)
        if not left:
            break
    yield from rows.values()


def smallest_first(cases: Sequence[PlannedCase], costs: Mapping[str, Mapping[str, int]]) -> list[PlannedCase]:
    """Cases that can run here with the most ranks, the cheapest first."""
    possible = [case for case in cases if not case.skip and case.name in costs]
    most = max((case.world for case in possible), default=0)

    def work(case: PlannedCase) -> float:
        return costs[case.name]["flops"] + 100.0 * costs[case.name]["hbm_bytes"]

    return sorted((case for case in possible if case.world == most), key=work)


def row_of(kernel: str, case: str, backend: str, arm: Mapping[str, Any], baselines: Sequence[str]) -> Row:
    """What became of one backend."""
    kind = "baseline" if backend in baselines else "backend"
    name, status = f"{kernel}/{backend}", Status(arm["status"])
    if status == Status.OK:
        seconds = arm["first_call_s"] + arm["compile_s"]
        numbers = {"error": (arm["error"]["norm"], "of the norm"), "first_call": (seconds, "s")}
        return passed(name, f"{kind}, right in {case} (error {arm['error']['norm']:.1e})", **numbers)
    if status not in FAILED:
        return not_here(name, f"{kind}, {case}: {arm['why']}")
    again = f"`ridgeline verify --tier sweep --kernel {kernel} --case {case} --backend {backend}`"
    return failed(name, f"{kind}, {case}: {status}: {arm['why']}", again, arm.get("detail", ""))
