"""The first cause of a failed compilation in one sentence."""

from __future__ import annotations

import re
from pathlib import Path

_SAID = (r"LLVM ERROR: (.+)", r"(?:^|\s)error: (.+)", r"Assertion [`'](.+)' failed", r"ptxas fatal\s*: (.+)")
"""How messages of LLVM, MLIR, assertions and ptxas begin, the most specific first."""


def first_cause(error: BaseException, log: str = "") -> str:
    """What went wrong first: the compiler's own message if it wrote one, else the innermost exception's.

    log: what the compiler wrote to stderr.  LLVM's and MLIR's messages come before the exception that follows them.
    """
    said = _from_log(log)
    if said:
        return said
    where = _where(error)
    while error.__cause__ is not None:
        error = error.__cause__
        where = _where(error) or where
    message = str(getattr(error, "error_message", None) or "") or _last_line(str(error))
    text = " ".join(message.split()) or "no message"
    return f"{type(error).__name__}{where}: {_shortened(text)}"


def last_words(log: str) -> str:
    """What a process that died without an exception wrote: the compiler's own message, else its last line."""
    return _from_log(log) or _shortened(_last_line(log).strip()) or "it wrote nothing"


def _from_log(log: str) -> str:
    for pattern in _SAID:
        match = re.search(pattern, log)
        if match:
            return f"the compiler says: {_shortened(match[1].strip())}"
    return ""


def _where(error: BaseException) -> str:
    """at line 12, `total = tl.dot(a, b)`: the line of the kernel's source that Triton names."""
    source, node = getattr(error, "src", None), getattr(error, "node", None)
    line = getattr(node, "lineno", None)
    if not isinstance(source, str) or line is None:
        return ""
    lines = source.splitlines()
    text = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return f" at line {line}, `{text}`"


def _last_line(text: str) -> str:
    lines = [line for line in text.strip().splitlines() if line.strip(" ^")]
    return lines[-1] if lines else ""


def _shortened(text: str, limit: int = 300) -> str:
    text = re.sub(r"/[\w./-]*/([\w.-]+)", lambda match: Path(match[0]).name, text)
    return text if len(text) <= limit else text[: limit - 3] + "..."
