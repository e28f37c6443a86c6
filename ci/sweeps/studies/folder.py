"""The folder of a study on a machine, `results/studies/NAME/MACHINE/`: its record, and all that is rendered from it.

trials.jsonl.gz     the lines that were measured (benchmarks.trial_file); everything else is derived from them
checks/NAME.jsonl   of parts that are not timed: is every backend right (`ridgeline verify`)
code.json           the machine code of the points, where a study asks for it; code.csv and code.md are made of it
table.csv table.md  FIGURE.json FIGURE.csv FIGURE.png FIGURE.svg   study.json
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

import pandas as pd
from rich.console import Console

from benchmarks.studies.types import Change, Rows, Study
from ci.records import derived
from ci.sweeps.measured import Measured
from ci.sweeps.studies import comparison, guidance
from ci.sweeps.studies.across import changes, code
from ci.sweeps.studies.columns import column, with_own
from ci.sweeps.studies.figures import Foot, draw
from ci.sweeps.studies.points import ranks_named
from ci.sweeps.studies.rows import chosen
from ci.sweeps.studies.tables import as_csv, as_markdown, table
from ci.whole_files import replace

ROOM = "studies"
"""The folder of results that is no machine: `results/studies`."""

RECORD = "trials.jsonl.gz"

CHECKS = "checks"
"""Folder beside the trial file of a study, with the checks of its parts that are not timed."""


@dataclasses.dataclass(frozen=True)
class Guided:
    """One rule in words.  loses: time over that of the best point - 1, in the mean of its cases; NaN if not known."""

    rule: str
    loses: float
    said: str


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What a study came to on a machine.  waits: what is not measured, and why."""

    folder: Path
    table: pd.DataFrame
    figures: tuple[str, ...]
    waits: tuple[str, ...]
    guided: tuple[Guided, ...]


def folder_of(results: Path, study: str, machine: str, regime: str = "spaced") -> Path:
    """Where a study of a machine is kept; what calls took under another regime is beside it."""
    return results / ROOM / study / (machine if regime == "spaced" else f"{machine}-{regime}")


def keep(folder: Path, lines: Iterable[str]) -> Path:
    """Add lines to the record of a folder, each once, in the order of their moments; the same lines, the same bytes."""
    path = folder / RECORD
    old = gzip.decompress(path.read_bytes()).decode().splitlines() if path.exists() else []
    by_id = {json.loads(line)["id"]: line for line in (*old, *lines) if line.strip()}
    ordered = sorted(by_id.items(), key=lambda one: (json.loads(one[1])["started_at"], one[0]))
    text = "".join(f"{line}\n" for _, line in ordered)
    replace(path, gzip.compress(text.encode(), mtime=0))
    return path


def render(
    study: Study,
    frame: pd.DataFrame,
    foot: Foot,
    folder: Path,
    console: Console,
    remarks: Sequence[str] = (),
    facts: Sequence[Guided] = (),
) -> Rendered:
    """Write table, figures and study.json from the rows of one machine.  facts: beside the rules that it derives."""
    if study.code:
        frame = code.attached(frame, code.read(folder))
        write_code(folder, study.changes)
    frame = with_own(study, frame)
    found = table(frame, study.table)
    means = [Guided(one, math.nan, one) for one in comparison.sentences(study, frame)]
    guided = (*guidance_of(study, frame), *means, *facts)
    drawn, missing = draw(study, frame, foot, folder, console)
    waits = (*waiting(study, frame), *missing, *remarks)
    replace(folder / "table.csv", as_csv(found))
    replace(folder / "table.md", as_markdown(found, study.title, [*(one.said for one in guided), *waits]))
    replace(folder / "study.json", json.dumps(_told(study, frame, foot, drawn, waits, guided), indent=1) + "\n")
    return Rendered(folder, found, tuple(drawn), waits, guided)


def keep_checks(folder: Path, study: str, beside: Iterable[Path]) -> None:
    """Take over the checks that were made with a trial file."""
    for path in (one / CHECKS / f"{study}.jsonl" for one in beside):
        if path.exists() and path.parent.parent != folder:
            replace(folder / CHECKS / path.name, path.read_bytes())


def keep_code(folder: Path, files: Iterable[Path]) -> None:
    """Take over the machine code that was compiled with a trial file (`code.beside`)."""
    for path in (code.beside(file) for file in files):
        if path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            replace(folder / code.FILE, path.read_bytes())


def write_code(folder: Path, declared: Sequence[Change]) -> None:
    """The machine code before and after each change, for every architecture, as code.csv and code.md."""
    found = changes.of_code(code.read(folder), declared)
    if len(found):
        replace(folder / "code.csv", as_csv(found))
        replace(folder / "code.md", as_markdown(found, "Machine code before and after each change"))


