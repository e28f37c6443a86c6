"""One timed closure: its first calls, what it reads and writes, its samples, its outputs.

Every method leaves the device idle.  Calls whose outputs are compared start from one state: equal random numbers, and
inputs that the closure changes put back to what they held.
"""

from __future__ import annotations

import dataclasses
import random
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from .. import clocks
from . import calls, reach
from .agreement import Agreement, agree
from .wanted import TimerCall

MOST_BYTES = 4 << 30
"""Bytes of inputs or outputs that are kept to put them back, or to compare them; a closure with more is only timed."""


class ClosureBench:
    """A closure on its way to samples.  make_clock: of a device or of the host, with the flush that was asked for."""

    def __init__(self, timed: TimerCall, seed: int, make_clock: Callable[[bool], Any]) -> None:
        self._timed, self._seed, self._make_clock = timed, seed, make_clock
        self._held: dict[str, torch.Tensor] = {}
        self._written: list[str] = []
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._graph: Any = None
        self._own: list[torch.Tensor] = []
        self._launched = clocks.Timed(timed.call)
        self._starved = 0
        self.clock: Any = None
        self.samples_s: list[float] = []

    def examine(self) -> dict[str, Any]:
        """Call it a few times: tuning and compiling happen in the first, the others show what it does.

        Seconds of the first call and of one later; tensors as "float32[64, 64]".  changed: ways of inputs that every
        call changes further.  repeats: two calls gave the same.  call: what it does, in Python, with the inputs as x0,
        x1, ... in their order (see `calls`), and the modules that it needs.
        """
        self._held = reach.tensors(self._timed.call, *self._timed.roots)
        on_gpu = any(one.is_cuda for one in self._held.values()) or (not self._held and torch.cuda.is_available())
        self.clock = self._make_clock(on_gpu and torch.cuda.is_available())
        inputs, (call, modules) = reach.described(self._held), calls.told(self._timed.call, reach.ordered(self._held))
        before = self._digests()
        first_s, _ = self._once()
        between = self._digests()
        expected_s, returned = self._once()
        after = self._digests()
        changed = [way for way in between if between[way] != after[way]]
        self._written = [way for way in before if before[way] != between[way] and way not in changed]
        self._keep(changed)
        self._own = self._copied(self._outputs(returned if not changed else self._once()[1]))
        again = self._outputs(self._once()[1])
        return {
            "first_call_s": first_s,
            "expected_s": expected_s,
            "inputs": inputs,
            "outputs": reach.described(dict(enumerate(self._own))),  # type: ignore[arg-type]
            "changed": changed,
            "repeats": not self._own or agree(self._own, again, True).right,
            "on_gpu": on_gpu,
            "call": call,
            "modules": modules,
        }

    def bundle(self, calls: int, graph: bool) -> str:
        """From now on a sample has so many calls, one after the other or in a graph; why it has no graph, or ""."""
        call, self._graph = self._timed.call, None
        many = 1 if self._special else calls
        self._launched = clocks.Timed(call if many == 1 else _repeated(call, many), many)
        if not graph:
            return ""
        try:
            self._graph, _ = clocks.capture([call] * calls)
            self.clock.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        self._launched = clocks.Timed(self._graph.replay, calls)
        return ""

    def samples(self, order: list[str], warm_up: bool, spot: None = None) -> dict[str, Any]:
        """Samples of this closure, as many as it stands in the order; the answer of arms.CaseBench.samples."""
        seconds: list[float] = []
        busy_s = 0.0
        for many in [1] * len(order) if self._special else [len(order)]:
            self._put_back()
            taken = self.clock.run([self._launched] * many)
            seconds, busy_s = [*seconds, *taken.seconds], busy_s + taken.busy_s
            for enqueue_s, starved in zip(taken.enqueue_s, taken.starved, strict=True):
                if warm_up:
                    self.clock.adapt(self._launched, enqueue_s, starved)
                else:
                    self._starved += starved
        self.samples_s += [] if warm_up else seconds
        return {"seconds": seconds, "busy_s": busy_s, "starved": dict.fromkeys(order, self._starved), "spot": None}

    def drop(self) -> None:
        """It failed: nothing of it is needed any more."""

    def keep_outputs(self, path: str) -> dict[str, Any]:
        """Write the outputs of one call, and what the inputs hold, to a file for the other side."""
        torch.save({"outputs": [one.cpu() for one in self._own], "inputs": self._inputs()}, path)
        return {"outputs": len(self._own)}

    def compare(self, path: str) -> dict[str, Any]:
        """Hold the outputs against those of the other side."""
        theirs = torch.load(path, weights_only=True)
        Path(path).unlink(missing_ok=True)
        found = agree([one.cpu() for one in self._own], theirs["outputs"], self._inputs() == theirs["inputs"])
        return dataclasses.asdict(found)

    def check_after(self) -> dict[str, Any]:
        """One more call, after timing, held against the first outputs."""
        if self._graph is not None:
            self._graph.replay()
            self.clock.synchronize()
        found = self._outputs(self._once()[1])
        return dataclasses.asdict(agree(found, self._own, True) if self._own else Agreement(False))

    @property
    def _special(self) -> bool:
        """Whether something must be put back before every call."""
        return bool(self._kept or self._timed.no_grad_of)

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _once(self) -> tuple[float, Any]:
        """Seconds of one call from the same state as every other, seen from the host, and what it returned."""
        self._put_back()
        seeded(self._seed)
        self.clock.synchronize()
        begin = time.perf_counter()
        returned = self._timed.call()
        self.clock.synchronize()
        return time.perf_counter() - begin, returned

    def _put_back(self) -> None:
        with torch.no_grad():
            for tensor, copy in self._kept:
                tensor.copy_(copy)
        for one in self._timed.no_grad_of:
            one.grad = None

    def _keep(self, changed: Sequence[str]) -> None:
        """Copies of the inputs that calls change, as they are now."""
        with torch.no_grad():
            tensors = [self._held[way] for way in changed]
            if sum(one.nbytes for one in tensors) <= MOST_BYTES:
                self._kept = [(one.detach(), one.detach().clone()) for one in tensors]

    def _digests(self) -> dict[str, str]:
        return {way: reach.digest(one) for way, one in self._held.items()}

    def _inputs(self) -> list[str]:
        """What it holds and does not write."""
        return sorted(found for way, found in self._digests().items() if found and way not in self._written)

    def _outputs(self, returned: Any) -> list[torch.Tensor]:
        """What a call gives: tensors that it returns, those that it writes, those that it changes."""
        written = [self._held[way] for way in self._written]
        found = {id(one): one for one in (*reach.outputs(returned), *written, *(one for one, _ in self._kept))}
        return list(found.values())

    def _copied(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if sum(one.nbytes for one in tensors) > MOST_BYTES:
            return []
        with torch.no_grad():
            return [one.detach().clone() for one in tensors]


def seeded(seed: int) -> None:
    """Random numbers of Python, NumPy and torch start from the seed."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _repeated(call: Callable[[], Any], calls: int) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(calls):
            call()

    return launch
