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

from benchmarks.coordinator.checkouts import Checkout, CheckoutError, modules_with
from benchmarks.coordinator.ranks import Failed, WorkerPool
from benchmarks.isa.compile import environment
from benchmarks.isa.pool import Farm, Limits, reason_of
from benchmarks.reach import of_harness
from benchmarks.shapes import JsonObject, clean
from benchmarks.trial_file import Status

PROCESSES = 2
"""Executing ones: each imports torch, Triton and the decoder (3 s of CPU), and takes 0.6 GB."""

LIMITS = Limits(300.0, 6000)
"""Of one case and a process."""

SERVES = "benchmarks.emulation.worker.SmallCases"

ENDED = "ended"
"""In an arm whose process ended before it: another try may be executed."""

Done = tuple[JsonObject, JsonObject]
"""A case as it is listed (worker.SmallCases), and its arm."""


class Pool(contextlib.ExitStack):
    """The processes, and what they listed; to be used as a context.  Others than the first begin when there is
    something left to execute.

    asked: what worker.SmallCases.listing takes, but for the modules.  Raises CheckoutError if nothing can be listed.
    """

    def __init__(self, checkout: Checkout, asked: Mapping[str, Any], limits: Limits = LIMITS) -> None:
        super().__init__()
        self._checkout = checkout
        self._scratch = Path(self.enter_context(tempfile.TemporaryDirectory(prefix="ridgeline-emulation-")))
        self._most_mb = limits.memory_mb
        listed = {**asked, "modules": modules_with(checkout, asked["kernels"])}
        self._farm = self.enter_context(Farm(SERVES, self._process, checkout.code, listed, limits.seconds))
        try:
            self._first = self._farm.ready()
        except Failed as error:
            self.close()
            why = reason_of(error.failure)
            raise CheckoutError(f"the small cases of {checkout.path} could not be listed: {why}") from None
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
        """These cases of the listing, as they are done: the largest begin first, so that none is waited for long.

        Each process begins with a target of its own: what it has translated for one is of no use for the other.
        """
        cases = self.listing["cases"]
        by_size = sorted(left, key=lambda index: -cases[index]["flops"])
        begun_first = [index for index in by_size if cases[index]["arch"] == cases[by_size[0]]["arch"]]
        if len(begun_first) == len(by_size):
            begun_first = by_size[::2]
        order = [*begun_first, *(index for index in reversed(by_size) if index not in begun_first)]
        requests = {index: {"index": index} for index in order}
        for index, arm in self._farm.answers(self._first, requests, min(PROCESSES, os.cpu_count() or 1)):
            if not arm.pop("ok"):
                gap = {"status": Status.UNSUPPORTED, "why": f"not executed, because {arm['why']}", ENDED: True}
                arm = gap if arm.get(ENDED) else {"status": Status.ERROR, "why": arm["why"]}
            yield cases[index], arm

    def _process(self) -> WorkerPool:
        own = {"TRITON_CACHE_DIR": str(self._scratch / "triton"), "OMP_NUM_THREADS": "1"}
        how = (self._checkout.path.resolve(), 1, self._scratch)
        inherited = environment(os.environ) | own
        return WorkerPool("executing", self._checkout.python, *how, inherited=inherited, most_mb=self._most_mb)
