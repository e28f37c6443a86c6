"""From tensors to a launch of the Triton kernels: what they refuse, their constants, their callables.

A `Plan` is all of a launch that follows from the shapes; a call and a compilation ahead of time share it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels import numerics
from kernels._shared.libraries import need_triton
from kernels.grouped_gemm import config
from kernels.hardware import compute_units, xcds
from kernels.spec import Case, Compilation

DTYPES = (torch.bfloat16, torch.float16, torch.float32)

_POINTERS = {torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.float32: "*fp32", torch.int32: "*i32"}


@dataclasses.dataclass(frozen=True)
class Plan:
    """One kernel, its arguments, constants and compiler options; scratch tensors: (dtype, shape) by parameter."""

    function: Any
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    scratch: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]


def rows_call(
    case: Case, a: torch.Tensor, b: torch.Tensor, ends: torch.Tensor, by_column: bool, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """Callable for out[m] = a[m] @ b[group of m], b [G, columns, depth] if by_column else [G, depth, columns].

    a [rows, depth], ends int32 [G] (inclusive running sum of the group sizes).  ValueError for what does not fit.
    """
    need_triton(case)
    if b.dim() != 3 or a.dim() != 2 or a.shape[1] != b.shape[2 if by_column else 1]:
        raise ValueError(
            f"a is {tuple(a.shape)} and b {tuple(b.shape)}: dimension 1 of a must equal "
            f"dimension {2 if by_column else 1} of b"
        )
    _check(a, b, ends)
    config.check_fits(knobs, a.element_size(), case.place.arch, "forward" if by_column else "dgrad")
    if b.shape[0] != ends.numel():
        raise ValueError(f"b has {b.shape[0]} groups, ends has {ends.numel()}")
    out = torch.empty((a.shape[0], b.shape[1 if by_column else 2]), dtype=a.dtype, device=a.device)
    if out.numel() == 0:
        return lambda: out
    knobs = _without_tma_if_odd(knobs, a, b, out)
    return _call_of(rows_plan(case, case.place.arch, knobs, a, b, out, ends, by_column), out)


def weights_call(
    case: Case, dy: torch.Tensor, a: torch.Tensor, ends: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """Callable for out[g] = dy_g^T @ a_g: dy [rows, N], a [rows, K] -> [G, N, K]; zeros for empty groups."""
    need_triton(case)
    if dy.dim() != 2 or a.dim() != 2 or dy.shape[0] != a.shape[0]:
        raise ValueError(f"dy is {tuple(dy.shape)} and a {tuple(a.shape)}: they must agree in the rows")
    _check(dy, a, ends)
    config.check_fits(knobs, a.element_size(), case.place.arch, "wgrad")
    out = torch.empty((ends.numel(), dy.shape[1], a.shape[1]), dtype=a.dtype, device=a.device)
    if a.shape[0] == 0:
        return lambda: out.zero_()
    knobs = _without_tma_if_odd(knobs, dy, a, out)
    return _call_of(weights_plan(case, case.place.arch, knobs, dy, a, out, ends), out)


def rows_plan(
    case: Case,
    arch: str,
    knobs: Mapping[str, Any],
    a: torch.Tensor,
    b: torch.Tensor,
    out: torch.Tensor,
    ends: torch.Tensor,
    by_column: bool,
) -> Plan:
    """Forward (by_column) or dgrad; tensors as in rows_call, also without storage."""
    from kernels.grouped_gemm import device

    constants = {**_constants(case, arch, knobs, ends.numel()), "B_BY_COLUMN": by_column}
    if knobs["roles"]:
        from kernels._shared import rows_with_roles as roles

        programs = constants["PROGRAMS"]
        return Plan(
            roles.rows_with_roles,
            roles.arguments(a, b, out, ends, by_column, knobs["block_n"], knobs["block_k"]),
            roles.constants(ends.numel(), by_column, knobs, programs),
            _options(arch, knobs),
            roles.scratch(knobs, programs),
        )
    columns, depth = out.shape[1], a.shape[1]
    m, n, k = knobs["block_m"], knobs["block_n"], knobs["block_k"]
    if not knobs["tma"]:
        constants.update(XCDS=xcds(arch, compute_units(case, arch)), EVEN_N=columns % n == 0, EVEN_K=depth % k == 0)
        arguments = {
            "a_ptr": a,
            "b_ptr": b,
            "out_ptr": out,
            "ends_ptr": ends,
            "columns": columns,
            "depth": depth,
            "stride_a": a.stride(0),
            "stride_b_group": b.stride(0),
            "stride_b": b.stride(1),
            "stride_out": out.stride(0),
        }
        return Plan(device.rows_kernel, arguments, constants, _options(arch, knobs), {})
    arguments = {
        "a_desc": _descriptor(a, m, k),
        "b_desc": _descriptor(b, 1, *((n, k) if by_column else (k, n))),
        "out_desc": _ragged(out, m, n // 2),
        "ends_ptr": ends,
        "columns": columns,
        "depth": depth,
    }
    programs = constants["PROGRAMS"]
    scratch = {"rooms": (torch.float32, (programs, m, n)), "flags": (torch.int32, (programs,))}
    return Plan(
        device.rows_tma_kernel, arguments, {**constants, "SPLIT": knobs["split"]}, _options(arch, knobs), scratch
    )


def weights_plan(
    case: Case,
    arch: str,
    knobs: Mapping[str, Any],
    dy: torch.Tensor,
    a: torch.Tensor,
    out: torch.Tensor,
    ends: torch.Tensor,
) -> Plan:
    """wgrad; tensors as in weights_call, also without storage."""
    from kernels.grouped_gemm import device

    constants = _constants(case, arch, knobs, ends.numel())
    m, n, k = knobs["block_m"], knobs["block_n"], knobs["block_k"]
    if knobs["roles"]:
        from kernels.grouped_gemm import weights_with_roles as roles

        return Plan(
            roles.weights_with_roles,
            roles.arguments(dy, a, out, ends, n, k),
            roles.constants(ends.numel(), constants["GROUPS_POW2"], knobs, constants["PROGRAMS"]),
            _options(arch, knobs),
            {"queue": (torch.int32, (2,))},
        )
    sizes = {"ends_ptr": ends, "n_size": dy.shape[1], "k_size": a.shape[1]}
    if knobs["tma"]:
        blocks = {"dy_desc": _ragged(dy, k, m), "a_desc": _ragged(a, k, n), "out_desc": _descriptor(out, 1, m, n // 2)}
        return Plan(device.weights_tma_kernel, blocks | sizes, constants, _options(arch, knobs), {})
    constants.update(XCDS=xcds(arch, compute_units(case, arch)), QUEUE=knobs["queue"])
    arguments = {
        "dy_ptr": dy,
        "a_ptr": a,
        "out_ptr": out,
        "stride_dy": dy.stride(0),
        "stride_a": a.stride(0),
        "stride_out_group": out.stride(0),
        "stride_out": out.stride(1),
    }
    return Plan(
        device.weights_kernel, arguments | sizes, constants, _options(arch, knobs), {"queue": (torch.int32, (2,))}
    )


def rows_compilation(case: Case, arch: str, by_column: bool, knobs: Mapping[str, Any]) -> list[Compilation]:
    """What a launch of the case with these knobs compiles; the rows are the case's total tokens."""
    config.check_knobs(knobs, "forward" if by_column else "dgrad")
    rows, (columns, depth) = case.G * case.M, (case.N, case.K) if by_column else (case.K, case.N)
    a, b, out, ends = _without_storage(case, (rows, depth), (case.G, case.N, case.K), (rows, columns))
    return [_compilation_of(case, rows_plan(case, arch, knobs, a, b, out, ends, by_column))]


