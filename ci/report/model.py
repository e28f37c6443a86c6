"""The value that every rendering starts from: one judgement and what surrounds it.

A report is complete: rendering needs no file, clock or network, so the same report gives the same text.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping

from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.causes.explanation import Explanation
from ci.stats.types import Clocks

Scalar = str | int | float | bool | None

NUMBER = re.compile(r"\d+(?:\.\d+)?")


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two sides: its commit (40 hex digits, or "" where there is none), a name, and its versions."""

    commit: str = ""
    name: str = ""
    dirty: bool = False
    environment: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)

    @property
    def label(self) -> str:
        """For people: ``my-branch 0123abcd+changes``."""
        short = self.commit[:8] + ("+changes" if self.dirty else "")
        return " ".join(part for part in (self.name if self.name != self.commit else "", short) if part) or "no commit"


@dataclasses.dataclass(frozen=True)
class CaseCost:
    """What one call of a case must do, per rank (see kernels.spec.Cost), and its number of ranks.

    flops: FLOP.  hbm_bytes, link_bytes: bytes; link_bytes by the bus convention of nccl-tests.
    """

    flops: int = 0
    hbm_bytes: int = 0
    link_bytes: int = 0
    world: int = 1


@dataclasses.dataclass(frozen=True)
class Skip:
    """Something that was asked for and not measured, and the reason in one sentence."""

    what: str
    status: str
    why: str


@dataclasses.dataclass(frozen=True)
class ReportWarning:
    """What makes the numbers less sure: one sentence, about one case or ("") about the whole run."""

    text: str
    case: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.text}" if self.case else self.text


@dataclasses.dataclass(frozen=True)
class WarningGroup:
    """One cause and the cases it concerns, none for a warning about the whole run."""

    text: str
    cases: tuple[str, ...] = ()


def grouped(warnings: Iterable[ReportWarning]) -> tuple[WarningGroup, ...]:
    """One group per cause, in order of appearance: sentences about cases that differ in their numbers only are one."""
    found: dict[str | tuple[str, str], list[ReportWarning]] = {}
    for warning in warnings:
        key = ("case", NUMBER.sub("#", warning.text)) if warning.case else warning.text
        found.setdefault(key, []).append(warning)
    return tuple(_group(members) for members in found.values())


def _group(members: list[ReportWarning]) -> WarningGroup:
    first = members[0].text
    cases = tuple(dict.fromkeys(warning.case for warning in members if warning.case))
    alike = all(warning.text == first for warning in members)
    return WarningGroup(first if alike or len(cases) < 2 else f"{first} (numbers of the first case)", cases)


@dataclasses.dataclass(frozen=True)
class Report:
    """A judgement with its machine, its two sides and everything that was left out.

    machine: the fingerprint of the trial file.  clocks: by arm or moment ("base", "head", "before").
    costs: by case name.  links: label -> URL, written by us, never by what was measured.
    configurations: a sentence on each best configuration that moved; none of them makes a verdict.
    explanations: why cases are slower.
    title: what was judged, for the first line ("pull request", "recorded commits", "replay").
    """

    judgement: Judgement
    title: str = "pull request"
    base: Side = Side()
    head: Side = Side()
    machine: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    costs: Mapping[str, CaseCost] = dataclasses.field(default_factory=dict)
    clocks: Mapping[str, Clocks] = dataclasses.field(default_factory=dict)
    skipped: tuple[Skip, ...] = ()
    warnings: tuple[ReportWarning, ...] = ()
    links: Mapping[str, str] = dataclasses.field(default_factory=dict)
    configurations: tuple[str, ...] = ()
    explanations: tuple[Explanation, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The verdict on everything together."""
        return self.judgement.verdict

    @property
    def all_warnings(self) -> tuple[ReportWarning, ...]:
        """Warnings of the judgement, then of the measurement, each once."""
        judged = (ReportWarning(text) for text in self.judgement.warnings)
        return tuple(dict.fromkeys((*judged, *self.warnings)))

    def moved(self) -> tuple[CaseVerdict, ...]:
        """The cases to show one by one: worst verdict first, then the largest change first."""
        moved = (case for case in self.judgement.cases if case.verdict.moved)
        return tuple(sorted(moved, key=lambda case: (case.verdict.rank, -_size(case), case.case)))


def _size(case: CaseVerdict) -> float:
    return abs(case.ratio - 1.0) if case.ratio is not None else float("inf")
