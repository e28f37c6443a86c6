"""Devices are told apart by what they report; nothing is guessed."""

import pytest

from kernels.hardware import (
    DEVICES,
    GIB,
    UnknownHardware,
    by_market_name,
    lds_limit,
    lookup,
    resident_waves,
    roofline_seconds,
)
from kernels.spec import Cost

# What devices are known to report (torch device properties, NVML, PCI).
SEEN = [
    ({"arch": "gfx942:sramecc+:xnack-", "compute_units": 304, "memory_bytes": 205822885888}, "MI300X"),
    ({"arch": "gfx942", "compute_units": 304, "memory_bytes": 274 * 10**9}, "MI325X"),
    ({"arch": "gfx942", "compute_units": 304, "chip_id": "0x74a5"}, "MI325X"),
    ({"arch": "gfx942", "compute_units": 304, "chip_id": "1002:74b5", "device_name": "AMD Radeon Graphics"}, "MI300X"),
    ({"arch": "gfx942", "compute_units": 80, "device_name": "AMD Instinct MI308X"}, "MI308X"),
    ({"arch": "gfx950", "compute_units": 256, "chip_id": 0x75A3}, "MI355X"),
    ({"arch": "gfx950", "compute_units": 256, "clock_mhz": 2200}, "MI350X"),
    (
        {"arch": "sm_90", "compute_units": 132, "device_name": "NVIDIA H100 80GB HBM3", "memory_bytes": 85 * 10**9},
        "H100 SXM",
    ),
    (
        {
            "arch": "sm_90",
            "compute_units": 132,
            "device_name": "NVIDIA H200",
            "memory_bytes": 150_754_820_096,
            "chip_id": "0x233510DE",
        },
        "H200 SXM",
    ),
    ({"arch": "sm_100", "compute_units": 148, "device_name": "NVIDIA B200", "memory_bytes": 191_000_000_000}, "B200"),
]


@pytest.mark.parametrize(("reported", "name"), SEEN)
def test_a_device_is_known_by_what_it_reports(reported, name):
    assert lookup(**reported).market_name == name


@pytest.mark.parametrize(
    ("reported", "says"),
    [
        ({"arch": "gfx942", "compute_units": 304}, "fits MI300X and MI325X"),
        ({"arch": "sm_90", "compute_units": 132, "device_name": "NVIDIA H200 NVL", "chip_id": "0x233b10de"}, "none of"),
        ({"arch": "gfx942", "compute_units": 304, "device_name": "AMD Instinct MI355X"}, "none of"),
        ({"arch": "gfx1100", "compute_units": 96}, "gfx1100"),
        ({"device_name": "MI300X"}, "architecture"),
        ({"arch": "gfx942", "compute_units": 304, "chip_id": "74a1", "memory_bytes": 1}, None),
    ],
)
def test_what_is_not_certain_is_refused_and_names_the_table(reported, says):
    if says is None:  # a chip id of the table outranks a strange memory size (a virtual function, a partition)
        assert lookup(**reported).market_name == "MI300X"
        return
    with pytest.raises(UnknownHardware, match=says) as caught:
        lookup(**reported)
    assert "kernels/hardware.py: DEVICES" in str(caught.value)
    for value in reported.values():
        assert str(value) in str(caught.value)


def test_a_chip_id_outranks_a_name():
    found = lookup(arch="gfx942", compute_units=304, chip_id="74a5", device_name="AMD Instinct MI300X")
    assert found.market_name == "MI325X"


def test_a_partition_has_its_share_and_says_so():
    whole, part = by_market_name("MI300X"), lookup(arch="gfx942", compute_units=38, chip_id="74a1")
    assert part.market_name == "MI300X (1/8 partition)"
    assert part.partition == 1 / 8
    assert part.peak("bf16") * 8 == pytest.approx(whole.peak("bf16"))
    assert (part.hbm_bytes, part.lds_bytes, part.xcds) == (24 * GIB, whole.lds_bytes, 1)


def test_peaks_of_amd_follow_from_cus_and_clock():
    per_clock = {"gfx942": 2048, "gfx950": 4096}  # dense bf16 FLOP per clock and CU, CDNA ISA documents
    for device in DEVICES:
        if device.arch in per_clock:
            computed = device.compute_units * per_clock[device.arch] * device.clock_mhz * 1e6
            assert device.peak("bf16") == pytest.approx(computed, rel=0.002), device.market_name


def test_unknown_names_and_dtypes_list_what_is_known():
    with pytest.raises(UnknownHardware, match="H200 SXM"):
        by_market_name("H200")
    with pytest.raises(ValueError, match="bf16"):
        by_market_name("MI300X").peak("fp6")


def test_mxfp4_counts_as_bf16_where_there_is_no_fp4_unit():
    assert by_market_name("MI300X").peak("mxfp4") == by_market_name("MI300X").peak("bf16")
    assert by_market_name("MI355X").peak("mxfp4") == 10066e12


def test_roofline_takes_the_largest_bound():
    h200 = by_market_name("H200 SXM")
    flops = Cost(flops=989_400_000_000, hbm_bytes=1)
    assert roofline_seconds(flops, "bf16", h200) == pytest.approx(1e-3)
    assert roofline_seconds(Cost(flops=1, hbm_bytes=4_800_000_000), "bf16", h200) == pytest.approx(1e-3)
    assert roofline_seconds(Cost(link_bytes=450_000_000), "bf16", h200) == pytest.approx(1e-3)


def test_two_ranks_of_a_mesh_have_one_link():
    mi300x, cost = by_market_name("MI300X"), Cost(link_bytes=64_000_000)
    assert roofline_seconds(cost, "bf16", mi300x, world=2) == pytest.approx(1e-3)
    assert roofline_seconds(cost, "bf16", mi300x, world=8) == pytest.approx(1e-3 / 7)


def test_lds_limits():
    assert [lds_limit(a) for a in ("gfx942", "gfx950", "sm_90")] == [65536, 163840, 232448]
    with pytest.raises(UnknownHardware, match="sm_70"):
        lds_limit("sm_70")


@pytest.mark.parametrize(("vgprs", "waves"), [(64, 8), (65, 7), (168, 3), (512, 1)])
def test_resident_waves_by_registers_on_cdna(vgprs, waves):
    assert resident_waves("gfx942", vgprs, 0, 1) == waves


def test_resident_waves_by_lds():
    assert resident_waves("gfx942", 64, 65536, 4) == 1  # one group of 4 waves: one a SIMD
    assert resident_waves("gfx950", 64, 65536, 4) == 2
    assert resident_waves("gfx942", 64, 65537, 4) == 0
