"""The tensors that a closure can read or write, and what they hold."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

import torch

DEEPEST, MOST = 5, 64
"""Steps from the closure to a tensor, and tensors that are followed."""

COLUMNS = 31
"""A digest on a GPU sums the bits of a tensor in so many columns, so that a swap of two elements shows."""

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensors(*roots: Any) -> dict[str, torch.Tensor]:
    """The tensors that can be reached, by way: of closures, partials, methods, containers, modules and objects."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for index, root in enumerate(roots):
        _follow(root, str(index), 0, found, seen)
    return found


def outputs(value: Any) -> list[torch.Tensor]:
    """The tensors in what a call returned, in order."""
    found: dict[str, torch.Tensor] = {}
    _follow(value, "", DEEPEST - 3, found, set(), calls=False)
    return list(found.values())


def digest(tensor: torch.Tensor) -> str:
    """What a tensor holds, shape and type included; "" for a kind of tensor whose bits cannot be read."""
    try:
        with torch.no_grad():
            return _digest(tensor.detach())
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return ""


def described(found: dict[str, torch.Tensor]) -> list[str]:
    """Type and shape of every tensor, sorted: "bf16[64,4096]"."""
    return list(map(_described, ordered(found)))


def ordered(found: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The tensors in the order of `described`."""
    return sorted(found.values(), key=_described)


def _described(one: torch.Tensor) -> str:
    return f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}"


def _digest(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype}{list(tensor.shape)}"
    if tensor.numel() == 0:
        return head
    flat = tensor.contiguous().view(-1).view(_BITS[min(8, tensor.element_size())])
    if flat.device.type == "cpu":
        return hashlib.blake2b(memoryview(flat.numpy()), digest_size=12, key=head.encode()[:64]).hexdigest()
    whole = flat[: flat.numel() // COLUMNS * COLUMNS].view(-1, COLUMNS).sum(0, dtype=torch.int64)
    rest = flat[flat.numel() // COLUMNS * COLUMNS :].sum(dtype=torch.int64)
    return f"{head}{[*whole.tolist(), int(rest)]}"


def _follow(
    value: Any, way: str, depth: int, found: dict[str, torch.Tensor], seen: set[int], calls: bool = True
) -> None:
    if len(found) >= MOST or depth > DEEPEST or id(value) in seen:
        return
    if isinstance(value, torch.Tensor):
        seen.add(id(value))
        if value.layout is torch.strided and value.device.type != "meta":
            found[way] = value
        return
    if value is None or isinstance(value, (str, bytes, int, float, type)):
        return
    seen.add(id(value))
    for name, part in _parts(value, calls):
        _follow(part, f"{way}.{name}", depth + 1, found, seen, calls)


def _parts(value: Any, calls: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((str(index), one) for index, one in enumerate(value[:MOST]))
    elif isinstance(value, dict):
        yield from ((str(name), one) for name, one in list(value.items())[:MOST])
    elif isinstance(value, torch.nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
    elif calls and isinstance(value, functools.partial):
        yield from (("func", value.func), ("args", value.args), ("keywords", value.keywords))
    elif calls and isinstance(value, MethodType):
        yield from (("self", value.__self__), ("function", value.__func__))
    elif calls and isinstance(value, FunctionType):
        yield from _of_function(value)
    elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in ("torch", "builtins", "triton"):
        yield from list(vars(value).items())[:MOST]


_HOLDERS = (torch.Tensor, torch.nn.Module, list, tuple, dict, FunctionType, functools.partial)
"""Globals of these kinds are followed; others are modules and constants."""


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Cells, defaults, and the globals that its code names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that is not set yet
    yield "defaults", function.__defaults__
    held = function.__globals__
    yield from ((name, held[name]) for name in function.__code__.co_names if isinstance(held.get(name), _HOLDERS))
