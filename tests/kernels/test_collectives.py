"""all_reduce, reduce_scatter, all_to_all: right on a CPU and in the interpreter, declared completely, strict."""

from __future__ import annotations

import importlib
import os
import time
from typing import Any

import pytest
import torch

from kernels import spec
from kernels._shared.collectives import config as shared_config
from kernels._shared.collectives import vendor
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, Place
from kernels.symmetric_heap import HeapError, create
from tests.kernels.fake_ranks import FakeRanks
from tests.kernels.ranks import run_alone, run_ranks

MODULE = "tests.kernels.test_collectives"
OPERATORS = ("all_reduce", "reduce_scatter", "all_to_all")


def operator(name):
    return getattr(importlib.import_module(f"kernels.{name}"), name)


def tiny(world=2, rank=0, heap=None, kb=1 / 4, dtype="fp16"):
    return Case("t", world=world, dtype=dtype, KB=kb).at(Place(rank=rank, world=world, heap=heap))


FOR_REAL = (
    *(("all_gather", "rccl", dtype, {"MB": 1 / 64}) for dtype in ("fp16", "bf16", "fp32")),
    *((name, "rccl", dtype, {"KB": 2}) for name in OPERATORS for dtype in ("fp16", "bf16", "fp32")),
    ("gemm_all_scatter", "blas+rccl", "fp16", {"M": 1, "N": 48, "K": 40}),
    ("gemm_all_scatter", "blas+rccl", "bf16", {"M": 5, "N": 48, "K": 40}),
    ("gemm_all_scatter", "blas+rccl", "fp16", {"M": 33, "N": 48, "K": 40}),
)
"""Operator, gloo baseline, dtype, dimensions."""


def calls_for_real(rank, world, directory):
    """Backend torch and the gloo baseline of each operator against the reference; poisoned between calls."""
    import torch.distributed as dist

    from kernels.all_gather import vendors

    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    heap = create(rank, world, "cpu", 1 << 17)
    for name, baseline, dtype, dims in FOR_REAL:
        kernel = operator(name)
        case = Case("t", world=world, dtype=dtype, **dims).at(Place(rank=rank, world=world, heap=heap))
        inputs = kernel.function("inputs")(case, 11)
        before = {key: value.clone() for key, value in inputs.items()}
        expected = kernel.function("reference")(case, inputs)
        for backend in ("torch", baseline):
            call = kernel.backends[backend].build(case, inputs)
            for turn in range(3):
                out = call()
                found = compare(out, expected, kernel.tolerance_for(case))
                assert found.ok, (name, backend, dtype, turn, found.why)
                if name == "gemm_all_scatter":  # peers write into the output
                    heap.barrier()
                poison(out)
                if name == "gemm_all_scatter":
                    heap.barrier()
        assert all(torch.equal(inputs[key], value) for key, value in before.items()), name
        if name == "all_gather":
            assert torch.equal(expected.view(world, -1)[rank], inputs["shard"])
            assert torch.equal(vendors.over(case, inputs, dist.group.WORLD)(), expected)
        heap.reset()
    heap.close()
    dist.destroy_process_group()


def test_cpu_backends_with_real_ranks(tmp_path):
    run_ranks(MODULE, "calls_for_real", 2, tmp_path)


@pytest.mark.parametrize("name", OPERATORS)
def test_declared_once_with_the_tiers(name):
    kernel = operator(name)
    kernel.check()
    assert discover()[name] is kernel
    assert len(kernel.cases) == 3 * 3 * 10
    assert [c.name for c in kernel.cases if c.tier == "pr"] == [
        f"w{world}_fp16_{size}" for world in (2, 4, 8) for size in ("64KB", "512KB", "4MB", "64MB", "256MB")
    ]
    assert kernel.baselines[:2] == ("rccl", "rccl_most_channels")
    assert ("triton_unguarded" in kernel.backends) == (name == "all_to_all")
    assert "no other barrier is needed" in " ".join(discover()[name].doc.split())


