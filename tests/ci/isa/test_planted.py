"""Planted code-generation regressions: each is found and named by compiling for real, and nothing else is alarmed.

Small sample kernels (tests/benchmarks/isa/tree); test_own_kernels.py plants in the repository's own.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ci.isa.judge import CodeVerdict, IsaJudgement, compare
from ci.isa.rules import IsaPolicy
from tests.ci.isa.trees import DEQUANTISE, ROOT, alarms, change, compiled, result_file, sentence

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("planted")]

SAMPLES = ROOT / "tests" / "benchmarks" / "isa" / "tree"
ARCHES = ("gfx942", "gfx950")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder of compiled results for all trees: what did not change is compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def base(cache):
    return compiled(SAMPLES, cache, *ARCHES)


def planted(folder: Path, file: str, *changes: tuple[str, str]) -> Path:
    """A copy of the samples with text replaced in one file; every replacement must apply."""
    tree = folder / "tree"
    shutil.copytree(SAMPLES, tree, ignore=shutil.ignore_patterns("__pycache__"))
    change(tree / "samples" / file, *changes)
    return tree


def judged(base, tree: Path, cache, *arches) -> IsaJudgement:
    return compare(base, compiled(tree, cache, *(arches or ARCHES)), IsaPolicy())


def test_a_lost_hint_collapses_remote_stores_of_both_kernels_that_translate(base, cache, tmp_path):
    tree = planted(tmp_path, "translate.py", ("tl.max_contiguous(tl.multiple_of(remote, (1, 16)), (1, 16))", "remote"))
    judgement = judged(base, tree, cache)
    found = alarms(judgement)
    assert set(found) == {(kernel, arch) for kernel in ("sample_all_gather", "sample_gemm_scatter") for arch in ARCHES}
    assert all("remote_store_width" in rules for rules in found.values())
    assert sentence(judgement, "sample_all_gather", "gfx942", "remote_store_width").startswith(
        "stores to remote ranks went from 16 B to 2 B per lane: "
    )
    assert "global_store_short" in sentence(judgement, "sample_all_gather", "gfx942", "remote_store_width")
    assert judgement.exit_code == 1


def test_heap_bases_reloaded_in_the_loop(base, cache, tmp_path):
    tree = planted(
        tmp_path,
        "gemm.py",
        ("    own_base = tl.load(heap_bases + RANK)\n", ""),
        ("translate(own, own_base, heap_bases, peer)", "translate(own, tl.load(heap_bases + RANK), heap_bases, peer)"),
    )
    judgement = judged(base, tree, cache)
    assert alarms(judgement) == {("sample_gemm_scatter", arch): ["heap_bases"] for arch in ARCHES}


def test_a_tile_that_spills(base, cache, tmp_path):
    tree = planted(
        tmp_path,
        "wgrad.py",
        ('"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_T": 32', '"BLOCK_K": 256, "BLOCK_N": 256, "BLOCK_T": 64'),
    )
    judgement = judged(base, tree, cache)
    found = alarms(judgement)
    assert set(found) == {("sample_wgrad", arch) for arch in ARCHES}
    assert all("spills" in rules for rules in found.values())
    assert "vector registers spilled: 0 → " in sentence(judgement, "sample_wgrad", "gfx942", "spills")


def test_a_stage_too_many_for_lds(base, cache, tmp_path):
    tree = planted(tmp_path, "gemm.py", ('"num_stages": 2', '"num_stages": 4'))
    judgement = judged(base, tree, cache, "gfx942")
    found = {(d.kernel, d.arch): [f.rule for f in d.alarms] for d in judgement.differences if d.alarms}
    assert {arch for _, arch in found} == {"gfx942"}
    assert {kernel for kernel, _ in found} == {"sample_gemm", "sample_gemm_scatter"}
    assert all(rules[0] == "load" for rules in found.values())
    assert "a workgroup on gfx942 may have 65536 B" in sentence(judgement, "sample_gemm", "gfx942", "load")


def test_dot_scaled_replaced_by_a_dequantise(base, cache, tmp_path):
    tree = planted(
        tmp_path,
        "mxfp4.py",
        (
            'total = tl.dot_scaled(tl.load(a), tl.load(a_scale), "e2m1", tl.load(b), tl.load(b_scale), "e2m1", total)',
            "total = tl.dot(dequantised(tl.load(a), tl.load(a_scale)),\n"
            "                       dequantised(tl.load(b).trans(), tl.load(b_scale)).trans(), total)",
        ),
        ("@triton.jit\n", DEQUANTISE + "@triton.jit\n"),
    )
    judgement = judged(base, tree, cache, "gfx950")
    (difference,) = (d for d in judgement.differences if d.kernel == "sample_mxfp4" and d.arch == "gfx950")
    assert "v_mfma_scale_f32_16x16x128_f8f6f4 is gone" in sentence(judgement, "sample_mxfp4", "gfx950", "matrix_kind")
    assert {d.kernel for d in judgement.differences if d.alarms} == {"sample_mxfp4"}
    assert difference.verdict is CodeVerdict.SLOWER


def test_refactoring_that_changes_no_code_makes_no_difference(base, cache, tmp_path):
    tree = planted(
        tmp_path,
        "gemm.py",
        ("@triton.jit\n", "\n\n# accumulates in fp32\n@triton.jit\n"),
        ("total", "accumulated"),
        ("inner", "k_offsets"),
        ("gemm_tile", "gemm_kernel"),
    )
    judgement = judged(base, tree, cache)
    assert judgement.verdict is CodeVerdict.SAME
    assert judgement.exit_code == 0
    assert not any(d.findings for d in judgement.differences)


def test_two_checkouts_in_different_folders_give_the_same_bytes(cache, tmp_path):
    elsewhere = tmp_path / "a much longer folder name" / "checkout"
    shutil.copytree(SAMPLES, elsewhere, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = ("sample_gemm_scatter", "sample_gluon_gather", "sample_wgrad")
    again = result_file(elsewhere, tmp_path / "another cache", *ARCHES, kernels=kernels)
    assert again == result_file(SAMPLES, cache, *ARCHES, kernels=kernels)
