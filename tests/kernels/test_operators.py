"""What holds of every operator: its declaration, its costs, what it refuses, its knobs, and its results on a CPU."""

from __future__ import annotations

import json

import pytest
import torch

from kernels._shared.collectives.cases import lanes
from kernels._shared.tuning import all_knobs, described, points
from kernels.gemm import vendors as gemm_vendors
from kernels.hardware import DEVICES, UnknownHardware
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, DeclarationError, Place, Unsupported
from kernels.symmetric_heap import HeapError, LoneHeap
from tests.kernels.ranks import FakeRanks, run_alone
from tests.kit import mostly_nightly

KERNELS = discover().kernels
ARCHES = ("sm_90", "gfx942", "gfx950")
UNITS = {device.arch: device.compute_units for device in reversed(DEVICES)}

GROUPED = ("grouped_gemm_forward", "grouped_gemm_dgrad", "grouped_gemm_wgrad")
COLLECTIVES = ("all_reduce", "reduce_scatter", "all_to_all")

OURS = {
    "all_gather": "triton partitioned gluon",
    "all_reduce": "triton",
    "all_to_all": "triton",
    "gemm": "triton",
    "gemm_all_scatter": "triton bulk",
    **dict.fromkeys(GROUPED, "triton"),
    "moe_gemm2_mxfp4": "triton_atomic triton_reduce",
    "reduce_scatter": "triton",
}
"""Backends that are compiled, which are those with knobs to tune."""

PLACED = [(name, arch) for name in OURS for arch in ARCHES]


def placed(kernel, arch):
    """The cases of a kernel on a device of the architecture."""
    return [case.at(Place(world=case.world, arch=arch, compute_units=UNITS[arch])) for case in kernel.cases]


# ---- declarations ----------------------------------------------------------------------------------------------------


def test_what_is_compiled_is_what_can_be_tuned_and_swept():
    for name, kernel in KERNELS.items():
        assert list(kernel.compilations) == OURS[name].split()
        assert {one for one, backend in kernel.backends.items() if backend.candidates} == set(kernel.compilations)
        tuned = {one for one, backend in kernel.backends.items() if backend.tuned}
        assert tuned == set(kernel.compilations)


MB, H = 1 << 20, "n4096_k4096_m64_fp16"

