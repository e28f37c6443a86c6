"""Numbers as they reach the page, and the page's rates against those of ci.records."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.records import derived, rates, store
from ci.stats.types import Step
from dashboards import lanes, values
from tests.dashboards import made_site, node, synthetic
from tests.dashboards.made_site import kernel_data

ROOT = Path(__file__).parents[2]
RATES = ("tflops", "gbs", "algbw", "busbw", "peak_share")


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=20), st.integers(3, 9))
def test_numbers_have_so_many_digits_one_by_one_and_as_an_array(numbers: list[float], digits: int) -> None:
    numbers = [v for v in numbers if not np.isfinite(v) or v == 0 or 1e-12 < abs(v) < 1e15]
    whole = values.told(np.array(numbers), digits).tolist()
    for value, got, same in zip(numbers, values.told(numbers, digits), whole, strict=True):
        if not np.isfinite(value):
            assert got is None
            assert np.isnan(same)
        else:
            assert same == pytest.approx(got, rel=10.0 ** (1 - digits))
            assert got == pytest.approx(float(f"{value:.{digits - 1}e}"), rel=10.0 ** (1 - digits))
            assert len(Decimal(repr(got)).normalize().as_tuple().digits) <= digits


def test_what_is_told_is_plain() -> None:
    cost = values.CostRow(1.0, 2.5, 0.0, 0.0, 1.0, np.nan)
    said = values.told({"rate": rates.Rate.GBS, "cost": cost, "step": Step(1, 1.0, 2.0, np.inf, 1.0, 1.0, 0.0)})
    assert type(said["rate"]) is str
    assert (said["cost"][-1], said["step"]["ratio"], said["step"]["index"]) == (None, None, 1)


# ---- the page's rates ------------------------------------------------------------------------------------------------


def in_node(expression: str, value: Any) -> Any:
    """A JavaScript expression of `input` (and R, static/values.js), computed without a browser."""
    return node.computed("values.js", "Ridgeline", expression, value)


@pytest.fixture(scope="module")
def recorded() -> pd.DataFrame:
    """Every row of the records that has a time, with what is derived from it."""
    frame = lanes.tidy(derived.derive(store.load(ROOT / "results")))
    return frame[frame["seconds"].notna()].reset_index(drop=True)


def holes(column: pd.Series) -> list[float | None]:
    return [None if math.isnan(value) else value for value in column]


def test_the_page_computes_the_rates_of_every_recorded_row_by_the_same_formulas(recorded: pd.DataFrame) -> None:
    sent = {column: holes(recorded[column]) for column in (*values.CostRow._fields, "seconds")}
    cost = "Object.fromEntries(Object.keys(input).map(key => [key, input[key][i]]))"
    one = f"(rate, i) => R.rateOf(rate, {cost}, input.seconds[i])"
    got = in_node(f"{list(RATES)}.map(rate => input.seconds.map((_, i) => ({one})(rate, i)))", sent)
    assert len(recorded) > 300
    for rate, found in zip(RATES, got, strict=True):
        found = np.array(found, dtype=float)  # null becomes NaN
        np.testing.assert_allclose(found, recorded[rate], rtol=1e-14, err_msg=rate)
        assert np.isfinite(found).any(), f"no row of the records has {rate}"


@pytest.mark.slow
@pytest.mark.parametrize("history", ["recorded", "synthetic"])
def test_the_data_of_the_page_give_back_every_rate_and_interval(history: str, recorded: pd.DataFrame) -> None:
    """To the six digits in which times travel."""
    frame = recorded if history == "recorded" else lanes.tidy(synthetic.lively(12))
    parts = [rows for lane in made_site.lanes_of(frame) for _, rows in lane.frame.groupby("kernel")]
    sent = [kernel_data(rows) for rows in parts]
    line = "series => [R.inRate(data, series, rate), ...R.interval(data, series, rate)]"
    got = in_node(f"input.map(data => {list(RATES)}.map(rate => data.series.map({line})))", sent)
    for rows, data, by_rate in zip(parts, sent, got, strict=True):
        series = [(data["cases"][one["case"]]["name"], one["backend"]) for one in data["series"]]
        for rate, found in zip(RATES, by_rate, strict=True):
            compared = np.array(found, dtype=float).transpose(1, 0, 2)
            np.testing.assert_allclose(compared, expected(rows, rate, series, data["commits"]), rtol=2e-5, err_msg=rate)


def expected(rows: pd.DataFrame, rate: str, series: Any, commits: Any) -> np.ndarray:
    """Value, lower and upper end of a rate of each series at each commit, from the columns of ci.records.derived."""
    low, high = (rows[rate] * rows["seconds"] / rows[end] for end in ("seconds_high", "seconds_low"))
    index = pd.MultiIndex.from_frame(rows[["case", "backend"]])
    tables = [
        pd.Series(c.to_numpy(), [index.to_flat_index(), rows["commit"]]).unstack() for c in (rows[rate], low, high)
    ]
    order = [commit for commit, *_ in commits]
    return np.stack([table.reindex(index=pd.Index(series, tupleize_cols=False), columns=order) for table in tables])
