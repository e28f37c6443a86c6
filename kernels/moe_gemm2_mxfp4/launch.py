"""From tensors to launches of the Triton kernels: what they refuse, their constants, their callables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels._shared.libraries import need_triton
from kernels.hardware import compute_units, xcds
from kernels.moe_gemm2_mxfp4 import config, formats, streamed_launch
from kernels.spec import Case, Compilation

Split = tuple[dict[str, Any], dict[str, Any]]
"""Constants of a kernel, and options of the compiler."""

SUM_BLOCK = streamed_launch.SUM_BLOCK
sum_grid = streamed_launch.sum_grid


def atomic_call(
    case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any], out_dtype: torch.dtype = torch.bfloat16
) -> Callable[[], torch.Tensor]:
    """Zeroes [M, N] and adds every weighted row to its token's row; in bf16 the order changes the bits.

    With the knob `overlap` of layout `streamed`, here and in reduce_call, the kernel directly before a call may write a
    and a_scale; ids, weights, experts and valid are read while it runs.
    """
    _check_launch(case, x, knobs)
    out = torch.empty((case.M, case.N), dtype=out_dtype, device=x["a"].device)
    if knobs["layout"] == "streamed":
        return _returning(streamed_launch.adding(case, x, knobs, out), out)
    product = _product(case, x, knobs, out, atomic=True)

    def launch() -> None:
        out.zero_()
        product()

    return _returning(launch, out)


def reduce_call(
    case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any], out_dtype: torch.dtype = torch.bfloat16
) -> Callable[[], torch.Tensor]:
    """Callable that stores every weighted row and then sums the rows of each token in the order of its slots."""
    _check_launch(case, x, knobs)
    kind = torch.float32 if knobs["partial"] == "fp32" else torch.bfloat16
    partial = torch.empty((case.M * case.topk, case.N), dtype=kind, device=x["a"].device)
    out = torch.empty((case.M, case.N), dtype=out_dtype, device=x["a"].device)
    if knobs["layout"] == "streamed":
        return _returning(streamed_launch.summing(case, x, knobs, partial, out), out)
    device = device_module(case)
    product = _product(case, x, knobs, partial, atomic=False)
    grid = sum_grid(case)

    def launch() -> None:
        product()
        device.sum_slots_kernel[grid](partial, out, case.N, TOPK=case.topk, BLOCK=SUM_BLOCK, num_warps=4)

    return _returning(launch, out)


def _returning(launch: Callable[[], None], out: torch.Tensor) -> Callable[[], torch.Tensor]:
    def call() -> torch.Tensor:
        launch()
        return out

    return call


def _check_launch(case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any]) -> None:
    check(case, x)
    config.check_fits(case, knobs, case.place.arch)
    need_triton(case)


def check(case: Case, x: dict[str, torch.Tensor]) -> None:
    """ValueError that names the value and the limit, for shapes and types that the kernels cannot take."""
    formats.check_depth(case.K)
    padded = case.M * case.topk + case.E * case.BM - case.topk
    shapes = {
        "a": (padded, case.K // 2),
        "a_scale": (padded, case.K // 32),
        "w": (case.E, case.N, case.K // 2),
        "w_scale": (case.E, case.N, case.K // 32),
        "ids": (padded,),
        "weights": (padded,),
        "experts": (-(-padded // case.BM),),
        "valid": (2,),
    }
    kinds = {"ids": torch.int32, "weights": torch.float32, "experts": torch.int32, "valid": torch.int32}
    for name, shape in shapes.items():
        kind = kinds.get(name, torch.uint8)
        if tuple(x[name].shape) != shape or x[name].dtype != kind or not x[name].is_contiguous():
            raise ValueError(f"{name} is {x[name].dtype} {tuple(x[name].shape)}; it must be {kind} {shape}, contiguous")


def constants(case: Case, arch: str, knobs: dict[str, Any], atomic: bool) -> Split:
    """(constants, options), the same for a launch and for a compilation ahead of time."""
    shared = {
        "TOPK": case.topk,
        "BLOCK_M": case.BM,
        "BLOCK_N": knobs["block_n"],
        "TILES": knobs["tiles"],
        "EVEN_N": case.N % knobs["block_n"] == 0,
        "EVEN_K": case.K % knobs["block_k"] == 0,
        "PROGRAMS": compute_units(case, arch) * knobs["programs_per_cu"],
        "XCDS": xcds(arch, compute_units(case, arch)),
        "ATOMIC": atomic,
        "NON_TEMPORAL": (".cg" if arch.startswith("gfx") else "evict_first") if knobs["non_temporal"] else "",
    }
    options = {"num_warps": knobs["num_warps"], "num_stages": knobs["num_stages"]}
    if arch.startswith("gfx"):
        options.update(matrix_instr_nonkdim=knobs["nonkdim"], waves_per_eu=knobs["waves_per_eu"])
    elif knobs["maxnreg"]:
        options["maxnreg"] = knobs["maxnreg"]
    if knobs["layout"] == "plain":
        return {**shared, "BLOCK_K": knobs["block_k"]}, options
    import triton.language as tl

    return {
        **shared,
        "ROWS": min(knobs["rows"], case.BM),
        "FEW": min(knobs["few"], case.BM),
        "STEP": knobs["block_k"] // 8,
        "STEPS": -(-case.K // knobs["block_k"]),
        "PACKED": arch.startswith("sm_"),
        "DOT": tl.float32 if arch == "cpu" else tl.bfloat16,
    }, options


def compilation(case: Case, arch: str, atomic: bool, knobs: dict[str, Any]) -> list[Compilation]:
    """What a launch of the case with these knobs compiles."""
    if knobs["layout"] == "streamed":
        return streamed_launch.compilation(case, arch, atomic, knobs)
    from kernels.moe_gemm2_mxfp4 import device

    chosen, options = constants(case, arch, knobs, atomic)
    padded = case.M * case.topk + case.E * case.BM - case.topk
    plain = knobs["layout"] == "plain"
    kind, width, w_width = ("*u8", case.K // 2, case.K // 2) if plain else ("*i32", case.K // 8, -(-case.K // 64) * 8)
    out = ("*bf16", (case.M, case.N)) if atomic else (f"*{knobs['partial']}", (case.M * case.topk, case.N))
    arguments: dict[str, Any] = {
        "a_ptr": (kind, (padded, width)),
        "a_scale_ptr": ("*u8", (padded, case.K // 32)),
        "w_ptr": (kind, (case.E, case.N, w_width)),
        "w_scale_ptr": ("*u8", (case.E, case.N, case.K // 32 if plain else w_width // 4)),
        "ids_ptr": ("*i32", (padded,)),
        "weights_ptr": ("*fp32", (padded,)),
        "experts_ptr": ("*i32", (-(-padded // case.BM),)),
        "valid_ptr": ("*i32", (2,)),
        "out_ptr": out,
        "tokens": case.M,
        "columns": case.N,
    }
    arguments |= {"row_bytes": width} if plain else {"row_words": width, "w_words": w_width, "factor": 1.0}
    function = device.gemm2_native_kernel if plain else device.gemm2_kernel
    result = [Compilation(case.name, function, arguments, chosen, options, grid=(chosen["PROGRAMS"],))]
    if not atomic:
        result.append(
            Compilation(
                f"{case.name} sum",
                device.sum_slots_kernel,
                {"partial_ptr": out, "out_ptr": ("*bf16", (case.M, case.N)), "columns": case.N},
                {"TOPK": case.topk, "BLOCK": SUM_BLOCK},
                {"num_warps": 4},
                grid=sum_grid(case),
            )
        )
    return result


def device_module(case: Case) -> Any:
    """The Triton kernels; Unsupported where Triton cannot run them."""
    need_triton(case)
    from kernels.moe_gemm2_mxfp4 import device

    return device


def _product(
    case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any], out: torch.Tensor, atomic: bool
) -> Callable[[], None]:
    """Launcher of the product into `out`.  Re-codes the weights here, once, as a server does when it loads them."""
    device = device_module(case)
    chosen, options = constants(case, case.place.arch, knobs, atomic)
    order = (x["ids"], x["weights"], x["experts"], x["valid"], out, case.M, case.N)
    if knobs["layout"] == "plain":
        kernel = device.gemm2_native_kernel
        arguments = (x["a"], x["a_scale"], x["w"], x["w_scale"], *order, case.K // 2)
    else:
        fields, factor = formats.fields(x["w_scale"])
        kernel = device.gemm2_kernel
        words = formats.recode_all(x["w"])
        arguments = (
            x["a"].view(torch.int32),
            x["a_scale"],
            words,
            fields,
            *order,
            case.K // 8,
            words.shape[-1],
            factor,
        )

    def launch() -> None:
        kernel[(chosen["PROGRAMS"],)](*arguments, **chosen, **options)

    return launch
