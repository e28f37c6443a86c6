"""Published numbers stand beside rows of their shape; a level beside rows of its own product only."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import pandas as pd

from ci.sweeps.studies import figures
from ci.tables import published
from ci.tables.published import PublishedLine

LINE = PublishedLine(
    "iris", "iris 07", ("gemm_all_scatter",), "fp16", "https://example.org/a", "MI300X", 8, "events",
    datetime.date(2025, 11, 1), "M", "us", "µs", {"N": 4608}, ((64.0, 40.0), (1024.0, 90.0)),
)  # fmt: skip
LEVEL = dataclasses.replace(LINE, name="maf", label="MAF", x="", y="tflops", unit="TFLOPS", points=((None, 654.0),))


def rows(market: str = "MI300X", **dims: Any) -> pd.DataFrame:
    one = {"operator": "gemm_all_scatter", "dtype": "fp16", "world": 8, "market_name": market}
    return pd.DataFrame([{**one, "dims": {"M": m, "N": 4608, **dims}} for m in (1, 64)])


def names(found: list[Any]) -> list[tuple[str, str, float]]:
    return [(one["label"], one["quantity"], one["y"]) for one in found]


def test_a_line_stands_beside_its_shape_on_any_device() -> None:
    here = figures.points(rows("H200"), ["us", "us", "tflops"], "M", [LINE, LEVEL])
    assert names(here) == [("iris 07", "us", 40.0)], "M = 1024 was not measured"
    assert figures.points(rows(N=4096), ["us"], "M", [LINE]) == []
    assert figures.points(rows(), ["us"], "payload_bytes", [LINE]) == []


def test_a_level_stands_beside_its_own_product() -> None:
    assert names(figures.points(rows(), ["tflops"], "M", [LINE, LEVEL])) == [("MAF", "tflops", 654.0)]
    assert figures.points(rows("MI325X"), ["tflops"], "M", [LEVEL]) == []


def test_the_committed_file_is_what_is_read() -> None:
    every = {one["label"] for one in published.points(published.load())}
    found = figures.points(rows("MI300X").assign(operator="gemm", world=1), ["tflops"], "M")
    assert {one["label"] for one in found} <= every  # type: ignore[index]
    assert "MAF 2025, MI300X, fp16" in {one["label"] for one in found}  # type: ignore[index]
