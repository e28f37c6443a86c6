"""Sweeps: the newest recorded one of each operator and machine, its points beside their anchor, and the winners.

Records are `results/sweeps/MACHINE/COMMIT8-ENV-OPERATOR.jsonl.gz` (`ci.records.sweeps.keeping`); `ci.sweeps.measured`
makes one row per point of their lines.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ci.records.sweeps import keeping
from dashboards.figures.error import FigureError
from dashboards.figures.studies.foot import foot
from dashboards.figures.studies.kinds import KEYS, picture
from dashboards.figures.studies.spec import parse
from dashboards.lanes import slug
from dashboards.values import one
from dashboards.views import CHARTS, SiteInput, View
from dashboards.views.beside import beside
from dashboards.views.studies import as_json

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


def newest(results: Path | None) -> list[Path]:
    """Of each machine and operator, the file whose first line is the newest."""
    found: dict[tuple[str, str], tuple[str, Path]] = {}
    for path in keeping.files(results) if results else []:
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


def read(path: Path) -> RecordedSweep:
    """A file of sweeps.  Raises SweepError if no line of it can be used."""
    from ci.sweeps import measured as sweeps  # judging comes with it; most sites have no sweep

    found = sweeps.read([path])
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


def _row(row: dict[Any, Any]) -> dict[str, Any]:
    knobs = " ".join(f"{name}={value}" for name, value in row["knobs"].items())
    texts = ("case", "backend", "regime", "anchor", "status", "why", "equal_to")
    counts = {name: int(row[name]) for name in ("trials", "rounds", "rung")}
    numbers = {name: _known(row[name]) for name in ("ratio", "low", "high")}
    return {
        **{name: str(row[name]) for name in texts},
        "knobs": knobs,
        "us": _known(row["seconds"] * 1e6),
        **numbers,
        **counts,
        "is_anchor": bool(row["is_anchor"]),
    }


def _known(value: float) -> float | None:
    return one(value) if math.isfinite(value) else None


def name_of(row: dict[str, Any]) -> str:
    """A point for people."""
    return f"{row['backend']} {row['knobs']}".strip()


# ---- what the page reads --------------------------------------------------------------------------------------------


def winners(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of every case and regime, the fastest point of the anchor's backend; beats: faster beyond its interval."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        own = row["backend"] == row["anchor"] and row["status"] == MEASURED and row["ratio"] is not None
        best = found.get((row["case"], row["regime"]))
        if own and (best is None or row["ratio"] < best["ratio"]):
            found[row["case"], row["regime"]] = row
    kept = ("case", "regime", "anchor", "knobs", "us", "ratio", "low", "high", "is_anchor")
    beats = [not row["is_anchor"] and (row["high"] or math.inf) < 1 for row in found.values()]
    return [{name: row[name] for name in kept} | {"beats": b} for row, b in zip(found.values(), beats, strict=True)]


def listed(sweep: RecordedSweep) -> dict[str, Any]:
    """A line of the list of sweeps."""
    best = winners(sweep.rows)
    counts = {
        "cases": len({row["case"] for row in sweep.rows}),
        "points": len(sweep.rows),
        "measured": sum(row["status"] == MEASURED for row in sweep.rows),
        "faster": sum(row["beats"] for row in best),
    }
    return {**sweep.facts, **counts, "path": sweep.path}


def shown(sweep: RecordedSweep) -> dict[str, Any]:
    """All of a sweep, which static/views/sweeps.js reads."""
    regimes = {row["regime"] for row in sweep.rows}
    drawn = pd.DataFrame(
        {
            **{name: [row[name] for row in sweep.rows] for name in ("ratio", "low", "high", "backend")},
            "point": [name_of(row) for row in sweep.rows],
            "status": ["equal to another" if row["equal_to"] else row["status"] for row in sweep.rows],
            "case": [f"{row['case']}, {row['regime']}" if len(regimes) > 1 else row["case"] for row in sweep.rows],
        }
    )
    facts = {name: sweep.facts[name] for name in ("machine", "versions", "date")}
    told = {
        "kind": "sweep",
        "title": f"{sweep.facts['operator']}: points beside their anchor",
        "anchor": sweep.rows[0]["anchor"],
        "group": "backend",
        "by": "case",
        "foot": {**facts, "commit": sweep.facts["commit"][:8], "regime": ", ".join(sorted(regimes))},
    }
    try:
        made = picture(spec := parse(told, KEYS), drawn)
        figure: dict[str, Any] | None = {"picture": as_json(made), "foot": foot(spec, made)}
    except FigureError:  # nothing of it was measured; the table says why
        figure = None
    return {"figure": figure, "winners": winners(sweep.rows), "points": sweep.rows}


@functools.lru_cache(maxsize=1)  # the page, its files and whether it is there are of the same
def _sweeps(site: SiteInput) -> tuple[tuple[RecordedSweep, ...], tuple[str, ...]]:
    """What can be shown, and a sentence on each file that cannot."""
    found, problems = [], []
    for path in newest(site.results_dir):
        try:
            found.append(read(path))
        except Exception as error:  # one damaged file takes no page down
            said = f"{error}" or type(error).__name__
            problems.append(said.replace(f"{site.results_dir}/", ""))
    return tuple(found), tuple(problems)


def _shown(site: SiteInput) -> bool:
    return bool(newest(site.results_dir))


def _data(site: SiteInput) -> Iterator[tuple[str, Any]]:
    found, problems = _sweeps(site)
    yield "views/sweeps", {"sweeps": [listed(sweep) for sweep in found], "problems": list(problems)}
    for sweep in found:
        yield sweep.path, shown(sweep)


def _files(site: SiteInput) -> Iterator[tuple[str, bytes]]:
    for sweep in _sweeps(site)[0]:
        yield from beside(sweep.path, sweep.rows)


VIEW = View(
    "sweeps",
    "Sweeps",
    template="views/alone.html",
    scripts=(*CHARTS, "views/pictures.js", "views/sweeps.js"),
    styles=("views/views.css", "views/studies.css"),
    shown=_shown,
    data=_data,
    files=_files,
)
