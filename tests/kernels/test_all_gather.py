"""The declaration is complete; CPU backends gather exactly; the push kernels do so in the interpreter, and compile."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import itertools
import sys
import types
from typing import Any

import pytest
import torch

from benchmarks import plan
from kernels import spec
from kernels._shared.collectives import registered, vendor
from kernels.all_gather import all_gather, config
from kernels.all_gather.cases import shard_elements
from kernels.numerics import compare, normal, poison
from kernels.registry import discover
from kernels.spec import Case, Place
from kernels.symmetric_heap import ALIGNMENT
from tests.kernels import gluon_shim
from tests.kernels.fake_ranks import FakeRanks
from tests.kernels.ranks import run_alone

MODULE = "tests.kernels.test_all_gather"
PUSHES = ("triton", "partitioned", "gluon")
"""Backends with candidates to sweep."""

TINY = Case("tiny", world=2, dtype="bf16", MB=1 / 128)


def test_declared_once_with_the_tiers():
    all_gather.check()
    assert discover()["all_gather"] is all_gather
    assert [c.name for c in all_gather.cases if c.tier == "pr"] == [
        f"w{world}_fp16_{size}MB" for world in (2, 4, 8) for size in (2, 8, 32, 128, 512)
    ]
    assert len(all_gather.cases) == 3 * 3 * 9 + 3 * 6
    assert all_gather.baselines == ("rccl", "rccl_most_channels", "rccl_registered")
    assert set(all_gather.compilations) == {*PUSHES, "triton_unguarded"}
    assert "no other barrier is needed" in " ".join(discover()["all_gather"].doc.split())
    assert "must put a barrier" in all_gather.backends["triton_unguarded"].build.__doc__


def test_a_matrix_is_the_input_of_a_rank():
    """The largest contributes 512 MB a rank, 4 GB of output for eight."""
    case = all_gather.case("w8_fp16_in16384x16384")
    placed = case.at(Place(world=8))
    assert shard_elements(placed) == case.M * case.N == 16384 * 16384
    cost = all_gather.function("cost")(placed)
    assert (cost.payload_bytes, cost.link_bytes) == (4 << 30, 7 * (512 << 20))
    assert all_gather.case("w2_fp16_in1024x1024").MB == 4


def test_the_heap_holds_the_largest_output_of_every_backend():
    """On 141 GB and more, for two checkouts; where it does not fit, the text says what is needed."""
    case = all_gather.case("w8_fp16_in16384x16384")
    cost = all_gather.function("cost")(case.at(Place(world=8)))
    arms = [plan.PlannedArm(role, name) for role in ("base", "head") for name in all_gather.backends]
    machine = {"kind": "gpu", "memory_bytes": 150_754_820_096, "count": 8}
    room = plan.heap_bytes(cost, 1, 8, arms, machine)
    ours = [name for name in all_gather.backends if name in all_gather.compilations]
    assert len(ours) * cost.payload_bytes + plan.HEAP_SLACK_BYTES <= room
    assert plan.why_not(cost, {"world": 8}, machine, 2) == ""
    small = {**machine, "memory_bytes": 24 << 30}
    assert plan.why_not(cost, {"world": 8}, small, 1) == "needs about 29.0 GB of memory, this device has 25.8 GB"


def test_cost_follows_nccl_tests():
    found = all_gather.function("cost")(all_gather.case("w4_fp16_32MB"))
    total = 32 << 20
    assert found.payload_bytes == total
    assert found.link_bytes == total * 3 // 4
    assert found.hbm_bytes == total + total // 4


def test_shards_differ_between_ranks_and_the_reference_shows_a_swap():
    case = TINY.at(Place(rank=0, world=2))
    inputs = all_gather.function("inputs")(case, 1)
    expected = all_gather.function("reference")(case, inputs)
    swapped = expected.view(2, -1).flip(0).reshape(-1)
    assert not compare(swapped, expected, all_gather.tolerance_for(case)).ok
    assert expected.unique().numel() > 300


def test_unsupported_says_what_is_needed():
    big = all_gather.case("w2_fp16_512MB").at(Place())
    for backend in ("torch", "rccl", "rccl_registered"):
        with pytest.raises(spec.Unsupported, match="512 MB is too much"):
            all_gather.backends[backend].build(big, {})
    with pytest.raises(spec.Unsupported, match="init_process_group"):
        all_gather.backends["rccl"].build(TINY.at(Place()), {})
    with pytest.raises(spec.Unsupported, match=r"there is none"):
        all_gather.backends["torch"].build(TINY.at(Place()), {"shard": None})
    with pytest.raises(spec.Unsupported, match="one of 3"):
        all_gather.backends["torch"].build(TINY.at(Place(heap=FakeRanks(3, 4096).heaps[0])), {"shard": None})
    for backend in PUSHES:
        with pytest.raises(spec.Unsupported, match="GPUs are needed"):
            all_gather.backends[backend].build(TINY.at(Place()), {"shard": None})
    with pytest.raises(spec.Unsupported, match=r"sm_75.*config\.py"):
        config.config(big, "sm_75")


@pytest.mark.slow
def test_every_candidate_can_be_launched():
    run_alone(MODULE, "constants_of_all_candidates")


def constants_of_all_candidates():
    from kernels.all_gather import gluon_launch, launch

    for case, arch in itertools.product(all_gather.cases, ("sm_90", "gfx942", "gfx950")):
        words = launch.shard_words(case)
        for backend in PUSHES:
            declared, tried = all_gather.backends[backend], config.candidates(case, arch, backend)
            assert 9 <= len(tried) <= 22, (case.name, len(tried))
            assert tried[0] == declared.config(case, arch)
            assert all(one not in tried[:i] for i, one in enumerate(tried))
            for knobs in tried:
                full = {**declared.build.__kwdefaults__, **declared.knobs(case, arch, knobs)}
                if backend == "gluon":
                    fixed = gluon_launch.constants(case, words, arch, full)
                    block = fixed["ROWS"] * fixed["COLUMNS"]
                    assert block % (fixed["VECTOR"] * fixed["THREADS"] * fixed["WARPS"]) == 0
                else:
                    full = launch.partitioned(case.world, full) if backend == "partitioned" else full
                    fixed = launch.constants(case.world, words, arch, full)
                    block = fixed["BLOCK"]
                assert fixed["PROGRAMS"] * block * 4 // (case.world // fixed["FANOUT"]) <= 4 * words * 64


def test_gluon_moves_as_many_bytes_at_once_as_triton():
    for case in all_gather.cases:
        push, tiles = config.config(case, "sm_90"), config.gluon_config(case, "sm_90")
        assert {key: push[key] for key in ("programs", "num_warps", "fanout")} == {
            key: tiles[key] for key in ("programs", "num_warps", "fanout")
        }
        assert tiles["rows"] * tiles["columns"] * case.itemsize == config.block_bytes(
            "sm_90", push["num_warps"], push["unroll"]
        )


def test_tuned_tiles_are_for_two_bytes(monkeypatch):
    tuned = {"rows": 8, "columns": 256}
    monkeypatch.setitem(config.TUNED, "gluon", {"sm_90": {"w2_2MB": tuned}})
    assert config.gluon_config(all_gather.case("w2_bf16_2MB"), "sm_90")["rows"] == 8
    assert config.gluon_config(all_gather.case("w2_fp32_2MB"), "sm_90")["rows"] == 4
    assert tuned["rows"] == 8


def test_only_backends_with_knobs_are_swept():
    with pytest.raises(ValueError, match=r"'rccl'.*only triton, partitioned, gluon"):
        config.candidates(TINY, "sm_90", "rccl")


def test_knobs_that_cannot_work_are_refused():
    run_alone(MODULE, "bad_knobs")


def bad_knobs():
    from kernels.all_gather import gluon_launch, launch

    knobs = {"programs": 3, "num_warps": 1, "unroll": 1, "fanout": 1, "load": "", "store": "", "wait": True}
    with pytest.raises(ValueError, match="multiple of the 4 groups"):
        launch.constants(4, 1024, "sm_90", knobs)
    with pytest.raises(ValueError, match="must divide"):
        launch.constants(4, 1024, "sm_90", {**knobs, "fanout": 3})
    with pytest.raises(ValueError, match="staged 1: it must be at least 0, and 0 without a guard"):
        launch.constants(4, 1024, "sm_90", {**knobs, "fanout": 4, "staged": 1, "ahead": False, "guarded": False})
    with pytest.raises(ValueError, match="multiple of 16"):
        launch.constants(4, 1022, "sm_90", {**knobs, "fanout": 4})
    for programs in (0, 2, 6):
        with pytest.raises(ValueError, match=f"programs {programs} cannot be shared out evenly to 4 destinations"):
            launch.partitioned(4, {**knobs, "programs": programs})
    with pytest.raises(ValueError, match="order 'random' is neither"):
        launch.constants(4, 1024, "sm_90", {**knobs, "programs": 4, "order": "random"})
    tiles = {**knobs, "fanout": 0, "rows": 8, "columns": 256, "width": 0, "vector": 16, "num_warps": 8}
    case = Case("t", world=4, dtype="fp16", MB=2)
    assert gluon_launch.constants(case, 1024, "sm_90", tiles)["VECTOR"] == 4
    for wrong, said in (
        ({"rows": 4}, "tile of 4 x 256 is 2048 bytes, which a layout of 256 lanes with 16"),
        ({"vector": 12}, "with 12 contiguous bytes"),
        ({"vector": 2}, "at least 4 bytes"),
        ({"rows": 1, "columns": 256, "vector": 0}, "does not divide"),
        ({"rows": 6}, "rows is 6"),
        ({"columns": 192}, "columns is 192"),
        ({"num_warps": 3}, "num_warps is 3"),
        ({"columns": 1}, "columns 1 of 2 bytes"),
        ({"width": 640}, "do not divide the matrix's width 640"),
    ):
        with pytest.raises(ValueError, match=said):
            gluon_launch.constants(case, 1024, "sm_90", {**tiles, **wrong})
    with pytest.raises(ValueError, match="layout of 512 lanes"):
        gluon_launch.constants(case, 1024, "gfx942", tiles)
    for build in (
        lambda **knobs: all_gather.backends["gluon"].build(TINY.at(Place()), {}, **knobs),
        lambda **knobs: all_gather.compilations["gluon"](all_gather.cases[0], "gfx942", **knobs),
    ):
        with pytest.raises(spec.Unsupported, match="gluon has no non-persistent variant"):
            build(persistent=False)
    with pytest.raises(spec.DeclarationError, match="no knob 'unroll'"):
        all_gather.compilations["gluon"](all_gather.cases[0], "gfx942", unroll=2)


def test_without_gluon_there_is_a_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton.experimental.gluon", None)
    for name in ("gluon_launch", "gluon_device"):
        monkeypatch.delitem(sys.modules, f"kernels.all_gather.{name}", raising=False)
        monkeypatch.delattr(f"kernels.all_gather.{name}", raising=False)
    with pytest.raises(spec.Unsupported, match=r"Gluon \(triton.experimental.gluon\) cannot be imported here"):
        all_gather.backends["gluon"].build(TINY.at(Place()), {"shard": None})


class Library:
    """Stands for ProcessGroupNCCL: a memory pool is registered, or refused."""

    mem_allocator = "allocator"

    def __init__(self, error=None):
        self.registered, self.error = [], error

    def register_mem_pool(self, pool, symm=False):
        if self.error:
            raise self.error
        self.registered.append((pool, symm))

    def deregister_mem_pool(self, pool):
        self.registered.remove((pool, True))


@pytest.fixture
def nccl(monkeypatch):
    """A place where NCCL could register: its version, the environment; a group with a part for the GPU."""

    def place(library, version=(2, 28, 9), nvls="0"):
        monkeypatch.setattr(torch.cuda.nccl, "version", lambda: version)
        monkeypatch.setenv("NCCL_NVLS_ENABLE", nvls)
        return types.SimpleNamespace(_get_backend=lambda device: library)

    return place


def test_registered_buffers_say_what_they_need(nccl):
    gpu = torch.device("cuda")
    with pytest.raises(spec.Unsupported, match="GPUs only"):
        registered._library(torch.device("cpu"), None)
    for library, version, nvls, said in (
        (Library(), (2, 28, 9), "1", "NCCL_NVLS_ENABLE=0"),
        (Library(), (2, 26, 5), "0", r"version 2\.26\.5.*need 2\.27"),
        (object(), (2, 28, 9), "0", "object has no mem_allocator"),
    ):
        with pytest.raises(spec.Unsupported, match=said):
            registered._library(gpu, nccl(library, version, nvls))
    for error, said in ((TypeError("symm"), "no parameter symm"), (RuntimeError("no window\nmore"), "no window$")):
        with pytest.raises(spec.Unsupported, match=said):
            registered._register(Library(error), "pool")


def test_registered_buffers_gather_and_are_let_go(monkeypatch, nccl):
    """The whole build with the library's part replaced: registered before the first call; deregistered by the first
    build after all ranks have let go of it, not by this rank's garbage collector."""
    library = Library()
    group = nccl(library)
    monkeypatch.setattr(registered, "_library", lambda device, given: given._get_backend(device))
    monkeypatch.setattr(torch.cuda, "MemPool", lambda allocator: f"pool of {allocator}")
    monkeypatch.setattr(torch.cuda, "use_mem_pool", lambda pool, device: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
    monkeypatch.setattr(registered, "_REGISTERED", [])
    still_used = []  # by the other ranks
    monkeypatch.setattr(
        torch.distributed,
        "all_reduce",
        lambda unused, op: unused.index_fill_(0, torch.tensor(still_used, dtype=torch.int64), 0),
    )
    shard = torch.arange(64.0)
    twice = (shard, 128, group, lambda x, out: lambda: out.copy_(x.repeat(2)))
    call = registered.build(*twice)
    assert library.registered == [("pool of allocator", True)]
    assert torch.equal(call(), shard.repeat(2))
    assert call().data_ptr() == call().data_ptr() != shard.data_ptr()
    del call
    gc.collect()
    assert len(library.registered) == 1
    still_used.append(0)
    second = registered.build(*twice)
    assert len(library.registered) == 2
    still_used.clear()
    third = registered.build(*twice)
    assert len(library.registered) == 2, "the first is gone, the second and the third are in use"
    assert torch.equal(second(), third())


@pytest.fixture
def groups(monkeypatch):
    """A torch with GPUs and ranks that makes process groups: their options, in the order of making."""
    vendor.group_of.cache_clear()
    made = []
    options = types.SimpleNamespace(Options=lambda: types.SimpleNamespace(config=types.SimpleNamespace()))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", lambda *sizes, device: None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor, group: None)
    monkeypatch.setattr(
        torch.distributed, "new_group", lambda backend, pg_options: made.append(pg_options) or len(made)
    )
    monkeypatch.setattr(torch.distributed, "ProcessGroupNCCL", options, raising=False)
    yield made
    vendor.group_of.cache_clear()


def test_more_channels_are_a_group_of_their_own(groups, monkeypatch):
    """Made once for each number, with the channels set; a torch that cannot says so in a sentence."""
    assert vendor.most_channels() == vendor.most_channels() == vendor.group_of(64) == 1
    assert vendor.group_of(4) == 2
    assert [(one.config.min_ctas, one.config.max_ctas) for one in groups] == [(64, 64), (4, 4)]
    with pytest.raises(spec.Unsupported, match="65 channels: a communicator of this library has at most 64"):
        vendor.group_of(65)
    monkeypatch.delattr(torch.distributed, "ProcessGroupNCCL")
    with pytest.raises(spec.Unsupported, match=r"cannot set the channels.*min_ctas is needed"):
        vendor.group_of(8)


def test_channels_need_a_gpu_and_ranks(monkeypatch):
    vendor.group_of.cache_clear()
    with pytest.raises(spec.Unsupported, match="on GPUs only"):
        vendor.most_channels()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with pytest.raises(spec.Unsupported, match="there is no process group here"):
        vendor.most_channels()


@pytest.mark.parametrize(
    ("operator", "baseline"),
    [("all_gather", "rccl"), ("all_to_all", "rccl"), ("reduce_scatter", "rccl"), ("all_reduce", "rccl_direct")],
)
def test_the_knob_channels_is_no_part_of_the_definition(operator, baseline):
    """A baseline with the knob is, for whoever does not turn it, the function that the definition's digest covers."""
    kernel = discover()[operator]
    plain = importlib.import_module(f"kernels.{operator}.vendors").__dict__[baseline]
    given = kernel.backends[baseline]
    with_knob = kernel.definition_digest()
    assert given.knobs(kernel.cases[0], "sm_90", {"channels": 8}) == {"channels": 8}
    assert given.knobs(kernel.cases[0], "sm_90") == {}
    kernel.backends[baseline] = dataclasses.replace(given, build=plain)
    try:
        assert kernel.definition_digest() == with_knob
    finally:
        kernel.backends[baseline] = given


def test_channels_choose_the_group(groups):
    """0 is the baseline as it is, another number the same call with the communicator of that group."""
    build = vendor.channels_knob(lambda case, inputs: "plain", lambda case, inputs, group: f"over {group}")
    assert build(None, {}) == "plain"
    assert build(None, {}, channels=16) == build(None, {}, channels=16) == "over 1"
    assert build(None, {}, channels=4) == "over 2"
    with pytest.raises(ValueError, match="channels -1: give 0"):
        build(None, {}, channels=-1)


@pytest.mark.slow
@pytest.mark.parametrize("backend", PUSHES)
def test_in_the_interpreter(backend):
    run_alone(MODULE, backend, TRITON_INTERPRET="1")


# Run by test_all_gather.py in processes with TRITON_INTERPRET=1: the push kernels on a CPU.


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
