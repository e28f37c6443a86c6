"""Every rule: what it says, when it judges, what it must not mistake for a regression; and the policy behind it."""

from __future__ import annotations

import datetime

import pytest

from ci.isa.rules import IsaPolicy, findings, load_policy, matrix_rate, parse_policy
from ci.judging.policy import PolicyError
from tests.ci.isa.documents import REMOTE, entry


def found(base, head, policy=None):
    """rule -> (sentence, judged)."""
    said = findings(entry(**base), entry(code="b", **head), policy or IsaPolicy())
    return {f.rule: (f.sentence, f.judged) for f in said}


def test_a_collapse_of_remote_stores_in_an_engineers_words():
    collapsed = REMOTE | {
        "store_widths": {"2": 128},
        "store_names": {"global_store_short": 128},
        "remote_store_widths": {"2": 128},
        "remote_store_names": {"global_store_short": 128},
    }
    assert found(REMOTE, collapsed) == {
        "remote_store_width": ("stores to remote ranks went from 16 B to 2 B per lane: 128 global_store_short", True)
    }


def test_a_collapse_of_local_stores_is_told_apart_from_remote_ones():
    base = REMOTE | {"store_widths": {"16": 24}, "store_names": {"global_store_dwordx4": 24}}
    head = REMOTE | {
        "store_widths": {"16": 16, "2": 64},
        "store_names": {"global_store_dwordx4": 16, "global_store_short": 64},
    }
    assert found(base, head) == {"store_width": ("stores went from 16 B to 2 B per lane: 64 global_store_short", True)}


@pytest.mark.parametrize(("width", "judged"), [("8", True), ("12", False), ("32", False)])
def test_the_width_from_which_stores_have_collapsed(width, judged):
    assert found({"store_widths": {"16": 8}}, {"store_widths": {width: 8}})["store_width"][1] is judged


def test_more_stores_of_the_same_width_are_no_collapse():
    assert found({"store_widths": {"8": 8}}, {"store_widths": {"8": 32}}) == {
        "store_width": ("stores: 8 of 8 B → 32 of 8 B", False)
    }


def test_stores_that_come_or_go_are_shown():
    assert found(REMOTE, {"store_widths": {}, "store_names": {}})["remote_store_width"] == (
        "stores to remote ranks: 16 of 16 B → none",
        False,
    )
    assert found({}, REMOTE)["remote_store_width"] == ("stores to remote ranks: none → 16 of 16 B", False)


def test_loads_collapse_at_a_quarter():
    assert found({"load_widths": {"16": 8}}, {"load_widths": {"8": 16}})["load_width"] == (
        "loads went from 16 B to 8 B per lane: 16 of 8 B",
        False,
    )
    assert found({"load_widths": {"16": 8}}, {"load_widths": {"2": 64}})["load_width"][1]


@pytest.mark.parametrize(
    ("changed", "judged"),
    [({"vgpr_spills": 1}, True), ({"scratch_ops_in_loops": 1}, True), ({"scratch_bytes": 16}, False)],
)
def test_spills(changed, judged):
    assert found({}, changed)["spills"][1] is judged


def test_spills_in_words_and_their_end():
    spilled = {"vgpr_spills": 104, "scratch_bytes": 404, "scratch_ops_in_loops": 213}
    said, judged = found({"vgpr_spills": 39, "scratch_bytes": 160, "scratch_ops_in_loops": 78}, spilled)["spills"]
    assert judged
    assert said == (
        "vector registers spilled: 39 → 104, scratch: 160 → 404 B per lane, scratch instructions in loops: 78 → 213"
    )
    assert found(spilled, {})["spills"][1] is False


def test_nvidia_has_no_spill_count_but_scratch_in_loops():
    nvidia = {"arch": "sm_90", "without": ("vgpr", "vgpr_spills"), "registers": 255}
    head = entry(code="b", scratch_ops_in_loops=26, scratch_bytes=112, **nvidia)
    finding = findings(entry(**nvidia), head, IsaPolicy())[0]
    assert finding.judged
    assert finding.sentence == "scratch: 0 → 112 B per lane, scratch instructions in loops: 0 → 26"


