"""What a node is told about its GPUs: every fault is one line with the next step, and a sound node has none."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from benchmarks import doctor
from benchmarks.bringup import steps
from benchmarks.bringup.probes import devices, machine, software
from benchmarks.bringup.probes.devices import CONTROLS, MANY, judge_litmus
from benchmarks.bringup.steps import PACKAGES, Row, RowStatus, StepContext, VendorPackage
from benchmarks.plan import HEAP_VARIABLE
from benchmarks.preflight import judge, system
from kernels import registry, symmetric_heap
from tests.benchmarks.bringup import nodes
from tests.kernels.ranks import run_alone, run_ranks


@pytest.fixture(autouse=True)
def _no_hiding(monkeypatch):
    for name in system.HIDING:
        monkeypatch.delenv(name, raising=False)


def said_of(root: Path, count: int) -> list[str]:
    """What is said of GPUs that cannot be used, where torch sees so many; each has a next step."""
    found = list(judge.unusable([nodes.device(i) for i in range(count)], root))
    assert all(problem.next_step for problem in found)
    return [problem.text for problem in found]


def test_a_sound_node_has_no_fault(tmp_path):
    assert said_of(nodes.amd_node(tmp_path), 8) == []


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
    [found] = said_of(root, 7)
    assert found.startswith(said)


def test_gpus_of_others_are_no_fault(tmp_path, monkeypatch):
    root = nodes.amd_node(tmp_path, 2)
    nodes.pci(root, 2, driver="vfio-pci")
    nodes.mi300x(root, 3)
    (root / f"dev/dri/renderD{nodes.RENDER + 3}").unlink()  # not passed to this container
    assert said_of(root, 2) == []
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "0")
    assert said_of(root, 1) == []


@pytest.mark.parametrize(
    ("file", "number", "said"),
    [
        ("renderD129", errno.EACCES, ["0000:15:00.0: no permission on /dev/dri/renderD129 (mode "]),
        ("renderD129", errno.EPERM, []),  # cgroups give it to another job
        ("renderD129", errno.EIO, ["0000:15:00.0: /dev/dri/renderD129 cannot be opened: it is not healthy"]),
        ("kfd", errno.EACCES, ["no permission on /dev/kfd (mode "]),
    ],
)
def test_a_device_file_that_cannot_be_opened(tmp_path, monkeypatch, file, number, said):
    """A test may run as root, who may open everything."""
    real = os.open

    def refuse(path, *how, **more):
        if Path(path).name == file:
            raise OSError(number, os.strerror(number))
        return real(path, *how, **more)

    root = nodes.amd_node(tmp_path, 2)
    monkeypatch.setattr(system.os, "open", refuse)
    found = said_of(root, 2 if file == "kfd" else 1)
    assert len(found) == len(said)
    assert all(text.startswith(start) for text, start in zip(found, said, strict=True))


def test_graphics_of_a_laptop_are_not_a_gpu_to_compute_on(tmp_path):
    folder = nodes.pci(tmp_path, 0, kind="0x030000")
    (folder / "drm/renderD128").mkdir(parents=True)
    nodes.write(tmp_path / "dev/dri/renderD128", "")
    assert said_of(tmp_path, 0) == []


def test_h200(tmp_path):
    for index in range(2):
        nodes.h200(tmp_path, index)
    assert said_of(tmp_path, 1) == ["0000:15:00.0: its device file can be opened, but torch does not see it"]


# ---- the step of the bring-up ------------------------------------------------------------------------------------

VERSIONS = {"python": "3.11.7", "torch": "2.13.0", "triton": "3.8.0"}


def rows_of(root: Path, seen) -> dict[str, machine.Row]:
    """The rows of the step by name, without those of the machine that the test runs on."""
    found = machine.machine(StepContext("machine", str(root), seen, VERSIONS, root=str(root)))
    return {row.name: row for row in found if row.name not in ("disk", "memlock", "library", "no_device_state")}


def test_a_sound_machine_is_one_row(tmp_path):
    rows = rows_of(nodes.amd_node(tmp_path), [nodes.device(i) for i in range(8)])
    assert list(rows) == ["machine"]
    said = "torch sees 8 x AMD Instinct MI300X (gfx942, 304 CUs) on 8 GPUs in mode SPX/NPS1"
    assert (rows["machine"].status, rows["machine"].text) == (RowStatus.PASS, said)


def test_a_machine_without_a_gpu(tmp_path):
    assert rows_of(tmp_path, [])["machine"].text == "no GPU: only CPU backends are tried"


def test_a_gpu_that_fell_off_the_bus_is_hinted_at(tmp_path):
    rows = rows_of(nodes.amd_node(tmp_path, 7), [nodes.device(i) for i in range(7)])
    assert "fell off the bus" in rows["machine"].next_step


def test_what_the_doctor_calls_an_error_fails_and_a_warning_is_told(tmp_path):
    root = nodes.amd_node(tmp_path, 7, current_compute_partition="CPX", current_memory_partition="NPS4")
    nodes.mi300x(root, 7)
    nodes.write(root / "proc/sys/kernel/numa_balancing", "1")
    rows = rows_of(root, [nodes.device(i, cus=38) for i in range(7)])
    assert rows["machine"].text.endswith("mode mixed/mixed")
    assert {name: row.status for name, row in rows.items() if name != "machine"} == {
        "partition": RowStatus.FAIL,
        "gpu_fault": RowStatus.FAIL,
        "NUMA balancing": RowStatus.PASS,
    }
    assert rows["partition"].text == "GPUs in different modes: CPX/NPS4 on 7, SPX/NPS1 on 1"
    assert all(row.next_step for name, row in rows.items() if name != "machine")


def test_a_reading_of_the_first_gpu_is_in_the_row(tmp_path, monkeypatch):
    class Monitor:
        def read(self, index):
            return {"sm_clock_mhz": 2100, "power_w": None}

        def static(self, index):
            return {"power_cap_w": 750.0, "chip_id": None, "partition": "SPX/NPS1", "driver": "6.16.13"}

    monkeypatch.setattr(doctor.device_state, "open_monitor", lambda found: (Monitor(), None))
    row = rows_of(nodes.amd_node(tmp_path, 1), [nodes.device(0)])["machine"]
    assert row.numbers == {"sm_clock_mhz": (2100, "MHz"), "power_cap": (750.0, "W")}


def test_a_gpu_in_use_by_somebody_else(tmp_path):
    root = nodes.amd_node(tmp_path, 1)
    nodes.mi300x(root, 1, used_bytes=41 << 30, gpu_busy_percent="97")
    nodes.write(root / "sys/class/kfd/kfd/proc/4711/vram_1003", str(41 << 30))
    nodes.write(root / "proc/4711/comm", "python")
    row = rows_of(root, [nodes.device(0), nodes.device(1)])["in use"]
    assert (row.status, row.text) == (RowStatus.FAIL, "GPU 1 is used by somebody else: python (pid 4711)")
    assert row.next_step == "wait or stop them, or choose other GPUs"


# What is said of versions that do not fit, of a GPU that torch does not see, and of one that errs.


TORCH_OF_ROCM = {"python": "3.12.3", "torch": "2.11.0+rocm7.2", "triton": "3.6.0", "hip": "7.2.53", "cuda": None}


def context(root: Path, devices=(), **versions: str | None) -> StepContext:
    return StepContext("torch", ".", devices, {**TORCH_OF_ROCM, **versions}, root=str(root))


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


def test_a_gpu_that_multiplies_wrongly_is_named(tmp_path):
    import torch

    a, b = (torch.randint(-4, 5, (16, 16)).double() for _ in range(2))
    assert software.product_fault(a, b, "cpu") == ""
    spoiled = a.clone()
    spoiled.to = lambda *how: a.half() + 1
    assert software.product_fault(spoiled, b, "cpu") == "a product of small integers is wrong"
    two = context(tmp_path, [nodes.device(0), nodes.device(1)])
    raises = {"cuda:0": "", "cuda:1": "wrong"}
    assert [row.text for row in software._on_each_gpu(two, "product", raises.pop, "see")] == ["GPU 1: wrong"]
    assert [row.text for row in software._on_each_gpu(two, "product", raises.pop, "see")][
        0
    ] == "GPU 0: KeyError: 'cuda:0'"


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


# The litmus test sees a fault, its kernels compile for every GPU, and rates and access are judged by their numbers.


def litmus_rows(folder: Path, fault: str, world: int = 2) -> dict[str, dict]:
    """Rows of the litmus test by name, with that many ranks in Triton's interpreter."""
    (folder / "heap").mkdir()
    said = run_ranks(
        "tests.benchmarks.bringup.litmus_ranks", fault, world, folder, TRITON_INTERPRET="1", GLOO_SOCKET_IFNAME="lo"
    )
    return {row["name"]: row for row in json.loads(said[0])}


