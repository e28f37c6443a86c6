"""Run by test_all_gather.py in processes with TRITON_INTERPRET=1: the push kernels on a CPU."""

from __future__ import annotations

from typing import Any

import torch

from kernels.all_gather import all_gather
from kernels.numerics import compare, normal, poison
from kernels.spec import Case, Place
from kernels.symmetric_heap import ALIGNMENT
from tests.kernels import gluon_shim
from tests.kernels.fake_ranks import FakeRanks

HEAP = 1 << 16


def shards(world: int, elements: int) -> list[torch.Tensor]:
    return [normal((elements,), "fp16", 10 + rank) for rank in range(world)]


GLUON = {"num_warps": 1, "rows": 8, "columns": 32, "width": 0, "vector": 16}
"""The smallest tile with 16 bytes a lane."""


def calls(
    world: int, elements: int, backend: str = "triton", **knobs: object
) -> tuple[list[torch.Tensor], list, FakeRanks]:
    """The built call of every fake rank; waiting is left out, since the ranks run one after the other."""
    ranks, data = FakeRanks(world, HEAP), shards(world, elements)
    launch = launcher(backend)
    built = []
    for heap in ranks.heaps:
        case = Case("t", world=world, dtype="fp16", MB=0).at(Place(rank=heap.rank, world=world, heap=heap))
        out = heap.alloc((world * elements,), torch.float16)
        given = {
            "num_warps": 1,
            "unroll": 1,
            "fanout": 0,
            "load": "",
            "store": "",
            "wait": False,
            "staged": 0,
            "ahead": True,
            **(GLUON if backend == "gluon" else {}),
            **knobs,
        }
        built.append(launch.build(case, heap, data[heap.rank], out, given))
    return data, built, ranks


def launcher(backend: str) -> Any:
    """The module that launches a backend."""
    if backend == "gluon":
        with gluon_shim.installed():
            from kernels.all_gather import gluon_launch
        return gluon_launch
    from kernels.all_gather import launch

    return launch


def gathers(world: int, elements: int, backend: str, knobs: dict[str, object]) -> None:
    """Some calls of every rank, one after the other: each gathers exactly, and writes all of a poisoned output.

    Forwards, then backwards: a rank that writes past its part spoils that of the next, which has had its call.  A rank
    takes what is staged in its own call, where parts of later ranks are still those of two calls before.
    """
    data, built, _ = calls(world, elements, backend, **knobs)
    if knobs.get("staged"):
        for call in [*built, *built]:
            call()
    for turn in (1, -1):
        outputs = [call() for call in built[::turn]]
        for rank, out in enumerate(outputs[::turn]):
            found = compare(out, torch.cat(data), all_gather.tolerance)
            assert found.ok, (world, elements, knobs, turn, rank, found.why)
            poison(out)


def triton() -> None:
    """The push, its flags, and what is seen while a rank is missing."""
    fake_ranks()
    flags_count_calls()
    one_rank_is_missing()


def gluon() -> None:
    """The same of the port: tiles, flags, a missing rank."""
    gluon_tiles()
    flags_count_calls("gluon")
    one_rank_is_missing("gluon")


def fake_ranks() -> None:
    """1, 2, 4 and 8 ranks, shards that are no multiple of a block, every fan-out: exactly the concatenation."""
    for world, elements, knobs in (
        (1, 264, {"programs": 2}),
        (2, 1000, {"programs": 3}),
        (4, 1032, {"programs": 2}),
        (4, 512, {"programs": 4, "fanout": 1}),
        (4, 520, {"programs": 4, "fanout": 2}),
        (8, 264, {"programs": 8, "fanout": 2, "unroll": 2}),
        (2, 1000, {"programs": 1, "staged": 1}),
        (4, 1032, {"programs": 4, "fanout": 2, "staged": 1}),
        (4, 1032, {"programs": 2, "staged": 99}),
        (2, 1000, {"programs": 3, "ahead": False}),
        (2, 1000, {"programs": 3, "guarded": False}),
    ):
        gathers(world, elements, "triton", knobs)


def partitioned() -> None:
    """Groups of programs with one destination each, both ways to form them."""
    from kernels.all_gather import launch

    for world, programs, order, staged in ((2, 6, "blocked", 0), (4, 8, "blocked", 1), (4, 4, "interleaved", 9)):
        chosen = launch.partitioned(world, {"programs": programs, "order": order, "staged": staged})
        gathers(world, 520, "triton", chosen)


def gluon_tiles() -> None:
    """Tiles that stick out of the shard, in rows and at its end; long and short runs; more programs than tiles."""
    for world, elements, knobs in (
        (1, 264, {"programs": 2}),
        (2, 1000, {"programs": 3}),
        (4, 1032, {"programs": 2}),
        (4, 2048, {"programs": 4, "width": 128}),
        (4, 1160, {"programs": 3, "width": 64}),
        (2, 4104, {"programs": 2, "rows": 16, "vector": 0, "fanout": 1}),
        (4, 520, {"programs": 4, "fanout": 2, "columns": 256, "rows": 1}),
        (2, 520, {"programs": 1, "vector": 4}),
        (2, 264, {"programs": 5}),
    ):
        gathers(world, elements, "gluon", knobs)


def flags_count_calls(backend: str = "triton") -> None:
    """Nothing is reset between calls: after n calls of all ranks every program's flags read 2 n on every rank.

    One for the start and one for the end; n where all is staged, and where nothing is guarded.
    """
    for knobs, each in (({}, 2), *((({"staged": 9}, 1), ({"guarded": False}, 1)) if backend == "triton" else ())):
        world, programs = 4, 3
        _, built, ranks = calls(world, 256, backend, programs=programs, **knobs)
        words = world * programs
        for n in (1, 2, 3):
            for call in built:
                call()
            for heap in ranks.heaps:
                start = HEAP - heap.left - ALIGNMENT  # the flags are the last allocation
                flags = ranks.view(heap.rank)[start : start + 4 * words].view(torch.int32)
                assert flags.tolist() == [each * n] * words, (n, heap.rank, flags.tolist())


def one_rank_is_missing(backend: str = "triton") -> None:
    """While rank 1 has not called, its flags on the others stay behind: a waiting kernel would still wait."""
    _, built, ranks = calls(2, 256, backend, programs=2)
    built[0]()
    flags = [ranks.view(rank)[1024 : 1024 + 16].view(2, 8).view(torch.int32) for rank in (0, 1)]
    assert flags[0].tolist() == [[2, 2], [0, 0]]
    assert flags[1].tolist() == [[2, 2], [0, 0]]
