"""What GPUs tell of themselves: through libraries that answer, answer strangely or are not there, and from files."""

from __future__ import annotations

import os
import sys
import types

import pytest

from benchmarks.machine import gpus
from benchmarks.machine.gpus import (
    AmdSmi,
    GpuFacts,
    Nvml,
    facts_by_files,
    facts_by_library,
    gpu_facts,
    gpus_of_run,
    open_monitor,
)
from benchmarks.machine.system import pci_gpus
from tests.benchmarks.conftest import always
from tests.benchmarks.machine.test_fingerprint import H200, MI300X
from tests.benchmarks.machine.test_limits import amd_node, mi300x, write
from tests.kit import until


def nvml_facts():
    library = Nvml()
    return [library.facts(address) for address in library.handles]


def amdsmi_facts():
    return AmdSmi().facts("0000:c1:00.0")


def refuse(*_):
    raise RuntimeError("not supported")


# ---- NVIDIA ------------------------------------------------------------------------------------------------------


@pytest.fixture
def nvml(monkeypatch):
    """Two H200, as NVML shows them."""
    fake = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda handle: types.SimpleNamespace(
            busId=f"00000000:{handle + 1:02X}:00.0".encode(), pciDeviceId=0x233510DE
        ),
        nvmlDeviceGetName=always(b"NVIDIA H200"),
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1830, 2: 3201}[kind],
        nvmlDeviceGetTemperature=always(41),
        nvmlDeviceGetPowerUsage=always(412_345),
        nvmlDeviceGetCurrentClocksEventReasons=always(0x4 | 0x20),
        nvmlDeviceGetMigMode=always([0, 0]),
        nvmlDeviceGetPowerManagementLimit=always(700_000),
        nvmlDeviceGetPowerManagementDefaultLimit=always(700_000),
        nvmlDeviceGetMaxClockInfo=lambda handle, kind: {1: 1980}[kind],
        nvmlDeviceGetTotalEccErrors=lambda handle, kind, since: {(0, 0): 3, (1, 0): 0}[kind, since],
        nvmlSystemGetDriverVersion=lambda: b"580.1",
        nvmlDeviceGetRetiredPagesPendingStatus=refuse,
        nvmlDeviceGetRemappedRows=always((1, 0, 0, 0)),
        nvmlDeviceGetNvLinkState=lambda handle, link: 1 if link != 17 or handle == 0 else 0,
        nvmlDeviceGetMemoryInfo=always(types.SimpleNamespace(used=600 << 20)),
        nvmlDeviceGetUtilizationRates=always(types.SimpleNamespace(gpu=0)),
        nvmlDeviceGetComputeRunningProcesses=always([types.SimpleNamespace(pid=os.getpid())]),
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


FACTS_OF_H200 = GpuFacts(
    *("0000:01:00.0", "NVIDIA H200", "2335", "580.1", "", "", 700.0, 700.0, 1980, "", 0, 0, 18, 0, None, 600 << 20, 0),
    (),
)


def test_nvml(nvml):
    first, second = nvml_facts()
    assert first == FACTS_OF_H200
    assert (second.address, second.links, second.links_down) == ("0000:02:00.0", 18, 1)


@pytest.mark.parametrize(("rows", "retiring", "pending"), [((0, 2, 1, 0), 0, 1), ((0, 2, 0, 0), 1, 0), (None, 1, 1)])
def test_pages_that_wait(nvml, rows, retiring, pending):
    nvml.nvmlDeviceGetRemappedRows = refuse if rows is None else lambda handle: rows
    nvml.nvmlDeviceGetRetiredPagesPendingStatus = lambda handle: retiring
    assert nvml_facts()[0].bad_pages == pending


# ---- AMD: the library --------------------------------------------------------------------------------------------


