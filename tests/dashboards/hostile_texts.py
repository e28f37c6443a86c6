"""Texts that try to become something else: markup, scripts, addresses, formulas, properties, half letters."""

from __future__ import annotations

TEXTS = (
    "</script><script>window.pwned=1</script>",
    "<img src=x onerror=window.pwned=1>",
    '"><svg onload=window.pwned=1>',
    "' onmouseover='window.pwned=1",
    "javascript:window.pwned=1",
    "data:text/html,<script>window.pwned=1</script>",
    "{{7*7}}{% raw %}",
    "${window.pwned=1}`",
    "<!--",
    "]]>&lt;&amp;&#60;",
    "__proto__",
    "constructor",
    "toString",
    "\u202egnitset\u202c",
    "\u2066\u2067left or right",
    "half \ud800 a letter",
    "nul \x00 and \x1b[31m escape",
    "\u2028line\u2029paragraph",
    "x" * 600,
    "=HYPERLINK(1)",
    "@SUM(1+1)*cmd|' /C calc'!A0",
    "../../../etc/passwd",
    "a/b\\c?d#e&f=g%00",
    "é\u0301 \U0001f525 漢字 \u200b",
    "' OR 1=1; -- $(reboot) `reboot`",
)
"""25 of them."""
