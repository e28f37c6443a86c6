"""What a tensor holds, as a digest that is equal for equal bits."""

from __future__ import annotations

import hashlib

import torch

from .. import guards

COLUMNS = (31, 1021)
"""A digest on a GPU sums the bits of a tensor in so many columns, so that a swap of two elements shows unless they are
a multiple of both apart."""


def digest(tensor: torch.Tensor) -> str:
    """What a tensor holds, shape and type included; "" for a kind of tensor whose bits cannot be read."""
    try:
        with torch.no_grad():
            return _digest(tensor.detach())
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return ""


def _digest(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype}{list(tensor.shape)}"
    if tensor.numel() == 0:
        return head
    flat = tensor.contiguous().view(-1).view(guards.WORDS[min(8, tensor.element_size())])
    if flat.device.type == "cpu":
        return hashlib.blake2b(memoryview(flat.numpy()), digest_size=12, key=head.encode()[:64]).hexdigest()
    return f"{head}{hashlib.blake2b(repr(_sums(flat)).encode(), digest_size=12).hexdigest()}"


def _sums(flat: torch.Tensor) -> list[int]:
    """Of a tensor of whole numbers, the sums of its columns, and of what is left."""
    sums: list[int] = []
    for columns in COLUMNS:
        edge = flat.numel() // columns * columns
        whole, rest = flat[:edge].view(-1, columns).sum(0, dtype=torch.int64), flat[edge:].sum(dtype=torch.int64)
        sums += [*whole.tolist(), int(rest)]
    return sums