@pytest.fixture
def amdsmi(monkeypatch):
    """An MI300X behind another one, as amdsmi of ROCm 7 shows it."""
    metrics = {
        "current_gfxclks": [2100, 1184, 1190, 65535],
        "current_uclk": 1300,
        "temperature_hotspot": 55,
        "current_socket_power": 702,
        "average_socket_power": "N/A",
        "indep_throttle_status": 0,
    }
    enum = types.SimpleNamespace(name="AMDSMI_XGMI_STATUS_NO_ERRORS")
    fake = types.SimpleNamespace(
        AmdSmiClkType=types.SimpleNamespace(GFX=0),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["11", "C1"],
        amdsmi_get_gpu_device_bdf=lambda handle: f"0000:{handle}:00.0",
        amdsmi_get_gpu_metrics_info=lambda handle: metrics if handle == "C1" else {},
        amdsmi_get_gpu_asic_info=always({"market_name": "AMD Instinct MI300X", "device_id": 0x74A1}),
        amdsmi_get_power_cap_info=always({"power_cap": 550_000_000, "default_power_cap": 750_000_000}),
        amdsmi_get_gpu_total_ecc_count=always({"correctable_count": 4, "uncorrectable_count": 2}),
        amdsmi_get_clock_info=always({"clk": 132, "max_clk": 2100, "clk_locked": 0}),
        amdsmi_get_gpu_perf_level=always("AMDSMI_DEV_PERF_LEVEL_AUTO"),
        amdsmi_get_gpu_xgmi_link_status=lambda handle: {
            "total_links": 8,
            "status": [*(types.SimpleNamespace(name="AMDSMI_XGMI_LINK_UP"),) * 6]
            + [types.SimpleNamespace(name=f"AMDSMI_XGMI_LINK_{word}") for word in ("DOWN", "DISABLE")],
        },
        amdsmi_gpu_xgmi_error_status=always(enum),
        amdsmi_get_gpu_driver_info=always({"driver_version": "6.12"}),
        amdsmi_get_gpu_compute_partition=always("SPX"),
        amdsmi_get_gpu_memory_partition=always("NPS1"),
        amdsmi_get_gpu_bad_page_info=always([{"status": "RESERVED"}, {"status": "PENDING"}]),
        amdsmi_get_gpu_process_list=always([{"pid": 999_999_999, "name": "vllm"}, {"pid": os.getpid()}]),
    )
    monkeypatch.setitem(sys.modules, "amdsmi", fake)
    return fake


def test_amdsmi(amdsmi):
    assert amdsmi_facts() == GpuFacts(
        *("0000:c1:00.0", "AMD Instinct MI300X", "74a1", "6.12", "SPX", "NPS1", 550.0, 750.0, 2100, "", 2, 1, 7, 1),
        *(False, None, None, ("process of another container (pid 999999999)",)),
    )


@pytest.mark.parametrize(
    ("name", "answer", "field", "value"),
    [
        ("get_power_cap_info", {"power_cap": 750}, "power_cap_w", 750.0),
        ("get_power_cap_info", {"power_cap": 0xFFFFFFFFFFFFFFFF}, "power_cap_w", None),
        ("get_power_cap_info", "N/A", "power_cap_w", None),
        ("get_clock_info", {"max_clk": 2100, "clk_locked": 1}, "clock_limit", "the clock is locked"),
        ("get_gpu_perf_level", "AMDSMI_DEV_PERF_LEVEL_MANUAL", "clock_limit", "performance level manual"),
        ("get_gpu_total_ecc_count", {"uncorrectable_count": "N/A"}, "uncorrected", None),
        ("get_gpu_xgmi_link_status", {"status": [1, 1, 0, 2]}, "links_down", 1),
        ("get_gpu_xgmi_link_status", {}, "links", None),
        ("gpu_xgmi_error_status", "MULTIPLE_ERRORS", "link_errors", True),
        ("get_gpu_bad_page_info", "No bad pages found.", "bad_pages", 0),
        ("get_gpu_bad_page_info", None, "bad_pages", None),
        ("get_gpu_process_list", "No processes", "processes", None),
    ],
)
def test_other_shapes_and_units(amdsmi, name, answer, field, value):
    setattr(amdsmi, f"amdsmi_{name}", lambda *_: answer)
    assert getattr(amdsmi_facts(), field) == value
    setattr(amdsmi, f"amdsmi_{name}", refuse)
    assert getattr(amdsmi_facts(), field) in (None, "")


# ---- AMD: files --------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path):
    """A node with one MI355X and a CPU, and a process of somebody else's on the GPU."""
    base = amd_node(tmp_path / "root", 0)
    device = mi300x(base, 0)
    files = {
        device / "device": "0x75a3",
        device / "product_name": "AMD Instinct MI355X",
        device / "current_compute_partition": "SPX",
        device / "current_memory_partition": "NPS1",
        device / "mem_info_vram_used": "300000000",
        device / "gpu_busy_percent": "0",
        device / "power_dpm_force_performance_level": "auto",
        device / "hwmon/hwmon3/power1_cap": "1400000000",
        device / "hwmon/hwmon3/power1_cap_default": "1400000000",
        device / "ras/umc_err_count": "ue: 1\nce: 7",
        device / "ras/gfx_err_count": "ue: 0\nce: 2",
        device / "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P",
        base / "sys/class/kfd/kfd/proc/77/vram_1001": "5000000",
        base / "sys/class/kfd/kfd/proc/78/vram_1001": "0",
        base / "proc/77/comm": "vllm",
    }
    for path, text in files.items():
        write(path, text)
    return base


