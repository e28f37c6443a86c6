"""Why cases are slower, as it was shown: what an explanation says, and where results/ keeps it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.shapes import Unfit, bounded, items, maybe, name, number, one_of, record, text
from ci.trials.file import RecordError
from ci.whole_files import WriteError, replace

# What putting things back showed about slower cases, as a report and the pages tell it.


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


# The explanations in results/: `results/causes/MACHINE.jsonl`, a line for each case that was examined.
#
# {"format": "ridgeline-cause", "version": 1, "machine": "h200x1-...", "base": "40 hex digits", "head": "...", "cases":
# [...], "measured": "gemm/triton/m64", "state": "proven", "sentence": "...", "tried": [...], "code": [...]}
#
# The same commits and case once more replace what was there: the last experiments count. Lines that cannot be read
# stay.


FOLDER = "causes"
"""In results/: no machine."""

FORMAT, VERSION = "ridgeline-cause", 1

EXAMINED = ("proven", "partly", "not found")
"""States of an explanation that rests on experiments."""


@dataclasses.dataclass(frozen=True)
class RecordedCause:
    """An explanation of what head (a commit, 40 hex digits) is slower by than base, on a machine."""

    machine: str
    base: str
    head: str
    explanation: Explanation

    @property
    def key(self) -> tuple[str, str, str]:
        """What it is about, on its machine."""
        return self.base, self.head, self.explanation.measured

    @classmethod
    def of(cls, line: Any) -> RecordedCause:
        """From the JSON value of a line.  Raises Unfit."""
        bounded(line)
        LINE(line, "")
        tried = tuple(TriedCause(**{key: one[key] for key in (*TRIED_TEXTS, *TRIED_NUMBERS)}) for one in line["tried"])
        texts, numbers = (line["measured"], line["state"], line["sentence"]), (line[key] for key in SPENT)
        made = Explanation(tuple(line["cases"]), *texts, tried, tuple(line["code"]), *numbers)
        return cls(line["machine"], line["base"], line["head"], made)

    @property
    def text(self) -> str:
        """The line, without its newline."""
        head = {"format": FORMAT, "version": VERSION, "machine": self.machine, "base": self.base, "head": self.head}
        return json.dumps({**head, **dataclasses.asdict(self.explanation)}, allow_nan=False)


TRIED_TEXTS = ("kind", "name", "change", "answer", "why", "part_of")
TRIED_NUMBERS = ("share", "ratio", "low", "high", "trials")
SPENT = ("experiments", "trials", "seconds")

_TRIED = record({**dict.fromkeys(TRIED_TEXTS, text()), **dict.fromkeys(TRIED_NUMBERS, maybe(number(-1e18)))}, {})
LINE = record(
    {
        "format": one_of(FORMAT),
        "version": one_of(VERSION),
        **dict.fromkeys(("machine", "base", "head", "measured", "state"), name),
        "sentence": text(),
        "cases": items(name),
        "code": items(text()),
        "tried": items(_TRIED),
        **dict.fromkeys(SPENT, number()),
    },
    {},
)
"""A line."""


def keep(results_dir: Path, causes: Iterable[RecordedCause]) -> list[Path]:
    """Add explanations that rest on experiments; the files that have them now.  Raises RecordError."""
    by_machine: dict[str, list[RecordedCause]] = {}
    for one in causes:
        if one.explanation.state in EXAMINED:
            by_machine.setdefault(one.machine, []).append(one)
    paths = []
    for machine, new in sorted(by_machine.items()):
        paths.append(results_dir / FOLDER / f"{machine}.jsonl")
        known, problems = _read(paths[-1])
        held = {one.key: one for one in (*known, *new)}
        lines = [*(one.text for _, one in sorted(held.items())), *(line for line, _ in problems)]
        try:
            replace(paths[-1], "".join(f"{line}\n" for line in lines))
        except WriteError as error:
            raise RecordError(str(error)) from error
    return paths


def load(results_dir: Path) -> tuple[list[RecordedCause], list[str]]:
    """All explanations of a folder of records, and a sentence on each line that cannot be used."""
    found: list[RecordedCause] = []
    said: list[str] = []
    for path in sorted((results_dir / FOLDER).glob("*.jsonl")):
        known, problems = _read(path)
        found += known
        said += [f"{path}: {why}; left out" for _, why in problems]
    return found, said


def _read(path: Path) -> tuple[list[RecordedCause], list[tuple[str, str]]]:
    """The lines of a file, and (line, reason) of those that cannot be used."""
    found: list[RecordedCause] = []
    problems: list[tuple[str, str]] = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else ():
        try:
            found.append(RecordedCause.of(json.loads(line)))
        except Unfit as error:
            problems.append((line, str(error)))
        except (ValueError, RecursionError) as error:
            problems.append((line, f"a line is not JSON: {str(error)[:100]}"))
    return found, problems


def of_pair(causes: Sequence[RecordedCause], base: str, head: str, machine: str) -> tuple[Explanation, ...]:
    """What is recorded about two commits on a machine."""
    return tuple(one.explanation for one in causes if (one.base, one.head, one.machine) == (base, head, machine))
