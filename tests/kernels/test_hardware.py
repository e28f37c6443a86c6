"""Devices are told apart by what they report; nothing is guessed."""

from __future__ import annotations

import pytest

from kernels.gemm import config as gemm_config
from kernels.gemm import gemm
from kernels.gemm_all_scatter import config as scatter_config
from kernels.gemm_all_scatter import gemm_all_scatter
from kernels.hardware import (
    DEVICES,
    GIB,
    UnknownHardware,
    assumed_units,
    by_market_name,
    compute_units,
    lds_limit,
    lookup,
    resident_waves,
    roofline_seconds,
    xcds,
)
from kernels.registry import discover
from kernels.spec import Case, Cost, Place
from tests.kernels.ranks import run_alone

# What devices are known to report (torch device properties, NVML, PCI).
SEEN = [
    ({"arch": "gfx942:sramecc+:xnack-", "compute_units": 304, "memory_bytes": 205822885888}, "MI300X"),
    ({"arch": "gfx942", "compute_units": 304, "memory_bytes": 274 * 10**9}, "MI325X"),
    ({"arch": "gfx942", "compute_units": 304, "chip_id": "0x74a5"}, "MI325X"),
    ({"arch": "gfx942", "compute_units": 304, "chip_id": "1002:74b5", "device_name": "AMD Radeon Graphics"}, "MI300X"),
    ({"arch": "gfx942", "compute_units": 80, "device_name": "AMD Instinct MI308X"}, "MI308X"),
    ({"arch": "gfx950", "compute_units": 256, "chip_id": 0x75A3}, "MI355X"),
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


# A part of a chip: counts come from the device, and what is launched on 80, 38 or 20 compute units is valid.


COUNTS = {
    "gfx942": {304: 8, 152: 4, 76: 2, 38: 1, 80: 4, 40: 2, 20: 1},
    "gfx950": {256: 8, 128: 4, 64: 2, 32: 1},
    "sm_90": {132: 1, 114: 1, 66: 1, 16: 1},
}
"""XCDs by compute units: MI300X, MI325X and MI308X, MI350X and MI355X whole and in DPX, QPX and CPX (MI308X has half as
many dies, so no QPX); H100 SXM or H200, H100 PCIe, and parts of them."""


def on(case, arch, units):
    """The case on a device with so many compute units."""
    return case.at(Place(world=case.world, device="meta", arch=arch, compute_units=units))


@pytest.mark.parametrize("arch", COUNTS)
def test_dies_follow_from_the_count_of_the_device(arch):
    for units, dies in COUNTS[arch].items():
        assert xcds(arch, units) == dies
        assert compute_units(on(Case("c"), arch, units), arch) == units
    assert xcds(arch, 57) == 1


def test_without_a_device_the_first_product_is_assumed():
    assert [assumed_units(arch) for arch in ("gfx942", "gfx950", "sm_90", "cpu")] == [304, 256, 132, 4]
    assert [xcds(arch) for arch in ("gfx942", "gfx950", "sm_90", "cpu")] == [8, 8, 1, 1]
    assert compute_units(Case("c"), "gfx942") == compute_units(Case("c").at(Place(arch="gfx942")), "gfx942") == 304


@pytest.mark.parametrize("arch", COUNTS)
def test_slices_of_k_fill_the_device_that_is_there(arch):
    """Half a slice more would be too many programs; a whole device cuts more than a part of it."""
    name, shape = "n4096_k14336_m64", {"M": 64, "N": 4096, "K": 14336}
    for operator, config in ((gemm, gemm_config), (gemm_all_scatter, scatter_config)):
        suffix = "_w2" if operator is gemm_all_scatter else ""
        case = Case(f"{name}_fp16{suffix}x", world=2 if suffix else 1, dtype="fp16", **{**shape, "M": 48})
        slices = {units: config.config(on(case, arch, units), arch)["split_k"] for units in COUNTS[arch]}
        assert sorted(slices.values(), reverse=True) == [slices[n] for n in sorted(slices, reverse=True)]
        assert slices[max(slices)] > slices[min(slices)] == 1, (arch, slices)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", COUNTS)
def test_every_launch_is_valid_on_a_part_of_a_chip(arch):
    run_alone("tests.kernels.test_hardware", "launches_are_valid", arch)


def launches_are_valid(arch):
    """All operators, in a process of its own: programs are there, no more than fit at once where all walk over tiles,
    and they are regrouped over the dies of the device."""
    checked = set()
    for kernel in discover(["kernels"]).kernels.values():
        cases = [case for case in kernel.cases if case.tier == "pr"]
        for backend, declared in kernel.compilations.items():
            for units, dies in COUNTS[arch].items():
                for case in cases:
                    for job in declared(on(case, arch, units), arch):
                        where = (kernel.name, backend, case.name, units, job.label)
                        assert job.constants.get("PROGRAMS", 1) >= 1, where
                        assert job.constants.get("XCDS", dies) == dies, where
                        checked.add(kernel.name)
    assert checked >= {"gemm", "gemm_all_scatter", "grouped_gemm_forward", "moe_gemm2_mxfp4", "all_reduce"}


@pytest.mark.slow
def test_no_program_is_lost_when_dies_do_not_divide_the_programs():
    run_alone("tests.kernels.test_hardware", "programs_are_spread", TRITON_INTERPRET="1")


def programs_are_spread():
    """In the interpreter: the new numbers are the old ones in another order, neighbours on one die."""
    import torch

    from tests.kernels.interpreted import numbers

    for programs in (1, 2, 3, 7, 8, 19, 20, 38, 76, 80, 83):
        for dies in (1, 2, 4, 8):
            found = torch.zeros(programs, dtype=torch.int32)
            numbers[(programs,)](found, programs, dies)
            assert sorted(found.tolist()) == list(range(programs)), (programs, dies)
            for die in range(dies):
                run = found[die::dies].tolist()
                assert run == list(range(run[0], run[0] + len(run))) if run else True, (programs, dies)
