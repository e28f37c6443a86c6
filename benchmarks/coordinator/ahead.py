"""Compiling what the launches of a session will need, beside its trials, so that few of them wait for a compiler.

Processes whose device is untouched fill Triton's cache, from the first second of measuring on, in the order in which
the trials will ask.  A trial waits before it sets a case up until that case is compiled: the compiler would only start
again in its own process, where one launch follows the other.  What cannot be compiled here is left to its launch, which
says why.
"""

from __future__ import annotations

import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.lanes import Quiet, Stopped
from benchmarks.coordinator.ranks import VARIABLES, PoolDied, StepFailed, WorkerPool
from benchmarks.plan import PlannedCase
from benchmarks.shapes import Json, JsonObject

MOST_PROCESSES = 12
"""Each imports an operator (a second) and compiles one launch after the other (0.3 to 7 s each: 140 s for all of
`run --tier pr`, H200, 2026-11); more of them keep the trials from starting."""

CORES_OF_A_COMPILER = 2
"""The compiler is busy with one core, the assembler that it starts with another for part of the time; the trials have
theirs beside them."""

LOOK_S = 0.25

FILL_S = 180.0
"""How long a process may take to compile what one arm launches; the longest of ours takes 7 s (2026-11)."""

STARTS = 3
"""Processes that one of them may take, where what it compiles ends it."""


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
    """The compilations of a session, by so many processes at a time, which end where there is nothing to compile.

    start: a process of a checkout, by role (FillingProcess).
    """

    def __init__(self, start: Callable[[str, Quiet], Any], count: int) -> None:
        self._start, self._stop = start, Quiet()
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="compiles") if count > 0 else None
        self._change = threading.Condition()
        self._left = Counter[tuple[str, str]]()
        self._known: set[str] = set()
        self._idle: dict[str, list[Any]] = defaultdict(list)

    def add(self, kernel: str, modules: Mapping[str, str], cases: Sequence[PlannedCase]) -> None:
        """Compile what arms of these cases launch, unless it was added before.  modules: where each role declares it.

        Roles that are not in `modules` are left out.
        """
        if self._executor is None or kernel in self._known:
            return
        self._known.add(kernel)
        for role, module in modules.items():
            asked = [
                {"case": case.name, "backend": arm.backend, "knobs": dict(arm.overrides)}
                for case in cases
                for arm in case.arms
                if arm.role == role and not case.skip
            ]
            if asked:
                self._submit(role, {one["case"] for one in asked}, module=module, kernel=kernel, asked=asked)

    def wait(self, kernel: str, case: str, quiet: Quiet) -> None:
        """Until nothing of a case is left to compile; others of the session are timed meanwhile."""
        if self._left[kernel, case]:
            with quiet.resting(), self._change:
                while self._left[kernel, case]:
                    self._change.wait(LOOK_S)
                    quiet.refuse()

    def close(self) -> None:
        """End every process."""
        with self._change:
            self._stop.stop()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._end_idle()

    def _submit(self, role: str, cases: Iterable[str], **fields: Any) -> None:
        """Have it done, unless the session ends: then Stopped.  cases: those that wait for it."""
        keys = [(fields["kernel"], case) for case in cases]
        with self._change:
            self._stop.refuse()
            self._left.update(keys)
            if self._executor:
                self._executor.submit(self._compile, role, keys, fields)

    def _compile(self, role: str, keys: Sequence[tuple[str, str]], fields: JsonObject) -> None:
        """List the launches of some arms, or compile one; what is listed is queued before nobody waits for this."""
        try:
            for launch in self._answer(role, "launches" if "asked" in fields else "fill", fields) or ():
                home = {name: fields[name] for name in ("module", "kernel")}
                self._submit(role, [launch["case"]], **home, **launch)
        except Stopped:
            pass
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            print(f"not compiled ahead, its launch compiles: {why}", file=sys.stderr, flush=True)
        finally:
            with self._change:
                self._left.subtract(keys)
                self._change.notify_all()
                is_over = not self._left.total()
            if is_over:
                self._end_idle()

    def _answer(self, role: str, op: str, fields: JsonObject) -> Any:
        """The launches that a process lists; None of one that it compiled."""
        with self._change:
            process = self._idle[role].pop() if self._idle[role] else None
        process = process or self._start(role, self._stop)
        try:
            answer = process.ask(op, **fields)
        finally:
            with self._change:
                self._idle[role].append(process)
        return answer if op == "launches" else None

    def _end_idle(self) -> None:
        with self._change:
            idle, self._idle = self._idle, defaultdict(list)
        for process in (one for of_role in idle.values() for one in of_role):
            process.close()


class FillingProcess:
    """A process of a checkout that compiles, with its device untouched; the first request starts it.

    device: what every request tells of it.
    """

    def __init__(self, checkout: Checkout, directory: Path, device: Json, quiet: Quiet) -> None:
        self._checkout, self._directory, self._device, self._quiet = checkout, directory, device, quiet
        self._pool: WorkerPool | None = None
        self._failures = 0

    def ask(self, op: str, **fields: Any) -> Any:
        """The answer; None where there is none.  A process that ended is started again, STARTS times."""
        if self._failures >= STARTS:
            return None
        try:
            if self._pool is None:
                label, rest = f"compiling.{os.urandom(4).hex()}", (VARIABLES, None, None, self._quiet)
                where = self._checkout.path
                self._pool = WorkerPool(label, self._checkout.python, where, 1, self._directory, *rest)
            return self._pool.ask(f"compiling ahead ({op})", FILL_S, op, **fields, **self._device)[0]
        except StepFailed:
            return None
        except (PoolDied, OSError):
            self._failures, self._pool = self._failures + 1, None
            return None

    def close(self) -> None:
        """End it."""
        if self._pool:
            self._pool.kill()
