"""Defaults of the collective families compile for every architecture without a GPU, fit it, and store wide."""

import pytest

from tests.kernels.ranks import run_alone

pytestmark = pytest.mark.slow

MODULE = "tests.kernels.collectives_compiled"


@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
def test_defaults_fit(arch):
    run_alone(MODULE, "defaults_fit", arch)


def test_hopper_waits_for_its_copy_engine_and_the_check_of_widths_can_fail():
    run_alone(MODULE, "other_checks")
