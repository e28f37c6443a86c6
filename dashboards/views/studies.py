"""Studies: each declared experiment of each machine with its question, table, figures and rules (`results/studies`).

The page draws the pictures that matplotlib draws for paper: `dashboards.figures.studies` makes both from the SPEC and
the DATA that lie in a study's folder.  A folder that cannot be used is said on the page; the others are shown.
"""

from __future__ import annotations

import csv
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboards.figures.kinds import KEYS, picture
from dashboards.figures.lines import foot
from dashboards.figures.picture import FigureError
from dashboards.figures.spec import KNOWN, parse, read_data, read_spec
from dashboards.figures.sweeps import MEASURED, RecordedSweep, newest_sweeps, read_sweep
from dashboards.lanes import slug
from dashboards.views import CHARTS, Made, SiteInput, View, beside

ROOM = "studies"
SUFFIXES = (".png", ".svg", ".csv", ".json")
TABLES = ("table.csv", "table.md")


@dataclasses.dataclass(frozen=True)
class StudyFolder:
    """A study of a machine.  said: study.json; problem: why it cannot be used, "" if it can."""

    folder: Path
    said: Mapping[str, Any]
    problem: str = ""

    @property
    def path(self) -> str:
        """Of its data file and, below the root of the site, of its files."""
        return f"{slug(self.folder.parent.name)}/{slug(self.folder.name)}"

    @property
    def figures(self) -> list[str]:
        """Its figures whose files lie in the folder, in its order."""
        names = [str(name) for name in self.said.get("figures") or ()]
        return [name for name in names if name == Path(name).name and (self.folder / f"{name}.json").is_file()]


def read(results: Path) -> list[StudyFolder]:
    """All studies below a folder of records, by name and machine."""
    return [_read(path.parent) for path in sorted((results / ROOM).glob("*/*/study.json"))]


def _read(folder: Path) -> StudyFolder:
    try:
        said = json.loads((folder / "study.json").read_text())
        if not isinstance(said, dict):
            raise ValueError("it is not one object")
        return StudyFolder(folder, said)
    except (OSError, ValueError) as error:
        return StudyFolder(folder, {}, f"{_named(folder)}/study.json cannot be used ({error})")


def _named(folder: Path) -> str:
    return f"{ROOM}/{folder.parent.name}/{folder.name}"


# ---- what the page reads --------------------------------------------------------------------------------------------


def listed(study: StudyFolder) -> dict[str, Any]:
    """A line of the list of studies."""
    texts = {name: str(study.said.get(name) or "") for name in ("title", "question", "device", "commit", "date")}
    more = {name: str(study.said.get(name) or "") for name in ("versions", "regime", "source")}
    return {
        "name": study.folder.parent.name,
        "machine": study.folder.name,
        "operators": [str(one) for one in study.said.get("operators") or ()],
        "figures": len(study.figures),
        "waits": len(study.said.get("waits") or ()),
        "path": f"views/study/{study.path}",
        **texts,
        **more,
    }


def shown(study: StudyFolder) -> dict[str, Any]:
    """All of a study, which static/views/studies.js reads; "files" are addresses from the root of the site."""
    figures, problems = [], []
    for name in study.figures:
        try:
            figures.append({"name": name, **_figure(study.folder, name), "files": _addresses(study, _files_of(name))})
        except (FigureError, OSError) as error:
            problems.append(f"figure {name}: {error}".replace(f"{study.folder}/", ""))
    return {
        "figures": figures,
        "problems": problems,
        "table": _table(study.folder / "table.csv"),
        "files": _addresses(study, TABLES),
        "waits": [str(one) for one in study.said.get("waits") or ()],
        "guidance": [_rule(one) for one in study.said.get("guidance") or ()],
    }


def _figure(folder: Path, name: str) -> dict[str, Any]:
    spec = read_spec(folder / f"{name}.json", KEYS)
    made = picture(spec, read_data(folder / f"{name}.csv"))
    return {"picture": made, "foot": foot(spec, made)}


def _rule(said: Any) -> dict[str, Any]:
    """A rule as it is told: an object, or only its sentence."""
    if isinstance(said, Mapping):
        loses = said.get("loses")
        return {"rule": str(said.get("rule") or ""), "loses": loses if isinstance(loses, (int, float)) else None}
    return {"rule": str(said), "loses": None}


