"""Rules of thumb from measured points: which choice for which range of a quantity, and what each rule loses.

A rule covers a range of one quantity (M, or tiles against CUs) and names one choice (a tile, a configuration).  Its
loss in a case is the time of that choice / the best time of the case - 1.  Of all ways to cut the quantity's values
into ranges, the one is taken whose losses are least, where every further rule must pay for itself; this is found
exactly, by dynamic programming over the cuts.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from ci.stats.types import FloatArray
from ci.studies.types import Finding

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
    best = []
    for start, end in best_cuts(each.to_numpy(), worth * len(times) / len(each)):
        low, high = each.index[start], each.index[end - 1]
        choice = str(each.iloc[start:end].sum().idxmin())
        mine = losses[choice][of.between(low, high)]
        known = mine.dropna()
        case = known.idxmax() if len(known) else mine.index[0]
        lost = (math.expm1(known.mean()), math.expm1(known.max()), str(case), len(mine), len(mine) - len(known))
        best.append(RuleOfThumb(float(low), float(high), choice, *lost))
    return best


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


def findings(
    rows: pd.DataFrame, title: str, quantity: str, choice: str, text: str, operators: Sequence[str] = ()
) -> Iterator[Finding]:
    """Rules of one backend's rows: which `choice` for which range of a `quantity` (`text`), by operator if named."""
    for operator in operators or dict.fromkeys(rows["operator"]):
        own = rows[rows["operator"] == operator]
        of_quantity = own.groupby("case")[quantity].first().astype(float)
        for rule in rules(seconds_by_choice(own, choice), of_quantity):
            prefix = f"{operator}, " if len(operators) > 1 else ""
            span = f"{rule.low:.4g}" if rule.low == rule.high else f"{rule.low:.4g} to {rule.high:.4g}"
            sentence = f"{prefix}{text} {span}: {rule.choice}"
            yield Finding(f"{title}: {sentence}", rule.mean_loss, f"{sentence}; {loss_text(rule)}")


def seconds_by_choice(rows: pd.DataFrame, choice: str) -> pd.DataFrame:
    """Seconds of the best point of each case (rows, by name) with each choice (columns)."""
    known = rows[rows[choice].astype(str) != ""].dropna(subset=["seconds"])
    return known.pivot_table(index="case", columns=choice, values="seconds", aggfunc="min", observed=True)


def loss_text(rule: RuleOfThumb) -> str:
    """What a rule loses, in words."""
    if math.isnan(rule.mean_loss):
        return "never measured together with its cases"
    lost = f"loses {rule.mean_loss:.1%} in the mean, {rule.worst_loss:.1%} at worst ({rule.worst_case})"
    return lost + (f"; {rule.absent} of {rule.cases} cases lack it" if rule.absent else f"; {rule.cases} cases")


def marginals(rows: pd.DataFrame, knob: str, group: str) -> pd.DataFrame:
    """What each value of a knob can reach: the best of all points that have it, against the best of the case.

    A row for each value and group: the knob, the group and `loss`, the geometric mean over the cases of best time with
    this value / best time.  A case without that value does not count.
    """
    best = rows.groupby("case", sort=False)["seconds"].min()
    reached = rows.groupby(["case", group, knob], sort=False, observed=True)["seconds"].min().reset_index()
    reached["loss"] = np.log(reached["seconds"] / reached["case"].map(best))
    means = reached.groupby([group, knob], sort=True, observed=True)["loss"].mean().reset_index()
    return means.assign(loss=np.exp(means["loss"]))
