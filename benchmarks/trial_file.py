"""The trial file: what a line may hold, for its writer (`benchmarks`) and its readers (`ci`) alike; and writing it.

One JSON object per line, one line per trial: one operator, fresh processes, every arm and every round.  `LINE`
describes it; `check` holds a value to it, before it is written and after it is read.  Standard library only: a node
that measures has little else, and a laptop that judges has no GPU library.
"""

from __future__ import annotations

import contextlib
import datetime
import enum
import fcntl
import functools
import gzip
import hashlib
import json
import marshal
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import points
from benchmarks.shapes import (
    LONGEST_NAME,
    Json,
    JsonObject,
    Unfit,
    anything,
    bounded,
    clean,
    flag,
    form,
    items,
    maybe,
    name,
    number,
    numbers,
    one_of,
    table,
    text,
    whole,
)
from benchmarks.shapes import record as known_fields

record = functools.partial(known_fields, rest=bounded)
"""An object with known fields, each with limits of its own; the general ones hold for all others."""

FORMAT, VERSION = "ridgeline-trial", 1

ROLES = ("base", "head")
"""Sides of a comparison; a plain run has only "head"."""

SHORTEST_S, LONGEST_S = 1e-9, 3600.0
"""Seconds of one call: no clock resolves less than 1 ns, and no call of a benchmark takes more than an hour."""

REGIMES = ("spaced", "sustained")
"""A line without a regime is of the first: there was no other before."""

EARLIEST_MS, LATEST_MS = 0, 4_102_444_800_000
"""Dates, milliseconds since 1970 UTC: up to 2100.  Beyond 2262 pandas cannot hold them."""

MACHINE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
"""A machine's name is the name of its folder in results/."""


class Status(enum.StrEnum):
    """How one arm of a case ended.

    untimed: a script's closure that was right where it was looked at, and is not timed: code_hash and `why` say more.
    missing: that checkout declares nothing of it.  unimported: its module does not import, so that what it declares is
    not known.  Neither is written to a file.
    """

    OK = "ok"
    WRONG = "wrong"
    ERROR = "error"
    HANG = "hang"
    CRASH = "crash"
    UNSUPPORTED = "unsupported"
    SKIPPED = "skipped"
    UNTIMED = "untimed"
    MISSING = "missing"
    UNIMPORTED = "unimported"

    @property
    def failed(self) -> bool:
        """True for an arm that ran and must not have ended so: wrong, crash, hang, error."""
        return self in FAILED


FAILED = (Status.WRONG, Status.CRASH, Status.HANG, Status.ERROR)
"""Worst first."""

PROGRAM = "program"
"""The method of cases that are rows of a benchmark program."""

OF_RANKS = " of ranks"
"""Ends the method of closures of a script that several ranks run together."""

WORST_FIRST = (*FAILED, Status.UNSUPPORTED, Status.SKIPPED, Status.OK, Status.UNTIMED)
"""Where the trials of an arm ended differently, the worst is reported; times of some trials are better than none."""


UNTRIED = (Status.UNSUPPORTED, Status.SKIPPED)


def not_looked_at(base: Status, head: Status) -> bool:
    """Whether neither side can do a case here, where both declare it or head begins to."""
    return head in UNTRIED and base in (*UNTRIED, Status.MISSING) or base is head is Status.MISSING


class OutputError(Exception):
    """The trial file cannot be written; the text says why and what is safe."""


def _part(value: Any, where: str) -> None:
    name(value, where)
    if "/" in value:
        raise Unfit(where, value, "a name without /, which separates operator, backend and case")


_FILE_NAME = "a file name of letters, digits, '.', '_' and '-' (`ridgeline doctor` prints it)"


def _moment(value: Any, where: str) -> None:
    try:
        moment = datetime.datetime.fromisoformat(value)
        sound = moment.tzinfo is not None and EARLIEST_MS <= moment.timestamp() * 1000 <= LATEST_MS
    except (TypeError, ValueError, OverflowError):
        sound = False
    if not sound:
        raise Unfit(where, value, "an ISO date and time with its offset from UTC, 1970 to 2100")


