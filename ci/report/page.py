"""The report as one HTML file: the same document as the comment, rendered, readable without a network."""

from __future__ import annotations

import html

from markdown_it import MarkdownIt

from ci.report import markdown
from ci.report.model import Report

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


def render(report: Report) -> str:
    """The whole page.  What comes from outside is inert in the Markdown already, and no script may run in the page."""
    body = MarkdownIt("commonmark", {"html": True}).enable("table").render("\n\n".join(markdown.parts(report)))
    title = f"{report.verdict}: {report.title}" if report.title else str(report.verdict)
    return PAGE.format(title=html.escape(title), body=body.replace(markdown.NO_JOIN, ""))
