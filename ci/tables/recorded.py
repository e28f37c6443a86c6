"""The tables of recorded studies: results/studies/NAME/MACHINE/table.csv."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from ci.tables.csv_rows import CsvRows, TableFileError
from ci.tables.sheets import Sheet

TABLE = "table.csv"


@dataclass(frozen=True)
class StudyTable:
    """What a study found on one machine."""

    study: str
    machine: str
    path: Path


def find(name: str, machine: str, results: Path) -> list[StudyTable]:
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


def sheet(one: StudyTable) -> Sheet:
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
