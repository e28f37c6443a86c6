"""Reading AMD assembly: widths, classes, resources, and where remote addresses come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.isa import amd
from benchmarks.isa.amd import (
    Drains,
    Provenance,
    allowed_under_way,
    argument_pointer,
    drains,
    is_counted,
    registers,
    roles,
)
from benchmarks.isa.code import Instruction

METADATA = """
	.amdhsa_user_sgpr_dispatch_ptr {early}
	.amdhsa_user_sgpr_queue_ptr {early}
	.amdhsa_user_sgpr_kernarg_segment_ptr 1
; codeLenInByte = 640
	.amdgpu_metadata
  - .agpr_count:     4
    .max_flat_workgroup_size: 512
    .private_segment_fixed_size: 16
    .sgpr_count:     24
    .sgpr_spill_count: 1
    .vgpr_count:     132
    .vgpr_spill_count: 3
    .wavefront_size: 64
"""

SCATTER = """
	s_load_dwordx4 s[4:7], s[0:1], 0x0 ; a pointer and the heap bases
	s_load_dwordx2 s[8:9], s[6:7], 0x0
	v_mov_b32_e32 v9, 0
.LBB0_1:
	global_load_dwordx2 v[2:3], v9, s[6:7] offset:8
	s_waitcnt vmcnt(0)
	v_mov_b32_e32 v4, s4
	v_subrev_co_u32_e32 v4, vcc, s8, v4
	v_lshl_add_u64 v[6:7], v[4:5], 0, v[2:3]
	global_store_dwordx4 v[6:7], v[20:23], off
	global_store_short v9, v20, s[4:5]
	s_cbranch_scc1 .LBB0_1
	s_endpgm