TEXT, NAME, COUNT = text(), name, whole()
_DATE = whole(EARLIEST_MS, LATEST_MS)
_FACT = maybe(text(LONGEST_NAME, lines=False))
_MACHINE = record(
    {"name": form(MACHINE_NAME, _FILE_NAME)},
    {
        **dict.fromkeys(
            ("arch", "device", "market_name", "chip_id", "partition", "driver", "cpu", "os", "host"), _FACT
        ),
        **dict.fromkeys(("compute_units", "memory_bytes", "cpu_count", "ram_bytes"), maybe(COUNT)),
        "kind": one_of("gpu", "cpu"),
        "count": whole(1, 100_000),
        "power_cap_w": maybe(number(0, 1e6)),
    },
)
_ENVIRONMENT = record(
    {},
    {
        **dict.fromkeys(("python", "torch", "triton", "cuda", "hip", "nccl", "executable"), _FACT),
        "variables": table(NAME, TEXT),
        "libraries": table(NAME, TEXT),
    },
)
_CASE = record({"name": _part}, {"tier": NAME, "dtype": NAME, "world": whole(1, 100_000)})
_COST = record({}, dict.fromkeys(("flops", "hbm_bytes", "link_bytes", "payload_bytes"), maybe(COUNT)))
_DECLARATION = record(
    {"kernel": _part, "backends": items(_part), "cases": items(_CASE), "yardstick": NAME},
    {
        "doc": TEXT,
        "baselines": items(_part),
        "case_yardsticks": maybe(table(_part, NAME)),
        "terms": maybe(table(NAME, TEXT)),
        "stand_ins": items(_part),
        "costs": maybe(table(_part, _COST)),
    },
)


_CHECKOUT = record(
    {"environment": _ENVIRONMENT},
    {
        "commit": maybe(NAME),
        "recorded_as": maybe(NAME),
        "date_ms": maybe(_DATE),
        "dirty": maybe(flag),
        "kernels_digest": maybe(NAME),
        "kernel_digest": maybe(NAME),
        "ran": maybe(table(TEXT, NAME)),
        "declaration": anything,  # see _declared
        "broken": maybe(items(record({"module": NAME, "reason": TEXT}, {"declares": maybe(items(_part))}))),
    },
)
_ARM = record(
    {"status": one_of(*WORST_FIRST)},
    {
        "seconds": numbers(SHORTEST_S, LONGEST_S, fewest=1),
        "skew_s": maybe(numbers(0.0, LONGEST_S)),
        **dict.fromkeys(("rank_s", "whole_s"), maybe(numbers(SHORTEST_S, LONGEST_S))),
        "why": TEXT,
        "detail": TEXT,
        "knobs": maybe(table(NAME, bounded)),
        "code_hash": maybe(NAME),
        "first_call_s": maybe(number(0, 1e6)),
        "compile_s": maybe(number(0, 1e6)),
        "calls_per_sample": whole(1, 1_000_000),
        "same_as": NAME,
    },
)
"""same_as: the arm whose code and launch are the same, which was timed for both."""
_CASE_FIELDS = {"method": TEXT, "warnings": items(TEXT), "arms": table(NAME, _ARM)}
_DEVICE = {
    **dict.fromkeys(("sm_clock_mhz", "mem_clock_mhz", "temperature_c", "power_w"), maybe(number(-1e6, 1e6))),
    "throttle": maybe(TEXT),
}
_READING = record({}, {**_DEVICE, "role": maybe(NAME), "others": maybe(items(record({}, _DEVICE)))})
"""One moment: the first device, and the others of the machine under `others`."""
_STATE = record(
    {},
    {"before": maybe(_READING), "after": maybe(_READING), "during": maybe(items(_READING)), "why_absent": maybe(TEXT)},
)
_HEAP = record({"home": NAME}, {"homes": table(NAME, record({}, {"why": TEXT, "gbs": items(numbers(0.0, 1e6))}))})
"""Where the symmetric heap of a number of ranks is.  homes: why one cannot be used; before 2026-12 GB/s [from rank][to
rank], too."""
_NODE_PROBLEM = record({"kind": NAME, "level": one_of("error", "warning"), "text": TEXT}, {"next_step": TEXT})
_PREFLIGHT = record({"problems": items(_NODE_PROBLEM)}, {"facts": table(NAME, bounded)})
"""The node before the run (benchmarks.machine.limits); a problem of level "error" forbids a verdict on its times."""
_POINT = record({"backend": _part, "knobs": table(NAME, bounded)}, {})
_SWEEP = record({"id": NAME, "rung": COUNT, "batch": COUNT, "anchor": _part, "points": table(NAME, _POINT)}, {})
"""Of a line that is no trial of the case series: a batch of a sweep (benchmarks.points), one case, a rung as trial.
The arm of a point is ROLE/BACKEND@ID."""
LINE = record(
    {
        "id": NAME,
        "session": NAME,
        "trial": COUNT,
        "started_at": _moment,
        "kernel": _part,
        "machine": _MACHINE,
        "trees": table(one_of(*ROLES), _CHECKOUT),
        "cases": table(_part, record({}, _CASE_FIELDS)),
    },
    {
        "protocol": maybe(record({}, {"regime": one_of(*REGIMES)})),
        **dict.fromkeys(("duration_s", "measuring_s", "ahead_s"), maybe(number(0, 1e9))),
        "spent_s": maybe(table(NAME, number(0, 1e9))),
        "side_by_side": maybe(whole(0, 1000)),
        "busy_share": maybe(number(0, 1e3)),
        "state": maybe(_STATE),
        "heap": maybe(table(NAME, _HEAP)),
        "preflight": maybe(_PREFLIGHT),
        "sweep": _SWEEP,
        "warnings": items(TEXT),
    },
)
"""A line, apart from its `format` and `version`.  spent_s: wall seconds by phase (coordinator.lanes).
side_by_side: trials that were prepared at the same time, at most.  Before 2026-12: busy_share, measuring_s."""


