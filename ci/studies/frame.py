"""What a study is, and its measured rows, one for each point, of which its table, figures and findings are functions.

A study is a `Study` in a module of `ci/studies/declared`; nothing else is edited to add one.

Columns: those of a sweep (ci/sweeps/measured.py), those of the case's declaration and of the machine, every knob of a
launch and every dimension of a case under its own name, and what `with_derived` adds.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.points import Knobs
from ci.records import derived
from ci.sweeps.measured import Measured
from ci.trials.trial import SPACED, DeclaredCase, Trial

Value = bool | int | float | str
"""The value of a knob, as JSON holds it."""

Figures = tuple[str, Figure | None]
"""Name and figure; None where no row has a value to draw."""


class StudyError(ValueError):
    """A study that cannot be followed; the text names the study, the value and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Tried:
    """Points of one backend: what is laid over its config().

    knobs: values by name; every combination of them is a point (each: one knob at a time instead).
    points, candidates: knob sets written out, or the backend's own; every combination is laid over each of them.
    arches: architectures that have these knobs, by prefix ("gfx"); () is all.
    cases: patterns, of the part's cases only these; () is all.
    """

    backend: str = "triton"
    knobs: Mapping[str, Sequence[Value]] = dataclasses.field(default_factory=dict)
    points: tuple[Mapping[str, Value], ...] = ()
    candidates: bool = False
    each: bool = False
    arches: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()

    def on(self, arch: str) -> bool:
        """Whether an architecture has these knobs."""
        return not self.arches or arch.startswith(self.arches)

    def at(self, case: str) -> bool:
        """Whether a case takes part."""
        return not self.cases or any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)

    def combinations(self) -> list[Knobs]:
        """Every combination of the values (with `each` every value of every knob alone); one empty set for none."""
        if self.each:
            return [{name: value} for name, values in self.knobs.items() for value in values]
        return [dict(zip(self.knobs, values, strict=True)) for values in itertools.product(*self.knobs.values())]


@dataclasses.dataclass(frozen=True)
class StudyPart:
    """Points of one operator.

    cases: patterns of case names, of any tier.  ranks: the world sizes of them that are wanted.
    anchor: the backend whose default configuration every batch holds; ratios refer to it.
    arms: other backends and baselines, in their default configuration; what a machine lacks is named and left out.
    """

    operator: str
    cases: tuple[str, ...]
    anchor: str = "triton"
    arms: tuple[str, ...] = ()
    tried: tuple[Tried, ...] = ()
    ranks: tuple[int, ...] = (1,)

    def has(self, case: str, world: int) -> bool:
        """Whether a case belongs to it."""
        return world in self.ranks and any(fnmatch.fnmatchcase(case, pattern) for pattern in self.cases)


@dataclasses.dataclass(frozen=True)
class Study:
    """A declared experiment.

    question: what a reader wants to know.  source: where the experiment comes from.
    table: the table, from the measured rows.  figures: names and figures of the measured rows; a figure without rows is
    not made.  findings: rules and means as sentences.
    halving: poor points are dropped early; otherwise every point has all rounds in every trial.
    whole_call: also the time of a call from the host's side, from before it is enqueued until it is complete.
    """

    name: str
    title: str
    question: str
    source: str
    parts: tuple[StudyPart, ...]
    table: Callable[[pd.DataFrame], pd.DataFrame]
    figures: Callable[[pd.DataFrame], Iterable[Figures]]
    findings: Callable[[pd.DataFrame], Iterable[str]] = lambda rows: ()
    trials: int = 3
    rounds: int = 20
    halving: bool = False
    whole_call: bool = False

    @property
    def operators(self) -> tuple[str, ...]:
        """Its operators, in the order of the parts."""
        return tuple(dict.fromkeys(part.operator for part in self.parts))

    def has(self, trial: Trial) -> bool:
        """Whether a trial is a line of it."""
        if not trial.sweep or trial.sweep.regime != SPACED:
            return False
        declared = trial.declaration()
        cases = [
            declared.cases.get(case, DeclaredCase(case)) if declared else DeclaredCase(case) for case in trial.cases
        ]
        parts = [part for part in self.parts if part.operator == trial.operator]
        return any(part.has(case.name, case.world) for part in parts for case in cases)


Series = pd.Series

