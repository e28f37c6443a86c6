"""Recorded sweeps: the newest of each operator and machine, as rows for people and as a figure.

Records are `results/sweeps/MACHINE/COMMIT8-ENV-OPERATOR.jsonl.gz` (`ci.records.ledger`); `ci.sweeps.measured`
makes one row per point of their lines.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import pandas as pd

from ci.records.ledger import sweep_files
from dashboards.figures.picture import FigureError
from dashboards.lanes import slug
from dashboards.values import told

MEASURED = "ok"


@dataclasses.dataclass(frozen=True)
class RecordedSweep:
    """A sweep as the page shows it.  rows: a dict for each point, in the order of its case's ranking."""

    file: Path
    facts: dict[str, Any]
    rows: list[dict[str, Any]]

    @property
    def path(self) -> str:
        """Of its data file."""
        return f"views/sweep/{slug(self.file.parent.name)}/{slug(self.facts['operator'])}"

    @property
    def cases(self) -> list[str]:
        """In the order of its rows."""
        return list(dict.fromkeys(row["case"] for row in self.rows))


def newest_sweeps(results: Path) -> list[Path]:
    """Of each machine and operator, the file whose first line is the newest."""
    found: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in sweep_files(results):
        started, operator = _first(path)
        key = (path.parent.name, operator)
        found[key] = max(found.get(key, ("", path)), (started, path))
    return [path for _, path in sorted(found.values(), key=lambda pair: pair[1])]


def _first(path: Path) -> tuple[str, str]:
    """Moment and operator of the first line; of a file that has none, its name, so that its problem is told."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            line = json.loads(file.readline())
        return str(line["started_at"]), str(line["kernel"])
    except (OSError, ValueError, KeyError, TypeError, EOFError):
        return "", path.name


def read_sweep(path: Path) -> RecordedSweep:
    """A file of sweeps.  Raises FigureError if no line of it can be used."""
    from ci.sweeps import measured as sweeps  # judging comes with it; most sites have no sweep

    try:
        found = sweeps.read([path])
    except sweeps.SweepError as error:
        raise FigureError(str(error)) from None
    frame = found.frame.sort_values(["operator", "case", "regime", "ratio"], kind="stable", na_position="last")
    said, driver = found.environment.versions, found.machine.driver
    named = [("torch", said.get("torch")), ("Triton", said.get("triton")), ("driver", driver)]
    facts = {
        "operator": str(frame["operator"].iloc[0]),
        "machine": found.origin.machine,
        "device": found.machine.market_name or found.machine.device,
        "commit": found.origin.commit or "",
        "date": found.started_at[:10],
        "versions": ", ".join(f"{name} {value}" for name, value in named if value),
        "problems": len(found.problems),
    }
    return RecordedSweep(path, facts, [_row(row) for row in frame.to_dict("records")])


def the_sweep(results: Path, kernel: str, machine: str | None) -> RecordedSweep:
    """The newest sweep of an operator; FigureError where there is none, or of several machines."""
    every = map(read_sweep, newest_sweeps(results))
    found = [one for one in every if one.facts["operator"] == kernel and machine in (None, one.facts["machine"])]
    if len(found) == 1:
        return found[0]
    there = ", ".join(one.facts["machine"] for one in found)
    where = f" on {machine}" if machine else ""
    said = f"several machines have a sweep of {kernel}; name one with --machine: {there}"
    raise FigureError(
        said
        if found
        else f"no sweep of {kernel}{where} is recorded; `ridgeline records add --help` says how its lines are taken"
    )


def _row(row: dict[Any, Any]) -> dict[str, Any]:
    knobs = " ".join(f"{name}={value}" for name, value in row["knobs"].items())
    texts = ("case", "backend", "regime", "anchor", "status", "why", "equal_to")
    found = {name: row[name] for name in texts} | {"knobs": knobs, "us": row["seconds"] * 1e6}
    return told(found | {name: row[name] for name in ("ratio", "low", "high", "trials", "rounds", "rung", "is_anchor")})


def name_of(row: dict[str, Any]) -> str:
    """A point for people."""
    return f"{row['backend']} {row['knobs']}".strip()


def sweep_figure(sweep: RecordedSweep, case: str | None = None) -> tuple[dict[str, Any], pd.DataFrame]:
    """SPEC and DATA (`dashboards.figures.studies`) of the points of a sweep, of one case or of all."""
    rows = [row for row in sweep.rows if case in (None, row["case"])]
    regimes = sorted({row["regime"] for row in rows})
    drawn = pd.DataFrame(
        {
            **{name: [row[name] for row in rows] for name in ("ratio", "low", "high", "backend")},
            "point": [name_of(row) for row in rows],
            "status": ["equal to another" if row["equal_to"] else row["status"] for row in rows],
            "case": [f"{row['case']}, {row['regime']}" if len(regimes) > 1 else row["case"] for row in rows],
        }
    )
    facts = {name: sweep.facts[name] for name in ("versions", "date")}
    machine = f"{sweep.facts['device']} ({sweep.facts['machine']})"
    foot = {"machine": machine, "commit": sweep.facts["commit"][:8], **facts, "regime": ", ".join(regimes)}
    spec = {
        "kind": "sweep",
        "title": f"{sweep.facts['operator']}: points beside their anchor",
        "anchor": rows[0]["anchor"] if rows else "",
        "group": "backend",
        "by": "case",
        "foot": foot,
    }
    return spec, drawn
