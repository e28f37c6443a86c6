"""Formulas of rates, and the unit in which a case is quoted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from ci.records import rates
from ci.records.rates import Rate

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("flops", "hbm", "link", "rate"),
    [
        (0, 1e6, 1e6, "busbw"),
        (0, 1e6, 0, "gbs"),
        (1e6, 1e6, 0, "gbs"),
        (1e9, 1e6, 0, "tflops"),
        (1e9, 1e6, 1e6, "tflops"),
        (1e9, 0, 0, "tflops"),
        (np.nan, np.nan, np.nan, "time"),
        (0, 0, 0, "time"),
    ],
)
def test_a_case_is_quoted_in_the_unit_of_the_field(flops: float, hbm: float, link: float, rate: str) -> None:
    assert rates.headline(SimpleNamespace(flops=flops, hbm_bytes=hbm, link_bytes=link)) == rate


def test_a_single_number_and_a_column_give_the_same_rates() -> None:
    flops, world, seconds = (pd.Series(column, dtype=float) for column in ([1e12, 3e12], [1, 8], [1e-3, 2e-2]))
    for rate in rates.AMOUNT:
        column = rates.value(rate, flops, world, seconds)
        singles = [rates.value(rate, *numbers) for numbers in zip(flops, world, seconds, strict=True)]
        assert list(column) == singles
    assert rates.value(Rate.TFLOPS, 3e12, 8, 2e-2) == pytest.approx(1200.0)
    assert rates.value(Rate.BUSBW, 3e12, 8, 2e-2) == pytest.approx(150e3)


def test_rates_start_without_pandas() -> None:
    code = "import sys, ci.records.rates; sys.exit(any(name in sys.modules for name in ('pandas', 'numpy', 'pyarrow')))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
