"""The measured rows of a study: one for each point, whatever file or record it comes from, and what they can be asked.

Columns: those of a sweep (ci/sweeps/measured.py), those of the case's declaration and of the machine, every knob of a
launch and every dimension of a case under its own name, and DERIVED.  Table, figures and findings of a study are
functions of this frame.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import pandas as pd

from benchmarks.points import Knobs
from ci.records import derived
from ci.records.rates import peak_share
from ci.studies.types import StudyPart
from ci.sweeps.measured import Measured, observations
from ci.trials.trial import DeclaredCase, Machine
from kernels.hardware import Hardware

Series = pd.Series

KEYS = ["machine", "env", "commit", "operator", "case", "backend", "point", "regime"]
"""What tells two rows apart."""

PLACE = ["machine", "regime", "operator"]
"""Columns in which rows must agree before they are compared."""

_MACHINE = ("arch", "device", "market_name", "compute_units", "chip_id", "memory_bytes", "kind", "count")


@dataclasses.dataclass(frozen=True)
class Quantity:
    """What a column says.  unit: "1" for a pure number, "" for a text.  decimals: in a table.

    of: the column from the frame; None for one that was measured.
    """

    label: str
    unit: str
    decimals: int
    of: Callable[[pd.DataFrame], Series | list[Any]] | None = None

    @property
    def heading(self) -> str:
        """What stands over a column of a table, and along an axis."""
        return self.label if self.unit in ("", "1") else f"{self.label}, {self.unit}"


# ---- from what was measured ------------------------------------------------------------------------------------------


def of_sweeps(measured: Iterable[Measured]) -> pd.DataFrame:
    """The rows of measured sweeps, with what the declaration and the machine say of each, and every derived column."""
    frames = [_rows_of_sweep(sweep) for sweep in measured]
    return with_derived(pd.concat(frames, ignore_index=True)) if frames else pd.DataFrame()


def _rows_of_sweep(measured: Measured) -> pd.DataFrame:
    frame, machine = measured.frame, measured.machine
    declared = {name: declaration.cases for name, declaration in measured.declarations.items()}
    baselines = {name: set(declaration.baselines) for name, declaration in measured.declarations.items()}
    pairs = list(zip(frame["operator"], frame["case"], strict=True))
    cases = [declared.get(operator, {}).get(case, DeclaredCase(case)) for operator, case in pairs]
    of_cases = pd.DataFrame([_case_columns(case) for case in cases], index=frame.index)
    whole_s = whole_seconds(measured)
    keys = zip(frame["operator"], frame["case"], frame["backend"], frame["point"], strict=True)
    arms = zip(frame["operator"], frame["backend"], strict=True)
    rows: pd.DataFrame = pd.concat([frame, of_cases], axis=1).assign(
        **_machine_columns(machine),
        env=measured.origin.env,
        commit=measured.origin.commit or "",
        kernel=frame["operator"],
        baseline=[backend in baselines.get(operator, ()) for operator, backend in arms],
        whole_s=[whole_s.get(key, math.nan) for key in keys],
    )
    return rows


def _case_columns(case: DeclaredCase) -> dict[str, object]:
    cost = dataclasses.asdict(case.cost)
    return {"dims": dict(case.shape), "dtype": case.dtype, "world": case.world, "tier": case.tier, **cost}


def _machine_columns(machine: Machine) -> dict[str, str | float]:
    reported = {name: getattr(machine, name) for name in _MACHINE}
    return {"machine": machine.name, **{name: math.nan if value is None else value for name, value in reported.items()}}


def whole_seconds(measured: Measured) -> dict[tuple[str, str, str, str], float]:
    """Seconds of a call from the host's side, median over everything measured, by operator, case, backend and point."""
    calls: dict[tuple[str, str, str, str], list[float]] = {}
    for (operator, case, backend, point, _), seen in observations(measured.trials).items():
        own = calls.setdefault((operator, case, backend, point), [])
        own += (seconds for observation in seen if observation.arm.ok for seconds in observation.arm.whole_s)
    return {key: statistics.median(seconds) for key, seconds in calls.items() if seconds}


