"""The processes that execute the small cases of a source tree, as `verify --arch` and `isa --execute` start them.

Nothing of the emulator is imported here: it is an extra.
"""

from __future__ import annotations

import contextlib
import os
import queue
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib.util import find_spec
from pathlib import Path
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

ENDED = "ended"
"""In an arm whose process ended before it: another try may be executed."""

Done = tuple[JsonObject, JsonObject]
"""A case as it is listed (worker.Cases), and its arm."""


class ExecutingProcess(CompileProcess):
    """One executing process, which has to list the cases before it is asked for them by their number."""

    what = "executing"


def missing() -> str:
    """What to install before anything can be executed, "" if all is there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'ridgeline[emulate]'" if absent else ""


class Pool(contextlib.ExitStack):
    """The processes, and what they listed; to be used as a context.  Others than the first begin when there is
    something left to execute.

    asked: what worker.Cases.gather takes.  Raises CheckoutError if nothing can be listed.
    """

    def __init__(
        self, checkout: Checkout, asked: Mapping[str, Any], limits: Limits = LIMITS, packages: Sequence[Path] = ()
    ) -> None:
        super().__init__()
        self._checkout, self._asked, self._limits = checkout, dict(asked), limits
        self._scratch = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ridgeline-emulation-")))
        kept = {"TRITON_CACHE_DIR": str(self._scratch / "triton"), "OMP_NUM_THREADS": "1"}
        self._setting = CompileSetting(
            checkout.path.resolve(),
            self._scratch,
            checkout.python,
            tuple(packages),
            limits,
            variables=environment(os.environ) | kept,
        )
        self.listing: JsonObject = {}
        self._count = min(PROCESSES, os.cpu_count() or 1)
        self._idle = queue.LifoQueue[ExecutingProcess | None]()
        """None stands for one that has not begun, and comes last."""
        for _ in range(1, self._count):
            self._idle.put(None)
        try:
            self._idle.put(self._started())
        except CheckoutError:
            self.close()
            raise

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
        with ThreadPoolExecutor(self._count) as threads:
            order = sorted(left, key=lambda index: -cases[index]["flops"])
            done = {threads.submit(self._execute, index): cases[index] for index in order}
            try:
                for one in as_completed(done):
                    yield done[one], one.result()
            finally:
                threads.shutdown(wait=False, cancel_futures=True)
                self.close()

    def _execute(self, index: int) -> JsonObject:
        """The arm of a case; a process that died is replaced."""
        process = self._idle.get()
        try:
            process = process or self._started()
            arm = process.ask({"op": "execute", "asked": index}, self._limits)
            return arm if arm.pop("ok") else {"status": Status.ERROR, "why": arm["why"]}
        except (Ended, CheckoutError) as end:
            if process:
                process.kill()
            process = None
            return {"status": Status.UNSUPPORTED, "why": f"not executed, because {end}", ENDED: True}
        finally:
            self._idle.put(process)

    def _started(self) -> ExecutingProcess:
        """A process that has listed the cases.  CheckoutError if it cannot."""
        arguments = (MODULE, str(self._setting.tree), str(self._scratch))
        process = ExecutingProcess(arguments, self._setting, self._checkout.code, self._scratch)
        self.callback(process.kill)
        try:
            listing = process.ask({"op": "list", "asked": self._asked}, Limits(LIST_S, self._limits.memory_mb))
            if not listing.pop("ok"):
                raise Ended(listing["why"])
        except Ended as end:
            raise CheckoutError(f"the small cases of {self._setting.tree} could not be listed: {end}") from None
        self.listing = self.listing or listing
        return process
