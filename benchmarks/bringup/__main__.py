"""First contact with a node: every step passes, fails with the next step, or says why it is not here.

    python -m benchmarks.bringup
    python -m benchmarks.bringup --only heap --only fences

Exit codes: 0 nothing failed, 1 a step failed, 3 usage or infrastructure, 130 interrupted (the report has what is
finished).
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks import program, trial_file
from benchmarks.bringup import STEPS, RankPlace, Row, RowStatus, row
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.orders import CaseCounter, Report
from benchmarks.coordinator.ranks import (
    VARIABLES,
    Failed,
    Failure,
    Unkillable,
    make_directories,
    remove_directories,
    started,
)
from benchmarks.coordinator.trial import Session
from benchmarks.machine import limits, system
from benchmarks.plan import PlannedArm, PlannedCase, Protocol, Selection, UsageError
from benchmarks.shapes import Json, JsonObject, one_of
from benchmarks.trial_file import FAILED, Status

REPORT = Path(".ridgeline/bringup.json")
FORMAT, VERSION = "ridgeline-bringup", 3

PROBE_S, DEADLINE_S = 180.0, 120.0
"""Importing torch and asking for the devices: a minute from a cold network disk.  A step of the ranks, or of one arm: a
first call may compile for a minute (2026-11)."""

CPU_RANKS = 2
"""Ranks on a machine without a GPU: enough to meet."""

StepResult = JsonObject
"""A finished step in the report: step, status, seconds, rows."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TriedSteps:
    """--only: this step alone; repeatable.  --tree: checkout whose kernels are tried (default: here).

    --out: the report, JSON.  --progress: on stderr, as json, text or none.
    """

    only: tuple[Annotated[str, one_of(*STEPS)], ...] = ()
    tree: program.File = Path()
    out: program.File = REPORT
    progress: str = "text"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    return program.run(lambda: _bring_up(program.parse_options(TriedSteps, words)), "the report has what is finished")


