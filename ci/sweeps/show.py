"""A sweep for people and for other programs: terminal, CSV, JSON, and the data of its figure."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from benchmarks.points import Knobs, label
from ci.report import words
from ci.stats.sweeps import INDIFFERENCE
from ci.sweeps.measured import Measured
from ci.trials.trial import Json

if TYPE_CHECKING:
    from rich.console import Console

    from ci.sweeps.pruning import Pruned
    from ci.sweeps.rungs import Rungs

SHOWN = 8
"""Points of a case that are listed; the CSV has all."""

HEAD = ("point", "time", "ratio to {anchor}", "interval", "trials", "rounds")


def terminal(rankings: Sequence[CaseRanking], console: Console) -> None:
    """A table of the best points of each case, and under it what the others came to."""
    from rich.table import Table  # a page of sweeps needs none

    for ranking in rankings:
        regime = "" if ranking.regime == "spaced" else f", {ranking.regime}"
        table = Table(
            title=f"{ranking.operator} {ranking.case}{regime}", title_justify="left", box=None, pad_edge=False
        )
        for name in HEAD:
            table.add_column(name.format(anchor=ranking.anchor), justify="left" if name == "point" else "right")
        for row in best_of(ranking.ranked, SHOWN):
            table.add_row(*_cells(row, ranking), style="bold" if row is ranking.winner else None)
        console.print(table)
        for sentence in case_sentences(ranking):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _cells(row: PointRow, of: CaseRanking) -> list[str]:
    mark = " (anchor)" if row["is_anchor"] else " (winner)" if row is of.winner else ""
    interval = "" if row["is_anchor"] or row["low"] is None else f"{row['low']:.4f} to {row['high']:.4f}"
    return [
        row["name"] + mark,
        words.duration(row["seconds"]),
        f"{row['ratio']:.4f}",
        interval,
        str(row["trials"]),
        str(row["rounds"]),
    ]


def case_sentences(ranking: CaseRanking) -> list[str]:
    """What a case comes to, in sentences."""
    sentences = [winner_sentence(ranking)]
    if ranking.unusable:
        sentences.append(
            "without a time of their own: " + ", ".join(f"{n} {what}" for what, n in ranking.unusable.items())
        )
    return sentences


def winner_sentence(ranking: CaseRanking) -> str:
    winner, runner_up = ranking.winner, ranking.runner_up
    if winner is None:
        return "no point has a ratio: see what became of the anchor"
    if winner["is_anchor"]:
        return f"the default of {ranking.anchor} is the best of {len(ranking.ranked)} points"
    beyond = "beyond its interval" if ranking.beats_anchor else "within its interval: it may be as fast"
    close = len(finalists(ranking)) - 1
    next_ = ""
    if runner_up:
        second = "the default" if runner_up["is_anchor"] else runner_up["name"]
        next_ = f"; runner-up {second} {words.percent(runner_up['ratio'] / winner['ratio'])}"
    also = f"; {close} more within 1 % of it" if close > 0 else ""
    return f"winner: {winner['name']}, {words.percent(winner['ratio'])} against the default, {beyond}{next_}{also}"


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
    config = pd.DataFrame([_plain(knobs) for knobs in frame["config"]], dtype=object).add_prefix("knob.")
    columns = frame.drop(columns=["knobs", "config", "log_ratio", "sd"]).copy()
    columns["knobs"] = [json.dumps(knobs, sort_keys=True) for knobs in frame["knobs"]]
    return str(pd.concat([columns.reset_index(drop=True), config.reset_index(drop=True)], axis=1).to_csv(index=False))


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
        "cases": [_case(ranking) for ranking in rankings],
    }


def _case(ranking: CaseRanking) -> dict[str, object]:
    facts = {name: getattr(ranking, name) for name in ("operator", "case", "regime", "anchor")}
    points = {
        name: _point(row) if row else None
        for name, row in (("winner", ranking.winner), ("runner_up", ranking.runner_up))
    }
    ranked = [_point(row) for row in ranking.ranked]
    return {**facts, **points, "beats_anchor": ranking.beats_anchor, "points": ranked, "unusable": ranking.unusable}


def _point(row: PointRow) -> dict[str, object]:
    names = ("label", "backend", "knobs", "seconds", "ratio", "low", "high", "trials", "rounds", "rung", "equal_to")
    return {name: row[name] for name in names}


# What came of a sweep: by case, the best points, the winner and what is known of it, and what was not measured.


PointRow = Json
"""A point for people: `ci.sweeps.measured.COLUMNS` with None for a number that it has not, and its knobs in words; its
`label`; its `name`, backend and knobs."""


def point_rows(frame: pd.DataFrame) -> list[PointRow]:
    """The points of a sweep's frame, in its order."""
    return [_row(row) for row in frame.to_dict("records")]


def _row(row: Mapping[Hashable, Any]) -> PointRow:
    numbers = {name: None if math.isnan(row[name]) else row[name] for name in ("seconds", "ratio", "low", "high")}
    backend, knobs = row["backend"], knob_words(row["knobs"])
    names = {"label": label(backend, row["point"]), "name": f"{backend} {knobs}".strip()}
    return {**{str(name): value for name, value in row.items()}, **numbers, **names, "knobs": knobs}


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
        return bool(self.winner and not self.winner["is_anchor"] and (self.winner["high"] or math.inf) < 1)


def rankings(measured: Measured, pruned: Pruned | None = None) -> list[CaseRanking]:
    """By case and regime, in the order of the files.  pruned: what was not measured at all, counted too."""
    groups: dict[tuple[str, ...], list[PointRow]] = {}
    for row in point_rows(measured.frame):
        groups.setdefault((row["operator"], row["case"], row["regime"]), []).append(row)
    return [_ranking(own, pruned) for own in groups.values()]


def _ranking(rows: Sequence[PointRow], pruned: Pruned | None) -> CaseRanking:
    operator, case, regime, anchor = (str(rows[0][name]) for name in ("operator", "case", "regime", "anchor"))
    timed = sorted((row for row in rows if row["ratio"] is not None), key=lambda row: row["ratio"])
    family = [row for row in timed if row["backend"] == anchor and not row["equal_to"]]
    # Best first: the anchor and the points of the last rung, then the others, which are known too badly to win.
    last = max((row["rung"] for row in family if not row["is_anchor"]), default=0)
    family.sort(key=lambda row: (row["rung"] < last and not row["is_anchor"], row["ratio"]))
    first, second = (*family, None, None)[:2]
    unusable = Counter(row["status"] for row in rows if row["status"] != "ok")
    unusable["equal to another"] = sum(bool(row["equal_to"]) for row in rows)
    unusable += Counter(dropped.kind for dropped in (pruned.dropped if pruned else ()) if dropped.point.case == case)
    return CaseRanking(operator, case, regime, anchor, tuple(timed), first, second, dict(unusable))


def knob_words(knobs: Knobs) -> str:
    """Knobs as they are given on the command line: "block_m=64 num_warps=8"."""
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def finalists(ranking: CaseRanking) -> list[PointRow]:
    """Points that may be within the indifference of the winner: whoever likes one of them better may take it."""
    if ranking.winner is None:
        return []
    bound = ranking.winner["ratio"] * (1 + INDIFFERENCE)
    return [row for row in ranking.ranked if row["backend"] == ranking.anchor and row["ratio"] <= bound]


def best_of(rows: Sequence[PointRow], most: int) -> list[PointRow]:
    """The first rows to show: the best, and always the anchor and the plain backends."""
    shown = [row for row in rows[:most] if not row["equal_to"]]
    return [*shown, *(row for row in rows[most:] if not row["knobs"])]