def check(line: Any) -> None:
    """Raises Unfit unless the value is a trial: the general limits, every field, and that its parts agree."""
    if not isinstance(line, dict) or line.get("format") != FORMAT:
        raise Unfit("format", line.get("format") if isinstance(line, dict) else line, FORMAT)
    if line.get("version") != VERSION:
        raise Unfit(
            "version", line.get("version"), f"{VERSION}; for a newer one update Ridgeline and read the file again"
        )
    LINE(line, "")
    known = {
        role: _declared(tree.get("declaration"), f"trees.{role}.declaration") for role, tree in line["trees"].items()
    }
    for role, declared in known.items():
        if declared.operator not in ("", line["kernel"]):
            allowed = f"{line['kernel']}, the operator of the trial"
            raise Unfit(f"trees.{role}.declaration.kernel", declared.operator, allowed)
    if "sweep" in line:
        points.check_line(line["sweep"], list(line["cases"]))
    swept = line.get("sweep", {}).get("points", {})
    for case, result in line["cases"].items():
        arms = result.get("arms", {})
        for key, arm in arms.items():
            _belongs(known, points.without_id(key, swept, case), case)
            if ("seconds" in arm) != (arm["status"] == Status.OK):
                raise Unfit(f"cases.{case}.arms.{key}", arm["status"], "seconds if, and only if, the status is ok")
            if arm.get("same_as", key) not in arms:
                raise Unfit(f"cases.{case}.arms.{key}.same_as", arm["same_as"], "an arm of the case")


def unfit_declaration(value: Json) -> str:
    """Why a declaration cannot be in a trial, "" if it can."""
    try:
        _declared(clean(value), "")
    except Unfit as error:
        return str(error)
    return ""


class _Declared(NamedTuple):
    """What a declaration names; nothing where a checkout lacks the operator."""

    operator: str = ""
    backends: frozenset[str] = frozenset()
    cases: frozenset[str] = frozenset()


def _declared(value: Any, where: str) -> _Declared:
    """A declaration names nothing twice, and speaks only of its own cases and backends.  Raises Unfit.

    It is four fifths of the text of a trial, and hundreds of lines hold the same one.
    """
    return _Declared() if value is None else _declared_in(packed(value), where)


