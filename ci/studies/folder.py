"""The folder of a study on a machine, `results/studies/NAME/MACHINE/`: its record, and all that is rendered from it.

trials.jsonl.gz     the lines that were measured (benchmarks.trial_file); everything else is derived from them
checks/NAME.jsonl   of parts that are not timed: is every backend right (`ridgeline verify`)
code.json           the machine code of the points, where a study asks for it; code.csv and code.md are made of it
table.csv table.md  FIGURE.svg   study.json
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd

from ci.records import derived, store
from ci.records.checks import GOOD, CaseCheck, case_checks
from ci.report.markdown import code, text
from ci.studies import changes, plots
from ci.studies.frame import KEYS, of_records, of_sweeps, quantity, ranks_text
from ci.studies.types import Change, Finding, Study, StudyError, StudyPart
from ci.sweeps.measured import Measured, read_all
from ci.whole_files import replace

ROOM = "studies"
"""The folder of results that is no machine: `results/studies`."""

RECORD = "trials.jsonl.gz"

CHECKS = "checks"
"""Folder beside the trial file of a study, with the checks of its parts that are not timed."""


@dataclasses.dataclass(frozen=True)
class Foot:
    """What stands below every figure: where and when its numbers come from; what is not known is empty."""

    machine: str
    versions: str
    commit: str
    date: str
    regime: str


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What a study came to on a machine.  waits: what is not measured, and why."""

    folder: Path
    table: pd.DataFrame
    figures: tuple[str, ...]
    waits: tuple[str, ...]
    findings: tuple[Finding, ...]


def folder_of(results: Path, study: str, machine: str, regime: str = "spaced") -> Path:
    """Where a study of a machine is kept; what calls took under another regime is beside it."""
    return results / ROOM / study / (machine if regime == "spaced" else f"{machine}-{regime}")


def keep(folder: Path, lines: Iterable[str]) -> Path:
    """Add lines to the record of a folder, each once, in the order of their moments; the same lines, the same bytes."""
    path = folder / RECORD
    old = gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []
    by_id = {json.loads(line)["id"]: line for line in (*old, *lines) if line.strip()}
    ordered = sorted(by_id.items(), key=lambda entry: (json.loads(entry[1])["started_at"], entry[0]))
    text = "".join(f"{line}\n" for _, line in ordered)
    replace(path, gzip.compress(text.encode(), mtime=0))
    return path


def render(
    study: Study,
    rows: pd.DataFrame,
    foot: Foot,
    folder: Path,
    remarks: Sequence[str] = (),
    checked: Sequence[Finding] = (),
) -> Rendered:
    """Write table, figures and study.json from the rows of one machine.  checked: findings of parts without times."""
    if study.code:
        rows = changes.with_code(rows, changes.read(folder))
        write_code(folder, study.changes)
    table = study.table(rows)
    findings = (*study.findings(rows), *checked)
    drawn = []
    with plots.style():
        for name, figure in study.figures(rows):
            if figure is not None:
                plots.save(figure, folder / f"{name}.svg", dataclasses.asdict(foot))
                drawn.append(name)
    waits = (*waiting(study, rows), *remarks)
    replace(folder / "table.csv", as_csv(table))
    replace(folder / "table.md", as_markdown(table, study.title, [*(one.sentence for one in findings), *waits]))
    replace(folder / "study.json", json.dumps(_summary(study, rows, foot, drawn, waits, findings), indent=1) + "\n")
    return Rendered(folder, table, tuple(drawn), waits, findings)


def keep_checks(folder: Path, study: str, beside: Iterable[Path]) -> None:
    """Take over the checks that were made with a trial file."""
    for path in (folder_of_checks / CHECKS / f"{study}.jsonl" for folder_of_checks in beside):
        if path.exists() and path.parent.parent != folder:
            replace(folder / CHECKS / path.name, path.read_bytes())


def keep_code(folder: Path, files: Iterable[Path]) -> None:
    """Take over the machine code that was compiled with a trial file (`changes.code_file`)."""
    for path in (changes.code_file(file) for file in files):
        if path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            replace(folder / changes.FILE, path.read_bytes())


def write_code(folder: Path, declared: Sequence[Change]) -> None:
    """The machine code before and after each change, for every architecture, as code.csv and code.md."""
    table = changes.code_before_and_after(changes.read(folder), declared)
    if len(table):
        replace(folder / "code.csv", as_csv(table))
        replace(folder / "code.md", as_markdown(table, "Machine code before and after each change"))