def _bring_up(arguments: TriedSteps) -> int:
    steps = [step for step in STEPS if not arguments.only or step in arguments.only]
    begin = time.monotonic()
    trial_file.check_writable(arguments.out)
    progress = CaseCounter(len(steps), program.reporter(arguments.progress))
    checkout = Checkout("head", arguments.tree.resolve())
    with Bringup(checkout, lambda event: progress.start(f"backend: {event['what']}")) as bringup:
        progress.start("looking at torch and the devices")
        results = [bringup.probe()]
        try:
            for step in steps:
                progress.start(step)
                results += bringup.run(step)
                progress.done += 1
        finally:  # an interrupted bring-up has a report too, which says so
            report = {
                "format": FORMAT,
                "version": VERSION,
                "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                "seconds": round(time.monotonic() - begin, 1),
                "machine": limits.fingerprint(bringup.devices),
                "environment": dict(bringup.environment),
                "steps": results,
                "not_run": [step for step in STEPS if step not in steps[: progress.done]],
            }
            arguments.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    progress.finish()
    return program.FAULTS if any(result["status"] == RowStatus.FAIL for result in results) else program.MEASURED


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
        self.devices: list[JsonObject] = []
        self.environment: Json = {}
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
            seen = self._asked("importing torch and asking for the devices", 1, PROBE_S, "probe")
            self.devices, self.environment = seen["devices"], seen["environment"]
            missing = f"torch cannot be imported: {self.environment.get('torch_missing', 'no reason given')}"
            unseen = limits.unseen_gpu(self.devices, self.environment)
            self.fault = unseen if self.environment.get("torch") else missing
        except Failed as error:
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
        return len(self.devices) or min(CPU_RANKS, system.cpu_count())

    def obstacle(self, step: str) -> str:
        """Why a step is not tried, "" if it is."""
        if self.fault:
            return "see devices"
        if step == "fences" and not self.devices:
            return "no GPU"
        if step != "backend" and self.world < 2:
            return "needs 2 GPUs, torch sees 1" if self.devices else "needs 2 CPU cores where there is no GPU"
        return ""

    def run(self, step: str, deadline_s: float = DEADLINE_S) -> Iterator[StepResult]:
        """The result of a step, or of each kernel of the backends, as it is done."""
        begin = time.monotonic()
        if why := self.obstacle(step):
            yield result_of(step, begin, [row(step, RowStatus.NOT_HERE, why)])
            return
        try:
            if step == "backend":
                yield from tried_backends(self.checkout, self.report_progress)
            else:
                yield result_of(step, begin, self._probed(step, deadline_s))
            return
        except Failed as error:
            failure = error.failure
        except (CheckoutError, UsageError, Unkillable) as error:
            why, _, detail = str(error).partition("\n")
            failure = Failure(Status.ERROR, f"{type(error).__name__}: {why}", detail)
        yield result_of(step, begin, [_failure_row(step, failure)])

    def _probed(self, step: str, deadline_s: float) -> list[Row]:
        """The rows of rank 0 of a step in processes of its own."""
        token = os.urandom(4).hex()
        shm = self._directory / "shm"
        heap = (shm if shm.is_dir() else self._directory) / f"heap-{token}"
        heap.mkdir()
        device = "cuda:{}" if self.devices else "cpu"
        files = str(self._directory / f"store-{token}"), str(heap)
        places = [RankPlace(rank, self.world, device.format(rank), *files) for rank in range(self.world)]
        per_rank = [{"place": dataclasses.asdict(place)} for place in places]
        rows: list[Row] = self._asked(step, self.world, deadline_s, "bringup", per_rank, probe=step)
        return rows

    def _asked(
        self, step: str, world: int, limit_s: float, op: str, per_rank: Sequence[Any] = (), **fields: Any
    ) -> Any:
        """What rank 0 of processes of their own answers, which have ended then.  Raises Failed."""
        variables = {**VARIABLES, "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(self._directory)}
        with started(op, sys.executable, self.checkout.path, world, self._directory, variables) as pool:
            pool.post(step, limit_s, op, per_rank, **fields)
            return pool.collect()[0]


def _failure_row(step: str, failure: Failure) -> Row:
    """The row of a step whose process failed."""
    if failure.status == Status.UNSUPPORTED:
        return row(step, RowStatus.NOT_HERE, failure.why)
    links = "" if step == "backend" else "check the links (`amd-smi topology`, `nvidia-smi topo -m`) and "
    next_step = f"{links}run this step alone: `ridgeline bringup --only {step}`"
    return row(step, RowStatus.FAIL, f"{failure.status}: {failure.why}", next_step, failure.detail)


# Every baseline and every backend of ours in one small case, called and compared with the reference.
#
# As `ridgeline verify` does it, so that a crash or a hang of one costs that one only.


def tried_backends(checkout: Checkout, on_progress: Report) -> Iterator[StepResult]:
    """The result of each kernel, as it is done; last what is said of the modules.

    Raises UsageError or CheckoutError before anything runs.
    """
    begin = time.monotonic()
    protocol = Protocol(rounds=0, trials=1, cache="hot", deadline_s=DEADLINE_S)
    with Session([checkout], protocol, Selection("sweep"), on_progress) as session:
        plans, description = session.plans(session.choose([])), session.descriptions["head"]
        for name, cases in plans.items():
            kernel_begin = time.monotonic()
            yield result_of(f"backend/{name}", kernel_begin, _kernel_rows(session, name, cases))
        broken = [
            row("module", RowStatus.FAIL, f"{module['module']} does not import: {module['reason']}", "correct it")
            for module in description.broken
        ]
        yield result_of("backend", begin, [row("declared", RowStatus.PASS, f"{len(plans)} kernels"), *broken])


def _kernel_rows(session: Session, name: str, cases: Sequence[PlannedCase]) -> list[Row]:
    """The backends of a kernel in its smallest case; a library that compiles itself for longer is left to verify."""
    declared = session.descriptions["head"].kernels[name]
    case = smallest(cases, declared["costs"])
    if case is None:
        why = next((case.skip for case in cases if case.skip), "it declares no case")
        return [row(name, RowStatus.NOT_HERE, why)]
    arms = tuple(arm for arm in case.arms if not (arm.libraries and arm.first_call_s > DEADLINE_S))
    entries = session.checks({name: [dataclasses.replace(case, arms=arms)]}) if arms else ()
    checked = {key: arm for _, entry in entries for key, arm in entry["arms"].items()}
    return [
        arm_row(name, case.name, arm, checked.get(arm.key), arm.backend in declared["baselines"]) for arm in case.arms
    ]


def smallest(cases: Sequence[PlannedCase], costs: Mapping[str, Mapping[str, int]]) -> PlannedCase | None:
    """Of the cases that can run here with the most ranks the cheapest; a byte counts as 100 FLOPs."""
    work = {name: cost["flops"] + 100.0 * cost["hbm_bytes"] for name, cost in costs.items()}
    possible = (case for case in cases if not case.skip and case.name in costs)
    return min(possible, key=lambda case: (-case.world, work[case.name]), default=None)


def arm_row(kernel: str, case: str, arm: PlannedArm, checked: Json | None, is_baseline: bool) -> Row:
    """What became of one backend.  checked: its entry, None where it was not tried."""
    kind = "baseline" if is_baseline else "backend"
    name = f"{kernel}/{arm.backend}"
    verify = f"`ridgeline verify --tier sweep --kernel {kernel} --case {case} --backend {arm.backend}`"
    if checked is None:
        why = f"not tried: {arm.libraries} compiles itself on first use, up to {arm.first_call_s / 60:.0f} minutes"
        return row(name, RowStatus.NOT_HERE, why, verify)
    status = Status(checked["status"])
    if status == Status.OK:
        return row(name, RowStatus.PASS, f"{kind}, right in {case} (error {checked['error']['norm']:.1e})")
    if status not in FAILED:
        return row(name, RowStatus.NOT_HERE, f"{kind}, {case}: {checked['why']}")
    text = f"{kind}, {case}: {status}: {checked['why']}"
    return row(name, RowStatus.FAIL, text, verify, checked.get("detail", ""))


if __name__ == "__main__":
    sys.exit(main())