def weights_compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> list[Compilation]:
    """What a launch of the case with these knobs compiles."""
    config.check_knobs(knobs, "wgrad")
    rows = case.G * case.M
    dy, a, out, ends = _without_storage(case, (rows, case.N), (rows, case.K), (case.G, case.N, case.K))
    return [_compilation_of(case, weights_plan(case, arch, knobs, dy, a, out, ends))]


def _without_storage(case: Case, *shapes: tuple[int, ...]) -> list[torch.Tensor]:
    """Tensors of the case's dtype, and ends."""
    return [
        *(torch.empty(shape, dtype=numerics.DTYPES[case.dtype], device="meta") for shape in shapes),
        torch.empty(case.G, dtype=torch.int32, device="meta"),
    ]


def _descriptor(tensor: torch.Tensor, *block: int) -> Any:
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor.from_tensor(tensor, list(block))


def _ragged(tensor: torch.Tensor, *block: int) -> Any:
    """A descriptor of [rows, columns] that ends where the group of an access ends, see tiles.py."""
    from triton.tools.ragged_tma import create_ragged_descriptor

    return create_ragged_descriptor(tensor, list(block))


def _constants(case: Case, arch: str, knobs: Mapping[str, Any], groups: int) -> dict[str, Any]:
    """What all kernels of the operator take."""
    return {
        "GROUPS": groups,
        "BLOCK_M": knobs["block_m"],
        "BLOCK_N": knobs["block_n"],
        "BLOCK_K": knobs["block_k"],
        "GROUP_M": knobs["group_m"],
        "PROGRAMS": compute_units(case, arch) * knobs["groups_per_cu"],
        # 32 lanes at least: then every warp holds the table of groups, and searching it needs no shared memory
        "GROUPS_POW2": max(32, 1 << (groups - 1).bit_length()),
    }


