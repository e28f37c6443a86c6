"""Our kernels on a CPU, in Triton's interpreter: all ranks of a world in turn against the reference, tails included.

Run by test_operators.py in processes with TRITON_INTERPRET=1; two small kernels are for other tests.
"""

from __future__ import annotations

import contextlib
import importlib
import types

import torch
import triton
import triton.language as tl
from triton.experimental import gluon as gluon_package

from kernels._shared.tile_product import spread
from kernels.moe_gemm2_mxfp4 import device
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, Place, Tolerance
from kernels.symmetric_heap import ALIGNMENT
from tests.kernels.ranks import FakeRanks

# Gluon's language for Triton's interpreter, which knows none: layouts are dropped, the rest is Triton's own.  It serves
# kernels that only load, store, compute and use atomics.  What a layout does to speed, and that a tile fits it, is not
# seen here: the compiler checks that (test_compiled.py).


class Language(types.ModuleType):
    """triton.experimental.gluon.language; names are looked up late, when the interpreter has put its own in place."""

    constexpr = tl.constexpr

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(tl, name)

    @staticmethod
    def arange(start, end, layout=None):
        return tl.arange(start, end)

    @staticmethod
    def full(shape, value, dtype, layout=None):
        return tl.full(shape, value, dtype)

    @staticmethod
    def barrier():
        tl.debug_barrier()

    @staticmethod
    def BlockedLayout(*parts):
        return parts


def gluon_jit(function=None, **options):
    """gluon.jit; the interpreter looks for triton.language in a function's globals, and for its constexpr."""
    if function is None:
        return lambda given: gluon_jit(given, **options)
    function.__globals__.setdefault("tl", tl)
    kernel = triton.jit(function, **options)
    kernel.rewrite().__annotations__ = dict.fromkeys(function.__annotations__, "tl.constexpr")
    return kernel


@contextlib.contextmanager
def gluon_installed():
    """Kernels that are imported inside take the shim for Gluon."""
    originals = gluon_package.jit, gluon_package.language
    gluon_package.jit, gluon_package.language = gluon_jit, Language("language")
    try:
        yield
    finally:
        gluon_package.jit, gluon_package.language = originals


with gluon_installed():
    importlib.import_module("kernels.all_gather.gluon_device")

KERNELS = discover().kernels
HEAP = 1 << 18
LIGHT = {"num_warps": 1, "unroll": 1, "wait": False}
"""Small blocks, and no waiting: the ranks run one after the other."""

PUSHES = ("two_shot_push", "one_shot_push", "push", "push_chunks")
"""Algorithms in which a rank finds parts of later ranks that are still those of the calls before."""


def built(name, world, dims, backend="triton", dtype="fp16", **knobs):
    """The ranks, the call of each and what it should give.  A share of a world (`of`) gets no heap."""
    kernel, ranks, calls, expected = KERNELS[name], FakeRanks(world, HEAP), [], []
    build = kernel.backends[backend].build
    chosen = {**{key: value for key, value in LIGHT.items() if key in build.__kwdefaults__}, **knobs}
    for heap in ranks.heaps:
        place = Place(heap.rank, world, compute_units=3, heap=None if "of" in dims else heap)
        case = Case("t", world=world, dtype=dtype, **dims).at(place)
        inputs = kernel.function("inputs")(case, 7)
        calls.append(build(case, inputs, **chosen))
        expected.append(kernel.function("reference")(case, inputs))
    return ranks, calls, expected


def right(name, world, dims, dtype="fp16", **given):
    """Two rounds of calls write all of their poisoned outputs rightly; fp32 sums have the very bits of the reference.

    Forwards, then backwards: a rank that writes past its part spoils that of the next, which has had its call.
    """
    _, calls, expected = built(name, world, dims, dtype=dtype, **given)
    tolerance = Tolerance() if dtype == "fp32" else KERNELS[name].tolerance_for(Case("t", dtype=dtype))
    if given.get("staged") or given.get("algorithm") in PUSHES:
        for call in [*calls, *calls]:
            call()
    for turn in (1, -1):
        outputs = [call() for call in calls[::turn]][::turn]
        for rank, (out, wanted) in enumerate(zip(outputs, expected, strict=True)):
            found = compare(out, wanted, tolerance)
            assert found.ok, (name, world, dims, given, turn, rank, found.why)
            poison(out)


# ---- all-gather ------------------------------------------------------------------------------------------------------


def shards(world, elements):
    """The size of an all-gather of shards of so many fp16 elements."""
    return {"MB": world * elements * 2 / 2**20}


def all_gather():
    """Shards that are no multiple of a block, every fan-out, all ways to guard; groups with one destination each."""
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
        (2, 520, {"programs": 6, "order": "blocked", "backend": "partitioned"}),
        (4, 520, {"programs": 8, "order": "blocked", "staged": 1, "backend": "partitioned"}),
        (4, 520, {"programs": 4, "order": "interleaved", "staged": 9, "backend": "partitioned"}),
    ):
        right("all_gather", world, shards(world, elements), **knobs)
    flags_count_calls({}, 2)
    flags_count_calls({"staged": 9}, 1)
    one_rank_is_missing()


