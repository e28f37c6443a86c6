"""Columns that tables and figures of studies may name, derived from what was measured.

The frame (below) has one row for each point.  A column is, in this order: one of the frame, one that
is derived here, a knob of the launch, a dimension of the case.  A study's own columns, and those of its changes, are
put into its frame before anything is made of it (`with_own`).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from benchmarks.studies import studies
from benchmarks.studies.types import Beside, Column, Quantity, Row, Rows, Study, StudyPart
from ci.records import derived
from ci.records.rates import peak_share
from ci.sweeps.measured import Measured, observations
from ci.sweeps.studies import changes
from ci.trials.trial import DeclaredCase, Machine
from kernels.hardware import Hardware

Series = pd.Series

PLACE = ("machine", "regime", "operator")
"""Columns in which rows must agree before they are compared."""


@dataclasses.dataclass(frozen=True)
class Derived(Quantity):
    """of: the column from the whole frame."""

    of: Callable[[pd.DataFrame], Series]


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


# ---- of one study ----------------------------------------------------------------------------------------------------


def with_own(study: Study, frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with the columns that a study declares, and those of its changes."""
    rows: list[Row] = frame.to_dict("records") if study.columns else []  # type: ignore[assignment]
    own = {name: _of_rows(one, rows) for name, one in study.columns.items()}
    made = {name: pd.Series(own[name], index=frame.index, dtype=_type(study.columns[name])) for name in own}
    frame = frame.assign(**made)
    return frame.join(changes.columns(frame, study.changes)) if study.changes else frame


def _type(one: Quantity) -> type | None:
    """Of the values; None for what numbers come to."""
    return None if one.unit else object


def _of_rows(one: Column, rows: Sequence[Row]) -> list[Any]:
    if one.beside is None:
        return [one.of(row) for row in rows]
    return [one.of(row, seconds) for row, seconds in zip(rows, _compared(one.beside, rows), strict=True)]


def _compared(beside: Beside, rows: Sequence[Row]) -> list[float]:
    """Seconds of what each row is compared with: of several rows of a key the shortest, NaN for none."""

    def placed(row: Row, key: Hashable) -> Hashable:
        return (*(row[name] for name in PLACE), key)

    known: dict[Hashable, float] = {}
    for row in rows:
        key = beside.key(row)
        if key is not None and row["status"] == "ok" and not math.isnan(row["seconds"]):
            known[placed(row, key)] = min(row["seconds"], known.get(placed(row, key), math.inf))
    return [known.get(placed(row, beside.wanted(row)), math.nan) for row in rows]


# ---- times and rates -------------------------------------------------------------------------------------------------


def _rates(name: str) -> Callable[[pd.DataFrame], Series]:
    return lambda frame: derived.derive(frame)[name]


def _microseconds(name: str) -> Callable[[pd.DataFrame], Series]:
    return lambda frame: column(frame, name).astype(float) * 1e6


def _by_device(
    frame: pd.DataFrame, of: Callable[[Hardware, pd.DataFrame], Series | float], without: object = math.nan
) -> Series:
    """A column from the rows of each device, dtype and number of ranks.  without: for a device that is not known."""
    found = pd.Series(without, index=frame.index, dtype=object if isinstance(without, str) else float)
    for _, rows in frame.groupby(["machine", "dtype", "world"], sort=False):
        if hardware := derived.hardware_of(rows.iloc[0]):
            found[rows.index] = of(hardware, rows)
    return found


def _peak(hardware: Hardware, rows: pd.DataFrame) -> float:
    """FLOP/s of a rank, dense, for the dtype of some rows (kernels/hardware.py)."""
    try:
        return hardware.peak(str(rows["dtype"].iloc[0]))
    except ValueError:
        return math.nan


def _peak_percent(frame: pd.DataFrame) -> Series:
    return (frame["flops"] / frame["seconds"] / _by_device(frame, _peak) * 100).where(frame["flops"] > 0)


def _roofline_percent(frame: pd.DataFrame) -> Series:
    return peak_share(derived.roofline_seconds(frame), frame["seconds"]) * 100


