"""Runs the steps: each in processes of its own, with a deadline, whatever becomes of the one before."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bringup import report, rows, state
from benchmarks.bringup.rows import Row, RowStatus
from benchmarks.bringup.steps import HEAP_VARIABLE, HOMES, BringupStep, Needs
from benchmarks.coordinator import fingerprint, starting
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.coordinator.signals import deferred
from benchmarks.coordinator.worker_pools import VARIABLES, make_directories, remove_directories
from benchmarks.trial_file import Status

LOOK_S = 180.0
"""Importing torch and asking for the devices: a minute from a cold network disk (2026-11)."""

CPU_RANKS = 2
"""Ranks on a machine without a GPU: enough to meet."""

POLL_S = 0.25
"""How often the events of a long step are read."""

Finished = Callable[[dict[str, Any]], None]
"""Called with each finished step, as state.line makes it."""


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

    def __init__(self, checkout: Checkout, report_progress: Callable[[Mapping[str, Any]], None]) -> None:
        self.checkout, self.report_progress = checkout, report_progress
        self.seen = Seen()
        self.results: dict[str, dict[str, Any]] = {}
        self._directory = make_directories()
        self._pool: WorkerPool | None = None

    def __enter__(self) -> Bringup:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool:
            self._pool.kill()
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

    def run(self, step: BringupStep, done: Sequence[str], finished: Finished) -> None:
        """Run one step; `finished` gets its result, or (a step in parts) the result of each part that is not done."""
        lacking = self.seen.lacks(step.needs)
        if self._status(step.after) == RowStatus.FAIL:
            lacking = f"{step.after} failed"
        if lacking:
            finished(_line(step.name, 0.0, [rows.not_here(step.name, lacking).as_json()]))
            return
        begin = time.monotonic()
        events = _Events(self._directory / f"events.{os.urandom(4).hex()}", finished, self.report_progress)
        try:
            with events, self._started(step.name.replace("/", "-"), self._world(step)) as pool:
                pool.post(
                    step.name, step.deadline_s, "bringup", self._per_rank(step, events.path, done), probe=step.probe
                )
                found = [row for answer in pool.collect() for row in answer]
        except (StepFailed, PoolDied) as error:
            found = [_lost(step, error.failure).as_json()]
        if found or not events.count:
            finished(_line(step.name, time.monotonic() - begin, found))

    def _status(self, step: str) -> str:
        """What became of a step, "" if it has not been run."""
        return str(self.results.get(step, {}).get("status", ""))

    def _variables(self) -> dict[str, str]:
        """The environment of a step.  Where the heap cannot be had as usual but in one home, that home is taken."""
        variables = {**VARIABLES, "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": str(self._directory)}
        homes = [home for home in HOMES if self._status(f"heap/{home}") == RowStatus.PASS]
        if self._status("heap") == RowStatus.FAIL and homes:
            variables[HEAP_VARIABLE] = homes[0]
        return variables

    def _world(self, step: BringupStep) -> int:
        return self.seen.world if step.needs in (Needs.RANKS, Needs.LINKS) else 1

    def _per_rank(self, step: BringupStep, events: Path, done: Sequence[str]) -> list[dict[str, Any]]:
        world, token = self._world(step), os.urandom(4).hex()
        heap = self._directory / "shm" / f"heap-{token}"
        shared = {
            "step": step.name,
            "checkout": str(self.checkout.path),
            "devices": self.seen.devices,
            "environment": dict(self.seen.environment),
            "world": world,
            "store": str(self._directory / f"store-{token}"),
            "heap_directory": str(_made(heap if heap.parent.is_dir() else self._directory / heap.name)),
            "events": str(events),
            "done": list(done),
        }
        device = "cuda:{}" if self.seen.devices else "cpu"
        return [{"context": {**shared, "rank": rank, "device": device.format(rank)}} for rank in range(world)]

    @contextlib.contextmanager
    def _started(self, label: str, world: int) -> Iterator[WorkerPool]:
        """Processes of a step, which have ended on leaving."""
        starting.prepare(sys.executable)
        with deferred():
            own = (self.checkout.path, world, self._directory, self._variables())
            pool = WorkerPool(label, sys.executable, *own)
            self._pool = pool
        try:
            yield pool
            pool.quit()
            pool.close()
        finally:
            pool.kill()


class _Events:
    """Follows the events of a step in a thread: progress is passed on, a finished part is kept at once."""

    def __init__(self, path: Path, finished: Finished, progress: Callable[[Mapping[str, Any]], None]) -> None:
        self.path, self.count = path, 0
        self._finished, self._progress = finished, progress
        self._over, self._at = threading.Event(), 0
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> _Events:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._read()

    def _follow(self) -> None:
        while not self._over.wait(POLL_S):
            self._read()

    def _read(self) -> None:
        """Pass on every complete line that is new."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self._at)
            whole = file.read().rpartition(b"\n")[0]
        for text in whole.splitlines():
            self._pass_on(json.loads(text))
        self._at += len(whole) + 1 if whole else 0

    def _pass_on(self, event: Mapping[str, Any]) -> None:
        if "part" in event:
            self.count += 1
            self._finished(_line(event["part"], event["seconds"], event["rows"]))
        else:
            self._progress(event)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _line(name: str, seconds: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    return state.line(name, seconds, found, rows.status_of(found), report.now())


def _lost(step: BringupStep, failure: Failure) -> Row:
    """The row of a step whose process failed."""
    if failure.status == Status.UNSUPPORTED:
        return rows.not_here(step.name, failure.why)
    alone = f"{step.if_lost} {step.name}" if step.if_lost.endswith("--only") else step.if_lost
    return rows.failed(step.name, f"{failure.status}: {failure.why}", alone, failure.detail)