GLUON = {"backend": "gluon", "num_warps": 1, "rows": 8, "columns": 32}
"""The smallest tile with 16 bytes a lane."""


def gluon():
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
        right("all_gather", world, shards(world, elements), **{**GLUON, **knobs})
    flags_count_calls(GLUON, 2)
    one_rank_is_missing(**GLUON)


def flags_count_calls(knobs, each):
    """Nothing is reset between calls: after n calls of all ranks every program's flags read `each` * n on every rank.

    One for the start and one for the end; one where all is staged.
    """
    ranks, calls, _ = built("all_gather", 4, shards(4, 256), programs=3, **knobs)
    for n in (1, 2, 3):
        for call in calls:
            call()
        for heap in ranks.heaps:
            start = HEAP - heap.left - ALIGNMENT  # the flags are the last allocation
            flags = ranks.view(heap.rank)[start : start + 48].view(torch.int32)
            assert flags.tolist() == [each * n] * 12, (knobs, n, heap.rank, flags.tolist())


def one_rank_is_missing(**knobs):
    """While rank 1 has not called, its flags on the others stay behind: a waiting kernel would still wait."""
    ranks, calls, _ = built("all_gather", 2, shards(2, 256), programs=2, **knobs)
    calls[0]()
    for rank in (0, 1):
        assert ranks.view(rank)[1024:1040].view(torch.int32).tolist() == [2, 2, 0, 0]


# ---- the other collectives -------------------------------------------------------------------------------------------


def collectives():
    """Every algorithm and grouping of receivers, whole blocks and tails."""
    for algorithm in ("two_shot", "two_shot_push", "one_shot_push", "one_shot_pull"):
        for world, kb, dtype in ((1, 1.5, "fp16"), (4, 2.0625, "fp16"), (4, 2, "fp32")):
            right("all_reduce", world, {"KB": kb}, dtype, algorithm=algorithm, programs=2)
    right("all_reduce", 8, {"KB": 8.125}, "fp32", algorithm="two_shot", programs=1, unroll=2)
    right("all_reduce", 8, {"KB": 8.125}, "fp32", algorithm="two_shot_push", programs=3, ahead=1)
    for algorithm in ("pull", "push", "push_chunks"):
        for world, kb, dtype in ((1, 1.5, "fp16"), (4, 4.0625, "fp16"), (4, 2, "fp32")):
            right("reduce_scatter", world, {"KB": kb}, dtype, algorithm=algorithm, programs=2)
    right("reduce_scatter", 8, {"KB": 8.125}, "fp32", algorithm="pull", programs=1, unroll=2)
    for world, kb, groups in ((1, 1.5, 1), (2, 4, 2), (4, 4.0625, 2), (8, 8, 1)):
        for staged in (0, 1, 9):
            right("all_to_all", world, {"KB": kb}, groups=groups, programs=2 * groups, staged=staged)


# ---- products --------------------------------------------------------------------------------------------------------

TILE = {"block_m": 32, "block_n": 32, "block_k": 32}


def gemm():
    """Slices and tails, descriptors, one token, counters."""
    for m, n, k, knobs in (
        (33, 70, 136, {}),
        (33, 70, 136, {"split_k": 2, "xcds": 4, "group_m": 2}),
        (33, 64, 128, {"block_m": 16, "block_n": 64, "split_k": 4, "swap": True}),
        (5, 64, 96, {"block_m": 16, "block_k": 64, "split_k": 2}),
        (40, 72, 136, {"split_k": 2, "tma": True}),
        (16, 72, 136, {"block_m": 16, "block_n": 64, "block_k": 64, "split_k": 1, "tma": True, "swap": True}),
        *((70, 96, 136, {"variant": "persistent", "parts": p, "flatten": p != 2, "group_m": 2}) for p in (0, 1, 2, 4)),
        (1, 70, 200, {"variant": "vector", "block_n": 8, "block_k": 64}),
        (1, 64, 256, {"variant": "vector", "block_n": 16, "block_k": 128}),
    ):
        right("gemm", 1, {"M": m, "N": n, "K": k}, **{"variant": "split", **TILE, **knobs})
    counters_clear_themselves()


def counters_clear_themselves():
    """The slice that finishes a tile leaves its counter at 0: seen from the workspace of a built call."""
    _, [call], _ = built("gemm", 1, {"M": 32, "N": 64, "K": 128}, variant="split", **TILE, split_k=4)
    arguments = next(cell.cell_contents for cell in call.__closure__ or () if isinstance(cell.cell_contents, dict))
    for _ in range(3):
        call()
        assert arguments["arrivals"].tolist() == [0, 0]
    arguments["arrivals"][0] = 1  # as if the call before had not cleared it
    poison(arguments["workspace"])
    early = call().clone()
    assert early[:, :32].isnan().all(), "a counter that was not cleared goes unseen"


