"""Defaults compile for every architecture without a GPU, fit it, and store wide and in order; knobs reach the code."""

import pytest

from tests.kernels.ranks import run_alone
from tests.kit import mostly_nightly


@pytest.mark.slow
@pytest.mark.parametrize("arch", mostly_nightly(["gfx942", "gfx950", "sm_90"], "gfx942"))
@pytest.mark.parametrize("check", mostly_nightly(["defaults_fit", "knobs_reach_the_code"], "knobs_reach_the_code"))
def test_code_for(check, arch):
    run_alone("tests.kernels.compiled", check, arch)


@pytest.mark.nightly
@pytest.mark.parametrize("arch", ["gfx942", "gfx950", "sm_90"])
def test_code_of_grouped_products_for(arch, tmp_path):
    run_alone("tests.kernels.compiled", "products_fit", arch, str(tmp_path), TRITON_CACHE_DIR=str(tmp_path))
