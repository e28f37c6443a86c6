"""Backends side by side: the maths of a table (`ci.tables`) over the rows of a study."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from benchmarks.studies.types import Compared, Study
from ci.sweeps.studies.columns import with_columns
from ci.sweeps.studies.rows import chosen
from ci.tables.compare import AgainstBaseline, Direction, RowGroup, TableComparison, compare

ALL = "all"


def wide(frame: pd.DataFrame, wanted: Compared) -> pd.DataFrame:
    """A row for each combination of the keys, a column for each backend; of several values of one place the best."""
    names = [*wanted.keys, wanted.value]
    rows = chosen(with_columns(frame, [*names, *wanted.rows.where]), wanted.rows).dropna(subset=[wanted.value])
    best = "max" if wanted.score == "higher" else "min"
    table = rows.assign(**{wanted.value: rows[wanted.value].astype(float)}).pivot_table(
        index=list(wanted.keys), columns=rows["backend"].astype(str), values=wanted.value, aggfunc=best, observed=True
    )
    table.columns.name = None
    return table.reset_index()


def compared(frame: pd.DataFrame, wanted: Compared) -> TableComparison | None:
    """The comparison; None where the baseline has no row."""
    table = wide(frame, wanted)
    columns = [str(name) for name in table.columns if name not in wanted.keys]
    if wanted.baseline not in columns:
        return None
    score: Direction = "higher" if wanted.score == "higher" else "lower"
    return compare(
        table,
        wanted.keys,
        columns,
        wanted.baseline,
        score=score,
        by=wanted.by,
        regret=_regret(wanted, columns),
        tie_percent=wanted.tie_percent,
    )


def _regret(wanted: Compared, columns: Sequence[str]) -> dict[str, list[str]]:
    """What was chosen and what it was chosen from, as far as it was measured."""
    found = {name: [one for one in given if one in columns] for name, given in wanted.regret.items() if name in columns}
    return {name: given for name, given in found.items() if given}


def sentences(study: Study, frame: pd.DataFrame) -> list[str]:
    """Means, wins and regret of every backend in words: of all rows, then of each group."""
    found = compared(frame, study.compared) if study.compared else None
    return list(_sentences(found)) if found else []


def _sentences(found: TableComparison) -> Iterator[str]:
    for title, columns in _groups(found):
        for name, one in columns.items():
            if name != found.baseline and one.rows:
                yield f"{title}: {name} {_against(one, found.baseline)}"
    for regret in found.regrets:
        best = ", ".join(f"{name} {count}" for name, count in regret.picks.items() if count)
        one = regret.against
        yield (
            f"{regret.column} against the best of its candidates ({best}): {one.geometric_mean:.3f} in the geometric "
            f"mean of {one.rows} rows, {one.below} below 0.95, worst {one.worst:.3f}"
        )


def _against(one: AgainstBaseline, baseline: str) -> str:
    ties = f" and {one.ties} {'tie' if one.ties == 1 else 'ties'}" if one.ties else ""
    return (
        f"{one.geometric_mean:.3f} of {baseline} (geometric mean; ratio of means {one.ratio_of_means:.3f}, mean of "
        f"ratios {one.mean_of_ratios:.3f}), wins {one.wins}{ties} of {one.rows}, {one.worst:.3f} to {one.best:.3f}"
    )


def _groups(found: TableComparison) -> Iterator[tuple[str, dict[str, AgainstBaseline]]]:
    yield ALL, dict(found.columns)
    for group in found.groups:
        yield _named(group), dict(group.columns)


def _named(group: RowGroup) -> str:
    return ", ".join(map(str, group.key.values()))


def means(frame: pd.DataFrame, wanted: Compared) -> pd.DataFrame:
    """Geometric means for a figure: a row for each group and backend, `rows_of`, `backend` and `mean_ratio`."""
    found = compared(frame, wanted)
    rows = [
        {"rows_of": title, "backend": name, "mean_ratio": one.geometric_mean}
        for title, columns in (_groups(found) if found else ())
        for name, one in columns.items()
        if one.rows and found and name != found.baseline
    ]
    return pd.DataFrame(rows, columns=["rows_of", "backend", "mean_ratio"])
