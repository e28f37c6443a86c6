"""Reading trial files: one JSON line per trial (`.jsonl` or `.jsonl.gz`), each line parsed once.

Reading never loses anything: a line that cannot be used is returned with its number and its reason.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
import itertools
import json
import os
import stat
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from benchmarks.shapes import Unfit, anything, items, one_of, record
from ci.trials.trial import Trial

LONGEST_LINE = 64_000_000
"""Bytes: the longest line of results/ has 0.3 MB (48 cases, 5 arms, 40 rounds; 2026-11-22), and without a
bound a torn line of 200 MB took 30 s and 11 GB to refuse."""


class RecordError(Exception):
    """Records cannot be written or read; the text says what happened, what is safe, and the next step."""


@dataclasses.dataclass(frozen=True)
class Rejected:
    """A line that is not used: its number from 1 (0: the whole file), what is wrong with it, its bytes."""

    number: int
    why: str
    line: bytes = b""

    def at(self, path: Path) -> str:
        """Where it stands, for people."""
        return f"{path}:{self.number}" if self.number else str(path)


@dataclasses.dataclass(frozen=True)
class Problem:
    """Something that was left out: where, and why, with the next step."""

    where: str
    why: str

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclasses.dataclass(frozen=True)
class TrialFile:
    """What a file holds: its trials in the order of the file, and the lines that are not used.

    causes: lines that say why a case is slower, as they stand (`ci.records.ledger.CAUSES`).
    """

    path: Path
    trials: tuple[Trial, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    causes: tuple[str, ...] = ()

    def problems(self) -> list[Problem]:
        """The rejected lines, which stay where they are: nobody changes a trial file."""
        return [Problem(line.at(self.path), line.why) for line in self.rejected]


def read(path: Path, recorded: bool = False) -> TrialFile:
    """Every trial of a file, each id once, and every line that is not one.

    recorded: it is a file of records, whose lines were checked before they were written.  One whose name still has the
    digest of its lines is not checked again, which would take a third of the time of reading it.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}"
        return TrialFile(path, (), (Rejected(0, why),))
    return dataclasses.replace(_parsed(content, path.name if recorded else ""), path=path)


@functools.lru_cache(maxsize=32)
def _parsed(content: bytes, name: str) -> TrialFile:
    """By content: the rows, the health and the knobs of a record come from one file, and ask for it one by one."""
    content, damage = unpacked(content)
    lines = content.split(b"\n")
    if damage and content[-1:] != b"\n":
        lines.pop()  # a line that the damage cut off
    parsed = parse(lines, 1, checked=f".{digest_of(content)}." in name)
    if len(parsed.rejected) > 1 and not (damage or parsed.trials or parsed.causes):
        first = parsed.rejected[0]
        why = (
            f"none of its {len(parsed.rejected):,} lines is a trial (line {first.number}: {first.why}); "
            "`ridgeline run --help` says how to write one, `ridgeline records import --help` reads those of other tools"
        )
        return TrialFile(Path(), (), (Rejected(0, why),))
    return dataclasses.replace(parsed, rejected=(*damage, *parsed.rejected))


GZIP = b"\x1f\x8b"


