"""Recorded sweeps: the newest of each operator and machine, as rows for people and as a figure.

Records are `results/sweeps/MACHINE/COMMIT8-ENV-OPERATOR.jsonl.gz` (`ci.records.ledger`); `ci.sweeps.measured`
makes one row per point of their lines.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ci.records.ledger import sweep_files
from dashboards.figures.picture import FigureError
from dashboards.lanes import slug
from dashboards.values import told

if TYPE_CHECKING:
    from ci.sweeps.measured import Measured

MEASURED = "ok"


@dataclasses.dataclass(frozen=True)
class RecordedSweep:
    """A sweep as the page shows it.  rows: a dict for each point, in the order of its case's ranking.

    winners: the fastest point of the anchor's backend of each case and regime; beats: faster beyond its interval.
    """

    file: Path
    measured: Measured
    facts: dict[str, Any]
    rows: list[dict[str, Any]]
    winners: list[dict[str, Any]]

    @property
    def path(self) -> str:
        """Of its data file."""
        return f"views/sweep/{slug(self.file.parent.name)}/{slug(self.facts['operator'])}"

    @property
    def cases(self) -> list[str]:
        """In the order of its rows."""
        return list(dict.fromkeys(row["case"] for row in self.rows))

    def figure(self, case: str | None = None) -> tuple[Mapping[str, Any], pd.DataFrame]:
        """SPEC and DATA (`dashboards.figures.studies`) of its points, of one case or of all."""
        from ci.sweeps import show

        return show.figure(self.measured, f"{self.facts['operator']}: points beside their anchor", case or "")


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
    from ci.sweeps import show

    try:
        found = sweeps.read([path])
    except sweeps.SweepError as error:
        raise FigureError(str(error)) from None
    order = ["operator", "case", "regime", "ratio"]
    found = dataclasses.replace(found, frame=found.frame.sort_values(order, kind="stable", na_position="last"))
    facts = {
        "operator": str(found.frame["operator"].iloc[0]),
        "machine": found.origin.machine,
        "device": found.machine.market_name or found.machine.device,
        "commit": found.origin.commit or "",
        "date": found.started_at[:10],
        "versions": show.versions(found),
        "problems": len(found.problems),
    }
    winners = [_row(one.winner) | {"beats": one.beats_anchor} for one in show.rankings(found) if one.winner]
    return RecordedSweep(path, found, facts, list(map(_row, show.point_rows(found.frame))), winners)


_OF_POINT = ("case", "backend", "regime", "anchor", "status", "why", "equal_to", "knobs", "us", "ratio", "low", "high")
_OF_POINT += ("trials", "rounds", "rung", "is_anchor")


def _row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A point as the page and its files have it."""
    us = None if row["seconds"] is None else row["seconds"] * 1e6
    return told({name: us if name == "us" else row[name] for name in _OF_POINT})


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
