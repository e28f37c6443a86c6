"""What a report says, once: its headings, texts, lists, tables and folds, in the order in which a reader needs them.

Markdown and terminal render these blocks and know nothing else of a report.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from benchmarks.shapes import some_of
from ci.judging.types import CaseVerdict, Group, Verdict
from ci.report import words
from ci.report.model import Bullet, Report, Side, grouped

Span: TypeAlias = tuple[str, Literal["", "code", "command", "strong"]]
"""A text that came from outside or not, and how it is set."""


@dataclasses.dataclass(frozen=True)
class Title:
    """The verdict on everything, and why."""

    verdict: Verdict
    why: str


@dataclasses.dataclass(frozen=True)
class Heading:
    """Of what follows.  verdict: that it is about; cases: whose names end it."""

    text: str
    verdict: Verdict | None = None
    cases: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Paragraph:
    """A text of spans."""

    spans: tuple[Span, ...]


@dataclasses.dataclass(frozen=True)
class Bullets:
    """A list."""

    lines: tuple[Bullet, ...]


@dataclasses.dataclass(frozen=True)
class CaseTable:
    """Cases with their numbers.  rows: the cells of each case by column (`words.cells`)."""

    cases: tuple[CaseVerdict, ...]
    rows: tuple[Mapping[str, str], ...]
    columns: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Fold:
    """What can wait, under its title.  count: of what it holds.

    shown: lines of its lists that a terminal prints at once; 0: its title alone; None: nothing of it.
    """

    title: str
    count: int
    blocks: tuple[Block, ...]
    shown: int | None = 0


@dataclasses.dataclass(frozen=True)
class Links:
    """Addresses by their labels."""

    addresses: Mapping[str, str]


Block: TypeAlias = Title | Heading | Paragraph | Bullets | CaseTable | Fold | Links

LISTED = 12
"""Lines of what is not known that a terminal prints; the JSON report has all."""

EXPECTED = ("unsupported", "skipped", "unchanged")
"""What is not measured for a reason that is no fault."""

MOST_FILES = 5
"""Files of the change that ran, of which a report says so."""

NEXT = {
    Verdict.BROKEN: "A case no longer works: see below",
    Verdict.SLOWER: "If it is intended, state why",
    Verdict.CANNOT_TELL: "This is not a pass: see below what could not be decided or measured, and why",
    Verdict.NOT_COMPARABLE: "What defines the number changed, so old and new times cannot be compared: "
    "a reviewer must agree to the new benchmark definition",
}
"""What to do about a verdict."""


def blocks_of(report: Report) -> list[Block]:
    """The whole document: verdict and summary first, what moved, why, then what is not known, the machine last."""
    return [
        Title(report.verdict, report.judgement.why),
        *_summary(report),
        *_moved(report),
        *_causes(report),
        *_floors(report),
        *_machine_code(report),
        *_unsettled(report),
        _machine(report),
        *([Links(report.links)] if report.links else []),
    ]


def _summary(report: Report) -> Iterator[Block]:
    compared: list[Span] = []
    if not report.head == report.base == Side():  # a replay has neither
        compared = [(": ", ""), (report.head.label, "code"), (" against ", ""), (report.base.label, "code")]
    where: list[Span] = [(" on ", ""), (words.machine_line(report.machine), "code")] if report.machine else []
    yield Paragraph(((report.title, ""), *compared, *where))
    counts = [f"{number} {verdict}" for verdict, number in words.counts(report.judgement.cases).items()]
    counts += [f"{len(report.skipped)} not measured"] if report.skipped else []
    yield Paragraph(((" · ".join(counts) if counts else "nothing was compared", "strong"),))
    if report.ran:
        yield Paragraph(((f"Code of this change that ran: {some_of(report.ran, MOST_FILES)}", ""),))
    if report.verdict in NEXT:
        acting = report.verdict in (Verdict.BROKEN, Verdict.SLOWER)
        command = words.command(report) if acting else ""
        again: list[Span] = [("; to see it again: ", ""), (command, "command")] if command else []
        yield Paragraph(((NEXT[report.verdict], ""), *again, (".", "")))


def _moved(report: Report) -> Iterator[Block]:
    for cause, cases in words.groups_of(report):
        yield Heading(words.cause(cause, cases), cases[0].verdict)
        yield from _cases(report, cause, cases)


def _cases(report: Report, cause: Group | None, cases: Sequence[CaseVerdict]) -> Iterator[Block]:
    """A table with its reasons; a list of reasons for cases without times."""
    if any(case.ratio is not None for case in cases):
        yield _table(report, cases)
        yield Bullets(tuple(words.why(cause, cases)))
    else:
        yield Bullets(tuple(words.evidence(cases)))


def _table(report: Report, cases: Sequence[CaseVerdict]) -> CaseTable:
    rated = ["head reaches"] if any(case.case in report.costs for case in cases) else []
    timed = any(case.ratio for case in cases)
    columns = ("time", "interval %", "base → head", *rated, "trials") if timed else ()
    return CaseTable(tuple(cases), tuple(words.cells(report, case) for case in cases), columns)


def _causes(report: Report) -> Iterator[Block]:
    """Why cases are slower: the cause, and what else was put back."""
    for explanation in report.explanations:
        yield Heading("Why", cases=explanation.cases)
        yield Paragraph(((explanation.sentence, "strong"),))
        lines = tuple(map(Bullet, words.cause_lines(explanation)))
        if lines:
            yield Fold("What was put back, and the machine code", 1, (Bullets(lines),), LISTED)


def _floors(report: Report) -> Iterator[Block]:
    floors = report.judgement.floors
    if floors:
        met = sum(floor.state == "met" for floor in floors)
        yield Heading(f"Against the vendor library: {words.plural(met, 'floor')} met")
        yield Bullets(tuple(words.floors(report.judgement)))


def _machine_code(report: Report) -> Iterator[Block]:
    """What the compiler emits differently, whether or not a rule judges it; equal code is one line."""
    if report.judgement.machine_code:
        first, *others = report.judgement.machine_code
        yield Paragraph((("Machine code", "strong"), (f" {first}", "")))
        yield Bullets(tuple(Bullet(line, most=1200) for line in others))


def _unsettled(report: Report) -> Iterator[Block]:
    """What could not be told, what did not move, what was not measured and what makes numbers less sure."""
    rest = [case for case in report.judgement.cases if not case.verdict.moved]
    unsure = [case for case in rest if case.verdict is Verdict.CANNOT_TELL]
    for title, cases in (
        ("Cannot tell", [case for case in unsure if case.ratio is not None]),
        ("Cannot tell, without times", [case for case in unsure if case.ratio is None]),
    ):
        if cases:
            yield Fold(title, len(cases), tuple(_cases(report, None, cases)), LISTED)
    settled = [case for case in rest if case.verdict is not Verdict.CANNOT_TELL]
    if settled:
        yield Fold(f"The rest: {', '.join(words.folded(settled))}", len(settled), (_table(report, settled),))
    if report.skipped:
        lines = words.skipped(sorted(report.skipped, key=lambda skip: skip.status in EXPECTED))
        yield Fold("Not measured, and why", len(lines), (Bullets(tuple(lines)),), LISTED)
    if warnings := grouped(report.all_warnings):
        yield Fold("Warnings", len(warnings), (Bullets(tuple(warnings)),), LISTED)


def _machine(report: Report) -> Block:
    clocks = [f"{arm} clocks: {words.clocks_line(read)}" for arm, read in report.clocks.items()]
    facts = [f"{name}: {value}" for name, value in report.machine.items() if value is not None]
    versions = []
    for role, side in (("base", report.base), ("head", report.head)):
        named = ", ".join(f"{name} {value}" for name, value in side.environment.items() if value is not None)
        versions += [f"{role} versions: {named}"] if named else []
    blocks = tuple(Bullets(tuple(map(Bullet, lines))) for lines in (clocks, [*facts, *versions]) if lines)
    return Fold("Machine, clocks and versions", 1, blocks, len(clocks) or None)
