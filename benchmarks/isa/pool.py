"""Compile everything a tree declares: compiling processes per architecture, each watched for time and memory."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import queue
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from benchmarks.isa.compile import environment, target
from benchmarks.reach import CheckoutCode
from benchmarks.shapes import Json, JsonObject

HARNESS = Path(__file__).resolve().parents[2]
MODULE = "benchmarks.isa.worker"
MOST_PROCESSES = 4
"""Processes per architecture on a large machine: each imports torch and Triton again (about 2 s and 0.5 GB)."""

MOST_FOR_POINTS = 32
"""The same for the points of a sweep, of which there can be a thousand: a point takes 0.85 s of CPU, two thirds of it
the assembler and the disassembler (GEMM for sm_90, Triton 3.8, 2026-11-22)."""

UNITS_PER_PROCESS = 8
"""Compilations for which one more process is worth its start."""

LIST_LIMIT_S = 120.0
_POLL_S = 0.05
_TAIL = 4000


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
    variables: the environment of launches, whose cache of Triton is filled; None: a clean one and no such cache.
    processes: per architecture.
    """

    tree: Path
    cache: Path
    limits: Limits = Limits()
    compute_units: int | None = None
    variables: Mapping[str, str] | None = dataclasses.field(default=None, hash=False)
    processes: int | None = None


class Ended(Exception):
    """A compiling process is gone: the text says why, as a sentence about the compilation it was doing."""


class CompileProcess:
    """A process that compiles, or executes what it compiles; arguments: its module of ours, then what that takes."""

    what = "compiling"

    def __init__(self, arguments: Sequence[str], setting: CompileSetting, code: CheckoutCode, scratch: Path) -> None:
        self._code = code
        self._log = tempfile.NamedTemporaryFile(dir=scratch, suffix=".log")  # noqa: SIM115 - closed in kill()
        self._buffer = b""
        variables = dict(setting.variables or {}) or _clean(scratch / f"triton-{id(self)}")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": self._log}
        command = [sys.executable, "-P", str(HARNESS / "benchmarks" / "naming.py"), *arguments, self._log.name]
        own = {"cwd": HARNESS, "env": lifetime.told(variables), "start_new_session": True}
        self._process = subprocess.Popen(command, **own, **pipes)

    def ask(self, request: Json, limits: Limits) -> JsonObject:
        """The answer to a request; Ended if the process died or was killed for time or memory."""
        line = json.dumps({**request, "tops": self._code.tops}) + "\n"
        try:
            self._process.stdin.write(line.encode())  # type: ignore[union-attr]
            self._process.stdin.flush()  # type: ignore[union-attr]
        except BrokenPipeError:
            raise Ended(self._epitaph()) from None
        deadline = time.monotonic() + limits.seconds
        while b"\n" not in self._buffer:
            if time.monotonic() > deadline:
                self.kill()
                raise Ended(f"it took longer than {limits.seconds:g} s and was stopped")
            if resident_mb(self._process.pid) > limits.memory_mb:
                self.kill()
                raise Ended(f"it took more than {limits.memory_mb} MB of memory and was stopped")
            self._receive()
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer = dict(json.loads(line))
        if fault := self._code.ran("", **answer.pop("ran")).fault:
            raise Ended(fault)
        return answer

    def _receive(self) -> None:
        stdout = self._process.stdout.fileno()  # type: ignore[union-attr]
        if select.select([stdout], [], [], _POLL_S)[0]:
            received = os.read(stdout, 1 << 16)
            if not received:
                raise Ended(self._epitaph())
            self._buffer += received

    def _epitaph(self) -> str:
        from benchmarks.isa.compile import last_words

        code = self._process.wait()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        tail = Path(self._log.name).read_text(errors="replace")[-_TAIL:]
        return f"the {self.what} process died ({how}): {last_words(tail)}"

    def kill(self) -> None:
        """End the process with everything it started; no harm if it has ended."""
        if self._log.closed:
            return
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        finally:
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe:
                    pipe.close()
            self._log.close()


def _clean(cache: Path) -> dict[str, str]:
    """An environment that changes no code, with a cache of Triton that is thrown away."""
    return environment(os.environ) | {"TRITON_CACHE_DIR": str(cache)}


