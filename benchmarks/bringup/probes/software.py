"""torch, Triton and the packages that baselines call: versions that fit, and a right product on each GPU."""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import doctor
from benchmarks.bringup import steps
from benchmarks.bringup.steps import Row, StepContext, VendorPackage, failed, not_here, passed
from benchmarks.coordinator import fingerprint

SIZE = 512
"""Rows of the product that each GPU is tried with."""


def torch_build(context: StepContext) -> list[Row]:
    """Which torch, for which ROCm or CUDA, and whether each GPU multiplies."""
    environment = context.environment
    if not environment.get("torch"):
        why = environment.get("torch_missing", "no answer")
        return [
            failed("torch", f"torch cannot be imported: {why}", "use the Python that has torch: make setup PYTHON=...")
        ]
    unseen = fingerprint.unseen_gpu(context.devices, environment, Path(context.root))
    if unseen:
        why, _, next_step = unseen.partition("; ")
        return [failed("torch", why, next_step)]
    rows = [passed("torch", _build(context))]
    return [*rows, *_products(context)] if context.gpu else rows


def _build(context: StepContext) -> str:
    """Versions of torch, its platform, and the driver's."""
    environment, root = context.environment, Path(context.root)
    parts = [f"torch {environment['torch']}", f"Python {environment['python']}"]
    parts += [f"{name.upper()} {environment[name]}" for name in ("hip", "cuda") if environment.get(name)]
    files = {"amdgpu driver": "sys/module/amdgpu/version", "nvidia driver": "sys/module/nvidia/version"}
    files["ROCm"] = "opt/rocm/.info/version"
    found = {name: (root / path).read_text().strip() for name, path in files.items() if (root / path).is_file()}
    said = ", ".join([*parts, *(f"{name} {version}" for name, version in found.items())])
    return said + other_rocm(environment.get("hip") or "", found.get("ROCm", ""))


def other_rocm(built_for: str, installed: str) -> str:
    """A remark if torch was built for another ROCm than the system's: its own libraries and the system's then mix."""
    if not built_for or not installed or doctor.version_numbers(built_for)[:2] == doctor.version_numbers(installed)[:2]:
        return ""
    return f" (this torch was built for ROCm {built_for}; vendor packages must be too)"


def _products(context: StepContext) -> list[Row]:
    """One row for all GPUs that multiply right, one for each that does not."""
    import torch

    a, b = (torch.randint(-4, 5, (SIZE, SIZE)).double() for _ in range(2))
    next_step = "leave it out (HIP_VISIBLE_DEVICES, CUDA_VISIBLE_DEVICES) and read `dmesg`; RAS errors: `amd-smi ras`"
    wrong = _on_each_gpu(context, "product", lambda device: product_fault(a, b, device), next_step)
    right = len(context.devices) - len(wrong)
    return [passed("product", f"right on {right} of {len(context.devices)} GPUs"), *wrong] if right else wrong


def product_fault(a: Any, b: Any, device: str) -> str:
    """What is wrong with an integer product on a device, which is exact in fp32 and fp16 inputs; "" if it is right."""
    import torch

    product = (a.to(device, torch.float16) @ b.to(device, torch.float16)).double().cpu()
    return "" if torch.equal(product, (a @ b).half().double()) else "a product of small integers is wrong"


def _on_each_gpu(context: StepContext, name: str, fault: Callable[[str], str], next_step: str) -> list[Row]:
    """A row for each GPU on which something is wrong.  fault: what is, by device; it may raise."""
    rows = []
    for index in range(len(context.devices)):
        try:
            wrong = fault(f"cuda:{index}")
        except Exception as error:
            wrong = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        rows += [failed(name, f"GPU {index}: {wrong}", next_step)] if wrong else []
    return rows


# ---- Triton ------------------------------------------------------------------------------------------------------


def triton_build(context: StepContext) -> list[Row]:
    """Which Triton, whether it is the one that torch asks for, and whether a kernel compiles and runs."""
    version = context.environment.get("triton")
    if not version:
        why = context.environment.get("triton_missing", "no answer")
        return [failed("triton", f"Triton cannot be imported: {why}", "install the Triton that this torch asks for")]
    said = f"Triton {version}{mismatch(_asked_by_torch(), version)}"
    return [passed("triton", said), *_kernels(context)]


def _asked_by_torch() -> Sequence[str]:
    try:
        return importlib.metadata.requires("torch") or []
    except importlib.metadata.PackageNotFoundError:
        return []


def mismatch(requirements: Sequence[str], version: str) -> str:
    """A remark if torch pins another version: "triton==3.6.0", "pytorch-triton-rocm==3.5.1"."""
    for requirement in requirements:
        pinned = re.match(r"[\w-]*triton[\w-]*\s*\(?==\s*([\d.]+)", requirement)
        if pinned and doctor.version_numbers(pinned[1]) != doctor.version_numbers(version):
            return f"; this torch asks for {pinned[1]}"
    return ""


def _kernels(context: StepContext) -> list[Row]:
    """A kernel on each GPU; the first compiles it."""
    from benchmarks.bringup.probes import link_device

    begin = time.monotonic()
    next_step = "clear Triton's cache (~/.triton/cache), check its version, and gcc or clang for its launcher"
    rows = _on_each_gpu(context, "kernel", link_device.fault, next_step)
    took = (time.monotonic() - begin, "s")
    done = f"compiled and right on {len(context.devices)} GPUs"
    return rows or [passed("kernel", done, took=took)]


# One package that baselines call: is it there, is it the right one, does it import.


def package(context: StepContext) -> list[Row]:
    """The package that the step is named after.  Its baselines are called in the step `backend`."""
    chosen = steps.package_of(context.part)
    name = chosen.name
    install = f"pip install {chosen.distributions[0]}, in the build for this torch"
    if not steps.is_installed(chosen):
        wanted = not context.gpu or chosen.vendor in ("", "amd" if context.amd else "nvidia")
        why = "not installed" if wanted else f"not installed; it is for {chosen.vendor.upper()} GPUs"
        return [not_here(name, why, install if wanted and context.gpu else "")]
    if other := wrong_distribution(chosen):
        next_step = f"pip uninstall {other}; {install}"
        return [failed(name, f"`{name}` is installed by {other}, another project of that name", next_step)]
    begin = time.monotonic()
    try:
        module = importlib.import_module(chosen.module)
    except Exception as error:
        why = f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no message'])[0]}"
        return [failed(name, f"{_named(chosen)} does not import: {why}", install)]
    seconds = time.monotonic() - begin
    return [passed(name, _named(chosen, getattr(module, "__version__", "")), imported=(seconds, "s"))]


def wrong_distribution(chosen: VendorPackage) -> str:
    """The distribution that brings a module of this name but is not its project, "" if it is (or is not known)."""
    brought = importlib.metadata.packages_distributions().get(chosen.name, [])
    right = {normal(name) for name in chosen.distributions}
    return "" if not brought or any(normal(name) in right for name in brought) else brought[0]


def _named(chosen: VendorPackage, said: str = "") -> str:
    """Distribution and version."""
    brought = importlib.metadata.packages_distributions().get(chosen.name, [])
    if not brought:
        return f"{chosen.name} {said or 'of unknown version'} (no distribution)"
    return f"{brought[0]} {importlib.metadata.version(brought[0])}"


def normal(name: str) -> str:
    """A distribution's name as indexes compare it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
