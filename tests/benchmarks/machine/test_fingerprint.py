"""What machine this is, and whether torch sees its GPU."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks import doctor
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.trial import measure
from benchmarks.machine import limits, system
from benchmarks.machine.gpus import GpuFacts
from benchmarks.plan import Selection, UsageError
from benchmarks.verify import verify
from tests.benchmarks.conftest import TOY

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


def test_the_name_of_a_machine_is_its_static_identity():
    gpu = GpuFacts("0000:01:00.0", chip_id="2335", driver="580.1", power_cap_w=700.0)
    one = limits.fingerprint([H200, H200], gpu)
    assert one["name"].startswith("h200x2-")
    assert one["market_name"] == "H200 SXM"
    assert one["host"] is None
    assert limits.fingerprint([H200, H200], dataclasses.replace(gpu, driver="590.0"))["name"] == one["name"]
    assert limits.fingerprint([H200], gpu)["name"] != one["name"]
    assert limits.fingerprint([H200, H200], dataclasses.replace(gpu, power_cap_w=500.0))["name"] != one["name"]
    assert limits.fingerprint([MI300X], dataclasses.replace(gpu, chip_id="74a1"))["name"].startswith("mi300xx1-")


def test_a_cpu_is_named_as_linux_does_and_otherwise_as_python_does(monkeypatch):
    told = "processor\t: 0\nmodel name\t: Fast CPU: 96 cores \nmodel name\t: another\n"
    monkeypatch.setattr(Path, "read_text", lambda file, **_: told)
    assert system.cpu_name() == "Fast CPU: 96 cores"
    monkeypatch.setattr(Path, "read_text", lambda file, **_: "processor\t: 0\n")
    monkeypatch.setattr(system.platform, "processor", lambda: "arm")
    assert system.cpu_name() == "arm"


def test_an_unknown_device_is_measured_with_a_warning_that_names_the_table():
    strange = limits.fingerprint([{**H200, "arch": "sm_999", "name": "NVIDIA X1"}])
    assert strange["market_name"] is None
    assert "kernels/hardware.py: DEVICES" in limits.unknown_warning(strange)
    assert limits.unknown_warning(limits.fingerprint([])) is None


# A GPU that torch does not see is said aloud; nothing is measured on the CPU in its place.


CPU_TORCH = {"torch": "2.13.0+cpu", "hip": None, "cuda": None}


@pytest.fixture(params=["kfd", "nvidia0"])
def root(request, tmp_path, monkeypatch):
    """The root of a machine with a GPU's device file."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / request.param).touch()
    for name in limits.HIDING:
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_the_wrong_torch_is_named_with_the_next_step(root):
    said = limits.unseen_gpu([], CPU_TORCH, root)
    assert "torch 2.13.0+cpu sees none (hip None, cuda None)" in said
    assert str(root / "dev") in said
    assert "make PYTHON=" in said
    missing = {"torch": None, "torch_missing": "ModuleNotFoundError: No module named 'torch'"}
    assert "torch cannot be imported (ModuleNotFoundError" in limits.unseen_gpu([], missing, root)


def test_a_gpu_that_is_seen_absent_or_hidden_is_no_fault(root, monkeypatch):
    assert limits.unseen_gpu([{"name": "MI300X"}], CPU_TORCH, root) == ""
    assert limits.unseen_gpu([], CPU_TORCH, root / "none") == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "")
    assert limits.unseen_gpu([], CPU_TORCH, root) == ""
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert limits.unseen_gpu([], CPU_TORCH, root) != ""


@pytest.mark.slow
def test_nothing_is_measured_or_verified_and_the_doctor_says_so(root, tmp_path, monkeypatch):
    real = limits.unseen_gpu
    monkeypatch.setattr(limits, "unseen_gpu", lambda devices, environment, *_: real(devices, environment, root))
    checkout = Checkout("head", TOY)
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(measure(["pairs"], [checkout]))
    with pytest.raises(UsageError, match="this machine has a GPU"):
        next(verify(["pairs"], checkout, tmp_path / "checks.jsonl", Selection()))
    kinds = {problem["kind"]: problem["level"] for problem in doctor.examine(TOY)["problems"]}
    assert kinds["unseen_gpu"] == "error"
