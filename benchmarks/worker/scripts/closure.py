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
        self._launched: clocks.Timed | None = None
        self.clock: Any = None
        self.samples_s: list[float] = []

    @property
    def special(self) -> bool:
        """Whether something must be put back before every call."""
        return bool(self._kept or self._timed.no_grad_of)

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
            "repeats": _same(self._own, again),
            "on_gpu": on_gpu,
            "call": call,
            "modules": modules,
        }

    def capture(self, calls: int) -> str:
        """From now on a sample is a replay of a graph of so many calls; returns why that cannot be, or ""."""
        try:
            self._graph, _ = clocks.capture([self._timed.call] * calls)
            self.clock.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        self._launched = clocks.Timed(self._graph.replay, calls)
        return ""

    def release(self) -> None:
        """From now on a sample is a call again."""
        self._graph = self._launched = None

    def samples(self, count: int, calls: int, warm_up: bool) -> list[float]:
        """Seconds of a call, by sample.  calls: in a sample, on a host's clock."""
        timed = self._as_timed(calls)
        order = [1] * count if self.special else [count]
        found: list[float] = []
        for many in order:
            self._put_back()
            taken = self.clock.run([timed] * many)
            found += taken.seconds
            if warm_up:
                for enqueue_s, starved in zip(taken.enqueue_s, taken.starved, strict=True):
                    self.clock.adapt(timed, enqueue_s, starved)
        self.samples_s += [] if warm_up else found
        return found

    def keep_outputs(self, path: str) -> dict[str, Any]:
        """Write the outputs of one call, and what the inputs hold, to a file for the other side."""
        inputs = sorted(filter(None, self._digests(self._written).values()))
        torch.save({"outputs": [one.cpu() for one in self._own], "inputs": inputs}, path)
        return {"outputs": len(self._own)}

    def compare(self, path: str) -> dict[str, Any]:
        """Hold the outputs against those of the other side."""
        theirs = torch.load(path, weights_only=True)
        Path(path).unlink(missing_ok=True)
        inputs = sorted(filter(None, self._digests(self._written).values()))
        found = agree([one.cpu() for one in self._own], theirs["outputs"], inputs == theirs["inputs"])
        return dataclasses.asdict(found)

    def check_after(self) -> dict[str, Any]:
        """One more call, after timing, held against the first outputs."""
        if self._graph is not None:
            self._graph.replay()
            self.clock.synchronize()
        found = self._outputs(self._once()[1])
        return dataclasses.asdict(agree(found, self._own, True) if self._own else Agreement(False))

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _once(self) -> tuple[float, Any]:
        """Seconds of one call from the same state as every other, seen from the host, and what it returned."""
        self._put_back()
        seeded(self._seed)
        self._idle()
        begin = time.perf_counter()
        returned = self._timed.call()
        self._idle()
        return time.perf_counter() - begin, returned

    def _idle(self) -> None:
        self.clock.synchronize()

    def _as_timed(self, calls: int) -> clocks.Timed:
        if self._launched is None:
            call, many = self._timed.call, 1 if self.special else calls
            self._launched = clocks.Timed(call if many == 1 else _repeated(call, many), many)
        return self._launched

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

    def _digests(self, without: Sequence[str] = ()) -> dict[str, str]:
        return {way: reach.digest(one) for way, one in self._held.items() if way not in without}

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


def _same(first: Sequence[torch.Tensor], second: Sequence[torch.Tensor]) -> bool:
    """Whether two calls gave the same, within what an order of summation changes."""
    return not first or agree(first, second, True).right


def _repeated(call: Callable[[], Any], calls: int) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(calls):
            call()

    return launch
