"""Regressions planted in the repository's own kernels: each is found and named, and nothing else is alarmed.

One or two cases per kernel, and the architecture where the regression shows.
"""

from __future__ import annotations

import shutil

import pytest

from ci.isa.judge import CodeVerdict, compare
from ci.isa.rules import IsaPolicy
from kernels.hardware import lds_limit
from tests.ci.isa.documents import DEQUANTISE, ROOT, alarms, change, compiled

pytestmark = [pytest.mark.nightly, pytest.mark.xdist_group("own_kernels")]

CHOSEN = {
    "gfx942": {
        "kernels": ["all_gather", "gemm_all_scatter", "gemm"],
        "backends": ["triton", "gluon"],
        "cases": ["w4_fp16_8MB", "n4608_k36864_m8192_fp16_w4", "n4096_k14336_m256_fp16_w4", "n8192_k4096_m256_fp16"],
    },
    "gfx950": {
        "kernels": ["gemm", "moe_gemm2_mxfp4"],
        "backends": ["triton", "triton_atomic"],
        "cases": ["n8192_k4096_m256_fp16", "kimi_m4_bm16"],
    },
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One folder of compiled results for all trees: what did not change is compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def bases(cache):
    """arch -> this tree, compiled when it is asked for."""
    done = {}

    def base(arch):
        if arch not in done:
            done[arch] = compiled(ROOT, cache, arch, **CHOSEN[arch])
            kernels = {entry.kernel for entry in done[arch].entries if entry.code}
            assert kernels == set(CHOSEN[arch]["kernels"])
        return done[arch]

    return base


@pytest.fixture
def tree(tmp_path):
    """A copy of the kernels to plant in."""
    shutil.copytree(ROOT / "kernels", tmp_path / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


KEPT = ("heaps_from(bases, rank, WORLD, WORLD) if AMD else bases", "bases")
"""How gemm_all_scatter loads the bases of the peers' heaps: before the first tile on AMD."""

PLANTED = {
    "the hints of all_gather's Gluon backend removed": (
        "all_gather/gluon_device.py",
        [
            ("gl.max_contiguous(gl.multiple_of(base + at, ALIGN), VECTOR)", "base + at"),
            ("gl.multiple_of((mine + heaps[i]).to(out.dtype), 16)", "(mine + heaps[i]).to(out.dtype)"),
        ],
        "all_gather",
        "gfx942",
        "remote_store_width",
        "stores to remote ranks went from 16 B to 8 B per lane: ",
    ),
    "heap bases loaded before each tile of gemm_all_scatter": (
        "gemm_all_scatter/device.py",
        [KEPT, ("    here = _base(", "    heaps = heaps_from(heaps, rank, WORLD, WORLD)\n    here = _base(")],
        "gemm_all_scatter",
        "gfx942",
        "heap_bases",
        "(reloaded, no longer kept)",
    ),
    "heap bases loaded between the peers of gemm_all_scatter": (
        "gemm_all_scatter/device.py",
        [KEPT, ("    if AMD:\n        found = heaps[i]", "    if False:\n        found = heaps[i]")],
        "gemm_all_scatter",
        "gfx942",
        "drains",
        "drains of remote stores in a block: 0 → 2; 2 more times a wave waits for an answer over the link before it",
    ),
    "a tile that spills": (
        "gemm_all_scatter/config.py",
        [("arch, 256, 128, 64, 8,", "arch, 256, 256, 64, 8,")],
        "gemm_all_scatter",
        "gfx942",
        "spills",
        "vector registers spilled: 0 → ",
    ),
    "dot_scaled replaced by a dequantise": (
        "moe_gemm2_mxfp4/device.py",
        [
            (
                'tl.dot_scaled(a, a_scale, "e2m1", w, w_scale, "e2m1", acc)',
                "tl.dot(dequantised(a, a_scale), dequantised(w.T, w_scale).T, acc)",
            ),
            ("@triton.jit\ndef gemm2_native_kernel(", DEQUANTISE + "@triton.jit\ndef gemm2_native_kernel("),
        ],
        "moe_gemm2_mxfp4",
        "gfx950",
        "matrix_kind",
        "v_mfma_scale_f32_16x16x128_f8f6f4 is gone; MFMA now: ",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_regression_is_the_only_alarm(bases, cache, tree, name):
    file, changes, kernel, arch, rule, words = PLANTED[name]
    change(tree / "kernels" / file, *changes)
    judgement = compare(bases(arch), compiled(tree, cache, arch, **CHOSEN[arch]), IsaPolicy())
    assert alarms(judgement) == {(kernel, arch): [rule]}
    assert all(words in d.alarms[0].sentence for d in judgement.differences if d.alarms)
    assert (judgement.verdict, judgement.exit_code) == (CodeVerdict.SLOWER, 1)


def test_one_line_takes_the_hint_from_every_kernel_that_translates(bases, cache, tree):
    change(
        tree / "kernels" / "_shared" / "symmetric_device.py",
        ("return tl.multiple_of(address.to(pointer.dtype), ALIGN)", "return address.to(pointer.dtype)"),
    )
    after = compiled(tree, cache, "gfx942", **CHOSEN["gfx942"])
    found = alarms(compare(bases("gfx942"), after, IsaPolicy()))
    assert found == {(kernel, "gfx942"): ["remote_store_width"] for kernel in ("all_gather", "gemm_all_scatter")}


PUSHING = {"all_gather", "all_reduce", "all_to_all", "gemm_all_scatter", "reduce_scatter"}


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_no_kernel_waits_for_one_peer_before_it_stores_to_the_next(arch, cache):
    """Every push of a pull-request case to seven peers, by default knobs: no drain inside a block, nothing spilled.

    Every store to a peer moves 16 bytes a lane; AMD's matrix units leave 4 neighbouring elements of a tile of 16 rows
    in a lane, so those of the fused kernel may move 8.

    tests/kernels/test_compiled.py looks at the assembly of the other numbers of ranks in its own way.
    """
    entries = compiled(ROOT, cache, arch, kernels=sorted(PUSHING), cases=["w8_*", "*_w8"]).entries
    found = [(entry, entry.code.metrics) for entry in entries if entry.code and entry.code.metrics.remote_store_widths]
    assert {entry.kernel for entry, _ in found} == PUSHING
    assert {entry.backend for entry, _ in found} >= {"triton", "gluon", "bulk", "partitioned"}
    for entry, metrics in found:
        assert metrics.remote_store_drains == 0, (entry.name, entry.cases)
        assert (metrics.vgpr_spills, metrics.sgpr_spills) == (0, 0), (entry.name, entry.cases)
        assert metrics.lds_bytes <= lds_limit(arch), (entry.name, entry.cases)
        fused = entry.kernel == "gemm_all_scatter" and entry.backend != "bulk"
        allowed = {"16", "8"} if fused else {"16"}
        assert set(metrics.remote_store_widths) <= allowed, (entry.name, entry.cases)
