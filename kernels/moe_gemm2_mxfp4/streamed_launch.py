"""From tensors to launches of the streamed kernel and of the small one before or behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from kernels.hardware import compute_units
from kernels.moe_gemm2_mxfp4 import formats
from kernels.spec import Case, Compilation

SUM_BLOCK = 1024
"""Columns of a program of the fixed-order sum: 4 KiB per row, so that a program's loads fill whole DRAM pages."""

CLEAR_BLOCKS = (1024, 4096)
"""Elements that a program of the clearing sets to zero, with a warp for 1024.  One warp fits into the registers that a
product leaves free, and is there when it ends; but the next product waits until the last of many programs is there."""

TICKETS = ("*i32", (1,))
"""The counter that programs draw from (streamed.py)."""


def constants(case: Case, arch: str, knobs: dict[str, Any], atomic: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """(constants, options), the same for a launch and for a compilation ahead of time."""
    options = {"num_warps": 1, "num_stages": 1}
    if knobs["maxnreg"]:
        options["maxnreg"] = knobs["maxnreg"]
    return {
        "TOPK": case.topk,
        "BLOCK_M": case.BM,
        "GROUPS": min(knobs["rows"], case.BM) // 8,
        "BLOCKS": formats.streamed_depth(case.K) // formats.BLOCK,
        "NT": knobs["block_n"] // 16,
        "STAGES": knobs["num_stages"],
        "ATOMIC": atomic,
        "DRAWN": knobs["share"] < 100,
        "OVERLAP": overlaps(knobs, arch),
        "ASM": arch != "cpu",
    }, options | launched(knobs, arch)


def overlaps(knobs: dict[str, Any], arch: str) -> bool:
    """Whether a kernel starts while the one before it ends: programmatic dependent launch, from sm_90 on."""
    return bool(knobs["overlap"]) and arch.startswith("sm_")


def launched(knobs: dict[str, Any], arch: str) -> dict[str, Any]:
    """The option of a launch that overlaps."""
    return {"launch_pdl": True} if overlaps(knobs, arch) else {}


def sum_grid(case: Case) -> tuple[int, int]:
    """Programs of the fixed-order sum, by tokens and columns."""
    return case.M, -(-case.N // SUM_BLOCK)


def _clear(case: Case, arch: str, knobs: dict[str, Any]) -> tuple[tuple[int], dict[str, Any], dict[str, Any]]:
    """(grid, constants, options) of the clearing: small blocks where those are at most one program for each SM."""
    small, large = CLEAR_BLOCKS
    block = small if small * compute_units(case, arch) >= case.M * case.N else large
    options = {"num_warps": block // small, **launched(knobs, arch)}
    return (-(-case.M * case.N // block),), {"BLOCK": block, "OVERLAP": overlaps(knobs, arch)}, options


def _sum(case: Case, arch: str, knobs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(constants, options) of the fixed-order sum."""
    fixed = {"TOPK": case.topk, "BLOCK": SUM_BLOCK, "OVERLAP": overlaps(knobs, arch)}
    return fixed, {"num_warps": 4, **launched(knobs, arch)}


def adding(case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any], out: torch.Tensor) -> Callable[[], None]:
    """Launcher of the kernel that sets `out` to zero and of the product that adds to it."""
    from kernels.moe_gemm2_mxfp4 import streamed

    tickets = _tickets(out)
    product = _product(case, x, knobs, out, tickets, atomic=True)
    grid, fixed, options = _clear(case, case.place.arch, knobs)

    def launch() -> None:
        streamed.clear_kernel[grid](out, tickets, out.numel(), **fixed, **options)
        product()

    return launch


def summing(
    case: Case, x: dict[str, torch.Tensor], knobs: dict[str, Any], partial: torch.Tensor, out: torch.Tensor
) -> Callable[[], None]:
    """Launcher of the product into `partial` and of the kernel that sums the slots of each token into `out`."""
    from kernels.moe_gemm2_mxfp4 import device

    tickets = _tickets(out)
    product = _product(case, x, knobs, partial, tickets, atomic=False)
    fixed, options = _sum(case, case.place.arch, knobs)

    def launch() -> None:
        product()
        device.sum_slots_kernel[sum_grid(case)](partial, out, case.N, tickets_ptr=tickets, **fixed, **options)

    return launch


def _tickets(out: torch.Tensor) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=out.device)


def _product(
    case: Case,
    x: dict[str, torch.Tensor],
    knobs: dict[str, Any],
    out: torch.Tensor,
    tickets: torch.Tensor,
    atomic: bool,
) -> Callable[[], None]:
    """Launcher of the product into `out`.  Lays the weights out here, once, as a server does when it loads them."""
    from kernels.moe_gemm2_mxfp4 import streamed

    chosen, options = constants(case, case.place.arch, knobs, atomic)
    programs = compute_units(case, case.place.arch) * knobs["programs_per_cu"]
    weights, down = formats.stream_all(x["w"], x["w_scale"], knobs["block_n"])
    arguments = (
        x["a"].view(torch.int32), x["a_scale"], weights, x["ids"], x["weights"], x["experts"], x["valid"], out, tickets,
        case.M, case.N, case.K // 8, down, programs, knobs["share"], knobs["tiles"],
    )  # fmt: skip

    def launch() -> None:
        streamed.gemm2_streamed_kernel[(programs,)](*arguments, **chosen, **options)

    return launch


def compilation(case: Case, arch: str, atomic: bool, knobs: dict[str, Any]) -> list[Compilation]:
    """What a launch of the case with these knobs compiles."""
    from kernels.moe_gemm2_mxfp4 import device, streamed

    chosen, options = constants(case, arch, knobs, atomic)
    padded = case.M * case.topk + case.E * case.BM - case.topk
    tiles = -(-case.N // knobs["block_n"]) * chosen["NT"]
    partial = (f"*{knobs['partial']}", (case.M * case.topk, case.N))
    out = ("*bf16", (case.M, case.N))
    arguments: dict[str, Any] = {
        "a_ptr": ("*i32", (padded, case.K // 8)),
        "a_scale_ptr": ("*u8", (padded, case.K // 32)),
        "w_ptr": ("*i32", (case.E, tiles, 68 * chosen["BLOCKS"])),
        "ids_ptr": ("*i32", (padded,)),
        "weights_ptr": ("*fp32", (padded,)),
        "experts_ptr": ("*i32", (-(-padded // case.BM),)),
        "valid_ptr": ("*i32", (2,)),
        "out_ptr": out if atomic else partial,
        "tickets_ptr": TICKETS,
        "tokens": case.M,
        "columns": case.N,
        "row_words": case.K // 8,
        "down": 113,
        "programs": compute_units(case, arch) * knobs["programs_per_cu"],
        "share": knobs["share"],
        "chunk": knobs["tiles"],
    }
    if atomic:
        grid, fixed, width = _clear(case, arch, knobs)
        cleared = {"out_ptr": out, "tickets_ptr": TICKETS, "elements": case.M * case.N}
        other = Compilation(f"{case.name} clear", streamed.clear_kernel, cleared, fixed, width, grid=grid)
    else:
        fixed, width = _sum(case, arch, knobs)
        summed = {"partial_ptr": partial, "out_ptr": out, "columns": case.N, "tickets_ptr": TICKETS}
        other = Compilation(
            f"{case.name} sum", device.sum_slots_kernel, summed, fixed, width, grid=sum_grid(case)
        )  # fmt: skip
    product = Compilation(
        case.name, streamed.gemm2_streamed_kernel, arguments, chosen, options, grid=(arguments["programs"],)
    )
    return [product, other]
