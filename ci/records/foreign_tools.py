"""What other tools write: result files of asv, JSON of hyperfine and Google Benchmark, what nccl-tests prints."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ci.records import rows
from ci.records.foreign_csv import (
    SECONDS,
    ForeignError,
    ForeignFile,
    ForeignPoint,
    ImportOptions,
    MeasuredAt,
    date_of,
    dated,
    machine_named,
    median_of,
    named,
)
from ci.records.rows import names_of, software

# Result files of any asv project, formats 1 and 2, whatever the file is called.
#
# A benchmark becomes a kernel, its parameters the case; parameters called `backend` and `case`, as in our own suite,
# are taken as such.  Times are seconds; other units are kept as they are.  Facts from asv 0.6.6 (asv/results.py):
# version 1 holds a value or {"params", "result", "stats"} for each benchmark, version 2 a row in the order of
# `result_columns`; null is a failure, NaN a skip.


ASV = "asv"

UNITS = {"time": "s", "timeraw": "s", "mem": "bytes", "peakmem": "bytes"}
"""Unit by kind of benchmark (the name's first part), where benchmarks.json does not say."""


@dataclasses.dataclass(frozen=True)
class _Benchmark:
    """What benchmarks.json says of a benchmark."""

    unit: str
    params: Sequence[str]


@dataclasses.dataclass(frozen=True)
class _AsvRow:
    """The results of one benchmark over the combinations of its parameters."""

    name: str
    params: Sequence[Sequence[str]]
    result: Sequence[float | None]
    low: Sequence[float | None]
    high: Sequence[float | None]
    samples: Sequence[int | None]


def fits_asv(data: object) -> bool:
    """Whether it looks like a result file."""
    return isinstance(data, dict) and {"commit_hash", "results", "params"} <= data.keys()


def read_asv(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a result file.  Raises ForeignError."""
    if data.get("version") not in (1, 2):
        raise ForeignError(f"asv format {data.get('version')!r}; 1 and 2 are read_asv")
    params = data["params"] if isinstance(data["params"], dict) else {}
    origin = _asv_origin(data, params, path, given)
    declared = _declared(path.parent.parent / "benchmarks.json")
    points, remarks = list[ForeignPoint](), list[str]()
    for name, content in data["results"].items():
        try:
            row = _asv_row(name, content, data.get("result_columns") or ())
            points += _asv_points(origin, row, declared.get(name) or _guessed(name), given)
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            remarks.append(f"{named(name)}: holds what asv does not write ({error}); left out")
    return ForeignFile(points, remarks)


def _asv_origin(data: rows.Json, params: Mapping[str, object], path: Path, given: ImportOptions) -> MeasuredAt:
    needs = data.get("requirements") or {key: value for key, value in params.items() if key in ("torch", "triton")}
    date = given.date_ms if given.date_ms is not None else dated(float(data.get("date") or 0))
    env = (
        data.get("env_name") or path.stem.partition("-")[2] or f"py{data.get('python') or params.get('python') or '?'}"
    )
    machine = given.machine or str(params.get("machine") or path.parent.name)
    return MeasuredAt(
        machine_named(machine), named(given.commit or data["commit_hash"]), date, named(env), ASV, **software(needs)
    )


@functools.lru_cache(maxsize=64)
def _declared(path: Path) -> dict[str, _Benchmark]:
    """benchmarks.json of a tree by benchmark; empty if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    entries = found.items() if isinstance(found, dict) else ()
    return {
        name: _Benchmark(str(entry.get("unit") or _guessed(name).unit), list(entry.get("param_names") or ()))
        for name, entry in entries
        if isinstance(entry, dict)
    }


def _guessed(name: str) -> _Benchmark:
    kind = name.rpartition(".")[2].partition("_")[0]
    return _Benchmark(UNITS.get(kind, "unit"), ())


def _asv_row(name: str, content: object, columns: Sequence[str]) -> _AsvRow:
    if isinstance(content, list):
        data = dict(zip(columns, content, strict=False))
    else:
        data = dict(content) if isinstance(content, dict) else {"result": content}
    result, params = data.get("result"), data.get("params") or []
    stats = data.get("stats") or []
    listed = result if isinstance(result, list) else [result]

    def statistic(column: str, index: int) -> Sequence[float | None]:
        if data.get(column):
            return list(data[column])
        return [one["ci_99"][index] if isinstance(one, dict) and one.get("ci_99") else None for one in stats]

    counts = data.get("stats_repeat") or [one.get("repeat") if isinstance(one, dict) else None for one in stats]
    return _AsvRow(name, params, listed, statistic("stats_ci_99_a", 0), statistic("stats_ci_99_b", 1), counts)


def _asv_points(
    origin: MeasuredAt, row: _AsvRow, benchmark: _Benchmark, given: ImportOptions
) -> Iterator[ForeignPoint]:
    """What was measured or failed; what asv skipped is no point."""
    keys = list(itertools.product(*(names_of(values) for values in row.params)))
    if row.result == [None] and len(keys) > 1:
        row = dataclasses.replace(row, result=[None] * len(keys))
    if len(row.result) != len(keys):
        raise ValueError(f"{len(row.result)} results for {len(keys)} combinations of parameters")
    kernel = given.kernel or named(re.sub(rf"\.{rows.TIME}$", "", row.name))
    for index, (key, value) in enumerate(zip(keys, row.result, strict=True)):
        if value is None or math.isfinite(value):
            backend, case = _backend_and_case(benchmark.params, key)
            failed = value is None
            yield ForeignPoint(
                origin,
                kernel,
                backend,
                case,
                math.nan if value is None else float(value),
                "s" if benchmark.unit == "seconds" else named(benchmark.unit),
                _known_at(row.low, index),
                _known_at(row.high, index),
                0
                if failed
                else int(_known_at(row.samples, index) if index < len(row.samples) and row.samples[index] else 1),
                "error" if failed else "ok",
                "failed under asv" if failed else "",
            )


def _backend_and_case(names: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    known = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
    if known.keys() == {"backend", "case"}:
        return named(known["backend"]), named(known["case"])
    said = [f"{name}={value}" for name, value in known.items()] if known else values
    return ASV, named(",".join(said), "all")


def _known_at(values: Sequence[float | None], index: int) -> float:
    value = values[index] if index < len(values) else None
    return math.nan if value is None or not math.isfinite(value) else float(value)


# JSON of hyperfine (`--export-json`) and of Google Benchmark (`--benchmark_out_format=json`).
#
# hyperfine: the program is the kernel, the command line the case.  Google Benchmark: the function is the kernel, its
# arguments the case; repetitions are samples; where only aggregates were written, the median, else the mean is taken.


def fits_hyperfine(data: object) -> bool:
    """Whether it looks like an export of hyperfine."""
    results = data.get("results") if isinstance(data, dict) else None
    return isinstance(results, list) and all(isinstance(one, dict) and "command" in one for one in results)


def fits_google(data: object) -> bool:
    """Whether it looks like a report of Google Benchmark."""
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list) and "context" in data


def read_hyperfine(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of an export."""
    origin = _origin(data, path, given, "hyperfine", None, "")
    points, remarks = list[ForeignPoint](), list[str]()
    for result in data["results"]:
        try:
            points.append(_command(origin, result, given))
        except (ValueError, TypeError, KeyError) as error:
            remarks.append(f"{named(result.get('command'))}: {type(error).__name__}: {error}; left out")
    return ForeignFile(points, remarks)


def read_google(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a report."""
    context = data["context"] if isinstance(data["context"], dict) else {}
    origin = _origin(data, path, given, "google_benchmark", context.get("date"), str(context.get("host_name") or ""))
    runs: dict[str, list[rows.Json]] = {}
    for run in data["benchmarks"]:
        if isinstance(run, dict) and "name" in run:
            runs.setdefault(str(run.get("run_name") or run["name"]), []).append(run)
    points, remarks = list[ForeignPoint](), list[str]()
    for name, those in runs.items():
        try:
            points.append(_function(origin, name, those, given))
        except (ValueError, TypeError, KeyError, ForeignError) as error:
            remarks.append(f"{named(name)}: {error}; left out")
    return ForeignFile(points, remarks)


def _origin(data: rows.Json, path: Path, given: ImportOptions, source: str, date: object, host: str) -> MeasuredAt:
    digest = hashlib.sha256(repr(data).encode()).hexdigest()[:8]
    commit = named(given.commit or f"{source}-{digest}")
    return MeasuredAt(machine_named(given.machine or host), commit, date_of(given, path, date), source, source)


def _command(origin: MeasuredAt, result: Mapping[str, object], given: ImportOptions) -> ForeignPoint:
    command = str(result["command"])
    program = next(iter(command.split()), "").rpartition("/")[2]
    parameters = result.get("parameters")
    said = ",".join(f"{k}={v}" for k, v in parameters.items()) if isinstance(parameters, dict) and parameters else ""
    times, codes = result.get("times"), result.get("exit_codes")
    failed = isinstance(codes, list) and any(codes)
    if isinstance(times, list) and times:
        value, low, high = median_of([float(time) for time in times])
        samples = len(times)
    else:
        value, low, high, samples = float(str(result.get("median") or result["mean"])), math.nan, math.nan, 1
    return ForeignPoint(
        origin,
        named(given.kernel or program),
        "hyperfine",
        named(f"{command} [{said}]" if said else command),
        math.nan if failed else value,
        "s",
        low,
        high,
        samples,
        "error" if failed else "ok",
        "the command failed" if failed else "",
    )


def _function(origin: MeasuredAt, name: str, runs: list[rows.Json], given: ImportOptions) -> ForeignPoint:
    kernel, _, case = name.partition("/")
    broken = next((run for run in runs if run.get("error_occurred")), None)
    timed = [] if broken else list(_repetitions(runs))
    if not timed and not broken:
        raise ForeignError("has no real_time in a unit of time")
    value, low, high = median_of([seconds for seconds, _ in timed]) if timed else (math.nan, math.nan, math.nan)
    rates = [float(run["bytes_per_second"]) for _, run in timed if "bytes_per_second" in run]
    return ForeignPoint(
        origin,
        named(given.kernel or kernel),
        "google_benchmark",
        named(case, "all"),
        value,
        "s",
        low,
        high,
        len(timed),
        "error" if broken else "ok",
        named(broken.get("error_message"), "failed") if broken else "",
        hbm_bytes=median_of(rates)[0] * value if rates else math.nan,
    )


def _repetitions(runs: list[rows.Json]) -> Iterator[tuple[float, rows.Json]]:
    """(seconds, run) of every repetition; of the median or the mean where there are only aggregates."""
    single = [run for run in runs if run.get("run_type", "iteration") == "iteration"]
    named_so = {str(run.get("aggregate_name")): run for run in runs}
    best = named_so.get("median") or named_so.get("mean")
    for run in single or ([best] if best else []):
        yield float(run["real_time"]) * SECONDS[str(run.get("time_unit", "ns"))], run


# What nccl-tests and rccl-tests print, and what nccl-tests writes with -J.
#
# A log may hold several runs, with other lines between them and an MPI prefix before each line.  Columns are found by
# the table's own heading (nccl-tests src/util.cu of 2026-07 and rccl-tests src/common.cu of 2024-09: time or cputime,
# algbw, busbw, #wrong, out of place and in place; per-iteration columns, algo, proto and a timestamp may follow).
# Each size is a case; out of place is the backend `nccl` or `rccl`, in place is `nccl_in_place`.  Sizes are bytes,
# times microseconds.


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


def fits_log(text: str) -> bool:
    """Whether it looks like a log."""
    return "busbw" in text and "algbw" in text


def fits_report(data: object) -> bool:
    """Whether it looks like what -J writes."""
    return isinstance(data, dict) and {"nccl_version", "results", "args"} <= data.keys()


def read_log(text: str, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a log.  Raises ForeignError."""
    lines, remarks = list[_SizeLine](), list[str]()
    for number, run, line in _tables(text):
        try:
            lines += _size_lines(run, line.split())
        except (ValueError, IndexError):
            remarks.append(f"line {number}: no row of its table: {line.strip()[:60]!r}; left out")
    if not lines:
        raise ForeignError("a log of nccl-tests or rccl-tests without one measured size; was the run interrupted?")
    return ForeignFile(_size_points(lines, path, given, hashlib.sha256(text.encode()).hexdigest(), None), remarks)


def read_report(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
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
    return ForeignFile(_size_points(lines, path, given, digest, data.get("start_time")))


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


def _size_lines(run: _TestRun, words: Sequence[str]) -> list[_SizeLine]:
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


def _size_points(
    lines: Sequence[_SizeLine], path: Path, given: ImportOptions, digest: str, said: object
) -> list[ForeignPoint]:
    """One point per series: a size that a log repeats is one point with several samples."""
    date, commit = date_of(given, path, said), given.commit or f"log-{digest[:8]}"
    series: dict[tuple[str, str, str, str], list[_SizeLine]] = {}
    for line in lines:
        backend = f"{line.run.family}_in_place" if line.in_place else line.run.family
        machine = given.machine or line.run.host or "unknown"
        series.setdefault((machine, _kernel(line, path, given), backend, _case(line)), []).append(line)
    return [_size_point(key, those, commit, date) for key, those in series.items()]


def _kernel(line: _SizeLine, path: Path, given: ImportOptions) -> str:
    """The collective: what the user, the log or the file's name says.  Raises ForeignError if none does."""
    known = (*TIMES_SENT, *WHOLE)
    in_name = max((name for name in known if name in path.name), key=len, default="")
    found = given.kernel or line.run.collective or in_name
    if not found:
        raise ForeignError(f"does not say which collective it is of; name it: --kernel {'|'.join(known)}")
    return NAMES.get(found, found)


def _size_point(key: tuple[str, str, str, str], lines: Sequence[_SizeLine], commit: str, date_ms: int) -> ForeignPoint:
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
    parts = [f"w{line.run.world()}", TYPES.get(line.dtype, line.dtype), _shown_bytes(line.size)]
    parts += [line.redop] if line.redop not in ("", "sum", "none") else []
    parts += [f"root{line.root}"] if line.root not in ("", "-1", "0") else []
    return "_".join(parts)


def _shown_bytes(size: int) -> str:
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
