"""Which published numbers stand in a figure of a study."""

from __future__ import annotations

import pandas as pd

from ci.tables.references import references

KIMI = {"N": 7168, "K": 512, "E": 385, "topk": 9}


def rows(operator, dtype, *dims, world=1):
    return pd.DataFrame({"operator": operator, "dtype": dtype, "world": world, "dims": list(dims)})


def labels(found):
    return list(dict.fromkeys(one["label"] for one in found))


def test_lines_over_the_axis_of_the_figure_and_of_its_dimensions():
    measured = rows("moe_gemm2_mxfp4", "mxfp4", {"M": 4, **KIMI}, {"M": 8, **KIMI})
    found = references("panels", {"x": "M", "y": "us", "group": "backend", "by": "BM"}, measured)
    assert labels(found) == ["aiter tuned, Kimi-K2.5, TP4, gfx950"]
    assert [(one["x"], one["y"], one["unit"]) for one in found] == [(4.0, 20.9638, "µs"), (8.0, 29.2929, "µs")]
    elsewhere = rows("moe_gemm2_mxfp4", "mxfp4", {"M": 4, **KIMI, "K": 1024})
    assert references("curve", {"x": "M", "y": "us"}, elsewhere) == []


def test_levels_of_every_panel_once():
    measured = rows("gemm", "fp16", {"M": 1, "N": 4096, "K": 4096})
    panels = [{"y": "kernel_us"}, {"y": "tflops"}, {"y": {"column": "tflops"}}]
    found = references("panels", {"x": "M", "panels": panels}, measured)
    assert {one["x"] for one in found} == {None}
    assert {one["unit"] for one in found} == {"TFLOPS"}
    assert len(found) == len(labels(found)) >= 4


def test_a_figure_without_such_an_axis_has_none():
    measured = rows("gemm", "fp16", {"M": 1})
    assert references("roofline", {}, measured) == []
    assert references("bars", {"x": "case", "y": "tflops"}, measured) == []
    assert references("heatmap", {"x": "M", "y": "tile", "value": "tflops"}, measured) == []
    assert references("curve", {"x": "M", "y": "tflops"}, measured.iloc[:0]) == []
