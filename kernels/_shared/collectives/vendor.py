"""RCCL and NCCL beyond what torch.distributed offers: called directly, and with another number of channels."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from kernels._shared.tuning import with_knobs
from kernels.spec import Case, Unsupported

_TYPES = {torch.float16: 6, torch.float32: 7, torch.bfloat16: 9}
"""ncclDataType_t (nccl.h; rccl.h has the same numbers)."""

_SUM = 0
"""ncclRedOp_t."""

MOST_CHANNELS = {"cuda": 64, "hip": 112}
"""Channels, each of which takes an SM or CU: of baselines `rccl_most_channels` and `rccl_registered`.

NCCL cannot have more (MAXCHANNELS, NVIDIA/nccl src/include/device.h, 5067397c, 2026-06).  2 and 4 H200 move many bytes
fastest with them (against the default, 16, 24 and 32; NCCL 2.28.9, 2026-11): all-gather of 512 MB over 2 in 813 us,
with 32 channels in 964, by default in 1048; on registered buffers in 747, with the default's channels in 1157.
RCCL: AMD's advice for fewer than 8 GPUs (rocm.blogs.amd.com, mi300x-rccl-xgmi, 2025-03); it cannot have more than 128
(ROCm/rccl src/include/device.h, 0cbce2a, 2024-10).  Both make at least config.minCTAs channels (src/graph/connect.cc of
either).
"""


MOST_POSSIBLE = {"cuda": 64, "hip": 128}
"""What a communicator can have at all; sources above."""


def most_channels() -> Any:
    """A process group of all ranks whose communicator has MOST_CHANNELS; a collective call."""
    return group_of(MOST_CHANNELS[_platform()])


@functools.cache
def group_of(channels: int) -> Any:
    """A process group of all ranks, made once, whose communicator has that many channels; a collective call.

    It stands beside the default group, so that several are timed in the same trial and process; NCCL_MIN_NCHANNELS
    would hold for a whole process.  For little data the library may use fewer of its channels.  All collectives
    follow: an all-gather of 512 MB on 2 H200 takes 4470 us with 4 channels, 1235 with 16, 980 with 32, 817 with 64, by
    default 1041 (2026-11-22).
    Unsupported names what is missing, ValueError a number that no communicator can have.
    """
    if not torch.cuda.is_available():
        raise Unsupported("channels belong to RCCL and NCCL, which run on GPUs only")
    if not dist.is_initialized():
        raise Unsupported("channels belong to a communicator of several ranks; there is no process group here")
    most = MOST_POSSIBLE[_platform()]
    if channels > most:
        raise Unsupported(f"{channels} channels: a communicator of this library has at most {most}")
    try:
        options = dist.ProcessGroupNCCL.Options()
        options.config.min_ctas = options.config.max_ctas = channels
    except AttributeError as error:
        raise Unsupported(
            f"this torch cannot set the channels of a communicator ({error}); "
            "ProcessGroupNCCL.Options().config.min_ctas is needed (NCCL 2.17)"
        ) from error
    group = dist.new_group(backend="nccl", pg_options=options)
    dist.all_reduce(torch.zeros(1, device="cuda"), group=group)  # connect now, not in the first sample
    return group


def _platform() -> str:
    return "hip" if torch.version.hip else "cuda"


Baseline = Callable[[Case, dict[str, torch.Tensor]], Callable[[], torch.Tensor]]


def channels_knob(
    plain: Baseline, over: Callable[[Case, dict[str, torch.Tensor], Any], Callable[[], torch.Tensor]]
) -> Callable[..., Callable[[], torch.Tensor]]:
    """The baseline `plain` with the knob `channels`: as many CUs or SMs as the library takes.

    0, the default, is `plain` as it is; a sweep asks for others.
    over: the same call with the communicator of a group.
    """

    def build(case: Case, inputs: dict[str, torch.Tensor], *, channels: int = 0) -> Callable[[], torch.Tensor]:
        if channels < 0:
            raise ValueError(f"channels {channels}: give 0, the library's choice, or a positive number")
        return over(case, inputs, group_of(channels)) if channels else plain(case, inputs)

    return with_knobs(plain, build)


def all_reduce(given: torch.Tensor, out: torch.Tensor, group: Any = None) -> Callable[[], torch.Tensor]:
    """A call of ncclAllReduce from given to out on the current stream, with the communicator of a group.

    group: the default group if it is None.  Unsupported names what is missing: a GPU, the library, or the
    communicator's address.
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
    backend = (group or dist.distributed_c10d._get_default_group())._get_backend(given.device)
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
