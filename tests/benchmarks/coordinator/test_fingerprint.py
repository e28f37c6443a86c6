"""Clocks, power and throttle reasons, from libraries that answer, answer strangely, or are not there."""

from __future__ import annotations

import sys
import time
import types
from pathlib import Path

import pytest

from benchmarks import doctor
from benchmarks.coordinator import device_state, fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.plan import Selection, UsageError
from benchmarks.verify import verify
from tests.benchmarks.conftest import TOY, always

H200 = {
    "index": 0,
    "name": "NVIDIA H200",
    "arch": "sm_90",
    "compute_units": 132,
    "memory_bytes": 150_754_820_096,
    "l2_bytes": 62914560,
    "uuid": "1234",
    "pci": None,
}
MI300X = {
    **H200,
    "name": "AMD Instinct MI300X",
    "arch": "gfx942",
    "compute_units": 304,
    "pci": "0000:c1:00.0",
    "uuid": None,
    "memory_bytes": 192 << 30,
}


def refuse(*_: object) -> None:
    raise RuntimeError("not supported")


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    fake = types.SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_CLOCK_MEM=2,
        NVML_TEMPERATURE_GPU=0,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: f"handle of {uuid}",
        nvmlDeviceGetHandleByIndex=lambda i: f"handle {i}",
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1830, 2: 3201}[kind],
        nvmlDeviceGetTemperature=always(41),
        nvmlDeviceGetPowerUsage=always(412_345),
        nvmlDeviceGetCurrentClocksEventReasons=always(0x4 | 0x20),
        nvmlDeviceGetPciInfo=always(types.SimpleNamespace(pciDeviceId=0x233510DE)),
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
    monitor, why = device_state.open_monitor([H200])
    assert why is None
    assert monitor.read(0) == {
        "sm_clock_mhz": 1830,
        "mem_clock_mhz": 3201,
        "temperature_c": 41,
        "power_w": 412.3,
        "throttle": "software power cap, software thermal",
    }
    assert monitor.static(0) == {"power_cap_w": 700.0, "chip_id": "2335", "partition": None, "driver": "580.1"}


def test_what_a_driver_refuses_is_none(nvml):
    nvml.nvmlDeviceGetPowerUsage = nvml.nvmlDeviceGetTemperature = refuse
    nvml.nvmlDeviceGetCurrentClocksEventReasons = lambda handle: 0
    nvml.nvmlDeviceGetHandleByUUID = refuse
    monitor, _ = device_state.open_monitor([H200])
    reading = monitor.read(0)
    assert (reading["power_w"], reading["temperature_c"], reading["throttle"]) == (None, None, "none")


def test_amd_takes_the_slowest_die_of_the_right_device(amdsmi):
    monitor, _ = device_state.open_monitor([MI300X])
    assert monitor.read(0) == {
        "sm_clock_mhz": 1184,
        "mem_clock_mhz": 1300,
        "temperature_c": 55,
        "power_w": 702,
        "throttle": "none",
    }
    assert monitor.static(0) == {"power_cap_w": 750.0, "chip_id": None, "partition": "SPX/NPS1", "driver": "6.12"}


def test_amd_without_answers(amdsmi):
    amdsmi.amdsmi_get_gpu_metrics_info = refuse
    monitor, _ = device_state.open_monitor([MI300X])
    assert set(monitor.read(0).values()) == {None}


def test_absent_is_said(monkeypatch):
    assert device_state.open_monitor([]) == (None, "no GPU")
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monitor, why = device_state.open_monitor([MI300X])
    assert monitor is None
    assert why.startswith("amdsmi: ModuleNotFoundError")


def test_a_recorder_reads_before_during_and_after(nvml, monkeypatch):
    monkeypatch.setattr(device_state, "PERIOD_S", 0.01)
    monitor, why = device_state.open_monitor([H200, {**H200, "index": 1}])
    with device_state.Recorder(monitor, why, 2).recording() as so_far:
        time.sleep(0.2)
        found = so_far()
    assert found["before"]["sm_clock_mhz"] == found["after"]["others"][0]["sm_clock_mhz"] == 1830
    assert len(found["during"]) >= 3
    assert found["during"][0]["at_s"] < found["during"][-1]["at_s"]


