"""Sweeps: the newest recorded one of each operator and machine, its points beside their anchor, and the winners."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any

from dashboards.figures.studies.error import FigureError
from dashboards.figures.studies.foot import foot
from dashboards.figures.studies.kinds import KEYS, picture
from dashboards.figures.studies.spec import parse
from dashboards.recorded_sweeps import MEASURED, RecordedSweep, figure, newest, read
from dashboards.views import CHARTS, SiteInput, View
from dashboards.views.beside import beside
from dashboards.views.studies import as_json

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
    told, drawn = figure(sweep)
    try:
        made = picture(spec := parse(told, KEYS), drawn)
        shown_figure: dict[str, Any] | None = {"picture": as_json(made), "foot": foot(spec, made)}
    except FigureError:  # nothing of it was measured; the table says why
        shown_figure = None
    return {"figure": shown_figure, "winners": winners(sweep.rows), "points": sweep.rows}


@functools.lru_cache(maxsize=1)  # the page, its files and whether it is there are of the same
def _sweeps(site: SiteInput) -> tuple[tuple[RecordedSweep, ...], tuple[str, ...]]:
    """What can be shown, and a sentence on each file that cannot."""
    found, problems = [], []
    for path in newest(site.results_dir):
        try:
            found.append(read(path))
        except (FigureError, OSError) as error:
            problems.append(str(error).replace(f"{site.results_dir}/", ""))
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
    scripts=(*CHARTS, "views/experiments.js", "views/sweeps.js"),
    styles=("views/views.css", "views/machines.css", "views/studies.css"),
    shown=_shown,
    data=_data,
    files=_files,
)
