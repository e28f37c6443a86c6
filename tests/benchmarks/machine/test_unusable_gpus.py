"""What a node is told about GPUs that cannot be used: a fault is one line with the next step, a sound node has none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from benchmarks import doctor
from benchmarks.machine import limits, system
from tests.benchmarks import nodes


@pytest.fixture(autouse=True)
def _no_hiding(monkeypatch):
    for name in system.HIDING:
        monkeypatch.delenv(name, raising=False)


def said_of(root: Path, count: int) -> list[str]:
    """What is said of GPUs that cannot be used, where torch sees so many; each has a next step."""
    found = list(limits.unseen_gpus([nodes.device(i) for i in range(count)], root))
    assert all(problem.next_step for problem in found)
    return [problem.text for problem in found]


def test_a_sound_node_has_no_fault(tmp_path):
    assert said_of(nodes.amd_node(tmp_path), 8) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda root: nodes.pci(root, 7, driver=""),
        lambda root: nodes.pci(root, 7),  # its driver has started without a render node
        lambda root: nodes.mi300x(root, 7),
    ],
)
def test_seven_healthy_gpus_of_eight(tmp_path, spoil):
    root = nodes.amd_node(tmp_path, 7)
    spoil(root)
    assert said_of(root, 7) == ["torch does not see 0000:75:00.0"]


def test_gpus_of_others_are_no_fault(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    nodes.pci(root, 2, driver="vfio-pci")
    nodes.mi300x(root, 3)
    (root / f"dev/dri/renderD{nodes.RENDER + 3}").unlink()  # not passed to this container
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

    root = nodes.amd_node(tmp_path, 2)
    monkeypatch.setattr(system.os, "open", refuse)
    assert said_of(root, 1) == said


def test_graphics_of_a_laptop_are_not_a_gpu_to_compute_on(tmp_path):
    folder = nodes.pci(tmp_path, 0, kind="0x030000")
    (folder / "drm/renderD128").mkdir(parents=True)
    nodes.write(tmp_path / "dev/dri/renderD128", "")
    assert said_of(tmp_path, 0) == []


def test_h200(tmp_path):
    for index in range(2):
        nodes.h200(tmp_path, index)
    assert said_of(tmp_path, 1) == ["torch does not see 0000:15:00.0"]


# ---- the same among the problems of the doctor ----

VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "triton": "3.8.0"}


def problems_of(root: Path, devices: list) -> dict[str, tuple[str, str]]:
    """Level and text by kind, without those of the machine that the test runs on."""
    found = doctor.problems(doctor.looked_at(devices, VERSIONS, (), root))
    here = ("disk", "memlock", "library", "no_device_state")
    assert all(problem.next_step for problem in found)
    return {problem.kind: (problem.level, problem.text) for problem in found if problem.kind not in here}


def test_a_sound_node_has_no_problem(tmp_path):
    assert problems_of(nodes.amd_node(tmp_path), [nodes.device(i) for i in range(8)]) == {}


def test_gpus_in_different_modes_fail_a_node_and_a_setting_is_a_warning(tmp_path):
    root = nodes.amd_node(tmp_path, 7, current_compute_partition="CPX", current_memory_partition="NPS4")
    nodes.mi300x(root, 7)
    nodes.write(root / "proc/sys/kernel/numa_balancing", "1")
    found = problems_of(root, [nodes.device(i, cus=38) for i in range(7)])
    assert found["partition"] == ("error", "partition modes differ: CPX/NPS4 on 7, SPX/NPS1 on 1")
    assert {kind: level for kind, (level, _) in found.items()} == {
        "partition": "error",
        "gpu_fault": "warning",
        "NUMA balancing": "warning",
    }


def test_a_gpu_in_use_by_somebody_else(tmp_path):
    root = nodes.amd_node(tmp_path, 1)
    nodes.mi300x(root, 1, used_bytes=41 << 30, gpu_busy_percent="97")
    nodes.write(root / "sys/class/kfd/kfd/proc/4711/vram_1003", str(41 << 30))
    nodes.write(root / "proc/4711/comm", "python")
    found = problems_of(root, [nodes.device(0), nodes.device(1)])
    assert found["in use"] == ("error", "GPU 1 (0000:15:00.0): used by somebody else: python (pid 4711)")