def test_lds_over_the_limit_does_not_load():
    why = "it needs 98304 B of LDS and a workgroup on gfx942 may have 65536 B"
    said = found({}, {"will_not_load": why, "lds_bytes": 98304, "occupancy": 0})
    assert said["load"] == (f"does not load on gfx942: {why}", True)
    assert "occupancy" not in said
    assert found({"will_not_load": why, "occupancy": 0}, {})["load"][1] is False


def test_an_occupancy_step_names_its_cause():
    assert found({}, {"occupancy": 3, "vgpr": 132})["occupancy"] == (
        "occupancy: 4 → 3 waves per SIMD (86 → 132 VGPRs)",
        True,
    )
    assert found({}, {"occupancy": 5, "vgpr": 80})["occupancy"][1] is False
    assert found({}, {"occupancy": 3}, IsaPolicy(occupancy_step=2))["occupancy"][1] is False


def test_what_narrow_stores_need_in_registers_is_one_regression_with_them():
    narrow = {**REMOTE, "remote_store_widths": {"2": 128}, "occupancy": 3, "vgpr": 132, "vgpr_spills": 4}
    told = findings(entry(**REMOTE), entry(code="b", **narrow), IsaPolicy())
    assert [f.rule for f in told if f.judged] == ["remote_store_width"]
    assert [f.rule for f in told[1:3]] == ["spills", "occupancy"]
    assert all(f.follows for f in told[1:3])
    assert not any(f.follows for f in told[3:])


def test_spills_alone_are_judged():
    told = findings(entry(), entry(code="b", vgpr_spills=4, occupancy=3), IsaPolicy())
    assert [f.rule for f in told if f.judged] == ["spills"]


