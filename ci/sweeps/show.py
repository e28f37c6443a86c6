"""A sweep for people and for other programs: terminal, Markdown, CSV, JSON, and the data of its figure."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.console import Console
from rich.table import Table

from benchmarks.points import Knobs
from ci.report import words
from ci.stats.sweeps import INDIFFERENCE
from ci.sweeps.measured import Measured
from ci.sweeps.pruning import Pruned
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


# What came of a sweep: by case, the best points, the winner and what is known of it, and what was not measured.


@dataclasses.dataclass(frozen=True)
class PointRow:
    """One point for people.  knobs: what it overrides, in words; "" for a backend as it is.  rung: from 0.

    seconds, ratio, low, high: None where it has none.  equal_to: the label whose times it shares.
    """

    label: str
    backend: str
    knobs: str
    status: str
    why: str
    seconds: float | None
    ratio: float | None
    low: float | None
    high: float | None
    trials: int
    rounds: int
    rung: int
    equal_to: str
    is_anchor: bool

    @property
    def name(self) -> str:
        """Backend and knobs."""
        return f"{self.backend} {self.knobs}" if self.knobs else self.backend


@dataclasses.dataclass(frozen=True)
class CaseRanking:
    """The points of a case under a regime.  ranked: those with a ratio, best first.  anchor: the backend whose default
    is at 1.  unusable: how many points have no time of their own, by reason.

    winner: the best of the anchor's backend; None where nothing but failures was measured.  runner_up: the next one
    whose code is another's.
    """

    operator: str
    case: str
    regime: str
    anchor: str
    ranked: tuple[PointRow, ...]
    winner: PointRow | None
    runner_up: PointRow | None
    unusable: dict[str, int]

    @property
    def beats_anchor(self) -> bool:
        """Whether the winner is faster than the anchor beyond its interval."""
        return bool(self.winner and not self.winner.is_anchor and (self.winner.high or math.inf) < 1)


def rankings(measured: Measured, pruned: Pruned | None = None) -> list[CaseRanking]:
    """By case and regime, in the order of the files.  pruned: what was not measured at all, counted too."""
    names = ("operator", "case", "regime")
    keys = dict.fromkeys(zip(*(measured.frame[name] for name in names), strict=True))
    return [_ranking(measured.frame, key, pruned) for key in keys]


def _ranking(frame: pd.DataFrame, key: tuple[str, str, str], pruned: Pruned | None) -> CaseRanking:
    operator, case, regime = key
    own = frame[(frame["operator"] == operator) & (frame["case"] == case) & (frame["regime"] == regime)]
    rows = [_row(row) for _, row in own.iterrows()]
    timed = sorted((row for row in rows if row.ratio is not None), key=lambda row: row.ratio or math.inf)
    anchor = str(own["anchor"].iloc[0])
    first, second = (*_winners([row for row in timed if row.backend == anchor and not row.equal_to]), None, None)[:2]
    unusable = Counter(row.status for row in rows if row.status != "ok")
    unusable += Counter({"equal to another": sum(bool(row.equal_to) for row in rows)})
    for dropped in pruned.dropped if pruned else ():
        unusable[dropped.kind] += dropped.point.case == case
    return CaseRanking(operator, case, regime, anchor, tuple(timed), first, second, dict(+unusable))


def _winners(family: Sequence[PointRow]) -> list[PointRow]:
    """Best first: the anchor and the points of the last rung, then the others, which are known too badly to win."""
    last = max((row.rung for row in family if not row.is_anchor), default=0)
    return sorted(family, key=lambda row: (row.rung < last and not row.is_anchor, row.ratio or math.inf))


def _row(found: pd.Series[Any]) -> PointRow:
    label = f"{found['backend']}@{found['point']}" if found["point"] else found["backend"]
    return PointRow(
        label,
        found["backend"],
        knob_words(found["knobs"]),
        found["status"],
        found["why"],
        _number(found["seconds"]),
        _number(found["ratio"]),
        _number(found["low"]),
        _number(found["high"]),
        trials=int(found["trials"]),
        rounds=int(found["rounds"]),
        rung=int(found["rung"]),
        equal_to=found["equal_to"],
        is_anchor=bool(found["is_anchor"]),
    )


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def knob_words(knobs: Knobs) -> str:
    """Knobs as they are given on the command line: "block_m=64 num_warps=8"."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def finalists(ranking: CaseRanking, indifference: float = INDIFFERENCE) -> list[PointRow]:
    """Points that may be within the indifference of the winner: whoever likes one of them better may take it."""
    if ranking.winner is None or ranking.winner.ratio is None:
        return []
    bound = ranking.winner.ratio * (1 + indifference)
    return [row for row in ranking.ranked if row.backend == ranking.anchor and (row.ratio or math.inf) <= bound]


def best_of(rows: Sequence[PointRow], most: int) -> list[PointRow]:
    """The first rows to show: the best, and always the anchor and the plain backends."""
    shown = [row for row in rows[:most] if not row.equal_to]
    plain = [row for row in rows[most:] if not row.knobs]
    return [*shown, *plain]
