"""Runs the steps: each in processes of its own, with a deadline, whatever becomes of the one before."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.bringup import report
from benchmarks.bringup.steps import BACKENDS, HOMES, BringupStep, Needs, Row, RowStatus, failed, not_here, passed
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.orders import Report
from benchmarks.coordinator.ranks import (
    VARIABLES,
    Failure,
    PoolDied,
    StepFailed,
    Unkillable,
    WorkerPool,
    make_directories,
    remove_directories,
    started,
)
from benchmarks.coordinator.trial import Session
from benchmarks.machine import fingerprint
from benchmarks.plan import PlannedArm, PlannedCase, Protocol, Selection, UsageError
from benchmarks.trial_file import FAILED, Status

LOOK_S = 180.0
"""Importing torch and asking for the devices: a minute from a cold network disk (2026-11)."""

CPU_RANKS = 2
"""Ranks on a machine without a GPU: enough to meet."""


@dataclasses.dataclass(frozen=True)
class Seen:
    """What a first process saw: devices and environment (worker.probe).  lost: why it gave no answer, "" if it did."""

    devices: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    lost: str = ""

    @property
    def world(self) -> int:
        """Ranks of a step that needs several."""
        return len(self.devices) or min(CPU_RANKS, fingerprint.cpu_count())

    def fault(self) -> str:
        """Why nothing can be tried here, with the next step after "; " where that is known; "" if it can."""
        if self.lost:
            return f"the first process gave no answer: {self.lost}"
        if not self.environment.get("torch"):
            return f"torch cannot be imported: {self.environment.get('torch_missing', 'no reason given')}"
        return fingerprint.unseen_gpu(self.devices, self.environment)

    def row(self) -> Row:
        """What torch sees, as the first row of the report."""
        if fault := self.fault():
            why, _, next_step = fault.partition("; ")
            return failed(
                "devices", why, next_step or "`ridgeline doctor` says what this machine has and what to repair"
            )
        names = Counter(f"{device['name']} ({device['arch']})" for device in self.devices)
        seen = ", ".join(f"{count} x {name}" for name, count in names.items()) or "no GPU: only CPU backends are tried"
        return passed("devices", seen)

    def lacks(self, needs: Needs) -> str:
        """Why a step with such needs is not tried, "" if it is."""
        if self.fault():
            return "see devices"
        if needs is Needs.LINKS and not self.devices:
            return "no GPU"
        if needs in (Needs.RANKS, Needs.LINKS) and self.world < 2:
            return "needs 2 GPUs, torch sees 1" if self.devices else "needs 2 CPU cores where there is no GPU"
        return ""


class Bringup:
    """Runs steps on one checkout.  A context manager: on leaving, its processes have ended and its files are gone.

    results: what is finished, by step; the caller keeps it.
    """

    def __init__(self, checkout: Checkout, report_progress: Report) -> None:
        self.checkout, self.report_progress = checkout, report_progress
        self.seen = Seen()
        self.results: dict[str, dict[str, Any]] = {}
        self._directory = make_directories()

    def __enter__(self) -> Bringup:
        return self

    def __exit__(self, *_: object) -> None:
        remove_directories(self._directory)

    def look(self) -> Seen:
        """Ask a first process for devices and versions; a crash or a hang of it is part of the answer."""
        begin = time.monotonic()
        try:
            with self._started("look", 1) as pool:
                answer = pool.ask("importing torch and asking for the devices", LOOK_S, "probe")[0]
            self.seen = Seen(answer["devices"], answer["environment"])
        except (StepFailed, PoolDied) as error:
            self.seen = Seen(environment={"torch_missing": error.failure.why}, lost=error.failure.why)
        self.results["devices"] = report.step_line("devices", time.monotonic() - begin, [self.seen.row().as_json()])
        return self.seen

    def run(self, step: BringupStep) -> Iterator[dict[str, Any]]:
        """Run one step: its result, or (a step in parts) that of each part, as the report shows it."""
        lacking = self.seen.lacks(step.needs)
        if self._status(step.after) == RowStatus.FAIL:
            lacking = f"{step.after} failed"
        if lacking:
            yield report.step_line(step.name, 0.0, [not_here(step.name, lacking).as_json()])
            return
        begin = time.monotonic()
        try:
            if not step.in_parts:
                yield report.step_line(step.name, *self._probed(step))
                return
            tried = tried_backends(self.checkout, self.heap(), self.report_progress)
            with contextlib.closing(tried):
                for name, seconds, found in tried:
                    yield report.step_line(name, seconds, [row.as_json() for row in found])
            return
        except (StepFailed, PoolDied) as error:
            failure = error.failure
        except (CheckoutError, UsageError, Unkillable) as error:
            why, _, detail = str(error).partition("\n")
            failure = Failure(Status.ERROR, f"{type(error).__name__}: {why}", detail)
        yield report.step_line(step.name, time.monotonic() - begin, [_lost(step, failure).as_json()])

    def _probed(self, step: BringupStep) -> tuple[float, list[dict[str, Any]]]:
        """Seconds and rows of a step in processes of its own."""
        begin = time.monotonic()
        with self._started(step.name.replace("/", "-"), self._world(step)) as pool:
            pool.post(step.name, step.deadline_s, "bringup", self._per_rank(step), probe=step.probe)
            found = [row for answer in pool.collect() for row in answer]
            pool.quit()
            pool.close()
        return time.monotonic() - begin, found

    def _status(self, step: str) -> str:
        """What became of a step, "" if it has not been run."""
        return str(self.results.get(step, {}).get("status", ""))

    def heap(self) -> str:
        """Where backends have it: where it cannot be had as usual but in one home, that home is taken."""
        homes = [home for home in HOMES if self._status(f"heap/{home}") == RowStatus.PASS]
        return homes[0] if self._status("heap") == RowStatus.FAIL and homes else Protocol.heap

    def _world(self, step: BringupStep) -> int:
        return self.seen.world if step.needs in (Needs.RANKS, Needs.LINKS) else 1

    def _per_rank(self, step: BringupStep) -> list[dict[str, Any]]:
        world, token = self._world(step), os.urandom(4).hex()
        shm = self._directory / "shm"
        heap = (shm if shm.is_dir() else self._directory) / f"heap-{token}"
        heap.mkdir()
        shared = {
            "step": step.name,
            "checkout": str(self.checkout.path),
            "devices": self.seen.devices,
            "environment": dict(self.seen.environment),
            "world": world,
            "store": str(self._directory / f"store-{token}"),
            "heap_directory": str(heap),
        }
        device = "cuda:{}" if self.seen.devices else "cpu"
        return [{"context": {**shared, "rank": rank, "device": device.format(rank)}} for rank in range(world)]

    def _started(self, label: str, world: int) -> contextlib.AbstractContextManager[WorkerPool]:
        """Processes of a step, which have ended on leaving."""
        variables = {**VARIABLES, "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(self._directory)}
        return started(label, sys.executable, self.checkout.path, world, self._directory, variables)


def _lost(step: BringupStep, failure: Failure) -> Row:
    """The row of a step whose process failed."""
    if failure.status == Status.UNSUPPORTED:
        return not_here(step.name, failure.why)
    alone = step.if_lost.replace("{step}", step.name)
    return failed(step.name, f"{failure.status}: {failure.why}", alone, failure.detail)


# Every baseline and every backend of ours in one small case, called and compared with the reference.
#
# As `ridgeline verify` does it, so that a crash or a hang of one costs that one only.


DEADLINE_S = 120.0
"""For one step of one arm: a first call may compile for a minute."""

BUDGET_S = 420.0
"""After this no further kernel is begun: ten minutes is what a first contact may take.  What a library compiles on
first use is not counted: it comes last, and takes the time that its adapter declares."""

OTHER_CASES = 2
"""Further cases that are tried for an installed library that does not support the smallest."""


def tried_backends(
    checkout: Checkout, heap: str, on_progress: Report
) -> Generator[tuple[str, float, list[Row]], None, None]:
    """(name, seconds, rows) of every part, as soon as it is known; last what is said of the modules.

    Raises UsageError or CheckoutError before anything runs.
    """
    begin = time.monotonic()
    protocol = Protocol(rounds=0, trials=1, cache="hot", deadline_s=DEADLINE_S, heap=heap)
    with Session([checkout], protocol, Selection("sweep"), on_progress) as session:
        plans = session.plans(session.choose([]))
        until = time.monotonic() + BUDGET_S
        for part, name, cases in parts(plans):
            part_begin = time.monotonic()
            rows = list(_kernel(session, name, cases) if part_begin < until else [_too_late(name)])
            yield part, time.monotonic() - part_begin, rows
        yield BACKENDS.name, time.monotonic() - begin, _modules(session, len(plans))


def parts(plans: Mapping[str, Sequence[PlannedCase]]) -> Iterator[tuple[str, str, list[PlannedCase]]]:
    """(part, kernel, its cases); last the arms whose library compiles itself on first use."""
    for last in (False, True):
        for name, cases in plans.items():
            own = [with_arms(case, [arm for arm in case.arms if compiles(arm) is last]) for case in cases]
            part = f"{BACKENDS.name}/{name}{'/compiling' if last else ''}"
            if any(case.arms for case in own):
                yield part, name, own


def compiles(arm: PlannedArm) -> bool:
    """Whether its library is installed, and may take longer for set-up and first call than other steps."""
    return bool(arm.libraries) and arm.first_call_s > DEADLINE_S


def with_arms(case: PlannedCase, arms: Sequence[PlannedArm]) -> PlannedCase:
    """The case with these arms only."""
    return dataclasses.replace(case, arms=tuple(arms))


def _too_late(name: str) -> Row:
    said = f"not begun: the kernels before it took {BUDGET_S:.0f} s"
    return not_here(name, said, f"`ridgeline verify --tier sweep --kernel {name}` tries its backends")


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
