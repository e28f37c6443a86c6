"""Columns that tables and figures of studies may name, derived from what was measured.

The frame (`ci.sweeps.studies.rows`) has one row for each point.  A column is, in this order: one of the frame, one that
is derived here, a knob of the launch, a dimension of the case.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.points import Knobs
from ci.records import derived
from ci.records.rates import peak_share
from ci.sweeps.studies.across import changes, cus, product

Series = pd.Series


@dataclasses.dataclass(frozen=True)
class Derived:
    """label, unit ("1": a pure number, "": a text) and decimals in a table; of: the column from the whole frame."""

    label: str
    unit: str
    decimals: int
    of: Callable[[pd.DataFrame], Series]

    @property
    def heading(self) -> str:
        """What stands over a column of a table."""
        return self.label if self.unit in ("", "1") else f"{self.label}, {self.unit}"


def with_columns(frame: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The frame with these columns; a column that no row has is empty."""
    found = frame.copy()
    for name in dict.fromkeys(names):
        if name not in found:
            found[name] = column(frame, name)
    return found


def column(frame: pd.DataFrame, name: str) -> Series:
    """One column, see above."""
    if name in frame:
        return frame[name]
    if name in COLUMNS:
        return COLUMNS[name].of(frame)
    values = [_of_row(config, shape, name) for config, shape in zip(frame["config"], frame["dims"], strict=True)]
    return pd.Series(values, index=frame.index)


def _of_row(config: Knobs, dims: Knobs, name: str) -> Any:
    return config[name] if name in config else dims.get(name)


# ---- times and rates -------------------------------------------------------------------------------------------------


def _rates(name: str) -> Callable[[pd.DataFrame], Series]:
    return lambda frame: derived.derive(frame)[name]


def _microseconds(name: str) -> Callable[[pd.DataFrame], Series]:
    return lambda frame: column(frame, name).astype(float) * 1e6


def _peak_percent(frame: pd.DataFrame) -> Series:
    """FLOP/s of a rank against the dense peak of its dtype (kernels/hardware.py), in percent."""
    peaks = {key: _peak(row) for key, row in frame.groupby(["machine", "dtype"], sort=False).head(1).iterrows()}
    of_kind = frame.groupby(["machine", "dtype"], sort=False)["seconds"].transform(lambda rows: peaks[rows.index[0]])
    return (frame["flops"] / frame["seconds"] / of_kind * 100).where(frame["flops"] > 0)


def _peak(row: Series) -> float:
    hardware = derived.hardware_of(row)
    try:
        return hardware.peak(str(row["dtype"])) if hardware else math.nan
    except ValueError:
        return math.nan


def _roofline_percent(frame: pd.DataFrame) -> Series:
    return peak_share(derived.roofline_seconds(frame), frame["seconds"]) * 100


def _intensity(frame: pd.DataFrame) -> Series:
    return (frame["flops"] / frame["hbm_bytes"]).where(frame["flops"] > 0)


def _bound(frame: pd.DataFrame) -> Series:
    """What the roofline time of a row is that of: compute, HBM or links."""
    found = pd.Series("", index=frame.index, dtype=object)
    for _, rows in frame.groupby(["machine", "dtype", "world"], sort=False):
        hardware = derived.hardware_of(rows.iloc[0])
        if hardware is None:
            continue
        world = int(rows["world"].iloc[0])
        link = hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)
        parts = {
            "compute": rows["flops"] / _peak(rows.iloc[0]),
            "HBM": rows["hbm_bytes"] / hardware.hbm_bandwidth,
            "links": rows["link_bytes"] / link,
        }
        found = found.mask(found.index.isin(rows.index), pd.DataFrame(parts).fillna(0.0).idxmax(axis=1).astype(str))
    return found


def _to_best(frame: pd.DataFrame) -> Series:
    """Time / time of the fastest point of the same case and backend."""
    keys = ["operator", "case", "backend", "machine", "regime"]
    return frame["seconds"] / frame.groupby(keys, dropna=False)["seconds"].transform("min")


# ---- configurations --------------------------------------------------------------------------------------------------


def tile(config: Knobs) -> str:
    """Rows x columns x K step of a tile, "128x256x64"; "" for a launch that has none."""
    sides = [config.get(name) for name in ("block_m", "block_n", "block_k")]
    return "x".join(str(side) for side in sides if side) if all(sides[1:]) else ""


