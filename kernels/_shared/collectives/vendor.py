"""RCCL and NCCL called directly, for what torch.distributed offers only in place."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

from kernels.spec import Unsupported

_TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
"""ncclDataType_t (nccl.h; rccl.h has the same numbers)."""

_SUM = 0
"""ncclRedOp_t."""


def all_reduce(given: torch.Tensor, out: torch.Tensor) -> Callable[[], torch.Tensor]:
    """A call of ncclAllReduce from given to out on the current stream, with the default group's communicator.

    Unsupported names what is missing: a GPU, the library, or the communicator's address.
    """
    if given.device.type != "cuda":
        raise Unsupported("RCCL and NCCL run on GPUs only")
    function = ctypes.CDLL(_library()).ncclAllReduce
    function.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
    ]
    backend = dist.distributed_c10d._get_default_group()._get_backend(given.device)
    if not hasattr(backend, "_comm_ptr"):
        raise Unsupported(
            "this torch does not expose the communicator's address (ProcessGroupNCCL._comm_ptr); "
            "baseline rccl is the same collective in place, with a copy before it"
        )
    fixed = (given.data_ptr(), out.data_ptr(), given.numel(), _TYPES[given.dtype], _SUM, backend._comm_ptr())

    def call() -> torch.Tensor:
        failed = function(*fixed, torch.cuda.current_stream().cuda_stream)
        if failed:
            raise RuntimeError(f"ncclAllReduce returned ncclResult_t {failed}")
        return out

    return call


def _library() -> str:
    """The file of the library that torch has loaded into this process."""
    maps = Path("/proc/self/maps")
    lines = maps.read_text().splitlines() if maps.exists() else []
    for path in (line.split()[-1] for line in lines):
        if Path(path).name.startswith(("libnccl.so", "librccl.so")):
            return path
    raise Unsupported("neither libnccl.so nor librccl.so is loaded in this process; torch may have it built in")