def _summary(
    study: Study,
    rows: pd.DataFrame,
    foot: Foot,
    drawn: Sequence[str],
    waits: Sequence[str],
    findings: Sequence[Finding],
) -> dict[str, object]:
    rules = [
        {"rule": finding.rule, "loses": None if math.isnan(finding.loses) else round(finding.loses, 6)}
        for finding in findings
    ]
    declared = {name: getattr(study, name) for name in ("name", "title", "question", "source")}
    where = {name: getattr(foot, name) for name in ("commit", "date", "versions", "regime")}
    machine = {name: str(rows[name].iloc[0]) for name in ("machine", "device")}
    rest = {"figures": list(drawn), "waits": list(waits), "guidance": rules}
    return {**declared, "operators": list(study.operators), **machine, **where, **rest}


# ---- what is not there -----------------------------------------------------------------------------------------------


def waiting(study: Study, frame: pd.DataFrame) -> list[str]:
    """A sentence for each part of a study without a time, and for each kind of point that has none."""
    count = int(frame["count"].max()) if len(frame) else 0
    timed = frame[frame["status"] == "ok"]
    sentences = []
    for part in (part for part in study.parts if not part.check):
        there = set(timed["world"][timed["operator"] == part.operator])
        lacking = [world for world in part.ranks if world not in there]
        if small := [world for world in lacking if world <= count]:
            sentences.append(f"{part.operator} on {ranks_text(small)} is not measured yet")
        if large := [world for world in lacking if world > count]:
            needs = f"waits for a machine with {ranks_text(large).replace('rank', 'GPU')}"
            sentences.append(f"{part.operator} on {ranks_text(large)} {needs}; this one has {count}")
    return [*sentences, *untimed(frame[frame["world"] <= count])]


def untimed(frame: pd.DataFrame) -> list[str]:
    """Points without a time, counted by operator, backend and status, with the reason that most of them have."""
    rows = frame.loc[frame["status"] != "ok", ["operator", "backend", "status", "why"]].astype(str)
    sentences = []
    for (operator, backend, status), own in rows.groupby(["operator", "backend", "status"])["why"]:
        why = Counter(own)
        [(first, count)] = why.most_common(1)
        others = f" ({count} of them; {len(why) - 1} other reasons)" if len(why) > 1 else ""
        sentences.append(f"{operator}, {backend}: {len(own)} {status}: {first}{others}")
    return sentences


# ---- where numbers come from -----------------------------------------------------------------------------------------


def foot_of(frame: pd.DataFrame, found: Sequence[Measured] = ()) -> Foot:
    """The foot of all figures of one machine's rows."""
    row = frame.iloc[0]
    hardware = derived.hardware_of(row)
    device = hardware.market_name if hardware else str(row["device"])
    commits = list(dict.fromkeys(str(sweep)[:8] for sweep in frame["commit"] if str(sweep)))
    dates = sorted(sweep.started_at[:10] for sweep in found if sweep.started_at)
    if not dates and "date" in frame:
        dates = [str(frame["date"].max())[:10]]
    return Foot(
        f"{device} ({row['machine']})",
        ", ".join(dict.fromkeys(f"Python {sweep.environment.python}, {sweep.versions}" for sweep in found))
        or ", ".join(dict.fromkeys(frame["env"].astype(str))),
        ", ".join(commits) or "local changes",
        dates[-1] if dates else "",
        ", ".join(dict.fromkeys(frame["regime"].astype(str))),
    )


# The table of a study, as CSV and Markdown.


def as_csv(table: pd.DataFrame) -> str:
    """The table with full precision; a value that is missing is an empty cell."""
    return str(table.to_csv(index=False, float_format="%.9g", lineterminator="\n"))


def as_markdown(table: pd.DataFrame, title: str, remarks: Iterable[str] = ()) -> str:
    """The table with headings that say the unit, below its title; remarks follow as a list."""
    heads = [_heading(str(name)) for name in table.columns]
    numeric = [bool(pd.api.types.is_numeric_dtype(table[name])) for name in table.columns]
    rule = "|".join("---:" if right else "---" for right in numeric)
    rows = [_row(table, row) for row in table.itertuples(index=False, name=None)]
    lines = [f"# {text(title)}", "", f"| {' | '.join(map(text, heads))} |", f"|{rule}|", *rows]
    bullets = [f"- {text(remark, 400)}" for remark in remarks]
    return "\n".join([*lines, *([""] if bullets else []), *bullets]) + "\n"


def _row(table: pd.DataFrame, row: Sequence[object]) -> str:
    return f"| {' | '.join(_cell(name, value) for name, value in zip(table.columns, row, strict=True))} |"


def _heading(name: str) -> str:
    value, colon, column = name.rpartition(": ")
    of = quantity(column)
    return f"{value}{colon}{of.heading if of else column}"


