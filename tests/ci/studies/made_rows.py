"""Rows of a study made by hand: only what a test says differs from one plain row."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from ci.studies.frame import with_derived

PLAIN: Mapping[str, Any] = {
    "machine": "h200x2",
    "env": "py3.12",
    "commit": "c0ffee",
    "regime": "spaced",
    "operator": "gemm_all_scatter",
    "case": "c",
    "backend": "triton",
    "point": "",
    "knobs": {},
    "config": {},
    "dims": {},
    "dtype": "fp16",
    "world": 1,
    "payload_bytes": 0,
    "tier": "nightly",
    "baseline": False,
    "is_anchor": False,
    "status": "ok",
    "seconds": 1e-3,
    "ratio": 1.0,
    "low": math.nan,
    "high": math.nan,
    "flops": 0,
    "hbm_bytes": 0,
    "link_bytes": 0,
    "arch": "sm_90",
    "device": "NVIDIA H200",
    "compute_units": 132,
    "chip_id": math.nan,
    "memory_bytes": 150_000_000_000,
    "kind": "gpu",
    "whole_s": math.nan,
    "count": 2,
}


def made_rows(*rows: Mapping[str, Any]) -> pd.DataFrame:
    """A row for each mapping, over PLAIN, with every derived column."""
    return with_derived(pd.DataFrame([{**PLAIN, "kernel": PLAIN["operator"], **row} for row in rows]))