class Followed:
    """A trial file that a measuring process appends to: every line is parsed once, however often we look.

    A last line without its newline is left for the next look: its writer may be at it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self._offset, self._lines, self._file = path, 0, 0, TrialFile(path)

    def read(self) -> TrialFile:
        """The file as it is now."""
        if not self.path.exists():
            return self._file
        with self.path.open("rb") as file:
            if file.read(2) == GZIP:
                return read(self.path)
            file.seek(self._offset)
            *lines, _ = file.read().split(b"\n")
        if lines:
            before = self._file
            more = parse(lines, self._lines + 1, {trial.id: trial for trial in before.trials})
            self._offset, self._lines = self._offset + sum(len(line) + 1 for line in lines), self._lines + len(lines)
            parts = ((*getattr(before, name), *getattr(more, name)) for name in ("trials", "rejected", "causes"))
            self._file = TrialFile(self.path, *parts)
        return self._file


def parse(
    lines: Iterable[bytes], first: int, known: Mapping[str, Trial] | None = None, checked: bool = False
) -> TrialFile:
    """Trials, causes and rejected lines of lines numbered from `first`.

    The same trial twice counts once.  known: trials by id of the lines before these; they are not given again.
    checked: whether the lines were checked before.
    """
    trials, others = dict(known or {}), list[str | Rejected]()
    shared = Shared()
    for number, line in enumerate(lines, first):
        parsed = parse_line(line, number, shared, checked) if line.strip() else None
        if isinstance(parsed, Shared):
            shared = parsed
        elif isinstance(parsed, Trial):
            if not same_results(parsed, trials.setdefault(parsed.id, parsed)):
                why = f"the id {parsed.id} is that of an earlier trial with other results; the first one is used"
                others.append(Rejected(number, why, line))
        elif parsed is not None:
            others.append(parsed)
    return TrialFile(
        Path(),
        tuple(trial for id_, trial in trials.items() if not known or id_ not in known),
        tuple(line for line in others if isinstance(line, Rejected)),
        tuple(line for line in others if isinstance(line, str)),
    )


def same_results(trial: Trial, other: Trial) -> bool:
    """Whether both hold the same cases and samples, whatever commit they were recorded as."""
    return (
        trial is other
        or trial.text == other.text
        or bool(orjson.loads(trial.text)["cases"] == orjson.loads(other.text)["cases"])
    )


class Shared(tuple[Any, ...]):
    """What the lines after the first one of notes share, by its place in that line."""


NOTHING_SHARED = Shared()

CAUSE = "ridgeline-cause"
"""Format of a line that says why a case is slower."""


def parse_line(
    line: bytes, number: int = 1, shared: Shared = NOTHING_SHARED, checked: bool = False
) -> Trial | str | Shared | Rejected:
    """What one line holds, or what is wrong with it; a text says why a case is slower, which whoever wants it parses.

    shared: what the lines before say that it shares with others.
    """
    if len(line) > LONGEST_LINE:
        why = f"{len(line) / 1e6:,.0f} MB long; a trial has at most {LONGEST_LINE / 1e6:,.0f} MB"
        return Rejected(number, why, line)
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        return Rejected(number, "not UTF-8 text", line)
    try:
        return _read(_value(text), text, shared, checked)
    except json.JSONDecodeError as error:
        torn = text.startswith("{") and not text.endswith("}") and error.msg != "Extra data"
        what = "the line is torn, its writer was interrupted" if torn else "not JSON"
        return Rejected(number, f"{what}: {error.msg} at character {error.pos}", line)
    except RecursionError:
        return Rejected(number, "nested too deeply for a trial", line)
    except Unfit as error:
        return Rejected(number, f"not a trial: {error}", line)
    except ValueError as error:  # a token or a number that json takes and a trial does not
        return Rejected(number, f"not JSON: {error}", line)


def _read(data: Any, text: str, shared: Shared, checked: bool) -> Trial | str | Shared:
    """By the format that a line says it has.  Raises Unfit."""
    kind = data.get("format") if isinstance(data, dict) else None
    if kind == NOTES:
        NOTES_HEAD(data, "")
        return Shared(data["shared"])
    if kind == CAUSE:
        return text
    if kind and restored(data, shared):
        return Trial.of(data, lambda: _restored_line(text, shared), checked)
    return Trial.of(data, lambda: text, checked)


def unpacked(content: bytes) -> tuple[bytes, tuple[Rejected, ...]]:
    """What can be unpacked of a gzip file (trials are appended as members of their own), and why the rest cannot."""
    if content[:2] != GZIP:
        return content, ()
    parts = []
    try:
        for part in _members(content):
            parts.append(part)
    except (zlib.error, EOFError) as error:
        return b"".join(parts), (Rejected(0, str(error)),)
    return b"".join(parts), ()


def _members(content: bytes) -> Iterator[bytes]:
    while content:
        member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
        try:
            yield member.decompress(content)
        except zlib.error as error:
            raise zlib.error(f"a damaged gzip file: {error}") from None
        if not member.eof:
            raise EOFError("the gzip file ends early, its writer was interrupted")
        content = member.unused_data


def _value(text: str) -> Any:
    """The value of JSON.  What orjson refuses, json takes (a lone surrogate, a number without end) or says why not."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(token: str) -> float:
    raise ValueError(f"the token {token} is not allowed in a trial")


# Notes: trial lines in one file, with what they share written once.
#
#     {"format": "ridgeline-notes", "version": 1, "shared": [{"name": "h200x1-537ca5d2", ...}, ...]}
#     {"format": "ridgeline-trial", ..., "machine": 0, "trees": {"head": {..., "environment": 1, "declaration": 2}}}
#
# A whole number where a trial line has an object is the place of that object in `shared`.  With them put back a line
# is the one that was measured, key by key, so that its id is still the digest of its content.  The file is compressed;
# equal trials give equal bytes, on every machine.


NOTES, NOTES_VERSION = "ridgeline-notes", 1

NOTES_HEAD = record({"format": one_of(NOTES), "version": one_of(NOTES_VERSION), "shared": items(anything)}, {})
"""The first line."""

OF_TRIAL, OF_CHECKOUT = ("machine", "protocol", "preflight"), ("environment", "declaration", "ran")
"""Fields of a trial, and of each of its checkouts, that many trials of a record have alike."""


@dataclasses.dataclass(frozen=True)
class PackedNotes:
    """The content of a file of notes, and 12 hex digits that depend on its lines alone."""

    content: bytes
    digest: str


def packed_notes(trials: Iterable[Trial]) -> PackedNotes:
    """The lines of trials, oldest first, as a file."""
    shared: dict[str, int] = {}
    lines = []
    for trial in sorted(trials, key=lambda trial: trial.order):
        line = json.loads(trial.text)
        for holder, field in _shareable(line):
            if isinstance(holder.get(field), dict):
                holder[field] = shared.setdefault(json.dumps(holder[field]), len(shared))
        lines.append(line)
    head = {"format": NOTES, "version": NOTES_VERSION, "shared": [json.loads(text) for text in shared]}
    text = "".join(f"{json.dumps(line, allow_nan=False, separators=(',', ':'))}\n" for line in (head, *lines))
    content = gzip.compress(text.encode(), 9, mtime=0)
    content = content[:9] + b"\xff" + content[10:]  # the byte that names the system differs between Pythons
    return PackedNotes(content, digest_of(text.encode()))