def tiles(config: Knobs, dims: Knobs, world: int) -> float:
    """Tiles of the output (of a rank's columns of it), times slices of K; NaN for a launch without tiles."""
    m, n = config.get("block_m"), config.get("block_n")
    if not (m and n and "M" in dims and "N" in dims):
        return math.nan
    return float(-(-dims["M"] // m) * -(-dims["N"] // world // n) * config.get("split_k", 1))


def _tile(frame: pd.DataFrame) -> Series:
    return frame["config"].map(tile)


def _tiles(frame: pd.DataFrame) -> Series:
    rows = zip(frame["config"], frame["dims"], frame["world"], strict=True)
    return pd.Series([tiles(config, dims, int(world)) for config, dims, world in rows], index=frame.index)


def _tiles_per_cu(frame: pd.DataFrame) -> Series:
    return _tiles(frame) / frame["compute_units"].astype(float)


def _fill(frame: pd.DataFrame) -> Series:
    """Tiles of 128 x 128 of a rank's output against the CUs: a property of the case, whatever tile a point has."""
    square = {"block_m": 128, "block_n": 128}
    rows = zip(frame["dims"], frame["world"], frame["compute_units"].astype(float), strict=True)
    return pd.Series([tiles(square, dims, int(world)) / units for dims, world, units in rows], index=frame.index)


def setting(knobs: Knobs) -> str:
    """What a point changes, "num_stages=4 group_m=16"; "default" for nothing."""
    return " ".join(f"{name}={value}" for name, value in sorted(knobs.items())) or "default"


def _setting(frame: pd.DataFrame) -> Series:
    return frame["knobs"].map(setting)


def _changes(frame: pd.DataFrame) -> Series:
    """How many knobs a point changes."""
    return frame["knobs"].map(len)


def launch(config: Knobs) -> str:
    """All knobs of a launch, its tile first: "64x64x128 group_m=8 num_stages=3 num_warps=4 ..."."""
    named = tile(config)
    rest = {key: value for key, value in config.items() if not (named and key in ("block_m", "block_n", "block_k"))}
    return " ".join(filter(None, [named, setting(rest) if rest else ""])) or "default"


def _launch(frame: pd.DataFrame) -> Series:
    return frame["config"].map(launch)


def _shape(frame: pd.DataFrame) -> Series:
    """N and K of the whole weight matrix, "N 4096, K 14336"; the case's name without them."""
    pairs = zip(frame["dims"], frame["case"], strict=True)
    named = [f"N {dims['N']}, K {dims['K']}" if {"N", "K"} <= dims.keys() else case for dims, case in pairs]
    return pd.Series(named, index=frame.index, dtype=object)


def _joined(*names: str) -> Callable[[pd.DataFrame], Series]:
    def join(frame: pd.DataFrame) -> Series:
        parts = [column(frame, name).astype(str) for name in names]
        return pd.Series([", ".join(filter(None, row)) for row in zip(*parts, strict=True)], index=frame.index)

    return join


def _exact(frame: pd.DataFrame) -> Series:
    """Whether the output of a check equals the reference bit by bit."""
    norm = column(frame, "norm").astype(float)
    return pd.Series(np.where(norm.isna(), "", np.where(norm == 0, "yes", "no")), index=frame.index, dtype=object)


def _groups(frame: pd.DataFrame) -> Series:
    """ "4 experts" of a case that has groups."""
    return pd.Series([f"{dims['G']} experts" if "G" in dims else "" for dims in frame["dims"]], frame.index)


def _word(place: int) -> Callable[[pd.DataFrame], Series]:
    """A part of the case's name: "dsv3_gateup_b8_m2048_mild" is of a model, and a layer of it."""
    return lambda frame: frame["case"].astype(str).str.split("_").str[place].astype(object).fillna("")


def _streams(frame: pd.DataFrame) -> Series:
    """ "serial", or "4 streams", of a baseline with the knob `streams`."""
    counts = [int(config.get("streams", 1)) for config in frame["config"]]
    return pd.Series(["serial" if count == 1 else f"{count} streams" for count in counts], frame.index, dtype=object)


def _operation(frame: pd.DataFrame) -> Series:
    """Which of an operator's products: what follows its family."""
    return frame["operator"].astype(str).str.removeprefix("grouped_gemm_")


def _code(name: str, label: str, decimals: int = 0) -> dict[str, Derived]:
    """A number of the machine code before and after a change."""
    return {
        f"{name}_before": Derived(f"{label} before", "1", decimals, lambda frame: changes.code_before(frame, name)),
        f"{name}_after": Derived(f"{label} after", "1", decimals, lambda frame: changes.code_after(frame, name)),
    }


ACROSS: dict[str, Derived] = {
    "ranks": Derived("ranks", "1", 0, product.ranks),
    "whole": Derived("whole product", "", 0, product.whole),
    "weak": Derived("a rank's product", "", 0, product.weak),
    "line": Derived("backend", "", 0, product.line),
    "line_ranks": Derived("backend, ranks", "", 0, product.line_ranks),
    "alone_us": Derived("product alone", "µs", 2, lambda frame: product.alone(frame) * 1e6),
    "overhead": Derived("time / time of the product alone", "1", 3, product.overhead),
    "speedup": Derived("time on one rank / time", "1", 3, product.speedup),
    "all_tflops": Derived("speed of all ranks", "TFLOPS", 1, product.all_tflops),
    "link_us": Derived("least time of the links", "µs", 2, lambda frame: product.link_seconds(frame) * 1e6),
    "link_percent": Derived("share of the links", "%", 1, product.link_percent),
    "ceiling_tflops": Derived("speed with full links", "TFLOPS", 1, product.ceiling_tflops),
    "cus": Derived("CUs", "1", 0, cus.cus),
    "maker": Derived("kernel of", "", 0, cus.maker),
    "library_percent": Derived("share of the library at equal CUs", "%", 1, cus.library_percent),
    "change": Derived("change", "", 0, changes.change),
    "before": Derived("before", "µs", 2, changes.before),
    "after": Derived("after", "µs", 2, changes.after),
    "change_ratio": Derived("after / before", "1", 4, changes.ratio),
    "ratio_low": Derived("lower end", "1", 4, changes.low),
    "ratio_high": Derived("upper end", "1", 4, changes.high),
    **_code("registers", "registers"),
    **_code("spills", "spills"),
    **_code("instructions", "instructions"),
    **_code("store_bytes", "bytes per store", 1),
    "operation": Derived("product", "", 0, _operation),
    "model": Derived("model", "", 0, _word(0)),
    "layer": Derived("layer", "", 0, _word(1)),
    "experts": Derived("model, layer, experts", "", 0, _joined("model", "layer", "groups_text")),
    "streams_text": Derived("how", "", 0, _streams),
    "groups_text": Derived("experts", "", 0, _groups),
}
"""Columns of what a row says against other rows, and of parts of names."""

COLUMNS: dict[str, Derived] = {
    **ACROSS,
    "us": Derived("time", "µs", 2, _microseconds("seconds")),
    "kernel_us": Derived("kernel time", "µs", 2, _microseconds("seconds")),
    "total_us": Derived("total time of one call, host to host", "µs", 2, _microseconds("whole_s")),
    "roofline_us": Derived("roofline time", "µs", 2, lambda frame: derived.roofline_seconds(frame) * 1e6),
    "roofline_percent": Derived("share of roofline", "%", 1, _roofline_percent),
    "peak_percent": Derived("share of peak", "%", 1, _peak_percent),
    "tflops": Derived("speed", "TFLOPS", 1, _rates("tflops")),
    "gbs": Derived("HBM bandwidth", "GB/s", 0, _rates("gbs")),
    "algbw": Derived("algbw", "GB/s", 1, _rates("algbw")),
    "busbw": Derived("busbw", "GB/s", 1, _rates("busbw")),
    "baseline_ratio": Derived("time of the fastest baseline / time", "1", 3, _rates("baseline_ratio")),
    "baseline_name": Derived("fastest baseline", "", 0, _rates("baseline_name")),
    "intensity": Derived("intensity", "FLOP/byte", 1, _intensity),
    "bound": Derived("bound", "", 0, _bound),
    "to_best": Derived("time / time of the best point", "1", 3, _to_best),
    "tile": Derived("tile", "", 0, _tile),
    "tiles": Derived("tiles", "1", 0, _tiles),
    "tiles_per_cu": Derived("tiles / CUs", "1", 2, _tiles_per_cu),
    "fill": Derived("tiles of 128 x 128 / CUs", "1", 2, _fill),
    "setting": Derived("changed knobs", "", 0, _setting),
    "changes": Derived("changed knobs", "1", 0, _changes),
    "launch": Derived("configuration", "", 0, _launch),
    "shape": Derived("weights", "", 0, _shape),
    "series": Derived("weights, backend", "", 0, _joined("shape", "backend")),
    "exact": Derived("equal bits", "", 0, _exact),
}
"""Every derived column.  tflops: of all ranks together; all other rates: of one rank (ci.records.rates)."""

MEASURED = {
    "ratio": Derived("time / time of the anchor", "1", 4, lambda frame: frame["ratio"]),
    "low": Derived("lower end", "1", 4, lambda frame: frame["low"]),
    "high": Derived("upper end", "1", 4, lambda frame: frame["high"]),
    "seconds": Derived("time", "s", 9, lambda frame: frame["seconds"]),
    "whole_s": Derived("total time of one call", "s", 9, lambda frame: frame["whole_s"]),
}
"""Columns of the frame that have a unit."""


def described(name: str) -> Derived | None:
    """Label and unit of a column; None for a knob, a dimension or a name."""
    return COLUMNS.get(name) or MEASURED.get(name)
