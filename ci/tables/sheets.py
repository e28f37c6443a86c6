"""A comparison as sheets of text and as JSON; the tables of recorded studies."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ci.report.document import Sheet
from ci.report.words import plural
from ci.tables.compare import BOUND, AgainstBaseline, AgainstOne, RowGroup, RowRatio, TableComparison
from ci.tables.read import TableFile, TableFileError, read_text

NOTHING = "-"

FORMULA = {"higher": "value / {0}, higher is better", "lower": "{0} / value, lower is better"}


def ratio(value: float) -> str:
    """A ratio to 0.001, as published tables have it; very large and very small ones to four digits."""
    if not math.isfinite(value):
        return NOTHING
    return f"{value:.3f}" if 0.01 <= value < 1000 else f"{value:.3e}"


def sheets(found: TableComparison, frame: pd.DataFrame, bound: float = BOUND) -> list[Sheet]:
    """The whole comparison: all rows, each grouping, what choices lost, the worst rows."""
    title = f"{plural(len(found.ratios), 'row')}; ratio = {FORMULA[found.score].format(found.baseline)}"
    made = [*_by_grouping(found, title, "by {}", found.baseline, bound)]
    for one in found.regrets:
        picks = ", ".join(f"{name} {number}" for name, number in one.picks.items())
        best = f"{one.column} / the best of {', '.join(one.picks)} in each row; best in rows: {picks}"
        made += _by_grouping(one, best, f"{one.column} / the best, by {{}}", "", bound)
    if found.worst:
        header = ("row", *found.keys, "backend", "ratio", "value", found.baseline)
        rows = tuple(
            (str(one.row), *map(str, frame.loc[one.row, list(found.keys)]), one.backend, ratio(one.ratio))
            + (f"{one.value:g}", f"{one.baseline:g}")
            for one in found.worst
        )
        made.append(Sheet("worst rows", header, rows, len(found.keys) + 2))
    return made


def everything(found: TableComparison, bound: float) -> Sheet:
    """All rows and all groups in one sheet: a column for each key that is grouped by, empty where it is not."""
    names = tuple(dict.fromkeys(name for group in found.groups for name in group.key))
    return _statistics("", names, found.groups, found.baseline, bound)


def row_ratios(found: TableComparison, frame: pd.DataFrame) -> Sheet:
    """The table of ratios itself: keys, then the ratio of every column but the baseline."""
    columns = [name for name in found.ratios.columns if name != found.baseline]
    texts = [frame[name].astype(str).tolist() for name in found.keys]
    numbers = [[ratio(value) for value in found.ratios[name]] for name in columns]
    rows = zip(map(str, frame.index), *texts, *numbers, strict=True)
    title = f"ratio of each row = {FORMULA[found.score].format(found.baseline)}"
    return Sheet(title, ("row", *found.keys, *columns), tuple(rows), 1 + len(texts))


def _by_grouping(found: AgainstOne, title: str, grouped: str, baseline: str, bound: float) -> Iterator[Sheet]:
    """All rows, then each grouping.  baseline: a column that is left out."""
    for names, groups in itertools.groupby(found.groups, lambda group: tuple(group.key)):
        said = grouped.format(", ".join(names)) if names else title
        yield _statistics(said, names, groups, baseline, bound)


def _statistics(title: str, names: tuple[str, ...], groups: Iterable[RowGroup], baseline: str, bound: float) -> Sheet:
    """The statistics of every column but the baseline, whose ratios are all 1."""
    numbers = "rows", "ratio of means", "geometric mean", "mean of ratios", "wins", "ties", "losses", "worst", "best"
    header = (*names, "backend", *numbers, f"below {bound:g}")
    rows = tuple(
        (*(str(group.key.get(name, "")) for name in names), column, *_cells(one))
        for group in groups
        for column, one in group.columns.items()
        if column != baseline
    )
    return Sheet(title, header, rows, len(names) + 1, ("best", "losses", "mean of ratios", header[-1], "worst", "ties"))


def _cells(one: AgainstBaseline) -> tuple[str, ...]:
    averages = one.ratio_of_means, one.geometric_mean, one.mean_of_ratios
    counts = one.wins, one.ties, one.losses
    return str(one.rows), *map(ratio, averages), *map(str, counts), ratio(one.worst), ratio(one.best), str(one.below)


# A comparison as JSON, for machines: the shape that .github/ARCHITECTURE.md fixes, and more beside it.


Json = dict[str, object]

DEFINITIONS = {
    "ratio": "above 1 = better than the baseline: value / baseline where higher is better, else baseline / value",
    "mean": "ratio of arithmetic means over the rows that both have; the same as ratio_of_means",
    "geomean": "geometric mean of the ratios, which is the ratio of geometric means",
    "mean_of_ratios": "arithmetic mean of the ratios",
    "rows": "of the table, and of each backend those in which it and the baseline both have a number",
    "ties": "rows with equal numbers, or closer than --tie; wins + ties + losses = rows",
    "regret": "a column against the best of its candidates, row by row; 1 - ratio is what the choice gives away",
}


def document(comparison: TableComparison, table: TableFile) -> Json:
    """Numbers that do not exist (no row to take them from) are null."""

    def rows(ratios: Iterable[RowRatio]) -> list[Json]:
        keyed = ((ratio, table.frame.loc[ratio.row, list(comparison.keys)].to_dict()) for ratio in ratios)
        return [{"row": ratio.row, "key": key, **dataclasses.asdict(ratio)} for ratio, key in keyed]

    return {
        "rows": len(comparison.ratios),
        "baseline": comparison.baseline,
        "score": comparison.score,
        "keys": list(comparison.keys),
        "backends": {name: _against(one) for name, one in comparison.columns.items()},
        "groups": _groups(comparison),
        "worst": rows(comparison.worst),
        "regret": [
            {
                "backend": one.column,
                "candidates": list(one.picks),
                **_against(one.against),
                "picks": dict(one.picks),
                "groups": _groups(one),
                "worst_rows": rows(one.worst),
            }
            for one in comparison.regrets
        ],
        "left_out": dict(table.left_out),
        "remarks": list(table.remarks),
        "definitions": DEFINITIONS,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _against(one: AgainstBaseline) -> Json:
    told = dataclasses.asdict(one) | {"mean": one.ratio_of_means, "losses": one.losses}
    told["geomean"] = told.pop("geometric_mean")
    return {name: _number(value) for name, value in told.items()}


def _groups(found: AgainstOne) -> list[Json]:
    """All but the group of all rows."""
    told = ((one, {name: _against(each) for name, each in one.columns.items()}) for one in found.groups[1:])
    return [{"key": dict(one.key), "rows": one.rows, "backends": backends} for one, backends in told]


# The tables of recorded studies: results/studies/NAME/MACHINE/table.csv.


TABLE = "table.csv"


@dataclass(frozen=True)
class StudyTable:
    """What a study found on one machine."""

    study: str
    machine: str
    path: Path


def recorded_tables(name: str, machine: str, results: Path) -> list[StudyTable]:
    """The tables of a study, by machine; TableFileError says which studies and machines have one."""
    folder = results / "studies"
    there = [StudyTable(path.parts[-3], path.parts[-2], path) for path in sorted(folder.glob(f"*/*/{TABLE}"))]
    of_study = [one for one in there if one.study == name]
    if not of_study:
        raise TableFileError(_no_study(name, sorted({one.study for one in there}), folder))
    found = [one for one in of_study if machine in ("", one.machine)]
    if not found:
        known = ", ".join(one.machine for one in of_study)
        raise TableFileError(f"study {name} has no table of machine {machine!r}; it has one of {known}")
    return found


def _no_study(name: str, studies: list[str], folder: Path) -> str:
    near = difflib.get_close_matches(name, studies, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    known = f"studies with a table are {', '.join(studies)}" if studies else f"{folder} has no study with a table"
    return f"{name!r} is no file and no recorded study; {known}{hint}. `ridgeline study --list` names all"


def recorded_sheet(table: StudyTable) -> Sheet:
    """The table as it was recorded; a column of numbers stands on the right."""
    try:
        cells = read_text(str(table.path))
    except TableFileError as error:
        raise TableFileError(f"{error}; `ridgeline study {table.study}` writes it again") from None
    texts = [cells[name].eq("").all() or pd.to_numeric(cells[name], errors="coerce").isna().any() for name in cells]
    count = max((place for place, is_text in enumerate(texts, 1) if is_text), default=0)
    rows = tuple(cells.itertuples(index=False, name=None))
    return Sheet(f"{table.study} on {table.machine}", tuple(map(str, cells)), rows, count)