def _intensity(frame: pd.DataFrame) -> Series:
    return (frame["flops"] / frame["hbm_bytes"]).where(frame["flops"] > 0)


def _bound(hardware: Hardware, rows: pd.DataFrame) -> Series:
    """What the roofline time of a row is that of: compute, HBM or links."""
    world = int(rows["world"].iloc[0])
    parts = {
        "compute": rows["flops"] / _peak(hardware, rows),
        "HBM": rows["hbm_bytes"] / hardware.hbm_bandwidth,
        "links": rows["link_bytes"] / (hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)),
    }
    return pd.DataFrame(parts).fillna(0.0).idxmax(axis=1).astype(str)


def _over_links(hardware: Hardware, rows: pd.DataFrame) -> Series | float:
    world = int(rows["world"].iloc[0])
    return rows["link_bytes"] / hardware.link_to(world - 1) if world > 1 else math.nan


def _link_seconds(frame: pd.DataFrame) -> Series:
    """Least time of a row's link bytes: over the links to its peers (kernels/hardware.py), NaN without any."""
    return _by_device(frame, _over_links)


def _to_best(frame: pd.DataFrame) -> Series:
    """Time / time of the fastest point of the same case and backend."""
    keys = ["operator", "case", "backend", "machine", "regime"]
    return frame["seconds"] / frame.groupby(keys, dropna=False)["seconds"].transform("min")


# ---- configurations --------------------------------------------------------------------------------------------------


def _each(of: Callable[..., Any], *names: str) -> Callable[[pd.DataFrame], Series]:
    """A column of a function of others, row by row."""
    return lambda frame: pd.Series([of(*row) for row in zip(*(frame[n] for n in names), strict=True)], frame.index)


def tile(config: Knobs) -> str:
    """Rows x columns x K step of a tile, "128x256x64"; "" for a launch that has none."""
    sides = [config.get(name) for name in ("block_m", "block_n", "block_k")]
    return "x".join(str(side) for side in sides if side) if all(sides[1:]) else ""


