"""What lies in results/ beside the records of asv: ledgers, which are JSON lines that are only ever added to.

A line says its format and version, and a later line takes the place of an earlier one about the same thing.  What
cannot be read is told and stays where it is.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from benchmarks.shapes import Check, built, maybe, name, number, one_of, table, text, whole
from benchmarks.trial_file import REGIMES, record
from ci.trials.file import CAUSE, RecordError, TrialFile, unpacked
from ci.trials.trial import Trial
from ci.whole_files import WriteError, replace

Entry = TypeVar("Entry")


@dataclasses.dataclass(frozen=True)
class Ledger(Generic[Entry]):
    """Lines of one kind.  folder: in results/, a file of each machine.  what: a line in words, "a check".

    fields: what a line must hold beside format and version.  of: the entries of such a line.  key: what an entry is
    about.  plain: an entry as the fields of its line.
    """

    folder: str
    what: str
    format: str
    fields: Mapping[str, Check]
    of: Callable[[Any], Iterable[Entry]]
    key: Callable[[Entry], Hashable]
    plain: Callable[[Entry], Mapping[str, Any]] = dataclasses.asdict  # type: ignore[assignment]
    version: int = 1

    def parsed(self, text: str) -> list[Entry]:
        """The entries of a line.  Raises ValueError (Unfit, where a field is not as it should be)."""
        line = json.loads(text)
        self._check(line, "")
        return list(self.of(line))

    @functools.cached_property
    def _check(self) -> Check:
        return record({"format": one_of(self.format), "version": one_of(self.version), **self.fields}, {})

    def line(self, entry: Entry) -> str:
        """The line of an entry, without its newline."""
        return json.dumps({"format": self.format, "version": self.version, **self.plain(entry)}, allow_nan=False)

    def files(self, results: Path) -> list[Path]:
        """Those of a folder of records, in order."""
        return sorted((results / self.folder).glob("*.jsonl*"))

    def load(self, files: Iterable[Path]) -> tuple[list[Entry], list[str]]:
        """What files hold, the last of each key, and a sentence on each line or file that cannot be used."""
        found: dict[Hashable, Entry] = {}
        problems: list[str] = []
        for path in files:
            for at, line in self._lines(path, problems):
                try:
                    found.update((self.key(one), one) for one in self.parsed(line))
                except (ValueError, RecursionError) as error:
                    torn = isinstance(error, json.JSONDecodeError | RecursionError)
                    why = f"not JSON: {str(error)[:100]}" if torn else str(error)
                    problems.append(f"{path}:{at}: not {self.what}: {why}; left out")
        return list(found.values()), problems

    def _lines(self, path: Path, problems: list[str]) -> Iterator[tuple[int, str]]:
        """(number, line) of a file that may be compressed; the last line of a damaged one is no line."""
        try:
            content, damage = unpacked(path.read_bytes())
        except OSError as error:
            problems.append(f"{path}: cannot be read: {error.strerror or error}; left out")
            return
        problems += [f"{path}: cannot be read: {one.why}; left out" for one in damage]
        lines = content.decode("utf-8", "replace").splitlines()
        yield from ((n, line) for n, line in enumerate(lines[: -1 if damage else None], 1) if line.strip())

    def add(self, path: Path, entries: Iterable[Entry]) -> list[Entry]:
        """Add what the file does not say already; returns that.  Raises RecordError if it cannot be written."""
        known = {self.key(one): one for one in self.load([path] if path.exists() else [])[0]}
        new = [one for one in entries if known.get(self.key(one)) != one]
        before = path.read_text(encoding="utf-8", errors="surrogateescape") if new and path.exists() else ""
        ended = before if before.endswith("\n") or not before else f"{before}\n"
        whole = ended + "".join(f"{self.line(one)}\n" for one in new)
        try:
            if new:
                replace(path, whole.encode("utf-8", "surrogateescape"))
        except WriteError as error:
            raise RecordError(str(error)) from error
        return new


# Why cases are slower, as putting things back showed it, and as a report and the pages tell it.


@dataclasses.dataclass(frozen=True)
class TriedCause:
    """What was put back into head, and what that did (see `ci.why`).

    answer: a ci.why.search.CauseAnswer.  share: of the slow-down that it explains, of a part: of its file's.
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