SMALL = {**TILE, "programs": 3, "group_m": 2}


def gemm_all_scatter():
    """Tails and slices; descriptors for loads, and for stores to every rank; rounds of whole tiles of which only the
    rest is cut; bulk; a share alone, without a heap and with the waiting in."""
    rest = {"cut": "rest"}
    for world, m, n, k, knobs in (
        (1, 33, 70, 136, {}),
        (2, 33, 70, 136, {"scatter": "put", "hint": False}),
        (2, 33, 144, 136, {"split_k": 2, "xcds": 2}),
        (4, 40, 160, 136, {"programs": 2, "split_k": 3, "scatter": "put"}),
        (8, 5, 128, 64, {"block_m": 16, "block_n": 16, "swap": True}),
        (2, 1, 80, 200, {"block_m": 16, "block_n": 64, "swap": True, "split_k": 4}),
        (2, 40, 144, 136, {"tma": True}),
        (2, 16, 144, 136, {"block_m": 16, "tma": True, "swap": True, "split_k": 2}),
        (2, 40, 80, 136, {"tma": True, "scatter": "tma", "parts": 2, "flatten": False}),
        (8, 40, 320, 136, {"tma": True, "scatter": "tma", "parts": 1, "flatten": True}),
        (1, 33, 70, 136, {**rest, "programs": 4, "split_k": 2}),
        (1, 100, 70, 136, {**rest, "programs": 5, "split_k": 5}),
        (2, 100, 144, 136, {**rest, "programs": 5, "split_k": 3, "scatter": "put", "xcds": 2}),
        (2, 100, 144, 72, {**rest, "programs": 7, "split_k": 2, "tma": True}),
        (4, 70, 160, 136, {**rest, "programs": 4, "split_k": 4, "tma": True, "scatter": "put"}),
        (4, 40, 160, 136, {**rest, "split_k": 3, "swap": True}),
    ):
        if "cut" in knobs:
            the_rest_is_cut(world, m, n, k, {**SMALL, **knobs})
        right("gemm_all_scatter", world, {"M": m, "N": n, "K": k}, **{**SMALL, **knobs})
    for world, m, n, knobs in (
        (2, 33, 80, {}),
        (4, 5, 160, {"programs": 3, "unroll": 2, "barrier": False}),
        (1, 3, 48, {}),
    ):
        right("gemm_all_scatter", world, {"M": m, "N": n, "K": 40}, backend="bulk", **{"programs": 2, **knobs})
    share = {"M": 33, "N": 70, "K": 136, "of": 4}
    right("gemm_all_scatter", 1, share, **SMALL, wait=True, split_k=2, scatter="put")
    right("gemm_all_scatter", 1, share, **SMALL, wait=True, tma=True)
    a_missing_rank_shows()


def the_rest_is_cut(world, m, n, k, knobs):
    from kernels.gemm_all_scatter import device

    case = Case("t", world=world, M=m, N=n, K=k).at(Place(world=world, compute_units=3))
    defaults = KERNELS["gemm_all_scatter"].backends["triton"].build.__kwdefaults__
    assert device.plan(case, "cpu", 3, {**defaults, **knobs}).constants["REST"], (world, m, n, k, knobs)


def a_missing_rank_shows():
    """While rank 1 has not called, its columns stay poisoned everywhere: nobody computes them in its place."""
    ranks, calls, _ = built("gemm_all_scatter", 2, {"M": 32, "N": 64, "K": 64}, **SMALL)
    outputs = [poison(ranks.view(rank)[: 32 * 64 * 2].view(torch.float16).view(32, 64)) for rank in (0, 1)]
    calls[0]()
    for out in outputs:
        assert not out[:, :32].isnan().any()
        assert out[:, 32:].isnan().all()


# ---- for other tests -------------------------------------------------------------------------------------------------


@triton.jit
def numbers(found, programs, XCDS: tl.constexpr):
    """found[program]: its new number."""
    pid = tl.program_id(0)
    tl.store(found + pid, spread(pid, programs, XCDS))


@triton.jit
def decoded(words, scales, weights, activations, C: tl.constexpr):
    """What the matrix units of gfx942 get, decoded as a weight and as a row: the bf16 bits of two codes.

    Those in byte 0 of each of C words, [2 C]; scales: fields of weights, e8m0 of rows.
    """
    at = tl.arange(0, C)[None, :]
    word, scale = tl.load(words + at), tl.load(scales + at)
    places = tl.arange(0, 2 * C)[None, :]
    found = device._values(device._spread_plain(word, 0), device._factors(scale, False), False, tl.bfloat16)
    tl.store(weights + places, found.to(tl.int16, bitcast=True))
    found = device._activations(word, scale, 0, False, tl.bfloat16)
    tl.store(activations + places, found.to(tl.int16, bitcast=True))