def packed(declaration: Json) -> bytes:
    """A declaration as the key of what is remembered of it: 1, 1.0 and true are three values."""
    return marshal.dumps(declaration, 2)  # without references, which depend on how the value was made


@functools.lru_cache(maxsize=64)
def _declared_in(packed: bytes, where: str) -> _Declared:
    declared = marshal.loads(packed)
    _DECLARATION(declared, where)
    cases = [case["name"] for case in declared["cases"]]
    for field, names in (("backends", declared["backends"]), ("cases", cases)):
        if len(set(names)) < len(names):
            raise Unfit(f"{where}.{field}", "with a name twice", "each name once")
    for field, known in (("baselines", declared["backends"]), ("costs", cases), ("case_yardsticks", cases)):
        for own in declared.get(field) or ():
            if own not in known:
                raise Unfit(f"{where}.{field}", own, "names that the declaration lists")
    return _Declared(declared["kernel"], frozenset(declared["backends"]), frozenset(cases))


def _belongs(known: Mapping[str, _Declared], key: str, case: str) -> None:
    """An arm belongs to a checkout of the trial, which declares its backend and its case."""
    role, _, backend = key.partition("/")
    if role not in known:
        raise Unfit(f"cases.{case}.arms", key, f"arms of the checkouts {', '.join(known)}")
    if backend not in known[role].backends or case not in known[role].cases:
        raise Unfit(f"cases.{case}.arms", key, "backends and cases that the declaration of the checkout lists")


# ---- writing -----------------------------------------------------------------------------------------------------


def finished(line: Json) -> JsonObject:
    """The line with format, version and id, checked; texts that a device or a library gave are made printable first."""
    body = clean({"format": FORMAT, "version": VERSION, **line})
    for case in body.get("cases", {}).values():
        case["arms"] = {key: _timed(arm) for key, arm in case["arms"].items()}
    whole_line = {"format": FORMAT, "version": VERSION, "id": identity(body), **body}
    check(whole_line)
    return whole_line


def identity(body: Json) -> str:
    """The id of a line: a digest of all else in it.  ValueError for a number that JSON has not."""
    return hashlib.sha256(json.dumps(body, sort_keys=True, allow_nan=False).encode()).hexdigest()[:16]


def _timed(arm: JsonObject) -> JsonObject:
    """The arm, or an error in its place if it has times that no call can have, or what no file can hold."""
    what = "its times cannot be"
    try:
        numbers(SHORTEST_S, LONGEST_S, fewest=1)(arm["seconds"], "seconds") if arm["status"] == Status.OK else None
        what = "what it reports of itself cannot be"
        _ARM(arm, "")
        text()(json.dumps(arm.get("knobs")), "the text of its knobs")
    except Unfit as error:
        return {"status": "error", "why": f"{what}: {error}", "detail": ""}
    return arm


def append(path: Path, line: Json) -> None:
    """Append one line, whole or not at all, safe against other writers.  Raises OutputError.

    A line torn by a crash before is closed with a newline first.  `.gz`: one member per line, which readers join.
    """
    text = json.dumps(line, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    zipped = path.suffix == ".gz"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path) as descriptor:
            size = os.fstat(descriptor).st_size
            if not zipped and size and os.pread(descriptor, 1, size - 1) != b"\n":
                text = b"\n" + text
            _write_all(descriptor, gzip.compress(text) if zipped else text, size)
    except OSError as error:
        raise OutputError(
            f"cannot write {path}: {error.strerror or error}; trials written before are safe in it. "
            "Free space or choose another --out, then run again"
        ) from error


def check_writable(path: Path) -> None:
    """Raise OutputError now rather than after the first trial."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path):
            pass
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror or error}; choose another --out") from error


def remove_if_empty(path: Path) -> None:
    """Leave no file behind that holds no trial."""
    with contextlib.suppress(OSError):
        if path.stat().st_size == 0:
            path.unlink()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, size_before: int) -> None:
    """Write everything, or cut the file back to what it was."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size_before)
        raise
