"""GEMM + all-scatter against the product alone: ranks that share it, overhead, speed-up, and what the links allow.

The product alone is a case of one rank with the dimension `of` (kernels/gemm_all_scatter/cases.py): the share of one of
`of` ranks, N their columns.  A fused kernel is compared with itself in it, everything else with the library's product.
"""

from __future__ import annotations

import math
from collections.abc import Hashable

import numpy as np
import pandas as pd

from ci.records import derived
from ci.sweeps.studies.across.lookup import looked_up, placed, seconds_by

LIBRARY = "blas+rccl"
"""The baseline that is the library's product where one rank works alone."""

FUSED = ("triton", "triton_unguarded")


def ranks(frame: pd.DataFrame) -> pd.Series:
    """Ranks that share the whole product."""
    pairs = zip(frame["dims"], frame["world"], strict=True)
    return pd.Series([int(dims.get("of") or world) for dims, world in pairs], index=frame.index)


def _shapes(frame: pd.DataFrame) -> list[tuple[int, int, int] | None]:
    """(N, K, M) of the whole product; None for a row that has none."""
    found = [(dims, int(dims.get("of") or 1)) for dims in frame["dims"]]
    return [(d["N"] * of, d["K"], d["M"]) if {"M", "N", "K"} <= d.keys() else None for d, of in found]


def whole(frame: pd.DataFrame) -> pd.Series:
    """ "N 4096, K 14336, M 64" of the whole product."""
    return _texts(frame, [f"N {s[0]}, K {s[1]}, M {s[2]}" if s else "" for s in _shapes(frame)])


def weak(frame: pd.DataFrame) -> pd.Series:
    """What stays the same under weak scaling: "2048 columns a rank, K 4096, M 64"."""
    pairs = zip(_shapes(frame), ranks(frame), strict=True)
    return _texts(frame, [f"{s[0] // of} columns a rank, K {s[1]}, M {s[2]}" if s else "" for s, of in pairs])


def line(frame: pd.DataFrame) -> pd.Series:
    """The backend, or what multiplies where one rank works alone."""
    alone = is_alone(frame)
    named = ["library" if backend == LIBRARY else backend for backend in frame["backend"]]
    pairs = zip(frame["backend"], named, alone, strict=True)
    return _texts(frame, [f"GEMM alone, {name}" if lone else backend for backend, name, lone in pairs])


def line_ranks(frame: pd.DataFrame) -> pd.Series:
    """ "triton, 2 ranks"."""
    pairs = zip(line(frame), ranks(frame), strict=True)
    return _texts(frame, [f"{name}, {count} ranks" for name, count in pairs])


def is_alone(frame: pd.DataFrame) -> pd.Series:
    """Whether a row is the share of one rank alone."""
    return pd.Series(["of" in dims for dims in frame["dims"]], index=frame.index)


def _texts(frame: pd.DataFrame, texts: list[str]) -> pd.Series:
    return pd.Series(texts, index=frame.index, dtype=object)


def _keys(frame: pd.DataFrame, counts: list[int]) -> list[Hashable]:
    """Place, whole shape, ranks, and whether the fused kernel multiplies or the library."""
    fused = [backend in FUSED for backend in frame["backend"]]
    return list(zip(placed(frame), _shapes(frame), counts, fused, strict=True))


def alone(frame: pd.DataFrame) -> pd.Series:
    """Seconds of a rank's product alone, by who multiplies in the row."""
    keys = _keys(frame, list(ranks(frame)))
    return looked_up(frame, seconds_by(frame, keys, _plain(frame)), keys)


def one_rank(frame: pd.DataFrame) -> pd.Series:
    """Seconds of the whole product on one rank."""
    known = seconds_by(frame, _keys(frame, list(ranks(frame))), _plain(frame))
    return looked_up(frame, known, _keys(frame, [1] * len(frame)))


def _plain(frame: pd.DataFrame) -> pd.Series:
    return is_alone(frame) & (frame["point"] == "")


def overhead(frame: pd.DataFrame) -> pd.Series:
    """Time / time of the product alone."""
    return frame["seconds"] / alone(frame)


def speedup(frame: pd.DataFrame) -> pd.Series:
    """Time of the whole product on one rank / time."""
    return one_rank(frame) / frame["seconds"]


def all_tflops(frame: pd.DataFrame) -> pd.Series:
    """TFLOPS of all ranks that share the product; of a share alone, as if all of them were as fast."""
    return frame["flops"] * ranks(frame) / frame["seconds"] / 1e12


def link_seconds(frame: pd.DataFrame) -> pd.Series:
    """Least time of a row's link bytes: over GB/s of the links to its peers (kernels/hardware.py), NaN without any."""
    found = np.full(len(frame), math.nan)
    for place, (_, row) in enumerate(frame.iterrows()):
        if row["world"] > 1 and (hardware := derived.hardware_of(row)):
            found[place] = row["link_bytes"] / hardware.link_to(int(row["world"]) - 1)
    return pd.Series(found, index=frame.index)


def link_percent(frame: pd.DataFrame) -> pd.Series:
    """Least time of the links / time, in percent."""
    return link_seconds(frame) / frame["seconds"] * 100


def ceiling_tflops(frame: pd.DataFrame) -> pd.Series:
    """TFLOPS of all ranks at which the links are full."""
    return frame["flops"] * ranks(frame) / link_seconds(frame) / 1e12
