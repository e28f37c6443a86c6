"""What a node is told about its GPUs: every fault is one line with the next step, and a sound node has none."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.probes import devices
from benchmarks.bringup.rows import RowStatus
from benchmarks.preflight import sysfs
from tests.benchmarks.bringup import nodes


@pytest.fixture(autouse=True)
def _no_hiding(monkeypatch):
    for name in devices.fingerprint.HIDING:
        monkeypatch.delenv(name, raising=False)


def context(root: Path, seen) -> StepContext:
    return StepContext(step="devices", checkout=".", devices=seen, root=str(root))


def failures(root: Path, seen) -> list[str]:
    """The text of what failed, in order; each says what to do."""
    rows = [row for row in devices.devices(context(root, seen)) if row.status == RowStatus.FAIL]
    assert all(row.next_step for row in rows)
    return [row.text for row in rows]


def text_of(rows, name: str) -> str:
    [row] = [row for row in rows if row.name == name]
    return row.text


def test_a_sound_node_has_no_fault(tmp_path):
    root = nodes.amd_node(tmp_path)
    rows = devices.devices(context(root, [nodes.device(i) for i in range(8)]))
    assert {row.status for row in rows} == {RowStatus.PASS}
    assert text_of(rows, "count") == "torch sees 8 devices, the PCI bus 8 GPUs"
    assert text_of(rows, "kfd") == "8 x gfx942 with 304 CUs"
    assert text_of(rows, "products") == "8 x AMD Instinct MI300X (gfx942, 304 CUs, 206 GB)"
    assert text_of(rows, "in use") == "all idle, at most 0.3 GB taken"


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda root: nodes.pci(root, 7, driver=""), "0000:75:00.0: no driver has taken it"),
        (lambda root: nodes.pci(root, 7), "0000:75:00.0: its driver has started without a render node"),
        (lambda root: nodes.mi300x(root, 7), "0000:75:00.0: its device file can be opened, but"),
    ],
)
def test_seven_healthy_gpus_of_eight(tmp_path, spoil, said):
    root = nodes.amd_node(tmp_path, 7)
    spoil(root)
    found = failures(root, [nodes.device(i) for i in range(7)])
    assert found[0].startswith(said)
    assert found[1:] == ["torch sees 7 devices, the PCI bus 8 GPUs; 1 not usable"]


def test_a_gpu_that_fell_off_the_bus_is_hinted_at(tmp_path):
    rows = devices.devices(context(nodes.amd_node(tmp_path, 7), [nodes.device(i) for i in range(7)]))
    [row] = [row for row in rows if row.name == "count"]
    assert row.status == RowStatus.PASS
    assert "fell off the bus" in row.next_step


def test_gpus_of_others_are_no_fault(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    nodes.pci(root, 2, driver="vfio-pci")
    nodes.mi300x(root, 3)
    (root / f"dev/dri/renderD{nodes.RENDER + 3}").unlink()  # not passed to this container
    assert failures(root, [nodes.device(0), nodes.device(1)]) == []
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    rows = devices.devices(context(root, [nodes.device(0)]))
    assert (
        text_of(rows, "count") == "torch sees 1 device, the PCI bus 4 GPUs; others are hidden by HIP_VISIBLE_DEVICES=0"
    )


def closed(monkeypatch, name: str, number: int = errno.EACCES) -> None:
    """A file of this name cannot be opened; a test may run as root, who may open everything."""
    real = os.open

    def refuse(path, *how, **more):
        if Path(path).name == name:
            raise OSError(number, os.strerror(number))
        return real(path, *how, **more)

    monkeypatch.setattr(sysfs.os, "open", refuse)


def test_no_permission_on_a_render_device(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    closed(monkeypatch, "renderD129")
    found = failures(root, [nodes.device(0)])
    assert found[0].startswith("0000:15:00.0: no permission on /dev/dri/renderD129 (mode ")
    assert found[1].startswith("no permission on /dev/dri/renderD129")
    assert found[2] == "torch sees 1 device, the PCI bus 2 GPUs; 1 not usable"


def test_a_gpu_that_cgroups_give_to_another_job_is_no_fault(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    closed(monkeypatch, "renderD129", errno.EPERM)
    assert failures(root, [nodes.device(0)]) == []


def test_a_gpu_that_its_driver_refuses_to_open(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    closed(monkeypatch, "renderD129", errno.EIO)
    assert (
        failures(root, [nodes.device(0)])[0] == "0000:15:00.0: /dev/dri/renderD129 cannot be opened: it is not healthy"
    )


def test_no_permission_on_the_kfd(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 1)
    closed(monkeypatch, "kfd")
    assert failures(root, [])[1].startswith("no permission on /dev/kfd (mode ")


def test_nodes_that_a_container_may_not_read_are_counted(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    denied, real = nodes.kfd_node(root, 9, 137), Path.read_text

    def read_text(path: Path, **how: str) -> str:
        if path == denied:
            raise PermissionError
        return real(path, **how)

    monkeypatch.setattr(Path, "read_text", read_text)
    rows = devices.devices(context(root, [nodes.device(0), nodes.device(1)]))
    assert text_of(rows, "kfd") == "2 x gfx942 with 304 CUs; 1 nodes of other containers"


def test_mixed_products(tmp_path):
    seen = [nodes.device(0), nodes.device(1, "AMD Instinct MI308X", cus=80)]
    assert failures(nodes.amd_node(tmp_path, 2), seen) == [
        "mixed products: 1 x AMD Instinct MI300X (gfx942, 304 CUs, 206 GB), "
        "1 x AMD Instinct MI308X (gfx942, 80 CUs, 206 GB)"
    ]


def test_a_gpu_in_use_by_somebody_else(tmp_path, monkeypatch):
    monkeypatch.setattr(devices, "PAUSE_S", 0.0)
    root = nodes.amd_node(tmp_path, 1)
    nodes.mi300x(root, 1, used_bytes=41 << 30, gpu_busy_percent="97")
    nodes.write(root / "sys/class/kfd/kfd/proc/4711/vram_1003", str(41 << 30))
    nodes.write(root / "proc/4711/comm", "python")
    rows = devices.devices(context(root, [nodes.device(0), nodes.device(1)]))
    [row] = [row for row in rows if row.status == RowStatus.FAIL]
    assert row.text == (
        "GPU 1 is used by somebody else: 44.0 GB taken, 97 % busy (processes on GPUs: python (pid 4711))"
    )
    assert row.next_step == "wait or stop them, or leave it out: HIP_VISIBLE_DEVICES=0"


def test_memory_that_is_given_back_meanwhile_was_not_somebody_elses(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 1)
    used = root / "sys/bus/pci/devices" / nodes.address(0) / "mem_info_vram_used"
    used.write_text(str(41 << 30))
    monkeypatch.setattr(devices.time, "sleep", lambda seconds: used.write_text("0"))
    assert failures(root, [nodes.device(0)]) == []


def test_graphics_of_a_laptop_are_not_a_gpu_to_compute_on(tmp_path):
    folder = nodes.pci(tmp_path, 0, kind="0x030000")
    (folder / "drm/renderD128").mkdir(parents=True)
    nodes.write(tmp_path / "dev/dri/renderD128", "")
    [row] = devices.devices(context(tmp_path, []))
    assert (row.status, row.text) == (RowStatus.NOT_HERE, "no GPU: only CPU backends are tried")


def test_h200(tmp_path):
    for index in range(2):
        nodes.h200(tmp_path, index)
    seen = nodes.device(0, "NVIDIA H200", "sm_90", 132)
    rows = devices.devices(context(tmp_path, [seen]))
    assert [row.text for row in rows if row.status == RowStatus.FAIL] == [
        "0000:15:00.0: its device file can be opened, but torch does not see it",
        "torch sees 1 device, the PCI bus 2 GPUs; 1 not usable",
    ]


# ---- partitions --------------------------------------------------------------------------------------------------


def test_whole_gpus(tmp_path):
    root = nodes.amd_node(tmp_path)
    [row] = devices.partition(context(root, [nodes.device(i) for i in range(8)]))
    assert (row.status, row.text) == (RowStatus.PASS, "SPX/NPS1 on 8 GPUs: whole GPUs of 304 CUs")


def test_cpx_partitions_are_one_line_with_what_they_mean(tmp_path):
    root = nodes.amd_node(tmp_path, 8, current_compute_partition="CPX", current_memory_partition="NPS4")
    [row] = devices.partition(context(root, [nodes.device(i // 8, cus=38) for i in range(64)]))
    assert row.text == "CPX/NPS4 on 8 GPUs: 64 devices of 38 CUs, each a part of a GPU"
    assert "amd-smi set --compute-partition SPX" in row.next_step


def test_gpus_in_different_modes(tmp_path):
    root = nodes.amd_node(tmp_path, 7)
    nodes.mi300x(root, 7, current_compute_partition="DPX")
    seen = [nodes.device(i) for i in range(8)]
    [row] = devices.partition(context(root, seen))
    assert (row.status, row.text) == (RowStatus.FAIL, "GPUs in different modes: SPX/NPS1 on 7, DPX/NPS1 on 1")
    assert [row.text for row in devices.faults(seen, root)] == [row.text]


def test_the_doctor_is_told_of_every_fault_once(tmp_path):
    root = nodes.amd_node(tmp_path, 7)
    nodes.pci(root, 7, driver="")
    seen = [nodes.device(i) for i in range(6)] + [nodes.device(6, "AMD Instinct MI325X")]
    said = [row.text for row in devices.faults(seen, root)]
    assert [text.partition(":")[0] for text in said] == ["0000", "mixed products"]