EXAMINED = ("proven", "partly", "not found")
"""States of an explanation that rests on experiments."""


@dataclasses.dataclass(frozen=True)
class RecordedCause:
    """An explanation of what head (a commit, 40 hex digits) is slower by than base, on a machine."""

    machine: str
    base: str
    head: str
    explanation: Explanation


def _plain_cause(one: RecordedCause) -> dict[str, Any]:
    plain = dataclasses.asdict(one)
    return {**plain.pop("explanation"), **plain}


CAUSES = Ledger(
    "causes",
    "a cause",
    CAUSE,
    {},
    lambda line: [built(RecordedCause, line | {"explanation": line})],
    lambda one: (one.machine, one.base, one.head, one.explanation.measured),
    _plain_cause,
)
"""`results/causes/MACHINE.jsonl`, a line for each case that was examined; the last experiments on it count."""


def record_causes(results_dir: Path, causes: Iterable[RecordedCause]) -> list[Path]:
    """Add explanations that rest on experiments; the files that have them now.  Raises RecordError."""
    by_machine: dict[str, list[RecordedCause]] = {}
    for one in causes:
        if one.explanation.state in EXAMINED:
            by_machine.setdefault(one.machine, []).append(one)
    paths = {results_dir / CAUSES.folder / f"{machine}.jsonl": those for machine, those in sorted(by_machine.items())}
    for path, those in paths.items():
        CAUSES.add(path, those)
    return list(paths)


def causes_in(results_dir: Path) -> tuple[list[RecordedCause], list[str]]:
    """All explanations of a folder of records, and a sentence on each line that cannot be used."""
    return CAUSES.load(CAUSES.files(results_dir))


def causes_of(causes: Sequence[RecordedCause], base: str, head: str, machine: str) -> tuple[Explanation, ...]:
    """What is recorded about two commits on a machine."""
    return tuple(one.explanation for one in causes if (one.base, one.head, one.machine) == (base, head, machine))


# The lines of sweeps: `results/sweeps/MACHINE/COMMIT8-ENV-OPERATOR.DIGEST.jsonl.gz`, of :mod:`ci.records.store`.
#
# They are trial lines, apart from the series of cases.  Samples stay in them: a sweep has few rounds of each point.


SWEEPS = "sweeps"

NO_MACHINES = ("imported", SWEEPS, "studies", "checks", "curves", CAUSES.folder)
"""Folders of results/ that have readers of their own."""


def machine_folders(results_dir: Path) -> list[Path]:
    """The folders of machines, in order; none without the folder."""
    found = sorted(results_dir.iterdir()) if results_dir.is_dir() else []
    return [one for one in found if one.is_dir() and not one.name.startswith(".") and one.name not in NO_MACHINES]


def sweep_files(results_dir: Path) -> list[Path]:
    """Every file of sweeps."""
    return sorted((results_dir / SWEEPS).glob("*/*.jsonl.gz"))


def base_of(path: Path) -> Path:
    """The path of notes, or of a file of sweeps, without its digest and suffix: that of its record."""
    return path.with_name(re.sub(r"(\.[0-9a-f]{12})?(\.notes)?\.jsonl(\.gz)?$", "", path.name))


# Records of other regimes than "spaced", in folders of their own: times of two regimes are never compared.
#
# Sustained times lie in `results_sustained/`, a folder like `results/` in every respect (asv.sustained.json is its
# configuration for asv), with series and benchmark definitions of its own.  Whoever reads a folder so has times of one
# regime, and none of the readers needs to know that there are two.


SPACED, SUSTAINED = REGIMES


def folder_of(results: Path, regime: str) -> Path:
    """The records of a regime, beside `results`, which holds those of "spaced"."""
    return results if regime == SPACED else results.parent / f"{results.name}_{regime}"


def by_regime(files: Sequence[TrialFile]) -> dict[str, list[TrialFile]]:
    """The same files with the trials of each regime that occurs.  The lines they reject stay with the first.

    A line of a sweep stays with "spaced": it is of no case series, and says its regime itself (`ci.trials.trial`).
    """
    there = {_kept_with(trial) for file in files for trial in file.trials}
    regimes = [one for one in REGIMES if one in there] or [SPACED]
    return {one: [_of(file, one, one == regimes[0]) for file in files] for one in regimes}


