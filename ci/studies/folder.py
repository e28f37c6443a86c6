"""The folder of a study on a machine, `results/studies/NAME/MACHINE/`: its record, and all that is rendered from it.

trials.jsonl.gz     the lines that were measured (benchmarks.trial_file); everything else is derived from them
table.csv table.md  FIGURE.svg   study.json
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd

from ci.records import derived
from ci.report.document import Sheet, markdown
from ci.studies import plots
from ci.studies.frame import KEYS, belongs, of_sweeps
from ci.studies.types import Study, StudyError
from ci.sweeps.measured import Measured, read_all
from ci.whole_files import replace

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
