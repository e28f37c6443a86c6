"""Studies: each declared experiment of each machine with its question, figures, table and rules; recorded sweeps.

A study draws its own figures (`results/studies/NAME/MACHINE/*.svg`); the page shows them as they are.  A folder that
cannot be used is told on the page; the others are shown.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ci.records import store
from ci.records.ledger import base_of, sweep_files
from ci.trials.file import Problem
from dashboards import charts, table
from dashboards.files import slug
from dashboards.frame import Site
from dashboards.table import BACKEND, Column, Piece, Table

ROOM = "studies"
FILES = ("table.csv", "table.md")


@dataclasses.dataclass(frozen=True)
class StudyFolder:
    """A study of a machine.  facts: study.json; problem: why it cannot be used, "" if it can."""

    folder: Path
    facts: Mapping[str, Any]
    problem: str = ""

    @property
    def path(self) -> str:
        """Of its files below the root of the site."""
        return f"{ROOM}/{slug(self.folder.parent.name)}/{slug(self.folder.name)}"

    @property
    def figures(self) -> list[Path]:
        """Its figures whose files lie in the folder, in its order."""
        names = [str(name) for name in self.facts.get("figures") or ()]
        paths = [self.folder / f"{name}.svg" for name in names if name == Path(name).name]
        return [path for path in paths if path.is_file()]


def read(results: Path) -> list[StudyFolder]:
    """All studies below a folder of records, by name and machine."""
    return [_read(path.parent) for path in sorted((results / ROOM).glob("*/*/study.json"))]


def _read(folder: Path) -> StudyFolder:
    try:
        facts = json.loads((folder / "study.json").read_text())
        if not isinstance(facts, dict):
            raise ValueError("it is not one object")
        return StudyFolder(folder, facts)
    except (OSError, ValueError) as error:
        where = f"{ROOM}/{folder.parent.name}/{folder.name}"
        return StudyFolder(folder, {}, f"{where}/study.json cannot be used ({error})")


def studies_files(site: Site) -> Iterator[tuple[str, Any]]:
    """studies: the list and the choice; study/NAME/MACHINE: the pieces of one; sweep/...: those of a sweep."""
    found = read(site.results)
    good = [one for one in found if not one.problem]
    pieces: list[Piece] = []
    if good:
        paths = {one.path.removeprefix(f"{ROOM}/"): f"study/{one.path.removeprefix(f'{ROOM}/')}" for one in good}
        options = [
            [name, f"{one.facts.get('title') or name} ({one.folder.name})"]
            for name, one in zip(paths, good, strict=True)
        ]
        pieces += [_listed(good).piece(), table.choice("study", "study", options, paths)]
        yield from ((paths[name], list(_study(one))) for name, one in zip(paths, good, strict=True))
    else:
        pieces.append(table.text("No study is recorded yet: `ridgeline study --help` lists what can be run.", "notice"))
    sweeps, problems = recorded_sweeps(site.results)
    if sweeps:
        options = [[name, f"{of.operator} on {of.machine}, {of.date}"] for name, of in sweeps.items()]
        paths = {name: f"sweep/{name}" for name in sweeps}
        pieces += [table.heading("Sweeps"), table.choice("sweep", "sweep", options, paths)]
        yield from ((f"sweep/{name}", list(_sweep(of))) for name, of in sweeps.items())
    problems += [one.problem for one in found if one.problem]
    pieces += [table.text(words.replace(f"{site.results}/", ""), "problem") for words in problems]
    yield "studies", {"title": "Studies", "pieces": pieces}


def files(site: Site) -> dict[str, bytes]:
    """Figures and tables of the studies, as they lie in the records."""
    return {
        f"{one.path}/{slug(path.stem)}{path.suffix}": path.read_bytes()
        for one in read(site.results)
        for path in (*one.figures, *(one.folder / name for name in FILES))
        if path.is_file()
    }


def _listed(found: Sequence[StudyFolder]) -> Table:
    columns = [
        Column("study", "study", "case"),
        Column("question", "question"),
        Column("machine", "machine"),
        Column("operators", "operators"),
        Column("date", "date", "date"),
    ]
    rows = []
    for one in found:
        link = f"#study={one.path.removeprefix(f'{ROOM}/')}"
        operators = ", ".join(str(name) for name in one.facts.get("operators") or ())
        texts = [str(one.facts.get(name) or "") for name in ("title", "question", "date")]
        rows.append([[texts[0] or one.folder.parent.name, link], texts[1], one.folder.name, operators, texts[2]])
    return Table("studies", "all studies", columns, rows)


def _study(one: StudyFolder) -> Iterator[Piece]:
    said = one.facts
    named = ("question", "source", "device", "commit", "date", "versions", "regime")
    yield table.facts([(name, str(said[name])) for name in named if said.get(name)])
    for rule in said.get("guidance") or ():
        yield table.text(str(rule), "notice")
    for path in one.figures:
        address = f"{one.path}/{slug(path.stem)}.svg"
        yield {
            "kind": "image",
            "source": address,
            "text": f"{path.stem} of {said.get('title') or one.folder.parent.name}",
        }
    for words in said.get("waits") or ():
        yield table.text(f"Not measured: {words}", "small")
    if (path := one.folder / "table.csv").is_file():
        yield csv_table(path, f"{one.folder.parent.name}-{one.folder.name}").piece(filter=True)
    links = [[name, f"{one.path}/{name}"] for name in FILES if (one.folder / name).is_file()]
    if links:
        yield {"kind": "links", "text": "Files", "links": links}


def csv_table(path: Path, name: str) -> Table:
    """The table of a CSV file; cells of a column of numbers are numbers.  Empty where it cannot be read."""
    try:
        frame = pd.read_csv(path, index_col=False, keep_default_na=False, na_values=[""])
    except (OSError, ValueError):
        frame = pd.DataFrame()
    texts = frame.columns.difference(frame.select_dtypes("number").columns)
    frame[texts] = frame[texts].fillna("").astype(str)
    columns = [Column(key, key, "text" if key in texts else "number") for key in frame]
    return Table(name, "the study's table", columns, frame.astype(object).where(frame.notna(), None).values.tolist())


# ---- sweeps ---------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class RecordedSweep:
    """The newest recorded sweep of an operator on a machine.  rows: `ci.sweeps.show.point_rows`, best first in a case;
    winners: a sentence for each case."""

    operator: str
    machine: str
    date: str
    commit: str
    versions: str
    rows: Sequence[Mapping[str, Any]]
    winners: Sequence[str]

    @classmethod
    def of(cls, measured: Any) -> RecordedSweep:
        """Of what is measured (`ci.sweeps.measured.Measured`)."""
        from ci.sweeps import show

        frame = measured.frame.sort_values(["operator", "case", "regime", "ratio"], kind="stable", na_position="last")
        rows = list(show.point_rows(frame))
        rankings = show.rankings(rows)
        winners = [f"{ranking.case}: {show.winner_sentence(ranking)}" for ranking in rankings]
        about = (str(frame["operator"].iloc[0]), measured.origin.machine, measured.started_at[:10])
        commit = (measured.origin.commit or "")[:8]
        return cls(*about, commit, measured.versions, rows, winners)


def recorded_sweeps(results: Path) -> tuple[dict[str, RecordedSweep], list[str]]:
    """By the name of its page, each machine's and operator's newest; a sentence on what cannot be used."""
    newest: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in sweep_files(results):
        started, operator = _first(path)
        key, base = (path.parent.name, operator), base_of(path)
        newest[key] = max(newest.get(key, ("", base)), (started, base))
    sweeps, problems = dict[str, RecordedSweep](), list[str]()
    for _, base in sorted(newest.values()):
        from ci.sweeps import measured  # judging comes with it; most sites have no sweep

        unread = list[Problem]()
        recorded = measured.gathered(store.recorded_trials(base, unread))
        problems += map(str, unread or ([] if recorded else [f"{base}: it has no line of a sweep"]))
        for sweep in map(RecordedSweep.of, recorded):
            sweeps[f"{slug(base.parent.name)}/{slug(sweep.operator)}"] = sweep
    return sweeps, problems


def _first(path: Path) -> tuple[str, str]:
    """Moment and operator of the first trial; of a file that has none, its name, so that its problem is told."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            line = next(line for line in map(json.loads, file) if "kernel" in line)
        return str(line["started_at"]), str(line["kernel"])
    except (OSError, ValueError, KeyError, TypeError, EOFError, StopIteration):
        return "", path.name


