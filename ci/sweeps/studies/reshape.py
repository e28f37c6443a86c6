"""Rows of a figure that are made of several measured rows."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from benchmarks.studies import studies
from benchmarks.studies.types import Drawn
from ci.sweeps.studies.comparison import means


@dataclasses.dataclass(frozen=True)
class Reshape:
    """of: from the rows that a figure has chosen, with all columns that it names, to the rows that are drawn.

    makes: columns that are not there before.
    """

    of: Callable[[pd.DataFrame, Drawn], pd.DataFrame]
    makes: tuple[str, ...] = ()


def marginals(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """What each value of each knob can reach: the best of all points that have it, against the best of the case.

    The knobs are the `x` of the panels.  A row for each value and group: `axis`, its name; the knob itself; `loss`, the
    geometric mean over the cases of best time with this value / best time.  A case without that value does not count.
    """
    group = str(drawn.spec["group"])
    axes = [_column(panel["x"]) for panel in drawn.spec["panels"]]
    found = [_of_knob(frame, knob, group) for knob in axes]
    return pd.concat(found, ignore_index=True) if found else frame.iloc[:0]


def _of_knob(frame: pd.DataFrame, knob: str, group: str) -> pd.DataFrame:
    best = frame.groupby("case", sort=False)["seconds"].min()
    reached = frame.groupby(["case", group, knob], sort=False, observed=True)["seconds"].min().reset_index()
    reached["loss"] = np.log(reached["seconds"] / reached["case"].map(best))
    means = reached.groupby([group, knob], sort=True, observed=True)["loss"].mean().reset_index()
    return means.assign(loss=np.exp(means["loss"]), axis=knob)


def _column(said: object) -> str:
    return str(said["column"]) if isinstance(said, dict) else str(said)


def geometric_means(frame: pd.DataFrame, drawn: Drawn) -> pd.DataFrame:
    """The geometric means of the study's comparison: a row for each group of cases and backend."""
    wanted = next((one.compared for one in studies().values() if drawn in one.figures and one.compared), None)
    return means(frame, wanted) if wanted else frame.iloc[:0]


RESHAPES: dict[str, Reshape] = {
    "": Reshape(lambda frame, drawn: frame),
    "marginals": Reshape(marginals, ("axis", "loss")),
    "comparison": Reshape(geometric_means, ("rows_of", "mean_ratio")),
}
"""Every reshaping that a figure may name."""


def reshaped(frame: pd.DataFrame, drawn: Drawn, names: Sequence[str]) -> pd.DataFrame:
    """The rows of a figure with its columns: as they were measured, or as it reshapes them."""
    rows = RESHAPES[drawn.reshape].of(frame, drawn) if len(frame) else frame
    return (rows if drawn.reshape and len(frame) else rows[list(names)]).reset_index(drop=True)