def digest_of(lines: bytes) -> str:
    """12 hex digits of the lines of notes, which stand in the name of their file."""
    return hashlib.blake2b(lines, digest_size=6).hexdigest()


def restored(data: Any, shared: Shared) -> bool:
    """Put the shared objects back into the value of a trial line; False where it has all.  Raises Unfit."""
    places = [(holder, field) for holder, field in _shareable(data) if type(holder.get(field)) is int]
    for holder, field in places:
        if not 0 <= holder[field] < len(shared):
            raise Unfit(field, holder[field], "an object, or the place of one in the first line of the notes")
        holder[field] = shared[holder[field]]
    return bool(places)


def _restored_line(text: str, shared: Shared) -> str:
    """A trial line with the shared objects in it."""
    data = _value(text)
    restored(data, shared)
    try:
        return orjson.dumps(data).decode()
    except TypeError:  # a number above 64 bits, a lone surrogate
        return json.dumps(data, separators=(",", ":"))


def _shareable(data: Any) -> Iterator[tuple[dict[str, Any], str]]:
    """(object, field) of everything that may be shared."""
    yield from ((data, field) for field in OF_TRIAL)
    trees = data.get("trees")
    for checkout in trees.values() if isinstance(trees, dict) else ():
        if isinstance(checkout, dict):
            yield from ((checkout, field) for field in OF_CHECKOUT)


# Reading a trial file that a stranger's code may have written: limits on what costs time or memory come first.
#
# What the lines may hold is the same for everybody (`benchmarks.trial_file.check`).  Whether they are *true* is another
# question: `ci.judging.recorded`.


LARGEST_FILE, LARGEST_LINE, MOST_LINES = 256_000_000, 8_000_000, 20_000
"""Bytes of a file and of a line, and lines.  The largest lines of an 8-GPU node have 0.4 MB; a comparison of the pr
tier has about 15 trials of 30 operators, 450 lines of 0.1 MB (`ab` on an H200, 2026-11-21)."""


def read_hostile(path: Path) -> TrialFile:
    """The trials of a file that is not trusted; a file beyond the limits has none and says why."""
    try:
        text = content(path)
    except OSError as error:
        return _refused(path, f"cannot be read: {error.strerror or error}")
    if isinstance(text, str):
        return _refused(path, text)
    lines = text.split(b"\n")
    if len(lines) > MOST_LINES:
        return _refused(path, f"has more than {MOST_LINES} lines; one leg measures some hundred trials")
    long = {number for number, line in enumerate(lines, 1) if len(line) > LARGEST_LINE}
    read_lines = parse((b"" if n in long else line for n, line in enumerate(lines, 1)), 1)
    too_long = (Rejected(n, f"longer than {LARGEST_LINE} bytes") for n in sorted(long))
    return TrialFile(path, read_lines.trials, (*too_long, *read_lines.rejected), read_lines.causes)


def content(path: Path) -> bytes | str:
    """The bytes of a plain file of a bearable size, or why it is none; links are not followed.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return "is not a plain file"
        held = file.read(LARGEST_FILE + 1)
    if len(held) > LARGEST_FILE:
        return f"is larger than {LARGEST_FILE} bytes"
    return "is compressed; a leg hands over plain text" if held[:2] == GZIP else held


def _refused(path: Path, why: str) -> TrialFile:
    return TrialFile(path, (), (Rejected(0, why),))


# Which trials of a run a file lacks: what is measured when it is taken up again.


@dataclasses.dataclass(frozen=True)
class TrialBatch:
    """Trials with consecutive numbers of the same operators.  operators: () stands for all that are planned."""

    operators: tuple[str, ...]
    first: int
    count: int


def measured_operators(trials: Iterable[Trial], first: int) -> tuple[str, ...]:
    """The operators of a run as far as its trials tell: (), unless its first trial is whole.

    Operators are measured trial by trial, so the second trial begins when the first is whole.
    """
    measured = list(trials)
    if not any(trial.number > first for trial in measured):
        return ()
    return tuple(dict.fromkeys(trial.operator for trial in measured if trial.number == first))


def missing(trials: Iterable[Trial], operators: Collection[str], first: int, count: int) -> list[TrialBatch]:
    """The batches that complete `count` trials, numbered from `first`, of these operators, in the order of a run."""
    done = {(trial.operator, trial.number) for trial in trials}
    numbers = range(first, first + count)
    lacking = ((number, tuple(name for name in operators if (name, number) not in done)) for number in numbers)
    batches = []
    for lacked, neighbours in itertools.groupby(lacking, key=lambda lacks: lacks[1]):
        of = [number for number, _ in neighbours]
        batches += [TrialBatch(lacked, of[0], len(of))] if lacked else []
    return batches
