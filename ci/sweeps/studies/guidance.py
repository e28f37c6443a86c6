"""Rules of thumb from measured points: which choice for which range of a quantity, and what each rule loses.

A rule covers a range of one quantity (M, or tiles against CUs) and names one choice (a tile, a configuration).  Its
loss in a case is the time of that choice / the best time of the case - 1.  Of all ways to cut the quantity's values
into ranges, the one is taken whose losses are least, where every further rule must pay for itself; this is found
exactly, by dynamic programming over the cuts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pandas as pd

from ci.stats.types import FloatArray

WORTH = 0.01
"""A further rule must save this share of the time in the cases of one value of the quantity, or as much in all: the
indifference of a sweep (issue 14: the winner within 1 % of the best)."""

ABSENT = 1.0
"""Log-loss that a case adds where it was not measured with a rule's choice: more than any rule worth stating loses."""


@dataclasses.dataclass(frozen=True)
class RuleOfThumb:
    """From `low` to `high` of a quantity (both are values that were measured): take `choice`.

    mean_loss: geometric mean over its cases of time / best time, less 1; worst_loss: the largest, of worst_case.
    cases: how many it covers; absent: how many of them were not measured with the choice, and so do not count.
    """

    low: float
    high: float
    choice: str
    mean_loss: float
    worst_loss: float
    worst_case: str
    cases: int
    absent: int = 0


def rules(times: pd.DataFrame, quantity: pd.Series, worth: float = WORTH) -> list[RuleOfThumb]:
    """The best cut of a quantity into ranges with one choice each.

    times: seconds, a row for each case (index: its name), a column for each choice; NaN where it was not measured.
    quantity: by case.  Cases of equal quantity are in one range.
    """
    times = times.dropna(how="all").dropna(axis=1, how="all").sort_index(axis=1)
    if times.empty:
        return []
    of = quantity[times.index]
    losses = times.astype(float).div(times.min(axis=1), axis=0).transform(np.log)
    each = losses.fillna(ABSENT).groupby(of.to_numpy()).sum()
    found = []
    for start, end in best_cuts(each.to_numpy(), worth * len(times) / len(each)):
        low, high = each.index[start], each.index[end - 1]
        choice = str(each.iloc[start:end].sum().idxmin())
        mine = losses[choice][of.between(low, high)]
        known = mine.dropna()
        case = known.idxmax() if len(known) else mine.index[0]
        lost = (math.expm1(known.mean()), math.expm1(known.max()), str(case), len(mine), len(mine) - len(known))
        found.append(RuleOfThumb(float(low), float(high), choice, *lost))
    return found


def best_cuts(losses: FloatArray, price: float) -> list[tuple[int, int]]:
    """Ranges [start, end) of rows that cover all of them, at the least sum of losses and prices.

    losses: shape (values, choices), summed over the cases of a value; a range costs its least column sum + price.
    """
    count = len(losses)
    sums = np.vstack([np.zeros(losses.shape[1]), np.cumsum(losses, axis=0)])
    least, last = [0.0] + [math.inf] * count, [0] * (count + 1)
    for end in range(1, count + 1):
        for start in range(end):
            cost = least[start] + float((sums[end] - sums[start]).min()) + price
            if cost < least[end] - 1e-12:
                least[end], last[end] = cost, start
    found, end = list[tuple[int, int]](), count
    while end:
        found.append((last[end], end))
        end = last[end]
    return found[::-1]


# ---- what a study asks for -------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Guide:
    """A question that rules answer.  quantity, choice: columns of the frame; text: "M", "tiles / CUs".

    pick: of which rows (benchmarks.studies.types.PICKS): tiles are compared where nothing else differs.
    """

    title: str
    quantity: str
    choice: str
    text: str
    pick: str = "all"


GUIDES = {
    "tile_by_m": Guide("Which tile for which M", "M", "tile", "M", "tried"),
    "tile_by_rounds": Guide(
        "Tiles against CUs: which tile for which fill", "fill", "tile", "tiles of 128 x 128 / CUs", "tried"
    ),
    "streams_by_m": Guide("Serial or on several streams", "M", "setting", "tokens per expert"),
    "launch_by_m": Guide("Recommended configuration by M", "M", "launch", "M"),
}
"""Every guidance that a declaration may name."""


def by_choice(frame: pd.DataFrame, choice: str) -> pd.DataFrame:
    """Seconds of the best point of each case (rows, by name) with each choice (columns)."""
    known = frame[frame[choice].astype(str) != ""].dropna(subset=["seconds"])
    return known.pivot_table(index="case", columns=choice, values="seconds", aggfunc="min", observed=True)


def of_frame(frame: pd.DataFrame, name: str, column: Callable[[pd.DataFrame, str], pd.Series]) -> list[RuleOfThumb]:
    """The rules of a guidance, from the rows of one operator and backend."""
    guide = GUIDES[name]
    wide = frame.assign(**{one: column(frame, one) for one in (guide.quantity, guide.choice)})
    quantity = wide.groupby("case")[guide.quantity].first().astype(float)
    return rules(by_choice(wide, guide.choice), quantity)


def sentence(guide: Guide, rule: RuleOfThumb) -> str:
    """The rule as a line of text, without its loss."""
    span = f"{rule.low:.4g}" if rule.low == rule.high else f"{rule.low:.4g} to {rule.high:.4g}"
    return f"{guide.text} {span}: {rule.choice}"


def losing(rule: RuleOfThumb) -> str:
    """What it loses, in words."""
    if math.isnan(rule.mean_loss):
        return "never measured together with its cases"
    lost = f"loses {rule.mean_loss:.1%} in the mean, {rule.worst_loss:.1%} at worst ({rule.worst_case})"
    return lost + (f"; {rule.absent} of {rule.cases} cases lack it" if rule.absent else f"; {rule.cases} cases")
