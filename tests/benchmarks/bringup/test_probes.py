"""The litmus test sees a fault, its kernels compile for every GPU, and rates and access are judged by their numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.bringup import RowStatus, probes
from benchmarks.bringup.probes import CONTROL, MANY, litmus_row
from benchmarks.plan import HEAP_VARIABLE
from kernels import symmetric_heap
from tests.kernels.ranks import run_alone, run_ranks
from tests.kit import mostly_nightly


def litmus_rows(folder: Path, fault: str, world: int = 2) -> dict[str, dict]:
    """Rows of the litmus test by name, with that many ranks in Triton's interpreter."""
    (folder / "heap").mkdir()
    said = run_ranks(
        "tests.benchmarks.bringup.litmus_ranks", fault, world, folder, TRITON_INTERPRET="1", GLOO_SOCKET_IFNAME="lo"
    )
    return {row["name"]: row for row in json.loads(said[0])}


@pytest.mark.slow
def test_the_litmus_test_passes_where_messages_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "right")
    assert rows["many"]["status"] == "pass"
    assert rows["many"]["text"].startswith("12 messages of 0 KiB per pair and direction: 0 violations")
    assert rows["control"]["status"] == "pass"


@pytest.mark.slow
def test_the_litmus_test_counts_messages_that_do_not_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "lost")
    assert rows["many"]["status"] == "fail"
    lost = 2 * 2 * 6 * 64  # every element of every round, on both ranks
    assert f"{lost} violations" in rows["many"]["text"]


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950", "sm_90"], "gfx942"))
def test_the_kernels_compile_for_every_gpu(arch):
    run_alone("tests.benchmarks.bringup.links_compiled", "defaults", arch)


def test_a_million_messages_per_pair_and_direction():
    assert MANY.messages >= 1_000_000
    assert MANY.rounds % 2 == 0, "two launches must not meet in one half of the buffer"


def test_violations_are_a_fault_with_fences_and_expected_without():
    row = litmus_row(MANY, [0, 3], seconds=0.1)
    assert row["status"] == RowStatus.FAIL
    assert "3 violations" in row["text"]
    assert row["text"].endswith(": rank 1: 3")
    assert "send us this report" in row["next_step"]
    row = litmus_row(CONTROL, [0, CONTROL.messages * CONTROL.block], seconds=0.1)
    assert row["status"] == RowStatus.PASS
    assert "(50 % of what was sent" in row["text"]
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
    assert row["gbs"]["2->3"] == 12.0


def test_a_wrong_all_gather_is_a_fault():
    seconds = (128 << 20) * 2 / 600e9
    right, wrong = (probes.gather_row("RCCL 2.27.7", 2, 128, is_right, seconds) for is_right in (True, False))
    assert right["text"] == "RCCL 2.27.7, 2 ranks: all-gather of 128 MiB per rank, busbw 300 GB/s"
    assert (right["status"], wrong["status"]) == ("pass", "fail")


def test_the_variable_of_the_hint_is_that_of_the_verbs():
    assert HEAP_VARIABLE == symmetric_heap.VARIABLE
