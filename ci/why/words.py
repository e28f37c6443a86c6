"""What was found, as sentences and as the values that a report keeps."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from ci.records.causes.explanation import TriedCause
from ci.report.words import interval, percent
from ci.why.search import Search
from ci.why.types import CauseAnswer, CauseFinding, Slowdown, Suspect, SuspectKind


def state(search: Search) -> str:
    """proven, partly or not found."""
    if search.explained:
        return "proven"
    return "partly" if any(one.answer.explains for one in search.findings) else "not found"


def sentence(search: Search) -> str:
    """The causes, and how much of the slow-down is left without them."""
    causes = [one for one in search.findings if one.answer.explains]
    whole = percent(math.exp(search.whole.log_ratio))
    if not causes:
        return f"{whole} is not explained: {_unexplained(search)}"
    if len(causes) == 1 and search.explained:
        return f"{_named(causes[0])}: putting {_it(causes[0])} back leaves {_left(causes[0].left)} of {whole}: proven"
    each = "; ".join(f"{_named(one)} explains {_share(one)}" for one in causes)
    return f"{each}: without them {_left(causes[-1].left)} of {whole} is left" + (
        ": proven" if search.explained else ""
    )


def _unexplained(search: Search) -> str:
    if search.stopped:
        return "the experiments ended before a cause was found"
    if not search.findings:
        return "nothing that differs can be put back"
    tried = ", ".join(" + ".join(s.name for s in one.suspects) for one in search.findings)
    return f"putting back does not help, or does not build alone ({tried})"


def _named(finding: CauseFinding) -> str:
    """The suspects of a finding; of a file with one part that explains as much, that part."""
    parts = [part for part in finding.parts if part.answer.explains]
    named = [_suspect(one) for part in parts for one in part.suspects] or [_suspect(one) for one in finding.suspects]
    return " and ".join(named) + (" (only together)" if not parts and len(finding.suspects) > 1 else "")


def _suspect(one: Suspect) -> str:
    change = f" {one.change}" if one.change else ""
    return f"{one.kind} {one.name}{change}" if one.kind is SuspectKind.KNOB else f"{one.name}{change}"


def _it(finding: CauseFinding) -> str:
    return "them" if len(finding.suspects) > 1 else "it"


def _share(finding: CauseFinding) -> str:
    return "a part" if finding.share is None else f"{100 * finding.share:.0f} %"


def _left(left: Slowdown) -> str:
    if left.base_code and not left.low < left.high:
        return "base's own code"
    change = f"{percent(math.exp(left.log_ratio))} {interval(math.exp(left.low), math.exp(left.high))}"
    return change + (", base's own code," if left.base_code else "")


def tried(findings: Sequence[CauseFinding], part_of: str = "") -> Iterator[TriedCause]:
    """Every finding, and under a file its parts."""
    for one in findings:
        name, change = (" + ".join(filter(None, texts)) for texts in zip(*map(_texts, one.suspects), strict=True))
        seen = not one.left.broken and math.isfinite(one.left.low)
        numbers = (one.left.log_ratio, one.left.low, one.left.high)
        ratio, low, high = map(math.exp, numbers) if seen else (None, None, None)
        share = None if one.share is None or one.answer is CauseAnswer.UNCLEAR else one.share
        kind = str(one.suspects[0].kind)
        why = one.left.broken
        yield TriedCause(kind, name, change, str(one.answer), share, ratio, low, high, one.left.trials, why, part_of)
        yield from tried(one.parts, name)


def _texts(one: Suspect) -> tuple[str, str]:
    return one.name, one.change
