"""The report as a pull-request comment.  Its heading is the verdict; what can wait is folded.

Everything from outside is escaped: no HTML, no link, no mention and no issue reference can come out of a case's
name or of an error message.  A hidden marker lets a later run replace the comment instead of adding one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence

from ci.judging.types import CaseVerdict, Group, Verdict
from ci.report import words
from ci.report.document import Bullet, Sheet, pipes
from ci.report.model import Report, Scalar, grouped

MARKER = "<!-- ridgeline:report -->"
LIMIT = 60_000
"""Bytes of UTF-8; GitHub refuses a comment body of more than 65,536 characters."""
ROWS = 100
"""Most rows in one table or list; the JSON report has all of them."""
SIGN = {
    Verdict.BROKEN: "❌",
    Verdict.SLOWER: "❌",
    Verdict.FASTER: "✅",
    Verdict.SAME: "✅",
    Verdict.CANNOT_TELL: "❔",
    Verdict.NOT_COMPARABLE: "❔",
    Verdict.NEW: "✅",
    Verdict.GONE: "❔",
}
NEXT = {
    Verdict.BROKEN: "A case no longer works: see below{command}.",
    Verdict.SLOWER: "If it is intended, state why{command}.",
    Verdict.CANNOT_TELL: "This is not a pass: see below what could not be decided or measured, and why.",
    Verdict.NOT_COMPARABLE: "What defines the number changed, so old and new times cannot be compared: "
    "a reviewer must agree to the new benchmark definition.",
}
STRUCTURAL = re.compile(r"(?<=[0-9A-Za-z])(_+)(?=[0-9A-Za-z])|[\\`*_\[\]<>|~&\"'$]|^(?:[#+=-]|\d+(?=[.)]))")
"""What starts Markdown or HTML: anywhere in a line, or only at its beginning.  Group 1: underscores in a word, which
start nothing (CommonMark 0.31, section 6.2: between two letters or digits `_` neither opens nor closes emphasis)."""
LINKING = re.compile(r"(@|#|://|(?i:www)\.|(?i:gh)-(?=\d))")
NO_JOIN = "\u200b"
"""Zero-width space: it breaks up mentions, references and addresses."""


def render(report: Report) -> str:
    """The whole comment, at most LIMIT bytes of UTF-8, ending in a newline."""
    return f"{MARKER}\n\n{section(report)}"


def section(report: Report, topic: str = "") -> str:
    """The same without the marker.  topic: the pool that the heading names, "" for none."""
    return _fit(parts(report, topic))


def parts(report: Report, topic: str = "") -> list[str]:
    """The blocks of the document, whatever their length: heading and summary first, the footer last."""
    blocks = [
        _heading(report, topic),
        _summary(report),
        *_moved(report),
        *_causes(report),
        *_floors(report),
        *_machine_code(report),
        *_details(report),
        _footer(report),
    ]
    return [block for block in blocks if block]


def text(value: object, limit: int = 240) -> str:
    """Foreign text as inert Markdown on one line."""
    return _inert(words.plain(value, limit))


def _inert(line: str) -> str:
    """Nothing links, nothing is formatted.  Also for HTML: addresses between two tags are made live."""
    apart = LINKING.sub(lambda match: match[0][:1] + NO_JOIN + match[0][1:], line)
    return STRUCTURAL.sub(lambda match: match[1] or f"&#{ord(match[0][0])};{match[0][1:]}", apart)


def code(value: object, limit: int = 160) -> str:
    """A foreign name in code style; a code span where that is safe, escaped HTML elsewhere."""
    line = words.plain(value, limit)
    if re.search(r"[`|\\]", line) or not line:
        return f"<code>{_inert(line)}</code>"
    return f"`{line}`"


def link(label: str, url: str) -> str:
    """A link of ours; anything but a plain https address is shown as text."""
    if re.fullmatch(r"https://[\w.-]+(:\d+)?(/[\w.~%/?=&+,:@#-]*)?", url):
        return f"[{text(label)}](<{html.escape(url)}>)"
    return f"{text(label)}: {code(url)}"


def _heading(report: Report, topic: str) -> str:
    where = f" on {text(topic)}" if topic else ""
    return f"## {SIGN[report.verdict]} {report.verdict}{where}: {text(report.judgement.why, 300)}"


def _summary(report: Report) -> str:
    compared = f": {code(report.head.label)} against {code(report.base.label)}" if words.sides(report) else ""
    where = f" on {code(words.machine_line(report.machine))}" if report.machine else ""
    lines = [text(report.title) + compared + where]
    if counted := words.counts(report.judgement.cases):
        parts = [f"**{number}** {verdict}" for verdict, number in counted.items()]
        parts += [f"**{len(report.skipped)}** not measured"] if report.skipped else []
        lines.append(" · ".join(parts))
    if report.ran:
        lines.append(f"Code of this change that ran: {text(words.ran(report.ran))}")
    if report.verdict in NEXT:
        command = words.command(report)
        lines.append(NEXT[report.verdict].format(command=f"; to see it again: `{command}`" if command else ""))
    return "\n\n".join(lines)


def _moved(report: Report) -> Iterator[str]:
    for cause, cases in words.groups_of(report):
        yield f"### {cases[0].verdict}: {text(words.cause(cause, cases))}"
        yield from _cases(report, cause, cases)


def _cases(report: Report, cause: Group | None, cases: Sequence[CaseVerdict]) -> Iterator[str]:
    """A table with its reasons; a list of reasons for cases without times."""
    if any(case.ratio is not None for case in cases):
        yield _table(report, cases)
        yield _bullets(words.why(cause, cases))
    else:
        yield _bullets(words.evidence(cases))


TITLES = {"interval %": "interval, %", "trials": "trials × rounds"}
"""Columns that have another title here."""


def _table(report: Report, cases: Sequence[CaseVerdict]) -> str:
    columns: list[str] = []
    if any(case.ratio for case in cases):
        rated = ["head reaches"] if any(case.case in report.costs for case in cases) else []
        columns = ["time", "interval %", "base → head", *rated, "trials"]
    rows = []
    for case in cases[:ROWS]:
        said = words.cells(report, case)
        said["time"] = f"**{said['time']}**"
        rows.append((code(case.case), *(said[column] for column in columns)))
    header = ("case", *(TITLES.get(column, column) for column in columns))
    more = [f"| and {len(cases) - ROWS} more, in the JSON report |"] if len(cases) > ROWS else []
    return "\n".join([*pipes(Sheet("", header, tuple(rows), texts=1)), *more])


def _bullets(lines: Sequence[Bullet]) -> str:
    """A list; the cases of a line lead it, a single one so that it can be copied."""
    listed = [f"- {_named(line.cases)}{text(line.text, line.most)}" for line in lines[:ROWS]]
    more = [f"- and {len(lines) - ROWS} more, in the JSON report"] if len(lines) > ROWS else []
    return "\n".join(listed + more)


def _named(cases: Sequence[str]) -> str:
    who = code(cases[0]) if len(cases) == 1 else text(words.named(cases), 480) if cases else ""
    return who and f"{who}: "


def _floors(report: Report) -> Iterator[str]:
    if lines := words.floors(report.judgement):
        yield "### Against the vendor library"
        yield _bullets(lines)


def _causes(report: Report) -> Iterator[str]:
    """Why cases are slower: the cause, and folded what else was put back."""
    for one in report.explanations:
        yield f"### Why: {_named(one.cases).removesuffix(': ')}"
        yield f"**{text(one.sentence, 480)}**"
        lines = _bullets([Bullet(line) for line in words.cause_lines(one, ROWS)])
        yield _fold("What was put back, and the machine code", 1, lines)


def _machine_code(report: Report) -> Iterator[str]:
    """What the compiler emits differently, whether or not a rule judges it; equal code is one line."""
    if report.judgement.machine_code:
        first, *others = report.judgement.machine_code
        yield f"**Machine code** {text(first, 480)}"
        yield _bullets([Bullet(line, most=1200) for line in others])


def _details(report: Report) -> Iterator[str]:
    rest = [case for case in report.judgement.cases if not case.verdict.moved]
    unsure = [case for case in rest if case.verdict is Verdict.CANNOT_TELL]
    yield _fold("Cannot tell", len(unsure), _paragraphs(_table(report, unsure), _bullets(words.why(None, unsure))))
    settled = [case for case in rest if case.verdict is not Verdict.CANNOT_TELL]
    yield _fold("The rest: " + ", ".join(words.folded(settled)), len(settled), _table(report, settled))
    yield _fold("Not measured, and why", len(report.skipped), _bullets(words.skipped(report.skipped)))
    warnings = grouped(report.all_warnings)
    yield _fold("Warnings", len(warnings), _bullets(warnings))
    yield _fold("Machine, clocks and versions", 1, "\n".join(f"- {line}" for line in _machine(report)))


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(filter(None, parts))


def _fold(title: str, number: int, body: str) -> str:
    many = f" ({number})" if number > 1 else ""
    return f"<details><summary>{text(title)}{many}</summary>\n\n{body}\n\n</details>" if number and body else ""


def _machine(report: Report) -> Iterator[str]:
    for key, value in report.machine.items():
        if value is not None:
            yield f"{text(key)}: {code(value)}"
    for arm, clocks in report.clocks.items():
        yield f"{text(arm)} clocks: {text(words.clocks_line(clocks))}"
    for role, side in (("base", report.base), ("head", report.head)):
        if side.environment:
            yield f"{role} versions: {code(_versions(side.environment.items()), 400)}"


def _versions(items: Iterable[tuple[str, Scalar]]) -> str:
    return ", ".join(f"{key} {value}" for key, value in items if value is not None)


def _footer(report: Report) -> str:
    links = " · ".join(link(label, url) for label, url in report.links.items())
    note = "<sub>time: head against base, + is slower; the interval is that of the paired ratio over trials</sub>"
    return f"{links}\n\n{note}" if links else note


def _fit(sections: Sequence[str]) -> str:
    """Join; when too long, leave out whole sections from the end but keep the footer, and say so."""
    kept, footer = list(sections[:-1]), sections[-1]
    cut = ""
    while kept[2:] and len("\n\n".join([MARKER, *kept, cut, footer]).encode()) > LIMIT:
        kept.pop()
        cut = "_More did not fit into this comment; the JSON report has everything._"
    return "\n\n".join(part for part in [*kept, cut, footer] if part) + "\n"
