"""What a session is told and says while it runs: orders, progress, earlier lines, files that must not change.

Whoever judges between the trials says what comes next, and the session keeps what took it seconds to find out: what
the checkouts declare, the machine, and a fork server that has imported torch.
"""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import site
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TextIO

from benchmarks.plan import PlannedCase, UsageError, unknown_kernel
from benchmarks.shapes import Json, JsonObject, built, some_of, whole

MOST_ROUNDS = 10_000
"""What an order may ask for; a trial of 40 is usual."""

ASKING = {"asks": "orders"}
"""The line on stderr that asks for the next line on stdin: a JSON list of orders, an empty one to end."""


@dataclasses.dataclass(frozen=True)
class MeasureOrder:
    """Trials `first_trial` and on of some cases of a kernel; no cases: all of them.

    kernel "": of every planned one but those `without`.  rounds: by case, where it is not the protocol's number.
    """

    kernel: str
    cases: tuple[str, ...]
    first_trial: Annotated[int, whole()]
    trials: Annotated[int, whole(1)]
    without: tuple[str, ...] = ()
    rounds: Mapping[str, Annotated[int, whole(1, MOST_ROUNDS)]] = dataclasses.field(default_factory=dict, hash=False)


@dataclasses.dataclass(frozen=True)
class PlannedTrial:
    """One trial to be measured: of a kernel, with its number."""

    kernel: str
    number: int
    cases: tuple[PlannedCase, ...]


def in_turns(orders: Sequence[MeasureOrder], plans: Mapping[str, Sequence[PlannedCase]]) -> list[PlannedTrial]:
    """The trials of all orders: a trial of each, then the next of each."""
    single = [one for order in orders for one in _of_kernels(order, plans)]
    return [
        PlannedTrial(one.kernel, one.first_trial + turn, _ordered(one, plans[one.kernel]))
        for turn in range(max((one.trials for one in single), default=0))
        for one in single
        if turn < one.trials
    ]


def _of_kernels(order: MeasureOrder, plans: Mapping[str, Any]) -> list[MeasureOrder]:
    if order.kernel and order.kernel not in plans:
        raise unknown_kernel(order.kernel, sorted(plans))
    names = [order.kernel] if order.kernel else [name for name in plans if name not in order.without]
    return [dataclasses.replace(order, kernel=name) for name in names]


def _ordered(order: MeasureOrder, planned: Sequence[PlannedCase]) -> tuple[PlannedCase, ...]:
    known = [case.name for case in planned]
    for case in (*order.cases, *order.rounds):
        if case not in known:
            raise UsageError(f"{order.kernel} has no planned case {case!r}; there are: {', '.join(known)}")
    chosen = (case for case in planned if not order.cases or case.name in order.cases)
    return tuple(dataclasses.replace(case, rounds=order.rounds.get(case.name, 0)) for case in chosen)


def read(source: TextIO | None = None) -> Iterator[list[MeasureOrder]]:
    """Orders from stdin, each asked for when the one before is done, until there is none.  Raises UsageError."""
    while True:
        print(json.dumps(ASKING), file=sys.stderr, flush=True)
        line = (source or sys.stdin).readline()
        try:
            told = built(tuple[MeasureOrder, ...], json.loads(line or "[]"), "orders")
        except ValueError as error:
            raise UsageError(f"orders are a JSON list in one line, not {line[:80]!r} ({error})") from None
        if not told:
            return
        yield list(told)


# What a session says of how far it is.


Report = Callable[[Json], None]
"""Called with {"done": cases finished, "total": cases, "what": a few words}."""


def one_at_a_time(report: Report) -> Report:
    """The same, for several threads: an event is said to its end."""
    lock = threading.Lock()

    def said(event: Json) -> None:
        with lock:
            report(event)

    return said


@dataclasses.dataclass
class CaseCounter:
    """Counts cases, or steps, and reports what is done."""

    total: int
    report: Report
    done: int = 0

    def start(self, what: str) -> None:
        """Say what is done next."""
        self.report({"done": min(self.done, self.total), "total": self.total, "what": what})

    def telling(self, what: str) -> Callable[[str], None]:
        """Say what is done now, and return what adds to it while it is done."""
        self.start(what)
        return lambda more: self.start(f"{what}{more}")

    def finish(self) -> None:
        """Say that all is done."""
        self.report({"done": self.total, "total": self.total, "what": "done"})


# What an earlier session left in a file of lines, so that the same command goes on where it was stopped.


def objects(path: Path, having: str = "") -> Iterator[JsonObject]:
    """The JSON objects of a file's lines, compressed or not; torn and foreign lines are left out.

    Nothing, if there is no such file.  having: lines without this text are not parsed.  Raises EOFError or
    gzip.BadGzipFile after the last whole line of a compressed file whose end is torn.
    """
    if not path.exists():
        return
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        for text in lines:
            try:
                value = json.loads(text) if having in text else None
            except ValueError:
                continue
            if isinstance(value, dict):
                yield value


def of_format(path: Path, form: str, version: int) -> Iterator[JsonObject]:
    """Those of one format and version; raises as objects() does."""
    return (line for line in objects(path) if (line.get("format"), line.get("version")) == (form, version))


# Whether the files that a session measures are unchanged: the kernels, and what a Python runs as it starts.
#
# A kernel can write into the tree of either side, or leave a file that every Python runs from then on; and people edit
# the tree that they measure.  What is measured after that is not what was asked for, and its record would name the
# wrong commit.
#
# Not looked at: what compilers keep (Triton's cache, `__pycache__`), and the rest of the installed packages.


AT_START = ("*.pth", "sitecustomize.py", "usercustomize.py")
"""What CPython's module `site` runs, in a folder of installed packages."""

NEW = (".py", ".toml", ".pth")
"""Of these a new file counts too; others may be what a kernel builds as it is used."""


class Sources:
    """Their contents when the session began.  kernels: lists the files of the kernels; pythons: that run them."""

    def __init__(self, kernels: Callable[[], Iterable[Path]], pythons: Iterable[str]) -> None:
        self._kernels = kernels
        self._installed = {folder for python in pythons for folder in _installed(Path(python))}
        self._kept = {path: _content(path) for path in self._present()}

    def changed(self) -> list[Path]:
        """The files that have other contents now, are new, or are gone."""
        new = [path for path in self._present() if path not in self._kept and path.suffix in NEW]
        return sorted([*new, *(path for path, content in self._kept.items() if _content(path) != content)])

    def refuse_changed(self, kernel: str) -> None:
        """UsageError if something has changed.  kernel: what was measured meanwhile."""
        if files := self.changed():
            raise UsageError(
                f"{some_of(list(map(str, files)), 1)} changed while {kernel} was measured: by a kernel, or by somebody "
                "who works in the tree; what is measured after that is not what was asked for.  Look at it, put it "
                "back and run again; what was finished before is kept"
            )

    def _present(self) -> Iterator[Path]:
        yield from self._kernels()
        for folder in self._installed:
            for pattern in AT_START:
                yield from folder.glob(pattern)


def _installed(python: Path) -> Iterator[Path]:
    """Folders of installed packages of a Python, and those of this one, which runs the rest of the command."""
    yield from python.absolute().parent.parent.glob("lib/python3*/site-packages")
    yield from map(Path, (*site.getsitepackages(), site.getusersitepackages()))


def _content(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""
