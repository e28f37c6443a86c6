"""What tuning did, or would do, in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from benchmarks.points import Knobs
from ci.sweeps.catalogue import TunedCase, by_place
from ci.sweeps.pruning import Pruned
from ci.sweeps.times import Versus
from ci.sweeps.tuned.choose import Action, EntryDecision
from ci.sweeps.tuned.verifying import NEVER, Due, Rivals
from ci.whole_files import replace

STYLES = {Action.MOVED: "yellow", Action.REMOVED: "yellow", Action.OPEN: "red", Action.NEW: "green"}

LISTED = 20
"""Entries that are listed one by one; of more, the number."""


def show(made: Sequence[EntryDecision], console: Console) -> None:
    """A row for each entry, and how many there are of each kind."""
    table = RichTable(box=None, pad_edge=False)
    for name in ("entry", "", "knobs", "why"):
        table.add_column(name, overflow="fold")
    for one in made:
        action = Text(str(one.action), STYLES.get(one.action, ""))
        table.add_row(str(one.place), action, _words(one.entry or {}), Text(one.why))
    console.print(table)
    console.print(counted(made))


def counted(made: Sequence[EntryDecision]) -> str:
    """How many there are of each kind."""
    counts = Counter(str(one.action) for one in made)
    return ", ".join(f"{counts[action]} {action}" for action in Action if counts[action])


def _words(knobs: Knobs) -> str:
    return " ".join(f"{name}={value}" for name, value in knobs.items())


def document(made: Sequence[EntryDecision]) -> dict[str, object]:
    """What --json prints."""
    return {"entries": [_entry(one) for one in made]}


def _entry(one: EntryDecision) -> dict[str, object]:
    return {
        "entry": str(one.place),
        "cases": [case.case for case in one.cases],
        "backend": one.cases[0].backend,
        "action": str(one.action),
        "why": one.why,
        "knobs": one.entry,
        "against_rule": _ratio(one.against_rule),
        "moved_by": _ratio(one.moved_by),
        "runners_up": [{"knobs": dict(other.knobs), "time": other.behind} for other in one.runners_up],
        "trials": one.trials,
    }


def _ratio(found: Versus | None) -> list[float] | None:
    return [found.ratio, found.low, found.high] if found else None


def would_search(cases: Sequence[TunedCase], pruned: Pruned, minutes: float, arch: str) -> None:
    """What a search would measure."""
    entries = by_place(cases)
    click.echo(f"{len(entries)} entries on {arch}, for {len(cases)} cases and backends")
    for what, count in pruned.reasons().items():
        click.echo(f"  {count} points are not measured: {what}")
    click.echo(f"would measure {pruned.count} points, about {minutes:.1f} GPU minutes")


def say_due(operator: str, due: Due, later: Sequence[Rivals], minutes: float) -> None:
    """Which entries need no GPU time, which are measured now, in so many minutes, and which wait for the next call."""
    told = [f"{one.entry.place}: code unchanged since it was confirmed on {one.since}" for one in due.unchanged]
    told += [f"{one.entry.place}: to verify, {_since(one)}" for one in due.stale]
    told += [f"{one.entry.place}: waits for the next call, {_since(one)}: the budget is spent" for one in later]
    for line in told[:LISTED]:
        click.echo(line, err=True)
    if len(told) > LISTED:
        click.echo(f"and {len(told) - LISTED} more", err=True)
    measured = f"{len(due.stale)} to verify in about {minutes:.1f} GPU minutes" if due.stale else "none to verify"
    click.echo(
        f"{operator}: {len(told)} entries, {len(due.unchanged)} need no GPU time, {measured}, {len(later)} wait",
        err=True,
    )


def _since(one: Rivals) -> str:
    if one.entry.confirmed is None or one.since == NEVER:
        return "never confirmed"
    changed = "its code has changed" if one.entry.confirmed.code else "its code was not recorded"
    return f"confirmed on {one.since}, and {changed}"


def added(lines: Path, out: Path) -> None:
    """Add the lines of a trial file to another one, each once."""
    before = out.read_text(encoding="utf-8") if out.exists() else ""
    measured = lines.read_text(encoding="utf-8").splitlines() if lines.exists() else []
    known = set(before.splitlines())
    new = [line for line in measured if line not in known]
    replace(out, before + "".join(f"{line}\n" for line in new))


def markdown(made: Sequence[EntryDecision]) -> str:
    """What a pull request with new tables says: what moved, what goes, what is new, what was confirmed."""
    order = (Action.MOVED, Action.REMOVED, Action.NEW, Action.CONFIRMED)
    told = sorted((one for one in made if one.action in order), key=lambda one: (order.index(one.action), one.place))
    rows = [f"| `{one.cases[0].operator}` `{one.place}` | {one.action} | {one.why} |" for one in told]
    moved = sum(one.action in (Action.MOVED, Action.REMOVED) for one in told)
    head = f"{moved} best configurations moved." if moved != 1 else "1 best configuration moved."
    note = "Every entry says what confirmed it; an entry is for all cases that share it."
    return "\n".join([head, "", "| entry | | why |", "|---|---|---|", *rows, "", note, ""])
