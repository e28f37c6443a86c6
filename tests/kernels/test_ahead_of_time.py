"""Defaults compile for every architecture without a GPU, fit it, and keep their wide stores."""

import pytest

from tests.kernels.ranks import run_alone

MODULE = "tests.kernels.compiled"


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
@pytest.mark.parametrize("check", ["defaults_fit", "pushes_16_bytes"])
def test_defaults(check, arch):
    run_alone(MODULE, check, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_amd_drains_stores_before_it_signals(arch):
    run_alone(MODULE, "stores_are_drained", arch)


def test_hopper_uses_its_own_instructions():
    run_alone(MODULE, "uses_the_copy_engine_and_wgmma", "sm_90")
