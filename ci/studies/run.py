"""A study from its declaration to its files: its points, measured part by part as sweeps, and the folder that has them.

The folder of a study on a machine, `results/studies/NAME/MACHINE/`, has trials.jsonl.gz, the lines that were measured
(benchmarks.trial_file), and what is derived from them: table.csv, table.md, FIGURE.svg, study.json.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks.points import Knobs, Point
from benchmarks.shapes import some_of
from ci import harness
from ci.git.repository import LocalCheckout
from ci.records import derived
from ci.report.model import Sheet, markdown
from ci.studies import plots
from ci.studies.frame import KEYS, Study, StudyError, StudyPart, Tried, belongs, of_sweeps
from ci.sweeps import catalogue
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.measured import Measured, read_all
from ci.sweeps.pruning import PointCompiler, Pruned, Rungs, prune
from ci.sweeps.run import SweepPlan, measure, sweep_id
from ci.whole_files import replace

WHOLE_CALLS = 30
"""Calls timed from the host's side: a launch from Python scatters by some 5 % and the median of 30 by 1 % (1.25 * 5 % /
sqrt(30), the standard error of a median), and at 50 us a call they cost 5 ms with their flushes."""

# ---- from a declaration to points ------------------------------------------------------------------------------------


def points(part: StudyPart, offered: Catalogue, cases: Sequence[str] = ()) -> dict[str, list[Point]]:
    """By case, the plain arms of a part and its points, each once; the anchor is the first of the plain arms.

    cases: patterns, only these.  Raises StudyError where nothing matches, or a declared knob does not exist.
    """
    by_case: dict[str, dict[str, BackendOffer]] = {}
    for offer in offered.offers:
        if part.has(offer.case, offer.world):
            by_case.setdefault(offer.case, {})[offer.backend] = offer
    if not by_case:
        wanted = f"{', '.join(part.cases[:4])} on {' or '.join(map(str, part.ranks))} ranks"
        raise StudyError(f"no case of {part.operator} matches {wanted}; it has {some_of(offered.cases, 8)}")
    chosen = Tried(cases=tuple(cases))
    return {case: _points(part, case, of, offered.arch) for case, of in by_case.items() if chosen.at(case)}


def _points(part: StudyPart, case: str, offers: Mapping[str, BackendOffer], arch: str) -> list[Point]:
    arms = [Point(case, name) for name in (part.anchor, *part.arms) if name in offers]
    for tried in part.tried:
        offer = offers.get(tried.backend)
        if offer and not offer.why_not and tried.on(arch) and tried.at(case):
            arms += (Point(case, tried.backend, knobs) for knobs in overrides(tried, offer, part.operator))
    return list({point.label: point for point in arms}.values())


def overrides(tried: Tried, offer: BackendOffer, operator: str) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    for name in dict.fromkeys(name for knobs in (tried.knobs, *tried.points) for name in knobs):
        if name not in offer.knobs:
            has = f"its knobs are: {', '.join(offer.knobs) or 'none'}"
            raise StudyError(f"{operator}: backend {offer.backend} has no knob {name!r}; {has}")
    bases = [*(offer.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, combinations(tried)):
        yield offer.overrides({**offer.whole({}), **base, **change})


def combinations(tried: Tried) -> list[Knobs]:
    """Every combination of the values (or, with `each`, every value of every knob alone); one empty set for none."""
    if tried.each:
        return [{name: value} for name, values in tried.knobs.items() for value in values]
    return [dict(zip(tried.knobs, values, strict=True)) for values in itertools.product(*tried.knobs.values())]


@dataclasses.dataclass(frozen=True, eq=False)
class ReadyPart:
    """A part of a study on an architecture.  points: by case; compiler: by whose code some need no time."""

    part: StudyPart
    catalogue: Catalogue
    points: Mapping[str, Sequence[Point]]
    compiler: PointCompiler
    rungs: Rungs

    @functools.cached_property
    def pruned(self) -> Pruned:
        """What is left to be measured.  Compiling ahead takes seconds: it waits until it is the part's turn."""
        return prune(self.catalogue, self.points, self.anchors, self.compiler)

    @property
    def anchors(self) -> dict[str, str]:
        """The anchor of each case."""
        return dict.fromkeys(self.points, self.part.anchor)

    @property
    def world(self) -> int:
        """The most ranks of its cases."""
        return self.catalogue.world(self.points)