"""


def read(body, early=0, lds=0, translates=True):
    text = body + METADATA.format(early=early)
    return amd.metrics(text, amd.parse(text), lds, translates)


def test_resources_come_from_the_metadata_and_lds_from_the_caller():
    found = read("\ts_endpgm\n", lds=4096)
    assert {
        name: found[name]
        for name in (
            "vgpr",
            "agpr",
            "sgpr",
            "vgpr_spills",
            "sgpr_spills",
            "scratch_bytes",
            "lds_bytes",
            "waves_per_group",
            "code_bytes",
        )
    } == {
        "vgpr": 132,
        "agpr": 4,
        "sgpr": 24,
        "vgpr_spills": 3,
        "sgpr_spills": 1,
        "scratch_bytes": 16,
        "lds_bytes": 4096,
        "waves_per_group": 8,
        "code_bytes": 640,
    }


def test_text_without_metadata_is_refused():
    with pytest.raises(ValueError, match=r"no \.vgpr_count"):
        amd.metrics("\ts_endpgm\n", amd.parse("\ts_endpgm\n"), 0, False)


def test_remote_stores_are_those_whose_address_carries_a_loaded_base():
    found = read(SCATTER)
    assert found["remote_store_widths"] == {"16": 1}
    assert found["store_widths"] == {"16": 1, "2": 1}
    assert (found["heap_base_loads"], found["heap_base_loads_in_loops"]) == (2, 1)
    assert (found["remote_store_bytes"], found["remote_store_bytes_in_loops"]) == (16, 16)
    assert found["subdword_remote_stores"] == 0


def test_the_argument_pointer_moves_behind_other_user_registers():
    assert argument_pointer(METADATA.format(early=0)) == ("s0", "s1")
    assert argument_pointer(METADATA.format(early=1)) == ("s4", "s5")
    moved = SCATTER.replace("s[0:1]", "s[4:5]").replace("s[4:7], s[4:5]", "s[4:7], s[4:5]")
    assert read(moved, early=1)["remote_store_widths"] == {"16": 1}


def test_a_base_that_was_spilled_is_still_a_base():
    spilled = SCATTER.replace(
        "	v_mov_b32_e32 v4, s4\n",
        "	v_mov_b32_e32 v4, s4\n"
        "	scratch_store_dwordx2 off, v[2:3], off offset:8\n	v_mov_b32_e32 v2, 0\n"
        "	v_mov_b32_e32 v3, 0\n	scratch_load_dwordx2 v[2:3], off, off offset:8\n",
    )
    found = read(spilled)
    assert found["heap_base_loads"] == 2
    assert (found["scratch_ops"], found["scratch_ops_in_loops"]) == (2, 2)


def test_an_overwritten_register_carries_nothing():
    code = amd.parse(
        SCATTER.replace(
            "	v_lshl_add_u64 v[6:7], v[4:5], 0, v[2:3]\n",
            "	v_lshl_add_u64 v[6:7], v[4:5], 0, v[2:3]\n	v_mov_b32_e32 v6, 0\n	v_mov_b32_e32 v7, 0\n",
        )
    )
    assert Provenance(code, ("s0", "s1")).remote == []


def test_garbage_in_an_unused_high_half_is_not_followed():
    body = SCATTER.replace(
        "	global_store_short v9, v20, s[4:5]\n",
        "	global_load_dwordx4 v[30:33], v9, s[4:5]\n"
        "	v_mad_u64_u32 v[40:41], s[10:11], v9, s4, v[29:30]\n"
        "	v_lshlrev_b32_e32 v42, 1, v40\n	global_store_short v42, v20, s[4:5]\n",
    )
    assert read(body)["remote_store_widths"] == {"16": 1}
    assert read(body.replace("1, v40", "1, v41"))["remote_store_widths"] == {"16": 1, "2": 1}


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("global_load_dwordx4", 16),
        ("buffer_load_dwordx3", 12),
        ("buffer_store_dwordx2", 8),
        ("flat_load_dword", 4),
        ("global_store_short_d16_hi", 2),
        ("buffer_load_ubyte", 1),
        ("global_load_sbyte_d16", 1),
        ("global_atomic_pk_add_bf16", None),
    ],
)
def test_bytes_a_lane(name, width):
    assert amd.access_bytes(Instruction(name)) == width


@pytest.mark.parametrize(
    ("name", "access"),
    [
        ("ds_read_b128", ("read", "16")),
        ("ds_read2_b64", ("read", "2x8")),
        ("ds_read2st64_b32", ("read", "2x4")),
        ("ds_write_b16_d16_hi", ("write", "2")),
        ("ds_read_u16_d16", ("read", "2")),
        ("ds_write_b8", ("write", "1")),
        ("ds_read_b64_tr_b16", ("read", "8")),
        ("ds_write2st64_b64", ("write", "2x8")),
        ("ds_bpermute_b32", None),
        ("ds_add_u32", None),
    ],
)
def test_lds_accesses(name, access):
    assert amd.lds_access(Instruction(name)) == access


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("v_mfma_scale_f32_16x16x128_f8f6f4", "mfma"),
        ("v_add_u32_e32", "valu"),
        ("s_add_i32", "salu"),
        ("scratch_load_dword", "scratch"),
        ("global_atomic_add", "atomic"),
        ("buffer_load_dwordx4", "load"),
        ("s_waitcnt", "wait"),
        ("s_barrier", "barrier"),
        ("s_cbranch_scc0", "branch"),
        ("s_load_dwordx2", "scalar_load"),
        ("ds_read_b64", "lds"),
        ("buffer_wbl2", "salu"),
    ],
)
def test_classes(name, kind):
    assert amd.kind(Instruction(name)) == kind


def test_loads_straight_to_lds_are_told_by_an_operand():
    found = read(
        "\tbuffer_load_dwordx4 v1, s[8:11], 0 offen lds\n\tbuffer_load_dwordx4 v[2:5], v1, s[8:11], 0 offen\n"
        "\ts_endpgm\n"
    )
    assert (found["loads_to_lds"], found["load_widths"]) == (1, {"16": 2})


def test_registers_of_operands():
    assert registers("v[2:4]") == ("v2", "v3", "v4")
    assert registers("-|v7|") == ("v7",)
    assert registers("s[0:1] offset:16") == ("s0", "s1")
    assert registers("0x1c0") == registers("vmcnt(0)") == registers(".LBB0_1") == registers("vcc") == ()
    assert roles(Instruction("v_writelane_b32", ("v5", "s3", "2"))) == (("s3", "v5"), ("v5",), None)


# Drains of remote stores: small pieces of assembly by hand, a slow count beside the fast one, and real kernels.


ASSEMBLY = Path(__file__).parent / "assembly"
PEERS = 8

BASES = "\n".join(f"\ts_load_dwordx2 s[{20 + 2 * i}:{21 + 2 * i}], s[6:7], {8 * i:#x}" for i in range(PEERS))
HEAD = f"\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n{BASES}\n\ts_waitcnt lgkmcnt(0)\n.LOOP:\n"
TAIL = "\ts_cbranch_scc1 .LOOP\n\ts_waitcnt vmcnt(0)\n\ts_barrier\n\tbuffer_wbl2 sc0 sc1\n\ts_endpgm\n"
VALUES = "\tbuffer_load_dwordx4 v[10:13], v1, s[12:15], 0 offen\n\ts_waitcnt vmcnt(0)\n"


def push(peer, moves=1):
    """Stores to one peer whose base was loaded before the loop."""
    address = f"\tv_lshl_add_u64 v[6:7], s[{20 + 2 * peer}:{21 + 2 * peer}], 0, v[8:9]\n"
    return address + "\tglobal_store_dwordx4 v[6:7], v[10:13], off\n" * moves


def counted(body):
    """Of a loop."""
    return of(HEAD + body + TAIL)


def of(text):
    code = amd.parse(text)
    return drains(code, Provenance(code, ("s0", "s1")))


def test_no_drain_where_all_stores_follow_the_wait_for_their_values():
    assert counted(VALUES + "".join(map(push, range(PEERS)))) == Drains(inside=0, between=1)


def test_seven_drains_where_each_peer_is_waited_for():
    between = "\tglobal_load_dwordx2 v[2:3], v5, s[4:5]\n\ts_waitcnt vmcnt(0)\n"
    assert counted(VALUES + between.join(map(push, range(PEERS)))) == Drains(inside=7, between=1)


def test_one_wait_in_the_middle_is_one_drain():
    half = "".join(map(push, range(4))), "".join(map(push, range(4, 8)))
    assert counted(VALUES + "\ts_waitcnt vmcnt(0)\n".join(half)) == Drains(inside=1, between=1)
    assert counted(VALUES + "\ts_waitcnt vmcnt(3)\n".join(half)) == Drains(inside=1, between=1)
    assert counted(VALUES + "\ts_waitcnt vmcnt(4)\n".join(half)) == Drains(inside=0, between=1)
    assert counted(VALUES + "\ts_waitcnt lgkmcnt(0)\n".join(half)) == Drains(inside=0, between=1)


def test_a_wait_for_a_load_before_the_stores_drains_none_of_them():
    """Two loads, one store in between: waiting for the first load lets the store and the second load go on."""
    body = VALUES.replace("vmcnt(0)", "vmcnt(1)").replace("\ts_wait", "\tglobal_load_dword v3, v5, s[4:5]\n\ts_wait")
    assert counted(body + push(0) + "\ts_waitcnt vmcnt(1)\n" + push(1)).inside == 0
    assert counted(body + push(0) + "\ts_waitcnt vmcnt(0)\n" + push(1)).inside == 1


def test_a_wait_that_publishes_the_stores_is_none():
    publish = "\ts_waitcnt vmcnt(0)\n\ts_barrier\n\tbuffer_wbl2 sc0 sc1\n\tglobal_atomic_swap v1, v2, s[4:5]\n"
    assert counted(VALUES + push(0) + push(1) + publish + push(2)) == Drains(inside=0, between=1)


def test_an_unrolled_loop_is_several_blocks():
    block = VALUES + "".join(push(peer, 2) for peer in range(PEERS))
    assert counted(block * 3) == Drains(inside=0, between=1)
    drained = VALUES + push(0) + "\ts_waitcnt vmcnt(0)\n" + push(1)
    assert counted(block + drained) == Drains(inside=1, between=1)


def test_without_a_loop_the_stores_are_one_block():
    straight = (HEAD + VALUES + push(0) + "\ts_waitcnt vmcnt(0)\n" + push(1) + TAIL).replace("s_cbranch_scc1", "s_nop")
    assert of(straight) == Drains(inside=1, between=0)


def test_the_way_with_all_stores_is_walked():
    """Masked stores are skipped by a branch where no lane stores; the whole tile takes none of them."""
    masked = "".join(
        f"\ts_cbranch_execz .SKIP{peer}\n\ts_waitcnt vmcnt(0)\n{push(peer)}.SKIP{peer}:\n\ts_nop 0\n"
        for peer in range(PEERS)
    )
    assert counted(VALUES + masked) == Drains(inside=7, between=1)


@pytest.mark.parametrize(
    ("written", "allowed"),
    [
        (("vmcnt(0) lgkmcnt(0)",), 0),
        (("vmcnt(63)",), 63),
        (("lgkmcnt(0)",), None),
        (("0",), 0),
        (("0xcf7f",), 63),
        (("0x3f74",), 4),
        (("0x7f74",), 20),
    ],
)
def test_what_a_wait_allows_to_be_under_way(written, allowed):
    """As a number: vmcnt has bits 3 to 0 and 15 to 14 (CDNA3 ISA document, S_WAITCNT)."""
    assert allowed_under_way(Instruction("s_waitcnt", written)) == allowed


def test_what_vmcnt_counts():
    names = ("global_load_dword", "flat_store_short", "buffer_wbl2", "scratch_load_dword", "global_atomic_add")
    assert all(is_counted(Instruction(name)) for name in names)
    assert not any(is_counted(Instruction(name)) for name in ("buffer_inv", "ds_read_b32", "s_load_dword", "v_mov_b32"))


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("all_gather_reloading.s", Drains(inside=7, between=1)),
        ("all_gather_kept.s", Drains(inside=0, between=1)),
        ("scatter_reloading.s", Drains(inside=7, between=1)),
        ("scatter_kept.s", Drains(inside=0, between=1)),
    ],
)
def test_real_kernels_before_and_after_their_bases_were_kept(file, expected):
    """For 8 ranks on gfx942, Triton 3.8: at commit 234c09d each base was loaded in the loop, now before it."""
    assert of((ASSEMBLY / file).read_text()) == expected
