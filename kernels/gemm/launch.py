"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.tile_launch import Blocks, compiler_options, declared, passed
from kernels.gemm import device
from kernels.hardware import compute_units
from kernels.numerics import DTYPES
from kernels.spec import Case, Compilation


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers.

    scratch: (dtype, shape) by parameter, zeros at first.  described: (a, w, c, ends) -> arguments of a kernel with
    descriptors of its own, see _specialized.
    """

    function: Any
    programs: int
    blocks: Blocks
    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    scratch: Mapping[str, tuple[torch.dtype, tuple[int, ...]]] = dataclasses.field(default_factory=dict)
    described: Callable[..., dict[str, Any]] | None = None


def plan(case: Case, arch: str, units: int, knobs: Mapping[str, Any]) -> Plan:
    """The launch of a case on so many compute units, all knobs given (as the backend's arguments are named)."""
    variants = {"persistent": _persistent, "specialized": _specialized, "split": _split, "vector": _vector}
    if knobs["variant"] not in variants:
        raise ValueError(f"GEMM variant {knobs['variant']!r}; known: {', '.join(variants)}")
    return variants[knobs["variant"]](case, units, knobs, compiler_options(arch, knobs))


def _persistent(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, parts = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["parts"]
    tiles = -(-case.M // m) * -(-case.N // n)
    programs = min(knobs["programs"] or units, tiles)
    blocks = {"a": (m, k), "w": (n, k)} | ({"c": (m, n // parts)} if parts else {})
    constants = {"PROGRAMS": programs, **_tile(knobs), "PARTS": parts, "FLATTEN": knobs["flatten"]}
    return Plan(device.persistent_tma, programs, blocks, _sizes(case), constants, options)


def _tile(knobs: Mapping[str, Any]) -> dict[str, int]:
    return {name.upper(): knobs[name] for name in ("block_m", "block_n", "block_k", "group_m")}


def _sizes(case: Case) -> dict[str, int]:
    return {"M": case.M, "N": case.N, "K": case.K}


def _specialized(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    """A grouped product of one group: of b [1, N, K], with ends [1], which holds M."""
    from kernels._shared import rows_with_roles as roles

    def described(a: Any, w: torch.Tensor, c: torch.Tensor, ends: Any) -> dict[str, Any]:
        return roles.arguments(a, w[None], c, ends, True, knobs["block_n"], knobs["block_k"])

    if knobs["block_m"] != roles.BLOCK_M.value or knobs["num_warps"] != 4:
        tile = f"{knobs['block_m']} rows and {knobs['num_warps']} warps"
        raise ValueError(f"GEMM variant 'specialized' has tiles of 128 rows and num_warps 4, not {tile}")
    programs, cut = knobs["programs"] or units, {**knobs, "split": knobs["split_k"]}
    constants, scratch = roles.constants(1, True, cut, programs), roles.scratch(cut, programs)
    return Plan(roles.rows_with_roles, programs, {}, {}, constants, options, scratch, described)


def _split(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, slices = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["split_k"]
    tiles = -(-case.M // m) * -(-case.N // n)
    constants = {
        **_tile(knobs),
        "SPLIT_K": slices,
        "XCDS": knobs["xcds"],
        "TMA": knobs["tma"],
        "SWAP": knobs["swap"],
        "EVEN_K": case.K % k == 0,
        "AMD": "kpack" in options,
    }
    blocks = {"a": (m, k), "w": (n, k)} if knobs["tma"] else {}
    room = tiles * slices * m * n if slices > 1 else 1
    scratch = {"workspace": (torch.float32, (room,)), "arrivals": (torch.int32, (tiles,))}
    return Plan(device.split, tiles * slices, blocks, _sizes(case), constants, options, scratch)


def _vector(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    if case.M != 1:
        raise ValueError(f"GEMM variant 'vector' is for M = 1; the case {case.name} has M = {case.M}")
    n, k = knobs["block_n"], knobs["block_k"]
    constants = {"BLOCK_N": n, "BLOCK_K": k, "EVEN_K": case.K % k == 0}
    return Plan(device.vector, -(-case.N // n), {}, {"N": case.N, "K": case.K}, constants, options)


def build(case: Case, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]) -> Callable[[], torch.Tensor]:
    """A call that writes c [M, N]; output, descriptors, workspace and counters are made here, once."""
    p = plan(case, case.place.arch, compute_units(case, case.place.arch), knobs)
    c = torch.empty((case.M, case.N), dtype=a.dtype, device=a.device)
    if p.described:
        tensors = p.described(a, w, c, torch.tensor([case.M], dtype=torch.int32, device=a.device))
    else:
        tensors = passed({"a": a, "w": w, "c": c}, p.blocks)
    for name, (dtype, shape) in p.scratch.items():
        tensors[name] = torch.zeros(shape, dtype=dtype, device=a.device)
    launch, arguments = p.function[(p.programs,)], {**tensors, **p.sizes, **p.constants, **p.options}

    def call() -> torch.Tensor:
        launch(**arguments)
        return c

    return call


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch, for the device of the case, or the one that is assumed."""
    p = plan(case, arch, compute_units(case, arch), knobs)
    shapes = {"a": (case.M, case.K), "w": (case.N, case.K), "c": (case.M, case.N)}
    if p.described:
        meta = (torch.empty(shape, dtype=DTYPES[case.dtype], device="meta") for shape in shapes.values())
        arguments = p.described(*meta, ("*i32", (1,)))
    else:
        arguments = declared(case.dtype, shapes, p.blocks)
    pointers = {torch.float32: "*fp32", torch.int32: "*i32"}
    arguments |= {name: (pointers[dtype], shape) for name, (dtype, shape) in p.scratch.items()}
    every = {**arguments, **p.sizes}
    ordered = {name: every[name] for name in p.function.arg_names if name in every}
    return Compilation(p.function.__name__, p.function, ordered, p.constants, p.options, grid=(p.programs,))
