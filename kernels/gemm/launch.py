"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import torch
import triton

from kernels._shared.tile_launch import Blocks, compiler_options, declared, passed
from kernels._shared.units import compute_units
from kernels.gemm import device
from kernels.spec import Case, Compilation


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers."""

    function: Any
    programs: int
    blocks: Blocks
    sizes: Mapping[str, int]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    workspace: int = 0
    tiles: int = 1


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
    return Plan(device.persistent_tma, programs, blocks, _sizes(case), constants, options, tiles=tiles)


def _tile(knobs: Mapping[str, Any]) -> dict[str, int]:
    return {name.upper(): knobs[name] for name in ("block_m", "block_n", "block_k", "group_m")}


def _sizes(case: Case) -> dict[str, int]:
    return {"M": case.M, "N": case.N, "K": case.K}


def _specialized(case: Case, units: int, knobs: Mapping[str, Any], options: dict[str, Any]) -> Plan:
    like = _persistent(case, units, knobs, options)
    fixed = {name: value for name, value in like.constants.items() if name != "FLATTEN"}
    return dataclasses.replace(like, function=device.specialized, blocks={}, constants=fixed)


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
    return Plan(device.split, tiles * slices, blocks, _sizes(case), constants, options, workspace=room, tiles=tiles)


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
    tensors = passed({"a": a, "w": w, "c": c}, p.blocks)
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
    """The ahead-of-time compilation of the same launch, for the device of the case, or the one that is assumed."""
    p = plan(case, arch, compute_units(case, arch), knobs)
    shapes = {"a": (case.M, case.K), "w": (case.N, case.K), "c": (case.M, case.N)}
    arguments = declared(case.dtype, shapes, p.blocks)
    if p.workspace:
        arguments |= {"workspace": ("*fp32", (p.workspace,)), "arrivals": ("*i32", (p.tiles,))}
    every = {**arguments, **p.sizes}
    return Compilation(p.function.__name__, p.function, every, p.constants, p.options, grid=(p.programs,))
