"""Foreign text made fit to be shown and kept: what a kernel says is limited, and cannot steer a terminal."""

from __future__ import annotations

LONGEST_SENTENCE = 600
"""Characters of one line; the longest sentence of ours has 300, and four lines of a terminal hold as many (2026-11)."""

LONGEST_DETAIL = 8000
"""Characters of a traceback, or of a log, in the trial file."""


def sentence(text: str, most: int = LONGEST_SENTENCE) -> str:
    """One line: what cannot be printed is escaped, what is too long is cut, with a word on how much is missing."""
    more = len(text) - most
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:most])
    return f"{shown} ... ({more:,} more characters)" if more > 0 else shown


def lines(text: str, most: int = LONGEST_DETAIL) -> str:
    """The end of a text of several lines, each as a sentence."""
    kept = "\n".join(sentence(line.replace("\t", "    ")) for line in text.splitlines())
    return kept[-most:]


def of_error(error: BaseException) -> str:
    """The first line of an exception's text; an exception may fail to say anything."""
    try:
        said = str(error).strip()
    except BaseException as other:
        return f"its text cannot be had: {type(other).__name__}"
    return sentence((said.splitlines() or ["no message"])[0])
