"""The processes that execute the small cases of a source tree, as `verify --arch` and `isa --execute` start them.

Nothing of the emulator is imported here: it is an extra.
"""

from __future__ import annotations

import os
import queue
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.isa.compile import environment
from benchmarks.isa.pool import CompileProcess, CompileSetting, Ended, Limits
from benchmarks.reach.code import of_harness
from benchmarks.shapes import JsonObject, clean
from benchmarks.trial_file import Status

PROCESSES = 2
"""Executing ones: each imports torch, Triton and the decoder (3 s of CPU), and takes 0.6 GB."""

LIST_S, LIMITS = 120.0, Limits(300.0, 6000)
"""Limits of listing all, and of one case and a process."""

NEEDED = ("tinygrad", "elftools", "msgpack", "torch")
"""Modules, most of the extra `emulate`, without which nothing is executed."""

MODULE = "benchmarks.emulation.worker"

Done = tuple[JsonObject, JsonObject]
"""A case as it is listed (worker.Cases), and its arm."""


class ExecutingProcess(CompileProcess):
    """One executing process.  listed: whether it has listed the cases, which it is asked for by their number."""

    what = "executing"
    listed = False


def missing() -> str:
    """What to install before anything can be executed, "" if all is there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'ridgeline[emulate]'" if absent else ""


class Pool:
    """The processes, and what they listed; to be used as a context.

    asked: what worker.Cases.gather takes.  Entering it raises CheckoutError if nothing can be listed.
    """

    def __init__(
        self, checkout: Checkout, asked: Mapping[str, Any], limits: Limits = LIMITS, packages: Sequence[Path] = ()
    ) -> None:
        self._checkout, self._asked, self._limits = checkout, dict(asked), limits
        self._folder = tempfile.TemporaryDirectory(prefix="ridgeline-emulation-")
        self._scratch = Path(self._folder.name)
        kept = {"TRITON_CACHE_DIR": str(self._scratch / "triton"), "OMP_NUM_THREADS": "1"}
        self._setting = CompileSetting(
            checkout.path.resolve(),
            self._scratch,
            checkout.python,
            tuple(packages),
            limits,
            variables=environment(os.environ) | kept,
        )
        self._processes: list[ExecutingProcess] = []
        self.listing: JsonObject = {}

    def __enter__(self) -> Pool:
        for _ in range(min(PROCESSES, os.cpu_count() or 1)):  # all at once: each imports for 3 s
            self._started()
        try:
            self._ready(self._processes[0])
        except CheckoutError:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for process in self._processes:
            process.kill()
        self._folder.cleanup()

    def holds_for(self, kernel: str, arch: str) -> JsonObject:
        """What decides the arms of an operator's small cases on a target."""
        code, module = self._checkout.code, self.listing["kernels"][kernel]["module"]
        decides = {
            "kernel_digest": code.digest(module),
            "looks_at": code.environment(module),
            "ridgeline": of_harness(),
            "broken": self.listing["broken"],
            "environment": self.listing["environment"],
            "machine": f"emulated-{arch}",
            "seed": 0,
            "knobs": {},
        }
        return clean(decides)

    def executed(self, left: Sequence[int]) -> Iterator[Done]:
        """These cases of the listing, as they are done: the largest begin first, so that none is waited for long."""
        cases = self.listing["cases"]
        waiting = deque(sorted(left, key=lambda index: -cases[index]["flops"]))
        done = queue.SimpleQueue[Done]()
        threads = [
            threading.Thread(target=self._work, args=(waiting, done.put, process), daemon=True)
            for process in self._processes[: len(left)]
        ]
        for thread in threads:
            thread.start()
        try:
            for _ in left:
                yield done.get()
        finally:
            waiting.clear()
            for process in self._processes:
                process.kill()
            for thread in threads:
                thread.join()

    def _work(self, waiting: deque[int], tell: Callable[[Done], None], process: ExecutingProcess | None) -> None:
        """Execute what is left; a process that died is replaced."""
        while waiting:
            try:
                index = waiting.popleft()
            except IndexError:  # another one was quicker
                break
            case = self.listing["cases"][index]
            try:
                process = self._ready(process or self._started())
                arm = process.ask({"op": "execute", "asked": index}, self._limits)
                tell((case, arm if arm.pop("ok") else {"status": Status.ERROR, "why": arm["why"]}))
            except (Ended, CheckoutError) as end:
                if process:
                    process.kill()
                process = None
                tell((case, {"status": Status.HANG if "longer than" in str(end) else Status.CRASH, "why": str(end)}))

    def _started(self) -> ExecutingProcess:
        arguments = (MODULE, str(self._setting.tree), str(self._scratch))
        process = ExecutingProcess(arguments, self._setting, self._checkout.code, self._scratch)
        self._processes.append(process)
        return process

    def _ready(self, process: ExecutingProcess) -> ExecutingProcess:
        """The process, once it has listed the cases.  CheckoutError if it cannot."""
        if process.listed:
            return process
        try:
            listing = process.ask({"op": "list", "asked": self._asked}, Limits(LIST_S, self._limits.memory_mb))
            if not listing.pop("ok"):
                raise Ended(listing["why"])
        except Ended as end:
            process.kill()
            raise CheckoutError(f"the small cases of {self._setting.tree} could not be listed: {end}") from None
        process.listed, self.listing = True, self.listing or listing
        return process
