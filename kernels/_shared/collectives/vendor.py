"""RCCL and NCCL beyond what torch.distributed offers: called directly, with another number of
channels, and on buffers that all ranks have registered."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import os
import weakref
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


# Buffers that RCCL or NCCL knows on all ranks: allocated by the library, registered as symmetric windows.
#
# torch does it for a memory pool: `register_mem_pool(pool, symm=True)` calls ncclCommWindowRegister for what the pool
# holds (NCCL 2.27, torch 2.9).  Whether the library then takes its symmetric kernels it does not say, other than with
# NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING.


NEEDED = (2, 27)
"""The first NCCL with symmetric windows."""


@dataclasses.dataclass(eq=False)
class Registration:
    """A pool that a library knows; used: as long as this rank holds the call that it was made for."""

    library: Any
    pool: Any
    used: bool = True

    def let_go(self) -> None:
        """Called when this rank's garbage collector has taken the call."""
        self.used = False


_REGISTERED: list[Registration] = []
"""In the order of registering, which is the same on all ranks."""


def registered_call(
    given: torch.Tensor, elements: int, group: Any, make: Callable[[torch.Tensor, torch.Tensor], Callable[[], Any]]
) -> Callable[[], torch.Tensor]:
    """The call make(x, out) of a group's collective: x a copy of given, out of that many elements, both registered.

    A collective.  Unsupported names what is missing.  The registration ends in the first build after every rank has let
    go of the call.
    """
    library = _registering(given.device, group)
    _release(given.device)
    pool = torch.cuda.MemPool(library.mem_allocator)
    with torch.cuda.use_mem_pool(pool, given.device):
        x, out = torch.empty_like(given), given.new_empty(elements)
    x.copy_(given)
    torch.cuda.synchronize(given.device)
    _register(library, pool)
    run = make(x, out)

    def call() -> torch.Tensor:
        run()
        return out

    registration = Registration(library, pool)
    _REGISTERED.append(registration)
    weakref.finalize(call, registration.let_go).atexit = False
    return call


def _registering(device: torch.device, group: Any) -> Any:
    """The group's part for the GPU; Unsupported unless it can register, without NVLink multicast."""
    if device.type != "cuda":
        raise Unsupported("buffers are registered with RCCL or NCCL, which run on GPUs only")
    if not torch.version.hip and os.environ.get("NCCL_NVLS_ENABLE") != "0":
        raise Unsupported(
            "NCCL may use NVLink multicast for registered buffers, and a program that dies while it "
            "holds a multicast object can take the GPUs out of service: start with NCCL_NVLS_ENABLE=0"
        )
    if torch.cuda.nccl.version() < NEEDED:
        raise Unsupported(
            f"the library is version {'.'.join(map(str, torch.cuda.nccl.version()))}; symmetric windows "
            f"need {'.'.join(map(str, NEEDED))}"
        )
    library = group._get_backend(device)
    for name in ("mem_allocator", "register_mem_pool"):
        if not hasattr(library, name):
            raise Unsupported(
                f"this torch cannot register buffers: {type(library).__name__} has no {name}; "
                "torch 2.9 or later, built with NCCL, is needed"
            )
    return library


def _register(library: Any, pool: Any) -> None:
    try:
        library.register_mem_pool(pool, symm=True)
    except TypeError as error:
        raise Unsupported(
            "this torch registers buffers, but not symmetric ones (register_mem_pool has no parameter "
            "symm); torch 2.9 or later is needed"
        ) from error
    except RuntimeError as error:
        raise Unsupported(f"the library refuses to register symmetric buffers: {str(error).splitlines()[0]}") from error


def _release(device: torch.device) -> None:
    """End the registrations that no rank uses any more, in the same order on all ranks; a collective.

    A rank's garbage collector lets go of a call when it likes.  Windows are a matter of all ranks, so to end one there
    would meet the other ranks at something else.
    """
    if not _REGISTERED:
        return
    unused = torch.tensor([not one.used for one in _REGISTERED], dtype=torch.int32, device=device)
    dist.all_reduce(unused, op=dist.ReduceOp.MIN)
    torch.cuda.synchronize(device)
    for one in [one for one, everywhere in zip(_REGISTERED, unused.tolist(), strict=True) if everywhere]:
        one.library.deregister_mem_pool(one.pool)
        _REGISTERED.remove(one)
