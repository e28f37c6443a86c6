"""All-gather: every rank's shard, concatenated in rank order, on every rank; fp16, bf16 and fp32.

Sizes are those of nccl-tests: the total output S in MB = 2^20 bytes, from 2 MB to 512 MB, for 2, 4 and 8 ranks.

**When a call is done, and when the output may be used again.**  As with NCCL and RCCL, when a call of backend
`triton` has completed on a rank's stream, that rank's output is complete.  Unlike them, the peers write into the
output themselves, and they do so as soon as they start their next call: whoever reads or overwrites the output of
one call must put a barrier of all ranks (`heap.barrier()`) between that and the next call of any rank.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels.all_gather import config as knobs
from kernels.numerics import DTYPES, normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

SIZES_MB = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Total output in MB of 2^20 bytes."""

CPU_LIMIT_MB = 32
"""Largest size timed on a CPU: four ranks write 128 MB a call through one memory, some 50 ms on two cores."""


def _tier(world: int, dtype: str, size: int) -> str:
    return "pr" if dtype == "fp16" and world in (2, 4) and size in (2, 8, 32, 128, 512) else "nightly"


all_gather = Kernel("all_gather", tolerance=Tolerance(), cases=[
    Case(f"w{world}_{dtype}_{size}MB", tier=_tier(world, dtype, size), world=world, dtype=dtype, MB=size)
    for world in (2, 4, 8) for dtype in ("fp16", "bf16", "fp32") for size in SIZES_MB])


def _shard_elements(case: Case) -> int:
    return int(case.MB * (1 << 20) // (case.world * case.itemsize))


def _shard(case: Case, seed: int, rank: int) -> torch.Tensor:
    """What a rank contributes: normal values of its own seed, so that a swapped rank or tile shows."""
    return normal((_shard_elements(case),), case.dtype, seed_for(seed, case.name, rank), case.place.device)


@all_gather.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """shard [S / (world * itemsize)] of this rank, and the seed, from which the reference makes all shards again."""
    return {"shard": _shard(case, seed, case.place.rank), "seed": torch.tensor(seed)}


@all_gather.cost
def cost(case: Case) -> Cost:
    """S bytes of output per rank, by the nccl-tests convention: payload S, bus (world - 1) / world * S.

    HBM: a rank reads its shard once and its memory takes S bytes, its own shard and those of the peers.
    """
    total = case.MB * (1 << 20)
    return Cost(hbm_bytes=total + total // case.world, link_bytes=total * (case.world - 1) // case.world,
                payload_bytes=total)


@all_gather.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The shards of all ranks, made from the seed on this device, one after the other."""
    return torch.cat([_shard(case, int(inputs["seed"]), rank) for rank in range(case.world)])


@all_gather.baseline("rccl")
def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.distributed.all_gather_into_tensor on ordinary tensors: RCCL, NCCL, gloo on a CPU."""
    _fits_cpu(case)
    if not dist.is_initialized():
        raise Unsupported("the process group is not initialised; torch.distributed.init_process_group is needed "
                          f"with {case.world} ranks")
    shard, out = inputs["shard"], _output(case, torch.empty)

    def call() -> torch.Tensor:
        dist.all_gather_into_tensor(out, shard)
        return out
    return call


@all_gather.backend("torch")
def copies(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For CPUs: every rank copies its shard into the output of all ranks, then they meet."""
    if case.place.device != "cpu":
        raise Unsupported("plain copies and a barrier are timed on a CPU only; on a GPU use triton or the baseline")
    _fits_cpu(case)
    heap, shard = _heap(case), inputs["shard"]
    out, rank = _output(case, heap.alloc), case.place.rank
    targets = [heap.peer((rank + i) % case.world, out).view(case.world, -1)[rank] for i in range(case.world)]

    def call() -> torch.Tensor:
        for target in targets:
            target.copy_(shard)
        heap.barrier()
        return out
    return call


@all_gather.backend("triton", config=knobs.config)
def triton(case: Case, inputs: dict[str, torch.Tensor], *, programs: int = 64, num_warps: int = 16, unroll: int = 4,
           fanout: int = 0, load: str = "", store: str = "", wait: bool = True) -> Callable[[], torch.Tensor]:
    """Persistent push over the symmetric heap (kernels/all_gather/device.py); knobs: kernels/all_gather/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    try:
        from kernels.all_gather import launch
    except ImportError as error:
        raise Unsupported(f"Triton cannot be imported here ({error}); install the triton package") from error
    if case.place.device == "cpu" and not launch.INTERPRETED:
        raise Unsupported("Triton compiles for GPUs only, and this machine has none; "
                          "GPUs are needed (Triton's interpreter is for tests and is never timed)")
    heap = _heap(case)
    return launch.build(case, heap, inputs["shard"], _output(case, heap.alloc), chosen)


@all_gather.isa("triton")
def compilations(case: Case, arch: str) -> list[Compilation]:
    """The one kernel that the case launches, with the knobs of config()."""
    from kernels.all_gather import launch
    return [launch.compilation(case, arch, {**triton.__kwdefaults__, **knobs.config(case, arch)})]


def _heap(case: Case) -> Any:
    heap = case.place.heap
    if heap is None or heap.world != case.world:
        raise Unsupported(f"{case.world} ranks with a symmetric heap are needed (kernels.symmetric_heap.create); "
                          f"there is {'none' if heap is None else f'one of {heap.world}'}")
    return heap


def _output(case: Case, allocate: Callable[..., torch.Tensor]) -> torch.Tensor:
    size, dtype = case.world * _shard_elements(case), DTYPES[case.dtype]
    if allocate is torch.empty:
        return torch.empty(size, dtype=dtype, device=case.place.device)
    return allocate((size,), dtype)


def _fits_cpu(case: Case) -> None:
    if case.place.device == "cpu" and case.MB > CPU_LIMIT_MB:
        raise Unsupported(f"{case.MB} MB is too much for ranks on a CPU; sizes up to {CPU_LIMIT_MB} MB are timed "
                          "there, GPUs are needed for this one")
