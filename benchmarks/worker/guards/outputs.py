"""What an output must be: plain tensors, each element in a place of its own, in nobody else's memory, wide enough.

Each function returns what is wrong, in words that follow the name of the backend, or "".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch

WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Least bytes of a floating-point element of the output of a case, by its dtype."""


def tensors(output: Any) -> tuple[Any, ...]:
    """The tensors of an output."""
    return tuple(output) if isinstance(output, (tuple, list)) else (output,)


def misshapen(output: Any) -> str:
    """An output is a tensor or a tuple of tensors, of no subclass: those can compute when they are read.

    One that is not strided, or has one place for several elements, is none either.
    """
    parts = tensors(output)
    if not parts or not all(isinstance(one, torch.Tensor) for one in parts):
        what = f"returned {type(output).__name__}"
        return f"{what}; its callable must return its output, a tensor or a tuple of tensors"
    for one in parts:
        if type(one) is not torch.Tensor or vars(one):
            plain = type(one) is torch.Tensor
            own = f"with attributes of its own ({', '.join(vars(one))})" if plain else "a subclass of torch.Tensor"
            return f"returned {type(one).__name__}, {own}, which can compute when it is read; return a plain tensor"
        if one.layout is not torch.strided or _shared_places(one):
            return f"returned a tensor whose elements share their place in memory (shape {tuple(one.shape)})"
    return ""


def unsuitable(output: Any, case: Any) -> str:
    """An output lies on the device of the case and is at least as wide as its dtype."""
    for one in tensors(output):
        if one.device.type != torch.device(case.place.device).type:
            return f"returned a tensor on {one.device}; the case is on {case.place.device}"
        if one.dtype.is_floating_point and one.element_size() < WIDTHS.get(case.dtype, 1):
            name = str(one.dtype).removeprefix("torch.")
            return f"returned {name} in a case of {case.dtype}: precision is part of the case"
    return ""


def shared(output: Any, others: Mapping[str, Iterable[Any]]) -> str:
    """An output shares memory with nothing else.  others: tensors by what they are, in words."""
    mine = [_reach(one) for one in tensors(output) if one.numel()]
    for what, known in others.items():
        reached = [_reach(one) for one in known if isinstance(one, torch.Tensor) and one.numel()]
        if any(_overlap(one, other) for one in mine for other in reached):
            return f"returned a tensor in the memory of {what}; it must allocate its own in the set-up"
    return ""


def _shared_places(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _reach(tensor: torch.Tensor) -> tuple[str, int, int]:
    """Device, and addresses of the first byte and behind the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
