"""Quantities with units: what is read, what is written, what is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci import units


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("532 TFLOPS", 532e12, "FLOP/s"),
        ("532TFLOPS", 532e12, "FLOP/s"),
        ("1.25 ms", 1.25e-3, "s"),
        ("40us", 40e-6, "s"),
        ("40 µs", 40e-6, "s"),
        ("338 GB/s", 338e9, "B/s"),
        ("338 GB / s", 338e9, "B/s"),
        ("64 MiB", 64 * 2**20, "B"),
        ("2 GFLOPs", 2e9, "FLOP"),
        ("1e3 GFLOP/s", 1e12, "FLOP/s"),
        ("700 W", 700, "W"),
        ("1980 MHz", 1.98e9, "Hz"),
        ("3 s", 3, "s"),
        ("-.5 ns", -0.5e-9, "s"),
    ],
)
def test_reads(text: str, value: float, unit: str) -> None:
    found, base = units.parse(text)
    assert found == pytest.approx(value, rel=1e-12)
    assert base == unit


@pytest.mark.parametrize("text", ["", "fast", "12", "5 parsecs", "1,25 ms", "3 mB", "nan s", "1 ms extra", "GB/s"])
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(units.UnitError):
        units.parse(text)


def test_refuses_the_wrong_kind_of_quantity() -> None:
    assert units.parse_as("2 GB/s", "B/s") == 2e9
    with pytest.raises(units.UnitError, match="is in s; a quantity in B/s"):
        units.parse_as("2 ms", "B/s")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.25e-3, "1.25 ms"),
        (999.6e-6, "1.00 ms"),
        (999.4e-6, "999 us"),
        (12.34, "12.3 s"),
        (5e-10, "0.500 ns"),
        (0, "0 s"),
        (None, "n/a"),
        (math.nan, "n/a"),
        (-2e-3, "-2.00 ms"),
    ],
)
def test_writes_durations(seconds: float | None, text: str) -> None:
    assert units.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (5.32e14, "FLOP/s", "532 TFLOPS"),
        (3.38e11, "B/s", "338 GB/s"),
        (9.999e11, "B/s", "1.00 TB/s"),
        (0.5, "W", "0.500 W"),
        (1.25e-3, "s", "1.25 ms"),
        (math.nan, "B/s", "n/a"),
        (None, "B", "n/a"),
        (0.0, "B/s", "0 B/s"),
        (1.2e18, "FLOP/s", "1200 PFLOPS"),
    ],
)
def test_writes_quantities(value: float | None, unit: str, text: str) -> None:
    assert units.quantity(value, unit) == text


def test_writes_shares() -> None:
    assert units.percent(0.6634) == "66.3 %"
    assert units.percent(math.nan) == "n/a"


@given(st.floats(min_value=1e-9, max_value=1e17), st.sampled_from(["s", "B", "B/s", "FLOP/s"]))
def test_what_is_written_reads_back(value: float, unit: str) -> None:
    assert units.parse_as(units.quantity(value, unit, digits=6), unit) == pytest.approx(value, rel=1e-5)
