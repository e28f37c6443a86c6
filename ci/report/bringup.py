"""The report of a bring-up for a terminal: what passes, what is not here and why, and last what failed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ci.report.words import plain, plural

GROUPS = {"pass": "green", "not here": "cyan", "fail": "bold red"}
"""Every status and its style; what failed is last, where a person looks first."""

LONGEST = 600
"""Characters of a sentence that are shown."""


@dataclasses.dataclass(frozen=True)
class BringupRow:
    """One thing that a step looked at, and what became of it."""

    step: str
    name: str
    status: str
    text: str
    next_step: str


@dataclasses.dataclass(frozen=True)
class BringupReport:
    """A report as the measuring program writes it.  headline: the machine and its versions in one line."""

    headline: str
    rows: tuple[BringupRow, ...]
    seconds: float
    resumed: int

    def of(self, status: str) -> tuple[BringupRow, ...]:
        """The rows with a status."""
        return tuple(row for row in self.rows if row.status == status)


def read(document: Mapping[str, Any]) -> BringupReport:
    """A report from its JSON object."""
    rows = (_row(step["step"], row) for step in document["steps"] for row in step["rows"])
    return BringupReport(_headline(document), tuple(rows), document["seconds"], len(document["resumed"]))


def _row(step: str, row: Mapping[str, str]) -> BringupRow:
    return BringupRow(step, *(plain(row[key], LONGEST) for key in ("name", "status", "text", "next_step")))


def _headline(document: Mapping[str, Any]) -> str:
    machine, versions = document["machine"], document["environment"]
    device = f"{machine['count']} x {machine['market_name'] or machine['device']} ({machine['arch']})"
    shown = [device] if machine["kind"] == "gpu" else [f"no GPU seen, CPU {machine['device']}"]
    shown += [f"{name} {versions[name]}" for name in ("torch", "triton", "hip", "cuda") if versions.get(name)]
    return plain(", ".join(shown))


# ---- showing -----------------------------------------------------------------------------------------------------


def show(report: BringupReport, console: Console) -> None:
    """The machine, then a group for each status, then the count."""
    console.print(Text(report.headline, style="bold"), soft_wrap=True)
    shown = {"pass": _table, "not here": _reasons, "fail": _faults}
    for status, style in GROUPS.items():
        if rows := report.of(status):
            console.print(Text(f"\n{status}", style=style))
            console.print(Padding(shown[status](rows), (0, 0, 0, 2), expand=False))
    known = f", {plural(report.resumed, 'result')} known from before" if report.resumed else ""
    counts = ", ".join(f"{len(report.of(status))} {status}" for status in GROUPS)
    console.print(Text(f"\n{counts}; {report.seconds:.0f} s{known}", style="bold"))


def _table(rows: Sequence[BringupRow]) -> RenderableType:
    """What passed: name and sentence side by side."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, said, next_step in _passed(rows):
        table.add_row(Text(name), Text(said).append(_arrow(next_step)))
    return table


def _reasons(rows: Sequence[BringupRow]) -> RenderableType:
    """What is not here: each reason once, and below it what it is the reason of."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reasons.setdefault((_reason(row), row.next_step), []).append(_label(row))
    blocks = (
        _block(said, Text(", ".join(names), style="dim"), next_step) for (said, next_step), names in reasons.items()
    )
    return Group(*blocks)


def _faults(rows: Sequence[BringupRow]) -> RenderableType:
    """What failed, how, and what to do."""
    return Group(*(_block(_label(row), Text(row.text), row.next_step) for row in rows))


def _block(head: str, said: Text, next_step: str) -> RenderableType:
    return Group(Text(head), Padding(said.append(_arrow(next_step)), (0, 0, 0, 4), expand=False))


def _arrow(next_step: str) -> Text:
    return Text(f"\n-> {next_step}" if next_step else "", style="not dim cyan")


def _passed(rows: Sequence[BringupRow]) -> Iterator[tuple[str, str, str]]:
    """What passed; the backends of a kernel in one entry."""
    backends: dict[str, list[str]] = {}
    for row in rows:
        if row.step.startswith("backend/"):
            backends.setdefault(row.step, []).append(row.name.partition("/")[2])
        else:
            yield _label(row), row.text, row.next_step
    for step, names in backends.items():
        yield step, f"right: {', '.join(names)}", ""


def _reason(row: BringupRow) -> str:
    """Without "backend, CASE: ", which differs from kernel to kernel."""
    return re.sub(r"^(backend|baseline), [^:]*: ", "", row.text) if row.status == "not here" else row.text


def _label(row: BringupRow) -> str:
    """The step, and what it looked at where that says more."""
    if row.step.endswith(row.name) or row.step.startswith("backend/"):
        return row.step if row.step.endswith(row.name) else row.name
    return f"{row.step}: {row.name}"