def tiles(config: Knobs, dims: Knobs, world: int) -> float:
    """Tiles of the output (of a rank's columns of it), times slices of K; NaN for a launch without tiles."""
    m, n = config.get("block_m"), config.get("block_n")
    if not (m and n and "M" in dims and "N" in dims):
        return math.nan
    return float(-(-dims["M"] // m) * -(-dims["N"] // int(world) // n) * config.get("split_k", 1))


def _fill(dims: Knobs, world: int) -> float:
    """Tiles of 128 x 128 of a rank's output: a property of the case, whatever tile a point has."""
    return tiles({"block_m": 128, "block_n": 128}, dims, world)


def _per_cu(count: Callable[[pd.DataFrame], Series]) -> Callable[[pd.DataFrame], Series]:
    return lambda frame: count(frame) / frame["compute_units"].astype(float)


def setting(knobs: Knobs) -> str:
    """What a point changes, "num_stages=4 group_m=16"; "default" for nothing."""
    return " ".join(f"{name}={value}" for name, value in sorted(knobs.items())) or "default"


def launch(config: Knobs) -> str:
    """All knobs of a launch, its tile first: "64x64x128 group_m=8 num_stages=3 num_warps=4 ..."."""
    named = tile(config)
    rest = {key: value for key, value in config.items() if not (named and key in ("block_m", "block_n", "block_k"))}
    return " ".join(filter(None, [named, setting(rest) if rest else ""])) or "default"


def _shape(dims: Knobs, case: str) -> str:
    """N and K of the whole weight matrix, "N 4096, K 14336"; the case's name without them."""
    return f"N {dims['N']}, K {dims['K']}" if {"N", "K"} <= dims.keys() else case


def _series(frame: pd.DataFrame) -> Series:
    return column(frame, "shape").astype(str) + ", " + frame["backend"].astype(str)


def _word(place: int) -> Callable[[pd.DataFrame], Series]:
    """A part of the case's name: "dsv3_gateup_b8_m2048_mild" is of a model, and a layer of it."""
    return _each(lambda case: (*case.split("_"), "", "")[place], "case")


TILES = _each(tiles, "config", "dims", "world")

COLUMNS: dict[str, Derived] = {
    "link_us": Derived("least time of the links", "µs", 2, lambda frame: _link_seconds(frame) * 1e6),
    "link_percent": Derived("share of the links", "%", 1, lambda frame: _link_seconds(frame) / frame["seconds"] * 100),
    "operation": Derived("product", "", 0, _each(lambda name: name.removeprefix("grouped_gemm_"), "operator")),
    "model": Derived("model", "", 0, _word(0)),
    "layer": Derived("layer", "", 0, _word(1)),
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
    "bound": Derived("bound", "", 0, lambda frame: _by_device(frame, _bound, "")),
    "to_best": Derived("time / time of the best point", "1", 3, _to_best),
    "tile": Derived("tile", "", 0, _each(tile, "config")),
    "tiles": Derived("tiles", "1", 0, TILES),
    "tiles_per_cu": Derived("tiles / CUs", "1", 2, _per_cu(TILES)),
    "fill": Derived("tiles of 128 x 128 / CUs", "1", 2, _per_cu(_each(_fill, "dims", "world"))),
    "setting": Derived("changed knobs", "", 0, _each(setting, "knobs")),
    "changes": Derived("changed knobs", "1", 0, _each(len, "knobs")),
    "launch": Derived("configuration", "", 0, _each(launch, "config")),
    "shape": Derived("weights", "", 0, _each(_shape, "dims", "case")),
    "series": Derived("weights, backend", "", 0, _series),
}
"""Every derived column.  tflops: of all ranks together; all other rates: of one rank (ci.records.rates)."""

MEASURED = {
    "ratio": Quantity("time / time of the anchor", "1", 4),
    "low": Quantity("lower end", "1", 4),
    "high": Quantity("upper end", "1", 4),
    "seconds": Quantity("time", "s", 9),
    "whole_s": Quantity("total time of one call", "s", 9),
}
"""Columns of the frame that have a unit."""


def described(name: str) -> Quantity | None:
    """Label and unit of a column; None for a knob, a dimension or a name."""
    return COLUMNS.get(name) or MEASURED.get(name) or changes.COLUMNS.get(name) or _declared().get(name)


@functools.cache
def _declared() -> dict[str, Column]:
    """The columns of all studies."""
    return {name: one for study in studies().values() for name, one in study.columns.items()}


# What a study has measured, as one frame: a row for each point, whatever file or record it comes from.


KEYS = ["machine", "env", "commit", "operator", "case", "backend", "point", "regime"]
"""What tells two rows apart."""

_MACHINE = ("arch", "device", "market_name", "compute_units", "chip_id", "memory_bytes", "kind", "count")


def of_sweeps(found: Iterable[Measured]) -> pd.DataFrame:
    """The rows of measured sweeps, with what the declaration and the machine say of each."""
    frames = [_of_sweep(one) for one in found]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()


def _of_sweep(measured: Measured) -> pd.DataFrame:
    frame, machine = measured.frame, measured.machine
    declared = {name: one.cases for name, one in measured.declarations.items()}
    baselines = {name: set(one.baselines) for name, one in measured.declarations.items()}
    pairs = list(zip(frame["operator"], frame["case"], strict=True))
    cases = [declared.get(operator, {}).get(case, DeclaredCase(case)) for operator, case in pairs]
    said = pd.DataFrame([_of_case(case) for case in cases], index=frame.index)
    whole = whole_seconds(measured)
    keys = zip(frame["operator"], frame["case"], frame["backend"], frame["point"], strict=True)
    arms = zip(frame["operator"], frame["backend"], strict=True)
    found: pd.DataFrame = pd.concat([frame, said], axis=1).assign(
        **_of_machine(machine),
        env=measured.origin.env,
        commit=measured.origin.commit or "",
        kernel=frame["operator"],
        baseline=[backend in baselines.get(operator, ()) for operator, backend in arms],
        whole_s=[whole.get(key, math.nan) for key in keys],
    )
    return found


def _of_case(case: DeclaredCase) -> dict[str, object]:
    cost = dataclasses.asdict(case.cost)
    return {"dims": dict(case.shape), "dtype": case.dtype, "world": case.world, "tier": case.tier, **cost}


def _of_machine(machine: Machine) -> dict[str, str | float]:
    said = {name: getattr(machine, name) for name in _MACHINE}
    return {"machine": machine.name, **{name: math.nan if one is None else one for name, one in said.items()}}


def whole_seconds(measured: Measured) -> dict[tuple[str, str, str, str], float]:
    """Seconds of a call from the host's side, median over everything measured, by operator, case, backend and point."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for (operator, case, backend, point, _), seen in observations(measured.trials).items():
        own = found.setdefault((operator, case, backend, point), [])
        own += (seconds for one in seen if one.arm.ok for seconds in one.arm.whole_s)
    return {key: statistics.median(seconds) for key, seconds in found.items() if seconds}


def of_records(frame: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    """Rows of the long frame of records that a study's plain arms are; of each case and arm the newest.

    ratio: of the medians of the same commit, without an interval: the arms may be of different trials.
    """
    mine = pd.concat([_of_part(frame, part) for part in parts]) if len(frame) else frame
    keys = ["machine", "kernel", "case", "backend"]
    newest = mine.sort_values("date", kind="stable").drop_duplicates(keys, keep="last")
    dims = [json.loads(shape) if shape else {} for shape in newest["shape"].astype(str)]
    rows = newest.assign(
        operator=newest["kernel"].astype(str),
        dims=pd.Series(dims, index=newest.index, dtype=object),
        config=pd.Series([{} for _ in dims], index=newest.index, dtype=object),
        knobs=pd.Series([{} for _ in dims], index=newest.index, dtype=object),
        point="",
        regime="spaced",
        low=math.nan,
        high=math.nan,
        whole_s=math.nan,
        equal_to="",
    )
    return _against_anchor(rows.reset_index(drop=True), parts)


def _of_part(frame: pd.DataFrame, part: StudyPart) -> pd.DataFrame:
    wanted = {part.anchor, *part.arms}
    mine = frame[(frame["kernel"] == part.operator) & frame["backend"].isin(wanted)]
    return mine[[part.has(str(case), int(world)) for case, world in zip(mine["case"], mine["world"], strict=True)]]


def _against_anchor(rows: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    anchors = {part.operator: part.anchor for part in parts}
    named = rows["operator"].map(anchors)
    its = rows["backend"].astype(str) == named
    keys = list(zip(rows["machine"], rows["operator"], rows["case"], strict=True))
    anchored = dict(zip(itertools.compress(keys, its), rows["seconds"][its], strict=True))
    seconds = pd.Series([anchored.get(key, math.nan) for key in keys], index=rows.index)
    return rows.assign(anchor=named, is_anchor=its, ratio=rows["seconds"] / seconds)


def chosen(frame: pd.DataFrame, rows: Rows) -> pd.DataFrame:
    """The rows that a figure or a table shows; those without a time are never among them.

    pick: all; best: the fastest of each case and backend; plain: without a point; tried: points only.
    """
    kept = frame[frame["status"] == "ok"]
    for name, values in rows.where.items():
        kept = kept[kept[name].isin(list(values))]
    if rows.pick == "best":
        keys = ["machine", "operator", "case", "backend", "regime"]
        return kept.loc[sorted(kept.dropna(subset=["seconds"]).groupby(keys, sort=False)["seconds"].idxmin())]
    return kept if rows.pick == "all" else kept[(kept["point"] == "") == (rows.pick == "plain")]


def ranks_named(ranks: Sequence[int]) -> str:
    """ "1 rank", "2, 4 or 8 ranks"."""
    *first, last = map(str, ranks)
    return f"{', '.join(first)} or {last} ranks" if first else f"{last} rank{'' if last == '1' else 's'}"
