"""A study from its declaration to its files: its points, measured part by part as sweeps, and the folder that has them.

The folder of a study on a machine, `results/studies/NAME/MACHINE/`, has trials.jsonl.gz, the lines that were measured
(benchmarks.trial_file), and what is derived from them: table.csv, table.md, FIGURE.svg, study.json.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import time
from collections.abc import Iterable, Iterator, Sequence
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
from ci.studies.frame import KEYS, Study, StudyError, StudyPart, Tried, of_sweeps
from ci.sweeps import catalogue
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.measured import gathered
from ci.sweeps.pruning import PointCompiler, Rungs, prune
from ci.sweeps.run import SweepPlan, measure, sweep_id
from ci.trials.file import read
from ci.trials.trial import Trial
from ci.whole_files import replace

WHOLE_CALLS = 30
"""Calls timed from the host's side: a launch from Python scatters by some 5 % and the median of 30 by 1 % (1.25 * 5 % /
sqrt(30), the standard error of a median), and at 50 us a call they cost 5 ms with their flushes."""

# ---- from a declaration to points, measured --------------------------------------------------------------------------


def points(part: StudyPart, offered: Catalogue, cases: Sequence[str] = ()) -> dict[str, list[Point]]:
    """By case, the plain arms of a part and its points, each once; the anchor is the first of the plain arms.

    cases: patterns, only these.  Cases of more ranks than there are GPUs are left out.  Raises StudyError where nothing
    matches, or a declared knob does not exist.
    """
    names = {offer.case: offer.world for offer in offered.offers if part.has(offer.case, offer.world)}
    if not names:
        wanted = f"{', '.join(part.cases[:4])} on {' or '.join(map(str, part.ranks))} ranks"
        raise StudyError(f"no case of {part.operator} matches {wanted}; it has {some_of(offered.cases, 8)}")
    chosen, most = Tried(cases=tuple(cases)), offered.devices or max(names.values())
    return {case: _points(part, case, offered) for case, world in names.items() if world <= most and chosen.at(case)}


def _points(part: StudyPart, case: str, offered: Catalogue) -> list[Point]:
    arms = [Point(case, name) for name in (part.anchor, *part.arms) if offered.of(case, name)]
    for tried in part.tried:
        offer = offered.of(case, tried.backend)
        if offer and not offer.why_not and tried.on(offered.arch) and tried.at(case):
            arms += (Point(case, tried.backend, knobs) for knobs in overrides(tried, offer))
    return list({point.label: point for point in arms}.values())


def overrides(tried: Tried, offer: BackendOffer) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    for name in itertools.chain(*tried.points, tried.knobs):
        if name not in offer.knobs:
            has = f"its knobs are: {', '.join(offer.knobs) or 'none'}"
            raise StudyError(f"{offer.operator}: backend {offer.backend} has no knob {name!r}; {has}")
    bases = [*(offer.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, tried.combinations()):
        yield offer.overrides({**offer.whole({}), **base, **change})


def plans(
    study: Study, checkout: LocalCheckout, out: Path, console: Console, cases: Sequence[str], arch: str | None
) -> Iterator[SweepPlan]:
    """A sweep for every part that has one of some cases (patterns; () is all).  StudyError where none has.

    arch: another one than this machine's, for which nothing is launched.  Points are compiled ahead, which takes
    seconds, when it is the part's turn.
    """
    compiler = PointCompiler(checkout.path, console, launched=arch is None)
    offered = {operator: catalogue.ask(operator, checkout.path, arch=arch) for operator in study.operators}
    parts = [(part, own) for part in study.parts if (own := points(part, offered[part.operator], cases))]
    if not parts:
        raise StudyError(f"no case of the study {study.name} fits {', '.join(cases) or 'the GPUs of this machine'}")
    repeats = () if study.halving else (study.rounds,) * study.trials
    for part, own in parts:
        operator, anchors = part.operator, dict.fromkeys(own, part.anchor)
        rungs = Rungs.of(operator, harness.machine_kind(), repeats, halving=study.halving)
        yield SweepPlan(
            sweep_id(operator, checkout, rungs, out),
            operator,
            checkout,
            prune(offered[operator], own, anchors, compiler),
            anchors,
            out,
            rungs,
            world=offered[operator].world(own),
            shared=True,
            whole_calls=WHOLE_CALLS if study.whole_call else 0,
        )


def measured(plans: Iterable[SweepPlan], budget_min: float | None, console: Console) -> list[str]:
    """Measure what the file lacks, the first trial of every part before the second of any: what ends early has all.

    Returns a sentence on what is left of each part.  KeyboardInterrupt on Ctrl-C.
    """
    left, dropped, began, out = list[str](), list[str](), time.monotonic(), None
    for trial in itertools.count(1):
        unfinished = []
        for plan in plans:
            if trial == 1:
                console.print(f"{plan.operator}: {len(plan.anchors)} cases")
                dropped += (point.why for point in plan.pruned.dropped)
                out = plan.out
            if not plan.pruned.count:
                continue
            part = dataclasses.replace(plan, budget_min=budget_min, rungs=plan.rungs.first(trial))
            if (ended := measure(part, console, began)).left:
                left.append(f"{plan.operator}: {ended.left.count} points are not measured yet: {ended.why}")
            elif len(part.rungs) < len(plan.rungs):
                unfinished.append(plan)
        if not unfinished:
            break
        plans = unfinished
    if out and not out.exists():
        nothing = "; ".join(dict.fromkeys([*left, *dropped][:3])) or "no point is left"
        raise StudyError(f"nothing was measured: {nothing}")
    return left


def planned(plan: SweepPlan) -> dict[str, object]:
    """What would be measured, as JSON values."""
    return {
        "operator": plan.operator,
        "ranks": plan.world,
        "cases": len(plan.anchors),
        "points": plan.pruned.point_count,
        "measured": plan.pruned.count,
        "left_out": plan.pruned.reasons(),
    }


# ---- the folder of a study on a machine: its record, and all that is rendered from it --------------------------------

RECORD = "trials.jsonl.gz"


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What a study came to on a machine.  waits: what is not measured, and why."""

    folder: Path
    table: pd.DataFrame
    figures: tuple[str, ...]
    waits: tuple[str, ...]
    findings: tuple[str, ...]


