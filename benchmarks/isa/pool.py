"""Compile everything a tree declares: processes per architecture, each watched for time and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import queue
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Checkout, modules_with
from benchmarks.coordinator.ranks import Failed, Failure, StepFailed, WorkerPool
from benchmarks.isa.compile import compiler_message, environment
from benchmarks.reach import CheckoutCode
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import Status

MOST_PROCESSES = 4
"""Processes per architecture on a large machine: each imports the operators, and takes some 0.5 GB."""

MOST_FOR_POINTS = 32
"""The same for the points of a sweep, of which there can be a thousand: a point takes 0.85 s of CPU, two thirds of it
the assembler and the disassembler (GEMM for sm_90, Triton 3.8, 2026-11-22)."""

UNITS_PER_PROCESS = 8
"""Compilations for which one more process is worth its start."""

LIST_LIMIT_S = 120.0


@dataclasses.dataclass(frozen=True)
class Limits:
    """What one compilation may take: wall seconds, and resident MB of its process with the tools it starts."""

    seconds: float = 120.0
    memory_mb: int = 6000


@dataclasses.dataclass(frozen=True)
class Choice:
    """What to compile; empty means all.  cases: shell patterns.  tiers: names as in kernels.spec.

    points: {case, backend, knobs} of a sweep; with some, they alone are compiled.
    """

    tiers: tuple[str, ...] = ("pr",)
    kernels: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    points: tuple[Json, ...] = ()


@dataclasses.dataclass(frozen=True)
class CompileSetting:
    """Where and how: the tree under test, cache folder.

    compute_units: CUs or SMs of the device to compile for; None: those of the product that is assumed.
    variables: the environment of launches, whose cache of Triton is filled; None: a clean one, and Triton's cache is in
    the cache folder.
    processes: per architecture.
    """

    tree: Path
    cache: Path
    limits: Limits = Limits()
    compute_units: int | None = None
    variables: Mapping[str, str] | None = dataclasses.field(default=None, hash=False)
    processes: int | None = None


SERVES = "benchmarks.isa.worker.UnitCompiler"


class Farm(contextlib.ExitStack):
    """Processes that have listed the same tree, and answer requests; all are killed on leaving the context.

    serves: class of ours that answers in them.  start: starts one.  tree: what it may run of.  listing:
    what the first one answered.  failure: why another one could not list it, after which nothing more is asked.
    """

    def __init__(
        self, serves: str, start: Callable[[], WorkerPool], tree: CheckoutCode, asked: Json, limit_s: float
    ) -> None:
        super().__init__()
        self._serves, self._start, self._tree, self._asked, self._limit_s = serves, start, tree, asked, limit_s
        self.listing: JsonObject = {}
        self.failure = ""

    def ready(self) -> WorkerPool:
        """A process that has listed the tree.  Raises Failed."""
        process = self._start()
        self.callback(process.kill)
        listing = self._answer(process, LIST_LIMIT_S, "listing", **self._asked)
        if self.listing and listing != self.listing:
            why = "two processes listed something else; declarations must not depend on chance"
            raise Failed(Failure(Status.ERROR, why))
        self.listing = listing
        return process

    def answers(self, first: WorkerPool, requests: Mapping[int, Json], count: int) -> Iterator[tuple[int, JsonObject]]:
        """(number, answer) of each request as it is done, by up to `count` processes: `first` begins with the first of
        them, others with the last.

        A process that ended is replaced; the answer is then {"ok": False, "why": ..., "ended": True}.
        """
        left, done = deque(requests), queue.SimpleQueue[tuple[int, JsonObject]]()
        others = [(None, left.pop)] * (min(count, len(requests)) - 1)
        for process, take in ((first, left.popleft), *others):
            work = functools.partial(self._work, process, take, requests, done)
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in requests:
                yield done.get()
        finally:
            left.clear()

    def _work(self, process: WorkerPool | None, take: Callable[[], int], requests: Any, done: Any) -> None:
        while True:
            try:
                number = take()
            except IndexError:  # nothing is left
                return
            try:
                process = process or self._replaced()
                answer = {"ok": True, **self._answer(process, self._limit_s, "answer", **requests[number])}
            except StepFailed as error:
                answer = {"ok": False, "why": error.failure.why}
            except Failed as error:
                if process:
                    process.kill()
                process, answer = None, {"ok": False, "why": reason_of(error.failure), "ended": True}
            done.put((number, answer))

    def _answer(self, process: WorkerPool, limit_s: float, what: str, **asked: Any) -> JsonObject:
        """What a process answers; Failed, too, if it ran for that what is not of the tree."""
        [answer] = process.ask(process.label, limit_s, "serve", by=self._serves, what=what, asked=asked)
        [ran] = process.ask(process.label, limit_s, "ran", tops=self._tree.tops)
        if fault := self._tree.ran("", **ran).fault:
            raise Failed(Failure(Status.ERROR, fault))
        return dict(answer)

    def _replaced(self) -> WorkerPool:
        if self.failure:
            raise Failed(Failure(Status.ERROR, self.failure))
        try:
            return self.ready()
        except Failed as error:
            self.failure = reason_of(error.failure)
            raise


def reason_of(failure: Failure) -> str:
    """Why a process failed, with what a compiler said before it."""
    return "; ".join(filter(None, (failure.why, compiler_message(failure.detail))))


class CompilePool:
    """All compilations for one architecture.  records: by unit index."""

    def __init__(
        self, arch: str, choice: Choice, setting: CompileSetting, scratch: Path, tell: Callable[..., None]
    ) -> None:
        from kernels.hardware import assumed_units

        self.arch, self.setting, self._scratch, self._tell = arch, setting, scratch, tell
        self._asked = {
            "arch": arch,
            "cache": str(setting.cache.resolve()),
            "compute_units": setting.compute_units or assumed_units(arch),
            "choose": dataclasses.asdict(choice),
            "modules": modules_with(Checkout("head", setting.tree.resolve()), choice.kernels),
        }
        self.listing: JsonObject | None = None
        self.failure = ""
        self.records: dict[int, JsonObject] = {}

    def run(self, slots: int) -> None:
        """List, then compile until nothing is left, by as many processes as there is enough to do for."""
        limits = self.setting.limits
        with Farm(SERVES, self._process, CheckoutCode(self.setting.tree), self._asked, limits.seconds) as farm:
            try:
                first = farm.ready()
            except Failed as error:
                self.failure = self._not_listed(reason_of(error.failure))
                return
            self.listing, units = farm.listing, farm.listing["units"]
            known = {index: unit for index, unit in enumerate(units) if "status" in unit}
            self.records |= {index: {"status": unit["status"], "why": unit["why"]} for index, unit in known.items()}
            left = [index for index in range(len(units)) if index not in known]
            requests = {index: {"index": index} for index in left}
            for index, answer in farm.answers(first, requests, min(slots, max(1, len(units) // UNITS_PER_PROCESS))):
                if answer.get("ended") and farm.failure:
                    self.failure = self._not_listed(farm.failure)
                    return
                self.records[index] = answer if answer.pop("ok") else {"status": "failed", "why": answer["why"]}
                self._tell(arch=self.arch, done=len(self.records), total=len(units))

    def _process(self) -> WorkerPool:
        own_cache = {"TRITON_CACHE_DIR": str(self.setting.cache.resolve() / "triton")}
        inherited = self.setting.variables or environment(os.environ) | own_cache
        how = (self.setting.tree.resolve(), 1, self._scratch)
        memory_mb = self.setting.limits.memory_mb
        return WorkerPool("compiling", sys.executable, *how, inherited=inherited, most_mb=memory_mb)

    def _not_listed(self, why: str) -> str:
        return f"the kernels could not be listed for {self.arch}: {why}"


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Do all of this at once, to its end."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def compile_all(
    arches: Sequence[str], choice: Choice, setting: CompileSetting, tell: Callable[..., None]
) -> list[CompilePool]:
    """Run every architecture in parallel; returns the runs with their listings and records, in the order asked.

    tell(arch=, done=, total=) is called after each compilation, from any thread.
    """
    slots = setting.processes or min(MOST_PROCESSES, max(1, (os.cpu_count() or 1) // len(arches)))
    with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as scratch:
        runs = [CompilePool(arch, choice, setting, Path(scratch), tell) for arch in arches]
        _in_threads([functools.partial(run.run, slots) for run in runs])
    return runs
