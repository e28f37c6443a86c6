"""A sample like all others, which is not kept: what the call did in it is compared afterwards.

Right before the call its outputs are overwritten, or its inputs get other values; right behind it, in the order of the
stream, a part of its outputs is copied.  The timed code sees the same host code in the same order, and what lies in
the outputs are results in the wrong places, so nothing tells it that this sample is another.  Then

- the copy must be what the outputs hold once the device is idle: else the call was not finished when its time ended
  (work on a stream that is not waited for, in a thread or another process, or put off until somebody reads);
- the outputs must be right for what the inputs held.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from . import outputs as forms
from .live_inputs import LiveInputs

KINDS = ("outputs", "inputs")
"""What is changed before the call."""

WINDOW_BYTES = 64 << 20
"""Of a larger output so much is overwritten and copied, in a place chosen each time."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class SpotCheck:
    """One sample of an arm.  timed: what is timed, a clocks.Timed.

    held: the arm's outputs so far, by copy of the inputs.  fixed: they are written by every call, which else makes its
    own (kernels.spec.functional); then a call may give back an earlier one, which is overwritten as well.
    """

    def __init__(
        self,
        timed: Any,
        held: Sequence[Any],
        fixed: bool,
        kind: str,
        secret: int,
        values: LiveInputs,
        poison: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.kind, self._values, self._held, self._fixed, self._poison = kind, values, held, fixed, poison
        self._random = random.Random(secret)
        self.timed = dataclasses.replace(timed, before=self._before, after=self._after)
        self.outputs: list[Any] = []
        self.misshapen = ""
        self._windows = [self._window(one) for output in held for one in forms.tensors(output)]
        self._decoys = [self._decoy(one) for one in self._windows] if kind == "outputs" else []
        self._snapshots = [torch.empty_like(one) for one in self._windows] if fixed else []

    @property
    def late(self) -> bool:
        """Whether the outputs changed after the timed span."""
        pairs = zip(self._snapshots, self._windows, strict=True)
        return not all(torch.equal(_bits(before), _bits(after)) for before, after in pairs)

    @property
    def left(self) -> bool:
        """Whether an output still holds what it held before the call."""
        pairs = zip(self._decoys, self._windows, strict=False)
        return any(torch.equal(_bits(before), _bits(after)) for before, after in pairs)

    def restore(self) -> None:
        """Give the inputs the values that they had."""
        self._change_inputs()

    def _change_inputs(self) -> None:
        """Of two sets of values each is the other one's other."""
        if self.kind == "inputs":
            self._values.swap(range(len(self._held)))

    def _before(self) -> None:
        self._change_inputs()
        for window, decoy in zip(self._windows, self._decoys, strict=False):
            window.copy_(decoy)

    def _after(self, result: Any) -> None:
        """The call has been launched and its end marked."""
        self.outputs = list(self._held) if self._fixed else [result]
        self.misshapen = next(filter(None, map(forms.misshapen, self.outputs)), "")
        if self._fixed:
            for snapshot, window in zip(self._snapshots, self._windows, strict=True):
                snapshot.copy_(window)
        else:
            parts = () if self.misshapen else forms.tensors(result)
            self._windows = [self._window(one) for one in parts]
            self._snapshots = [one.clone() for one in self._windows]

    def _window(self, tensor: torch.Tensor) -> torch.Tensor:
        """A part of a tensor, in a random place; all of it, if it is small or not contiguous."""
        most = WINDOW_BYTES // tensor.element_size()
        if not tensor.is_contiguous() or tensor.numel() <= most:
            return tensor
        start = self._random.randrange(tensor.numel() - most + 1)
        return tensor.view(-1)[start : start + most]

    def _decoy(self, window: torch.Tensor) -> torch.Tensor:
        """What looks like a result and is none: all values, or a tenth of them, in other places.

        Poison where that changes nothing: all values are the same.
        """
        part = window.reshape(-1).clone()
        length = part.numel() if self._random.random() < 0.5 else -(-part.numel() // 10)
        start = self._random.randrange(part.numel() - length + 1)
        other = part[start : start + length].roll(self._random.randrange(1, max(2, length)))
        if torch.equal(_bits(other), _bits(part[start : start + length])):
            return self._poison(part).view(window.shape)
        part[start : start + length] = other
        return part.view(window.shape)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8)
    return tensor.view(_BITS[tensor.element_size()]) if tensor.element_size() in _BITS else tensor
