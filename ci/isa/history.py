"""The history of the machine code for a terminal: what changed from one recorded commit to the next."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence

from rich.text import Text

from ci.history.exact import CodePoint, CodeStep, RecordedCommit, points, read, sentences, steps
from ci.isa.compile import Wanted
from ci.report.words import plural

__all__ = ["CodeStep", "CodePoint", "RecordedCommit", "chosen", "points", "read", "steps", "terminal"]


def chosen(wanted: Wanted) -> Callable[[CodePoint], bool]:
    """Whether a series is of the kernels, backends, cases and architectures that a person named."""

    def fits(point: CodePoint) -> bool:
        return (
            point.kernel in (wanted.kernels or (point.kernel,))
            and point.backend in (wanted.backends or (point.backend,))
            and point.arch in (wanted.arches or (point.arch,))
            and any(fnmatch.fnmatchcase(point.configuration, glob) for glob in wanted.cases or ("*",))
        )

    return fits


def terminal(commits: Sequence[RecordedCommit], subject_of: Callable[[str], str]) -> Text:
    """The history for a terminal: commits with a step or a new kernel, and how many had none."""
    out = Text()
    loud = [one for one in commits if one.steps or one.new]
    for one in loud:
        out.append(f"{one.commit[:8]} {subject_of(one.commit)}\n", "bold")
        if one.new:
            out.append(f"    first code of {', '.join(one.new)}\n", "green")
        for sentence in sentences(one.steps):
            out.append(f"    {sentence}\n")
    quiet = len(commits) - len(loud)
    verb = "is" if len(commits) == 1 else "are"
    out.append(f"{plural(len(commits), 'commit')} {verb} recorded, {quiet} with the same counts as the one before.\n")
    return out
