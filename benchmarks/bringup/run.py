"""Runs the steps: each in processes of its own, with a deadline, whatever becomes of the one before."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.bringup import backends, report
from benchmarks.bringup.steps import HOMES, BringupStep, Needs, Row, RowStatus, failed, not_here
from benchmarks.coordinator import fingerprint
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed, Unkillable, WorkerPool
from benchmarks.coordinator.session.progress import Report
from benchmarks.coordinator.worker_pools import VARIABLES, make_directories, remove_directories, started
from benchmarks.plan import Protocol, UsageError
from benchmarks.trial_file import Status

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

    def lacks(self, needs: Needs) -> str:
        """Why a step with such needs is not tried, "" if it is."""
        if needs is Needs.NOTHING:
            return ""
        if self.lost:
            return "torch gives no answer (see torch)"
        if not self.environment.get("torch"):
            return "torch cannot be imported (see torch)"
        if fingerprint.unseen_gpu(self.devices, self.environment):
            return "torch does not see this machine's GPU (see torch)"
        if needs in (Needs.GPU, Needs.LINKS) and not self.devices:
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
        try:
            with self._started("look", 1) as pool:
                answer = pool.ask("importing torch and asking for the devices", LOOK_S, "probe")[0]
            self.seen = Seen(answer["devices"], answer["environment"])
        except (StepFailed, PoolDied) as error:
            self.seen = Seen(environment={"torch_missing": error.failure.why}, lost=error.failure.why)
        return self.seen

    def run(self, step: BringupStep, done: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Run one step: its result, or (a step in parts) that of each part that is not done, as the report shows it."""
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
            tried = backends.tried(self.checkout, done, self.heap(), self.report_progress)
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
