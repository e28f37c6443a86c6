"""An event in words, for people who did not ask: short, and safe in Markdown and mail whatever names it holds."""

from __future__ import annotations

from ci.history.types import EventKind, HistoryEvent
from ci.report.markdown import code
from ci.report.words import interval, percent, plain

SERIES = 8
"""Series that are named; a page has all of them."""


def title(event: HistoryEvent) -> str:
    """One line: gemm 4.1 % slower on h200x1-… since 0bb5fe41."""
    kernels = list(dict.fromkeys(plain(one.key.kernel, 60) for one in event.moved))
    named = ", ".join(kernels[:3]) + (f" and {len(kernels) - 3} more" if len(kernels) > 3 else "")
    size = percent(event.ratio).lstrip("+-")
    what = (
        f"best configuration moved, by {size}" if event.kind is EventKind.CONFIGURATION else f"{size} {event.direction}"
    )
    return f"{named}: {what} on {plain(event.machine, 60)} since {event.first_bad.hash[:8]}"


def lines(event: HistoryEvent) -> list[str]:
    """What moved, since when, why and how to go on; names as code, so that none of them formats anything."""
    first, good = event.first_bad, event.last_good
    who = f" by {code(plain(first.author, 60))}" if first.author else ""
    pull = f", pull request #{first.pull_request}" if first.pull_request else ""
    others = f" (or one of {event.between} commits between)" if event.between else ""
    return [
        f"Change of time: {percent(event.ratio)} {interval(event.ratio_low, event.ratio_high)} (99 %)",
        f"First bad commit: {code(first.hash)} {code(plain(first.subject, 100))}{who}{pull}{others}",
        f"Last good commit: {code(good.hash)}",
        *(f"Likely cause: {code(plain(cause.text, 200))}" for cause in event.causes[:3]),
        f"Series: {_series(event)}",
        f"To reproduce: {code(_command(event))}",
        f"To take it: {code(f'ridgeline ack {event.id} --owner NAME')}",
    ]


def _command(event: HistoryEvent) -> str:
    kernel = plain(event.moved[0].key.kernel, 80)
    if event.kind is EventKind.CONFIGURATION:
        return f"ridgeline tune {kernel} --verify"
    return f"ridgeline ab {event.last_good.hash[:12]} {event.first_bad.hash[:12]} --kernel {kernel}"


def _series(event: HistoryEvent) -> str:
    keys = list(dict.fromkeys(one.key for one in event.moved))
    named = ", ".join(code("/".join(plain(part, 60) for part in key[1:])) for key in keys[:SERIES])
    return named + (f" and {len(keys) - SERIES} more" if len(keys) > SERIES else "")


def ending(event: HistoryEvent) -> str:
    """Why an alert ends: recovered, fixed or accepted, where and by whom."""
    at = f" at {event.ended_at.hash[:8]}" if event.ended_at else ""
    owner = f" by {code(plain(event.owner, 60))}" if event.owner else ""
    reason = f": {code(plain(event.reason, 300))}" if event.reason else ""
    return f"{event.state}{at}{owner}{reason}"