def _told(
    study: Study, frame: pd.DataFrame, foot: Foot, drawn: Sequence[str], waits: Sequence[str], guided: Sequence[Guided]
) -> dict[str, object]:
    rules = [{"rule": one.rule, "loses": None if math.isnan(one.loses) else round(one.loses, 6)} for one in guided]
    said = {name: getattr(study, name) for name in ("name", "title", "question", "source")}
    where = {name: getattr(foot, name) for name in ("commit", "date", "versions", "regime")}
    row = {name: str(frame[name].iloc[0]) for name in ("machine", "device")}
    rest = {"figures": list(drawn), "waits": list(waits), "guidance": rules}
    return {**said, "operators": list(study.operators), **row, **where, **rest}


# ---- what is not there -----------------------------------------------------------------------------------------------


def waiting(study: Study, frame: pd.DataFrame) -> list[str]:
    """A sentence for each part of a study without a time, and for each kind of point that has none."""
    count = int(frame["count"].max()) if len(frame) else 0
    timed = frame[frame["status"] == "ok"]
    found = []
    for part in (one for one in study.parts if not one.check):
        there = set(timed["world"][timed["operator"] == part.operator])
        lacking = [world for world in part.ranks if world not in there]
        if small := [world for world in lacking if world <= count]:
            found.append(f"{part.operator} on {ranks_named(small)} is not measured yet")
        if large := [world for world in lacking if world > count]:
            needs = f"waits for a machine with {ranks_named(large).replace('rank', 'GPU')}"
            found.append(f"{part.operator} on {ranks_named(large)} {needs}; this one has {count}")
    return [*found, *untimed(frame[frame["world"] <= count])]


def untimed(frame: pd.DataFrame) -> list[str]:
    """Points without a time, counted by operator, backend and status, with the reason that most of them have."""
    bad = frame[frame["status"] != "ok"]
    found: dict[tuple[str, str, str], Counter[str]] = {}
    for row in zip(*(bad[name].astype(str) for name in ("operator", "backend", "status", "why")), strict=True):
        found.setdefault(row[:3], Counter())[row[3]] += 1
    return [f"{name}, {backend}: {_reasons(status, why)}" for (name, backend, status), why in sorted(found.items())]


def _reasons(status: str, why: Counter[str]) -> str:
    [(first, count)] = why.most_common(1)
    others = f" ({count} of them; {len(why) - 1} other reasons)" if len(why) > 1 else ""
    return f"{why.total()} {status}: {first}{others}"


# ---- rules -----------------------------------------------------------------------------------------------------------


def guidance_of(study: Study, frame: pd.DataFrame) -> Iterable[Guided]:
    """Every rule that a study asks for, of each operator's anchor backend on one rank count."""
    for name in study.guidance:
        guide = guidance.GUIDES[name]
        for part in study.parts:
            wanted = Rows({"operator": (part.operator,), "backend": (part.anchor,)}, guide.pick)
            for rule in guidance.of_frame(chosen(frame, wanted), name, column):
                of = f"{part.operator}, " if len(study.operators) > 1 else ""
                words = f"{of}{guidance.sentence(guide, rule)}"
                yield Guided(f"{guide.title}: {words}", rule.mean_loss, f"{words}; {guidance.losing(rule)}")


# ---- where numbers come from -----------------------------------------------------------------------------------------


def foot_of(frame: pd.DataFrame, found: Sequence[Measured] = ()) -> Foot:
    """The foot of all figures of one machine's rows."""
    row = frame.iloc[0]
    hardware = derived.hardware_of(row)
    device = hardware.market_name if hardware else str(row["device"])
    commits = list(dict.fromkeys(str(one)[:8] for one in frame["commit"] if str(one)))
    dates = sorted(one.started_at[:10] for one in found if one.started_at)
    if not dates and "date" in frame:
        dates = [str(frame["date"].max())[:10]]
    return Foot(
        f"{device} ({row['machine']})",
        ", ".join(dict.fromkeys(versions(one) for one in found)) or ", ".join(dict.fromkeys(frame["env"].astype(str))),
        ", ".join(commits) or "local changes",
        dates[-1] if dates else "",
        ", ".join(dict.fromkeys(frame["regime"].astype(str))),
    )


def versions(measured: Measured) -> str:
    """ "Python 3.12, torch 2.11.0, Triton 3.6.0, driver 580.159.04"."""
    said, driver = measured.environment.versions, measured.machine.driver
    named = [("torch", said.get("torch")), ("Triton", said.get("triton")), ("driver", driver)]
    parts = [f"{name} {str(value).split('+')[0]}" for name, value in named if value]
    return ", ".join([f"Python {measured.environment.python}", *parts])
