"""From knobs to a launch: one plan serves the timed call and the ahead-of-time compilation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from triton import knobs as triton_knobs
from triton.tools.tensor_descriptor import TensorDescriptor

from kernels._shared.tile_launch import Blocks, compiler_options, declared, passed
from kernels.gemm_all_scatter import device
from kernels.gemm_all_scatter.config import tiles
from kernels.hardware import compute_units, lds_limit
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap

INTERPRETED = bool(triton_knobs.runtime.interpret)
"""Whether the kernels run in Triton's interpreter, on CPU tensors."""

SCATTERS = ("store", "put", "tma")
"""How a tile reaches the ranks: from registers, read back from this rank's output, or by the copy engine."""

CUTS = ("all", "rest")
"""Which tiles are cut into split_k slices: all of them, or those left over by the whole rounds of programs."""

_MOST_RANKS = 8


@dataclasses.dataclass(frozen=True)
class Plan:
    """What is launched.  blocks: tensor descriptors by parameter, with their block; other tensors are pointers.

    workspace: fp32 partial sums, counters: int32, both for the tiles that are cut, and at least one.
    """

    function: Any
    programs: int
    blocks: Blocks
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    workspace: int = 1
    counters: int = 1


def plan(case: Case, arch: str, units: int, knobs: Mapping[str, Any]) -> Plan:
    """The launch of a case on so many compute units, all knobs given (as the backend's arguments are named).

    ValueError names knobs that cannot work: an unknown scatter or cut, the copy engine where there is none, a tile
    whose operands alone exceed the LDS.
    """
    _refuse(case, arch, knobs)
    tile = (knobs["block_m"], knobs["block_n"])
    count = tiles(case, *tile)
    programs, slices, left = shares(count, units, knobs)
    options, common = compiler_options(arch, knobs), _common_constants(case, programs, knobs)
    operands = {"a": (knobs["block_m"], knobs["block_k"]), "w": (knobs["block_n"], knobs["block_k"])}
    if knobs["scatter"] == "tma":
        blocks = operands | {f"c{i}": (tile[0], tile[1] // knobs["parts"]) for i in range(_MOST_RANKS)}
        constants = {**common, "PARTS": knobs["parts"], "FLATTEN": knobs["flatten"], "ENGINE": not INTERPRETED}
        return Plan(device.fused_tma, programs, blocks, constants, options)
    constants = {**common, **_fused_constants(case, arch, knobs), "SPLIT_K": slices, "REST": left > 0}
    cut = left or count
    room = {"workspace": cut * slices * math.prod(tile), "counters": cut} if slices > 1 else {}
    return Plan(device.fused, programs, operands if knobs["tma"] else {}, constants, options, **room)


def _common_constants(case: Case, programs: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of both fused kernels."""
    tile = {name.upper(): knobs[name] for name in ("block_m", "block_n", "block_k", "group_m")}
    lanes = 1 << (case.world - 1).bit_length()
    peers = case.world > 1  # one rank alone meets nobody
    meeting = {"MEET": peers and knobs.get("guarded", True), "WAIT": peers and knobs["wait"]}
    return {**tile, "PROGRAMS": programs, "WORLD": case.world, "LANES": lanes, **meeting}


def _fused_constants(case: Case, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of the kernel that stores by pointers."""
    return {
        "XCDS": knobs["xcds"],
        "TMA": knobs["tma"],
        "SWAP": knobs["swap"],
        "EVEN_K": case.K % knobs["block_k"] == 0,
        "PUT": knobs["scatter"] == "put",
        "ALIGN": 16 if knobs["hint"] else int(case.itemsize),
        "AMD": arch.startswith("gfx"),
    }


def shares(count: int, units: int, knobs: Mapping[str, Any]) -> tuple[int, int, int]:
    """(programs, slices of a cut tile, tiles left over by whole rounds) for `count` tiles; 0 left over: all are cut.

    Where cut "rest" finds whole rounds and nothing else, nothing is cut; where it finds no whole round, all is.
    """
    programs, slices = knobs["programs"] or units, knobs["split_k"]
    if knobs["cut"] == "all" or slices == 1 or programs > count:
        return min(programs, count * slices), slices, 0
    left = count % programs
    return programs, slices if left else 1, left


def _refuse(case: Case, arch: str, knobs: Mapping[str, Any]) -> None:
    """ValueError for knobs that cannot work for the case or the architecture."""
    for name, known in (("scatter", SCATTERS), ("cut", CUTS)):
        if knobs[name] not in known:
            raise ValueError(f"gemm_all_scatter: {name} {knobs[name]!r} is not one of {', '.join(known)}")
    if arch.startswith("gfx") and (knobs["tma"] or knobs["scatter"] == "tma"):
        raise ValueError(f"gemm_all_scatter: tma needs a copy engine, {arch} has none; load and store by pointers")
    if knobs["scatter"] == "tma":
        _refuse_for_the_copy_engine(case, knobs)
    if case.M * case.N >= 1 << 31:
        raise ValueError(f"gemm_all_scatter: {case.M} x {case.N} elements do not fit offsets of 31 bits")
    if arch != "cpu":
        _refuse_too_large(case, arch, knobs)


def _refuse_for_the_copy_engine(case: Case, knobs: Mapping[str, Any]) -> None:
    if knobs["split_k"] > 1 or knobs["cut"] != "all" or knobs["swap"]:
        raise ValueError(
            "gemm_all_scatter: scatter 'tma' works on whole, upright tiles: split_k 1, cut 'all' and no swap; "
            f"given were split_k {knobs['split_k']}, cut {knobs['cut']!r} and swap {knobs['swap']}"
        )
    if case.N // case.world * int(case.itemsize) % 16:
        raise ValueError(
            f"gemm_all_scatter: scatter 'tma' needs columns of a multiple of 16 bytes per rank, "
            f"{case.N} / {case.world} of {case.dtype} are not"
        )


def _refuse_too_large(case: Case, arch: str, knobs: Mapping[str, Any]) -> None:
    needed, limit = least_lds(arch, knobs, case.itemsize), lds_limit(arch)
    if needed > limit:
        raise ValueError(
            f"gemm_all_scatter: tiles {knobs['block_m']} x {knobs['block_n']} x {knobs['block_k']} in "
            f"{knobs['num_stages']} stages need at least {needed} bytes of LDS (shared memory), {arch} "
            f"has {limit} for a workgroup; take smaller tiles or fewer stages"
        )


def least_lds(arch: str, knobs: Mapping[str, Any], itemsize: float) -> int:
    """Bytes of LDS that the operands' buffers take at the least; on AMD one stage may stay in registers."""
    buffers = max(1, knobs["num_stages"] - (1 if arch.startswith("gfx") else 0))
    return int((knobs["block_m"] + knobs["block_n"]) * knobs["block_k"] * itemsize) * buffers


def build(
    case: Case, heap: SymmetricHeap, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that writes the columns of this rank to the output of every rank; all ranks build with the same knobs.

    Output, descriptors, workspace and counters are made here, once.
    """
    p = plan(case, case.place.arch, compute_units(case, case.place.arch), knobs)
    out = heap.alloc((case.M, case.N), a.dtype)
    columns = case.N // case.world
    tensors = passed({"a": a, "w": w}, p.blocks)
    if p.function is device.fused_tma:
        tensors |= _destinations(case, heap, out, columns, list(p.blocks["c0"]))
    else:
        workspace = torch.empty(p.workspace, dtype=torch.float32, device=a.device)
        arrivals = torch.zeros(p.counters, dtype=torch.int32, device=a.device)
        tensors |= {"out": out, "workspace": workspace, "arrivals": arrivals}
    shared = {"bases": heap.bases, "signals": heap.signals(case.world, p.programs), "rank": case.place.rank}
    arguments = {**tensors, **shared, "M": case.M, "N": columns, "K": case.K, **p.constants, **p.options}
    launch = p.function[(p.programs,)]

    def call() -> torch.Tensor:
        launch(**arguments)
        return out

    return call


def _destinations(
    case: Case, heap: SymmetricHeap, out: torch.Tensor, columns: int, block: list[int]
) -> dict[str, TensorDescriptor]:
    """Descriptors of this rank's columns in the output of rank, rank + 1, ...; those past the world repeat."""
    rank, found = case.place.rank, {}
    for i in range(_MOST_RANKS):
        peer = heap.peer((rank + i) % case.world, out)[:, rank * columns : (rank + 1) * columns]
        found[f"c{i}"] = TensorDescriptor(peer, list(peer.shape), list(peer.stride()), block)
    return found


def build_bulk(
    case: Case, heap: SymmetricHeap, a: torch.Tensor, w: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call in bulk-synchronous steps: the library's GEMM, a barrier of all ranks, one kernel that scatters."""
    columns = case.N // case.world
    row = columns * int(case.itemsize) // 4
    if columns * int(case.itemsize) % 16:
        raise ValueError(
            f"gemm_all_scatter: bulk moves 16 bytes at a time, rows of {columns} {case.dtype} are not a multiple"
        )
    out = heap.alloc((case.M, case.N), a.dtype)
    local, transposed = torch.empty((case.M, columns), dtype=a.dtype, device=a.device), w.T
    launch, constants = device.scatter[(knobs["programs"],)], bulk_constants(case, case.place.arch, row, knobs)
    arguments = {
        "c": local.view(torch.int32),
        "out": out.view(torch.int32),
        "bases": heap.bases,
        "signals": heap.signals(case.world, knobs["programs"]),
        "words": case.M * row,
        "rank": case.place.rank,
        **constants,
        "num_warps": knobs["num_warps"],
    }

    def call() -> torch.Tensor:
        torch.mm(a, transposed, out=local)
        if knobs["barrier"]:
            heap.barrier()
        launch(**arguments)
        return out

    return call


def bulk_constants(case: Case, arch: str, row: int, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of the scattering kernel; row: 4-byte words of a rank's row."""
    lanes = knobs["num_warps"] * (64 if arch.startswith("gfx") else 32)
    return {
        "ROW": row,
        "PROGRAMS": knobs["programs"],
        "BLOCK": lanes * 4 * knobs["unroll"],
        "WORLD": case.world,
        "LANES": 1 << (case.world - 1).bit_length(),
        "AMD": arch.startswith("gfx"),
        "WAIT": knobs["wait"],
    }


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the fused launch, for the device of the case, or the one that is assumed.

    The code is the same for all ranks; 3 stands for any.
    """
    p = plan(case, arch, compute_units(case, arch), knobs)
    columns = case.N // case.world
    operands = {"a": (case.M, case.K), "w": (columns, case.K)}
    arguments: dict[str, Any]
    if p.function is device.fused_tma:
        outputs = {f"c{i}": (case.M, columns) for i in range(_MOST_RANKS)}
        arguments = declared(case.dtype, operands | outputs, p.blocks)
    else:
        arguments = declared(case.dtype, operands | {"out": (case.M, case.N)}, p.blocks)
        arguments |= {"workspace": ("*fp32", (p.workspace,)), "arrivals": ("*i32", (p.counters,))}
    arguments |= {"bases": ("*i64", (case.world,)), "signals": ("*i32", (case.world, p.programs))}
    arguments |= {"M": case.M, "N": columns, "K": case.K, "rank": 3}
    return Compilation(p.function.__name__, p.function, arguments, p.constants, p.options, grid=(p.programs,))


def bulk_compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the scattering kernel of the bulk-synchronous variant."""
    row = case.N // case.world * int(case.itemsize) // 4
    arguments = {
        "c": ("*i32", (case.M, row)),
        "out": ("*i32", (case.M, row * case.world)),
        "bases": ("*i64", (case.world,)),
        "signals": ("*i32", (case.world, knobs["programs"])),
        "words": case.M * row,
        "rank": 3,
    }
    constants = bulk_constants(case, arch, row, knobs)
    options, grid = {"num_warps": knobs["num_warps"]}, (knobs["programs"],)
    return Compilation("scatter", device.scatter, arguments, constants, options, grid=grid)
