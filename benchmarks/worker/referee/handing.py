"""Hands an output to another process: the bytes of its tensors in a file, and a note of what lies where.

What this calls is bound when the module is loaded, before a kernel can change torch, os or a method of a tensor.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

ALIGNMENT = 64
"""Bytes: each tensor begins at a multiple of this, so that it can be read as its type."""

_open, _write, _close, _chmod = os.open, os.write, os.close, os.fchmod
_plainly = torch._C.DisableTorchFunctionSubclass
_detached, _contiguous, _on_host = torch._C.TensorBase.detach, torch._C.TensorBase.contiguous, torch._C.TensorBase.cpu
_address, _count, _itemsize = torch._C.TensorBase.data_ptr, torch._C.TensorBase.numel, torch._C.TensorBase.element_size


def hand_over(output: Any, file: str) -> dict[str, Any]:
    """Write an output (a tensor or a tuple of them) to a new file; the note that reading needs.  Raises OSError."""
    tensors = list(output) if isinstance(output, (tuple, list)) else [output]
    descriptor, notes, end = _open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC), [], 0
    try:
        _chmod(descriptor, 0o600)  # whatever the umask has become
        with _plainly():
            for tensor in tensors:
                host = _on_host(_contiguous(_detached(tensor)))
                size = _count(host) * _itemsize(host)
                notes.append({"type": str(host.dtype), "shape": list(host.shape), "offset": end, "bytes": size})
                end += _put(descriptor, host, size)
    finally:
        _close(descriptor)
    return {"file": file, "tuple": isinstance(output, (tuple, list)), "tensors": notes}


def _put(descriptor: int, tensor: torch.Tensor, size: int) -> int:
    """Write the bytes of a tensor on the host and what is missing to ALIGNMENT; how many that was."""
    left = memoryview((ctypes.c_ubyte * size).from_address(_address(tensor)) if size else b"")
    while left:
        left = left[_write(descriptor, left) :]
    return size + _write(descriptor, bytes(-size % ALIGNMENT))


def taken(note: dict[str, Any]) -> Any:
    """The output that was handed over; its file is gone then.  Raises OSError, or RuntimeError for a torn file."""
    try:
        size = os.stat(note["file"]).st_size
        whole = torch.from_file(note["file"], shared=False, size=size, dtype=torch.uint8) if size else torch.empty(0)
    finally:
        os.unlink(note["file"])
    tensors = tuple(_tensor(whole, one) for one in note["tensors"])
    return tensors if note["tuple"] else tensors[0]


def _tensor(whole: torch.Tensor, note: dict[str, Any]) -> torch.Tensor:
    kind = getattr(torch, note["type"].removeprefix("torch."))
    if not note["bytes"]:
        return torch.empty(note["shape"], dtype=kind)
    return whole[note["offset"] : note["offset"] + note["bytes"]].view(kind).reshape(note["shape"])
