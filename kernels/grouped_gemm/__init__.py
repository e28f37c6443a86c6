"""Grouped GEMM of a mixture-of-experts layer in training: forward, gradient of the rows, gradient of the weights.

Rows of all local experts lie one expert after the other; expert g owns len[g] of them, known on the device only.

grouped_gemm_forward  out[rows of g] = a[rows of g] @ b[g]^T      a [sum M, K], b [G, N, K] -> [sum M, N]
grouped_gemm_dgrad    da[rows of g] = dy[rows of g] @ b[g]        dy [sum M, N]             -> [sum M, K]
grouped_gemm_wgrad    db[g] = dy[rows of g]^T @ a[rows of g]                                -> [G, N, K], zeros if empty

Inputs carry `ends`, int32 [G]: the inclusive running sum of the group sizes, as torch._grouped_mm takes it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from kernels.grouped_gemm import autotune, cases, launch, routing, vendors
from kernels.grouped_gemm import config as knob_rules
from kernels.grouped_gemm.config import candidates
from kernels.numerics import normal, seed_for
from kernels.spec import Case, Cost, Kernel, Small, Tolerance

__all__ = ["candidates", "grouped_gemm_dgrad", "grouped_gemm_forward", "grouped_gemm_wgrad"]

TOLERANCE = {
    "bf16": Tolerance(norm=4e-3, peak=0.05),
    "fp16": Tolerance(norm=6e-4, peak=8e-3),
    "fp32": Tolerance(norm=1e-3, peak=1e-2),
}
"""Sums are fp32, so what is left is the rounding of the output: half a unit in the last place, 2^-9 for bf16, of
values up to 6 rms.  fp32 operands are multiplied as TF32 by Triton (2^-11 each)."""


def _tensors(case: Case, seed: int, *names: str) -> dict[str, torch.Tensor]:
    rows = case.G * case.M
    shapes = {"a": (rows, case.K), "b": (case.G, case.N, case.K), "dy": (rows, case.N)}
    device = case.place.device if case.place else "cpu"
    tensors = {name: normal(shapes[name], case.dtype, seed_for(seed, case.name, name), device) for name in names}
    counts = routing.lens(case.routing, case.G, case.M)
    return {**tensors, "ends": torch.tensor(routing.ends(counts), dtype=torch.int32, device=device)}


def _cost(case: Case) -> Cost:
    """2 sum(M) N K FLOP; each operand and the output once through HBM, the weights of every expert included."""
    rows = case.G * case.M
    elements = rows * case.K + case.G * case.N * case.K + rows * case.N
    return Cost(flops=2 * rows * case.N * case.K, hbm_bytes=int(elements * case.itemsize))


def _slices(x: dict[str, torch.Tensor]) -> list[slice]:
    ends = [0, *x["ends"].tolist()]
    return [slice(start, end) for start, end in zip(ends, ends[1:], strict=False)]


def _reference_forward(case: Case, x: dict[str, torch.Tensor]) -> torch.Tensor:
    parts = [x["a"][rows].float() @ x["b"][g].float().T for g, rows in enumerate(_slices(x))]
    return torch.cat(parts)


def _reference_dgrad(case: Case, x: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([x["dy"][rows].float() @ x["b"][g].float() for g, rows in enumerate(_slices(x))])


def _reference_wgrad(case: Case, x: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.stack([x["dy"][rows].float().T @ x["a"][rows].float() for rows in _slices(x)])


def _declared(
    kernel: Kernel,
    operands: tuple[str, ...],
    reference: Callable[..., Any],
    tensors_to_call: Callable[..., Any],
    compilation: Callable[..., Any],
) -> Kernel:
    """One of the three kernels.  They differ in their operands, their reference and the Triton kernel they launch."""
    product = kernel.name.removeprefix("grouped_gemm_")
    kernel.cost(_cost)
    kernel.reference(reference)

    @kernel.inputs
    def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
        return _tensors(case, seed, *operands)

    config = functools.partial(knob_rules.config, product)

    @kernel.backend(
        "triton",
        config=config,
        candidates=lambda case, arch: candidates(case, arch, product),
        tuned=knob_rules.table(product),
    )
    def triton(
        case: Case, x: dict[str, torch.Tensor], *,
        block_m: int, block_n: int, block_k: int, group_m: int, num_warps: int, num_stages: int, tma: bool,
        groups_per_cu: int, split: int = 1, queue: bool = False, roles: bool = False,
        nonkdim: int = 16, kpack: int = 1, waves_per_eu: int = 0,
    ) -> Callable[[], torch.Tensor]:  # fmt: skip
        knobs = {key: value for key, value in locals().items() if key not in ("case", "x", "tensors_to_call")}
        return tensors_to_call(case, x, knobs)

    @kernel.isa("triton")
    def compilations(case: Case, arch: str, **overrides: Any) -> Any:
        return compilation(case, arch, {**triton.__kwdefaults__, **config(case, arch), **overrides})

    kernel.small(G=4, M=64, N=128, K=256)(_small)
    _add_others(kernel, product)
    return kernel


def _small(case: Case, backend: str, knobs: Mapping[str, Any]) -> Iterator[Small]:
    """Groups of all sizes with a tail in every dimension; without, two tiles for each program."""
    m, n, k = (knobs[name] for name in ("block_m", "block_n", "block_k"))
    yield Small({"G": 5, "M": 24, "N": n + 16, "K": k + 40, "routing": "extreme"})
    yield Small({"G": 2, "M": m // 2, "N": 2 * max(m, n) * knobs["groups_per_cu"], "K": 3 * k, "routing": "mild"})


def _add_others(kernel: Kernel, product: str) -> None:
    for name, (build, facts) in vendors.BASELINES.items():
        declared = (
            vendors.loop_with_streams(product)
            if name == "loop"
            else functools.wraps(build)(functools.partial(build, product))
        )
        kernel.baseline(name, **facts)(declared)
    kernel.backend("torch")(functools.partial(vendors.on_cpu, product))
    tries = functools.partial(autotune.tried, product)
    kernel.backend("autotune", tries=tries)(functools.partial(autotune.best, kernel))


# live: without the weights, of which a set-up leaves out those of groups without a row.
grouped_gemm_forward = _declared(
    Kernel("grouped_gemm_forward", cases=cases.cases(), tolerance=TOLERANCE, live=("a",)),
    ("a", "b"),
    _reference_forward,
    lambda case, x, knobs: launch.rows_call(case, x["a"], x["b"], x["ends"], True, knobs),
    lambda case, arch, knobs: launch.rows_compilation(case, arch, True, knobs),
)

grouped_gemm_dgrad = _declared(
    Kernel("grouped_gemm_dgrad", cases=cases.cases(), tolerance=TOLERANCE, live=("dy",)),
    ("dy", "b"),
    _reference_dgrad,
    lambda case, x, knobs: launch.rows_call(case, x["dy"], x["b"], x["ends"], False, knobs),
    lambda case, arch, knobs: launch.rows_compilation(case, arch, False, knobs),
)

grouped_gemm_wgrad = _declared(
    Kernel("grouped_gemm_wgrad", cases=cases.cases(), tolerance=TOLERANCE, live=("dy", "a")),
    ("dy", "a"),
    _reference_wgrad,
    lambda case, x, knobs: launch.weights_call(case, x["dy"], x["a"], x["ends"], knobs),
    launch.weights_compilation,
)
