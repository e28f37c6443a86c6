"""GEMM with all-scatter: a rank's share alone, what is cut of the last round, and how many programs are launched."""

from __future__ import annotations

import pytest

from kernels.gemm_all_scatter import config, device, gemm_all_scatter
from kernels.hardware import compute_units
from kernels.spec import Case

BUILD = gemm_all_scatter.backends["triton"].build


def test_a_share_is_launched_as_the_whole_operator_unless_it_has_a_key_of_its_own(monkeypatch):
    for arch in ("sm_90", "gfx942", "gfx950"):
        for case in gemm_all_scatter.cases:
            if config.share_of(case) > 1:
                whole = gemm_all_scatter.case(case.name.replace("w1of", "w"))
                assert config.config(case, arch) == config.config(whole, arch), (case.name, arch)
                assert config.tiles(case, 128, 64) == config.tiles(whole, 128, 64)
    share = gemm_all_scatter.case("n4096_k4096_m64_fp16_w1of4")
    assert config.shape(share) == "w1of4_n4096_k4096_m64"
    monkeypatch.setitem(config.TUNED["sm_90"], config.shape(share), {"block_m": 16})
    assert config.config(share, "sm_90") == {"cut": "all", "block_m": 16}
    assert config.rule(share, "sm_90")["block_m"] == 64


def test_what_is_cut():
    """576 tiles: what each way of cutting launches, and room for the sums of the tiles that are cut, no more."""
    case = gemm_all_scatter.case("n4608_k36864_m8192_fp16_w4")
    tile = 128 * 128
    for cut, programs, split_k, expected in (
        ("rest", 0, 2, (132, 2, True, 48, 48 * 2 * tile)),
        ("all", 0, 2, (132, 2, False, 576, 576 * 2 * tile)),
        ("rest", 575, 8, (575, 8, True, 1, 8 * tile)),
        ("rest", 576, 2, (576, 1, False, 1, 1)),
        ("rest", 577, 2, (577, 2, False, 576, 576 * 2 * tile)),
        ("rest", 2000, 2, (1152, 2, False, 576, 576 * 2 * tile)),
    ):
        knobs = {**BUILD.__kwdefaults__, "tma": True, "cut": cut, "programs": programs, "split_k": split_k}
        p = device.plan(case, "sm_90", 132, knobs)
        found = (p.programs, p.constants["SPLIT_K"], p.constants["REST"], p.counters, p.workspace)
        assert found == expected, (cut, programs, split_k, found)


def test_the_rest_by_rule():
    """Slices of the rest where a last round would be at most half full, of the tiles that waste the least."""
    for name, arch, split_k, columns in (
        ("n4608_k36864_m8192_fp16_w2", "sm_90", 2, 256),
        ("n8192_k4096_m1024_fp16_w2", "sm_90", 1, 256),
        ("n4608_k36864_m8192_fp16_w2", "gfx950", 2, 128),
        ("n4608_k36864_m8192_fp16_w2", "gfx942", 1, 128),
    ):
        found = config.config(gemm_all_scatter.case(name), arch)
        assert (found["split_k"], found["cut"]) == (split_k, "rest" if split_k > 1 else "all"), (name, arch)
        assert found["block_n"] == columns, (name, arch)
    for tiles, split_k in ((132, 1), (134, 8), (150, 7), (198, 2), (200, 1)):
        case = Case("t", world=1, dtype="fp16", M=256, N=64 * tiles, K=4096)
        assert config.tiles(case, 128, 128) == tiles
        assert config.config(case, "sm_90")["split_k"] == split_k, tiles
    short = Case("t", world=1, dtype="fp16", M=256, N=64 * 134, K=4 * 64 * 3)
    assert config.config(short, "sm_90")["split_k"] == 3


def test_a_lone_plan():
    """One rank alone announces nothing and waits for nobody; it has as many programs as a rank among others."""
    share, whole = (
        device.plan(gemm_all_scatter.case(f"n4096_k14336_m64_fp16_w{end}"), "sm_90", 132, BUILD.__kwdefaults__)
        for end in ("1of8", "8")
    )
    assert share.programs == whole.programs
    differing = {key for key in share.constants if share.constants[key] != whole.constants[key]}
    assert differing == {"WORLD", "LANES", "MEET", "WAIT"}
    assert not share.constants["MEET"]
    assert not share.constants["WAIT"]


@pytest.mark.parametrize("arch", ["sm_90", "gfx942", "gfx950"])
def test_every_program_of_a_sweep_has_a_tile_or_a_slice(arch):
    backend = gemm_all_scatter.backends["triton"]
    for case in gemm_all_scatter.cases[::5]:
        for knobs in config.candidates(case, arch):
            found = device.plan(case, arch, 132, {**BUILD.__kwdefaults__, **backend.knobs(case, arch, knobs)})
            count = config.tiles(case, knobs["block_m"], knobs["block_n"])
            assert found.programs <= count * found.constants.get("SPLIT_K", 1)
            assert found.constants.get("REST", False) == (knobs.get("cut") == "rest" and count % 132 > 0)
            assert found.programs <= 2 * compute_units(case, arch)