def _kept_with(trial: Trial) -> str:
    return SPACED if trial.sweep else trial.regime


def _of(file: TrialFile, regime: str, first: bool) -> TrialFile:
    trials = tuple(trial for trial in file.trials if _kept_with(trial) == regime)
    return TrialFile(file.path, trials, file.rejected if first else ())


# What was verified where and when: the checks of `ridgeline verify`, in `results/checks` or where it keeps them.
#
# A line is one case with every backend called once and compared with the reference; nothing is timed.


OWN = ".ridgeline/checks.jsonl"
"""Where `ridgeline verify` keeps its checks without --out, beside the records."""

GOOD = "ok"
FAILED = ("wrong", "crash", "hang", "error")
"""Worst first (benchmarks.trial_file.FAILED)."""


@dataclasses.dataclass(frozen=True)
class CaseCheck:
    """One backend in one case.  at: ISO, UTC.  error: rms error relative to the reference's rms, None without one."""

    at: str
    machine: str
    commit: str
    kernel: str
    case: str
    world: int
    dtype: str
    backend: str
    status: str
    why: str
    error: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What is checked where."""
        return (self.machine, self.kernel, self.case, self.backend)


@dataclasses.dataclass(frozen=True)
class Verified:
    """The newest checks of one backend of a kernel on one machine with one number of ranks.

    counts: cases by status.  last: the newest of the checks.  worst: the largest error among those that are right.
    failures: those that are not.
    """

    machine: str
    kernel: str
    backend: str
    world: int
    counts: Mapping[str, int]
    last: CaseCheck
    worst: float | None
    failures: tuple[CaseCheck, ...]


def _checks_of(line: Mapping[str, Any]) -> Iterator[CaseCheck]:
    where = line["at"], line["holds_for"]["machine"], line["commit"] or "", line["kernel"]
    for backend, arm in line["arms"].items():
        error = (arm.get("error") or {}).get("norm")
        case = line["case"], line["world"], line["dtype"]
        yield CaseCheck(*where, *case, backend, arm["status"], arm.get("why") or "", error)


_ERROR = record({}, {"norm": maybe(number(0, math.inf))})
_ARM = record({"status": name}, {"why": maybe(text()), "error": maybe(_ERROR)})
CHECKS = Ledger(
    "checks",
    "a check",
    "ridgeline-check",
    {
        **dict.fromkeys(("at", "kernel", "case"), name),
        "holds_for": record({"machine": name}, {}),
        "commit": maybe(name),
        "world": whole(),
        "dtype": text(),
        "arms": table(name, _ARM),
    },
    _checks_of,
    lambda check: (check.at, *check.key),
)


def case_checks(results_dir: Path) -> tuple[list[CaseCheck], list[str]]:
    """Every check in time, and a sentence on each line or file that holds none."""
    own = results_dir.parent / OWN
    checks, problems = CHECKS.load([*CHECKS.files(results_dir), *([own] if own.is_file() else [])])
    return sorted(checks, key=lambda check: (check.at, *check.key)), problems


def verified(checks: Iterable[CaseCheck]) -> list[Verified]:
    """One row per machine, kernel, backend and number of ranks; of a case that was checked twice the newest counts."""
    newest = {check.key: check for check in sorted(checks, key=lambda check: check.at)}
    groups: dict[tuple[str, str, str, int], list[CaseCheck]] = {}
    for check in newest.values():
        groups.setdefault((check.machine, check.kernel, check.backend, check.world), []).append(check)
    return [_verified(key, checks) for key, checks in sorted(groups.items())]


def _verified(key: tuple[str, str, str, int], checks: Sequence[CaseCheck]) -> Verified:
    failures = sorted((c for c in checks if c.status in FAILED), key=lambda check: FAILED.index(check.status))
    errors = [check.error for check in checks if check.status == GOOD and check.error is not None]
    counts = Counter(check.status for check in checks)
    last = max(checks, key=lambda check: check.at)
    return Verified(*key, counts, last, max(errors, default=None), tuple(failures))
