"""The declaration is complete; CPU backends gather exactly; the push kernel does so in the interpreter."""

import pytest
import torch

from kernels import spec
from kernels.all_gather import all_gather, config
from kernels.numerics import compare, poison
from kernels.registry import discover
from kernels.spec import Case, Place
from kernels.symmetric_heap import FakeRanks, create
from tests.kernels.ranks import run_alone, run_ranks

MODULE, INTERPRETED = "tests.kernels.test_all_gather", "tests.kernels.all_gather_interpreted"
TINY = Case("tiny", world=2, dtype="bf16", MB=1 / 128)


def gather_for_real(rank, world, directory):
    """Backend torch and the gloo baseline, three dtypes, against the reference; poisoned between calls."""
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=world)
    heap = create(rank, world, "cpu", 1 << 17)
    for dtype in ("fp16", "bf16", "fp32"):
        case = Case("t", world=world, dtype=dtype, MB=1 / 64).at(Place(rank=rank, world=world, heap=heap))
        inputs = all_gather.function("inputs")(case, 11)
        expected = all_gather.function("reference")(case, inputs)
        assert torch.equal(expected.view(world, -1)[rank], inputs["shard"])
        for backend in ("torch", "rccl"):
            call = all_gather.backends[backend].build(case, inputs)
            for turn in range(3):
                out = call()
                found = compare(out, expected, all_gather.tolerance_for(case))
                assert found.ok, (backend, dtype, turn, found.why)
                heap.barrier()
                poison(out)
                heap.barrier()
        heap.reset()
    heap.close()
    dist.destroy_process_group()


def test_declared_once_with_the_tiers():
    all_gather.check()
    assert discover()["all_gather"] is all_gather
    assert [c.name for c in all_gather.cases if c.tier == "pr"] == [
        f"w{world}_fp16_{size}MB" for world in (2, 4) for size in (2, 8, 32, 128, 512)]
    assert len(all_gather.cases) == 3 * 3 * 9
    assert all_gather.baselines == ("rccl",)
    assert "heap.barrier()" in discover()["all_gather"].doc


def test_cost_follows_nccl_tests():
    found = all_gather.function("cost")(all_gather.case("w4_fp16_32MB"))
    total = 32 << 20
    assert found.payload_bytes == total
    assert found.link_bytes == total * 3 // 4
    assert found.hbm_bytes == total + total // 4


@pytest.mark.parametrize("world", [2, 4])
def test_cpu_backends_with_real_ranks(world, tmp_path):
    run_ranks(MODULE, "gather_for_real", world, tmp_path)


def test_shards_differ_between_ranks_and_the_reference_shows_a_swap():
    case = TINY.at(Place(rank=0, world=2))
    inputs = all_gather.function("inputs")(case, 1)
    expected = all_gather.function("reference")(case, inputs)
    swapped = expected.view(2, -1).flip(0).reshape(-1)
    assert not compare(swapped, expected, all_gather.tolerance_for(case)).ok
    assert expected.unique().numel() > 300


def test_unsupported_says_what_is_needed():
    big = all_gather.case("w2_fp16_512MB").at(Place())
    for backend in ("torch", "rccl"):
        with pytest.raises(spec.Unsupported, match="512 MB is too much"):
            all_gather.backends[backend].build(big, {})
    with pytest.raises(spec.Unsupported, match="init_process_group"):
        all_gather.backends["rccl"].build(TINY.at(Place()), {})
    with pytest.raises(spec.Unsupported, match=r"there is none"):
        all_gather.backends["torch"].build(TINY.at(Place()), {"shard": None})
    with pytest.raises(spec.Unsupported, match="one of 3"):
        all_gather.backends["torch"].build(TINY.at(Place(heap=FakeRanks(3, 4096).heaps[0])), {"shard": None})
    with pytest.raises(spec.Unsupported, match="GPUs are needed"):
        all_gather.backends["triton"].build(TINY.at(Place()), {"shard": None})
    with pytest.raises(spec.Unsupported, match=r"sm_75.*config\.py"):
        config.config(big, "sm_75")


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx950"])
def test_every_candidate_can_be_launched(arch):
    run_alone(MODULE, "constants_of_all_candidates", arch)


def constants_of_all_candidates(arch):
    from kernels.all_gather import launch
    backend = all_gather.backends["triton"]
    for case in all_gather.cases:
        tried = config.candidates(case, arch)
        assert 10 <= len(tried) <= 20, (case.name, len(tried))
        assert tried[0] == config.config(case, arch)
        for knobs in tried:
            full = {**backend.build.__kwdefaults__, **backend.knobs(case, arch, knobs)}
            words = case.MB * (1 << 20) // case.world // 4
            fixed = launch.constants(case.world, words, arch, full)
            assert fixed["PROGRAMS"] * fixed["BLOCK"] * 4 // (case.world // fixed["FANOUT"]) <= 4 * words * 64


def test_knobs_that_cannot_work_are_refused():
    run_alone(MODULE, "bad_knobs")


def bad_knobs():
    from kernels.all_gather import launch
    knobs = {"programs": 3, "num_warps": 1, "unroll": 1, "fanout": 1, "load": "", "store": "", "wait": True}
    with pytest.raises(ValueError, match="multiple of the 4 groups"):
        launch.constants(4, 1024, "sm_90", knobs)
    with pytest.raises(ValueError, match="must divide"):
        launch.constants(4, 1024, "sm_90", {**knobs, "fanout": 3})
    with pytest.raises(ValueError, match="multiple of 16"):
        launch.constants(4, 1022, "sm_90", {**knobs, "fanout": 4})


@pytest.mark.parametrize("check", ["fake_ranks", "flags_count_calls", "one_rank_is_missing"])
def test_in_the_interpreter(check):
    run_alone(INTERPRETED, check, TRITON_INTERPRET="1")


@pytest.mark.parametrize("world", [2, 4])
def test_in_the_interpreter_with_real_ranks(world, tmp_path):
    (tmp_path / "meet").mkdir()
    run_ranks(INTERPRETED, "real_ranks", world, tmp_path / "meet", TRITON_INTERPRET="1")
