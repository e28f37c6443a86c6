"""All-gather: every rank's shard, concatenated in rank order, on every rank; fp16, bf16 and fp32.

Sizes are those of nccl-tests: the total output S in MB = 2^20 bytes, from 2 MB to 512 MB, for 2, 4 and 8 ranks.

Three backends push over the symmetric heap: `triton`, `partitioned` (every group of programs serves one destination)
and `gluon` (tiles with a layout of their own).  Their knob `programs` is the number of CUs or SMs that they take.

**A curve over CUs for RCCL and NCCL.**  The library reads its number of channels, each of which takes a CU or SM, once
per process from the environment, so a point is a run of its own (`ridgeline run` starts fresh processes and records
the variables with the trial), here 16 CUs:

    NCCL_MIN_NCHANNELS=16 NCCL_MAX_NCHANNELS=16 ridgeline run --kernel all_gather --backend rccl

`rccl_registered` has buffers that are registered as symmetric windows.  On NVIDIA it wants NCCL_NVLS_ENABLE=0 in the
environment, because multicast stays off (kernels/symmetric_heap.py); its symmetric kernels need not obey the channels.

**When a call is done, and when the output may be used again.**  As with NCCL and RCCL, when a call of these three
backends has completed on a rank's stream, that rank's output is complete.  Unlike them, the peers write into the
output themselves, and they do so as soon as they start their next call: whoever reads or overwrites the output of
one call must put a barrier of all ranks (`heap.barrier()`) between that and the next call of any rank.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from kernels.all_gather import config as knobs
from kernels.all_gather import registered
from kernels.numerics import DTYPES, normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Tolerance, Unsupported

SIZES_MB = (2, 4, 8, 16, 32, 64, 128, 256, 512)
"""Total output in MB of 2^20 bytes."""

CPU_LIMIT_MB = 32
"""Largest size timed on a CPU: four ranks write 128 MB a call through one memory, some 50 ms on two cores."""


def _tier(world: int, dtype: str, size: int) -> str:
    return "pr" if dtype == "fp16" and world in (2, 4) and size in (2, 8, 32, 128, 512) else "nightly"


all_gather = Kernel(
    "all_gather",
    tolerance=Tolerance(),
    cases=[
        Case(f"w{world}_{dtype}_{size}MB", tier=_tier(world, dtype, size), world=world, dtype=dtype, MB=size)
        for world in (2, 4, 8)
        for dtype in ("fp16", "bf16", "fp32")
        for size in SIZES_MB
    ],
)


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
    return Cost(
        hbm_bytes=total + total // case.world, link_bytes=total * (case.world - 1) // case.world, payload_bytes=total
    )


@all_gather.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """The shards of all ranks, made from the seed on this device, one after the other."""
    return torch.cat([_shard(case, int(inputs["seed"]), rank) for rank in range(case.world)])


@all_gather.baseline("rccl")
def rccl(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """torch.distributed.all_gather_into_tensor on ordinary tensors: RCCL, NCCL, gloo on a CPU."""
    _needs_group(case)
    shard, out = inputs["shard"], _output(case, torch.empty)

    def call() -> torch.Tensor:
        dist.all_gather_into_tensor(out, shard)
        return out

    return call


@all_gather.baseline("rccl_registered")
def rccl_registered(case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """The same on buffers that the library has allocated and registered on all ranks (registered.py)."""
    _needs_group(case)
    return registered.build(inputs["shard"], case.world)


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
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 4,
    fanout: int = 0,
    load: str = "",
    store: str = "",
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """Persistent push over the symmetric heap (kernels/all_gather/device.py); knobs: kernels/all_gather/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _build("launch", case, inputs, lambda launch: chosen)