def _trials(study: Study, path: Path) -> list[Trial]:
    return [trial for trial in read(path).trials if study.has(trial)] if path.exists() else []


def keep(study: Study, sources: Sequence[Path], results: Path) -> list[Path]:
    """Add what trial files, and folders of the study, hold of it to the record of each machine; returns the folders.

    They are `results/studies/NAME/MACHINE`, beside the folders of machines.  A record has each line once, in the order
    of their moments; the same lines, the same bytes.  StudyError if no line is of the study.
    """
    trials = [trial for path in sources for trial in _trials(study, path / RECORD if path.is_dir() else path)]
    if not trials:
        named = ", ".join(map(str, sources))
        raise StudyError(f"{named}: nothing of the study {study.name}, which has {', '.join(study.operators)}")
    folders = []
    for machine in dict.fromkeys(trial.machine.name for trial in trials):
        folders.append(results / "studies" / study.name / machine)
        path, own = folders[-1] / RECORD, (trial for trial in trials if trial.machine.name == machine)
        by_id = {trial.id: trial for trial in (*_trials(study, path), *own)}
        ordered = sorted(by_id.values(), key=lambda trial: (trial.started_at, trial.id))
        text = "".join(f"{trial.text}\n" for trial in ordered)
        replace(path, gzip.compress(text.encode(), mtime=0))
    return folders


ORDER = ["operator", "world", "case", "backend", "point"]
"""Of rows: the same lines give the same files, whatever order they come in."""


def rows_of(study: Study, folder: Path) -> tuple[pd.DataFrame, dict[str, str]]:
    """The rows of the record of a folder, and where and when they come from.

    Of a point that was measured twice the newest counts.
    """
    sweeps = sorted(gathered(_trials(study, folder / RECORD)), key=lambda sweep: sweep.started_at)
    rows = of_sweeps(sweeps).drop_duplicates(KEYS, keep="last").sort_values(ORDER, kind="stable").reset_index(drop=True)
    row, hardware = rows.iloc[0], derived.hardware_of(rows.iloc[0])
    facts = {
        "machine": str(row["machine"]),
        "device": hardware.market_name if hardware else str(row["device"]),
        "versions": ", ".join(dict.fromkeys(f"Python {own.environment.python}, {own.versions}" for own in sweeps)),
        "commit": ", ".join(dict.fromkeys(commit[:8] for commit in rows["commit"] if commit)) or "local changes",
        "date": sweeps[-1].started_at[:10],
    }
    return rows, facts


def render(study: Study, folder: Path, remarks: Sequence[str] = ()) -> Rendered:
    """Write table, figures and study.json from the record of a folder; remarks: what else is not measured."""
    rows, facts = rows_of(study, folder)
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
