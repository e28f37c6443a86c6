"""What fails a node, and what is only kept beside its times."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import types
from pathlib import Path

import pytest

from benchmarks import preflight
from benchmarks.preflight import gpus
from benchmarks.preflight.system import Demand, GpuFacts, NodeFacts
from tests.benchmarks.conftest import always

GPU = GpuFacts(
    address="0000:05:00.0",
    name="AMD Instinct MI300X",
    chip_id="74a1",
    product="MI300X",
    compute="SPX",
    memory="NPS1",
    power_cap_w=750.0,
    power_default_w=750.0,
    max_clock_mhz=2100,
    corrected=0,
    uncorrected=0,
    bad_pages=0,
    links=7,
    links_down=0,
    link_errors=False,
    used_bytes=300 << 20,
    busy_percent=0,
    processes=(),
)
SOUND = NodeFacts((GPU,) * 8, {}, 0, True, -1, 16 << 30, {"/tmp": 8 << 30})
POOL = Demand("MI300X", 8)


def one(**changed: object) -> NodeFacts:
    """A node whose third GPU differs."""
    gpus = [GPU] * 8
    gpus[2] = dataclasses.replace(GPU, **changed)
    return dataclasses.replace(SOUND, gpus=tuple(gpus))


def all_of(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, gpus=(dataclasses.replace(GPU, **changed),) * 8)


def node(**changed: object) -> NodeFacts:
    return dataclasses.replace(SOUND, **changed)


def test_a_sound_node_has_no_problem() -> None:
    assert preflight.problems(SOUND, POOL) == []
    assert preflight.problems(SOUND, Demand()) == []
    silent = NodeFacts((GpuFacts("0000:05:00.0"),))
    assert preflight.problems(silent, Demand()) == [], "what is not told is no fault"
    assert preflight.problems(NodeFacts(numa_balancing=1, iommu_pt=False), Demand()) == [], "no GPU"


FAULTS = [
    (node(gpus=(GPU,) * 7), "gpu count", "error", "7 GPUs can be used, and the job has 8"),
    (node(gpus=(GPU,) * 9), "gpu count", "error", "9 GPUs can be used, and the job has 8"),
    (one(product="MI308X"), "product", "error", "mixed products: 7 x MI300X, 1 x MI308X"),
    (all_of(product="MI350X", max_clock_mhz=2200), "product", "error", "8 x MI350X, and the pool is of MI300X"),
    (one(compute="CPX"), "partition", "error", "SPX/NPS1 on 7, CPX/NPS1 on 1"),
    (one(power_cap_w=500.0), "power cap", "error", "power caps differ: 500 W, 750 W"),
    (all_of(power_cap_w=500.0), "power cap", "warning", "500 W of 750 W"),
    (one(clock_limit="the clock is locked"), "clock", "warning", "GPU 2: the clock is locked"),
    (one(max_clock_mhz=1420), "clock", "warning", "GPU 2: its clock is limited to 1420 of 2100 MHz"),
    (one(uncorrected=3), "ECC", "error", "GPU 2 (0000:05:00.0): 3 uncorrected ECC errors"),
    (one(bad_pages=1), "bad pages", "error", "GPU 2 (0000:05:00.0): memory pages wait"),
    (one(links_down=1), "links", "error", "1 of 7 links are down"),
    (one(link_errors=True), "links", "warning", "its links count errors"),
    (one(processes=("vllm (pid 7)",)), "in use", "warning", "GPU 2 is used by somebody else: vllm (pid 7)"),
    (one(processes=("vllm (pid 7)",), used_bytes=9 << 30), "in use", "error", "vllm (pid 7)"),
    (one(processes=("vllm (pid 7)",), busy_percent=90), "in use", "error", "vllm (pid 7)"),
    (one(used_bytes=9 << 30, busy_percent=7), "in use", "warning", "GPU 2 is used by somebody else: 9.7 GB taken, 7 %"),
    (one(processes=("x (pid 7)",), used_bytes=None, busy_percent=None), "in use", "error", "x (pid 7)"),
    (node(numa_balancing=1), "NUMA balancing", "warning", "automatic NUMA balancing is on"),
    (node(iommu_pt=False), "IOMMU", "warning", "without iommu=pt"),
    (node(memlock_bytes=65536), "memlock", "warning", "may lock 64 KiB"),
    (node(shm_bytes=64 << 20), "shm", "warning", "/dev/shm has 64 MiB free"),
    (node(disk_bytes={"/data": 5 << 20}), "disk", "error", "5 MiB are free where /data lies"),
    (node(disk_bytes={"/data": 1 << 30}), "disk", "warning", "1024 MiB are free where /data lies"),
    (node(absent={"nvml": "gone"}), "library", "warning", "nvml: gone"),
    (node(absent={"amdsmi": "gone"}), "library", "warning", "amdsmi: gone"),
]


@pytest.mark.parametrize(("facts", "kind", "level", "text"), FAULTS, ids=[f"{f[1]}-{f[3][:30]}" for f in FAULTS])
def test_each_fault_is_found_where_it_is_and_only_there(facts: NodeFacts, kind: str, level: str, text: str) -> None:
    [found] = preflight.problems(facts, POOL)
    assert (found.kind, found.level) == (kind, level)
    assert text in found.text
    assert found.next_step


def test_errors_come_first() -> None:
    found = preflight.problems(dataclasses.replace(one(uncorrected=1), numa_balancing=1), POOL)
    assert [problem.level for problem in found] == ["error", "warning"]


def test_this_machine_is_examined_without_torch(tmp_path: Path) -> None:
    report = preflight.examine(set(), None, [tmp_path])
    assert report["facts"]["gpus"] == {"count": 0}
    assert report["facts"]["disk_bytes"].keys() == {"/tmp", str(tmp_path)}
    assert all(one["level"] in ("error", "warning") for one in report["problems"])


# What GPUs tell before a run: through libraries that answer, answer strangely or are not there, and from files.


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
    "0000:01:00.0", "NVIDIA H200", "2335", "", "", "", 700.0, 700.0, 1980, "", 3, 0, 0, 18, 0, None, 600 << 20, 0, ()
)


def test_nvml(fake_nvml: types.SimpleNamespace) -> None:
    first, second = gpus.by_nvml()
    assert first == H200
    assert (second.address, second.links, second.links_down) == ("0000:02:00.0", 18, 1)


def test_what_nvml_refuses_is_unknown(fake_nvml: types.SimpleNamespace) -> None:
    for name in [name for name in vars(fake_nvml) if name.startswith("nvmlDeviceGet")]:
        if name not in ("nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex", "nvmlDeviceGetPciInfo"):
            setattr(fake_nvml, name, refuse)
    assert list(gpus.by_nvml())[0] == GpuFacts("0000:01:00.0", chip_id="2335")


@pytest.mark.parametrize(("rows", "retiring", "pending"), [((0, 2, 1, 0), 0, 1), ((0, 2, 0, 0), 1, 0), (None, 1, 1)])
def test_pages_that_wait(
    fake_nvml: types.SimpleNamespace, rows: tuple[int, ...] | None, retiring: int, pending: int
) -> None:
    fake_nvml.nvmlDeviceGetRemappedRows = refuse if rows is None else lambda handle: rows
    fake_nvml.nvmlDeviceGetRetiredPagesPendingStatus = lambda handle: retiring
    assert list(gpus.by_nvml())[0].bad_pages == pending


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
        amdsmi_get_gpu_compute_partition=always("SPX"),
        amdsmi_get_gpu_memory_partition=always("NPS1"),
        amdsmi_get_gpu_bad_page_info=always([{"status": "RESERVED"}, {"status": "PENDING"}]),
        amdsmi_get_gpu_process_list=always([{"pid": 999_999_999, "name": "vllm"}, {"pid": os.getpid()}]),
    )
    monkeypatch.setitem(sys.modules, "amdsmi", fake)
    return fake


def test_amdsmi(fake_amdsmi: types.SimpleNamespace) -> None:
    assert list(gpus.by_amdsmi()) == [
        GpuFacts(
            *("0000:c1:00.0", "AMD Instinct MI300X", "74a1", "", "SPX", "NPS1", 550.0, 750.0, 2100, "", 4, 2, 1, 7, 1),
            *(False, None, None, ("process of another container (pid 999999999)",)),
        )
    ]


@pytest.mark.parametrize(
    ("name", "answer", "field", "value"),
    [
        ("get_power_cap_info", {"power_cap": 750}, "power_cap_w", 750.0),
        ("get_power_cap_info", {"power_cap": "N/A"}, "power_cap_w", None),
        ("get_power_cap_info", {"power_cap": 0xFFFFFFFFFFFFFFFF}, "power_cap_w", None),
        ("get_power_cap_info", "N/A", "power_cap_w", None),
        ("get_clock_info", {"max_clk": 2100, "clk_locked": 1}, "clock_limit", "the clock is locked"),
        ("get_gpu_perf_level", "AMDSMI_DEV_PERF_LEVEL_MANUAL", "clock_limit", "performance level manual"),
        ("get_gpu_total_ecc_count", {"uncorrectable_count": "N/A"}, "uncorrected", None),
        ("get_gpu_xgmi_link_status", {"status": [1, 1, 0, 2]}, "links_down", 1),
        ("get_gpu_xgmi_link_status", {"status": ["U", "X", "U"]}, "links", 2),
        ("get_gpu_xgmi_link_status", {}, "links", None),
        ("gpu_xgmi_error_status", "MULTIPLE_ERRORS", "link_errors", True),
        ("get_gpu_bad_page_info", "No bad pages found.", "bad_pages", 0),
        ("get_gpu_bad_page_info", None, "bad_pages", None),
        ("get_gpu_process_list", [], "processes", ()),
        ("get_gpu_process_list", "No processes", "processes", None),
        ("get_gpu_asic_info", {"device_id": "0x74a1", "market_name": "N/A"}, "chip_id", "0x74a1"),
    ],
)
def test_other_shapes_and_units(
    fake_amdsmi: types.SimpleNamespace, name: str, answer: object, field: str, value: object
) -> None:
    setattr(fake_amdsmi, f"amdsmi_{name}", lambda *_: answer)
    assert getattr(list(gpus.by_amdsmi())[0], field) == value
    setattr(fake_amdsmi, f"amdsmi_{name}", refuse)
    assert getattr(list(gpus.by_amdsmi())[0], field) in (None, "")


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
    assert list(gpus.by_files(root)) == [
        GpuFacts(
            *("0000:75:00.0", "AMD Instinct MI355X", "0x75a3", "", "SPX", "NPS1", 1400.0, 1400.0, None, "", 9, 1, 1),
            *(None, None, None, 300_000_000, 0, ("vllm (pid 77)",)),
        )
    ]


def test_a_gpu_of_another_job_is_none_of_ours(root: Path) -> None:
    (root / "dev/dri/renderD128").unlink()
    assert list(gpus.by_files(root)) == []
    assert gpus.gpus(root) == ([], {})


def test_the_library_goes_before_the_files(
    root: Path, fake_amdsmi: types.SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_amdsmi.amdsmi_get_gpu_device_bdf = lambda handle: "0000:75:00.0"
    fake_amdsmi.amdsmi_get_gpu_asic_info = lambda handle: {"market_name": "AMD Instinct MI355X", "device_id": 0x75A3}
    fake_amdsmi.amdsmi_get_gpu_memory_partition = refuse
    [found], absent = gpus.gpus(root)
    assert absent == {}
    assert (found.uncorrected, found.memory, found.used_bytes, found.product) == (2, "NPS1", 300_000_000, "MI355X")


def test_without_any_library_the_reasons_are_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    [found], absent = gpus.gpus(root)
    assert (found.product, found.uncorrected) == ("MI355X", 1)
    assert set(absent) == {"amdsmi"}
    assert "ModuleNotFoundError" in absent["amdsmi"]


@pytest.mark.parametrize(
    ("name", "chip", "product"),
    [
        ("AMD Instinct MI300X", "74a1", "MI300X"),
        ("AMD Radeon Graphics", "75a3", "MI355X"),
        ("AMD Instinct MI325X OAM", "", "MI325X"),
        ("NVIDIA H200", "2335", "H200 SXM"),
        ("", "", ""),
        ("AMD Radeon Graphics", "ffff", ""),
    ],
)
def test_the_product(name: str, chip: str, product: str) -> None:
    assert gpus.product(name, chip) == product


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
    assert [one.address for one in gpus.chosen([GpuFacts(name) for name in "abc"], ours)] == chosen


def test_facts_that_gpus_share_stand_once() -> None:
    facts = NodeFacts((H200, GpuFacts("0000:02:00.0", "NVIDIA H200", uncorrected=1)), numa_balancing=0)
    told = facts.compact()
    assert told["gpus"]["count"] == 2
    assert told["gpus"]["name"] == "NVIDIA H200"
    assert told["gpus"]["uncorrected"] == [0, 1]
    assert "memory" not in told["gpus"]
    assert told["numa_balancing"] == 0
    json.dumps(told, allow_nan=False)
