"""The words of an event: terminal, page and summary have these and no others."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ci.history.types import Direction, EventKind, EventState, HistoryEvent
from ci.report.words import interval, percent, plain

WIDEST = 100
"""Characters of foreign words that are shown in one place."""

SUBJECT = 60
"""Characters of a commit's subject: what is said of an event then has two lines in a window of 1,280 pixels."""

WIDE_RANGE = 10
"""Commits of a range that were not measured, from which on it is said how to narrow it."""


def headline(event: HistoryEvent) -> str:
    """What moved and by how much: "gemm, triton slower: +3.96 % [+2.55, +5.55], 2 series on h200x1"."""
    kernel, backend = event.moved[0].key.kernel, event.moved[0].key.backend
    series = len({moved.key for moved in event.moved})
    size = f"{percent(event.ratio)} {interval(event.ratio_low, event.ratio_high)}"
    several = f"{series} series" if series > 1 else plain(event.moved[0].key.case, WIDEST)
    who = {
        EventKind.KERNEL: f"{plain(kernel, WIDEST)}, {plain(backend, WIDEST)} {event.direction}",
        EventKind.LIBRARY: f"{plain(kernel, WIDEST)}: the library {plain(backend, WIDEST)} became {event.direction}",
    }[event.kind]
    return f"{who}: {size}, {several} on {plain(event.machine, WIDEST)}"


def since(event: HistoryEvent) -> str:
    """The first bad commit and who wrote it: "since f5343322 SUBJECT #12 (AUTHOR); or one of 86 before it"."""
    commit = event.first_bad
    author = f" ({plain(commit.author, 40)})" if commit.author else ""
    pull = f" #{commit.pull_request}" if commit.pull_request and f"#{commit.pull_request}" not in commit.subject else ""
    others = f"; or one of {event.between} before it" if event.between else ""
    return f"since {commit.hash[:8]} {plain(commit.subject, SUBJECT)}{pull}{author}{others}".strip()


def standing(event: HistoryEvent) -> str:
    """ "open", "open, acknowledged by A. Author: REASON", "back at f5343322", "accepted: REASON"."""
    ended = f" at {event.ended_at.hash[:8]}" if event.ended_at else ""
    owner = ""
    if event.owner:
        owner = f", acknowledged by {plain(event.owner, 40)}" if is_open(event) else f" by {plain(event.owner, 40)}"
    reason = f": {plain(event.reason, 120)}" if event.reason else ""
    return f"{event.state}{ended}{owner}{reason}"


def causes(event: HistoryEvent, most: int) -> str:
    """The first of what else changed, and how many more there are; "" for nothing."""
    texts = [plain(cause.text, WIDEST) for cause in event.causes]
    return "; ".join(texts[:most]) + (f" (+{len(texts) - most})" if len(texts) > most else "")


def narrowing(event: HistoryEvent) -> str:
    """The command that measures what lies between, where many commits may be to blame; "" else."""
    if event.kind is not EventKind.KERNEL or event.between < WIDE_RANGE or not is_open(event):
        return ""
    key = max(event.moved, key=lambda moved: abs(math.log(moved.step.ratio))).key
    return (
        f"ridgeline run {event.last_good.hash[:8]}..{event.first_bad.hash[:8]} --kernel {key.kernel} --case {key.case}"
    )


def is_open(event: HistoryEvent) -> bool:
    """Whether a time moved and nobody has dealt with it."""
    return event.state is EventState.OPEN


def in_order_of_need(events: Sequence[HistoryEvent]) -> list[HistoryEvent]:
    """What is open and slower first, by size; then what is open; then the newest of the rest."""
    return sorted(
        events,
        key=lambda event: (
            not is_open(event),
            event.direction != "slower",
            -abs(math.log(event.ratio)) if is_open(event) else -event.first_bad.date_ms,
        ),
    )


def is_regression(event: HistoryEvent) -> bool:
    """Whether an operator of ours became slower and nobody has dealt with it."""
    return event.kind is EventKind.KERNEL and event.direction is Direction.SLOWER and is_open(event)
