"""What fails a node, and what is only kept beside its times."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import preflight
from benchmarks.preflight.system import Demand, GpuFacts, NodeFacts

GPU = GpuFacts(
    address="0000:05:00.0",
    name="AMD Instinct MI300X",
    chip_id="74a1",
    product="MI300X",
    compute="SPX",
    memory="NPS1",
    power_cap_w=750.0,
    power_default_w=750.0,
    max_clock_mhz=2100,
    corrected=0,
    uncorrected=0,
    bad_pages=0,
    links=7,
    links_down=0,
    link_errors=False,
    used_bytes=300 << 20,
    busy_percent=0,
    processes=(),
)
SOUND = NodeFacts((GPU,) * 8, {}, 0, True, -1, 16 << 30, {"/tmp": 8 << 30})
POOL = Demand("MI300X", 8)


def one(**changed: object) -> NodeFacts:
    """A node whose third GPU differs."""
    gpus = [GPU] * 8
    gpus[2] = dataclasses.replace(GPU, **changed)
    return dataclasses.replace(SOUND, gpus=tuple(gpus))


def all_of(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, gpus=(dataclasses.replace(GPU, **changed),) * 8)


def node(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, **changed)


def test_a_sound_node_has_no_problem() -> None:
    assert preflight.problems(SOUND, POOL) == []
    assert preflight.problems(SOUND, Demand()) == []
    silent = NodeFacts((GpuFacts("0000:05:00.0"),))
    assert preflight.problems(silent, Demand()) == [], "what is not told is no fault"
    assert preflight.problems(NodeFacts(numa_balancing=1, iommu_pt=False), Demand()) == [], "no GPU"


FAULTS = [
    (node(gpus=(GPU,) * 7), "gpu count", "error", "7 GPUs can be used, and the job has 8"),
    (node(gpus=(GPU,) * 9), "gpu count", "error", "9 GPUs can be used, and the job has 8"),
    (one(product="MI308X"), "product", "error", "mixed products: 7 x MI300X, 1 x MI308X"),
    (all_of(product="MI350X", max_clock_mhz=2200), "product", "error", "8 x MI350X, and the pool is of MI300X"),
    (one(compute="CPX"), "partition", "error", "SPX/NPS1 on 7, CPX/NPS1 on 1"),
    (one(power_cap_w=500.0), "power cap", "error", "power caps differ: 500 W, 750 W"),
    (all_of(power_cap_w=500.0), "power cap", "warning", "500 W of 750 W"),
    (one(clock_limit="the clock is locked"), "clock", "warning", "GPU 2: the clock is locked"),
    (one(max_clock_mhz=1420), "clock", "warning", "GPU 2: its clock is limited to 1420 of 2100 MHz"),
    (one(uncorrected=3), "ECC", "error", "GPU 2 (0000:05:00.0): 3 uncorrected ECC errors"),
    (one(bad_pages=1), "bad pages", "error", "GPU 2 (0000:05:00.0): memory pages wait"),
    (one(links_down=1), "links", "error", "1 of 7 links are down"),
    (one(link_errors=True), "links", "warning", "its links count errors"),
    (one(processes=("vllm (pid 7)",)), "in use", "warning", "GPU 2 is used by somebody else: vllm (pid 7)"),
    (one(processes=("vllm (pid 7)",), used_bytes=9 << 30), "in use", "error", "vllm (pid 7)"),
    (one(processes=("vllm (pid 7)",), busy_percent=90), "in use", "error", "vllm (pid 7)"),
    (one(processes=("x (pid 7)",), used_bytes=None, busy_percent=None), "in use", "error", "x (pid 7)"),
    (node(numa_balancing=1), "NUMA balancing", "warning", "automatic NUMA balancing is on"),
    (node(iommu_pt=False), "IOMMU", "warning", "without iommu=pt"),
    (node(memlock_bytes=65536), "memlock", "warning", "may lock 64 KiB"),
    (node(shm_bytes=64 << 20), "shm", "warning", "/dev/shm has 64 MiB free"),
    (node(disk_bytes={"/data": 5 << 20}), "disk", "error", "5 MiB are free where /data lies"),
    (node(disk_bytes={"/data": 1 << 30}), "disk", "warning", "1024 MiB are free where /data lies"),
    (node(absent={"nvml": "gone"}), "library", "warning", "nvml: gone"),
    (node(absent={"amdsmi": "gone", "amd-smi": "no"}), "library", "warning", "amdsmi: gone; amd-smi: no"),
]


@pytest.mark.parametrize(("facts", "kind", "level", "text"), FAULTS, ids=[f"{f[1]}-{f[3][:30]}" for f in FAULTS])
def test_each_fault_is_found_where_it_is_and_only_there(facts: NodeFacts, kind: str, level: str, text: str) -> None:
    [found] = preflight.problems(facts, POOL)
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.next_step


def test_errors_come_first() -> None:
    found = preflight.problems(dataclasses.replace(one(uncorrected=1), numa_balancing=1), POOL)
    assert [problem.level for problem in found] == ["error", "warning"]


def test_one_library_of_amds_is_enough() -> None:
    assert preflight.problems(node(absent={"amdsmi": "KeyError: 'libamd_smi.so'"}), POOL) == []


def test_this_machine_is_examined_without_torch(tmp_path: Path) -> None:
    report = preflight.examine(set(), None, [tmp_path])
    assert report["facts"]["gpus"] == {"count": 0}
    assert report["facts"]["disk_bytes"].keys() == {"/tmp", str(tmp_path)}
    assert all(one["level"] in ("error", "warning") for one in report["problems"])
