"""Clocks, power and throttle reasons, from libraries that answer, answer strangely, or are not there."""

from __future__ import annotations

import sys
import time
import types

import pytest

from benchmarks.machine import gpus
from benchmarks.machine.gpus import Nvml, facts_by_library, open_monitor
from tests.benchmarks.conftest import always
from tests.benchmarks.machine.test_fingerprint import H200, MI300X


def refuse(*_: object) -> None:
    raise RuntimeError("not supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    fake = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1830, 2: 3201}[kind],
        nvmlDeviceGetTemperature=always(41),
        nvmlDeviceGetPowerUsage=always(412_345),
        nvmlDeviceGetCurrentClocksEventReasons=always(0x4 | 0x20),
        nvmlDeviceGetPciInfo=lambda handle: types.SimpleNamespace(
            busId=f"00000000:0{handle}:00.0", pciDeviceId=0x233510DE
        ),
        nvmlDeviceGetPowerManagementLimit=always(700_000),
        nvmlSystemGetDriverVersion=lambda: b"580.1",
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


@pytest.fixture
def amdsmi(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    metrics = {
        "current_gfxclks": [2100, 1184, 1190, 65535],
        "current_uclk": 1300,
        "temperature_hotspot": 55,
        "current_socket_power": 702,
        "average_socket_power": "N/A",
        "indep_throttle_status": 0,
    }
    fake = types.SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["first", "second"],
        amdsmi_get_gpu_device_bdf=lambda handle: {"first": "0000:11:00.0", "second": "0000:C1:00.0"}[handle],
        amdsmi_get_gpu_metrics_info=lambda handle: metrics if handle == "second" else {},
        amdsmi_get_power_cap_info=always({"power_cap": 750_000_000}),
        amdsmi_get_gpu_compute_partition=always("SPX"),
        amdsmi_get_gpu_memory_partition=always("NPS1"),
        amdsmi_get_gpu_driver_info=always({"driver_version": "6.12"}),
    )
    monkeypatch.setitem(sys.modules, "amdsmi", fake)
    return fake


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
    monitor, _ = open_monitor([{**H200, "pci": "0000:01:00.0"}])
    assert monitor.read(0)["power_w"] == 700.0
    absent = {}
    assert list(facts_by_library(Nvml, absent)) == ["0000:01:00.0"]
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
    facts = monitor.facts(0)
    assert (facts.power_cap_w, facts.compute, facts.memory, facts.driver) == (750.0, "SPX", "NPS1", "6.12")


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
        time.sleep(0.2)
        found = so_far()
    assert found["before"]["sm_clock_mhz"] == found["after"]["others"][0]["sm_clock_mhz"] == 1830
    assert len(found["during"]) >= 3
    assert found["during"][0]["at_s"] < found["during"][-1]["at_s"]


def test_a_long_trial_is_thinned_evenly():
    assert [r["at_s"] for r in gpus.thinned([{"at_s": i} for i in range(100)], 4)] == [0, 25, 50, 75]
    assert len(gpus.thinned([{}] * 3, 4)) == 3
