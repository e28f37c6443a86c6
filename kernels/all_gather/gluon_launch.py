"""From knobs to a launch of the Gluon kernel; what it shares with the Triton kernel is in launch.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from kernels._shared.collectives.config import lanes
from kernels.all_gather.gluon_device import push_tiles
from kernels.all_gather.launch import WORD, call_of, compilation_of, shard_words, shared_constants, words_of
from kernels.spec import Case, Compilation
from kernels.symmetric_heap import SymmetricHeap


def constants(case: Case, words: int, arch: str, knobs: Mapping[str, Any]) -> dict[str, Any]:
    """The constants of a launch for a shard of that many words; ValueError names the knobs that do not fit."""
    shared = shared_constants(case.world, words, arch, knobs)
    rows, columns, width = _tile(int(case.itemsize), knobs)
    vector = _vector(rows * columns * WORD, arch, knobs)
    return {
        **shared,
        "ROWS": rows,
        "COLUMNS": columns,
        "WIDTH": width,
        "VECTOR": vector // WORD,
        "THREADS": lanes(arch, 1),
        "WARPS": knobs["num_warps"],
        "EVEN": words % (rows * width) == 0,
    }


def _tile(itemsize: int, knobs: Mapping[str, Any]) -> tuple[int, int, int]:
    """Rows of a tile, and its columns and the matrix's in words."""
    rows, columns = knobs["rows"], knobs["columns"]
    width = knobs["width"] or columns
    for name, value in (("rows", rows), ("columns", columns), ("num_warps", knobs["num_warps"])):
        if value < 1 or value & (value - 1):
            raise ValueError(f"all-gather gluon: {name} is {value}, a layout needs a power of two")
    if columns * itemsize % WORD:
        raise ValueError(f"all-gather gluon: columns {columns} of {itemsize} bytes are not a multiple of {WORD} bytes")
    if width % columns:
        raise ValueError(f"all-gather gluon: columns {columns} of a tile do not divide the matrix's width {width}")
    return rows, columns * itemsize // WORD, width * itemsize // WORD


def _vector(tile: int, arch: str, knobs: Mapping[str, Any]) -> int:
    """Contiguous bytes of a lane; ValueError unless the tile of that many bytes is divided evenly among all lanes."""
    threads = lanes(arch, knobs["num_warps"])
    vector = knobs["vector"] or tile // threads
    if vector < WORD or vector & (vector - 1) or tile % (vector * threads):
        raise ValueError(
            f"all-gather gluon: a tile of {knobs['rows']} x {knobs['columns']} is {tile} bytes, which a "
            f"layout of {threads} lanes with {vector} contiguous bytes each does not divide; vector must "
            f"be a power of two of at least {WORD} bytes (0: all of a lane's bytes in one run)"
        )
    return vector


def build(
    case: Case, heap: SymmetricHeap, shard: torch.Tensor, out: torch.Tensor, knobs: Mapping[str, Any]
) -> Callable[[], torch.Tensor]:
    """A call that pushes shard into out of every rank; a collective: all ranks build with the same knobs."""
    fixed = constants(case, words_of(shard), case.place.arch, knobs)
    return call_of(push_tiles, fixed, case, heap, shard, out, knobs)


def compilation(case: Case, arch: str, knobs: Mapping[str, Any]) -> Compilation:
    """The ahead-of-time compilation of the same launch."""
    return compilation_of(push_tiles, constants(case, shard_words(case), arch, knobs), case, knobs)
