"""What fails a node, and what is only kept beside its times."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from benchmarks.machine import limits
from benchmarks.machine.gpus import GpuFacts
from benchmarks.machine.limits import NodeFacts
from benchmarks.machine.system import HostFacts

GPU = GpuFacts(
    address="0000:05:00.0",
    name="AMD Instinct MI300X",
    chip_id="74a1",
    compute="SPX",
    memory="NPS1",
    power_cap_w=750.0,
    power_default_w=750.0,
    max_clock_mhz=2100,
    uncorrected=0,
    bad_pages=0,
    links=7,
    links_down=0,
    link_errors=False,
    used_bytes=300 << 20,
    busy_percent=0,
    processes=(),
)
SOUND = NodeFacts((GPU,) * 8, {}, HostFacts(0, True, None, 16 << 30, {"/tmp": 8 << 30}), "MI300X", 8)


def one(**changed: object) -> NodeFacts:
    """A node whose third GPU differs."""
    gpus = [GPU] * 8
    gpus[2] = dataclasses.replace(GPU, **changed)
    return dataclasses.replace(SOUND, gpus=tuple(gpus))


def all_of(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, gpus=(dataclasses.replace(GPU, **changed),) * 8)


def node(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, **changed)


def host(**changed: object) -> NodeFacts:
    return node(host=dataclasses.replace(SOUND.host, **changed))


def test_a_sound_node_has_no_problem() -> None:
    assert limits.problems(SOUND) == []
    assert limits.problems(node(product="", gpu_count=0)) == []
    silent = NodeFacts((GpuFacts("0000:05:00.0"),))
    assert limits.problems(silent) == [], "what is not told is no fault"
    assert limits.problems(NodeFacts(host=HostFacts(1, False))) == [], "no GPU"


FAULTS = [
    (node(gpus=(GPU,) * 7), "gpu count", "error", "7 GPUs can be used, and the job has 8"),
    (node(gpus=(GPU,) * 9), "gpu count", "error", "9 GPUs can be used, and the job has 8"),
    (one(chip_id="74a2", name=""), "product", "error", "products differ: MI300X on 7, MI308X on 1"),
    (all_of(chip_id="75a0", max_clock_mhz=2200), "product", "error", "8 x MI350X, and the pool is of MI300X"),
    (one(compute="CPX"), "partition", "error", "SPX/NPS1 on 7, CPX/NPS1 on 1"),
    (one(power_cap_w=500.0, power_default_w=500.0), "power cap", "error", "power caps differ: 750 W on 7, 500 W on 1"),
    (all_of(power_cap_w=500.0), "power cap", "warning", "GPUs 0, 1, 2, 3, 4, 5, 6, 7: the power cap is 500 W of 750 W"),
    (one(clock_limit="the clock is locked"), "clock", "warning", "GPU 2 (0000:05:00.0): the clock is locked"),
    (one(max_clock_mhz=1420), "clock", "warning", "GPU 2 (0000:05:00.0): its clock is limited to 1420 of 2100 MHz"),
    (one(uncorrected=3), "ECC", "error", "GPU 2 (0000:05:00.0): 3 uncorrected ECC errors"),
    (one(bad_pages=1), "bad pages", "error", "GPU 2 (0000:05:00.0): memory pages wait"),
    (one(links_down=1), "links", "error", "1 of 7 links are down"),
    (one(link_errors=True), "links", "warning", "its links count errors"),
    (one(processes=("vllm (pid 7)",)), "in use", "warning", "GPU 2 (0000:05:00.0): used by somebody else: vllm"),
    (one(processes=("vllm (pid 7)",), used_bytes=9 << 30), "in use", "error", "vllm (pid 7)"),
    (one(processes=("vllm (pid 7)",), busy_percent=90), "in use", "error", "vllm (pid 7)"),
    (one(used_bytes=9 << 30, busy_percent=7), "in use", "warning", "used by somebody else: 9.7 GB taken, 7 %"),
    (one(processes=("x (pid 7)",), used_bytes=None, busy_percent=None), "in use", "error", "x (pid 7)"),
    (host(numa_balancing=1), "NUMA balancing", "warning", "automatic NUMA balancing is on"),
    (host(iommu_pt=False), "IOMMU", "warning", "without iommu=pt"),
    (host(memlock_bytes=65536), "memlock", "warning", "may lock 64 KiB"),
    (host(shm_bytes=64 << 20), "shm", "warning", "/dev/shm has 64 MiB free"),
    (host(disk_bytes={"/data": 5 << 20}), "disk", "error", "5 MiB are free where /data lies"),
    (host(disk_bytes={"/data": 1 << 30}), "disk", "warning", "1024 MiB are free where /data lies"),
    (node(absent={"nvml": "gone"}), "library", "warning", "nvml: gone"),
    (node(absent={"amdsmi": "gone"}), "library", "warning", "amdsmi: gone"),
]


@pytest.mark.parametrize(("facts", "kind", "level", "text"), FAULTS, ids=[f"{f[1]}-{f[3][:30]}" for f in FAULTS])
def test_each_fault_is_found_where_it_is_and_only_there(facts: NodeFacts, kind: str, level: str, text: str) -> None:
    [found] = limits.problems(facts)
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.next_step


def test_errors_come_first() -> None:
    found = limits.problems(dataclasses.replace(one(uncorrected=1), host=HostFacts(1)))
    assert [problem.level for problem in found] == ["error", "warning"]


def test_this_machine_is_examined_without_torch(tmp_path: Path) -> None:
    report = limits.examined(limits.node_facts(set(), [tmp_path]))
    assert report["facts"]["gpus"] == {"count": 0}
    assert report["facts"]["disk_bytes"].keys() == {"/tmp", str(tmp_path)}
    assert all(problem["level"] in ("error", "warning") for problem in report["problems"])


def test_facts_that_gpus_share_stand_once() -> None:
    two = [GpuFacts(f"0000:0{index}:00.0", "NVIDIA H200", uncorrected=index) for index in range(2)]
    facts = NodeFacts(tuple(two), host=HostFacts(numa_balancing=0))
    told = facts.compact()
    assert told["gpus"]["count"] == 2
    assert told["gpus"]["name"] == "NVIDIA H200"
    assert told["gpus"]["uncorrected"] == [0, 1]
    assert "memory" not in told["gpus"]
    assert told["numa_balancing"] == 0
    json.dumps(told, allow_nan=False)
