"""Compiling what the launches of a session will need, beside its trials, so that few of them wait for a compiler.

Processes whose device is untouched fill Triton's cache, from the first second of measuring on, in the order in which
the trials will ask.  A trial waits before it sets a case up until that case is compiled: the compiler would only start
again in its own process, where one launch follows the other.  What cannot be compiled here is left to its launch, which
says why.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.coordinator.lanes import Quiet, Stopped
from benchmarks.plan import PlannedCase
from benchmarks.shapes import JsonObject

MOST_PROCESSES = 12
"""Each imports an operator (a second) and compiles one launch after the other (0.3 to 7 s each: 140 s for all of
`run --tier pr`, H200, 2026-11); more of them keep the trials from starting."""

CORES_OF_A_COMPILER = 2
"""The compiler is busy with one core, the assembler that it starts with another for part of the time; the trials have
theirs beside them."""

LOOK_S = 0.25


@dataclasses.dataclass(frozen=True)
class CompileTask:
    """What a process is asked for.  cases: that wait for it.  order: what comes first."""

    order: tuple[int, int]
    role: str
    kernel: str
    cases: tuple[str, ...]
    op: str
    fields: JsonObject = dataclasses.field(hash=False)


def processes(kind: str, free_cores: float) -> int:
    """How many processes compile on a machine of kind "gpu" or "cpu": none where the cores are needed for measuring."""
    return 0 if kind == "cpu" else min(MOST_PROCESSES, int(free_cores / CORES_OF_A_COMPILER) - 1)


def homes(
    kernel: str, modules: Mapping[str, Mapping[str, str]], digests: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """By role, the module that declares a kernel; one role of those in whose checkouts it has the same files."""
    same = {digests.get(role, {}).get(kernel, role): role for role in modules if kernel in modules[role]}
    return {role: modules[role][kernel] for role in same.values()}


class CompiledAhead:
    """The compilations of a session, by so many processes.

    start: starts a process of a checkout, by role (worker_pools.FillingProcess); OSError.
    """

    def __init__(self, start: Callable[[str, Quiet], Any], count: int) -> None:
        self._start, self._count, self._stop = start, count, Quiet()
        self._change = threading.Condition()
        self._waiting: list[CompileTask] = []
        self._left: dict[tuple[str, str], int] = {}
        self._known: set[str] = set()
        self._threads: list[threading.Thread] = []
        self._under_way = 0

    def add(self, kernel: str, module: dict[str, str], cases: Sequence[PlannedCase]) -> None:
        """Compile what arms of these cases launch, unless it was added before.  module: by role, where it is declared.

        Roles that are not in `module` are left out.
        """
        if self._count < 1 or kernel in self._known:
            return
        with self._change:
            order = len(self._known)
            self._known.add(kernel)
            for role, where in module.items():
                asked = [
                    {"case": case.name, "backend": arm.backend, "knobs": dict(arm.overrides)}
                    for case in cases
                    for arm in case.arms
                    if arm.role == role and not case.skip
                ]
                names = tuple(dict.fromkeys(one["case"] for one in asked))
                told = {"module": where, "kernel": kernel, "asked": asked}
                if asked:
                    self._queue(CompileTask((order, 0), role, kernel, names, "launches", told))
        self._begin()

    def wait(self, kernel: str, case: str, quiet: Quiet) -> None:
        """Until nothing of a case is left to compile; others of the session are timed meanwhile."""
        if self._left.get((kernel, case)):
            with quiet.resting(), self._change:
                while self._left.get((kernel, case)):
                    self._change.wait(LOOK_S)
                    quiet.refuse()

    def close(self) -> None:
        """End every process."""
        self._stop.stop()
        self._abandon()
        for thread in self._threads:
            thread.join()

    # ---- the threads, one to a process -------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Have a thread for every process that there may be; those that found nothing more to do have ended."""
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        while len(self._threads) < self._count:
            self._threads.append(threading.Thread(target=self._work, name="compiles", daemon=True))
            self._threads[-1].start()

    def _work(self) -> None:
        """One process after the other, of one checkout each."""
        role = ""
        process: Any = None
        try:
            while task := self._next(role):
                found: Any = None
                try:
                    if process and role != task.role:
                        process.close()
                        process = None
                    if not process:
                        role, process = task.role, self._start(task.role, self._stop)
                    found = process.ask(task.op, **task.fields)
                finally:
                    self._done(task, found)
        except Stopped:
            pass
        except Exception as error:
            print(
                f"compiling ahead ends, launches compile: {type(error).__name__}: {error}", file=sys.stderr, flush=True
            )
            self._abandon()
        finally:
            if process:
                process.close()

    def _abandon(self) -> None:
        """Leave all that waits to the launches."""
        with self._change:
            waiting, self._waiting = self._waiting, []
            self._forget(waiting)

    def _next(self, role: str) -> CompileTask | None:
        """The first task, of the same checkout if there is one; None once nothing is left that could bring more."""
        with self._change:
            self._change.wait_for(lambda: self._waiting or not self._under_way)
            if not self._waiting:
                return None
            task = min(self._waiting, key=lambda one: (one.role != role, one.order))
            self._waiting.remove(task)
            self._under_way += 1
            return task

    def _done(self, task: CompileTask, found: Any) -> None:
        """What a task brought is queued before nobody waits for the task any more."""
        told = {name: task.fields[name] for name in ("module", "kernel")}
        with self._change:
            for place, launch in enumerate(found or () if task.op == "launches" else ()):
                order = task.order[0], place + 1
                self._queue(CompileTask(order, task.role, task.kernel, (launch["case"],), "fill", {**told, **launch}))
            self._under_way -= 1
            self._forget([task])

    def _forget(self, tasks: Sequence[CompileTask]) -> None:
        for task in tasks:
            for case in task.cases:
                self._left[task.kernel, case] -= 1
        self._change.notify_all()

    def _queue(self, task: CompileTask) -> None:
        for case in task.cases:
            self._left[task.kernel, case] = self._left.get((task.kernel, case), 0) + 1
        self._waiting.append(task)
        self._change.notify_all()