def ready(study: Study, tree: Path, console: Console, cases: Sequence[str], arch: str | None) -> list[ReadyPart]:
    """Every part of a study that has one of some cases (patterns; () is all).  StudyError where none has.

    arch: another one than this machine's, for which nothing is launched.
    """
    compiler = PointCompiler(tree, console, launched=arch is None)
    offered = {operator: catalogue.ask(operator, tree, arch=arch) for operator in study.operators}
    repeats = None if study.halving else (study.rounds,) * study.trials
    parts = []
    for part in study.parts:
        own = offered[part.operator]
        if wanted := points(part, own, cases):
            rungs = Rungs.of(part.operator, harness.machine_kind(), repeats or (), halving=study.halving)
            parts.append(ReadyPart(part, own, wanted, compiler, rungs))
    if not parts:
        raise StudyError(f"no case of the study {study.name} fits {', '.join(cases)}")
    return parts


# ---- measured --------------------------------------------------------------------------------------------------------


def measured(
    study: Study,
    parts: Sequence[ReadyPart],
    checkout: LocalCheckout,
    out: Path,
    budget_min: float | None,
    console: Console,
) -> list[str]:
    """Measure what the file lacks, part by part; a sentence on what is left of each.  KeyboardInterrupt on Ctrl-C."""
    left, began = list[str](), time.monotonic()
    for number, ready_part in enumerate(parts, 1):
        operator, pruned = ready_part.part.operator, ready_part.pruned
        console.print(f"{study.name}, part {number} of {len(parts)}: {operator}, {len(ready_part.points)} cases")
        if not pruned.count:
            continue
        spent_min = (time.monotonic() - began) / 60 * ready_part.world
        plan = SweepPlan(
            sweep_id(operator, checkout, ready_part.rungs, out),
            operator,
            checkout,
            pruned,
            ready_part.anchors,
            out,
            ready_part.rungs,
            budget_min=None if budget_min is None else max(budget_min - spent_min, 0.0),
            world=ready_part.world,
            shared=True,
            whole_calls=WHOLE_CALLS if study.whole_call else 0,
        )
        ended = measure(plan, console)
        if ended.left:
            left.append(f"{operator}: {ended.left.count} points are not measured yet: {ended.why}")
    if not out.exists():
        why = [*left, *(dropped.why for part in parts for dropped in part.pruned.dropped)]
        nothing = "; ".join(dict.fromkeys(why[:3])) or "no point is left"
        raise StudyError(f"the study {study.name} measured nothing: {nothing}")
    return left


# ---- a dry run -------------------------------------------------------------------------------------------------------


def planned(parts: Sequence[ReadyPart]) -> list[dict[str, object]]:
    """What would be measured, part by part, as JSON values."""
    return [
        {
            "operator": part.part.operator,
            "arch": part.catalogue.arch,
            "ranks": list(part.part.ranks),
            "cases": len(part.points),
            "points": sum(map(len, part.points.values())),
            "measured": part.pruned.count,
            "left_out": part.pruned.reasons(),
        }
        for part in parts
    ]


# ---- the folder of a study on a machine: its record, and all that is rendered from it --------------------------------

RECORD = "trials.jsonl.gz"


