"""What came of a sweep, by case: the best points, the winner and how sure that is; for a terminal and as JSON."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from benchmarks.points import Knobs, label
from ci.report import words
from ci.report.model import Sheet
from ci.sweeps.measured import INDIFFERENCE, Measured
from ci.trials.trial import Json

if TYPE_CHECKING:
    from ci.sweeps.pruning import Pruned

MAX_LISTED = 8
"""Points of a case that are listed; --json has all."""

PointRow = Json
"""A point for people: `ci.sweeps.measured.COLUMNS` with None for a number that it has not, and its knobs in words; its
`label`; its `name`, backend and knobs."""


def point_rows(frame: pd.DataFrame) -> Iterator[PointRow]:
    """The points of a sweep's frame, in its order."""
    for row in frame.astype(object).to_dict("records"):
        known = {
            str(name): None if isinstance(value, float) and math.isnan(value) else value for name, value in row.items()
        }
        knobs = knob_words(row["knobs"])
        names = {"label": label(row["backend"], row["point"]), "name": f"{row['backend']} {knobs}".strip()}
        yield {**known, **names, "knobs": knobs}


def knob_words(knobs: Knobs) -> str:
    """Knobs as they are given on the command line: "block_m=64 num_warps=8"."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


@dataclasses.dataclass(frozen=True)
class CaseRanking:
    """The points of a case.  ranked: those with a ratio, best first.  anchor: the backend whose default is at 1.

    winner: the best of the anchor's backend; None where nothing but failures was measured.  runner_up: the next one
    whose code is another's.  unusable: how many points have no time of their own, by reason.
    """

    operator: str
    case: str
    anchor: str
    ranked: tuple[PointRow, ...]
    winner: PointRow | None
    runner_up: PointRow | None
    unusable: dict[str, int]

    @property
    def beats_anchor(self) -> bool:
        """Whether the winner is faster than the anchor beyond its interval."""
        return bool(self.winner and not self.winner["is_anchor"] and (self.winner["high"] or math.inf) < 1)


def rankings(rows: Iterable[PointRow], pruned: Pruned | None = None) -> list[CaseRanking]:
    """By case, in the order of the rows.  pruned: what was not measured at all, counted too."""
    groups: dict[tuple[str, str], list[PointRow]] = {}
    for row in rows:
        groups.setdefault((row["operator"], row["case"]), []).append(row)
    return [_ranking(own, pruned) for own in groups.values()]


def _ranking(rows: Sequence[PointRow], pruned: Pruned | None) -> CaseRanking:
    case, anchor = rows[0]["case"], rows[0]["anchor"]
    ranked = sorted((row for row in rows if row["ratio"] is not None), key=lambda row: row["ratio"])
    family = [row for row in ranked if row["backend"] == anchor and not row["equal_to"]]
    # Best first: the anchor and the points of the last rung, then the others, which are known too badly to win.
    last = max((row["rung"] for row in family if not row["is_anchor"]), default=0)
    family.sort(key=lambda row: (row["rung"] < last and not row["is_anchor"], row["ratio"]))
    first, second = (*family, None, None)[:2]
    unusable = Counter(row["status"] for row in rows if row["status"] != "ok")
    unusable += Counter("equal to another" for row in rows if row["equal_to"])
    unusable += Counter(dropped.kind for dropped in (pruned.dropped if pruned else ()) if dropped.point.case == case)
    return CaseRanking(rows[0]["operator"], case, anchor, tuple(ranked), first, second, dict(unusable))


def case_sentences(ranking: CaseRanking) -> Iterator[str]:
    """What a case comes to, in sentences."""
    yield winner_sentence(ranking)
    if ranking.unusable:
        yield "without a time of their own: " + ", ".join(f"{n} {what}" for what, n in ranking.unusable.items())


def winner_sentence(ranking: CaseRanking) -> str:
    """The winner against the default, against the runner-up, and how many are as good."""
    winner, runner_up = ranking.winner, ranking.runner_up
    if winner is None:
        return "no point has a ratio: see what became of the anchor"
    if winner["is_anchor"]:
        return f"the default of {ranking.anchor} is the best of {len(ranking.ranked)} points"
    bound = winner["ratio"] * (1 + INDIFFERENCE)
    close = sum(row["backend"] == ranking.anchor and row["ratio"] <= bound for row in ranking.ranked) - 1
    beyond = "beyond its interval" if ranking.beats_anchor else "within its interval: it may be as fast"
    parts = [f"winner: {winner['name']}, {words.percent(winner['ratio'])} against the default, {beyond}"]
    if runner_up:
        second = "the default" if runner_up["is_anchor"] else runner_up["name"]
        parts.append(f"runner-up {second} {words.percent(runner_up['ratio'] / winner['ratio'])}")
    return "; ".join(parts + ([f"{close} more within 1 % of it"] if close > 0 else []))


def sheet(ranking: CaseRanking) -> Sheet:
    """The best points of a case."""
    best = [row for row in ranking.ranked[:MAX_LISTED] if not row["equal_to"]]
    plain = [row for row in ranking.ranked[MAX_LISTED:] if not row["knobs"]]  # the anchor is always listed
    rows = []
    for row in (*best, *plain):
        mark = " (anchor)" if row["is_anchor"] else " (winner)" if row is ranking.winner else ""
        ends = "" if row["is_anchor"] or row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}"
        counts = (str(row["trials"]), str(row["rounds"]))
        rows.append((row["name"] + mark, words.duration(row["seconds"]), f"{row['ratio']:.4f}", ends, *counts))
    head = ("point", "time", f"ratio to {ranking.anchor}", "interval", "trials", "rounds")
    return Sheet(f"{ranking.operator} {ranking.case}", head, tuple(rows), 1)


def document(measured: Measured, rankings: Sequence[CaseRanking], left: int, why: str) -> dict[str, object]:
    """For --json.  left: points that the next rung lacks; why: it stopped before the end."""
    names = ("label", "backend", "knobs", "seconds", "ratio", "low", "high", "trials", "rounds", "rung", "equal_to")

    def point(row: PointRow | None) -> dict[str, object] | None:
        return {name: row[name] for name in names} if row else None

    cases = [
        {
            **{name: getattr(ranking, name) for name in ("operator", "case", "anchor", "beats_anchor", "unusable")},
            "winner": point(ranking.winner),
            "runner_up": point(ranking.runner_up),
            "points": list(map(point, ranking.ranked)),
        }
        for ranking in rankings
    ]
    origin = {name: getattr(measured.origin, name) for name in ("machine", "env", "commit")}
    minutes = round(measured.gpu_s / 60, 3)
    return {"origin": origin, "gpu_minutes": minutes, "complete": not left, "left": left, "why": why, "cases": cases}
