"""Events on a terminal: what stands first, the surest and largest of each kind before the others."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from ci.history.analysis import History
from ci.history.types import Direction, EventKind, EventState, HistoryEvent
from ci.report.words import interval, percent, plain, plural

STANDING = (EventState.OPEN, EventState.ACKNOWLEDGED)
"""States that need somebody."""

WIDEST = 100
"""Characters of foreign words that are shown in one place."""

HEADED = {EventKind.CODE: "code changed", EventKind.CONFIGURATION: "best configuration moved"}
"""What an event is called, where it is not its kind and direction."""

CAUSES = 2
"""Causes that are shown; --json has all."""

FOLDED = 5
"""More changes of the machine code than these are told as a number, beside events of other kinds."""

STYLE = {Direction.SLOWER: "red", Direction.FASTER: "green"}


def is_regression(event: HistoryEvent) -> bool:
    """Whether a kernel became slower and nobody has dealt with it."""
    return event.kind is EventKind.KERNEL and event.direction is Direction.SLOWER and event.state is EventState.OPEN


def is_moved_configuration(event: HistoryEvent) -> bool:
    """Whether knobs in use are no longer the best, and nobody has dealt with it."""
    return event.kind is EventKind.CONFIGURATION and event.state is EventState.OPEN


def show(events: Sequence[HistoryEvent], history: History, console: Console, all_code: bool = False) -> None:
    """One line that says what stands, the events, what was looked at.  all_code: many changes of code are listed."""
    count = sum(map(is_regression, events))
    console.print(Text(f"{plural(count, 'regression')} open", "bold red" if count else "bold green"))
    if moved := sum(map(is_moved_configuration, events)):
        console.print(Text(f"{plural(moved, 'best configuration')} moved: see `ridgeline tune --help`", "yellow"))
    code = sum(event.kind is EventKind.CODE for event in events)
    folded = code > FOLDED and not all_code
    for event in sorted(events, key=_rank):
        if not (folded and event.kind is EventKind.CODE):
            console.print(block(event), soft_wrap=True)
    if folded:
        console.print(f"{plural(code, 'change')} of the machine code: ridgeline events --kind code")
    looked = f"looked at {history.series} series with {plural(history.points, 'point')}"
    console.print(f"{looked} of {plural(len(history.commits), 'commit')}")
    for note in history.notes:
        console.print(Text(plain(note, 400), "yellow"))


def block(event: HistoryEvent) -> Text:
    """What moved and by how much; since when; what became of it and why it may be."""
    style = STYLE[event.direction] if event.state in STANDING else "dim"
    size = f"{percent(event.ratio)} {interval(event.ratio_low, event.ratio_high)}"
    headed = HEADED.get(event.kind, f"{event.kind} {event.direction}")
    first = f"{headed}: {what(event)} on {plain(event.machine, WIDEST)}, {size}"
    causes = [plain(cause.text, WIDEST) for cause in event.causes]
    more = f" (+{len(causes) - CAUSES})" if len(causes) > CAUSES else ""
    why = f"; {'; '.join(causes[:CAUSES])}{more}" if causes else ""
    indent = " " * (len(event.id) + 2)
    return Text.assemble(f"{event.id}  ", (first, style), f"\n{indent}{since(event)}\n{indent}{state(event)}{why}")


def what(event: HistoryEvent) -> str:
    """The operators that moved and how many series: gemm, gemm_all_scatter: 14 series."""
    kernels = list(dict.fromkeys(one.key.kernel for one in event.moved))
    named = ", ".join(plain(kernel, WIDEST) for kernel in kernels[:3])
    cases = {one.key for one in event.moved}
    several = f"{len(cases)} series" if len(cases) > 1 else "/".join(plain(part) for part in event.moved[0].key[2:])
    return f"{named}{f' and {len(kernels) - 3} more' if len(kernels) > 3 else ''}: {several}"


def since(event: HistoryEvent) -> str:
    """The first bad commit: hash, subject, author, pull request, and how many more may be to blame."""
    commit = event.first_bad
    who = f" ({plain(commit.author, 40)})" if commit.author else ""
    pull = f" #{commit.pull_request}" if commit.pull_request and f"#{commit.pull_request}" not in commit.subject else ""
    others = f"; or one of {event.between} before it" if event.between else ""
    return f"since {commit.hash[:8]} {plain(commit.subject, WIDEST)}{pull}{who}{others}".strip()


def state(event: HistoryEvent) -> str:
    """open; or acknowledged by somebody; or fixed at a commit."""
    ended = f" at {event.ended_at.hash[:8]}" if event.ended_at else ""
    owner = f", {plain(event.owner, 40)}" if event.owner else ""
    reason = f": {plain(event.reason, 120)}" if event.reason else ""
    return f"{event.state}{ended}{owner}{reason}"


def _rank(event: HistoryEvent) -> tuple[bool, bool, int, float]:
    kind = list(EventKind).index(event.kind)
    slower = event.direction is Direction.SLOWER
    return event.state not in STANDING, not slower, kind, -abs(event.ratio - 1)
