"""The second product of a mixture-of-experts layer in MXFP4 (a4w4).

out[t] = sum over the slots s of weight[t, s] * W2[expert of (t, s)] a[t, s]

Rows of activations come sorted by expert, each expert's rows padded to blocks of BM (sorting.py); codes are e2m1, two
per byte, with one e8m0 scale per 32 along K (formats.py).  a [padded rows, K / 2], w [E, N, K / 2] -> bf16 [M, N].

triton_atomic adds bf16 rows to a zeroed output; the zeroing is timed, and the bits depend on the order of the adds.
triton_reduce stores each row by (token, slot) and sums the slots in order: the same bits at every call.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from kernels.moe_gemm2_mxfp4 import amd_vendors, config, formats, launch, nvidia_vendors, sorting, vendors
from kernels.moe_gemm2_mxfp4.config import candidates
from kernels.numerics import seed_for
from kernels.spec import Case, Cost, Kernel, Small, Tolerance, Unsupported

__all__ = ["candidates", "moe_gemm2_mxfp4"]

# Shapes: the second expert product of Kimi-K2.5 and DeepSeek-V3 at decode and prefill sizes.  Dimensions: M tokens, N
# hidden size, K intermediate size of one rank, E experts with the fused shared one, topk slots with the shared one, BM
# rows that belong to one expert (the padding of the sorted order).
#
# Sources: huggingface.co moonshotai/Kimi-K2-Instruct and deepseek-ai/DeepSeek-V3 config.json (hidden_size,
# moe_intermediate_size 2048, n_routed_experts 384 and 256, num_experts_per_tok 8).  K is 512 for Kimi under TP4 and 256
# for DeepSeek-V3 under TP8, the shapes that aiter tunes.


KIMI = {"N": 7168, "K": 512, "E": 385, "topk": 9}
DEEPSEEK = {"N": 7168, "K": 256, "E": 257, "topk": 9}

DECODE = (4, 8, 16, 32, 64, 128, 256)
PREFILL = 16384

PULL_REQUEST = frozenset(
    {"kimi_m4_bm16", "kimi_m16_bm16", "kimi_m64_bm16", "kimi_m256_bm32", "dsv3_m16_bm16", "dsv3_m64_bm32"}
)


def cases() -> list[Case]:
    """Both models over M; BM 16 and 32 at decode, 64 and 128 at prefill.  The tiny case is for machines without a GPU.

    The distribution "exact" has sums that fp32 holds exactly in any order, so that `reduce` must be right bit by bit.
    """
    result = [
        Case("tiny_bm16", tier="sweep", dtype="mxfp4", M=5, N=96, K=64, E=6, topk=3, BM=16),
        Case("kimi_m16_bm16_exact", tier="nightly", dtype="mxfp4", distribution="exact", M=16, BM=16, **KIMI),
    ]
    for short, model in (("kimi", KIMI), ("dsv3", DEEPSEEK)):
        result += [_case(short, model, tokens, block) for tokens in DECODE for block in (16, 32)]
        result += [_case(short, model, PREFILL, block) for block in (64, 128)]
    return result


def _case(short: str, model: dict[str, int], tokens: int, block: int) -> Case:
    name = f"{short}_m{tokens}_bm{block}"
    return Case(name, tier="pr" if name in PULL_REQUEST else "nightly", dtype="mxfp4", M=tokens, BM=block, **model)


moe_gemm2_mxfp4 = Kernel("moe_gemm2_mxfp4", cases=cases(), tolerance={"mxfp4": Tolerance(norm=1.2e-2, peak=0.12)})
"""Products and sums are exact or fp32; the bounds are for the atomic epilogue, which rounds to bf16 (2^-9) at each of
topk adds and once before it: sqrt(2 * 9) roundings of up to the final size.  `reduce` stays under a third of them."""

moe_gemm2_mxfp4.protocol = "graph"  # type: ignore[attr-defined]  # calls of 10 to 100 us


@moe_gemm2_mxfp4.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """Normal values, quantised.  "exact": any codes, scales 2^-1 to 2^1, so that fp32 holds every sum exactly."""
    formats.check_depth(case.K)
    device = case.place.device if case.place else "cpu"
    order = sorting.sort(sorting.choice(case), sorting.weights(case, seed), case.E, case.BM)
    rows = order.ids.numel()
    w = torch.empty((case.E, case.N, case.K // 2), dtype=torch.uint8, device=device)
    w_scale = torch.empty((case.E, case.N, case.K // 32), dtype=torch.uint8, device=device)
    for group in formats.experts_at_once(case.E):
        seeds = [seed_for(seed, case.name, "w", expert) for expert in range(group.start, group.stop)]
        w[group], w_scale[group] = _codes(case, (case.N, case.K), seeds, device)
    [a], [a_scale] = _codes(case, (rows, case.K), [seed_for(seed, case.name, "a")], device)
    return {
        "a": a,
        "a_scale": a_scale,
        "w": w,
        "w_scale": w_scale,
        "ids": order.ids.to(device),
        "weights": order.weights.to(device),
        "experts": order.experts.to(device),
        "valid": order.valid.to(device),
    }


def _codes(case: Case, shape: tuple[int, int], seeds: Sequence[int], device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Packed codes and scales of a matrix for each seed."""
    generators = [torch.Generator(device=device).manual_seed(seed) for seed in seeds]
    if case.distribution == "exact":
        packed = [torch.randint(0, 256, (shape[0], shape[1] // 2), generator=g, device=device) for g in generators]
        scales = [torch.randint(126, 129, (shape[0], shape[1] // 32), generator=g, device=device) for g in generators]
        return torch.stack(packed).to(torch.uint8), torch.stack(scales).to(torch.uint8)
    return formats.quantise(torch.stack([torch.randn(shape, generator=g, device=device) for g in generators]))


@moe_gemm2_mxfp4.cost
def cost(case: Case) -> Cost:
    """2 M topk N K FLOP.  Bytes: packed weights and scales of the experts that have a token, once; the activations of
    M topk rows; the bf16 output once.  Padding rows and partial results are not counted.
    """
    pairs = case.M * case.topk
    packed = case.K // 2 + case.K // 32
    weights = sorting.active_experts(case) * case.N * packed
    return Cost(flops=2 * pairs * case.N * case.K, hbm_bytes=weights + pairs * packed + case.M * case.N * 2)


@moe_gemm2_mxfp4.reference
def reference(case: Case, x: dict[str, torch.Tensor]) -> torch.Tensor:
    """Dequantise to fp32, one product for each expert, weight, sum over the slots in fp32, round to bf16 once."""
    used = int(x["valid"][0])
    ids, weights = x["ids"][:used].long(), x["weights"][:used]
    owner = x["experts"][: used // case.BM].long().repeat_interleave(case.BM)
    real = (ids & 0xFFFFFF) < case.M
    partial = torch.zeros((case.M * case.topk, case.N), dtype=torch.float32, device=ids.device)
    for expert in owner.unique().tolist():
        rows = torch.nonzero((owner == expert) & real).flatten()
        a = formats.dequantise(x["a"][rows], x["a_scale"][rows])
        product = a @ formats.dequantise(x["w"][expert], x["w_scale"][expert]).T
        partial[(ids[rows] & 0xFFFFFF) * case.topk + (ids[rows] >> 24)] = product * weights[rows, None]
    return partial.view(case.M, case.topk, case.N).sum(1).to(torch.bfloat16)


Build = Callable[[Case, dict[str, torch.Tensor], dict[str, Any]], Callable[[], torch.Tensor]]


def _declare(name: str, build: Build, atomic: bool) -> None:
    @moe_gemm2_mxfp4.backend(
        name,
        config=functools.partial(config.config, backend=name),
        candidates=functools.partial(candidates, backend=name),
        tuned=config.table(name),
    )
    def triton(
        case: Case, x: dict[str, torch.Tensor], *,
        layout: str, block_n: int, block_k: int, num_warps: int, num_stages: int, programs_per_cu: int,
        non_temporal: bool, maxnreg: int, partial: str, tiles: int, rows: int, few: int,
        overlap: bool, share: int, nonkdim: int = 16, waves_per_eu: int = 0,
    ) -> Callable[[], torch.Tensor]:  # fmt: skip
        knobs = {key: value for key, value in locals().items() if key not in ("case", "x", "build")}
        return build(case, x, knobs)

    @moe_gemm2_mxfp4.isa(name)
    def compilations(case: Case, arch: str, **overrides: Any) -> Any:
        return launch.compilation(case, arch, atomic, moe_gemm2_mxfp4.backends[name].knobs(case, arch, overrides))


_declare("triton_atomic", launch.atomic_call, atomic=True)
_declare("triton_reduce", launch.reduce_call, atomic=False)
for _name, (_peer, _distributions) in nvidia_vendors.BASELINES.items():
    moe_gemm2_mxfp4.baseline(_name, libraries=_distributions, first_call_s=nvidia_vendors.COMPILING_S)(_peer)
for _name, (_build, _knobs, _limit_s) in amd_vendors.BASELINES.items():
    moe_gemm2_mxfp4.baseline(_name, config=_knobs, libraries=amd_vendors.LIBRARIES, first_call_s=_limit_s)(_build)


@moe_gemm2_mxfp4.backend("torch")
def torch_on_cpu(case: Case, x: dict[str, torch.Tensor]) -> Callable[[], torch.Tensor]:
    """For machines without a GPU; small cases only.  On a GPU nobody would dequantise the weights at every call."""
    if case.place.device != "cpu":
        raise Unsupported(f"torch is for CPUs, and this is {case.place.arch}; its libraries are the other baselines")
    return vendors.dequantise_and_multiply(case, x)


@moe_gemm2_mxfp4.small(M=32, N=128, K=256, E=8, topk=3)
def small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Both backends multiply by the same code but for its last lines: one has tails, the other none.

    Blocks of few rows, which have more sets of knobs, are in one backend only: another from a depth or a block to the
    next.
    """
    few, odd, sums = case.BM <= 32, case.BM in (32, 128), backend == "triton_reduce"
    if few and sums != (odd == (case.K > 256)):
        return
    depth = min(case.K, 2 * knobs["block_k"])
    if sums if few else odd != sums:
        yield Small({"E": 3, "topk": 2, "M": case.BM + 3, "N": max(knobs["block_n"], 80) + 8, "K": depth - 64})
    else:
        yield Small({"E": 3, "topk": 2, "M": 7, "N": 2 * knobs["block_n"], "K": depth})
