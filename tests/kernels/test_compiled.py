"""Defaults compile for every architecture without a GPU, fit it, and store wide and in order; knobs reach the code."""

import pytest

from tests.kernels.ranks import run_alone


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
@pytest.mark.parametrize("check", ["defaults_fit", "knobs_reach_the_code"])
def test_code_for(check, arch):
    run_alone("tests.kernels.compiled", check, arch)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
def test_code_of_grouped_products_for(arch, tmp_path):
    run_alone("tests.kernels.compiled", "products_fit", arch, str(tmp_path), TRITON_CACHE_DIR=str(tmp_path))
