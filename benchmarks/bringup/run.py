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

from benchmarks.bringup.steps import BACKEND, BringupStep, RankPlace, Row, RowStatus, row
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

PROBE_S = 180.0
"""Importing torch and asking for the devices: a minute from a cold network disk (2026-11)."""

CPU_RANKS = 2
"""Ranks on a machine without a GPU: enough to meet."""

StepResult = dict[str, Any]
"""A finished step in the report: step, status, seconds, rows."""


def result_of(name: str, begin: float, rows: list[Row]) -> StepResult:
    """begin: by time.monotonic()."""
    statuses = {row["status"] for row in rows}
    status = next((status for status in RowStatus if status in statuses), RowStatus.NOT_HERE)
    return {"step": name, "status": str(status), "seconds": round(time.monotonic() - begin, 2), "rows": rows}


class Bringup:
    """Runs steps on one checkout.  A context manager: on leaving, its processes have ended and its files are gone.

    devices, environment: what a first process saw (worker.probe).  fault: why nothing can be tried here, with the next
    step after "; " where that is known; "" if it can.
    """

    def __init__(self, checkout: Checkout, report_progress: Report) -> None:
        self.checkout, self.report_progress = checkout, report_progress
        self.devices: list[dict[str, Any]] = []
        self.environment: Mapping[str, Any] = {}
        self.fault = ""
        self._directory = make_directories()

    def __enter__(self) -> Bringup:
        return self

    def __exit__(self, *_: object) -> None:
        remove_directories(self._directory)

    def probe(self) -> StepResult:
        """Ask a first process for devices and versions; a crash or a hang of it is part of the answer."""
        begin = time.monotonic()
        try:
            with self._started("probe", 1) as pool:
                seen = pool.ask("importing torch and asking for the devices", PROBE_S, "probe")[0]
            self.devices, self.environment = seen["devices"], seen["environment"]
            missing = f"torch cannot be imported: {self.environment.get('torch_missing', 'no reason given')}"
            unseen = fingerprint.unseen_gpu(self.devices, self.environment)
            self.fault = unseen if self.environment.get("torch") else missing
        except (StepFailed, PoolDied) as error:
            self.fault = f"the first process gave no answer: {error.failure.why}"
        return result_of("devices", begin, [self._devices_row()])

    def _devices_row(self) -> Row:
        if self.fault:
            why, _, next_step = self.fault.partition("; ")
            general = "`ridgeline doctor` says what this machine has and what to repair"
            return row("devices", RowStatus.FAIL, why, next_step or general)
        names = Counter(f"{device['name']} ({device['arch']})" for device in self.devices)
        seen = ", ".join(f"{count} x {name}" for name, count in names.items())
        return row("devices", RowStatus.PASS, seen or "no GPU: only CPU backends are tried")

    @property
    def world(self) -> int:
        """Ranks of a step: one per GPU, two without one."""
        return len(self.devices) or min(CPU_RANKS, fingerprint.cpu_count())

    def obstacle(self, step: BringupStep) -> str:
        """Why a step is not tried, "" if it is."""
        if self.fault:
            return "see devices"
        if step.needs_gpus and not self.devices:
            return "no GPU"
        if step.probe and self.world < 2:
            return "needs 2 GPUs, torch sees 1" if self.devices else "needs 2 CPU cores where there is no GPU"
        return ""

    def run(self, step: BringupStep) -> Iterator[StepResult]:
        """The result of a step, or of each kernel of the backends, as it is done."""
        begin = time.monotonic()
        if why := self.obstacle(step):
            yield result_of(step.name, begin, [row(step.name, RowStatus.NOT_HERE, why)])
            return
        try:
            if step.name == BACKEND:
                with contextlib.closing(tried_backends(self.checkout, self.report_progress)) as results:
                    yield from results
            else:
                yield result_of(step.name, begin, self._probed(step))
            return
        except (StepFailed, PoolDied) as error:
            failure = error.failure
        except (CheckoutError, UsageError, Unkillable) as error:
            why, _, detail = str(error).partition("\n")
            failure = Failure(Status.ERROR, f"{type(error).__name__}: {why}", detail)
        yield result_of(step.name, begin, [_failure_row(step, failure)])

    def _probed(self, step: BringupStep) -> list[Row]:
        """The rows of rank 0 of a step in processes of its own."""
        token = os.urandom(4).hex()
        shm = self._directory / "shm"
        heap = (shm if shm.is_dir() else self._directory) / f"heap-{token}"
        heap.mkdir()
        device = "cuda:{}" if self.devices else "cpu"
        files = str(self._directory / f"store-{token}"), str(heap)
        places = [RankPlace(rank, self.world, device.format(rank), *files) for rank in range(self.world)]
        with self._started(step.name, self.world) as pool:
            per_rank = [{"place": dataclasses.asdict(place)} for place in places]
            pool.post(step.name, step.deadline_s, "bringup", per_rank, probe=step.probe)
            rows: list[Row] = pool.collect()[0]
            pool.quit()
            pool.close()
        return rows

    def _started(self, label: str, world: int) -> contextlib.AbstractContextManager[WorkerPool]:
        """Processes of a step, which have ended on leaving."""
        variables = {**VARIABLES, "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(self._directory)}
        return started(label, sys.executable, self.checkout.path, world, self._directory, variables)


def _failure_row(step: BringupStep, failure: Failure) -> Row:
    """The row of a step whose process failed."""
    if failure.status == Status.UNSUPPORTED:
        return row(step.name, RowStatus.NOT_HERE, failure.why)
    links = "check the links (`amd-smi topology`, `nvidia-smi topo -m`) and " if step.probe else ""
    next_step = f"{links}run this step alone: `ridgeline bringup --only {step.name}`"
    return row(step.name, RowStatus.FAIL, f"{failure.status}: {failure.why}", next_step, failure.detail)


# Every baseline and every backend of ours in one small case, called and compared with the reference.
#
# As `ridgeline verify` does it, so that a crash or a hang of one costs that one only.


DEADLINE_S = 120.0
"""For one step of one arm: a first call may compile for a minute."""

BUDGET_S = 420.0
"""After this no further kernel is begun: ten minutes is what a first contact may take."""


def tried_backends(checkout: Checkout, on_progress: Report) -> Generator[StepResult, None, None]:
    """The result of each kernel, as it is done; last what is said of the modules.

    Raises UsageError or CheckoutError before anything runs.
    """
    begin = time.monotonic()
    protocol = Protocol(rounds=0, trials=1, cache="hot", deadline_s=DEADLINE_S)
    with Session([checkout], protocol, Selection("sweep"), on_progress) as session:
        plans, description = session.plans(session.choose([])), session.descriptions["head"]
        for name, cases in plans.items():
            kernel_begin = time.monotonic()
            rows = _kernel_rows(session, name, cases, kernel_begin < begin + BUDGET_S)
            yield result_of(f"{BACKEND}/{name}", kernel_begin, rows)
        broken = [
            row("module", RowStatus.FAIL, f"{module['module']} does not import: {module['reason']}", "correct it")
            for module in description.broken
        ]
        yield result_of(BACKEND, begin, [row("declared", RowStatus.PASS, f"{len(plans)} kernels"), *broken])


def _kernel_rows(session: Session, name: str, cases: Sequence[PlannedCase], has_time: bool) -> list[Row]:
    """The backends of a kernel in its smallest case."""
    declared = session.descriptions["head"].kernels[name]
    case = smallest(cases, declared["costs"])
    if case is None:
        why = next((case.skip for case in cases if case.skip), "it declares no case")
        return [row(name, RowStatus.NOT_HERE, why)]
    arms = [arm for arm in case.arms if has_time and not compiles_long(arm)]
    entries = session.checks({name: [dataclasses.replace(case, arms=tuple(arms))]}) if arms else ()
    checked = {key: arm for _, entry in entries for key, arm in entry["arms"].items()}
    return [
        arm_row(name, case.name, arm.backend, checked[arm.key], arm.backend in declared["baselines"])
        if arm.key in checked
        else not_tried_row(name, case.name, arm)
        for arm in case.arms
    ]


def compiles_long(arm: PlannedArm) -> bool:
    """Whether its library is installed, and may compile itself for longer than a step has."""
    return bool(arm.libraries) and arm.first_call_s > DEADLINE_S


def smallest(cases: Sequence[PlannedCase], costs: Mapping[str, Mapping[str, int]]) -> PlannedCase | None:
    """Of the cases that can run here with the most ranks the cheapest; a byte counts as 100 FLOPs."""
    possible = [case for case in cases if not case.skip and case.name in costs]

    def order(case: PlannedCase) -> tuple[int, float]:
        return -case.world, costs[case.name]["flops"] + 100.0 * costs[case.name]["hbm_bytes"]

    return min(possible, key=order, default=None)


def _verify_command(kernel: str, case: str, backend: str) -> str:
    return f"`ridgeline verify --tier sweep --kernel {kernel} --case {case} --backend {backend}`"


def not_tried_row(kernel: str, case: str, arm: PlannedArm) -> Row:
    """The row of a backend that would take too long: its own, or what was left."""
    compiling = f"not tried: {arm.libraries} compiles itself on first use, up to {arm.first_call_s / 60:.0f} minutes"
    late = f"not tried: the kernels before it took {BUDGET_S:.0f} s"
    why = compiling if compiles_long(arm) else late
    return row(f"{kernel}/{arm.backend}", RowStatus.NOT_HERE, why, _verify_command(kernel, case, arm.backend))


def arm_row(kernel: str, case: str, backend: str, arm: Mapping[str, Any], is_baseline: bool) -> Row:
    """What became of one backend."""
    kind = "baseline" if is_baseline else "backend"
    name, status = f"{kernel}/{backend}", Status(arm["status"])
    if status == Status.OK:
        error, first_call_s = arm["error"]["norm"], arm["first_call_s"] + arm["compile_s"]
        text = f"{kind}, right in {case} (error {error:.1e})"
        return row(name, RowStatus.PASS, text, error=(error, "of the norm"), first_call=(first_call_s, "s"))
    if status not in FAILED:
        return row(name, RowStatus.NOT_HERE, f"{kind}, {case}: {arm['why']}")
    text, next_step = f"{kind}, {case}: {status}: {arm['why']}", _verify_command(kernel, case, backend)
    return row(name, RowStatus.FAIL, text, next_step, arm.get("detail", ""))
