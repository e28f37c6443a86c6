"""All-to-all: part q of rank r's vector becomes part r of rank q's output; fp16, bf16 and fp32.

Sizes are those of nccl-tests: S is the vector that a rank gives and gets, from 64 KB to 256 MB (2^10, 2^20 bytes), for
2, 4 and 8 ranks.

**The library at its best.**  The baselines are those of the all-gather; the best of them counts.

**When a call is done, and when the output may be used again.**  As with NCCL and RCCL: when a call of `triton` has
completed on a rank's stream, that rank's output is complete and its input may be overwritten; later work of the stream
may read the output until its next call, and no other barrier is needed between calls.  device.py of the all-gather
shows why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.collectives import vendor
from kernels._shared.collectives.cases import DTYPES, accept, cases, collective_launcher, heap_of, total_bytes
from kernels._shared.collectives.cases import vector as _vector
from kernels._shared.tuning import compiled_ahead
from kernels.all_to_all import config as knobs
from kernels.all_to_all import vendors
from kernels.spec import Case, Cost, Kernel, Small, Tolerance

all_to_all = Kernel("all_to_all", cases=cases(), tolerance=Tolerance())


@all_to_all.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """x [S / itemsize] of this rank, and the seed, from which the reference makes those of all ranks again."""
    accept(case, DTYPES)
    return {"x": _vector(case, seed, case.place.rank), "seed": torch.tensor(seed)}


@all_to_all.cost
def cost(case: Case) -> Cost:
    """S bytes per rank, by the nccl-tests convention: payload S, bus (world - 1) / world * S.

    HBM: a rank reads S once and its memory takes S, its own part and those of the peers.
    """
    total = total_bytes(case)
    return Cost(hbm_bytes=2 * total, link_bytes=total * (case.world - 1) // case.world, payload_bytes=total)


@all_to_all.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """This rank's part of every rank's vector, made from the seed in turn."""
    return torch.cat(
        [_vector(case, int(inputs["seed"]), rank).view(case.world, -1)[case.place.rank] for rank in range(case.world)]
    )


all_to_all.baseline("rccl")(vendor.channels_knob(vendors.rccl, vendors.over))
all_to_all.baseline("rccl_most_channels")(vendors.rccl_most_channels)
all_to_all.baseline("rccl_registered")(vendors.rccl_registered)
all_to_all.backend("torch")(vendors.copies)


@all_to_all.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 1,
    groups: int = 1,
    staged: int = 0,
    ahead: bool = True,
    load: str = "",
    store: str = "",
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """Push over the symmetric heap (kernels/all_to_all/device.py); knobs: kernels/all_to_all/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return collective_launcher(case, _device).build(case, heap_of(case), inputs["x"], chosen)


def _device() -> Any:
    from kernels.all_to_all import device

    return device


compiled_ahead(all_to_all, "triton", _device)


@all_to_all.small()
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Staged and direct, of a vector of 4 KB for each rank."""
    if case.dtype != "fp16":  # what dtypes share is executed in one of them
        return
    ranks = case.world
    yield Small({"KB": 4 * ranks}, {"programs": 2, "num_warps": 2, "groups": 2})
    yield Small({"KB": 4 * ranks}, {"staged": 0, "programs": min(2 * ranks, 8), "num_warps": 2, "groups": ranks})
