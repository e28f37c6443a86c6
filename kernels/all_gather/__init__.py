"""All-gather: every rank's shard, concatenated in rank order, on every rank; fp16, bf16 and fp32.

Sizes are those of nccl-tests: the total output S in MB = 2^20 bytes, from 2 MB to 512 MB, for 2, 4 and 8 ranks; and
matrices M x N as the input of a rank, up to 16384 x 16384 in fp16, which is 4 GB of output for 8 ranks.

Three backends push over the symmetric heap: `triton`, `partitioned` (every group of programs serves one destination)
and `gluon` (tiles with a layout of their own).  Their knob `programs` is the number of CUs or SMs that they take.

**A curve over CUs for RCCL and NCCL.**  Baseline `rccl` has the knob `channels`, each of which takes a CU or SM: a
communicator of its own with that many, in the same process as the others (`ridgeline study cus`).  The environment
sets them too, once per process and for every communicator:

    NCCL_MIN_NCHANNELS=16 NCCL_MAX_NCHANNELS=16 ridgeline run --kernel all_gather --backend rccl

**The library at its best.**  `rccl_most_channels` has as many channels as help (vendor.MOST_CHANNELS), in the same
trial as `rccl`, by a process group of its own; `rccl_registered` has the same channels, and buffers that are registered
as symmetric windows.  The best of the three counts.  Registered buffers want NCCL_NVLS_ENABLE=0 in the environment on
NVIDIA, because multicast stays off (kernels/symmetric_heap).

**When a call is done, and when the output may be used again.**  As with NCCL and RCCL: when a call has completed on a
rank's stream, that rank's output is complete and its shard may be overwritten; later work of the stream may read the
output until its next call, and no other barrier is needed between calls.  So it is in captured graphs too.
kernels/all_gather/device.py shows why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.collectives import vendor
from kernels._shared.collectives.cases import heap_of
from kernels._shared.libraries import launch_module, launcher
from kernels._shared.tuning import all_knobs, compiled_ahead
from kernels.all_gather import config as knobs
from kernels.all_gather import vendors
from kernels.all_gather.cases import cases, shard_elements
from kernels.numerics import normal, seed_for
from kernels.spec import Case, Compilation, Cost, Kernel, Small, Tolerance

GLUON = "Gluon (triton.experimental.gluon)"
"""What backend `gluon` needs."""

all_gather = Kernel("all_gather", tolerance=Tolerance(), cases=cases())


def _shard(case: Case, seed: int, rank: int) -> torch.Tensor:
    """What a rank contributes: normal values of its own seed, so that a swapped rank or tile shows."""
    return normal((shard_elements(case),), case.dtype, seed_for(seed, case.name, rank), case.place.device)


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


all_gather.baseline("rccl")(vendor.channels_knob(vendors.rccl, vendors.over))
all_gather.baseline("rccl_most_channels")(vendors.rccl_most_channels)
all_gather.baseline("rccl_registered")(vendors.rccl_registered)
all_gather.backend("torch")(vendors.copies)


@all_gather.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case, inputs: dict[str, torch.Tensor], *,
    programs: int = 64, num_warps: int = 16, unroll: int = 4, fanout: int = 0,
    staged: int = 0, ahead: bool = True, load: str = "", store: str = "", wait: bool = True,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """Persistent push over the symmetric heap (kernels/all_gather/device.py); knobs: kernels/all_gather/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _push(launcher(case, _device), case, inputs, chosen)


@all_gather.backend(
    "partitioned",
    config=knobs.partitioned_config,
    candidates=knobs.partitioned_candidates,
    tuned=knobs.PARTITIONED_TABLE,
)
def partitioned(
    case: Case, inputs: dict[str, torch.Tensor], *,
    programs: int = 64, num_warps: int = 16, unroll: int = 4, order: str = "interleaved",
    staged: int = 0, ahead: bool = True, load: str = "", store: str = "", wait: bool = True,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """The same push, in which every group of programs serves one destination and reads the whole shard for it."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    launch = launcher(case, _device)
    return _push(launch, case, inputs, launch.partitioned(case.world, chosen))


@all_gather.backend("gluon", config=knobs.gluon_config, candidates=knobs.gluon_candidates, tuned=knobs.GLUON_TABLE)
def gluon(
    case: Case, inputs: dict[str, torch.Tensor], *,
    programs: int = 64, num_warps: int = 4, rows: int = 8, columns: int = 256, width: int = 0, vector: int = 16,
    fanout: int = 0, load: str = "", store: str = "", wait: bool = True,
) -> Callable[[], torch.Tensor]:  # fmt: skip
    """Persistent push of tiles in Gluon (kernels/all_gather/gluon_device.py); knobs: kernels/all_gather/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return _push(launcher(case, _gluon_device, GLUON), case, inputs, chosen)


def _push(
    launch: Any, case: Case, inputs: dict[str, torch.Tensor], chosen: dict[str, Any]
) -> Callable[[], torch.Tensor]:
    """The call of a launching module, into an output on the symmetric heap."""
    heap, shard = heap_of(case), inputs["shard"]
    return launch.build(case, heap, shard, heap.alloc((case.world * shard.numel(),), shard.dtype), chosen)


def _device() -> Any:
    from kernels.all_gather import device

    return device


def _gluon_device() -> Any:
    from kernels.all_gather import gluon_device

    return gluon_device


compiled_ahead(all_gather, "triton", _device)


@all_gather.isa("partitioned")
def partitioned_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """As for triton."""
    launch, chosen = launch_module(_device), all_knobs(all_gather.backends["partitioned"], case, arch, overrides)
    return [launch.compilation(case, arch, launch.partitioned(case.world, chosen))]


@all_gather.isa("gluon")
def gluon_compilations(case: Case, arch: str, **overrides: Any) -> list[Compilation]:
    """As for triton."""
    chosen = all_knobs(all_gather.backends["gluon"], case, arch, overrides)
    return [launch_module(_gluon_device, GLUON).compilation(case, arch, chosen)]


@all_gather.small()
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Every backend, staged and direct, in as few blocks as let every path be taken."""
    if case.dtype != "fp16" or "M" in dict(case.dims):  # what sizes and dtypes share is executed in one of them
        return
    ranks, staged = case.world, {"programs": 2, "num_warps": 2}
    direct = {"staged": 0, "programs": min(2 * ranks, 8), "num_warps": 2, "fanout": 1}
    variants = {"triton": [staged, direct], "partitioned": [{**staged, "programs": ranks}], "gluon": [staged]}
    for chosen in variants.get(backend, ()):
        blocks = 5 if chosen["programs"] == ranks == 8 else 12
        yield Small({"MB": blocks * ranks / 1024}, chosen)