COSTS = (
    ("all_gather", "w4_fp16_32MB", {"payload_bytes": 32 * MB, "link_bytes": 24 * MB, "hbm_bytes": 40 * MB}),
    ("all_gather", "w8_fp16_in16384x16384", {"payload_bytes": 4096 * MB, "link_bytes": 7 * 512 * MB}),
    ("all_reduce", "w4_fp16_16MB", {"payload_bytes": 16 * MB, "link_bytes": 24 * MB, "hbm_bytes": 32 * MB}),
    ("reduce_scatter", "w4_fp16_16MB", {"payload_bytes": 16 * MB, "link_bytes": 12 * MB, "hbm_bytes": 20 * MB}),
    ("all_to_all", "w4_fp16_16MB", {"payload_bytes": 16 * MB, "link_bytes": 12 * MB, "hbm_bytes": 32 * MB}),
    (
        "gemm",
        "n4096_k14336_m64_fp16",
        {
            "flops": 2 * 64 * 4096 * 14336,
            "hbm_bytes": 2 * (64 * 14336 + 4096 * 14336 + 64 * 4096),
            "link_bytes": 0,
            "payload_bytes": 0,
        },
    ),
    (
        "gemm_all_scatter",
        "n4608_k36864_m8192_fp16_w4",
        {
            "flops": 2 * 8192 * 4608 * 36864 // 4,
            "link_bytes": 3 * 8192 * 1152 * 2,
            "hbm_bytes": 2 * (8192 * 36864 + 1152 * 36864 + 8192 * 4608),
            "payload_bytes": 8192 * 4608 * 2,
        },
    ),
    ("gemm_all_scatter", f"{H}_w1of4", {"flops": 2 * 64 * 4096 * 4096 // 4, "link_bytes": 0}),
    *(
        (name, "tiny_extreme", {"flops": 2 * 120 * 80 * 96, "hbm_bytes": 2 * (120 * 96 + 5 * 80 * 96 + 120 * 80)})
        for name in GROUPED
    ),
)
"""By the conventions of nccl-tests, and of every operand once."""


@pytest.mark.parametrize(("name", "case", "expected"), COSTS)
def test_costs_are_the_formula(name, case, expected):
    found = KERNELS[name].function("cost")(KERNELS[name].case(case).at(Place()))
    assert {field: getattr(found, field) for field in expected} == expected


# ---- references ------------------------------------------------------------------------------------------------------


def on_rank(name, rank, world, dtype="fp16", heap=None, **dims):
    return Case("t", world=world, dtype=dtype, **dims).at(Place(rank=rank, world=world, heap=heap))


def inputs(name, case, seed=1):
    return KERNELS[name].function("inputs")(case, seed)


def reference(name, case, given):
    return KERNELS[name].function("reference")(case, given)


def ok(name, case, out, expected):
    return compare(out, expected, KERNELS[name].tolerance_for(case)).ok


def test_references_of_collectives_are_the_definitions():
    for rank in range(4):
        cases = [on_rank("all_reduce", one, 4, KB=1 / 4) for one in range(4)]
        given = torch.stack([inputs("all_reduce", case)["x"] for case in cases])
        wanted = {
            "all_reduce": given.double().sum(0),
            "reduce_scatter": given.double().sum(0).view(4, -1)[rank],
            "all_to_all": given.view(4, 4, -1)[:, rank].reshape(-1).double(),
        }
        for name, one in wanted.items():
            assert (reference(name, cases[rank], {"seed": torch.tensor(1)}) - one).abs().max() < 1e-5


@pytest.mark.parametrize("name", ["all_reduce", "reduce_scatter"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_tolerance_takes_a_sum_rounded_at_every_hop_but_no_lost_rank(name, dtype):
    case = on_rank(name, 0, 8, dtype, KB=64)
    parts = [inputs(name, on_rank(name, rank, 8, dtype, KB=64))["x"] for rank in range(8)]
    hops, lost = parts[0].clone(), torch.stack(parts[:7]).float().sum(0)
    for part in parts[1:]:
        hops += part
    expected = reference(name, case, {"seed": torch.tensor(1)})
    assert ok(name, case, hops[: expected.numel()], expected)
    assert not ok(name, case, lost[: expected.numel()].to(hops.dtype), expected)


def test_products_are_the_textbook_sum_and_restore_tf32():
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for name, world in (("gemm", 1), ("gemm_all_scatter", 2)):
            cases = [on_rank(name, rank, world, M=5, N=48, K=40) for rank in range(world)]
            given = [inputs(name, case) for case in cases]
            expected = reference(name, cases[-1], given[-1])
            weights = torch.cat([one["w"] for one in given]).double()
            textbook = torch.stack([(given[0]["a"][m].double() * weights).sum(1) for m in range(5)])
            assert float((expected - textbook).abs().max()) < 1e-4
            assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_tolerances_see_a_swap_and_a_lost_slice_of_k():
    case = on_rank("gemm", 0, 1, M=64, N=64, K=4096)
    given = inputs("gemm", case)
    expected = reference("gemm", case, given)
    right = expected.half()
    assert ok("gemm", case, right, expected)
    assert not ok("gemm", case, (given["a"][:, 16:].float() @ given["w"][:, 16:].float().T).half(), expected)
    assert not ok("gemm", case, torch.cat([right[:32].roll(16, 0), right[32:]]), expected)
    for name, dims in (("all_gather", {"MB": 1 / 128}), ("gemm_all_scatter", {"M": 4, "N": 16, "K": 40})):
        case = on_rank(name, 1, 2, **dims)
        expected = reference(name, case, inputs(name, case))
        assert not ok(name, case, expected.roll(expected.shape[-1] // 2, -1), expected)


# ---- backends of a CPU -----------------------------------------------------------------------------------------------

ON_CPU = {
    "gemm": ({"M": 5, "N": 48, "K": 40}, "torch blas"),
    "gemm_all_scatter": ({"M": 5, "N": 24, "K": 40, "of": 4}, "torch blas+rccl"),
    **dict.fromkeys(
        GROUPED, ({"G": 5, "M": 24, "N": 80, "K": 96, "routing": "extreme"}, "loop torch_grouped torch autotune")
    ),
}
"""Operators that one rank alone can compute, and the backends that do so on a CPU."""


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("name", "backend"), [(name, one) for name, (_, all_) in ON_CPU.items() for one in all_.split()]
)
def test_backends_of_a_cpu_are_right_write_all_and_read_anew(name, backend, dtype):
    """Into one output that is poisoned between calls; then with new values of the inputs that are declared live."""
    kernel, case = KERNELS[name], on_rank(name, 0, 1, dtype, **ON_CPU[name][0])
    given = inputs(name, case)
    call = kernel.backends[backend].build(case, given, **kernel.backends[backend].knobs(case, "cpu"))
    first, again = poison(call()), call()
    assert getattr(call, "functional", False) or again.data_ptr() == first.data_ptr()
    assert ok(name, case, again, reference(name, case, given))
    for one in kernel.live:
        given[one].copy_(torch.randn_like(given[one]))
    assert ok(name, case, call(), reference(name, case, given))


def test_these_are_all_operators_with_live_inputs():
    assert {name for name, kernel in KERNELS.items() if kernel.live} == set(ON_CPU)


def test_threads_are_those_of_one_call_and_restored_for_the_others():
    case = on_rank("gemm", 0, 1, M=5, N=48, K=40)
    build, given = KERNELS["gemm"].backends["torch"].build, inputs("gemm", case)
    before, seen = torch.get_num_threads(), []
    plain, limited = build(case, given)(), build(case, given, threads=1)
    assert torch.equal(limited(), plain)
    assert torch.get_num_threads() == before
    gemm_vendors._in_threads(lambda: seen.append(torch.get_num_threads()), before + 1)()
    assert (seen, torch.get_num_threads()) == ([before + 1], before)
    with pytest.raises(ZeroDivisionError):
        gemm_vendors._in_threads(lambda: 1 / 0, before + 1)()
    assert torch.get_num_threads() == before
    with pytest.raises(Unsupported, match="-1 threads; give 1 or more"):
        build(case, given, threads=-1)


def test_a_lone_heap():
    heap = LoneHeap("cpu")
    given = heap.alloc((3, 4), torch.float16)
    assert heap.peer(0, given) is given
    assert heap.signals(1, 5).tolist() == [[0] * 5]
    assert heap.bases.tolist() == [0]
    with pytest.raises(HeapError, match="rank 1 of a heap of one rank"):
        heap.peer(1, given)
    assert heap.barrier() is heap.reset() is heap.close() is None


# ---- what is refused -------------------------------------------------------------------------------------------------

SMALL = {
    "all_gather": {"world": 2, "MB": 1 / 128},
    **dict.fromkeys(COLLECTIVES, {"world": 2, "KB": 1 / 4}),
    "gemm": {"M": 5, "N": 48, "K": 40},
    "gemm_all_scatter": {"world": 2, "M": 4, "N": 16, "K": 40},
    **dict.fromkeys(GROUPED, {"G": 2, "M": 8, "N": 32, "K": 32, "routing": "balanced"}),
    "moe_gemm2_mxfp4": {"dtype": "mxfp4", "M": 3, "N": 32, "K": 64, "E": 4, "topk": 2, "BM": 16},
}


@pytest.mark.parametrize("name", OURS)
def test_ours_need_a_gpu_and_an_architecture_with_knobs(name):
    kernel, case = KERNELS[name], Case("t", **SMALL[name]).at(Place())
    for backend in OURS[name].split():
        declared = kernel.backends[backend]
        with pytest.raises(Unsupported, match="GPUs? (is|are) needed|needs? a GPU"):
            declared.build(case, inputs(name, case), **declared.knobs(case, "cpu"))
        with pytest.raises((Unsupported, UnknownHardware), match=r"sm_75.*kernels/\w+/config\.py"):
            declared.config(kernel.cases[0], "sm_75")
        with pytest.raises(DeclarationError, match="has no knob 'block_q'"):
            declared.knobs(kernel.cases[0], "sm_90", {"block_q": 3})


HERE = r"there is none, and this machine has \d+ GPU"

REFUSED = (
    ("all_gather", "torch rccl rccl_registered", "w2_fp16_512MB", "512 MB is too much"),
    *((name, "rccl", {}, "init_process_group") for name in COLLECTIVES),
    *((name, "torch", {}, HERE) for name in COLLECTIVES),
    *((name, "triton", {"dtype": "fp8"}, "dtype fp8 is not supported, only fp16, bf16, fp32") for name in COLLECTIVES),
    *((name, "", {"KB": 1000 / 1024}, "1000 bytes are not shared evenly by 2 ranks") for name in COLLECTIVES),
    *((name, "torch", {"heap": 2, "KB": 64}, "65536 bytes asked for") for name in COLLECTIVES),
    ("gemm", "torch blas", "n8192_k28672_m1024_bf16", "481 GFLOP"),
    ("gemm", "torch", {"device": "cuda:0"}, "baseline blas"),
    ("gemm_all_scatter", "", {"world": 4, "N": 18}, r"N = 18 .* 4 ranks; N must be a multiple of 4"),
    ("gemm_all_scatter", "triton", {"dtype": "fp32"}, "dtype fp32 is not supported, only fp16, bf16"),
    ("gemm_all_scatter", "torch", "n4608_k36864_m8192_fp16_w4", "GFLOP per call and rank is too much"),
    ("gemm_all_scatter", "blas+rccl_registered", {"world": 1, "of": 4}, "one rank alone gathers nothing"),
    ("grouped_gemm_forward", "loop torch_grouped torch", "dsv3_gateup_b8_m2048_balanced", "FLOP, more than the"),
    ("moe_gemm2_mxfp4", "torch", "kimi_m16384_bm64", "FLOP, more than the"),
)
"""Operator, backends ("": its inputs), a case's name or its changes, the sentence.  heap: ranks of one of 1 KB."""


@pytest.mark.parametrize(("name", "backends", "given", "said"), REFUSED)
def test_what_cannot_be_done_says_what_is_needed(name, backends, given, said):
    kernel = KERNELS[name]
    if isinstance(given, str):
        case, x = kernel.case(given).at(Place()), dict.fromkeys(("a", "b", "dy"), torch.empty(1, 1, 1))
    else:
        dims = {**SMALL[name], **given}
        heap = FakeRanks(dims.pop("heap"), 1024).heaps[0] if "heap" in given else None
        place = Place(world=dims.get("world", 1), device=dims.pop("device", "cpu"), heap=heap)
        case, x = Case("t", **dims).at(place), {"x": torch.zeros(1), "shard": None, "w": None}
        x = inputs(name, case) if heap is not None and heap.world == 2 else x
    for backend in backends.split():
        with pytest.raises((Unsupported, HeapError), match=said):
            kernel.backends[backend].build(case, x)
    if not backends:
        with pytest.raises(Unsupported, match=said):
            inputs(name, case)


# ---- knobs -----------------------------------------------------------------------------------------------------------

COUNTS = {
    "all_gather": (9, 22),
    **dict.fromkeys(COLLECTIVES, (4, 32)),
    "gemm": (4, 24),
    "gemm_all_scatter": (2, 28),
    **dict.fromkeys(GROUPED, (8, 60)),
    "moe_gemm2_mxfp4": (6, 60),
}
"""Fewest and most points of a sweep."""


@pytest.mark.nightly
@pytest.mark.parametrize(("name", "arch"), PLACED)
def test_every_point_of_a_sweep_can_be_launched_and_the_choice_is_the_first(name, arch):
    kernel, (fewest, most) = KERNELS[name], COUNTS[name]
    for backend, compilations in kernel.compilations.items():
        declared = kernel.backends[backend]
        for case in placed(kernel, arch):
            tried = points(declared, case, arch)
            chosen = all_knobs(declared, case, arch, {})
            assert tried[0] == chosen
            assert fewest <= len(tried) <= most, (backend, case.name, len(tried))
            assert all(set(knobs) == set(chosen) for knobs in tried)
            assert len({json.dumps(knobs, sort_keys=True) for knobs in tried}) == len(tried)
            assert json.loads(json.dumps(tried)) == tried
            for knobs in tried:
                for job in compilations(case, arch, **knobs):
                    can_be_launched(job, arch, (backend, case.name, knobs))


def can_be_launched(job, arch, where):
    """As many programs as the code thinks; registers for all its threads, and enough of them for each."""
    assert min(job.grid) > 0, where
    assert job.constants.get("PROGRAMS", job.grid[0]) == job.grid[0], where
    warps, registers = job.options["num_warps"], job.options.get("maxnreg") or 64
    assert registers * lanes(arch, warps) <= 65536, where
    assert registers >= 64 or warps > 16, where


@pytest.mark.parametrize(("name", "arch"), PLACED)
def test_a_choice_is_the_entry_of_the_table_or_the_rule(name, arch):
    for backend in KERNELS[name].backends.values():
        for case in placed(KERNELS[name], arch) if backend.tuned else ():
            place = described(backend, case, arch)
            entry = {k: max(1, int(v / place["scale"].get(k, v and 1))) if k in place["scale"] else v
                     for k, v in place["entry"].items()}  # fmt: skip
            expected = {**place["defaults"], **(entry or place["rule"])}
            assert all_knobs(backend, case, arch, {}) == expected, (case.name, arch)
            assert json.loads(json.dumps(place)) == place
            assert place["table"][-1] == arch


W4, ODD = "w4_fp16_2MB", {"MB": 1022 * 16 / MB}
TILES = {"programs": 4, "num_warps": 8, "rows": 8, "columns": 256}
S4, NARROW, LONG = "n4096_k4096_m1024_fp16_w4", {"M": 4, "N": 24, "K": 40}, {"M": 1 << 16, "N": 1 << 16, "K": 64}
COPY = {"scatter": "tma", "tma": True}
PLAIN = KERNELS["gemm_all_scatter"].backends["triton"].build.__kwdefaults__

BAD = (
    ("all_gather", "triton", W4, "sm_90", {"programs": 3, "fanout": 1}, "multiple of the 4 groups"),
    ("all_gather", "triton", W4, "sm_90", {"staged": -1}, "staged -1: it must be at least 0"),
    ("all_gather", "triton", ODD, "sm_90", {}, "multiple of 16"),
    *(
        ("all_gather", "partitioned", W4, "sm_90", {"programs": n}, f"programs {n} cannot be shared out evenly to 4")
        for n in (0, 6)
    ),
    ("all_gather", "partitioned", W4, "sm_90", {"order": "random"}, "order 'random' is neither"),
    *(
        ("all_gather", "gluon", W4, "sm_90", {**TILES, **wrong}, said)
        for wrong, said in (
            ({"rows": 4}, "tile of 4 x 256 is 2048 bytes, which a layout of 256 lanes with 16"),
            ({"vector": 2}, "at least 4 bytes"),
            ({"rows": 1, "columns": 256, "vector": 0}, "does not divide"),
            ({"num_warps": 3}, "num_warps is 3"),
            ({"width": 640}, "do not divide the matrix's width 640"),
        )
    ),
    *(
        (name, "triton", "w4_fp16_1MB", "sm_90", wrong, said)
        for name, wrong, said in (
            ("all_reduce", {"algorithm": "tree"}, "'tree' is not one of two_shot, two_shot_push"),
            ("all_reduce", {"algorithm": "two_shot_push", "ahead": -1}, "ahead -1 must be at least 0, else"),
            ("reduce_scatter", {"algorithm": "tree"}, "'tree' is not one of pull, push"),
            ("reduce_scatter", {"algorithm": "push_chunks", "ahead": -1}, "ahead -1 must be at least 0 chunks"),
            ("all_to_all", {"groups": 3}, "groups 3 must divide the 4 ranks"),
        )
    ),
    *(
        ("gemm_all_scatter", "triton", case, arch, {**PLAIN, **wrong}, said)
        for case, arch, wrong, said in (
            (S4, "sm_90", {"scatter": "fax"}, "'fax' is not one of store, put, tma"),
            (S4, "gfx942", {"tma": True}, "gfx942 has none"),
            (S4, "sm_90", {**COPY, "split_k": 2}, "split_k 2, cut 'all' and swap F"),
            (S4, "sm_90", {"cut": "last", "split_k": 2}, "cut 'last' is not one of all, rest"),
            (
                S4,
                "sm_90",
                {"block_m": 256, "block_n": 256, "num_stages": 4},
                r"262144 bytes of LDS .* sm_90 has 232448",
            ),
            (NARROW, "sm_90", COPY, "multiple of 16 bytes per rank"),
            (LONG, "sm_90", {}, "31 bits"),
        )
    ),
)
"""Operator, backend, a case's name or the dimensions of one of four ranks, arch, knobs, the sentence."""


@pytest.mark.parametrize(("name", "backend", "case", "arch", "knobs", "said"), BAD)
def test_knobs_that_cannot_work_are_refused(name, backend, case, arch, knobs, said):
    kernel = KERNELS[name]
    one = kernel.case(case) if isinstance(case, str) else Case("t", world=4, dtype="fp16", **case)
    with pytest.raises((ValueError, Unsupported), match=said):
        kernel.compilations[backend](one, arch, **knobs)


# ---- in the interpreter ----------------------------------------------------------------------------------------------


INTERPRETED = ("all_gather", "gluon", "collectives", "gemm", "gemm_all_scatter")


@pytest.mark.slow
@pytest.mark.parametrize("operators", mostly_nightly(INTERPRETED, "gemm"))
def test_in_the_interpreter(operators):
    run_alone("tests.kernels.interpreted", operators, TRITON_INTERPRET="1")
