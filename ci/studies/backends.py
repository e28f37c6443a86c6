"""Backends side by side: the maths of a table (`ci.tables`) over the rows of a study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pandas as pd

from ci.studies.types import Finding
from ci.tables import Direction, Statistics, TableComparison, compare

ALL = "all"


def compare_backends(
    rows: pd.DataFrame,
    keys: Sequence[str],
    value: str,
    baseline: str,
    score: Direction,
    by: Sequence[Sequence[str]] = (),
    regret: Mapping[str, Sequence[str]] | None = None,
) -> TableComparison | None:
    """Ratios of every backend to the baseline; None where the baseline has no row.  Of several values of one place the
    best.  Arguments as of `ci.tables.compare`; regret: as far as it was measured."""
    best: Literal["max", "min"] = "max" if score == "higher" else "min"
    table = rows.dropna(subset=[value]).pivot_table(
        index=list(keys), columns=rows["backend"].astype(str), values=value, aggfunc=best, observed=True
    )
    backends = [str(name) for name in table.columns]
    table.columns.name = None
    if baseline not in backends:
        return None
    candidates = {
        chosen: [name for name in names if name in backends]
        for chosen, names in (regret or {}).items()
        if chosen in backends
    }
    candidates = {chosen: names for chosen, names in candidates.items() if names}
    return compare(table.reset_index(), keys, backends, baseline, score=score, by=by, regret=candidates)


def backend_findings(rows: pd.DataFrame, **compared: object) -> Iterator[Finding]:
    """Means, wins and regret of every backend in words: of all rows, then of each group (`compare_backends`)."""
    comparison = compare_backends(rows, **compared)  # type: ignore[arg-type]
    for sentence in _sentences(comparison) if comparison else ():
        yield Finding(sentence, float("nan"), sentence)


def backend_means(rows: pd.DataFrame, **compared: object) -> pd.DataFrame:
    """Geometric means for a figure: a row for each group and backend, `rows_of`, `backend` and `mean_ratio`."""
    comparison = compare_backends(rows, **compared)  # type: ignore[arg-type]
    means = [
        {"rows_of": title, "backend": name, "mean_ratio": against["geometric_mean"]}
        for title, columns in (_groups(comparison) if comparison else ())
        for name, against in columns.items()
        if against["rows"] and comparison and name != comparison.baseline
    ]
    return pd.DataFrame(means, columns=["rows_of", "backend", "mean_ratio"])


def _sentences(comparison: TableComparison) -> Iterator[str]:
    for title, columns in _groups(comparison):
        for name, against in columns.items():
            if name != comparison.baseline and against["rows"]:
                yield f"{title}: {name} {_against_text(against, comparison.baseline)}"
    for regret in comparison.regrets:
        best = ", ".join(f"{name} {count}" for name, count in regret.picks.items() if count)
        against = regret.against.columns[regret.column]
        yield (
            f"{regret.column} against the best of its candidates ({best}): {against['geometric_mean']:.3f} in the "
            f"geometric mean of {against['rows']} rows, {against['below']} below 0.95, worst {against['worst']:.3f}"
        )


def _against_text(against: Statistics, baseline: str) -> str:
    ties = f" and {against['ties']} {'tie' if against['ties'] == 1 else 'ties'}" if against["ties"] else ""
    return (
        f"{against['geometric_mean']:.3f} of {baseline} (geometric mean; ratio of means "
        f"{against['ratio_of_means']:.3f}, mean of ratios {against['mean_of_ratios']:.3f}), wins "
        f"{against['wins']}{ties} of {against['rows']}, {against['worst']:.3f} to {against['best']:.3f}"
    )


def _groups(comparison: TableComparison) -> Iterator[tuple[str, Mapping[str, Statistics]]]:
    for group in comparison.against.groups:
        yield ", ".join(map(str, group.key.values())) or ALL, group.columns