def test_a_long_trial_is_thinned_evenly():
    assert [r["at_s"] for r in device_state.thinned([{"at_s": i} for i in range(100)], 4)] == [0, 25, 50, 75]
    assert len(device_state.thinned([{}] * 3, 4)) == 3


def test_the_name_of_a_machine_is_its_static_identity():
    static = {"power_cap_w": 700.0, "chip_id": "2335", "driver": "580.1", "partition": None}
    one = fingerprint.fingerprint([H200, H200], static)
    assert one["name"].startswith("h200x2-")
    assert one["market_name"] == "H200 SXM"
    assert one["host"] is None
    assert fingerprint.fingerprint([H200, H200], {**static, "driver": "590.0"})["name"] == one["name"]
    assert fingerprint.fingerprint([H200], static)["name"] != one["name"]
    assert fingerprint.fingerprint([H200, H200], {**static, "power_cap_w": 500.0})["name"] != one["name"]
    assert fingerprint.fingerprint([MI300X], {**static, "chip_id": "74a1"})["name"].startswith("mi300xx1-")


def test_a_cpu_is_named_as_linux_does_and_otherwise_as_python_does(monkeypatch):
    told = "processor\t: 0\nmodel name\t: Fast CPU: 96 cores \nmodel name\t: another\n"
    monkeypatch.setattr(Path, "read_text", lambda file: told)
    assert fingerprint.cpu_name() == "Fast CPU: 96 cores"
    monkeypatch.setattr(Path, "read_text", lambda file: "processor\t: 0\n")
    monkeypatch.setattr(fingerprint.platform, "processor", lambda: "arm")
    assert fingerprint.cpu_name() == "arm"


def test_an_unknown_device_is_measured_with_a_warning_that_names_the_table():
    strange = fingerprint.fingerprint([{**H200, "arch": "sm_999", "name": "NVIDIA X1"}], {})
    assert strange["market_name"] is None
    assert "kernels/hardware.py: DEVICES" in fingerprint.unknown_warning(strange)
    assert fingerprint.unknown_warning(fingerprint.fingerprint([], {})) is None


# A GPU that torch does not see is said aloud; nothing is measured on the CPU in its place.


CPU_TORCH = {"torch": "2.13.0+cpu", "hip": None, "cuda": None}


@pytest.fixture(params=["kfd", "nvidia0"])
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine with a GPU's device file."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / request.param).touch()
    for name in fingerprint.HIDING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_wrong_torch_is_named_with_the_next_step(root: Path) -> None:
    said = fingerprint.unseen_gpu([], CPU_TORCH, root)
    assert "torch 2.13.0+cpu sees none (hip None, cuda None)" in said
    assert str(root / "dev") in said
    assert "make PYTHON=" in said
    missing = {"torch": None, "torch_missing": "ModuleNotFoundError: No module named 'torch'"}
    assert "torch cannot be imported (ModuleNotFoundError" in fingerprint.unseen_gpu([], missing, root)


def test_a_gpu_that_is_seen_absent_or_hidden_is_no_fault(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fingerprint.unseen_gpu([{"name": "MI300X"}], CPU_TORCH, root) == ""
    assert fingerprint.unseen_gpu([], CPU_TORCH, root / "none") == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert fingerprint.unseen_gpu([], CPU_TORCH, root) == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert fingerprint.unseen_gpu([], CPU_TORCH, root) != ""


@pytest.mark.slow
def test_nothing_is_measured_or_verified_and_the_doctor_says_so(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fingerprint.unseen_gpu
    monkeypatch.setattr(fingerprint, "unseen_gpu", lambda found, environment: real(found, environment, root))
    checkout = Checkout("head", TOY)
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(measure(["pairs"], [checkout]))
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(verify(["pairs"], checkout, tmp_path / "checks.jsonl", Selection()))
    kinds = {problem["kind"]: problem["level"] for problem in doctor.examine(TOY)["problems"]}
    assert kinds["unseen_gpu"] == "error"
