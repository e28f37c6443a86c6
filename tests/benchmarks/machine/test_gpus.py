"""What GPUs tell of themselves: through libraries that answer, answer strangely or are not there, and from files."""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from benchmarks.machine.gpus import AmdSmi, GpuFacts, Nvml, facts_by_files, gpu_facts, gpus_of_run
from benchmarks.machine.system import pci_gpus
from tests.benchmarks.conftest import always


def nvml_facts() -> list[GpuFacts]:
    library = Nvml()
    return [library.facts(address) for address in library.handles]


def amdsmi_facts() -> GpuFacts:
    library = AmdSmi()
    [address] = library.handles
    return library.facts(address)


def refuse(*_: object) -> None:
    raise RuntimeError("not supported")


# ---- NVIDIA ------------------------------------------------------------------------------------------------------


@pytest.fixture
def fake_nvml(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """Two H200, as NVML shows them."""
    fake = types.SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetPciInfo=lambda handle: types.SimpleNamespace(
            busId=f"00000000:{handle + 1:02X}:00.0".encode(), pciDeviceId=0x233510DE
        ),
        nvmlDeviceGetName=always(b"NVIDIA H200"),
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


H200 = GpuFacts(
    *("0000:01:00.0", "NVIDIA H200", "2335", "580.1", "", "", 700.0, 700.0, 1980, "", 0, 0, 18, 0, None, 600 << 20, 0),
    (),
)


def test_nvml(fake_nvml: types.SimpleNamespace) -> None:
    first, second = nvml_facts()
    assert first == H200
    assert (second.address, second.links, second.links_down) == ("0000:02:00.0", 18, 1)


@pytest.mark.parametrize(("rows", "retiring", "pending"), [((0, 2, 1, 0), 0, 1), ((0, 2, 0, 0), 1, 0), (None, 1, 1)])
def test_pages_that_wait(
    fake_nvml: types.SimpleNamespace, rows: tuple[int, ...] | None, retiring: int, pending: int
) -> None:
    fake_nvml.nvmlDeviceGetRemappedRows = refuse if rows is None else lambda handle: rows
    fake_nvml.nvmlDeviceGetRetiredPagesPendingStatus = lambda handle: retiring
    assert nvml_facts()[0].bad_pages == pending


# ---- AMD: the library --------------------------------------------------------------------------------------------


@pytest.fixture
def fake_amdsmi(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """One MI300X, as amdsmi of ROCm 7 shows it."""
    enum = types.SimpleNamespace(name="AMDSMI_XGMI_STATUS_NO_ERRORS")
    fake = types.SimpleNamespace(
        AmdSmiClkType=types.SimpleNamespace(GFX=0),
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["only"],
        amdsmi_get_gpu_device_bdf=always("0000:C1:00.0"),
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


def test_amdsmi(fake_amdsmi: types.SimpleNamespace) -> None:
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
def test_other_shapes_and_units(
    fake_amdsmi: types.SimpleNamespace, name: str, answer: object, field: str, value: object
) -> None:
    setattr(fake_amdsmi, f"amdsmi_{name}", lambda *_: answer)
    assert getattr(amdsmi_facts(), field) == value
    setattr(fake_amdsmi, f"amdsmi_{name}", refuse)
    assert getattr(amdsmi_facts(), field) in (None, "")


# ---- AMD: files --------------------------------------------------------------------------------------------------


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A node with one MI355X and a CPU, and a process of somebody else's on the GPU."""
    base = tmp_path / "root"
    device = base / "sys/bus/pci/devices/0000:75:00.0"
    files = {
        device / "vendor": "0x1002",
        device / "class": "0x120000",
        device / "device": "0x75a3",
        device / "product_name": "AMD Instinct MI355X",
        device / "current_compute_partition": "SPX",
        device / "current_memory_partition": "NPS1",
        device / "mem_info_vram_used": "300000000",
        device / "gpu_busy_percent": "0",
        device / "power_dpm_force_performance_level": "auto",
        device / "hwmon/hwmon3/power1_cap": "1400000000",
        device / "hwmon/hwmon3/power1_cap_default": "1400000000",
        device / "ras/umc_err_count": "ue: 1\nce: 7\n",
        device / "ras/gfx_err_count": "ue: 0\nce: 2\n",
        device / "ras/gpu_vram_bad_pages": "0x00000001 : 0x00001000 : R\n0x00000002 : 0x00001000 : P\n",
        device / "drm/renderD128/dev": "226:128",
        base / "sys/class/kfd/kfd/topology/nodes/0/properties": "simd_count 0\n",
        base / "sys/class/kfd/kfd/topology/nodes/1/properties": "simd_count 1024\ndrm_render_minor 128\n",
        base / "sys/class/kfd/kfd/topology/nodes/1/gpu_id": "4711",
        base / "sys/class/kfd/kfd/proc/77/vram_4711": "5000000",
        base / "sys/class/kfd/kfd/proc/78/vram_4711": "0",
        base / "proc/77/comm": "vllm\n",
        base / "proc/cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt quiet\n",
        base / "proc/sys/kernel/numa_balancing": "0\n",
        base / "dev/dri/renderD128": "",
        base / "dev/kfd": "",
        base / "dev/shm/empty": "",
    }
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    driver = base / "sys/bus/pci/drivers/amdgpu"
    driver.mkdir(parents=True)
    (device / "driver").symlink_to(driver)
    return base


def test_files(root: Path) -> None:
    [gpu] = pci_gpus(root)
    assert facts_by_files(root, gpu) == GpuFacts(
        *("0000:75:00.0", "AMD Instinct MI355X", "75a3", "", "SPX", "NPS1", 1400.0, 1400.0, None, "", 1, 1),
        *(None, None, None, 300_000_000, 0, ("vllm (pid 77)",)),
    )


def test_a_gpu_of_another_job_is_none_of_ours(root: Path) -> None:
    (root / "dev/dri/renderD128").unlink()
    assert gpu_facts(root) == ([], {})


def test_the_library_goes_before_the_files(
    root: Path, fake_amdsmi: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_amdsmi.amdsmi_get_gpu_device_bdf = lambda handle: "0000:75:00.0"
    fake_amdsmi.amdsmi_get_gpu_asic_info = lambda handle: {"market_name": "AMD Instinct MI355X", "device_id": 0x75A3}
    fake_amdsmi.amdsmi_get_gpu_memory_partition = refuse
    [found], absent = gpu_facts(root)
    assert absent == {}
    assert (found.uncorrected, found.memory, found.used_bytes, found.product) == (2, "NPS1", 300_000_000, "MI355X")


def test_without_any_library_the_reasons_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_the_gpus_of_a_run(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], ours: set[str] | None, chosen: list[str]
) -> None:
    for name in ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert [gpu.address for gpu in gpus_of_run([GpuFacts(name) for name in "abc"], ours)] == chosen
