"""What putting things back showed about slower cases, as a report and the pages tell it."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class TriedCause:
    """What was put back into head, and what that did (see `ci.why`).

    answer: a ci.why.types.CauseAnswer.  share: of the slow-down that it explains, of a part: of its file's.
    ratio, low, high: head's time / base's with it put back, None where there is none.  why: of a tree that has no time.
    part_of: the file that it is a part of, "" for a suspect of its own.
    """

    kind: str
    name: str
    change: str
    answer: str
    share: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    trials: int = 0
    why: str = ""
    part_of: str = ""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Why cases are slower.  cases: those with the same suspects; measured: the one that the experiments were made on.

    state: "proven" (nothing is left without the causes), "partly", "not found", "not examined".  sentence: for people.
    tried: in the order of trial.  code: what the compiler emits differently, a sentence each.
    """

    cases: tuple[str, ...]
    measured: str
    state: str
    sentence: str
    tried: tuple[TriedCause, ...] = ()
    code: tuple[str, ...] = ()
    experiments: int = 0
    trials: int = 0
    seconds: float = 0.0