def resident_mb(pid: int) -> float:
    """Resident memory of a process and all its descendants, in MB; 0 where /proc does not say."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(resident_mb(int(child)) for child in children)


class Farm(contextlib.ExitStack):
    """Watched processes that have listed the same tree, and answer requests; all are killed on leaving the context.

    start: starts one.  choice: of the request by which it lists.  listing: what the first one answered.  failure: why
    another one could not list it, after which nothing more is asked.
    """

    def __init__(self, start: Callable[[], CompileProcess], choice: Json, limits: Limits) -> None:
        super().__init__()
        self._start, self._choice, self._limits = start, dict(choice), limits
        self.listing: JsonObject = {}
        self.failure = ""

    def ready(self) -> CompileProcess:
        """A process that has listed the tree; Ended if it cannot."""
        process = self._start()
        self.callback(process.kill)
        listing = process.ask({"op": "list", **self._choice}, Limits(LIST_LIMIT_S, self._limits.memory_mb))
        if not listing.pop("ok"):
            raise Ended(listing["why"])
        if self.listing and listing != self.listing:
            raise Ended("two processes listed something else; declarations must not depend on chance")
        self.listing = listing
        return process

    def answers(
        self, first: CompileProcess, requests: Mapping[int, Json], count: int
    ) -> Iterator[tuple[int, JsonObject]]:
        """(number, answer) of each request as it is done, begun in this order, by `first` and others up to `count`.

        A process that ended is replaced; the answer is then {"ok": False, "why": ..., "ended": True}.
        """
        left, done = deque(requests), queue.SimpleQueue[tuple[int, JsonObject]]()
        others = [None] * (min(count, len(requests)) - 1)
        for process in (first, *others):
            work = functools.partial(self._work, process, left, requests, done)
            threading.Thread(target=work, daemon=True).start()
        try:
            for _ in requests:
                yield done.get()
        finally:
            left.clear()

    def _work(self, process: CompileProcess | None, left: deque[int], requests: Any, done: Any) -> None:
        while left:
            try:
                number = left.popleft()
            except IndexError:  # another one was quicker
                return
            try:
                process = process or self._replaced()
                answer = process.ask(requests[number], self._limits)
            except Ended as end:
                if process:
                    process.kill()
                process, answer = None, {"ok": False, "why": str(end), "ended": True}
            done.put((number, answer))

    def _replaced(self) -> CompileProcess:
        if self.failure:
            raise Ended(self.failure)
        try:
            return self.ready()
        except Ended as end:
            self.failure = str(end)
            raise


class CompilePool:
    """All compilations for one architecture.  records: by unit index."""

    def __init__(
        self, arch: str, choice: Choice, setting: CompileSetting, scratch: Path, tell: Callable[..., None]
    ) -> None:
        from kernels.hardware import assumed_units

        target(arch)
        self.arch, self.setting, self._scratch, self._tell = arch, setting, scratch, tell
        self._choice = dataclasses.asdict(choice)
        self._code = CheckoutCode(setting.tree)
        self._compute_units = setting.compute_units or assumed_units(arch)
        self.listing: JsonObject | None = None
        self.failure = ""
        self.records: dict[int, JsonObject] = {}

    def run(self, slots: int) -> None:
        """List, then compile until nothing is left, by as many processes as there is enough to do for."""
        with Farm(self._process, {"choose": self._choice}, self.setting.limits) as farm:
            try:
                first = farm.ready()
            except Ended as end:
                self.failure = self._not_listed(end)
                return
            self.listing, units = farm.listing, farm.listing["units"]
            known = {index: unit for index, unit in enumerate(units) if "status" in unit}
            self.records |= {index: {"status": unit["status"], "why": unit["why"]} for index, unit in known.items()}
            compiling = {"op": "compile", "launch_cache": self.setting.variables is not None}
            requests = {index: {**compiling, "index": index} for index in range(len(units)) if index not in known}
            for index, answer in farm.answers(first, requests, min(slots, max(1, len(units) // UNITS_PER_PROCESS))):
                if answer.get("ended") and farm.failure:
                    self.failure = self._not_listed(farm.failure)
                    return
                self.records[index] = answer if answer.pop("ok") else {"status": "failed", "why": answer["why"]}
                self._tell(arch=self.arch, done=len(self.records), total=len(units))

    def _process(self) -> CompileProcess:
        folders = (str(self.setting.tree.resolve()), str(self.setting.cache.resolve()))
        arguments = (MODULE, self.arch, *folders, str(self._compute_units))
        return CompileProcess(arguments, self.setting, self._code, self._scratch)

    def _not_listed(self, why: object) -> str:
        return f"the kernels could not be listed for {self.arch}: {why}"


def _in_threads(works: Sequence[Callable[[], None]]) -> None:
    """Do all of this at once, to its end."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def most_for_points() -> int:
    """Compiling processes for the points of a sweep on this machine."""
    return min(MOST_FOR_POINTS, os.cpu_count() or 1)


def compile_all(
    arches: Sequence[str], choice: Choice, setting: CompileSetting, tell: Callable[..., None] = lambda **progress: None
) -> list[CompilePool]:
    """Run every architecture in parallel; returns the runs with their listings and records, in the order asked.

    tell(arch=, done=, total=) is called after each compilation, from any thread.
    """
    slots = setting.processes or min(MOST_PROCESSES, max(1, (os.cpu_count() or 1) // len(arches)))
    with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as scratch:
        runs = [CompilePool(arch, choice, setting, Path(scratch), tell) for arch in arches]
        _in_threads([functools.partial(run.run, slots) for run in runs])
    return runs