@pytest.mark.slow
def test_the_litmus_test_passes_where_messages_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "right")
    assert rows["many"]["status"] == "pass"
    assert rows["many"]["numbers"]["violations"]["value"] == 0
    assert rows["many"]["numbers"]["messages"]["value"] == 12
    assert rows["control"]["status"] == "pass"


@pytest.mark.slow
def test_the_litmus_test_counts_messages_that_do_not_arrive(tmp_path):
    rows = litmus_rows(tmp_path, "lost")
    assert rows["many"]["status"] == "fail"
    assert rows["many"]["numbers"]["violations"]["value"] == 2 * 2 * 6 * 64, (
        "every element of every round, on both ranks"
    )


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
def test_the_kernels_compile_for_every_gpu(arch):
    run_alone("tests.benchmarks.bringup.links_compiled", "defaults", arch)


def test_a_million_messages_per_pair_and_direction():
    assert MANY.messages >= 1_000_000
    assert MANY.rounds % 2 == 0, "two launches must not meet in one half of the buffer"


def test_violations_are_a_fault_with_fences_and_expected_without():
    row = judge_litmus(MANY, [0, 3], seconds=0.1)
    assert row.status == RowStatus.FAIL
    assert row.text.endswith("3 violations (rank 1: 3)")
    assert "send us this report" in row.next_step
    for control in CONTROLS:
        row = judge_litmus(control, [0, control.messages * control.block], seconds=0.1)
        assert row.status == RowStatus.PASS
        assert "(50 % of what was sent" in row.text
    assert judge_litmus(MANY, [0, 0], seconds=MANY.rounds * 2e-6).text.endswith("0 violations, 2.00 us per exchange")