@dataclasses.dataclass(frozen=True, eq=False)
class StudyRows:
    """What one machine measured of a study.  facts: where and when.  lines: those that its record should keep."""

    machine: str
    frame: pd.DataFrame
    facts: dict[str, str]
    lines: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What a study came to on a machine.  waits: what is not measured, and why."""

    folder: Path
    table: pd.DataFrame
    figures: tuple[str, ...]
    waits: tuple[str, ...]
    findings: tuple[str, ...]


def folder_of(results: Path, study: str, machine: str) -> Path:
    """Where a study of a machine is kept; `studies` is a folder of results beside those of machines."""
    return results / "studies" / study / machine


def keep(folder: Path, lines: Iterable[str]) -> None:
    """Add lines to the record of a folder, each once, in the order of their moments; the same lines, the same bytes."""
    path = folder / RECORD
    old = gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []
    by_id = {json.loads(line)["id"]: line for line in (*old, *lines) if line.strip()}
    ordered = sorted(by_id.items(), key=lambda entry: (json.loads(entry[1])["started_at"], entry[0]))
    text = "".join(f"{line}\n" for _, line in ordered)
    replace(path, gzip.compress(text.encode(), mtime=0))


def render(study: Study, measured: StudyRows, folder: Path, remarks: Sequence[str] = ()) -> Rendered:
    """Write table, figures and study.json from the rows of one machine; remarks: what else is not measured."""
    rows, facts = measured.frame, measured.facts
    table, findings, drawn = study.table(rows), tuple(study.findings(rows)), []
    with plots.style():
        for name, figure in study.figures(rows):
            if figure is not None:
                plots.save(figure, folder / f"{name}.svg", "; ".join(filter(None, facts.values())))
                drawn.append(name)
    waits = (*waiting(study, rows), *remarks)
    _write_table(folder / "table", table, study.title, [*findings, *waits])
    declared = {name: getattr(study, name) for name in ("name", "title", "question", "source", "operators")}
    made = {"figures": drawn, "waits": waits, "guidance": findings}
    replace(folder / "study.json", json.dumps({**declared, **facts, **made}, indent=1) + "\n")
    return Rendered(folder, table, tuple(drawn), waits, findings)


def _write_table(stem: Path, table: pd.DataFrame, title: str, remarks: Iterable[str] = ()) -> None:
    """As CSV with full precision, and as Markdown with headings that say the unit; remarks follow as a list."""
    replace(stem.with_suffix(".csv"), table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))
    heads = [f"{value}{colon}{plots.heading(name)}" for value, colon, name in (str(c).rpartition(": ") for c in table)]
    cells = [tuple(map(_cell, row)) for row in table.itertuples(index=False, name=None)]
    texts = next((n for n, name in enumerate(table) if pd.api.types.is_numeric_dtype(table[name])), len(heads))
    body = markdown(Sheet(title, tuple(heads), tuple(cells), texts))
    replace(stem.with_suffix(".md"), body + "".join(f"\n- {remark}" for remark in remarks) + "\n")


def _cell(value: object) -> str:
    if isinstance(value, float) and value == value:
        return f"{value:.4g}" if abs(value) < 1e4 else f"{value:.0f}"
    return "" if value is None or value != value else str(value)


def waiting(study: Study, rows: pd.DataFrame) -> list[str]:
    """A sentence for each part and number of ranks without a time, and for each kind of point that has none."""
    gpus, without = int(rows["count"].max()), rows[rows["status"] != "ok"]
    sentences = []
    for part in study.parts:
        there = set(rows["world"][(rows["operator"] == part.operator) & (rows["status"] == "ok")])
        for ranks in (ranks for ranks in part.ranks if ranks not in there):
            needs = "not measured yet" if ranks <= gpus else f"waits for {ranks} GPUs; this machine has {gpus}"
            sentences.append(f"{part.operator} on {ranks} ranks: {needs}")
    without = without[without["world"] <= gpus]
    for (operator, backend, status), own in without.groupby(["operator", "backend", "status"], observed=True):
        most = own["why"].astype(str).value_counts()
        sentences.append(f"{operator}, {backend}: {len(own)} {status}: {most.index[0]} ({most.iloc[0]} of them)")
    return sentences


# ---- the rows of a study from what was measured before ---------------------------------------------------------------


ORDER = ["operator", "world", "case", "backend", "point"]
"""Of rows: the same lines give the same files, whatever order they come in."""


def read(study: Study, sources: Sequence[Path]) -> list[StudyRows]:
    """What trial files, and folders of the study on a machine, hold of it, by machine.  StudyError if that is nothing.

    Of a point that was measured twice the newest counts.
    """
    by_machine: dict[str, list[Measured]] = {}
    for sweep in read_all(path / RECORD if path.is_dir() else path for path in sources):
        by_machine.setdefault(sweep.origin.machine, []).append(sweep)
    rows = [_of_machine(study, machine, sweeps) for machine, sweeps in by_machine.items()]
    if not any(len(own.frame) for own in rows):
        named = ", ".join(map(str, sources))
        raise StudyError(f"{named}: nothing of the study {study.name}, which has {', '.join(study.operators)}")
    return [own for own in rows if len(own.frame)]


def _of_machine(study: Study, machine: str, sweeps: Iterable[Measured]) -> StudyRows:
    ordered = sorted(sweeps, key=lambda sweep: sweep.started_at)
    rows = of_sweeps(ordered)
    rows = rows[belongs(rows, study.parts) & (rows["regime"] == "spaced")].drop_duplicates(KEYS, keep="last")
    cases = set(zip(rows["operator"], rows["case"], strict=True))
    trials = [trial for sweep in ordered for trial in sweep.trials]
    lines = (trial.text for trial in trials if {(trial.operator, case) for case in trial.cases} & cases)
    versions = ", ".join(dict.fromkeys(f"Python {sweep.environment.python}, {sweep.versions}" for sweep in ordered))
    date = max((sweep.started_at[:10] for sweep in ordered), default="")
    rows = rows.sort_values(ORDER, kind="stable").reset_index(drop=True)
    return StudyRows(machine, rows, _facts(rows, versions, date), tuple(lines))


def _facts(rows: pd.DataFrame, versions: str, date: str) -> dict[str, str]:
    """Where and when the rows of one machine come from; {} without rows."""
    if not len(rows):
        return {}
    row, commits = rows.iloc[0], dict.fromkeys(str(commit)[:8] for commit in rows["commit"] if commit)
    hardware = derived.hardware_of(row)
    device = hardware.market_name if hardware else str(row["device"])
    commit = ", ".join(commits) or "local changes"
    return {"machine": str(row["machine"]), "device": device, "versions": versions, "commit": commit, "date": date}
