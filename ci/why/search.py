"""Which suspects explain a slow-down: what is put back next, and what follows from it.

Pure: what it asks for is measured by the caller.  One suspect after the other is put back, together with those that
were found to explain a part, until nothing is left.  The likeliest per second comes first: if there is one cause, no
other order finds it sooner on average (W. E. Smith, Naval Research Logistics Quarterly 3, 1956).  Every experiment
costs the same here, so that is the order of the weights.  Many suspects are tried by halves, as in a bisection.  If
none alone explains what is left, all of them are put back, and those taken out again that are not needed.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

# What may have made a case slower, what is left of the slow-down without it, and what follows from that.


class SuspectKind(enum.StrEnum):
    """What kind of thing differs between base and head."""

    KNOB = "knob"
    FILE = "file"
    PART = "part of a file"
    ENVIRONMENT = "environment"


class CauseAnswer(enum.StrEnum):
    """What putting a suspect back did to the slow-down."""

    ALL = "explains all"
    SOME = "explains part"
    NONE = "no effect"
    UNCLEAR = "cannot tell"
    BROKEN = "does not build alone"

    @property
    def explains(self) -> bool:
        """Whether the slow-down is smaller without it."""
        return self in (CauseAnswer.ALL, CauseAnswer.SOME)


@dataclasses.dataclass(frozen=True)
class Suspect:
    """One thing that differs and can be put back.

    name: what it is called, "num_stages" or a path.  change: the difference in words, "3 → 2".
    setting: of a knob, what puts it back, "num_stages=3".  path: of a file or a part of it, from the root of the tree.
    hunks: of a part, the numbers of its hunks (see `ci.why.suspects.hunks`).
    weight: how likely it is the cause, against 1 for a file that the operator shares with others.
    """

    kind: SuspectKind
    name: str
    change: str = ""
    setting: str = ""
    path: str = ""
    hunks: tuple[int, ...] = ()
    weight: float = 1.0


@dataclasses.dataclass(frozen=True)
class Slowdown:
    """log(time / base time) of a tree with its interval, from so many trials of it.

    broken: why the tree has no time, "" if it has.  base_code: it launches base's code objects, in the same launches;
    None where they are not known.
    """

    log_ratio: float
    low: float
    high: float
    trials: int = 0
    broken: str = ""
    base_code: bool | None = None

    @classmethod
    def of_ratio(cls, ratio: float, low: float, high: float, trials: int = 0) -> Slowdown:
        """From ratios of times."""
        return cls(math.log(ratio), math.log(low), math.log(high), trials)

    @classmethod
    def failed(cls, why: str) -> Slowdown:
        """A tree that cannot be timed."""
        return cls(0.0, 0.0, 0.0, broken=why or "it has no time")

    def changed(self, by: Callable[[float], float]) -> Slowdown:
        """The same with its log-ratios changed: a share of it, or what is beyond something else."""
        return dataclasses.replace(self, log_ratio=by(self.log_ratio), low=by(self.low), high=by(self.high))


@dataclasses.dataclass(frozen=True)
class CauseFinding:
    """Suspects that were put back together, beside those found before, and what that did.

    share: of the whole slow-down that they explain, None if the tree had no time.  left: what is slower after it.
    parts: of a file that explains something, its parts that were tried in turn.
    """

    suspects: tuple[Suspect, ...]
    answer: CauseAnswer
    share: float | None
    left: Slowdown
    parts: tuple[CauseFinding, ...] = ()


# What is put back next, and what follows from it.


SINGLY = 6
"""So many suspects are tried one by one, more of them by halves: with one cause among n, one by one takes (n + 1) / 2
experiments on average and halving 2 log2(n), each half being tried on its own; the two meet near 8 (2026-11)."""

UNLIKELY = 1.0
"""Suspects of this weight or less are first put back all at once: most of the time none of them is the cause."""

MOSTLY = 0.25
"""Share of a slow-down that may seem left where all of it is explained; what is left must include nothing, too."""

Measured = Callable[[Sequence[Suspect]], Slowdown | None]
"""How slow head is with these put back; None when the time for experiments is over."""


@dataclasses.dataclass
class Search:
    """The way to the causes of one slow-down.  floor: log-ratio below which a change does not count.

    beyond: log-ratio that is not asked about, for it is left whatever is put back here.
    """

    whole: Slowdown
    floor: float
    measured: Measured
    beyond: float = 0.0
    put: tuple[Suspect, ...] = ()
    findings: list[CauseFinding] = dataclasses.field(default_factory=list)
    stopped: bool = False

    def __post_init__(self) -> None:
        self.left = self.whole

    @property
    def explained(self) -> bool:
        """Whether nothing of the slow-down is left."""
        return any(finding.answer is CauseAnswer.ALL for finding in self.findings)

    def run(self, suspects: Sequence[Suspect]) -> None:
        """Try suspects until nothing is left of the slow-down, or of them, or of the time."""
        ordered = sorted(suspects, key=lambda suspect: -suspect.weight)
        self._each(list(_classes(ordered)))
        causes = {suspect for finding in self.findings if finding.answer.explains for suspect in finding.suspects}
        rest = [suspect for suspect in ordered if suspect not in causes]
        if not self.explained and not self.stopped and len(rest) > 1:
            self._together(rest)

    def _each(self, groups: Sequence[tuple[Suspect, ...]]) -> bool:
        """Try groups in turn, and what each consists of where it explains something; whether any does."""
        any_explains = False
        for group in groups:
            if self.explained or self.stopped:
                break
            finding = self._try(group)
            if finding is None:
                break
            if finding.answer.explains:
                any_explains = True
                if len(group) == 1 or not self._each(_groups(group, 1)):
                    self._keep(self._fewest(finding))
            elif len(group) == 1 or finding.answer is CauseAnswer.NONE:
                self.findings.append(finding)
            else:
                any_explains |= self._each(_groups(group, 1))
        return any_explains

    def _together(self, rest: Sequence[Suspect]) -> None:
        """Suspects that explain only together: all that are left, and of these the fewest."""
        finding = self._try(tuple(rest))
        if finding and finding.answer is CauseAnswer.ALL:
            self._keep(self._fewest(finding))

    def _fewest(self, finding: CauseFinding) -> CauseFinding:
        """The same without every suspect that is not needed, the unlikeliest left out first."""
        for suspect in reversed(finding.suspects):
            fewer = tuple(other for other in finding.suspects if other is not suspect)
            without = self._try(fewer) if fewer and not self.stopped else None
            finding = without if without and without.answer is CauseAnswer.ALL else finding
        return finding

    def _try(self, group: tuple[Suspect, ...]) -> CauseFinding | None:
        seen = self.measured((*self.put, *group))
        if seen is None:
            self.stopped = True
            return None
        left = self._above(seen)
        answer = classified(self.whole, self.left, left, self.floor)
        share = None if seen.broken else (self.left.log_ratio - left.log_ratio) / self.whole.log_ratio
        return CauseFinding(group, answer, share, seen)

    def _keep(self, finding: CauseFinding) -> None:
        """What explains something stays put back."""
        self.findings = [earlier for earlier in self.findings if not set(earlier.suspects) & set(finding.suspects)]
        self.findings.append(finding)
        self.put, self.left = (*self.put, *finding.suspects), self._above(finding.left)

    def _above(self, seen: Slowdown) -> Slowdown:
        """What is slower than something that is itself slower than base."""
        return seen.changed(lambda value: value - self.beyond)


def classified(whole: Slowdown, before: Slowdown, after: Slowdown, floor: float) -> CauseAnswer:
    """What putting something back did: `before` was left of the whole slow-down, and `after` is."""
    if after.broken:
        return CauseAnswer.BROKEN
    half, small = before.log_ratio / 2, max(floor, MOSTLY * whole.log_ratio)
    gone, low, high = difference(before, after)
    if after.high < half and after.low <= floor and after.log_ratio <= small:
        return CauseAnswer.ALL
    if low <= floor and high < half:
        return CauseAnswer.NONE
    if low > 0 and after.low > 0 and gone > floor:
        return CauseAnswer.SOME
    return CauseAnswer.UNCLEAR


def difference(before: Slowdown, after: Slowdown) -> tuple[float, float, float]:
    """What is gone, with its interval; the two were measured apart, so the squares of their half-widths add."""
    gone = before.log_ratio - after.log_ratio
    down = math.hypot(before.log_ratio - before.low, after.high - after.log_ratio)
    up = math.hypot(before.high - before.log_ratio, after.log_ratio - after.low)
    return gone, gone - down, gone + up


def _classes(ordered: Sequence[Suspect]) -> Iterator[tuple[Suspect, ...]]:
    """What is put back at once, to begin with: each of a few likely suspects; all of equally unlikely ones."""
    for weight, members in itertools.groupby(ordered, key=lambda suspect: suspect.weight):
        alike = tuple(members)
        yield from _groups(alike) if weight > UNLIKELY or len(alike) < 3 else (alike,)


def _groups(suspects: Sequence[Suspect], singly: int = SINGLY) -> list[tuple[Suspect, ...]]:
    """Each alone, or two halves of what are too many."""
    if len(suspects) <= max(singly, 2):
        return [(suspect,) for suspect in suspects]
    middle = len(suspects) // 2
    return [tuple(suspects[:middle]), tuple(suspects[middle:])]


def parts_first(finding: CauseFinding) -> bool:
    """Whether a finding is about one file, whose parts can be told apart."""
    return len(finding.suspects) == 1 and finding.suspects[0].kind is SuspectKind.FILE and finding.answer.explains