def test_costs_follow_nccl_tests():
    total = 16 << 20
    expected = {"all_reduce": 2 * total * 3 // 4, "reduce_scatter": total * 3 // 4, "all_to_all": total * 3 // 4}
    for name, link in expected.items():
        found = operator(name).function("cost")(operator(name).case("w4_fp16_16MB"))
        assert (found.payload_bytes, found.link_bytes) == (total, link)
        assert total <= found.hbm_bytes <= 2 * total


def test_references_are_the_definitions():
    vectors = [operator(name).function("inputs")(tiny(4, rank), 1)["x"] for name in OPERATORS for rank in range(4)]
    by_operator = {name: torch.stack(vectors[4 * i : 4 * i + 4]) for i, name in enumerate(OPERATORS)}
    for rank in range(4):
        case, seed = tiny(4, rank), {"seed": torch.tensor(1)}
        total = by_operator["all_reduce"].double().sum(0)
        assert (operator("all_reduce").function("reference")(case, seed) - total).abs().max() < 1e-5
        part = by_operator["reduce_scatter"].double().sum(0).view(4, -1)[rank]
        assert (operator("reduce_scatter").function("reference")(case, seed) - part).abs().max() < 1e-5
        turned = by_operator["all_to_all"].view(4, 4, -1)[:, rank].reshape(-1)
        assert torch.equal(operator("all_to_all").function("reference")(case, seed), turned)


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
def test_tolerance_takes_a_sum_rounded_at_every_hop_but_no_lost_rank(name):
    kernel = operator(name)
    for dtype in ("fp16", "bf16"):
        case = Case("t", world=8, dtype=dtype, KB=64).at(Place(world=8))
        parts = [kernel.function("inputs")(case.at(Place(rank=rank, world=8)), 1)["x"] for rank in range(8)]
        hops, lost = parts[0].clone(), parts[0].float()
        for part in parts[1:]:
            hops += part
        for part in parts[1:7]:
            lost += part
        expected = kernel.function("reference")(case, {"seed": torch.tensor(1)})
        size = expected.numel()
        assert compare(hops[:size], expected, kernel.tolerance_for(case)).ok
        assert not compare(lost[:size].to(hops.dtype), expected, kernel.tolerance_for(case)).ok


@pytest.mark.parametrize("name", OPERATORS)
def test_unsupported_says_what_is_needed(name):
    kernel = operator(name)
    build = {key: backend.build for key, backend in kernel.backends.items()}
    big = kernel.case("w2_fp16_256MB").at(Place())
    for backend in ("torch", "rccl"):
        with pytest.raises(spec.Unsupported, match="256MB is too much"):
            build[backend](big, {})
    with pytest.raises(spec.Unsupported, match="init_process_group"):
        build["rccl"](tiny(), {})
    with pytest.raises(spec.Unsupported, match=r"there is none, and this machine has \d+ GPU"):
        build["torch"](tiny(), {"x": torch.zeros(1)})
    with pytest.raises(spec.Unsupported, match="GPUs are needed"):
        build["triton"](tiny(), {})
    with pytest.raises(spec.Unsupported, match=r"dtype fp8 is not supported, only fp16, bf16, fp32"):
        build["triton"](tiny(dtype="fp8"), {})
    with pytest.raises(spec.Unsupported, match="1000 bytes are not shared evenly by 2 ranks"):
        kernel.function("inputs")(tiny(kb=1000 / 1024), 0)
    with pytest.raises(spec.Unsupported, match=rf"sm_75.*kernels/{name}/config\.py"):
        importlib.import_module(f"kernels.{name}.config").config(big, "sm_75")
    heap = FakeRanks(2, 1024).heaps[0]
    case = tiny(heap=heap, kb=64)
    inputs = kernel.function("inputs")(case, 0)
    with pytest.raises(HeapError, match="65536 bytes asked for"):
        build["torch"](case, inputs)


def test_the_library_is_called_directly_on_gpus_only():
    with pytest.raises(spec.Unsupported, match="on GPUs only"):
        vendor.all_reduce(torch.zeros(1), torch.zeros(1))
    with pytest.raises(spec.Unsupported, match="libnccl"):
        vendor._library()


@pytest.mark.slow
def test_every_candidate_can_be_launched_and_bad_knobs_cannot():
    run_alone(MODULE, "plans")


def plans():
    """In one process of its own, which has no interpreter: importing costs more than checking."""
    bad_knobs()
    for arch in ("sm_90", "gfx942", "gfx950"):
        plans_of_all_candidates(arch)


def plans_of_all_candidates(arch):
    for name in OPERATORS:
        kernel, config = operator(name), importlib.import_module(f"kernels.{name}.config")
        launch, backend = importlib.import_module(f"kernels.{name}.launch"), kernel.backends["triton"]
        for case in kernel.cases:
            tried = config.candidates(case, arch)
            assert 4 <= len(tried) <= 32, (case.name, len(tried))
            assert tried[0] == config.config(case, arch)
            for knobs in tried:
                full = {**backend.build.__kwdefaults__, **backend.knobs(case, arch, knobs)}
                job = launch.compilation(case, arch, full)
                assert job.options.get("maxnreg", 64) * shared_config.lanes(arch, full["num_warps"]) <= 65536
                assert job.options.get("maxnreg", 64) >= 64 or full["num_warps"] > 16, (case.name, knobs)


def test_a_sweep_tries_two_shots_by_stores_from_4_mb_on():
    all_reduce, config = operator("all_reduce"), importlib.import_module("kernels.all_reduce.config")
    for case in all_reduce.cases:
        algorithms = [knobs["algorithm"] for knobs in config.candidates(case, "sm_90")]
        assert (algorithms.count("two_shot_push") >= 8) == (case.KB >= 4096), (case.name, algorithms)
        assert ("one_shot_pull" in algorithms) == (case.KB < 4096), (case.name, algorithms)


def bad_knobs():
    for name, wrong, text in (
        ("all_reduce", {"algorithm": "tree"}, "'tree' is not one of two_shot, two_shot_push"),
        ("all_reduce", {"algorithm": "two_shot_push", "ahead": -1}, "ahead -1 must be at least 0, else"),
        ("reduce_scatter", {"algorithm": "tree"}, "'tree' is not one of pull, push"),
        ("reduce_scatter", {"algorithm": "push_chunks", "ahead": -1}, "ahead -1 must be at least 0 chunks"),
        ("reduce_scatter", {"algorithm": "push_chunks", "chunk": 0}, "chunk 0 at least 1 block"),
        ("all_to_all", {"staged": -1}, "staged -1: it must be at least 0"),
        ("all_to_all", {"groups": 3}, "groups 3 must divide the 4 ranks"),
    ):
        kernel, launch = operator(name), importlib.import_module(f"kernels.{name}.launch")
        knobs = {**kernel.backends["triton"].build.__kwdefaults__, **wrong}
        with pytest.raises(ValueError, match=text):
            launch.compilation(kernel.case("w4_fp16_1MB"), "sm_90", knobs)


@pytest.mark.slow
def test_in_the_interpreter():
    run_alone(MODULE, "everything", TRITON_INTERPRET="1")


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_pushing_in_chunks_with_real_ranks(world, tmp_path):
    run_ranks(MODULE, "chunks_in_a_row", world, tmp_path, TRITON_INTERPRET="1")


# Run by test_collectives.py in processes with TRITON_INTERPRET=1: the collective kernels on a CPU.


HEAP = 1 << 18
SMALL = {"num_warps": 1, "unroll": 1}


def placed(world: int, rank: int, kb: float, dtype: str, heap: Any) -> Case:
    return Case("t", world=world, dtype=dtype, KB=kb).at(Place(rank=rank, world=world, heap=heap))


def phases(world: int, kb: float, dtype: str, name: str, **knobs: Any) -> None:
    """Fake ranks, one after the other.  A rank that pushes is right once all have called, so each calls twice."""
    kernel, ranks, built, expected = operator(name), FakeRanks(world, HEAP), [], []
    for heap in ranks.heaps:
        case = placed(world, heap.rank, kb, dtype, heap)
        inputs = kernel.function("inputs")(case, 3)
        built.append(kernel.backends["triton"].build(case, inputs, wait=False, **{**SMALL, **knobs}))
        expected.append(kernel.function("reference")(case, inputs))
    algorithm = knobs.get("algorithm", "")
    outputs = [call() for call in built]
    if algorithm in (
        "two_shot_push",
        "push_chunks",
    ):  # the first sums of all but the last rank lack the parts of later ranks
        outputs = [call() for call in built]
    staged = algorithm in ("one_shot_push", "push") or knobs.get("staged")
    for turn in range(3 if staged else 2):
        if staged:  # the last rank alone has found the parts of all
            outputs = outputs[-1:]
            expected = expected[-1:]
        for rank, (out, right) in enumerate(zip(outputs, expected, strict=True)):
            found = compare(out, right, kernel.tolerance_for(case))
            assert found.ok, (name, turn, rank, world, kb, dtype, knobs, found.why)
            poison(out)
        outputs = [call() for call in built]


def all_reduce() -> None:
    """Every algorithm, with 1, 4 and 8 ranks, whole blocks and tails."""
    for algorithm in ("two_shot", "two_shot_push", "one_shot_push", "one_shot_pull"):
        phases(1, 1.5, "fp16", "all_reduce", algorithm=algorithm, programs=2)
        phases(4, 2.0625, "fp16", "all_reduce", algorithm=algorithm, programs=2)
    phases(8, 8.125, "fp32", "all_reduce", algorithm="two_shot", programs=1, unroll=2)
    phases(8, 8.125, "fp32", "all_reduce", algorithm="two_shot_push", programs=3, ahead=1)


def reduce_scatter() -> None:
    """Every algorithm, as for all_reduce."""
    for algorithm in ("pull", "push", "push_chunks"):
        phases(1, 1.5, "fp16", "reduce_scatter", algorithm=algorithm, programs=2)
        phases(4, 4.0625, "fp16", "reduce_scatter", algorithm=algorithm, programs=2)
    phases(8, 8.125, "fp32", "reduce_scatter", algorithm="pull", programs=1, unroll=2)


def all_to_all() -> None:
    """Every grouping of the receivers, whole blocks and tails."""
    for world, kb, groups in ((1, 1.5, 1), (2, 4, 2), (4, 4.0625, 2), (8, 8, 1)):
        for staged in (0, 1, 9):
            phases(world, kb, "fp16", "all_to_all", groups=groups, programs=2 * groups, staged=staged)


def everything() -> None:
    """All of the above and the order of sums, in one process: importing takes as long as a check."""
    for check in (all_reduce, reduce_scatter, all_to_all, sums_are_in_rank_order):
        check()


def chunks_in_a_row(rank: int, world: int, directory: str) -> None:
    """two_shot_push with real ranks: new data at every call, calls in a row, no barrier but those of the kernel.

    As many chunks ahead as there are or more, and fewer; programs with more chunks than others, and with none; epochs
    that wrap around.  Each rank dawdles before another call, and all give the same bits.
    """
    for kb, programs, ahead, epoch in (
        (8.125, 3, 1, 0),
        (8.125, 2, 3, 0),
        (8.125, 1, 0, 0),
        (1, 5, 2, 0),
        (8.125, 3, 2, 2**31 - 7),
    ):
        meeting = f"{directory}/{kb}-{programs}-{ahead}-{epoch}"
        os.makedirs(meeting, exist_ok=True)
        with create(rank, world, "cpu", 1 << 17, meeting) as heap:
            case, kernel = placed(world, rank, kb, "fp32", heap), operator("all_reduce")
            inputs = kernel.function("inputs")(case, 0)
            heap.signals = _signals_from(heap, epoch)
            call = kernel.backends["triton"].build(
                case, inputs, algorithm="two_shot_push", programs=programs, ahead=ahead, **SMALL
            )
            for turn in range(5):
                fresh = kernel.function("inputs")(case, turn)
                inputs["x"].copy_(fresh["x"])
                expected = kernel.function("reference")(case, fresh)
                time.sleep(0.02 * (turn % world == rank))
                out = call()
                assert torch.equal(out, expected), (kb, programs, ahead, epoch, turn, rank)
                poison(out)


def _signals_from(heap: Any, epoch: int) -> Any:
    """heap.signals, but as if the collectives had been at work for long."""
    zeroed = heap.signals

    def started(*shape: int) -> torch.Tensor:
        flags = zeroed(*shape).fill_(epoch)
        heap.barrier()
        return flags

    return started


ALGORITHMS: dict[str, tuple[dict[str, Any], ...]] = {
    "all_reduce": (
        {"algorithm": "two_shot"},
        {"algorithm": "two_shot_push"},
        {"algorithm": "one_shot_push"},
        {"algorithm": "one_shot_pull"},
    ),
    "reduce_scatter": ({"algorithm": "pull"}, {"algorithm": "push"}, {"algorithm": "push_chunks"}),
}


def sums_are_in_rank_order() -> None:
    """fp32, where the order shows: the very bits of the reference, for every algorithm."""
    for name in ("all_reduce", "reduce_scatter"):
        for algorithm in ALGORITHMS[name]:
            kernel, ranks, built, expected = operator(name), FakeRanks(4, HEAP), [], []
            for heap in ranks.heaps:
                case = placed(4, heap.rank, 2, "fp32", heap)
                inputs = kernel.function("inputs")(case, 3)
                expected.append(kernel.function("reference")(case, inputs))
                built.append(
                    kernel.backends["triton"].build(case, inputs, wait=False, programs=2, **SMALL, **algorithm)
                )
            outputs = [[call() for call in built] for _ in range(2)][-1]  # in chunks: as in phases
            assert torch.equal(outputs[-1], expected[-1]), (name, algorithm)
    backwards = expected[0] * 0
    for rank in reversed(range(4)):
        backwards += kernel.function("inputs")(placed(4, rank, 2, "fp32", None), 3)["x"].view(4, -1)[0]
    assert not torch.equal(backwards, expected[0]), "these values do not tell one order from another"
