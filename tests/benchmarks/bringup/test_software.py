"""What is said of versions that do not fit, of a GPU that torch does not see, and of one that errs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.bringup.probes import software
from benchmarks.bringup.steps import PACKAGES, Row, RowStatus, StepContext, VendorPackage
from kernels import registry
from tests.benchmarks.bringup import nodes

VERSIONS = {"python": "3.12.3", "torch": "2.11.0+rocm7.2", "triton": "3.6.0", "hip": "7.2.53", "cuda": None}


def context(root: Path, devices=(), **versions: str | None) -> StepContext:
    return StepContext("torch", ".", devices, {**VERSIONS, **versions}, root=str(root))


@pytest.fixture(autouse=True)
def _no_hiding(monkeypatch):
    for name in software.fingerprint.HIDING:
        monkeypatch.delenv(name, raising=False)


def only(rows: list[Row]) -> Row:
    [row] = rows
    return row


def test_versions_of_torch_and_its_platform(tmp_path):
    nodes.write(tmp_path / "sys/module/amdgpu/version", "6.16.13")
    nodes.write(tmp_path / "opt/rocm/.info/version", "7.2.0-43")
    row = only(software.torch_build(context(tmp_path)))
    assert row.status == RowStatus.PASS
    assert row.text == "torch 2.11.0+rocm7.2, Python 3.12.3, HIP 7.2.53, amdgpu driver 6.16.13, ROCm 7.2.0-43"


def test_another_rocm_is_remarked(tmp_path):
    nodes.write(tmp_path / "opt/rocm/.info/version", "6.4.1")
    row = only(software.torch_build(context(tmp_path)))
    assert "(this torch was built for ROCm 7.2.53; vendor packages must be too)" in row.text


def test_a_torch_that_is_missing(tmp_path):
    row = only(software.torch_build(context(tmp_path, torch=None, torch_missing="ModuleNotFoundError: no torch")))
    assert (row.status, row.text) == (RowStatus.FAIL, "torch cannot be imported: ModuleNotFoundError: no torch")


def test_a_gpu_that_torch_does_not_see(tmp_path):
    nodes.write(tmp_path / "dev/kfd", "")
    row = only(software.torch_build(context(tmp_path, hip=None)))
    assert row.status == RowStatus.FAIL
    assert row.text.startswith("this machine has a GPU (")
    assert row.next_step.startswith("use the Python that has the GPU build of torch")


@pytest.mark.parametrize(
    ("requirement", "remark"),
    [
        ("triton==3.6.0; platform_system == 'Linux'", ""),
        ("pytorch-triton-rocm==3.5.1", "; this torch asks for 3.5.1"),
        ("triton-rocm (==3.5.1)", "; this torch asks for 3.5.1"),
        ("numpy==1.0", ""),
    ],
)
def test_the_triton_that_torch_asks_for(requirement, remark):
    assert software.mismatch([requirement], "3.6.0") == remark


def test_a_triton_that_is_missing(tmp_path):
    row = only(software.triton_build(context(tmp_path, triton=None, triton_missing="ImportError: glibc")))
    assert (row.status, row.text) == (RowStatus.FAIL, "Triton cannot be imported: ImportError: glibc")


def test_a_gpu_that_multiplies_wrongly_is_named():
    import torch

    a, b = (torch.randint(-4, 5, (16, 16)).double() for _ in range(2))
    assert software._product_fault(torch, a, b, "cpu") == ""
    spoiled = a.clone()
    spoiled.to = lambda *how: a.half() + 1
    assert software._product_fault(torch, spoiled, b, "cpu") == "a product of small integers is wrong"
    assert software._product_fault(torch, a, b, "nowhere").startswith("RuntimeError: ")


# ---- packages -----------------------------------------------------------------------------------------------------


def test_a_package_for_other_gpus_needs_nothing_done(tmp_path):
    steps = {one.name: StepContext(f"package/{one.name}", ".", [nodes.device(0)]) for one in PACKAGES}
    humming, aiter = (only(software.package(steps[name])) for name in ("humming", "aiter"))
    assert (humming.text, humming.next_step) == ("not installed; it is for NVIDIA GPUs", "")
    assert (aiter.text, aiter.next_step) == ("not installed", "pip install amd-aiter, in the build for this torch")


def test_names_of_distributions_are_compared_as_indexes_do(monkeypatch):
    chosen = VendorPackage("primus_turbo", "primus_turbo.pytorch", ("primus_turbo",), "amd", "")
    monkeypatch.setattr(
        software.importlib.metadata, "packages_distributions", lambda: {"primus_turbo": ["Primus-Turbo"]}
    )
    assert software.wrong_distribution(chosen) == ""


def test_every_library_that_a_baseline_declares_has_its_step():
    known = {software.normal(name) for one in PACKAGES for name in one.distributions}
    kernels = registry.discover(["kernels"]).kernels.values()
    declared = {name for kernel in kernels for backend in kernel.backends.values() for name in backend.libraries}
    assert {software.normal(name) for name in declared} <= known, "add it to benchmarks/bringup/steps.py"
