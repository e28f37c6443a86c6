"""Drains of remote stores: small pieces of assembly by hand, a slow count beside the fast one, and real kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.isa import amd
from benchmarks.isa.amd import Drains, Provenance, allowed_under_way, drains, is_counted
from benchmarks.isa.code import Instruction

ASSEMBLY = Path(__file__).parent / "assembly"
PEERS = 8

BASES = "\n".join(f"\ts_load_dwordx2 s[{20 + 2 * i}:{21 + 2 * i}], s[6:7], {8 * i:#x}" for i in range(PEERS))
HEAD = f"\ts_load_dwordx4 s[4:7], s[0:1], 0x0\n{BASES}\n\ts_waitcnt lgkmcnt(0)\n.LOOP:\n"
TAIL = "\ts_cbranch_scc1 .LOOP\n\ts_waitcnt vmcnt(0)\n\ts_barrier\n\tbuffer_wbl2 sc0 sc1\n\ts_endpgm\n"
VALUES = "\tbuffer_load_dwordx4 v[10:13], v1, s[12:15], 0 offen\n\ts_waitcnt vmcnt(0)\n"


def push(peer: int, moves: int = 1) -> str:
    """Stores to one peer whose base was loaded before the loop."""
    address = f"\tv_lshl_add_u64 v[6:7], s[{20 + 2 * peer}:{21 + 2 * peer}], 0, v[8:9]\n"
    return address + "\tglobal_store_dwordx4 v[6:7], v[10:13], off\n" * moves


def counted(body: str) -> Drains:
    """Of a loop."""
    return of(HEAD + body + TAIL)


def of(text: str) -> Drains:
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


def test_values_loaded_ahead_leave_no_drain_between_blocks():
    ahead = "\ts_waitcnt vmcnt(8)\n\tbuffer_load_dwordx4 v[14:17], v1, s[12:15], 0 offen\n"
    assert counted(ahead + "".join(map(push, range(PEERS)))) == Drains(inside=0, between=0)


def test_local_stores_and_loads_are_waited_for_at_no_cost():
    local = "\tbuffer_store_dwordx4 v[10:13], v1, s[16:19], 0 offen\n\ts_waitcnt vmcnt(0)\n"
    assert counted(VALUES + local * 3 + "".join(map(push, range(PEERS)))) == Drains(inside=0, between=1)


def test_a_wait_that_publishes_the_stores_is_none():
    publish = "\ts_waitcnt vmcnt(0)\n\ts_barrier\n\tbuffer_wbl2 sc0 sc1\n\tglobal_atomic_swap v1, v2, s[4:5]\n"
    assert counted(VALUES + push(0) + push(1) + publish + push(2)) == Drains(inside=0, between=1)


def test_an_unrolled_loop_is_several_blocks():
    block = VALUES + "".join(push(peer, 2) for peer in range(PEERS))
    assert counted(block * 3) == Drains(inside=0, between=1)
    drained = VALUES + push(0) + "\ts_waitcnt vmcnt(0)\n" + push(1)
    assert counted(block + drained) == Drains(inside=1, between=1)


def test_an_unrolled_loop_with_one_peer_is_several_blocks_too():
    assert counted((VALUES + push(1, 2)) * 4) == Drains(inside=0, between=1)
    assert counted((VALUES + push(1) + "\ts_waitcnt vmcnt(0)\n" + push(1)) * 4) == Drains(inside=1, between=1)


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


def test_a_kernel_without_remote_stores_has_none():
    assert counted("\tglobal_store_dwordx4 v1, v[10:13], s[4:5]\n\ts_waitcnt vmcnt(0)\n" * 2) == Drains()


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