def of_records(frame: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    """Rows of the long frame of records that a study's plain arms are; of each case and arm the newest.

    ratio: of the medians of the same commit, without an interval: the arms may be of different trials.
    """
    mine = pd.concat([_rows_of_part(frame, part) for part in parts]) if len(frame) else frame
    keys = ["machine", "kernel", "case", "backend"]
    newest = mine.sort_values("date", kind="stable").drop_duplicates(keys, keep="last").reset_index(drop=True)
    dims = [json.loads(shape) if shape else {} for shape in newest["shape"].astype(str)]
    nothing: list[Knobs] = [{} for _ in dims]
    rows = newest.drop(columns="shape").assign(
        **dict.fromkeys(("low", "high", "whole_s"), math.nan),
        **dict.fromkeys(("point", "equal_to"), ""),
        operator=newest["kernel"].astype(str),
        **{name: newest[name].astype(str) for name in ("machine", "case", "backend")},
        dims=pd.Series(dims, index=newest.index, dtype=object),
        config=pd.Series(nothing, index=newest.index, dtype=object),
        knobs=pd.Series(nothing, index=newest.index, dtype=object),
        regime="spaced",
    )
    return with_derived(_against_anchor(rows, parts))


def _rows_of_part(frame: pd.DataFrame, part: StudyPart) -> pd.DataFrame:
    mine = frame[(frame["kernel"] == part.operator) & frame["backend"].isin({part.anchor, *part.arms})]
    return mine[[part.has(str(case), int(world)) for case, world in zip(mine["case"], mine["world"], strict=True)]]


def _against_anchor(rows: pd.DataFrame, parts: Sequence[StudyPart]) -> pd.DataFrame:
    anchor = rows["operator"].map({part.operator: part.anchor for part in parts})
    is_anchor = rows["backend"] == anchor
    keys = list(zip(rows["machine"], rows["operator"], rows["case"], strict=True))
    anchored = dict(zip(itertools.compress(keys, is_anchor), rows["seconds"][is_anchor], strict=True))
    seconds = pd.Series([anchored.get(key, math.nan) for key in keys], index=rows.index)
    return rows.assign(anchor=anchor, is_anchor=is_anchor, ratio=rows["seconds"] / seconds)


# ---- which rows, and how they are listed -----------------------------------------------------------------------------


def timed(rows: pd.DataFrame, **allowed: Iterable[object]) -> pd.DataFrame:
    """The rows with a time; only those whose column has one of the allowed values."""
    rows = rows[rows["status"] == "ok"]
    for name, values in allowed.items():
        rows = rows[rows[name].isin(list(values))] if name in rows else rows[:0]
    return rows


def plain(rows: pd.DataFrame, **allowed: Iterable[object]) -> pd.DataFrame:
    """Arms in their default configuration."""
    rows = timed(rows, **allowed)
    return rows[rows["point"] == ""]


def tried(rows: pd.DataFrame, **allowed: Iterable[object]) -> pd.DataFrame:
    """Points that change something."""
    rows = timed(rows, **allowed)
    return rows[rows["point"] != ""]


def fastest(rows: pd.DataFrame, **allowed: Iterable[object]) -> pd.DataFrame:
    """The fastest point of each case and backend."""
    rows = timed(rows, **allowed).dropna(subset=["seconds"])
    return rows.loc[sorted(rows.groupby([*PLACE, "case", "backend"], sort=False)["seconds"].idxmin())]


def listed(rows: pd.DataFrame, keys: Sequence[str], columns: Sequence[str], spread: str = "") -> pd.DataFrame:
    """A table: a row for each combination of the keys, sorted by them; of several rows of a combination the fastest.

    spread: a column whose values become columns, "VALUE: COLUMN".
    """
    index = [*keys, *filter(None, [spread])]
    rows = rows.reindex(columns=list(dict.fromkeys([*index, *columns, "seconds"]))).sort_values(
        "seconds", kind="stable"
    )
    rows = rows.drop_duplicates(index).sort_values(index, kind="stable", key=_by_size)
    if not spread:
        return rows[[*keys, *columns]].reset_index(drop=True)
    wide = rows.pivot(index=list(keys), columns=spread, values=list(columns))
    wide.columns = wide.columns.map(lambda pair: f"{pair[1]}: {pair[0]}")
    return wide.reset_index()


def _by_size(values: Series) -> Series:
    """Numbers by size, everything else by its text."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    return values.astype(str) if numbers.isna().any() else numbers


def seconds_of(rows: pd.DataFrame, key: Iterable[Hashable], wanted: Iterable[Hashable]) -> Series:
    """The time of the row that each row is compared with, on its machine and regime, of its operator; NaN for none.

    key: what each row is to others, None if nothing is compared with it; of several rows of a key the fastest counts.
    wanted: the key that each row looks for.
    """
    place = list(zip(*(rows[name] for name in PLACE), strict=True))
    known: dict[Hashable, float] = {}
    for where, name, seconds, status in zip(place, key, rows["seconds"], rows["status"], strict=True):
        if name is not None and status == "ok" and not math.isnan(seconds):
            known[where, name] = min(seconds, known.get((where, name), math.inf))
    times = [known.get((where, name), math.nan) for where, name in zip(place, wanted, strict=True)]
    return pd.Series(times, index=rows.index, dtype=float)


def each(of: Callable[..., Any], *names: str) -> Callable[[pd.DataFrame], list[Any]]:
    """A column of a function of other columns, row by row."""
    return lambda rows: [of(*row) for row in zip(*(rows[name] for name in names), strict=True)]


def ranks_text(ranks: Sequence[int]) -> str:
    """ "1 rank", "2, 4 or 8 ranks"."""
    *first, last = map(str, ranks)
    return f"{', '.join(first)} or {last} ranks" if first else f"{last} rank{'' if last == '1' else 's'}"


# ---- times and rates -------------------------------------------------------------------------------------------------


def _by_device(
    rows: pd.DataFrame, of: Callable[[Hardware, pd.DataFrame], Series | float], unknown: object = math.nan
) -> Series:
    """A column from the rows of each device, dtype and number of ranks.  unknown: for a device without an entry."""
    column = pd.Series(unknown, index=rows.index, dtype=object if isinstance(unknown, str) else float)
    for _, own in rows.groupby(["machine", "dtype", "world"], sort=False):
        if hardware := derived.hardware_of(own.iloc[0]):
            column[own.index] = of(hardware, own)
    return column


def _peak(hardware: Hardware, rows: pd.DataFrame) -> float:
    """FLOP/s of a rank, dense, for the dtype of some rows (kernels/hardware.py)."""
    try:
        return hardware.peak(str(rows["dtype"].iloc[0]))
    except ValueError:
        return math.nan


def _bound(hardware: Hardware, rows: pd.DataFrame) -> Series:
    """What the roofline time of a row is that of: compute, HBM or links."""
    world = int(rows["world"].iloc[0])
    parts = {
        "compute": rows["flops"] / _peak(hardware, rows),
        "HBM": rows["hbm_bytes"] / hardware.hbm_bandwidth,
        "links": rows["link_bytes"] / (hardware.link_bandwidth if world < 2 else hardware.link_to(world - 1)),
    }
    return pd.DataFrame(parts).fillna(0.0).idxmax(axis=1).astype(str)


def _link_seconds(hardware: Hardware, rows: pd.DataFrame) -> Series | float:
    """Least time of a row's link bytes, over the links to its peers; NaN without any."""
    world = int(rows["world"].iloc[0])
    return rows["link_bytes"] / hardware.link_to(world - 1) if world > 1 else math.nan


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
    return float(-(-dims["M"] // m) * -(-dims["N"] // int(world) // n) * config.get("split_k", 1))


def square_tiles(dims: Knobs, world: int) -> float:
    """Tiles of 128 x 128 of a rank's output: a property of the case, whatever tile a point has."""
    return tiles({"block_m": 128, "block_n": 128}, dims, world)


def setting(knobs: Knobs) -> str:
    """What a point changes, "num_stages=4 group_m=16"; "default" for nothing."""
    return " ".join(f"{name}={value}" for name, value in sorted(knobs.items())) or "default"


def launch(config: Knobs) -> str:
    """All knobs of a launch, its tile first: "64x64x128 group_m=8 num_stages=3 num_warps=4 ..."."""
    sides = tile(config)
    rest = {key: value for key, value in config.items() if not (sides and key in ("block_m", "block_n", "block_k"))}
    return " ".join(filter(None, [sides, setting(rest) if rest else ""])) or "default"


def _weights(dims: Knobs, case: str) -> str:
    """N and K of the whole weight matrix, "N 4096, K 14336"; the case's name without them."""
    return f"N {dims['N']}, K {dims['K']}" if {"N", "K"} <= dims.keys() else case


def _word_of_case(place: int) -> Callable[[pd.DataFrame], list[str]]:
    """A part of the case's name: "dsv3_gateup_b8_m2048_mild" is of a model, and a layer of it."""
    return each(lambda case: (*case.split("_"), "", "")[place], "case")


DERIVED = {
    "us": Quantity("time", "µs", 2, lambda rows: rows["seconds"].astype(float) * 1e6),
    "kernel_us": Quantity("kernel time", "µs", 2, lambda rows: rows["us"]),
    "total_us": Quantity("total time of one call, host to host", "µs", 2, lambda rows: rows["whole_s"] * 1e6),
    "roofline_us": Quantity("roofline time", "µs", 2, lambda rows: derived.roofline_seconds(rows) * 1e6),
    "roofline_percent": Quantity(
        "share of roofline", "%", 1, lambda rows: peak_share(derived.roofline_seconds(rows), rows["seconds"]) * 100
    ),
    "peak_percent": Quantity(
        "share of peak", "%", 1,
        lambda rows: (rows["flops"] / rows["seconds"] / _by_device(rows, _peak) * 100).where(rows["flops"] > 0),
    ),
    "tflops": Quantity("speed", "TFLOPS", 1),
    "gbs": Quantity("HBM bandwidth", "GB/s", 0),
    "algbw": Quantity("algbw", "GB/s", 1),
    "busbw": Quantity("busbw", "GB/s", 1),
    "baseline_ratio": Quantity("time of the fastest baseline / time", "1", 3),
    "baseline_name": Quantity("fastest baseline", "", 0),
    "intensity": Quantity(
        "intensity", "FLOP/byte", 1, lambda rows: (rows["flops"] / rows["hbm_bytes"]).where(rows["flops"] > 0)
    ),
    "bound": Quantity("bound", "", 0, lambda rows: _by_device(rows, _bound, "")),
    "link_us": Quantity("least time of the links", "µs", 2, lambda rows: _by_device(rows, _link_seconds) * 1e6),
    "link_percent": Quantity("share of the links", "%", 1, lambda rows: rows["link_us"] / rows["us"] * 100),
    "to_best": Quantity(
        "time / time of the best point", "1", 3,
        lambda rows: rows["seconds"] / rows.groupby([*PLACE, "case", "backend"])["seconds"].transform("min"),
    ),
    "operation": Quantity("product", "", 0, each(lambda name: name.removeprefix("grouped_gemm_"), "operator")),
    "model": Quantity("model", "", 0, _word_of_case(0)),
    "layer": Quantity("layer", "", 0, _word_of_case(1)),
    "shape": Quantity("weights", "", 0, each(_weights, "dims", "case")),
    "series": Quantity("weights, backend", "", 0, each("{}, {}".format, "shape", "backend")),
    "setting": Quantity("changed knobs", "", 0, each(setting, "knobs")),
    "launch": Quantity("configuration", "", 0, each(launch, "config")),
    "tile": Quantity("tile", "", 0, each(tile, "config")),
    "tiles": Quantity("tiles", "1", 0, each(tiles, "config", "dims", "world")),
    "tiles_per_cu": Quantity("tiles / CUs", "1", 2, lambda rows: rows["tiles"] / rows["compute_units"].astype(float)),
    "fill": Quantity(
        "tiles of 128 x 128 / CUs", "1", 2,
        lambda rows: pd.Series(each(square_tiles, "dims", "world")(rows), rows.index)
        / rows["compute_units"].astype(float),
    ),
}  # fmt: skip
"""Columns that every study has, in an order in which each needs only those before it.  Those without a function are
rates of `ci.records.derived`.  tflops: of all ranks together; all other rates: of one rank (ci.records.rates)."""

MEASURED = {
    "ratio": Quantity("time / time of the anchor", "1", 4),
    "low": Quantity("lower end", "1", 4),
    "high": Quantity("upper end", "1", 4),
    "before": Quantity("before", "µs", 2),
    "after": Quantity("after", "µs", 2),
    "change_ratio": Quantity("after / before", "1", 4),
    "ratio_low": Quantity("lower end", "1", 4),
    "ratio_high": Quantity("upper end", "1", 4),
    "overhead": Quantity("time / time of the product alone", "1", 3),
    "alone_us": Quantity("product alone", "µs", 2),
    "speedup": Quantity("time on one rank / time", "1", 3),
    "all_tflops": Quantity("speed of all ranks", "TFLOPS", 1),
    "library_percent": Quantity("share of the library at equal CUs", "%", 1),
    "cus": Quantity("CUs", "1", 0),
    "ranks": Quantity("ranks", "1", 0),
    "whole": Quantity("whole product", "", 0),
    "line": Quantity("backend", "", 0),
    "loss": Quantity("best time with this value / best time", "1", 3),
    "mean_ratio": Quantity("geometric mean of the ratio to the baseline", "1", 3),
    "registers": Quantity("registers", "1", 0),
    "spills": Quantity("spills", "1", 0),
    "instructions": Quantity("instructions", "1", 0),
    "store_bytes": Quantity("bytes per store", "1", 1),
}
"""Other columns of the tables and figures that are there."""


def with_derived(rows: pd.DataFrame) -> pd.DataFrame:
    """The frame with DERIVED, and every knob of its launches and dimension of its cases under its own name."""
    rates = derived.derive(rows)
    rows = rows.assign(**{name: rates[name] for name, quantity in DERIVED.items() if quantity.of is None})
    for name, quantity in DERIVED.items():
        if quantity.of is not None:
            rows[name] = pd.Series(quantity.of(rows), index=rows.index)
    values = [{**dims, **config} for dims, config in zip(rows["dims"], rows["config"], strict=True)]
    named = [name for name in dict.fromkeys(itertools.chain.from_iterable(values)) if name not in rows]
    columns = {name: [value.get(name) for value in values] for name in named}
    return pd.concat([rows, pd.DataFrame(columns, index=rows.index)], axis=1)


def quantity(column: str) -> Quantity | None:
    """Label, unit and decimals of a column; None for a knob, a dimension or a name."""
    metric, _, side = column.rpartition("_")
    if side in ("before", "after") and metric in MEASURED:
        of = MEASURED[metric]
        return Quantity(f"{of.label} {side}", of.unit, of.decimals)
    return DERIVED.get(column) or MEASURED.get(column)
