"""Which choice of a knob for which cases, and what it loses: regret and marginals of measured points."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd


def losses(rows: pd.DataFrame, choice: str, keys: str | list[str]) -> pd.DataFrame:
    """What each value of a column loses in the cases of a group: a row for each group and value that was measured.

    `loss`: geometric mean, over the group's cases that have the value, of the best time with it / the best time of the
    case; `worst`: the largest of them; `cases`: how many there are.
    """
    groups = [keys] if isinstance(keys, str) else keys
    best = rows.groupby(["operator", "case"], sort=False)["seconds"].min().rename("best")
    of_value = rows.groupby(["operator", "case", *groups, choice], sort=False, observed=True)["seconds"].min()
    reached = of_value.reset_index().join(best, on=["operator", "case"])
    reached["log"] = np.log(reached["seconds"] / reached["best"])
    grouped = reached.groupby([*groups, choice], observed=True)["log"]
    table = grouped.agg(loss="mean", worst="max", cases="size").reset_index()
    return table.assign(loss=np.exp(table["loss"]), worst=np.exp(table["worst"]))


def best_choices(rows: pd.DataFrame, choice: str, keys: str | list[str], text: str) -> Iterator[str]:
    """A sentence for each group of cases: the value that loses least among those that all of its cases have."""
    table = losses(rows[rows[choice].astype(str) != ""].dropna(subset=["seconds"]), choice, keys)
    for key, own in table.groupby(keys, sort=True):
        best = own[own["cases"] == own["cases"].max()].sort_values("loss", kind="stable").iloc[0]
        parts = key if isinstance(key, tuple) else (key,)
        group = ", ".join(f"{part:.4g}" if isinstance(part, float) else str(part) for part in parts)
        lost = f"loses {best['loss'] - 1:.1%} in the mean, {best['worst'] - 1:.1%} at worst"
        yield f"{text} {group}: {best[choice]}; {lost}; {best['cases']} cases"