def test_gpus_without_peer_access_are_named():
    row = devices.judge_access([(0, 1), (1, 0)], 12)
    assert (row.status, row.text) == (RowStatus.FAIL, "no peer access for 2 of 12 pairs: 0->1, 1->0")
    assert "iommu=pt" in row.next_step
    assert devices.judge_access([], 12).status == RowStatus.PASS


def test_a_slow_link_is_named():
    rates = {f"{a}->{b}": 48.0 for a in range(4) for b in range(4) if a != b}
    assert devices.judge_rates(rates).status == RowStatus.PASS
    row = devices.judge_rates({**rates, "2->3": 12.0})
    assert row.status == RowStatus.FAIL
    assert row.text.endswith("much slower: 2->3 12 GB/s")
    assert row.numbers["slowest"] == (12.0, "GB/s")


def test_a_wrong_all_gather_is_a_fault():
    context = StepContext("rccl", ".", world=2, devices=[{"arch": "gfx942"}] * 2, environment={"nccl": "2.27.7"})
    right, wrong = (devices.judge_gather(context, good, 600.0, 2.0) for good in (True, False))
    assert right.text == "RCCL 2.27.7, 2 ranks: all-gather of 128 MiB per rank is right, busbw 300 GB/s"
    assert wrong.status == RowStatus.FAIL


def test_every_home_of_the_heap_has_its_steps():
    assert set(steps.HOMES) == set(symmetric_heap.CHOICES) - {symmetric_heap.AUTO}
    assert HEAP_VARIABLE == symmetric_heap.VARIABLE
