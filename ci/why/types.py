"""What may have made a case slower, what is left of the slow-down without it, and what follows from that."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import enum
import math
from collections.abc import Collection, Iterator, Sequence

# The places in which two texts of a file differ, and the text of one with some places as they are in the other.


@dataclasses.dataclass(frozen=True)
class Hunk:
    """Lines that differ: [start, end) in either text, counted from 0.  where: the function or class around them."""

    number: int
    base: tuple[int, int]
    head: tuple[int, int]
    where: str = ""


def hunks(base: str, head: str) -> tuple[Hunk, ...]:
    """Every place in which head differs from base, in order."""
    old, new = base.splitlines(), head.splitlines()
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    around = _definitions(head)
    places = [(a, b, c, d) for tag, a, b, c, d in matcher.get_opcodes() if tag != "equal"]
    return tuple(Hunk(n, (a, b), (c, d), _name(around, c)) for n, (a, b, c, d) in enumerate(places))


def put_back(base: str, head: str, numbers: Collection[int]) -> str:
    """Head's text with the hunks of these numbers as they are in base."""
    old, new = base.splitlines(keepends=True), head.splitlines(keepends=True)
    lines: list[str] = []
    at = 0
    for hunk in hunks(base, head):
        lines += new[at : hunk.head[0]]
        lines += old[slice(*hunk.base)] if hunk.number in numbers else new[slice(*hunk.head)]
        at = hunk.head[1]
    return "".join(_ended(lines + new[at:]))


def same_program(base: str, head: str) -> bool:
    """Whether two texts of Python differ in comments and blank space only; False if one of them is no Python."""
    try:
        return ast.dump(ast.parse(base)) == ast.dump(ast.parse(head))
    except (SyntaxError, ValueError, RecursionError):
        return False


def changed_lines(base: str, head: str, hunk: Hunk) -> tuple[str, str]:
    """(base's, head's) first line of a hunk that says something, "" where a side has none."""
    return _first(base.splitlines()[slice(*hunk.base)]), _first(head.splitlines()[slice(*hunk.head)])


def _first(lines: Sequence[str]) -> str:
    return next((line.strip() for line in lines if line.strip() and not line.strip().startswith("#")), "")


def _ended(lines: list[str]) -> Iterator[str]:
    """Lines that all end, but perhaps the last."""
    yield from (line if line.endswith("\n") else f"{line}\n" for line in lines[:-1])
    yield from lines[-1:]


Definition = tuple[int, int, str]
"""[start, end) of a function or class, counted from 0, and its name."""


def _definitions(text: str) -> list[Definition]:
    """The functions and classes of the top level, with their decorators; none if it is no Python."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return []
    named = [one for one in body if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    return [(_start(one), one.end_lineno or one.lineno, one.name) for one in named]


def _start(one: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min([one.lineno, *(decorator.lineno for decorator in one.decorator_list)]) - 1


def _name(around: Sequence[Definition], start: int) -> str:
    """The definition in which a place begins, "" outside of all."""
    return next((name for first, last, name in around if first <= start < last), "")


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
    hunks: of a part, the numbers of its hunks (see `hunks`).
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
