"""What nccl-tests and rccl-tests print, and what nccl-tests writes with -J.

A log may hold several runs, with other lines between them and an MPI prefix before each line.  Columns are found by the
table's own heading (nccl-tests src/util.cu of 2026-07 and rccl-tests src/common.cu of 2024-09: time or cputime, algbw,
busbw, #wrong, out of place and in place; per-iteration columns, algo, proto and a timestamp may follow).  Each size is
a case; out of place is the backend `nccl` or `rccl`, in place is `nccl_in_place`.  Sizes are bytes, times microseconds.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.records import rows
from ci.records.foreign.series_csv import (
    ForeignError,
    ForeignFile,
    ForeignPoint,
    ImportOptions,
    MeasuredAt,
    date_of,
    machine_named,
    median_of,
    named,
)

TYPES = {"float": "fp32", "half": "fp16", "bfloat16": "bf16", "double": "fp64", "f8e4m3": "fp8", "f8e5m2": "bf8"}
"""Their names of types, as ours; others stay."""

TIMES_SENT = {
    **dict.fromkeys(("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube"), 1),
    "all_reduce": 2,
}
"""busbw / algbw is this times (n-1)/n for n ranks (nccl-tests doc/PERFORMANCE.md, and GetBw in src/*.cu)."""

WHOLE = ("broadcast", "reduce", "sendrecv")
"""Collectives whose busbw is their algbw."""

NAMES = {"alltoall": "all_to_all"}
"""Their names of collectives that differ from ours."""

_PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\]<\w+>:|\d+:)\s?")
_STARTING = re.compile(r"Collective test starting:\s*(\S+)")
_PROGRAM = re.compile(r"\b([a-z_]+)_perf\b")
_RANK = re.compile(r"Rank\s+(\d+)\s.*?\bon\s+(\S+)\s+device\s+\d+\s+\[\S+\]\s*(.*?)\s*$")
_VERSION = re.compile(r"\b(NCCL|RCCL) version\s*:?\s*(\d[\w.]*)|nccl-library=(\d+)")
_RUNTIME = re.compile(r"\bROCm version\s*:\s*(\d[\d.]*)")
_HEADING = re.compile(r"^#\s+size\s+count\s")
_ROW = re.compile(r"^\s*\d+\s+\S")


@dataclasses.dataclass
class _TestRun:
    """What is known of the run that the reader is in."""

    collective: str = ""
    family: str = "nccl"
    host: str = ""
    device: str = ""
    library: str = ""
    runtime: str = ""
    ranks: int = 0
    columns: tuple[str, ...] = ()

    def world(self) -> int:
        return max(self.ranks, 1)


@dataclasses.dataclass(frozen=True)
class _SizeLine:
    """One size in one direction: bytes, their type, operation and root; time in us; wrong: how many elements."""

    run: _TestRun
    in_place: bool
    size: int
    dtype: str
    redop: str
    root: str
    time_us: float
    wrong: float


def fits(text: str) -> bool:
    """Whether it looks like a log."""
    return "busbw" in text and "algbw" in text


def fits_json(data: object) -> bool:
    """Whether it looks like what -J writes."""
    return isinstance(data, dict) and {"nccl_version", "results", "args"} <= data.keys()


def read(text: str, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a log.  Raises ForeignError."""
    lines, remarks = list[_SizeLine](), list[str]()
    for number, run, line in _tables(text):
        try:
            lines += _lines(run, line.split())
        except (ValueError, IndexError):
            remarks.append(f"line {number}: no row of its table: {line.strip()[:60]!r}; left out")
    if not lines:
        raise ForeignError("a log of nccl-tests or rccl-tests without one measured size; was the run interrupted?")
    return ForeignFile(_points(lines, path, given, hashlib.sha256(text.encode()).hexdigest(), None), remarks)


def read_json(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a report of -J (its version 3)."""
    program = _PROGRAM.search(" ".join(map(str, data.get("args") or ())))
    devices = list(data.get("devices") or (data.get("config") or {}).get("devices") or ())
    first = devices[0] if devices else {}
    run = _TestRun(program[1] if program else "", ranks=len(devices), library=_library(int(data["nccl_version"])))
    run.host, run.device = str(first.get("hostname") or ""), str(first.get("device_info") or "")
    lines = [line for row in data["results"] for line in _json_lines(run, row)]
    if not lines:
        raise ForeignError("a report of nccl-tests without one measured size")
    digest = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()
    return ForeignFile(_points(lines, path, given, digest, data.get("start_time")))


def _tables(text: str) -> Iterator[tuple[int, _TestRun, str]]:
    """(line number, run, row) of every row of every table."""
    run = _TestRun()
    for number, raw in enumerate(text.splitlines(), 1):
        line = _PREFIX.sub("", raw, count=1)
        if run.columns and _ROW.match(line):
            yield number, run, line
        else:
            run = _heard(run, line)


def _heard(run: _TestRun, line: str) -> _TestRun:
    """The run after a line that is no row; a new one where a run begins."""
    starting, program = _STARTING.search(line), _PROGRAM.search(line)
    if run.columns and (starting or program or "nThread" in line):
        run = _TestRun(family=run.family, library=run.library, runtime=run.runtime)
    if found := starting or program:
        run.collective = re.sub(r"_perf$", "", found[1].rpartition("/")[2])
    if "rccl" in line.lower():
        run.family = "rccl"
    if rank := _RANK.search(line):
        run.ranks = max(run.ranks, int(rank[1]) + 1)
        run.host, run.device = run.host or rank[2], run.device or rank[3]
    if version := _VERSION.search(line):
        run.library = f"{version[1]} {version[2]}" if version[1] else run.library or _library(int(version[3]))
    if runtime := _RUNTIME.search(line):
        run.runtime = f"ROCm {runtime[1]}"
    if _HEADING.match(line):
        run.columns = tuple(line.lstrip("# ").split())
    return run


def _lines(run: _TestRun, words: Sequence[str]) -> list[_SizeLine]:
    """One row of a table: out of place and in place, as far as it has them.

    Operation and root may be blank, and so may the whole part out of place; a timestamp is two words.
    """
    tail = run.columns[next(i for i, name in enumerate(run.columns) if name in ("time", "cputime")) :]
    width = len(tail) + tail.count("timestamp")
    blank = width - tail.index("time" if "time" in tail else "cputime", 1) if _twice(tail) else width
    present = width if len(words) - width >= 3 else blank
    lead = words[: len(words) - present]
    if not 3 <= len(lead) <= 5:
        raise ValueError
    names = tail if present == width else tail[len(tail) - blank :]
    starts = [i for i, name in enumerate(names) if name in ("time", "cputime")]
    values = words[len(lead) :]
    both = len(starts) > 1
    redop, root = ([*lead[3:], "", ""])[:2]
    return [
        _SizeLine(
            run,
            not both or index > 0,
            int(lead[0]),
            lead[2],
            redop,
            root,
            float(values[at]),
            0.0 if values[at + 3] == "N/A" else float(values[at + 3]),
        )
        for index, at in enumerate(starts)
    ]


def _twice(names: Sequence[str]) -> bool:
    return sum(name in ("time", "cputime") for name in names) > 1


def _json_lines(run: _TestRun, row: rows.Json) -> Iterator[_SizeLine]:
    for key in ("out_of_place", "in_place"):
        if part := row.get(key):
            time = part.get("time", part.get("cpu_time"))
            words = str(row["type"]), str(row.get("redop") or ""), str(row.get("root") or "").strip()
            yield _SizeLine(
                run, key == "in_place", int(row["size"]), *words, float(time), float(part.get("nwrong") or 0)
            )


def _points(
    lines: Sequence[_SizeLine], path: Path, given: ImportOptions, digest: str, said: object
) -> list[ForeignPoint]:
    """One point per series: a size that a log repeats is one point with several samples."""
    date, commit = date_of(given, path, said), given.commit or f"log-{digest[:8]}"
    series: dict[tuple[str, str, str, str], list[_SizeLine]] = {}
    for line in lines:
        backend = f"{line.run.family}_in_place" if line.in_place else line.run.family
        machine = given.machine or line.run.host or "unknown"
        series.setdefault((machine, _kernel(line, path, given), backend, _case(line)), []).append(line)
    return [_point(key, those, commit, date) for key, those in series.items()]


def _kernel(line: _SizeLine, path: Path, given: ImportOptions) -> str:
    """The collective: what the user, the log or the file's name says.  Raises ForeignError if none does."""
    known = (*TIMES_SENT, *WHOLE)
    in_name = max((name for name in known if name in path.name), key=len, default="")
    found = given.kernel or line.run.collective or in_name
    if not found:
        raise ForeignError(f"does not say which collective it is of; name it: --kernel {'|'.join(known)}")
    return NAMES.get(found, found)


def _point(key: tuple[str, str, str, str], lines: Sequence[_SizeLine], commit: str, date_ms: int) -> ForeignPoint:
    machine, kernel, backend, case = key
    run, line = lines[0].run, lines[0]
    env = named(run.library.replace(" ", "-"), "unknown")
    origin = MeasuredAt(
        machine_named(machine),
        named(commit),
        date_ms,
        env,
        f"{run.family}-tests",
        device=named(run.device, ""),
        runtime=run.runtime,
        library=run.library,
    )
    wrong = sum(one.wrong for one in lines)
    value, low, high = median_of([one.time_us for one in lines])
    return ForeignPoint(
        origin,
        named(kernel),
        backend,
        named(case),
        float("nan") if wrong else value,
        "us",
        low,
        high,
        len(lines),
        "wrong" if wrong else "ok",
        f"{wrong:g} elements are wrong" if wrong else "",
        TYPES.get(line.dtype, line.dtype),
        run.world(),
        link_bytes=_share(run.collective, run.world()) * line.size,
        payload_bytes=float(line.size),
    )


def _share(collective: str, ranks: int) -> float:
    """busbw / algbw; NaN for a collective that is not known."""
    if collective in WHOLE:
        return 1.0
    return TIMES_SENT.get(collective, float("nan")) * (ranks - 1) / ranks


def _case(line: _SizeLine) -> str:
    """Such as w8_fp32_1MB; an operation other than the usual sum, and a root other than 0, are said."""
    parts = [f"w{line.run.world()}", TYPES.get(line.dtype, line.dtype), _bytes(line.size)]
    parts += [line.redop] if line.redop not in ("", "sum", "none") else []
    parts += [f"root{line.root}"] if line.root not in ("", "-1", "0") else []
    return "_".join(parts)


def _bytes(size: int) -> str:
    """1048576 is 1MB, as in our own cases."""
    for unit in ("GB", "MB", "KB"):
        whole, rest = divmod(size, {"GB": 2**30, "MB": 2**20, "KB": 2**10}[unit])
        if whole and not rest:
            return f"{whole}{unit}"
    return f"{size}B"


def _library(code: int) -> str:
    """NCCL_VERSION_CODE as a version: major * 10000 + minor * 100 + patch, before 2.9 major * 1000 (nccl.h)."""
    scale = 10_000 if code >= 10_000 else 1_000
    return f"NCCL {code // scale}.{code % scale // 100}.{code % 100}"