KEYS = ["machine", "operator", "case", "backend", "point", "regime"]
"""What tells two points apart."""

PLACE = ["machine", "regime", "operator"]
"""Columns in which rows must agree before they are compared."""

HEADINGS = {
    "us": "time, µs",
    "kernel_us": "kernel time, µs",
    "total_us": "total time of one call, host to host, µs",
    "roofline_us": "roofline time, µs",
    "roofline_percent": "share of roofline, %",
    "peak_percent": "share of peak, %",
    "tflops": "speed, TFLOPS",
    "gbs": "HBM bandwidth, GB/s",
    "busbw": "busbw, GB/s",
    "baseline_ratio": "time of the fastest baseline / time",
    "intensity": "intensity, FLOP/byte",
    "ratio": "time / time of the anchor",
    "low": "lower end",
    "high": "upper end",
    "setting": "changed knobs",
    "launch": "configuration",
    "cus": "CUs",
    "loss": "best time with this value / best time",
}
"""What stands over a column of a table and along an axis, with its unit, where its name does not say it."""

# ---- from what was measured ------------------------------------------------------------------------------------------


def of_sweeps(measured: Iterable[Measured]) -> pd.DataFrame:
    """The rows of measured sweeps, with what the declaration and the machine say of each, and every derived column."""
    frames = [_rows_of_sweep(sweep) for sweep in measured]
    return with_derived(pd.concat(frames, ignore_index=True)) if frames else pd.DataFrame()


def _rows_of_sweep(measured: Measured) -> pd.DataFrame:
    frame, of_case, baseline = measured.frame, [], []
    for operator, case, backend in frame[["operator", "case", "backend"]].itertuples(index=False):
        declaration = measured.declarations.get(operator)
        declared = (declaration.cases if declaration else {}).get(case, DeclaredCase(case))
        cost = dataclasses.asdict(declared.cost)
        of_case.append({"dims": dict(declared.shape), "dtype": declared.dtype, "world": declared.world, **cost})
        baseline.append(bool(declaration and backend in declaration.baselines))
    names = ("arch", "device", "market_name", "compute_units", "chip_id", "memory_bytes", "kind", "count")
    machine = {name: getattr(measured.machine, name) for name in names}
    return pd.concat([frame, pd.DataFrame(of_case, index=frame.index)], axis=1).assign(
        **{name: math.nan if value is None else value for name, value in machine.items()},
        machine=measured.machine.name,
        env=measured.origin.env,
        commit=measured.origin.commit or "",
        kernel=frame["operator"],
        baseline=baseline,
    )


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


def listed(rows: pd.DataFrame, keys: Sequence[str], columns: Sequence[str], spread: str = "") -> pd.DataFrame:
    """A table: a row for each combination of the keys, sorted by them; of several rows of a combination the fastest.

    spread: a column whose values become columns, "VALUE: COLUMN".
    """
    index = [*keys, *filter(None, [spread])]
    rows = rows.reindex(columns=list(dict.fromkeys([*index, *columns, "seconds"])))
    rows = rows.sort_values("seconds", kind="stable").drop_duplicates(index)
    rows = rows.sort_values(index, kind="stable", key=_by_size)
    if not spread:
        return rows[[*keys, *columns]].reset_index(drop=True)
    wide = rows.pivot(index=list(keys), columns=spread, values=list(columns))
    wide.columns = wide.columns.map(lambda pair: f"{pair[1]}: {pair[0]}")
    return wide.reset_index()


