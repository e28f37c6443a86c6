"""Planted code-generation regressions: each is found and named by compiling for real, and nothing else is alarmed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ci.isa import IsaJudgement, Verdict, compare
from ci.isa_rules import IsaPolicy

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "tests" / "benchmarks" / "isa" / "tree"
ARCHES = ("gfx942", "gfx950")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder of compiled results for all trees: what did not change is compiled once."""
    return tmp_path_factory.mktemp("cache")


def compiled(tree, cache, *arches, kernels=(), cases=()):
    """The result file of a tree."""
    command = [sys.executable, "-m", "benchmarks.isa", "metrics", "--tree", tree, "--cache", cache,
               "--progress", "none"]
    for flag, values in (("--arch", arches), ("--kernel", kernels), ("--case", cases)):
        for value in values:
            command += [flag, value]
    done = subprocess.run([str(part) for part in command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def base(cache):
    return compiled(SAMPLES, cache, *ARCHES)


def planted(folder: Path, file: str, *changes: tuple[str, str]) -> Path:
    """A copy of the samples with text replaced in one file; every replacement must apply."""
    tree = folder / "tree"
    shutil.copytree(SAMPLES, tree, ignore=shutil.ignore_patterns("__pycache__"))
    path = tree / "samples" / file
    text = path.read_text()
    for old, new in changes:
        assert old in text, f"{file} has no {old!r}"
        text = text.replace(old, new)
    path.write_text(text)
    return tree


def judged(base, tree: Path, cache, *arches) -> IsaJudgement:
    return compare(base, compiled(tree, cache, *(arches or ARCHES)), IsaPolicy())


def alarms(judgement: IsaJudgement) -> dict[tuple[str, str], list[str]]:
    """(kernel, arch) -> rules that alarm; every configuration without alarm must be SAME."""
    for difference in judgement.differences:
        assert difference.alarms or difference.verdict is Verdict.SAME, (difference, difference.findings)
    return {(d.kernel, d.arch): [f.rule for f in d.alarms] for d in judgement.differences if d.alarms}


def sentence(judgement: IsaJudgement, kernel: str, arch: str, rule: str) -> str:
    return next(f.sentence for d in judgement.differences if (d.kernel, d.arch) == (kernel, arch)
                for f in d.findings if f.rule == rule)


def test_a_lost_hint_collapses_remote_stores_of_both_kernels_that_translate(base, cache, tmp_path):
    tree = planted(tmp_path, "translate.py", ("tl.max_contiguous(tl.multiple_of(remote, (1, 16)), (1, 16))", "remote"))
    judgement = judged(base, tree, cache)
    found = alarms(judgement)
    assert set(found) == {(kernel, arch) for kernel in ("sample_all_gather", "sample_gemm_scatter") for arch in ARCHES}
    assert all("remote_store_width" in rules for rules in found.values())
    assert sentence(judgement, "sample_all_gather", "gfx942", "remote_store_width").startswith(
        "stores to remote ranks went from 16 B to 2 B a lane: ")
    assert "global_store_short" in sentence(judgement, "sample_all_gather", "gfx942", "remote_store_width")
    assert judgement.exit_code == 1


def test_heap_bases_reloaded_in_the_loop(base, cache, tmp_path):
    tree = planted(tmp_path, "gemm.py", ("    own_base = tl.load(heap_bases + RANK)\n", ""),
                   ("translate(own, own_base, heap_bases, peer)",
                    "translate(own, tl.load(heap_bases + RANK), heap_bases, peer)"))
    judgement = judged(base, tree, cache)
    assert alarms(judgement) == {("sample_gemm_scatter", arch): ["heap_bases"] for arch in ARCHES}


def test_a_tile_that_spills(base, cache, tmp_path):
    tree = planted(tmp_path, "wgrad.py", ('"BLOCK_K": 128, "BLOCK_N": 128, "BLOCK_T": 32',
                                          '"BLOCK_K": 256, "BLOCK_N": 256, "BLOCK_T": 64'))
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
    tree = planted(tmp_path, "mxfp4.py", (
        'total = tl.dot_scaled(tl.load(a), tl.load(a_scale), "e2m1", tl.load(b), tl.load(b_scale), "e2m1", total)',
        "total = tl.dot(dequantised(tl.load(a), tl.load(a_scale)),\n"
        "                       dequantised(tl.load(b).trans(), tl.load(b_scale)).trans(), total)"),
        ("@triton.jit\n", DEQUANTISE + "@triton.jit\n"))
    judgement = judged(base, tree, cache, "gfx950")
    difference, = (d for d in judgement.differences if d.kernel == "sample_mxfp4" and d.arch == "gfx950")
    assert "v_mfma_scale_f32_16x16x128_f8f6f4 is gone" in sentence(judgement, "sample_mxfp4", "gfx950", "matrix_kind")
    assert {d.kernel for d in judgement.differences if d.alarms} == {"sample_mxfp4"}
    assert difference.verdict is Verdict.SLOWER


@pytest.fixture(scope="module")
def own(tmp_path_factory, cache):
    """The repository's own kernels that store to peers: (result file, a copy of the tree to plant in)."""
    tree = tmp_path_factory.mktemp("own") / "tree"
    shutil.copytree(ROOT / "kernels", tree / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    return compiled(ROOT, cache, "gfx942", **OWN), tree


OWN = {"kernels": ["all_gather", "gemm_all_scatter"], "cases": ["w4_fp16_2MB", "n4096_k14336_m256_fp16_w4"]}
RELOAD = ("there = tl.load(bases + ", "there = tl.load(bases + rank) - here + tl.load(bases + ")


@pytest.mark.parametrize(("file", "old", "new", "rule", "kernels"), [
    ("symmetric_device.py", "return tl.multiple_of(address.to(pointer.dtype), ALIGN)",
     "return address.to(pointer.dtype)", "remote_store_width", set(OWN["kernels"])),
    ("all_gather/device.py", *RELOAD, "heap_bases", {"all_gather"}),
    ("gemm_all_scatter/device.py", *RELOAD, "heap_bases", {"gemm_all_scatter"})])
def test_the_repositorys_own_kernels(own, cache, file, old, new, rule, kernels):
    before, tree = own
    path = tree / "kernels" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    after = compiled(tree, cache, "gfx942", **OWN)
    path.write_text(text)
    judgement = compare(before, after, IsaPolicy())
    found = alarms(judgement)
    assert {kernel for kernel, _ in found} == kernels
    assert all(rules[0] == rule for rules in found.values())


DEQUANTISE = '''@triton.jit
def dequantised(packed, scale):
    """[rows, K/2] bytes of two e2m1 and [rows, K/32] e8m0 -> [rows, K] bf16."""
    nibbles = tl.join(packed & 15, packed >> 4).reshape(packed.shape[0], packed.shape[1] * 2).to(tl.int32)
    exponent, mantissa = (nibbles >> 1) & 3, nibbles & 1
    value = tl.where(exponent == 0, mantissa * 0.5, (1.0 + 0.5 * mantissa) * tl.exp2((exponent - 1).to(tl.float32)))
    value = tl.where(nibbles >= 8, -value, value)
    factor = tl.exp2(scale.to(tl.float32) - 127.0)
    factor = tl.broadcast_to(factor[:, :, None], (scale.shape[0], scale.shape[1], 32)).reshape(value.shape)
    return (value * factor).to(tl.bfloat16)


'''


def test_refactoring_that_changes_no_code_makes_no_difference(base, cache, tmp_path):
    tree = planted(tmp_path, "gemm.py", ("@triton.jit\n", "\n\n# accumulates in fp32\n@triton.jit\n"),
                   ("total", "accumulated"), ("inner", "k_offsets"), ("gemm_tile", "gemm_kernel"))
    judgement = judged(base, tree, cache)
    assert judgement.verdict is Verdict.SAME
    assert judgement.exit_code == 0
    assert not any(d.findings for d in judgement.differences)


def test_two_checkouts_in_different_folders_give_the_same_bytes(base, tmp_path):
    elsewhere = tmp_path / "a much longer folder name" / "checkout"
    shutil.copytree(SAMPLES, elsewhere, ignore=shutil.ignore_patterns("__pycache__"))
    kernels = ("sample_gemm_scatter", "sample_gluon_gather", "sample_wgrad")
    again = compiled(elsewhere, tmp_path / "another cache", *ARCHES, kernels=kernels)
    assert json.dumps(again["entries"]) == json.dumps([e for e in base["entries"] if e["kernel"] in kernels])
