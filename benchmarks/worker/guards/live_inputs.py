"""A second set of values for the inputs that every call reads anew, so that an earlier result is a wrong one.

A kernel names such inputs (kernels.spec.Kernel, live).  The second set is the first with one element in CHANGED drawn
anew, from a seed that is chosen for the case and in no declaration: an output must follow, and a call that compares a
few elements to find out whether the inputs are the old ones mostly sees no difference.  Both sets and their references
are made before any backend is built.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

CHANGED = 256
"""One element in so many is drawn anew.  Of a GEMM this moves the output by sqrt(2 / 256) = 9 % (norm), 20 times the
widest tolerance of ours; a fingerprint of 16 elements sees it in 6 of 100 cases (2026-11-22)."""

MOST_BYTES = 1 << 30
"""Larger inputs keep their values: a second reference would take too much of the memory."""

Inputs = Mapping[str, Any]
Draw = Callable[[int], Inputs]
"""seed -> inputs, as the kernel declares them."""


class LiveInputs:
    """Which set of values every copy of the inputs holds: 0, the declared one, or 1."""

    def __init__(self, names: Sequence[str], copies: Sequence[Inputs], draw: Draw, secret: int) -> None:
        self.held = [0] * len(copies)
        self._copies = copies
        first = copies[0] if isinstance(copies[0], Mapping) else {}
        kept = {name: first[name] for name in names if isinstance(first.get(name), torch.Tensor)}
        self._sets: list[dict[str, torch.Tensor]] = []
        if kept and sum(one.nbytes for one in kept.values()) <= MOST_BYTES:
            drawn = draw(secret)
            own = {name: one.clone() for name, one in kept.items()}
            self._sets = [own, {name: _mixed(one, drawn[name], secret) for name, one in own.items()}]
            self._scatter(random.Random(secret))

    def __bool__(self) -> bool:
        """Whether there is a second set."""
        return bool(self._sets)

    def hold(self, copy: int, which: int) -> None:
        """Put a set of values into a copy, behind what was launched before."""
        if self.held[copy] != which:
            for name, values in self._sets[which].items():
                self._copies[copy][name].copy_(values)
            self.held[copy] = which

    def swap(self, copies: Sequence[int]) -> None:
        """Put the other set into each of these copies."""
        for copy in copies:
            self.hold(copy, 1 - self.held[copy])

    def _scatter(self, chance: random.Random) -> None:
        """Either set into every copy but the first, so that no copy can have the result of another by right."""
        for copy in range(1, len(self.held)):
            self.hold(copy, chance.randrange(2))


def _mixed(values: torch.Tensor, drawn: torch.Tensor, secret: int) -> torch.Tensor:
    """The values with one in CHANGED, at least one, from `drawn`."""
    generator = torch.Generator(device=values.device).manual_seed(secret ^ 0x5EED)
    mask = torch.rand(values.shape, generator=generator, device=values.device) < 1 / CHANGED
    mask.view(-1)[random.Random(secret).randrange(max(1, values.numel()))] = True
    return torch.where(mask, drawn, values)
