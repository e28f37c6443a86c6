"""From tensors to a launch of the two Triton kernels: what they refuse, their constants, their callables."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from kernels.grouped_gemm import tuning
from kernels.spec import Case, Compilation, Unsupported

Split = tuple[dict[str, Any], dict[str, Any]]
"""Constants of a kernel, and options of the compiler."""

DTYPES = (torch.bfloat16, torch.float16, torch.float32)


def rows_call(case: Case, a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, by_column: bool,
              knobs: dict[str, Any]) -> Callable[[], torch.Tensor]:
    """Callable for out[m] = a[m] @ b[group of m], b [G, columns, depth] if by_column else [G, depth, columns].

    a [rows, depth], ends int32 [G] (inclusive running sum of the group sizes).  ValueError for what does not fit.
    """
    device = _device_module(case)
    if b.dim() != 3 or a.dim() != 2 or a.shape[1] != b.shape[2 if by_column else 1]:
        raise ValueError(f"a is {tuple(a.shape)} and b {tuple(b.shape)}: dimension 1 of a must equal "
                         f"dimension {2 if by_column else 1} of b")
    _check(a, b, ends)
    tuning.check_fits(knobs, a.element_size(), case.place.arch)
    depth, columns = (b.shape[2], b.shape[1]) if by_column else (b.shape[1], b.shape[2])
    if b.shape[0] != ends.numel():
        raise ValueError(f"b has {b.shape[0]} groups, ends has {ends.numel()}")
    out = torch.empty((a.shape[0], columns), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return lambda: out
    knobs = _without_tma_if_odd(knobs, a, b, out)
    constants, options = rows_constants(case, case.place.arch, knobs, ends.numel(), columns, depth, by_column)
    arguments = (a, b, out, ends, a.shape[0], columns, depth, a.stride(0), b.stride(0), b.stride(1), out.stride(0))
    return _launcher(device, device.rows_kernel, arguments, constants, options, out)


def weights_call(case: Case, dy: torch.Tensor, a: torch.Tensor, ends: torch.Tensor,
                 knobs: dict[str, Any]) -> Callable[[], torch.Tensor]:
    """Callable for out[g] = dy_g^T @ a_g: dy [rows, N], a [rows, K] -> [G, N, K]; zeros for empty groups."""
    device = _device_module(case)
    if dy.dim() != 2 or a.dim() != 2 or dy.shape[0] != a.shape[0]:
        raise ValueError(f"dy is {tuple(dy.shape)} and a {tuple(a.shape)}: they must agree in the rows")
    _check(dy, a, ends)
    tuning.check_fits(knobs, a.element_size(), case.place.arch, "wgrad")
    out = torch.empty((ends.numel(), dy.shape[1], a.shape[1]), dtype=a.dtype, device=a.device)
    if a.shape[0] == 0:
        return lambda: out.zero_()
    knobs = _without_tma_if_odd(knobs, dy, a, out)
    constants, options = weights_constants(case, case.place.arch, knobs, ends.numel())
    arguments = (dy, a, out, ends, a.shape[0], dy.shape[1], a.shape[1], dy.stride(0), a.stride(0),
                 out.stride(0), out.stride(1))
    return _launcher(device, device.weights_kernel, arguments, constants, options, out)


def rows_constants(case: Case, arch: str, knobs: dict[str, Any], groups: int, columns: int, depth: int,
                   by_column: bool) -> Split:
    """(constants, options) of rows_kernel, the same for a launch and for a compilation ahead of time."""
    constants, options = _shared_constants(case, arch, knobs, groups)
    # 32 lanes at least: then every warp holds the table of groups, and searching it needs no shared memory
    constants.update(GROUPS_POW2=max(32, 1 << (groups - 1).bit_length()), B_BY_COLUMN=by_column,
                     EVEN_N=columns % knobs["block_n"] == 0, EVEN_K=depth % knobs["block_k"] == 0)
    return constants, options


def weights_constants(case: Case, arch: str, knobs: dict[str, Any], groups: int) -> Split:
    """(constants, options) of weights_kernel."""
    return _shared_constants(case, arch, knobs, groups)


def rows_compilation(case: Case, arch: str, by_column: bool) -> list[Compilation]:
    """What a launch of the case's default knobs compiles; the rows are the case's total tokens."""
    from kernels.grouped_gemm import device

    rows, (columns, depth) = case.G * case.M, (case.N, case.K) if by_column else (case.K, case.N)
    knobs = tuning.rows_config(case, arch)
    constants, options = rows_constants(case, arch, knobs, case.G, columns, depth, by_column)
    kind = f"*{case.dtype}"
    arguments = {
        "a_ptr": (kind, (rows, depth)), "b_ptr": (kind, (case.G, case.N, case.K)), "out_ptr": (kind, (rows, columns)),
        "ends_ptr": ("*i32", (case.G,)), "rows": rows, "columns": columns, "depth": depth, "stride_a": depth,
        "stride_b_group": case.N * case.K, "stride_b": case.K, "stride_out": columns}
    return [Compilation(case.name, device.rows_kernel, arguments, constants, options)]


def weights_compilation(case: Case, arch: str) -> list[Compilation]:
    """What a launch of the case's default knobs compiles."""
    from kernels.grouped_gemm import device

    rows, kind = case.G * case.M, f"*{case.dtype}"
    constants, options = weights_constants(case, arch, tuning.weights_config(case, arch), case.G)
    arguments = {
        "dy_ptr": (kind, (rows, case.N)), "a_ptr": (kind, (rows, case.K)), "out_ptr": (kind, (case.G, case.N, case.K)),
        "ends_ptr": ("*i32", (case.G,)), "rows": rows, "n_size": case.N, "k_size": case.K, "stride_dy": case.N,
        "stride_a": case.K, "stride_out_group": case.N * case.K, "stride_out": case.K}
    return [Compilation(case.name, device.weights_kernel, arguments, constants, options)]


