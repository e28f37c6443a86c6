"""The report as a pull-request comment.  Its heading is the verdict; what can wait is folded.

Everything from outside is escaped: no HTML, no link, no mention and no issue reference can come out of a case's
name or of an error message.  A hidden marker lets a later run replace the comment instead of adding one.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from markdown_it import MarkdownIt

from ci.judging.types import Verdict
from ci.report import words
from ci.report.blocks import Block, Bullets, CaseTable, Heading, Links, Paragraph, Title, blocks_of
from ci.report.model import Bullet, Report, Sheet, pipes

MARKER = "<!-- ridgeline:report -->"
LIMIT = 60_000
"""Bytes of UTF-8; GitHub refuses a comment body of more than 65,536 characters."""
CUT = "_More did not fit into this comment; the JSON report has everything._"
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
    return shortened("\n\n".join(parts(report, topic)), LIMIT - len(MARKER) - 3) + "\n"


def parts(report: Report, topic: str = "") -> list[str]:
    """The blocks of the document, whatever their length: heading and summary first, the footer last."""
    *body, last = [*blocks_of(report), Links({})] if not report.links else blocks_of(report)
    blocks = [_block(block, topic) for block in body]
    note = "<sub>time: head against base, + is slower; the interval is that of the paired ratio over trials</sub>"
    return [*filter(None, blocks), "\n\n".join(filter(None, [_block(last, topic), note]))]


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


def _block(block: Block, topic: str = "") -> str:
    """A block; "" for one that says nothing.  topic: of the title."""
    if isinstance(block, Title):
        where = f" on {text(topic)}" if topic else ""
        return f"## {SIGN[block.verdict]} {block.verdict}{where}: {text(block.why, 300)}"
    if isinstance(block, Heading):
        verdict = f"{block.verdict}: " if block.verdict else ""
        return f"### {verdict}{text(block.text)}{': ' if block.cases else ''}{_named(block.cases)}"
    if isinstance(block, Paragraph):
        return "".join(_span(*span) for span in block.spans)
    if isinstance(block, Bullets):
        return _bullets(block.lines)
    if isinstance(block, CaseTable):
        return _table(block)
    if isinstance(block, Links):
        return " · ".join(link(label, url) for label, url in block.addresses.items())
    many = f" ({block.count})" if block.count > 1 else ""
    body = "\n\n".join(filter(None, map(_block, block.blocks)))
    return f"<details><summary>{text(block.title)}{many}</summary>\n\n{body}\n\n</details>" if body else ""


def _span(written: str, style: str) -> str:
    """Spaces at the ends of a span stay: they divide it from the next."""
    if style in ("code", "command"):
        return code(written)
    inert = text(written, 480)
    space = " " if written[:1] == " " else "", " " if written[1:] and written[-1] == " " else ""
    return f"**{inert}**" if style == "strong" else f"{space[0]}{inert}{space[1]}"


TITLES = {"interval %": "interval, %", "trials": "trials × rounds"}
"""Columns that have another title here."""


def _table(table: CaseTable) -> str:
    rows = []
    for case, cells in list(zip(table.cases, table.rows, strict=True))[:ROWS]:
        shown = (f"**{cells[column]}**" if column == "time" else cells[column] for column in table.columns)
        rows.append((code(case.case), *shown))
    header = ("case", *(TITLES.get(column, column) for column in table.columns))
    more = [f"| and {len(table.cases) - ROWS} more, in the JSON report |"] if len(table.cases) > ROWS else []
    return "\n".join([*pipes(Sheet("", header, tuple(rows), texts=1)), *more])


def _bullets(lines: Sequence[Bullet]) -> str:
    """A list; the cases of a line lead it, a single one so that it can be copied."""
    listed = [
        f"- {_named(line.cases)}{': ' if line.cases else ''}{text(line.text, line.most)}" for line in lines[:ROWS]
    ]
    more = [f"- and {len(lines) - ROWS} more, in the JSON report"] if len(lines) > ROWS else []
    return "\n".join(listed + more)


def _named(cases: Sequence[str]) -> str:
    """One case that can be copied, or several in words."""
    return code(cases[0]) if len(cases) == 1 else text(words.named(cases), 480) if cases else ""


def shortened(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8, by leaving out blocks before the last, and saying so."""
    if len(text.encode()) <= limit:
        return text
    *first, last = blocks(text)
    while len(first) > 1 and len("\n\n".join([*first, CUT, last]).encode()) > limit:
        first.pop()
    short = "\n\n".join([*first, CUT, last])
    return short if len(short.encode()) <= limit else CUT


def blocks(text: str) -> list[str]:
    """Parts that can be left out without breaking the rest: paragraphs, tables, <details> from end to end.

    At the beginning of a line foreign text never writes a tag (`text`).
    """
    parts: list[str] = []
    depth = 0
    for part in text.split("\n\n"):
        if depth:
            parts[-1] += f"\n\n{part}"
        else:
            parts.append(part)
        depth += len(re.findall(r"^<details>", part, re.MULTILINE)) - len(
            re.findall(r"^</details>$", part, re.MULTILINE)
        )
    return parts


# The report as one HTML file: the same document as the comment, rendered, readable without a network.


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --line: light-dark(#d0d7de, #3d444d); --soft: light-dark(#f6f8fa, #161b22); }}
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }}
h1, h2, h3 {{ line-height: 1.25; margin: 1.6em 0 0.5em; }}
main {{ overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; display: block; overflow-x: auto; font-variant-numeric: tabular-nums; }}
th, td {{ border: 1px solid var(--line); padding: 0.3em 0.7em; white-space: nowrap; }}
th {{ background: var(--soft); }}
code {{ background: var(--soft); padding: 0.1em 0.3em; border-radius: 4px; }}
pre {{ background: var(--soft); padding: 0.8em; overflow-x: auto; }}
details {{ margin: 0.8em 0; }}
summary {{ cursor: pointer; }}
</style>
<main>
{body}
</main>
</html>
"""
"""No script, nothing from elsewhere."""


def html_page(report: Report) -> str:
    """The whole page.  What comes from outside is inert in the Markdown already, and no script may run in the page."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render("\n\n".join(parts(report)))
    title = f"{report.verdict}: {report.title}" if report.title else str(report.verdict)
    return PAGE.format(title=html.escape(title), body=body.replace(NO_JOIN, ""))