@all_gather.backend("partitioned", config=knobs.partitioned_config)
def partitioned(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 4,
    order: str = "interleaved",
    load: str = "",
    store: str = "",
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """The same push, in which every group of programs serves one destination and reads the whole shard for it."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _build("launch", case, inputs, lambda launch: launch.partitioned(case.world, chosen))


@all_gather.backend("gluon", config=knobs.gluon_config)
def gluon(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    programs: int = 64,
    num_warps: int = 4,
    rows: int = 8,
    columns: int = 256,
    width: int = 0,
    vector: int = 16,
    fanout: int = 0,
    load: str = "",
    store: str = "",
    persistent: bool = True,
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """Persistent push of tiles in Gluon (kernels/all_gather/gluon_device.py); knobs: kernels/all_gather/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    _only_persistent(persistent)
    return _build("gluon_launch", case, inputs, lambda launch: chosen)


def _only_persistent(persistent: bool) -> None:
    if not persistent:
        raise Unsupported(
            "gluon has no non-persistent variant of the all-gather: programs loop over the tiles; "
            "leave persistent at True, or set programs to the number of tiles"
        )


def _build(
    module: str, case: Case, inputs: dict[str, torch.Tensor], choose: Callable[[Any], dict[str, Any]]
) -> Callable[[], torch.Tensor]:
    """The call of a launching module of this package with the knobs that `choose` makes of it."""
    launch = _launcher(module)
    if case.place.device == "cpu" and not _launcher("launch").INTERPRETED:
        raise Unsupported(
            "Triton compiles for GPUs only, and this machine has none; "
            "GPUs are needed (Triton's interpreter is for tests and is never timed)"
        )
    heap, chosen = _heap(case), choose(launch)
    return launch.build(case, heap, inputs["shard"], _output(case, heap.alloc), chosen)


def _launcher(module: str) -> Any:
    """A module that launches; Unsupported where Triton, or its Gluon, cannot be imported."""
    what = "Gluon (triton.experimental.gluon)" if module == "gluon_launch" else "Triton"
    try:
        return importlib.import_module(f"kernels.all_gather.{module}")
    except (ImportError, AttributeError) as error:
        raise Unsupported(f"{what} cannot be imported here ({error}); install triton 3.6 or later") from error


@all_gather.isa("triton")
def compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """The one kernel that the case launches, with the knobs of config() and these over them."""
    return [_launcher("launch").compilation(case, arch, _knobs("triton", case, arch, overrides))]


@all_gather.isa("partitioned")
def partitioned_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """As for triton."""
    launch = _launcher("launch")
    chosen = launch.partitioned(case.world, _knobs("partitioned", case, arch, overrides))
    return [launch.compilation(case, arch, chosen)]


@all_gather.isa("gluon")
def gluon_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """As for triton."""
    chosen = _knobs("gluon", case, arch, overrides)
    _only_persistent(chosen["persistent"])
    return [_launcher("gluon_launch").compilation(case, arch, chosen)]


def _knobs(backend: str, case: Case, arch: str, overrides: dict[str, Any]) -> dict[str, Any]:
    """All knobs of a launch: the backend's defaults, under config(), under the overrides."""
    declared = all_gather.backends[backend]
    return {**declared.build.__kwdefaults__, **declared.knobs(case, arch, overrides)}


def _heap(case: Case) -> Any:
    heap = case.place.heap
    if heap is None or heap.world != case.world:
        raise Unsupported(
            f"{case.world} ranks with a symmetric heap are needed (kernels.symmetric_heap.create); "
            f"there is {'none' if heap is None else f'one of {heap.world}'}"
        )
    return heap


def _output(case: Case, allocate: Callable[..., torch.Tensor]) -> torch.Tensor:
    size, dtype = case.world * _shard_elements(case), DTYPES[case.dtype]
    if allocate is torch.empty:
        return torch.empty(size, dtype=dtype, device=case.place.device)
    return allocate((size,), dtype)


def _needs_group(case: Case) -> None:
    _fits_cpu(case)
    if not dist.is_initialized():
        raise Unsupported(
            "the process group is not initialised; torch.distributed.init_process_group is needed "
            f"with {case.world} ranks"
        )


def _fits_cpu(case: Case) -> None:
    if case.place.device == "cpu" and case.MB > CPU_LIMIT_MB:
        raise Unsupported(
            f"{case.MB} MB is too much for ranks on a CPU; sizes up to {CPU_LIMIT_MB} MB are timed "
            "there, GPUs are needed for this one"
        )