def _shared_constants(case: Case, arch: str, knobs: dict[str, Any], groups: int) -> Split:
    constants = {
        "GROUPS": groups, "BLOCK_M": knobs["block_m"], "BLOCK_N": knobs["block_n"], "BLOCK_K": knobs["block_k"],
        "GROUP_M": knobs["group_m"], "PROGRAMS": tuning.compute_units(case, arch) * knobs["groups_per_cu"],
        "XCDS": tuning.xcds(arch), "TMA": knobs["tma"], "FLATTEN": knobs["flatten"], "SUBTILE": knobs["subtile"]}
    options = {"num_warps": knobs["num_warps"], "num_stages": knobs["num_stages"]}
    if arch.startswith("gfx"):
        options.update(matrix_instr_nonkdim=knobs["nonkdim"], kpack=knobs["kpack"], waves_per_eu=knobs["waves_per_eu"])
    return constants, options


def _check(left: torch.Tensor, right: torch.Tensor, ends: torch.Tensor) -> None:
    if left.dtype != right.dtype or left.dtype not in DTYPES:
        raise ValueError(f"operands are {left.dtype} and {right.dtype}; both must be one of "
                         f"{', '.join(str(d) for d in DTYPES)}")
    if ends.dtype != torch.int32 or ends.dim() != 1 or ends.numel() == 0:
        raise ValueError(f"ends is {ends.dtype} {tuple(ends.shape)}; it must be int32 [groups], at least one group")
    steps = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()  # in set-up, so waiting for the device is no harm
    if min(steps) < 0 or sum(steps) != left.shape[0]:
        raise ValueError(f"ends must rise from 0 to the {left.shape[0]} rows of the left operand; it ends at "
                         f"{sum(steps)}" + (f" and falls by {-min(steps)} on the way" if min(steps) < 0 else ""))
    for name, tensor in (("left", left), ("right", right)):
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"the {name} operand has stride {tensor.stride(-1)} in its last dimension; it must be 1")


def _without_tma_if_odd(knobs: dict[str, Any], *tensors: torch.Tensor) -> dict[str, Any]:
    """Tensor descriptors need 16-byte aligned bases and strides; other tensors go through plain pointers."""
    even = all(t.data_ptr() % 16 == 0 and all(s * t.element_size() % 16 == 0 for s in t.stride()[:-1]) for t in tensors)
    return knobs if even else {**knobs, "tma": False}


def _device_module(case: Case) -> Any:
    """The Triton kernels; Unsupported where Triton cannot run them."""
    try:
        from kernels.grouped_gemm import device
    except ImportError as error:
        raise Unsupported(f"Triton cannot be imported ({error}); install the triton of this torch") from error
    if case.place.device == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        raise Unsupported("Triton has no CPU code generator; a GPU is needed (or TRITON_INTERPRET=1, for tests)")
    return device


def _launcher(device: Any, kernel: Any, arguments: tuple[Any, ...], constants: dict[str, Any], options: dict[str, Any],
              out: torch.Tensor) -> Callable[[], torch.Tensor]:
    import triton

    def workspace(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        """Room for the tensor descriptors that each program builds."""
        return torch.empty(size, dtype=torch.int8, device=out.device)

    def call() -> torch.Tensor:
        if constants["TMA"]:
            triton.set_allocator(workspace)  # belongs to the calling thread's context, so it is set at every call
        kernel[(constants["PROGRAMS"],)](*arguments, **constants, **options)
        return out
    return call
