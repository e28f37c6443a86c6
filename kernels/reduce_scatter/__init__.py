"""Reduce-scatter (sum): rank r gets part r of the element-wise sum of all ranks' vectors; fp16, bf16 and fp32.

Sizes are those of nccl-tests: S is the vector that a rank gives, from 64 KB to 256 MB (2^10, 2^20 bytes), for 2, 4
and 8 ranks; a rank gets S / world.  Backend `triton` adds in fp32 in the order of the ranks and rounds once: every run
gives the same bits.

**The library at its best.**  The baselines are those of the all-gather; the best of them counts.

**When a call is done.**  As with NCCL and RCCL: when a call has completed on a rank's stream, its output is complete
and its input may be overwritten; no other barrier is needed between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.collectives import vendor
from kernels._shared.collectives.cases import DTYPES, accept, cases, collective_launcher, heap_of, total_bytes
from kernels._shared.collectives.cases import vector as _vector
from kernels._shared.tuning import compiled_ahead
from kernels.reduce_scatter import config as knobs
from kernels.reduce_scatter import vendors
from kernels.spec import Case, Cost, Kernel, Small, Tolerance

# The tolerances of kernels/all_reduce, for the same reason: libraries round the running sum at every hop.
reduce_scatter = Kernel(
    "reduce_scatter",
    cases=cases(),
    tolerance={
        "fp16": Tolerance(norm=1.2e-3, peak=2.5e-2),
        "bf16": Tolerance(norm=1e-2, peak=0.2),
        "fp32": Tolerance(norm=2e-7, peak=4e-6),
    },
)


@reduce_scatter.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """x [S / itemsize] of this rank, and the seed, from which the reference makes those of all ranks again."""
    accept(case, DTYPES)
    return {"x": _vector(case, seed, case.place.rank), "seed": torch.tensor(seed)}


@reduce_scatter.cost
def cost(case: Case) -> Cost:
    """S bytes given per rank, by the nccl-tests convention: payload S, bus (world - 1) / world * S.

    HBM: a rank's memory is read once and takes S / world.
    """
    total = total_bytes(case)
    return Cost(
        hbm_bytes=total + total // case.world, link_bytes=total * (case.world - 1) // case.world, payload_bytes=total
    )


@reduce_scatter.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """fp32 sum of this rank's part in the order of the ranks, whose vectors are made from the seed in turn."""
    part = [
        _vector(case, int(inputs["seed"]), rank).view(case.world, -1)[case.place.rank].float()
        for rank in range(case.world)
    ]
    total = part[0]
    for other in part[1:]:
        total += other
    return total


reduce_scatter.baseline("rccl")(vendor.channels_knob(vendors.rccl, vendors.over))
reduce_scatter.baseline("rccl_most_channels")(vendors.rccl_most_channels)
reduce_scatter.baseline("rccl_registered")(vendors.rccl_registered)
reduce_scatter.backend("torch")(vendors.copies)


@reduce_scatter.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    algorithm: str = "pull",
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 1,
    ahead: int = 2,
    chunk: int = 1,
    load: str = "",
    store: str = "",
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """One kernel over the symmetric heap (kernels/reduce_scatter/device.py); knobs: config.py beside it."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return collective_launcher(case, _device).build(case, heap_of(case), inputs["x"], chosen)


def _device() -> Any:
    from kernels.reduce_scatter import device

    return device


compiled_ahead(reduce_scatter, "triton", _device)


@reduce_scatter.small()
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Every algorithm, of a vector of 4 KB for each rank."""
    if case.dtype != "fp16":  # what dtypes share is executed in one of them
        return
    few, chunks = {"programs": 2, "num_warps": 2, "unroll": 1}, {"ahead": 1, "chunk": 1}
    for algorithm, more in {"pull": {}, "push": {}, "push_chunks": chunks}.items():
        yield Small({"KB": 4 * case.world}, {**few, "algorithm": algorithm, **more})