def test_files(root):
    [gpu] = pci_gpus(root)
    assert facts_by_files(root, gpu) == GpuFacts(
        *("0000:05:00.0", "AMD Instinct MI355X", "75a3", "", "SPX", "NPS1", 1400.0, 1400.0, None, "", 1, 1),
        *(None, None, None, 300_000_000, 0, ("vllm (pid 77)",)),
    )


def test_a_gpu_of_another_job_is_none_of_ours(root):
    (root / "dev/dri/renderD128").unlink()
    assert gpu_facts(root) == ([], {})


def test_the_library_goes_before_the_files(root, amdsmi, monkeypatch):
    amdsmi.amdsmi_get_processor_handles = lambda: ["05"]
    amdsmi.amdsmi_get_gpu_asic_info = lambda handle: {"market_name": "AMD Instinct MI355X", "device_id": 0x75A3}
    amdsmi.amdsmi_get_gpu_memory_partition = refuse
    [found], absent = gpu_facts(root)
    assert absent == {}
    assert (found.uncorrected, found.memory, found.used_bytes, found.product) == (2, "NPS1", 300_000_000, "MI355X")


def test_without_any_library_the_reasons_are_kept(root, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    [found], absent = gpu_facts(root)
    assert (found.product, found.uncorrected) == ("MI355X", 1)
    assert set(absent) == {"amdsmi"}
    assert "ModuleNotFoundError" in absent["amdsmi"]


@pytest.mark.parametrize(
    ("environ", "ours", "chosen"),
    [
        ({}, None, ["a", "b", "c"]),
        ({"ROCR_VISIBLE_DEVICES": "0,2"}, None, ["a", "c"]),
        ({"CUDA_VISIBLE_DEVICES": "9"}, None, []),
        ({"HIP_VISIBLE_DEVICES": ""}, None, []),
        ({"HIP_VISIBLE_DEVICES": "-1"}, None, []),
        ({"ROCR_VISIBLE_DEVICES": "GPU-1234"}, None, ["a", "b", "c"]),
        ({"ROCR_VISIBLE_DEVICES": "0"}, {"B"}, ["b"]),
    ],
)
def test_the_gpus_of_a_run(monkeypatch, environ, ours, chosen):
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert [gpu.address for gpu in gpus_of_run([GpuFacts(name) for name in "abc"], ours)] == chosen


# Clocks, power and throttle reasons.


def test_nvidia(nvml):
    monitor, why = open_monitor([H200])
    assert why is None
    assert monitor.read(0) == {
        "sm_clock_mhz": 1830,
        "mem_clock_mhz": 3201,
        "temperature_c": 41,
        "power_w": 412.3,
        "throttle": "software power cap, software thermal",
    }


def test_a_gpu_that_is_lost_does_not_hide_the_others(nvml):
    real = nvml.nvmlDeviceGetPciInfo
    nvml.nvmlDeviceGetPciInfo = lambda handle: real(handle) if handle else refuse()
    nvml.nvmlDeviceGetPowerUsage = lambda handle: {1: 700_000}[handle]
    monitor, _ = open_monitor([{**H200, "pci": "0000:02:00.0"}])
    assert monitor.read(0)["power_w"] == 700.0
    absent = {}
    assert list(facts_by_library(Nvml, absent)) == ["0000:02:00.0"]
    assert absent == {"pynvml": "1 of the GPUs give no answer"}


def test_what_a_driver_refuses_is_none(nvml):
    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetTemperature = refuse
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0
    monitor, _ = open_monitor([H200])
    reading = monitor.read(0)
    assert (reading["power_w"], reading["temperature_c"], reading["throttle"]) == (None, None, "none")


def test_amd_takes_the_slowest_die_of_the_right_device(amdsmi):
    monitor, _ = open_monitor([MI300X])
    assert monitor.read(0) == {
        "sm_clock_mhz": 1184,
        "mem_clock_mhz": 1300,
        "temperature_c": 55,
        "power_w": 702,
        "throttle": "none",
    }
    assert monitor.facts(0) == amdsmi_facts()


def test_absent_is_said(monkeypatch):
    assert open_monitor([]) == (None, "no GPU")
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monitor, why = open_monitor([MI300X])
    assert monitor is None
    assert why.startswith("amdsmi: ModuleNotFoundError")


def test_a_recorder_reads_before_during_and_after(nvml, monkeypatch):
    monkeypatch.setattr(gpus, "PERIOD_S", 0.01)
    monitor, why = open_monitor([H200, {**H200, "index": 1}])
    with gpus.Recorder(monitor, why, 2).recording() as so_far:
        until(lambda: len(so_far()["during"]) >= 3)
        found = so_far()
    assert found["before"]["sm_clock_mhz"] == found["after"]["others"][0]["sm_clock_mhz"] == 1830
    assert found["during"][0]["at_s"] < found["during"][-1]["at_s"]
