"""All-reduce (sum): every rank gets the element-wise sum of all ranks' vectors; fp16, bf16 and fp32.

Sizes are those of nccl-tests: the vector of a rank, S, from 64 KB to 256 MB (2^10, 2^20 bytes), for 2, 4 and 8 ranks.
Backend `triton` adds in fp32 in the order of the ranks and rounds once: all ranks get the same bits, in every run.

**The library at its best.**  The baselines are those of the all-gather; the best of them counts.

**When a call is done.**  As with NCCL and RCCL: when a call has completed on a rank's stream, its output is complete
and its input may be overwritten.  None of our algorithms lets a peer write into an output before this rank has
started its own next call, so no other barrier is needed between calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels._shared.collectives import vendor
from kernels._shared.collectives.cases import DTYPES, accept, cases, collective_launcher, heap_of, total_bytes
from kernels._shared.collectives.cases import vector as _vector
from kernels._shared.tuning import compiled_ahead
from kernels.all_reduce import config as knobs
from kernels.all_reduce import vendors
from kernels.spec import Case, Cost, Kernel, Small, Tolerance

# Libraries round the running sum at every hop: up to 7 times for 8 ranks, each by 0.4 * 2^-p of it in the mean square
# (fp16 p = 11, bf16 8, fp32 24), together 2.1 of the last one.  The largest of 10^8 values is 6 rms.  Hence norm:
# 2.1 * 0.4 * 2^-p, peak: 3 * 6 * 2^-p, each about tripled.
all_reduce = Kernel(
    "all_reduce",
    cases=cases(),
    tolerance={
        "fp16": Tolerance(norm=1.2e-3, peak=2.5e-2),
        "bf16": Tolerance(norm=1e-2, peak=0.2),
        "fp32": Tolerance(norm=2e-7, peak=4e-6),
    },
)


@all_reduce.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """x [S / itemsize] of this rank, and the seed, from which the reference makes those of all ranks again."""
    accept(case, DTYPES)
    return {"x": _vector(case, seed, case.place.rank), "seed": torch.tensor(seed)}


@all_reduce.cost
def cost(case: Case) -> Cost:
    """S bytes per rank, by the nccl-tests convention: payload S, bus 2 (world - 1) / world * S.

    HBM: a rank's memory is read once and written once.
    """
    total = total_bytes(case)
    return Cost(hbm_bytes=2 * total, link_bytes=2 * total * (case.world - 1) // case.world, payload_bytes=total)


@all_reduce.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """fp32 sum in the order of the ranks, whose vectors are made from the seed, one after the other."""
    total = _vector(case, int(inputs["seed"]), 0).float()
    for rank in range(1, case.world):
        total += _vector(case, int(inputs["seed"]), rank)
    return total


all_reduce.baseline("rccl")(vendors.rccl)
all_reduce.baseline("rccl_most_channels")(vendors.rccl_most_channels)
all_reduce.baseline("rccl_registered")(vendors.rccl_registered)
all_reduce.baseline("rccl_direct")(vendor.channels_knob(vendors.rccl_direct, vendors.over))
all_reduce.backend("torch")(vendors.copies)


@all_reduce.backend("triton", config=knobs.config, candidates=knobs.candidates, tuned=knobs.TABLE)
def triton(
    case: Case,
    inputs: dict[str, torch.Tensor],
    *,
    algorithm: str = "two_shot",
    programs: int = 64,
    num_warps: int = 16,
    unroll: int = 1,
    ahead: int = 2,
    chunk: int = 1,
    load: str = "",
    store: str = "",
    wait: bool = True,
) -> Callable[[], torch.Tensor]:
    """One kernel over the symmetric heap (kernels/all_reduce/device.py); knobs: kernels/all_reduce/config.py."""
    chosen = {key: value for key, value in locals().items() if key not in ("case", "inputs")}
    return collective_launcher(case, _device).build(case, heap_of(case), inputs["x"], chosen)


def _device() -> Any:
    from kernels.all_reduce import device

    return device


compiled_ahead(all_reduce, "triton", _device)


@all_reduce.small()
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Every algorithm, of a vector of 4 KB for each rank."""
    if case.dtype != "fp16":  # what dtypes share is executed in one of them
        return
    few, chunks = {"programs": 2, "num_warps": 2, "unroll": 1}, {"ahead": 1, "chunk": 1}
    for algorithm, more in {"two_shot": {}, "two_shot_push": chunks, "one_shot_push": {}, "one_shot_pull": {}}.items():
        yield Small({"KB": 4 * case.world}, {**few, "algorithm": algorithm, **more})
