"""What fails a node, what is only kept beside its times, and GPUs that cannot be used."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
from pathlib import Path

import pytest

from benchmarks.machine import limits, system
from benchmarks.machine.gpus import GpuFacts
from benchmarks.machine.limits import NodeFacts
from benchmarks.machine.system import HostFacts
from tests.benchmarks.machine.test_fingerprint import MI300X

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


def one(**changed):
    """A node whose third GPU differs."""
    gpus = [GPU] * 8
    gpus[2] = dataclasses.replace(GPU, **changed)
    return dataclasses.replace(SOUND, gpus=tuple(gpus))


def all_of(**changed):
    return dataclasses.replace(SOUND, gpus=(dataclasses.replace(GPU, **changed),) * 8)


def node(**changed):
    return dataclasses.replace(SOUND, **changed)


def host(**changed):
    return node(host=dataclasses.replace(SOUND.host, **changed))


def test_a_sound_node_has_no_problem():
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
def test_each_fault_is_found_where_it_is_and_only_there(facts, kind, level, text):
    [found] = limits.problems(facts)
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.next_step


def test_facts_that_nobody_says_are_left_out():
    two = [GpuFacts(f"0000:0{index}:00.0", "NVIDIA H200", uncorrected=index) for index in range(2)]
    facts = NodeFacts(tuple(two), host=HostFacts(numa_balancing=0))
    told = facts.compact()
    assert [one["uncorrected"] for one in told["gpus"]] == [0, 1]
    assert told["gpus"][1] == {"address": "0000:01:00.0", "name": "NVIDIA H200", "uncorrected": 1}
    assert told["numa_balancing"] == 0
    json.dumps(told, allow_nan=False)


# What a node is told about GPUs that cannot be used: a fault is one line with the next step, a sound node has none.


@pytest.fixture(autouse=True)
def _no_hiding(monkeypatch):
    for name in system.HIDING:
        monkeypatch.delenv(name, raising=False)


def said_of(root, count):
    """What is said of GPUs that cannot be used, where torch sees so many; each has a next step."""
    found = list(limits.unseen_gpus([{**MI300X, "index": i, "pci": address(i)} for i in range(count)], root))
    assert all(problem.next_step for problem in found)
    return [problem.text for problem in found]


def test_a_sound_node_has_no_fault(tmp_path):
    assert said_of(amd_node(tmp_path), 8) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: pci(root, 7, driver=""),
        lambda root: pci(root, 7),  # its driver has started without a render node
        lambda root: mi300x(root, 7),
    ],
)
def test_seven_healthy_gpus_of_eight(tmp_path, spoil):
    root = amd_node(tmp_path, 7)
    spoil(root)
    assert said_of(root, 7) == ["torch does not see 0000:75:00.0"]


def test_gpus_of_others_are_no_fault(tmp_path, monkeypatch):
    root = amd_node(tmp_path, 2)
    pci(root, 2, driver="vfio-pci")
    mi300x(root, 3)
    (root / f"dev/dri/renderD{RENDER + 3}").unlink()  # not passed to this container
    assert said_of(root, 2) == []
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert said_of(root, 1) == []


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, ["torch does not see 0000:15:00.0"]),
        (errno.EPERM, []),  # cgroups give it to another job
        (errno.EIO, ["torch does not see 0000:15:00.0"]),
    ],
)
def test_a_device_file_that_cannot_be_opened(tmp_path, monkeypatch, number, said):
    """A test may run as root, who may open everything."""
    real = os.open

    def refuse(path, *how, **more):
        if Path(path).name == "renderD129":
            raise OSError(number, os.strerror(number))
        return real(path, *how, **more)

    root = amd_node(tmp_path, 2)
    monkeypatch.setattr(system.os, "open", refuse)
    assert said_of(root, 1) == said


def test_graphics_of_a_laptop_are_not_a_gpu_to_compute_on(tmp_path):
    folder = pci(tmp_path, 0, kind="0x030000")
    (folder / "drm/renderD128").mkdir(parents=True)
    write(tmp_path / "dev/dri/renderD128", "")
    assert said_of(tmp_path, 0) == []


def test_h200(tmp_path):
    for index in range(2):
        h200(tmp_path, index)
    assert said_of(tmp_path, 1) == ["torch does not see 0000:15:00.0"]


# Stand-ins for nodes: trees of /sys, /proc and /dev as the kernel shows them, and the devices that torch sees.


RENDER = 128
"""Minor number of the first render node (linux: drivers/gpu/drm/drm_drv.c)."""


def address(index):
    return f"0000:{0x05 + 0x10 * index:02x}:00.0"


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def pci(root, index, vendor="0x1002", kind="0x120000", driver="amdgpu"):
    """A device on the PCI bus; driver "": nobody took it."""
    folder = root / "sys/bus/pci/devices" / address(index)
    write(folder / "vendor", vendor)
    write(folder / "class", kind)
    if driver:
        (root / "sys/bus/pci/drivers" / driver).mkdir(parents=True, exist_ok=True)
        (folder / "driver").symlink_to(root / "sys/bus/pci/drivers" / driver)
    return folder


def mi300x(root, index):
    """The PCI device of a healthy MI300X, which has a render node and a node of the KFD's topology."""
    folder = pci(root, index)
    (folder / "drm" / f"renderD{RENDER + index}").mkdir(parents=True)
    write(root / f"dev/dri/renderD{RENDER + index}", "")
    node = root / f"sys/class/kfd/kfd/topology/nodes/{index + 1}"
    write(node / "gpu_id", f"{1001 + index}")
    write(node / "properties", f"simd_count 1216\ndrm_render_minor {RENDER + index}")
    return folder


def amd_node(root, count=8):
    """A node of that many healthy MI300X, and a CPU."""
    write(root / "dev/kfd", "")
    write(root / "sys/class/kfd/kfd/topology/nodes/0/properties", "simd_count 0\ndrm_render_minor 0")
    for index in range(count):
        mi300x(root, index)
    return root


def h200(root, index):
    """A healthy H200."""
    pci(root, index, vendor="0x10de", kind="0x030200", driver="nvidia")
    write(root / f"proc/driver/nvidia/gpus/{address(index)}/information", f"Model: H200\nDevice Minor: \t {index}")
    write(root / f"dev/nvidia{index}", "")
