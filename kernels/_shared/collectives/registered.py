"""Buffers that RCCL or NCCL knows on all ranks: allocated by the library, registered as symmetric windows.

torch does it for a memory pool: `register_mem_pool(pool, symm=True)` calls ncclCommWindowRegister for what the pool
holds (NCCL 2.27, torch 2.9).  Whether the library then takes its symmetric kernels it does not say, other than with
NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=TUNING.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from kernels.spec import Unsupported

NEEDED = (2, 27)
"""The first NCCL with symmetric windows."""


_POOLS: list[Any] = []
"""Registered until the process ends: NCCL 2.28.9 leaves wrong numbers in buffers that lie where others were registered
before (all-to-all of 16 MB after one of 4 MB, in every trial; 2 H200, 2026-11-29)."""


def build(
    given: torch.Tensor, elements: int, group: Any, make: Callable[[torch.Tensor, torch.Tensor], Callable[[], Any]]
) -> Callable[[], torch.Tensor]:
    """The call make(x, out) of a group's collective: x a copy of given, out of that many elements, both registered.

    A collective.  Unsupported names what is missing.
    """
    library = _library(given.device, group)
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

    _POOLS.append(pool)
    return call


def _library(device: torch.device, group: Any) -> Any:
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