SWEEP = (
    Column("case", "case"),
    BACKEND,
    Column("knobs", "knobs"),
    Column("change", "longer than the anchor", "change"),
    Column("seconds", "time", "duration"),
    Column("status", "status", "status"),
    Column("trials", "trials", "number"),
    Column("rounds", "rounds", "number"),
)


def _sweep(sweep: RecordedSweep) -> Iterator[Piece]:
    """Winners of every case beside their anchor, then every point."""
    yield table.facts([(name, getattr(sweep, name)) for name in ("machine", "date", "commit", "versions")])
    yield from (table.text(words, "small") for words in sweep.winners)
    if chart := sweep_chart(sweep.operator, sweep.rows):
        yield chart
    cells = [
        [
            row["case"],
            row["backend"],
            row["knobs"] or "the default",
            [row[name] - 1 for name in ("ratio", "low", "high")] if row["low"] else None,
            row["seconds"],
            ["anchor" if row["is_anchor"] else "equal code" if row["equal_to"] else row["status"], row["why"]],
            row["trials"],
            row["rounds"],
        ]
        for row in sweep.rows
    ]
    points = Table(f"{sweep.operator}-sweep", "every point of the sweep", SWEEP, cells, group="case")
    yield points.folded(f"The {len(cells):,} points as a table")


def sweep_chart(operator: str, rows: Sequence[Mapping[str, Any]]) -> Piece | None:
    """Each point's time beside its anchor's, case by case; None where no point has one."""
    cases = list(dict.fromkeys(row["case"] for row in rows))
    timed = [row for row in rows if row["ratio"]]
    series = []
    for n, backend in enumerate(sorted({row["backend"] for row in timed})):
        own = [row for row in timed if row["backend"] == backend]
        data = [[cases.index(row["case"]), row["ratio"]] for row in own]
        tips = [f"{row['knobs'] or 'the default'}" for row in own]
        more = {"symbol": "circle", "symbolSize": 7, "tips": tips}
        series.append(charts.points(backend, data, f"--series-{n % charts.COLOURS}", **more))
    if not series:
        return None
    x = {"type": "category", "data": cases, "name": "case"}
    y = {"name": "time / the anchor's time (less is better)", "unit": "×", "type": "log", "scale": True}
    return charts.chart(f"points of {operator}", {"ratio": {"xAxis": x, "yAxis": y, "series": series}}, 320)
