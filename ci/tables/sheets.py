"""A comparison as sheets of text and as JSON; ratios that were printed beside it; recorded tables."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from ci.report.document import Sheet
from ci.report.words import plural
from ci.tables.compare import BOUND, AgainstBaseline, AgainstOne, RowGroup, RowRatio, TableComparison
from ci.tables.read import CsvRows, LeftOutOfTable, TableFileError

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


# Ratios that somebody printed beside the numbers, checked against them: a column `A/B` of a table with A and B, or a
# column `ratio`, of the two columns whose ratios it has.


RATIO = re.compile(r"([0-9]+(?:\.([0-9]+))?)\s*[x×]?")
"""A printed ratio, such as 1.203x: its digits behind the point say how exact it is."""


@dataclass(frozen=True)
class PrintedOff:
    """A printed ratio that its numbers do not have, or a text that is no ratio.  row: as the frame calls it."""

    row: int
    printed: str
    ratio: float


@dataclass(frozen=True)
class PrintedRatios:
    """A column of printed ratios of two others, which are empty where it has the ratios of no two.

    largest: the largest |printed - computed| of the rows, NaN where there are none.
    """

    column: str
    numerator: str
    denominator: str
    rows: int
    largest: float
    off: tuple[PrintedOff, ...]


def check_printed(
    frame: pd.DataFrame, printed: Sequence[tuple[str, str, str]], backends: Sequence[str] = ()
) -> tuple[PrintedRatios, ...]:
    """Each printed column against numerator / denominator; off by more than half of its last digit is named.

    frame: printed columns as text, backends as numbers.  printed: (column, numerator, denominator), the last two empty
    where the name does not say: then the two backends that most rows agree with, if at least half of the rows do.
    """
    return tuple(
        _checked(frame, *one) if one[1] else _found(frame, one[0], backends)
        for one in printed
        if {*filter(None, one)} <= {*frame.columns}
    )


def _found(frame: pd.DataFrame, column: str, backends: Sequence[str]) -> PrintedRatios:
    tried = [_checked(frame, column, *pair) for pair in itertools.permutations(backends, 2)]
    agreeing = [one for one in tried if 0 < one.rows >= 2 * len(one.off)]
    nothing = PrintedRatios(column, "", "", 0, math.nan, ())
    return max(agreeing, key=lambda one: one.rows - len(one.off), default=nothing)


def _checked(frame: pd.DataFrame, column: str, over: str, under: str) -> PrintedRatios:
    """Of the rows with a text and both numbers."""
    computed = frame[over] / frame[under]
    there = (frame[column] != "") & np.isfinite(computed)
    texts, computed = frame[column][there], computed[there]
    read = texts.str.extract(rf"^{RATIO.pattern}$")
    apart = (read[0].astype(float) - computed).abs()
    allowed = 0.5 * 10.0 ** -read[1].fillna("").str.len() * (1 + 1e-9)
    off = ~(apart <= allowed)
    rows = zip(texts.index[off].tolist(), texts[off], computed[off].tolist(), strict=True)
    named = tuple(PrintedOff(*one) for one in rows)
    return PrintedRatios(column, over, under, int(apart.notna().sum()), float(apart.max()), named)


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


def document(
    found: TableComparison, frame: pd.DataFrame, printed: Sequence[PrintedRatios], left_out: LeftOutOfTable
) -> Json:
    """Numbers that do not exist (no row to take them from) are null."""

    def rows(those: Iterable[RowRatio | PrintedOff]) -> list[Json]:
        keyed = ((one, frame.loc[one.row, list(found.keys)].to_dict()) for one in those)
        return [{"row": one.row, "key": key, **dataclasses.asdict(one)} for one, key in keyed]

    return {
        "rows": len(found.ratios),
        "baseline": found.baseline,
        "score": found.score,
        "keys": list(found.keys),
        "backends": {name: _against(one) for name, one in found.columns.items()},
        "groups": _groups(found),
        "worst": rows(found.worst),
        "regret": [
            {
                "backend": one.column,
                "candidates": list(one.picks),
                **_against(one.against),
                "picks": dict(one.picks),
                "groups": _groups(one),
                "worst_rows": rows(one.worst),
            }
            for one in found.regrets
        ],
        "printed": [
            {
                "column": one.column,
                "numerator": one.numerator or None,
                "denominator": one.denominator or None,
                "rows": one.rows,
                "largest_difference": _number(one.largest),
                "off": rows(one.off),
            }
            for one in printed
        ],
        "left_out": dict(left_out.counts),
        "remarks": left_out.all(),
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


def recorded_sheet(one: StudyTable) -> Sheet:
    """The table as it was recorded; a column of numbers stands on the right."""
    with one.path.open("rb") as raw:
        rows = [tuple(row) for _, row in CsvRows(raw, str(one.path))]
    if len(rows) < 2:
        raise TableFileError(f"{one.path} has no rows; `ridgeline study {one.study}` writes it again")
    header, *body = rows
    uneven = [i for i, row in enumerate(body, 1) if len(row) != len(header)]
    if uneven:
        raise TableFileError(f"{one.path}: row {uneven[0]} has another number of cells than the header; write it again")
    numbers = [i for i in range(len(header)) if all(_is_number(row[i]) for row in body)]
    texts = next((i for i in range(len(header), 0, -1) if i - 1 not in numbers), 0)
    return Sheet(f"{one.study} on {one.machine}", header, tuple(body), texts)


def _is_number(cell: str) -> bool:
    try:
        float(cell or "nan")
    except ValueError:
        return False
    return True