def _by_size(values: Series) -> Series:
    """Numbers by size, everything else by its text."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    return values.astype(str) if numbers.isna().any() else numbers


def each(of: Callable[..., Any], *names: str) -> Callable[[pd.DataFrame], list[Any]]:
    """A column of a function of other columns, row by row."""
    return lambda rows: [of(*row) for row in zip(*(rows[name] for name in names), strict=True)]


# ---- derived columns -------------------------------------------------------------------------------------------------


def with_derived(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with HEADINGS' rates, the words of their launches, and every knob and dimension under its own name.

    us, roofline_us: µs.  tflops: of all ranks together; all other rates: of one rank (ci.records.rates).
    peak_percent: of the dense peak of the dtype.  intensity: FLOP per byte of HBM, NaN without FLOPs.
    operation: a grouped GEMM's product.  shape: N and K of the weights, else the case; series: with the backend.
    setting: what a point changes; launch: all of its knobs; tile: rows x columns x K step.
    """
    rows, peak_seconds = derived.derive(rows), derived.roofline_parts(rows)["compute"]
    rows = rows.assign(
        us=rows["seconds"].astype(float) * 1e6,
        roofline_us=rows["roofline_seconds"] * 1e6,
        roofline_percent=rows["peak_share"] * 100,
        peak_percent=(peak_seconds / rows["seconds"] * 100).where(rows["flops"] > 0),
        intensity=(rows["flops"] / rows["hbm_bytes"]).where(rows["flops"] > 0),
        operation=rows["operator"].astype(str).str.removeprefix("grouped_gemm_"),
        shape=each(_weights, "dims", "case")(rows),
        setting=each(setting, "knobs")(rows),
        launch=each(launch, "config")(rows),
        tile=each(tile, "config")(rows),
    )
    rows = rows.assign(series=each("{}, {}".format, "shape", "backend")(rows))
    values = [{**dims, **config} for dims, config in zip(rows["dims"], rows["config"], strict=True)]
    named = [name for name in dict.fromkeys(itertools.chain.from_iterable(values)) if name not in rows]
    columns = {name: [value.get(name) for value in values] for name in named}
    return pd.concat([rows, pd.DataFrame(columns, index=rows.index)], axis=1)


def tile(config: Knobs) -> str:
    """Rows x columns x K step of a tile, "128x256x64"; "" for a launch that has none."""
    sides = [config.get(name) for name in ("block_m", "block_n", "block_k")]
    return "x".join(str(side) for side in sides if side) if all(sides[1:]) else ""


def setting(knobs: Knobs) -> str:
    """What a point changes, "num_stages=4 group_m=16"; "default" for nothing."""
    return " ".join(f"{name}={value}" for name, value in sorted(knobs.items())) or "default"


def launch(config: Knobs) -> str:
    """All knobs of a launch, its tile first: "64x64x128 group_m=8 num_stages=3 num_warps=4 ..."."""
    sides = tile(config)
    rest = {key: value for key, value in config.items() if not (sides and key in ("block_m", "block_n", "block_k"))}
    return " ".join(filter(None, [sides, setting(rest) if rest else ""])) or "default"


def _weights(dims: Mapping[str, Any], case: str) -> str:
    return f"N {dims['N']}, K {dims['K']}" if {"N", "K"} <= dims.keys() else case


# Which choice of a knob for which cases, and what it loses: regret and marginals of measured points.


def losses(rows: pd.DataFrame, choice: str, keys: list[str]) -> pd.DataFrame:
    """What each value of a column loses in the cases of a group: a row for each group and value that was measured.

    `loss`: geometric mean, over the group's cases that have the value, of the best time with it / the best time of the
    case; `worst`: the largest of them; `cases`: how many there are.
    """
    best = rows.groupby(["operator", "case"], sort=False)["seconds"].min().rename("best")
    of_value = rows.groupby(["operator", "case", *keys, choice], sort=False, observed=True)["seconds"].min()
    reached = of_value.reset_index().join(best, on=["operator", "case"])
    reached["log"] = np.log(reached["seconds"] / reached["best"])
    grouped = reached.groupby([*keys, choice], observed=True)["log"]
    table = grouped.agg(loss="mean", worst="max", cases="size").reset_index()
    return table.assign(loss=np.exp(table["loss"]), worst=np.exp(table["worst"]))


def best_choices(rows: pd.DataFrame, choice: str, keys: list[str], text: str) -> Iterator[str]:
    """A sentence for each group of cases: the value that loses least among those that all of its cases have."""
    table = losses(rows[rows[choice].astype(str) != ""].dropna(subset=["seconds"]), choice, keys)
    for key, own in table.groupby(keys, sort=True):
        best = own[own["cases"] == own["cases"].max()].sort_values("loss", kind="stable").iloc[0]
        group = ", ".join(f"{part:.4g}" if isinstance(part, float) else str(part) for part in key)
        lost = f"loses {best['loss'] - 1:.1%} in the mean, {best['worst'] - 1:.1%} at worst"
        yield f"{text} {group}: {best[choice]}; {lost}; {best['cases']} cases"