def _cell(name: object, value: object) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    of = quantity(str(name).rpartition(": ")[2])
    if isinstance(value, float):
        return f"{value:.{of.decimals}f}" if of else f"{value:g}"
    return code(value) if isinstance(value, str) and value else text(value)


# The rows of a study from what was measured before: trial files, its own record, or the records of all operators.


ORDER = ["operator", "world", "case", "backend", "point", "regime"]
"""Of rows: the same lines give the same files, whatever order they come in."""


@dataclasses.dataclass(frozen=True, eq=False)
class StudyRows:
    """What one machine measured of a study.  lines: those that its record should keep; folders: with checks."""

    machine: str
    frame: pd.DataFrame
    found: tuple[Measured, ...] = ()
    lines: tuple[str, ...] = ()
    regime: str = "spaced"


def of_files(study: Study, paths: Iterable[Path]) -> list[StudyRows]:
    """The lines of a study in trial files, by machine and regime; of a point measured twice the newest counts."""
    by_machine: dict[str, list[Measured]] = {}
    for sweep in read_all(paths):
        by_machine.setdefault(sweep.origin.machine, []).append(sweep)
    return [rows for machine, found in by_machine.items() for rows in _of_machine(study, machine, found)]


def _of_machine(study: Study, machine: str, found: Iterable[Measured]) -> Iterator[StudyRows]:
    ordered = tuple(sorted(found, key=lambda sweep: sweep.started_at))
    frame = of_sweeps(ordered)
    points = [name for name in KEYS if name not in ("env", "commit")]
    mine = frame[_belongs(frame, study.parts)].drop_duplicates(points, keep="last")
    for regime, rows in mine.groupby("regime", sort=True):
        cases = set(zip(rows["operator"], rows["case"], strict=True))
        lines = tuple(
            trial.text
            for sweep in ordered
            for trial in sweep.trials
            if trial.sweep and trial.sweep.regime == regime and {(trial.operator, c) for c in trial.cases} & cases
        )
        rows = rows.sort_values(ORDER, kind="stable").reset_index(drop=True)
        yield StudyRows(machine, rows, ordered, lines, str(regime))


def _belongs(frame: pd.DataFrame, parts: Sequence[StudyPart]) -> list[bool]:
    rows = zip(frame["operator"], frame["case"], frame["world"], strict=True)
    return [
        any(part.operator == operator and part.has(case, int(world)) for part in parts)
        for operator, case, world in rows
    ]


def of_results(study: Study, results: Path) -> list[StudyRows]:
    """Plain arms of a study in the records of every machine: no knobs, and ratios without an interval."""
    rows = of_records(store.load(results), study.parts).sort_values(ORDER, kind="stable")
    return [StudyRows(str(name), own.reset_index(drop=True)) for name, own in rows.groupby("machine", sort=True)]


def read(study: Study, sources: Sequence[Path]) -> list[StudyRows]:
    """What files and a folder of records hold of a study.  StudyError if that is nothing.

    A folder is one of records (`results`), or the folder of a study on a machine.
    """
    files = [path / RECORD if (path / RECORD).exists() else path for path in sources]
    rows = of_files(study, [path for path in files if path.is_file()])
    for folder in (path for path in files if path.is_dir()):
        rows += of_results(study, folder)
    if not any(len(own.frame) for own in rows):
        named = ", ".join(map(str, sources))
        raise StudyError(f"{named}: nothing of the study {study.name}, which has {', '.join(study.operators)}")
    return rows


# ---- equal bits ------------------------------------------------------------------------------------------------------


def bits(study: Study, folders: Iterable[Path], machine: str) -> list[Finding]:
    """What the checks under some folders say of a study's parts that are not timed: who gives the reference's bits."""
    newest: dict[tuple[str, str], CaseCheck] = {}
    for check in (each for folder in folders for each in case_checks(folder)[0] if each.machine == machine):
        for part in study.parts:
            arms = (part.anchor, *part.arms)
            is_case = part.operator == check.kernel and part.has(check.case, check.world)
            if part.check and is_case and check.backend in arms:
                newest[check.case, check.backend] = check
    return [_bits_finding(check) for check in newest.values() if check.status != "unsupported"]


def _bits_finding(check: CaseCheck) -> Finding:
    if check.status != GOOD:
        text = f"{check.status}: {check.why}"
    else:
        text = "the reference's bits" if check.error == 0 else f"differs from the reference by {check.error:.2g} (norm)"
    rule = f"Equal bits, {check.case}, {check.backend}: {text}"
    return Finding(rule, float("nan"), f"{rule} (checked {check.at[:10]})")