def _table(path: Path) -> dict[str, Any]:
    """{"columns": [{"key", "title", "number"}], "rows": [[cell]]}: cells of a column of numbers are numbers or null."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head, *rows = list(csv.reader(file)) or [[]]
    except (OSError, ValueError, csv.Error):
        head, rows = [], []
    rows = [row for row in rows if len(row) == len(head)]
    numeric = [all(_number(row[n]) is not None or not row[n] for row in rows) for n in range(len(head))]
    columns = [{"key": name, "title": _title(name), "number": numeric[n]} for n, name in enumerate(head)]
    cells = [[_number(cell) if numeric[n] else cell for n, cell in enumerate(row)] for row in rows]
    return {"columns": columns, "rows": cells}


def _title(name: str) -> str:
    """Heading of a column: with its unit where that is known; "triton: us" is a value spread over backends."""
    value, colon, column = name.rpartition(": ")
    known = KNOWN.get(column)
    return f"{value}{colon}{known.title if known else column}"


def _number(cell: str) -> float | int | None:
    try:
        value = float(cell)
    except ValueError:
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else value if value == value else None


# ---- files ----------------------------------------------------------------------------------------------------------


def _files_of(name: str) -> list[str]:
    return [f"{name}{suffix}" for suffix in SUFFIXES]


def _addresses(study: StudyFolder, names: Sequence[str]) -> list[dict[str, str]]:
    """What can be downloaded of these: [{"name", "href"}]."""
    there = [name for name in names if (study.folder / name).is_file()]
    return [{"name": name, "href": f"{ROOM}/{study.path}/{_safe(name)}"} for name in there]


def _safe(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    return f"{slug(stem)}.{suffix}"


def _studies(site: SiteInput) -> Made:
    found = read(site.results)
    good = [study for study in found if not study.problem]
    problems = [study.problem for study in found if study.problem]
    yield "views/studies", {"studies": [listed(study) for study in good], "problems": problems}
    for study in good:
        yield f"views/study/{study.path}", shown(study)
        for name in [*TABLES, *(file for figure in study.figures for file in _files_of(figure))]:
            if (study.folder / name).is_file():
                yield f"{ROOM}/{study.path}/{_safe(name)}", (study.folder / name).read_bytes()


VIEW = View(
    "studies",
    "Studies",
    _studies,
    template="views/alone.html",
    scripts=(*CHARTS, "views/experiments.js", "views/studies.js"),
    styles=("views/views.css", "views/machines.css", "views/studies.css"),
    shown=lambda site: bool(read(site.results)),
    of_folder=True,
)


# Sweeps: the newest recorded one of each operator and machine, its points beside their anchor, and the winners.


def listed_sweep(sweep: RecordedSweep) -> dict[str, Any]:
    """A line of the list of sweeps."""
    counts = {
        "cases": len({row["case"] for row in sweep.rows}),
        "points": len(sweep.rows),
        "measured": sum(row["status"] == MEASURED for row in sweep.rows),
        "faster": sum(row["beats"] for row in sweep.winners),
    }
    return {**sweep.facts, **counts, "path": sweep.path}


def shown_sweep(sweep: RecordedSweep) -> dict[str, Any]:
    """All of a sweep, which static/views/sweeps.js reads."""
    said, drawn = sweep.figure()
    try:
        made = picture(spec := parse(said, KEYS), drawn)
        shown_figure: dict[str, Any] | None = {"picture": made, "foot": foot(spec, made)}
    except FigureError:  # nothing of it was measured; the table says why
        shown_figure = None
    return {"figure": shown_figure, "winners": sweep.winners, "points": sweep.rows}


def _sweeps(site: SiteInput) -> Made:
    """What can be shown, and a sentence on each file that cannot."""
    found, problems = [], []
    for path in newest_sweeps(site.results):
        try:
            found.append(read_sweep(path))
        except (FigureError, OSError) as error:
            problems.append(str(error).replace(f"{site.results}/", ""))
    yield "views/sweeps", {"sweeps": [listed_sweep(sweep) for sweep in found], "problems": problems}
    for sweep in found:
        yield sweep.path, shown_sweep(sweep)
        yield from beside(sweep.path, sweep.rows)


SWEEPS = View(
    "sweeps",
    "Sweeps",
    _sweeps,
    template="views/alone.html",
    scripts=(*CHARTS, "views/experiments.js", "views/sweeps.js"),
    styles=("views/views.css", "views/machines.css", "views/studies.css"),
    shown=lambda site: bool(newest_sweeps(site.results)),
    of_folder=True,
)
