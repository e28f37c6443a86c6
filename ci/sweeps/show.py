"""A sweep for people and for other programs: terminal, Markdown, CSV, JSON, and the data of its figure."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.points import Knobs
from ci.report import words
from ci.sweeps.measured import Measured
from ci.sweeps.ranking import CaseRanking, PointRow, best_of, finalists
from ci.sweeps.rungs import Rungs
from ci.trials.trial import Json

SHOWN = 8
"""Points of a case that are listed; the CSV has all."""

HEAD = ("point", "time", "ratio to {anchor}", "interval", "trials", "rounds")


def terminal(rankings: Sequence[CaseRanking], console: Console) -> None:
    """A table of the best points of each case, and under it what the others came to."""
    for one in rankings:
        regime = "" if one.regime == "spaced" else f", {one.regime}"
        table = Table(title=f"{one.operator} {one.case}{regime}", title_justify="left", box=None, pad_edge=False)
        for name in HEAD:
            table.add_column(name.format(anchor=one.anchor), justify="left" if name == "point" else "right")
        for row in best_of(one.ranked, SHOWN):
            table.add_row(*_cells(row, one), style="bold" if row is one.winner else None)
        console.print(table)
        for sentence in told(one):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _cells(row: PointRow, of: CaseRanking) -> list[str]:
    mark = " (anchor)" if row.is_anchor else " (winner)" if row is of.winner else ""
    interval = "" if row.is_anchor or row.low is None else f"{row.low:.4f} to {row.high:.4f}"
    times = words.duration(row.seconds) if row.seconds is not None else words.NOTHING
    return [row.name + mark, times, f"{row.ratio:.4f}", interval, str(row.trials), str(row.rounds)]


def told(one: CaseRanking) -> list[str]:
    """What a case comes to, in sentences."""
    found = [_won(one)]
    if one.unusable:
        found.append("without a time of their own: " + ", ".join(f"{n} {what}" for what, n in one.unusable.items()))
    return found


def _won(one: CaseRanking) -> str:
    winner, runner_up = one.winner, one.runner_up
    if winner is None or winner.ratio is None:
        return "no point has a ratio: see what became of the anchor"
    if winner.is_anchor:
        return f"the default of {one.anchor} is the best of {len(one.ranked)} points"
    beyond = "beyond its interval" if one.beats_anchor else "within its interval: it may be as fast"
    close = len(finalists(one)) - 1
    second = "the default" if runner_up and runner_up.is_anchor else runner_up.name if runner_up else ""
    next_ = f"; runner-up {second} {words.percent((runner_up.ratio or 1) / winner.ratio)}" if runner_up else ""
    also = f"; {close} more within 1 % of it" if close > 0 else ""
    return f"winner: {winner.name}, {words.percent(winner.ratio)} against the default, {beyond}{next_}{also}"


def markdown(measured: Measured, rankings: Sequence[CaseRanking], rungs: Rungs | None = None) -> str:
    """The same as a document that stands alone."""
    lines = [f"# Sweep of {', '.join(measured.declarations) or 'an operator'}", "", f"Measured on {measured.origin}."]
    lines += [chances(rungs), ""] if rungs else [""]
    for one in rankings:
        lines += [f"## {one.case}" + ("" if one.regime == "spaced" else f" ({one.regime})"), ""]
        head = [name.format(anchor=one.anchor) for name in HEAD]
        lines += ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
        lines += ["| " + " | ".join(_cells(row, one)) + " |" for row in best_of(one.ranked, SHOWN)]
        lines += ["", *told(one), ""]
    return "\n".join(lines)


def chances(rungs: Rungs) -> str:
    """What the rungs promise."""
    rounds = ", ".join(map(str, rungs.rounds))
    if not rungs.halving:
        return f"Every point was measured in every rung (rounds: {rounds})."
    within = f"{100 * rungs.indifference:g} % of the best"
    return (
        f"Rungs of {rounds} rounds; a point is dropped when it cannot be within {within}. "
        f"The chance that the best point was dropped is at most {100 * rungs.miss:g} %."
    )


def csv(measured: Measured) -> str:
    """Every point with everything known of it; knobs as columns."""
    frame = measured.frame
    config = pd.DataFrame([_plain(one) for one in frame["config"]], dtype=object).add_prefix("knob.")
    told = frame.drop(columns=["knobs", "config", "log_ratio", "sd"]).copy()
    told["knobs"] = [json.dumps(one, sort_keys=True) for one in frame["knobs"]]
    return str(pd.concat([told.reset_index(drop=True), config.reset_index(drop=True)], axis=1).to_csv(index=False))


def _plain(knobs: Knobs) -> Knobs:
    return {
        name: value if isinstance(value, str | int | float | bool) else json.dumps(value)
        for name, value in knobs.items()
    }


def document(measured: Measured, rankings: Sequence[CaseRanking], left: int, why: str) -> dict[str, object]:
    """For --json.  left: points that the next rung lacks; why: it stopped before the end."""
    return {
        "origin": {"machine": measured.origin.machine, "env": measured.origin.env, "commit": measured.origin.commit},
        "gpu_minutes": round(measured.gpu_s / 60, 3),
        "complete": not left,
        "left": left,
        "why": why,
        "cases": [_case(one) for one in rankings],
    }


def _case(one: CaseRanking) -> dict[str, object]:
    return {
        "operator": one.operator,
        "case": one.case,
        "regime": one.regime,
        "anchor": one.anchor,
        "winner": _point(one.winner) if one.winner else None,
        "runner_up": _point(one.runner_up) if one.runner_up else None,
        "beats_anchor": one.beats_anchor,
        "points": [_point(row) for row in one.ranked],
        "unusable": one.unusable,
    }


def _point(row: PointRow) -> dict[str, object]:
    names = ("label", "backend", "knobs", "seconds", "ratio", "low", "high", "trials", "rounds", "rung", "equal_to")
    return {name: getattr(row, name) for name in names}


# ---- figure -------------------------------------------------------------------------------------------------------


def figure(measured: Measured, rankings: Sequence[CaseRanking], title: str) -> tuple[Json, str]:
    """(SPEC, DATA as CSV) of the figure of kind "sweep" (dashboards.figures.studies): ranked points by case."""
    anchor = next(iter(rankings)).anchor
    data = pd.DataFrame([_drawn(row) for _, row in measured.frame.iterrows()])
    env = measured.environment.requirements
    spec = {
        "kind": "sweep",
        "title": title,
        "anchor": anchor,
        "group": "backend",
        "by": "case",
        "foot": {
            "machine": measured.origin.machine,
            "versions": ", ".join(f"{name} {version}" for name, version in env.items()),
            "commit": (measured.origin.commit or "none")[:8] + (" with local changes" if measured.origin.dirty else ""),
            "date": measured.started_at[:10],
        },
    }
    return spec, str(data.to_csv(index=False))


def _drawn(row: pd.Series[Any]) -> Json:
    knobs = " ".join(f"{name}={value}" for name, value in row["knobs"].items())
    status = "equal to another" if row["equal_to"] else row["status"]
    numbers = {name: None if math.isnan(row[name]) else row[name] for name in ("ratio", "low", "high")}
    name = f"{row['backend']} {knobs}" if knobs else row["backend"]
    return {"point": name, **numbers, "status": status, "backend": row["backend"], "case": row["case"]}
