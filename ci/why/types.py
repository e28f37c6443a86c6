"""What may have made a case slower, what is left of the slow-down without it, and what follows from that."""

from __future__ import annotations

import dataclasses
import enum
import math


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
    hunks: of a part, the numbers of its hunks (see `ci.why.hunks`).
    weight: how likely it is the cause, against 1 for a file that the operator shares with others.
    """

    kind: SuspectKind
    name: str
    change: str = ""
    setting: str = ""
    path: str = ""
    hunks: tuple[int, ...] = ()
    weight: float = 1.0

    @property
    def key(self) -> str:
        """What tells it from every other suspect of the same two commits, for a file of experiments."""
        parts = f" {','.join(map(str, self.hunks))}" if self.hunks else ""
        return f"{self.kind} {self.setting or self.path or self.name}{parts}"


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
