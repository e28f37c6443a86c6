"""A part of a chip: counts come from the device, and what is launched on 80, 38 or 20 compute units is valid."""

from __future__ import annotations

import pytest

from kernels.gemm import config as gemm_config
from kernels.gemm import gemm
from kernels.gemm_all_scatter import config as scatter_config
from kernels.gemm_all_scatter import gemm_all_scatter
from kernels.hardware import assumed_units, compute_units, xcds
from kernels.registry import discover
from kernels.spec import Case, Place
from tests.kernels.ranks import run_alone

COUNTS = {
    "gfx942": {304: 8, 152: 4, 76: 2, 38: 1, 80: 4, 40: 2, 20: 1},
    "gfx950": {256: 8, 128: 4, 64: 2, 32: 1},
    "sm_90": {132: 1, 114: 1, 66: 1, 16: 1},
}
"""XCDs by compute units: MI300X, MI325X and MI308X, MI350X and MI355X whole and in DPX, QPX and CPX (MI308X has half as
many dies, so no QPX); H100 SXM or H200, H100 PCIe, and parts of them."""


def on(case: Case, arch: str, units: int) -> Case:
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
    run_alone("tests.kernels.test_units", "launches_are_valid", arch)


def launches_are_valid(arch: str) -> None:
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
    run_alone("tests.kernels.test_units", "programs_are_spread", TRITON_INTERPRET="1")


def programs_are_spread() -> None:
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
