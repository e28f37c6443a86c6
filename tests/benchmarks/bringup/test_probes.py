"""The litmus test sees a fault, its kernels compile for every GPU, and rates and access are judged by their numbers."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import triton
import triton.language as tl

from benchmarks.bringup import RankPlace, RowStatus, link_device, probes
from benchmarks.bringup.probes import MANY, Litmus, litmus_row
from benchmarks.plan import HEAP_VARIABLE
from kernels import symmetric_heap
from kernels.spec import Compilation
from tests.kernels.ranks import run_alone, run_ranks
from tests.kernels.test_compiled import fitting
from tests.kit import mostly_nightly


def litmus_rows(folder, fault, world=2):
    """Rows of the litmus test by name, with that many ranks in Triton's interpreter."""
    (folder / "heap").mkdir()
    said = run_ranks(
        "tests.benchmarks.bringup.test_probes", fault, world, folder, TRITON_INTERPRET="1", GLOO_SOCKET_IFNAME="lo"
    )
    return {row["name"]: row for row in json.loads(said[0])}


@pytest.mark.slow
def test_the_litmus_test_passes_where_messages_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "litmus_right")
    assert rows["many"]["status"] == "pass"
    assert rows["many"]["text"].startswith("12 messages of 0 KiB per pair and direction: 0 violations")
    assert rows["one"]["status"] == "pass"


@pytest.mark.slow
def test_the_litmus_test_counts_messages_that_do_not_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "litmus_lost")
    assert rows["many"]["status"] == "fail"
    lost = 2 * 2 * 6 * 64  # every element of every round, on both ranks
    assert f"{lost} violations" in rows["many"]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950", "sm_90"], "gfx942"))
def test_the_kernels_compile_for_every_gpu(arch):
    run_alone("tests.benchmarks.bringup.test_probes", "litmus_kernels", arch)


def test_violations_are_a_fault():
    row = litmus_row(MANY, [0, 3], seconds=0.1)
    assert row["status"] == RowStatus.FAIL
    assert "3 violations" in row["text"]
    assert row["text"].endswith(": rank 1: 3")
    assert "send us this report" in row["next_step"]
    assert litmus_row(MANY, [0, 0], MANY.rounds * 2e-6)["text"].endswith("0 violations, 2.00 us per exchange")


def test_gpus_without_peer_access_are_named():
    row = probes.access_row([(0, 1), (1, 0)], 12)
    assert (row["status"], row["text"]) == (RowStatus.FAIL, "12 pairs: 2 have none (0->1, 1->0)")
    assert "iommu=pt" in row["next_step"]
    assert probes.access_row([], 12)["status"] == RowStatus.PASS


def test_a_slow_link_is_named():
    rates = [[48.0] * 4 for _ in range(4)]
    assert probes.rates_row(rates)["status"] == RowStatus.PASS
    rates[2][3] = 12.0
    row = probes.rates_row(rates)
    assert row["status"] == RowStatus.FAIL
    assert row["text"].endswith("much slower: 2->3 12 GB/s")


def test_a_wrong_all_gather_is_a_fault():
    seconds = (128 << 20) * 2 / 600e9
    right, wrong = (probes.gather_row("RCCL 2.27.7", 2, 128, is_right, seconds) for is_right in (True, False))
    assert right["text"] == "RCCL 2.27.7, 2 ranks: all-gather of 128 MiB per rank, busbw 300 GB/s"
    assert (right["status"], wrong["status"]) == ("pass", "fail")


def test_the_variable_of_the_hint_is_that_of_the_verbs():
    assert HEAP_VARIABLE == symmetric_heap.VARIABLE


# A rank of the litmus test, in a process with TRITON_INTERPRET=1; it prints its rows as JSON.


SMALL_PLANS = (Litmus("many", programs=2, rounds=6, block=64), Litmus("one", programs=1, rounds=4, block=64))


@triton.jit
def nowhere(pointer, from_base, to_base, ALIGN: tl.constexpr = 16):
    """In the place of translate: the sender keeps its message to itself."""
    return pointer


def litmus_right(rank, world, directory):
    """As it is."""
    folder = Path(directory)
    place = RankPlace(rank, world, "cpu", str(folder / "store"), str(folder / "heap"))
    print(json.dumps(probes.fences(place, SMALL_PLANS)))


def litmus_lost(rank, world, directory):
    """The stores go nowhere."""
    link_device.translate = nowhere
    litmus_right(rank, world, directory)


# In a process per architecture: the kernels of `fences` compiled, no GPU.


def litmus_compiled(arch, world):
    arguments = dict.fromkeys(("data", "signals", "wrong"), ("*i32", (1024,)))
    arguments |= {"bases": ("*i64", (world,)), "rank": 3, "rounds": 16}
    fixed = {"PROGRAMS": MANY.programs, "BLOCK": MANY.block, "WORLD": world, "LANES": max(2, world)}
    fixed |= {"AMD": arch.startswith("gfx")}
    return fitting(Compilation("litmus", link_device.litmus, arguments, fixed, {"num_warps": 4}), arch, world)


def litmus_kernels(arch):
    """Stores of data are 16 bytes wide, nothing spills, and on AMD the test drains before it raises a flag."""
    for world in (2, 8):
        assert litmus_compiled(arch, world)[1]["store_widths"]["16"] >= 1
    if arch.startswith("gfx"):
        order = r"ASMSTART\s+s_waitcnt vmcnt\(0\)[\s\S]*?s_barrier[\s\S]*?(buffer_wbl2|atomic)"
        assert re.search(order, litmus_compiled(arch, 2)[0].asm["amdgcn"])