def looped(loads, stored, loads_outside=0):
    return {
        "heap_base_loads": loads + loads_outside,
        "heap_base_loads_in_loops": loads,
        "remote_store_bytes": stored,
        "remote_store_bytes_in_loops": stored,
        "remote_store_widths": {"16": stored // 16},
    }


def test_reloaded_heap_bases_are_judged_and_named():
    assert found(looped(7, 448, 1), looped(14, 448))["heap_bases"] == (
        "heap-base loads: 8 → 14, in loops: 7 → 14 (reloaded, no longer kept)",
        True,
    )


def test_bases_that_were_loaded_before_the_loop_and_are_now_in_it_are_reloaded():
    assert found(looped(0, 448, 8), looped(7, 448, 1))["heap_bases"] == (
        "heap-base loads: 8, in loops: 0 → 7 (reloaded, no longer kept)",
        True,
    )


@pytest.mark.parametrize(
    ("base", "head"),
    [
        (looped(7, 448, 1), looped(1, 64, 1)),  # unrolled seven times, then not
        (looped(1, 64, 1), looped(7, 448, 1)),
        (REMOTE | {"heap_base_loads": 8, "remote_store_bytes": 112}, looped(1, 16, 1)),  # straight line, then a loop
        (REMOTE | {"heap_base_loads": 9}, REMOTE | {"heap_base_loads": 8}),
    ],
)
def test_unrolling_is_no_reload(base, head):
    assert not found(base, head)["heap_bases"][1]


def test_a_straight_line_that_reloads_is_judged():
    assert found(REMOTE | {"heap_base_loads": 8}, REMOTE | {"heap_base_loads": 15})["heap_bases"][1]


DRAINED = "drains of remote stores in a block: 0 → 7; 7 more times a wave waits for an answer over the link before it "


def test_a_drain_inside_a_block_is_judged_and_says_what_it_costs():
    drained = REMOTE | {"remote_store_drains": 7}
    assert found(REMOTE, drained)["drains"] == (DRAINED + "stores on", True)
    assert found(drained, REMOTE)["drains"] == ("drains of remote stores in a block: 7 → 0", False)
    assert not found(REMOTE, drained, IsaPolicy(drains=8))["drains"][1]


def test_a_drain_between_two_blocks_is_shown():
    said = ("drains of remote stores in a block: 0, between two blocks: 0 → 1", False)
    assert found(REMOTE, REMOTE | {"remote_store_drains_between": 1})["drains"] == said


def test_bases_that_are_loaded_again_and_the_drains_they_bring_are_one_regression():
    reloaded = looped(14, 448) | {"remote_store_drains": 6}
    told = findings(entry(**looped(7, 448, 1)), entry(code="b", **reloaded), IsaPolicy())
    assert [(f.rule, f.judged, f.follows) for f in told[:2]] == [("drains", True, False), ("heap_bases", False, True)]


def test_narrow_stores_do_not_excuse_reloaded_bases():
    narrow = looped(14, 448) | {"remote_store_widths": {"2": 128}}
    told = findings(entry(**looped(7, 448, 1)), entry(code="b", **narrow), IsaPolicy())
    assert [f.rule for f in told if f.judged] == ["remote_store_width", "heap_bases"]


def test_a_lost_matrix_kind_is_judged_by_its_rate():
    scaled, plain = {"v_mfma_scale_f32_16x16x128_f8f6f4": 32}, {"v_mfma_f32_16x16x32_bf16": 256}
    assert found({"matrix": scaled}, {"matrix": plain})["matrix_kind"] == (
        "v_mfma_scale_f32_16x16x128_f8f6f4 is gone; MFMA now: 256 v_mfma_f32_16x16x32_bf16",
        True,
    )
    assert found({"matrix": plain}, {"matrix": {}})["matrix_kind"] == (
        "v_mfma_f32_16x16x32_bf16 is gone; MFMA now: none",
        True,
    )
    assert not found({"matrix": plain}, {"matrix": scaled})["matrix_kind"][1]
    assert not found({"matrix": {"v_mfma_f32_16x16x16_f16": 64}}, {"matrix": {"v_mfma_f32_32x32x8_f16": 32}})[
        "matrix_kind"
    ][1]
    assert found({"matrix": plain}, {"matrix": {"v_mfma_f32_16x16x16_bf16": 9}})["matrix_kind"][1]


def test_rates_of_matrix_instructions():
    assert matrix_rate("v_mfma_f32_16x16x16_f16") == matrix_rate("v_mfma_f32_32x32x8_f16") == 256
    assert matrix_rate("v_mfma_f32_4x4x4_16b_f16") == 256
    assert matrix_rate("HGMMA.64x128x16.F32") > matrix_rate("HMMA.16816.F32")
    assert matrix_rate("QGMMA.64x128x32.F32.E4M3.E4M3") > matrix_rate("HGMMA.64x128x16.F32")


def test_everything_else_is_shown_and_not_judged():
    loop = {"instructions": 121, "depth": 1, "matrix_share": 0.13, "mix": {"mfma": 16, "lds": 50, "valu": 22}}
    head = entry(
        code="b", barriers=7, atomics={"global_atomic_add": 1}, lds_bytes=16384, lds_read_widths={"8": 72}, loop=loop
    )
    said = findings(entry(), head, IsaPolicy())
    assert not any(f.judged for f in said)
    assert [f.sentence for f in said] == [
        "LDS bytes: 32768 → 16384",
        "LDS reads: 36 of 2x8 B → 72 of 8 B",
        "barriers: 5 → 7",
        "atomics: none → 1 global_atomic_add",
        "hot loop: 70 → 121 instructions, matrix share 46 → 13 % (mfma 32 → 16, lds 16 → 50)",
    ]


def test_loops_that_come_and_go():
    assert findings(entry(), entry(code="b", loop={}), IsaPolicy())[0].sentence == "the hot loop is gone"
    assert findings(entry(loop={}), entry(code="b"), IsaPolicy())[0].sentence == "a loop of 70 instructions is new"


DAY = datetime.date(2026, 11, 20)
SECTION = {"reason": "exact counts", "date": DAY}


def test_the_policy_of_this_repository_is_sound_and_dated():
    assert load_policy() == IsaPolicy()


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({"spils": 1}, r"unknown key 'spils'; known: spills, "),
        ({"spills": 0} | SECTION, "spills is 0; allowed: a whole number from 1 "),
        ({"spills": 1}, "reason is missing"),
    ],
)
def test_a_mistake_in_the_policy_is_named(section, said):
    with pytest.raises(PolicyError, match=said):
        parse_policy(section)
