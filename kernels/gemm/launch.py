"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton
from triton import knobs as triton_knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels.gemm import device
from kernels.hardware import DEVICES
from kernels.numerics import DTYPES
from kernels.spec import Case, Compilation

INTERPRETED = bool(triton_knobs.runtime.interpret)
"""Whether the kernels run in Triton's interpreter, on CPU tensors."""

_AMD_OPTIONS = ("matrix_instr_nonkdim", "kpack", "waves_per_eu")


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers."""

    function: Any
    programs: int
    blocks: Mapping[str, tuple[int, int]]
    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    workspace: int = 0
    tiles: int = 1


def plan(case: Case, arch: str, compute_units: int, knobs: Mapping[str, Any]) -> Plan:
    """The launch of a case with all knobs given (as the backend's arguments are named)."""
    options = {"num_warps": knobs["num_warps"], "num_stages": knobs["num_stages"]}
    if arch.startswith("gfx"):
        options |= {name: knobs[name] for name in _AMD_OPTIONS}
    variants = {"persistent": _persistent, "specialized": _specialized, "split": _split, "vector": _vector}
    if knobs["variant"] not in variants:
        raise ValueError(f"GEMM variant {knobs['variant']!r}; known: {', '.join(variants)}")
    return variants[knobs["variant"]](case, compute_units, knobs, options)


def _persistent(case: Case, compute_units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, parts = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["parts"]
    tiles = -(-case.M // m) * -(-case.N // n)
    programs = min(knobs["programs"] or compute_units, tiles)
    blocks = {"a": (m, k), "w": (n, k)} | ({"c": (m, n // parts)} if parts else {})
    constants = {
        "PROGRAMS": programs,
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "GROUP_M": knobs["group_m"],
        "PARTS": parts,
        "FLATTEN": knobs["flatten"],
    }
    sizes = {"M": case.M, "N": case.N, "K": case.K}
    return Plan(device.persistent_tma, programs, blocks, sizes, constants, options, tiles=tiles)


def _specialized(case: Case, compute_units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    like = _persistent(case, compute_units, knobs, options)
    fixed = {name: value for name, value in like.constants.items() if name != "FLATTEN"}
    return dataclasses.replace(like, function=device.specialized, blocks={}, constants=fixed)


def _split(case: Case, compute_units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    m, n, k, slices = knobs["block_m"], knobs["block_n"], knobs["block_k"], knobs["split_k"]
    tiles = -(-case.M // m) * -(-case.N // n)
    constants = {
        "BLOCK_M": m,
        "BLOCK_N": n,
        "BLOCK_K": k,
        "GROUP_M": knobs["group_m"],
        "SPLIT_K": slices,
        "XCDS": knobs["xcds"],
        "TMA": knobs["tma"],
        "SWAP": knobs["swap"],
        "EVEN_K": case.K % k == 0,
        "AMD": "kpack" in options,
    }
    return Plan(
        device.split,
        tiles * slices,
        {"a": (m, k), "w": (n, k)} if knobs["tma"] else {},
        {"M": case.M, "N": case.N, "K": case.K},
        constants,
        options,
        workspace=tiles * slices * m * n if slices > 1 else 1,
        tiles=tiles,
    )


def _vector(case: Case, compute_units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    if case.M != 1:
        raise ValueError(f"GEMM variant 'vector' is for M = 1; the case {case.name} has M = {case.M}")
    n, k = knobs["block_n"], knobs["block_k"]
    constants = {"BLOCK_N": n, "BLOCK_K": k, "EVEN_K": case.K % k == 0}
    return Plan(device.vector, -(-case.N // n), {}, {"N": case.N, "K": case.K}, constants, options)


def build(
    case: Case, a: torch.Tensor, w: torch.Tensor, c: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that writes c [M, N]; descriptors, workspace and counters are made here, once."""
    p = plan(case, case.place.arch, case.place.compute_units or 1, knobs)
    tensors = {
        name: TensorDescriptor.from_tensor(t, list(p.blocks[name])) if name in p.blocks else t
        for name, t in (("a", a), ("w", w), ("c", c))
    }
    if p.workspace:
        tensors["workspace"] = torch.empty(p.workspace, dtype=torch.float32, device=a.device)
        tensors["arrivals"] = torch.zeros(p.tiles, dtype=torch.int32, device=a.device)
    launch, arguments = p.function[(p.programs,)], {**tensors, **p.sizes, **p.constants, **p.options}

    def call() -> torch.Tensor:
        launch(**arguments)
        return c

    def call_with_scratch() -> torch.Tensor:
        triton.set_allocator(_scratch)  # kept per thread context by Triton, so it is set where the launch happens
        return call()

    return call_with_scratch if p.function is device.specialized else call


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    """Memory for tensor descriptors that a kernel makes itself; the caching allocator hands it out by stream."""
    return torch.empty(size, dtype=torch.int8, device="cuda")


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch, for the largest device of the architecture."""
    units = max(d.compute_units for d in DEVICES if d.arch == arch)
    p = plan(case, arch, units, knobs)
    shapes = {"a": (case.M, case.K), "w": (case.N, case.K), "c": (case.M, case.N)}
    arguments = {name: _declared(case.dtype, size, p.blocks.get(name)) for name, size in shapes.items()}
    if p.workspace:
        arguments |= {"workspace": ("*fp32", (p.workspace,)), "arrivals": ("*i32", (p.tiles,))}
    return Compilation(p.function.__name__, p.function, {**arguments, **p.sizes}, p.constants, p.options)


def _declared(dtype: str, size: tuple[int, int], block: tuple[int, int] | None) -> Any:
    """An argument of a compilation: a pointer by its type, or a descriptor of a tensor without storage."""
    if block is None:
        return f"*{dtype}", size
    return TensorDescriptor.from_tensor(torch.empty(size, dtype=DTYPES[dtype], device="meta"), list(block))
