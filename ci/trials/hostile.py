"""Reading a trial file that a stranger's code may have written: limits on what costs time or memory come first.

What the lines may hold is the same for everybody (`benchmarks.trial_file.check`).  Whether they are *true* is another
question: `ci.judging.claims`.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from ci.trials.file import GZIP, Fault, Rejected, TrialFile, parse

LARGEST_FILE, LARGEST_LINE, MOST_LINES = 256_000_000, 8_000_000, 20_000
"""Bytes of a file and of a line, and lines.  The largest lines of an 8-GPU node have 0.4 MB; a comparison of the pr
tier has about 15 trials of 30 operators, 450 lines of 0.1 MB (`ab` on an H200, 2026-11-21)."""

MOST_REJECTED = 20
"""Lines that are told one by one; the next ones are counted."""


def read(path: Path) -> TrialFile:
    """The trials of a file that is not trusted; a file beyond the limits has none and says why."""
    try:
        found = content(path)
    except OSError as error:
        return _refused(path, f"cannot be read: {error.strerror or error}")
    if isinstance(found, str):
        return _refused(path, found)
    lines = found.split(b"\n")
    if len(lines) > MOST_LINES:
        return _refused(path, f"has more than {MOST_LINES} lines; one leg measures some hundred trials")
    long = {number for number, line in enumerate(lines, 1) if len(line) > LARGEST_LINE}
    read_lines = parse((b"" if n in long else line for n, line in enumerate(lines, 1)), 1)
    too_long = (Rejected(n, Fault.NOT_A_TRIAL, f"longer than {LARGEST_LINE} bytes") for n in sorted(long))
    return TrialFile(path, read_lines.trials, _few((*too_long, *read_lines.rejected)), (), read_lines.experiments)


def content(path: Path) -> bytes | str:
    """The bytes of a plain file of a bearable size, or why it is none; links are not followed.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "is not a plain file"
        found = file.read(LARGEST_FILE + 1)
    if len(found) > LARGEST_FILE:
        return f"is larger than {LARGEST_FILE} bytes"
    return "is compressed; a leg hands over plain text" if found[:2] == GZIP else found


def _refused(path: Path, why: str) -> TrialFile:
    return TrialFile(path, (), (Rejected(0, Fault.UNREADABLE, why),))


def _few(rejected: tuple[Rejected, ...]) -> tuple[Rejected, ...]:
    more = len(rejected) - MOST_REJECTED
    if more <= 0:
        return rejected
    return (*rejected[:MOST_REJECTED], Rejected(0, Fault.NOT_A_TRIAL, f"{more} further lines are not used"))
