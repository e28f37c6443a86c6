"""The processes that execute the small cases of a source tree, as `verify --arch` and `isa --execute` start them.

Nothing of the emulator is imported here: it is an extra.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.isa.compile import environment
from benchmarks.isa.pool import CompileProcess, CompileSetting, Ended, Farm, Limits
from benchmarks.reach import of_harness
from benchmarks.shapes import JsonObject, clean
from benchmarks.trial_file import Status

PROCESSES = 2
"""Executing ones: each imports torch, Triton and the decoder (3 s of CPU), and takes 0.6 GB."""

LIMITS = Limits(300.0, 6000)
"""Of one case and a process."""

MODULE = "benchmarks.emulation.worker"

ENDED = "ended"
"""In an arm whose process ended before it: another try may be executed."""

Done = tuple[JsonObject, JsonObject]
"""A case as it is listed (worker.Cases), and its arm."""


class ExecutingProcess(CompileProcess):
    """One executing process, which has to list the cases before it is asked for them by their number."""

    what = "executing"


class Pool(contextlib.ExitStack):
    """The processes, and what they listed; to be used as a context.  Others than the first begin when there is
    something left to execute.

    asked: what worker.Cases.gather takes.  Raises CheckoutError if nothing can be listed.
    """

    def __init__(self, checkout: Checkout, asked: Mapping[str, Any], limits: Limits = LIMITS) -> None:
        super().__init__()
        self._checkout = checkout
        self._scratch = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ridgeline-emulation-")))
        kept = {"TRITON_CACHE_DIR": str(self._scratch / "triton"), "OMP_NUM_THREADS": "1"}
        self._setting = CompileSetting(
            checkout.path.resolve(), self._scratch, checkout.python, limits, variables=environment(os.environ) | kept
        )
        self._farm = self.enter_context(Farm(self._process, {"asked": dict(asked)}, limits))
        try:
            self._first = self._farm.ready()
        except Ended as end:
            self.close()
            raise CheckoutError(f"the small cases of {self._setting.tree} could not be listed: {end}") from None
        self.listing: JsonObject = self._farm.listing

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
        order = sorted(left, key=lambda index: -cases[index]["flops"])
        requests = {index: {"op": "execute", "asked": index} for index in order}
        for index, arm in self._farm.answers(self._first, requests, min(PROCESSES, os.cpu_count() or 1)):
            if not arm.pop("ok"):
                gap = {"status": Status.UNSUPPORTED, "why": f"not executed, because {arm['why']}", ENDED: True}
                arm = gap if arm.get(ENDED) else {"status": Status.ERROR, "why": arm["why"]}
            yield cases[index], arm

    def _process(self) -> ExecutingProcess:
        arguments = (MODULE, str(self._setting.tree), str(self._scratch))
        return ExecutingProcess(arguments, self._setting, self._checkout.code, self._scratch)