def _options(arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    options = {"num_warps": knobs["num_warps"], "num_stages": knobs["num_stages"]}
    if arch.startswith("gfx"):
        options.update(matrix_instr_nonkdim=knobs["nonkdim"], kpack=knobs["kpack"], waves_per_eu=knobs["waves_per_eu"])
    return options


def _check(left: torch.Tensor, right: torch.Tensor, ends: torch.Tensor) -> None:
    if left.dtype != right.dtype or left.dtype not in DTYPES:
        raise ValueError(
            f"operands are {left.dtype} and {right.dtype}; both must be one of {', '.join(str(d) for d in DTYPES)}"
        )
    if ends.dtype != torch.int32 or ends.dim() != 1 or ends.numel() == 0:
        raise ValueError(f"ends is {ends.dtype} {tuple(ends.shape)}; it must be int32 [groups], at least one group")
    steps = torch.diff(ends, prepend=ends.new_zeros(1)).tolist()  # in set-up, where waiting for the device does no harm
    if min(steps) < 0 or sum(steps) != left.shape[0]:
        raise ValueError(
            f"ends must rise from 0 to the {left.shape[0]} rows of the left operand; it ends at "
            f"{sum(steps)}" + (f" and falls by {-min(steps)} on the way" if min(steps) < 0 else "")
        )
    for name, tensor in (("left", left), ("right", right)):
        if tensor.shape[-1] > 1 and tensor.stride(-1) != 1:
            raise ValueError(f"the {name} operand has stride {tensor.stride(-1)} in its last dimension; it must be 1")


def _without_tma_if_odd(knobs: Mapping[str, Any], *tensors: torch.Tensor) -> Mapping[str, Any]:
    """Tensor descriptors need 16-byte aligned bases and strides; other tensors go through plain pointers.

    Roles are for elements of 16 bits.
    """
    if knobs["roles"] and tensors[0].element_size() != 2:
        knobs = {**knobs, **config.WITHOUT_ROLES}
    even = all(t.data_ptr() % 16 == 0 and all(s * t.element_size() % 16 == 0 for s in t.stride()[:-1]) for t in tensors)
    return knobs if even or not knobs["tma"] else {**knobs, **config.BY_POINTERS}


def _call_of(plan: Plan, out: torch.Tensor) -> Callable[[], torch.Tensor]:
    scratch = {
        name: torch.zeros(shape, dtype=dtype, device=out.device) for name, (dtype, shape) in plan.scratch.items()
    }
    given = {**plan.arguments, **scratch, **plan.constants, **plan.options}
    launch = plan.function[(plan.constants["PROGRAMS"],)]

    def call() -> torch.Tensor:
        launch(**given)
        return out

    return call


def _compilation_of(case: Case, plan: Plan) -> Compilation:
    every = {**plan.arguments, **{name: (_POINTERS[dtype], shape) for name, (dtype, shape) in plan.scratch.items()}}
    ordered = {name: every[name] for name in plan.function.arg_names if name in every}
    declared = {
        name: (_POINTERS[value.dtype], tuple(value.shape)) if isinstance(value, torch.Tensor) else value
        for name, value in ordered.items()
    }
    grid = (plan.constants["PROGRAMS"],)
    return Compilation(case.name, plan.function, declared, plan.constants, plan.options, grid=grid)
