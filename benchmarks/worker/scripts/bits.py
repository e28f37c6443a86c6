"""What a tensor holds, as a digest that is equal for equal bits."""

from __future__ import annotations

import hashlib

import torch

COLUMNS = (31, 1021)
"""A digest on a GPU sums a tensor's words of 8 bytes in so many columns, so that a swap of two words shows unless they
are a multiple of both apart.  Narrower words torch would copy into words of 8 bytes first: 4 GiB for 1 GiB of bf16."""

LARGE = 1 << 26
"""Bytes.  A larger tensor in host memory is summed in columns, too: 0.6 s/GB of CPU time, on all threads, in place of
1.7 s/GB of one (busy machine, 2026-11-26).  Caches of keys and values have gigabytes."""

HOST_COLUMNS = (1021, 8191)
"""Wide enough for the vectors of a CPU: columns of 31 take three times as long as those of 8191."""


def digest(tensor: torch.Tensor) -> str:
    """What a tensor holds, shape and type included; "" for a kind of tensor whose bits cannot be read.

    Raises torch.cuda.OutOfMemoryError: that says nothing of the tensor.
    """
    try:
        with torch.no_grad():
            return _digest(tensor.detach())
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, TypeError, NotImplementedError, AttributeError):
        return ""


def _digest(tensor: torch.Tensor) -> str:
    head = f"{tensor.dtype}{list(tensor.shape)}"
    if tensor.numel() == 0:
        return head
    flat = tensor.contiguous().view(-1).view(torch.uint8)
    on_host = flat.device.type == "cpu"
    if on_host and flat.nbytes <= LARGE:
        return hashlib.blake2b(memoryview(flat.numpy()), digest_size=12, key=head.encode()[:64]).hexdigest()
    edge = flat.nbytes // 8 * 8
    whole, rest = flat[:edge], flat[edge:]
    whole = whole.clone() if (whole.storage_offset() | whole.data_ptr()) % 8 else whole
    sums = _sums(whole.view(torch.int64), HOST_COLUMNS if on_host else COLUMNS) + rest.tolist()
    return f"{head}{hashlib.blake2b(repr(sums).encode(), digest_size=12).hexdigest()}"


def _sums(flat: torch.Tensor, widths: tuple[int, ...]) -> list[int]:
    """Of a tensor of whole numbers, the sums of its columns, and of what is left."""
    sums: list[int] = []
    for columns in widths:
        edge = flat.numel() // columns * columns
        whole, rest = flat[:edge].view(-1, columns).sum(0, dtype=torch.int64), flat[edge:].sum(dtype=torch.int64)
        sums += [*whole.tolist(), int(rest)]
    return sums
