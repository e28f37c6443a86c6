"""What other tools write: result files of asv, JSON of hyperfine and Google Benchmark, what nccl-tests prints.

Each reader takes what the file holds, its path and what the user says of it, and gives the points and a sentence on
what of it was left out.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import math
import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.records.foreign_csv import (
    SECONDS,
    ForeignError,
    ImportOptions,
    Point,
    date_of,
    dated,
    machine_named,
    named,
    times_of,
)
from ci.records.rows import TIME, Json, names_of, software

Found = tuple[list[Point], list[str]]
"""Points, and what was left out."""

UNTIMED: Point = {"value": math.nan, "low": None, "high": None, "samples": 0}

# Result files of any asv project, formats 1 and 2, whatever the file is called.
#
# A benchmark becomes a kernel, its parameters the case; parameters called `backend` and `case`, as in our own suite,
# are taken as such.  Times are seconds; other units are kept as they are.  Facts from asv 0.6.6 (asv/results.py):
# version 2 holds a row for each benchmark in the order of `result_columns`, and asv turns version 1 into it; null is a
# failure, NaN a skip.


ASV = "asv"

UNITS = {"time": "s", "timeraw": "s", "mem": "bytes", "peakmem": "bytes"}
"""Unit by kind of benchmark (the name's first part), where benchmarks.json does not say."""


def fits_asv(data: object) -> bool:
    """Whether it looks like a result file."""
    return isinstance(data, dict) and {"commit_hash", "results", "params"} <= data.keys()


def read_asv(data: Json, path: Path, given: ImportOptions) -> Found:
    """Of a result file.  Raises ForeignError."""
    if data.get("version") not in (1, 2):
        raise ForeignError(f"asv format {data.get('version')!r}; 1 and 2 are read")
    params = data["params"] if isinstance(data["params"], dict) else {}
    if data["version"] == 1:
        from asv import results, util  # imported here: they take half a second

        try:
            data = results.Results.update_to_2({"date": 0, "python": "", "requirements": {}, "env_name": "", **data})
        except util.UserError as error:
            raise ForeignError(f"lacks what asv writes ({error})") from None
    needs = data.get("requirements") or {key: value for key, value in params.items() if key in ("torch", "triton")}
    python = f"py{data.get('python') or params.get('python') or '?'}"
    origin: Point = {
        "machine": machine_named(given.machine or str(params.get("machine") or path.parent.name)),
        "commit": named(given.commit or data["commit_hash"]),
        "date": given.date_ms if given.date_ms is not None else dated(float(data.get("date") or 0)),
        "env": named(data.get("env_name") or path.stem.partition("-")[2] or python),
        "source": ASV,
        **software(needs),
    }
    declared = _declared(path.parent.parent / "benchmarks.json")
    points, remarks = list[Point](), list[str]()
    for name, row in data["results"].items():
        try:
            own = {"kernel": given.kernel or named(re.sub(rf"\.{TIME}$", "", name))}
            points += [
                {**origin, **own, **one}
                for one in _asv_points(dict(zip(data["result_columns"], row, strict=False)), name, declared)
            ]
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            remarks.append(f"{named(name)}: holds what asv does not write ({error}); left out")
    return points, remarks


@functools.lru_cache(maxsize=64)
def _declared(path: Path) -> Json:
    """benchmarks.json of a tree by benchmark; empty if there is none."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {n: one for n, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def _asv_points(row: Json, name: str, declared: Json) -> Iterator[Point]:
    """What was measured or failed; what asv skipped is no point."""
    keys = list(itertools.product(*map(names_of, row.get("params") or ())))
    listed = row.get("result")
    result: list[float | None] = listed if isinstance(listed, list) else [listed]
    if result == [None]:
        result = [None] * len(keys)
    if len(result) != len(keys):
        raise ValueError(f"{len(result)} results for {len(keys)} combinations of parameters")
    said = declared.get(name, {})
    unit = str(said.get("unit") or UNITS.get(name.rpartition(".")[2].partition("_")[0], "unit"))
    statistics = (row.get(column) or () for column in ("stats_ci_99_a", "stats_ci_99_b", "stats_repeat"))
    for key, value, low, high, samples in itertools.zip_longest(keys, result, *statistics):
        if value is not None and not math.isfinite(value):
            continue
        backend, case = _backend_and_case(list(said.get("param_names") or ()), key)
        failed = value is None
        yield {
            "backend": backend,
            "case": case,
            "value": math.nan if failed else float(value),
            "unit": "s" if unit == "seconds" else named(unit),
            "low": low if low is not None and math.isfinite(low) else None,
            "high": high if high is not None and math.isfinite(high) else None,
            "samples": 0 if failed else int(samples or 1),
            "status": "error" if failed else "ok",
            "why": "failed under asv" if failed else "",
        }


def _backend_and_case(names: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    known = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
    if known.keys() == {"backend", "case"}:
        return named(known["backend"]), named(known["case"])
    said = [f"{name}={value}" for name, value in known.items()] if known else values
    return ASV, named(",".join(said), "all")


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


def read_hyperfine(data: Json, path: Path, given: ImportOptions) -> Found:
    """Of an export."""
    origin = _origin(data, path, given, "hyperfine", None, "")
    points, remarks = list[Point](), list[str]()
    for result in data["results"]:
        try:
            points.append({**origin, **_command(result, given)})
        except (ValueError, TypeError, KeyError) as error:
            remarks.append(f"{named(result.get('command'))}: {type(error).__name__}: {error}; left out")
    return points, remarks


def read_google(data: Json, path: Path, given: ImportOptions) -> Found:
    """Of a report."""
    context = data["context"] if isinstance(data["context"], dict) else {}
    origin = _origin(data, path, given, "google_benchmark", context.get("date"), str(context.get("host_name") or ""))
    runs: dict[str, list[Json]] = {}
    for run in data["benchmarks"]:
        if isinstance(run, dict) and "name" in run:
            runs.setdefault(str(run.get("run_name") or run["name"]), []).append(run)
    points, remarks = list[Point](), list[str]()
    for name, those in runs.items():
        try:
            points.append({**origin, **_function(name, those, given)})
        except (ValueError, TypeError, KeyError, ForeignError) as error:
            remarks.append(f"{named(name)}: {error}; left out")
    return points, remarks


def _origin(data: Json, path: Path, given: ImportOptions, source: str, date: object, host: str) -> Point:
    digest = hashlib.sha256(repr(data).encode()).hexdigest()[:8]
    return {
        "machine": machine_named(given.machine or host),
        "commit": named(given.commit or f"{source}-{digest}"),
        "date": date_of(given, path, date),
        "env": source,
        "source": source,
        "backend": source,
        "unit": "s",
    }


def _command(result: Json, given: ImportOptions) -> Point:
    command, parameters = str(result["command"]), result.get("parameters")
    program = next(iter(command.split()), "").rpartition("/")[2]
    said = ",".join(f"{k}={v}" for k, v in parameters.items()) if isinstance(parameters, dict) and parameters else ""
    times, codes = result.get("times"), result.get("exit_codes")
    failed = isinstance(codes, list) and any(codes)
    samples = times if isinstance(times, list) and times else [str(result.get("median") or result["mean"])]
    found = times_of([float(time) for time in samples])
    return {
        "kernel": named(given.kernel or program),
        "case": named(f"{command} [{said}]" if said else command),
        **found,
        "value": math.nan if failed else found["value"],
        "status": "error" if failed else "ok",
        "why": "the command failed" if failed else "",
    }


def _function(name: str, runs: Sequence[Json], given: ImportOptions) -> Point:
    kernel, _, case = name.partition("/")
    broken = next((run for run in runs if run.get("error_occurred")), None)
    timed = [] if broken else list(_repetitions(runs))
    if not timed and not broken:
        raise ForeignError("has no real_time in a unit of time")
    seconds = [one for one, _ in timed]
    found = times_of(seconds) if timed else UNTIMED
    rates = [float(run["bytes_per_second"]) for _, run in timed if "bytes_per_second" in run]
    return {
        "kernel": named(given.kernel or kernel),
        "case": named(case, "all"),
        **found,
        "status": "error" if broken else "ok",
        "why": named(broken.get("error_message"), "failed") if broken else "",
        "hbm_bytes": statistics.median(rates) * statistics.median(seconds) if rates else None,
    }


def _repetitions(runs: Sequence[Json]) -> Iterator[tuple[float, Json]]:
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
_TIME = ("time", "cputime")


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

    @property
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


def read_log(text: str, path: Path, given: ImportOptions) -> Found:
    """Of a log.  Raises ForeignError."""
    lines, remarks, run = list[_SizeLine](), list[str](), _TestRun()
    for number, raw in enumerate(text.splitlines(), 1):
        line = _PREFIX.sub("", raw, count=1)
        if not (run.columns and _ROW.match(line)):
            run = _heard(run, line)
            continue
        try:
            lines += list(_size_lines(run, line.split()))
        except (ValueError, IndexError):
            remarks.append(f"line {number}: no row of its table: {line.strip()[:60]!r}; left out")
    if not lines:
        raise ForeignError("a log of nccl-tests or rccl-tests without one measured size; was the run interrupted?")
    return _size_points(lines, path, given, hashlib.sha256(text.encode()).hexdigest(), None), remarks


def read_report(data: Json, path: Path, given: ImportOptions) -> Found:
    """Of a report of -J (its version 3)."""
    program = _PROGRAM.search(" ".join(map(str, data.get("args") or ())))
    devices = list(data.get("devices") or (data.get("config") or {}).get("devices") or ())
    first = devices[0] if devices else {}
    run = _TestRun(program[1] if program else "", ranks=len(devices), library=_library(int(data["nccl_version"])))
    run.host, run.device = str(first.get("hostname") or ""), str(first.get("device_info") or "")
    lines = [line for row in data["results"] for line in _json_lines(run, row)]
    if not lines:
        raise ForeignError("a report of nccl-tests without one measured size")
    digest = hashlib.sha256(repr(sorted(data.items())).encode()).hexdigest()
    return _size_points(lines, path, given, digest, data.get("start_time")), []


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


def _size_lines(run: _TestRun, words: Sequence[str]) -> Iterator[_SizeLine]:
    """One row of a table: out of place and in place, as far as it has them.

    Operation and root may be blank, and so may the whole part out of place; a timestamp is two words.
    """
    tail = run.columns[next(at for at, name in enumerate(run.columns) if name in _TIME) :]
    starts = [at for at, name in enumerate(tail) if name in _TIME]
    width = len(tail) + tail.count("timestamp")
    if len(words) - width < 3:  # out of place is blank
        width, starts = width - starts[-1], [0]
    lead, values = words[: len(words) - width], words[len(words) - width :]
    if not 3 <= len(lead) <= 5:
        raise ValueError
    size, dtype, (redop, root) = int(lead[0]), lead[2], [*lead[3:], "", ""][:2]
    for at in starts:
        time, wrong = float(values[at]), 0.0 if values[at + 3] == "N/A" else float(values[at + 3])
        yield _SizeLine(run, len(starts) < 2 or at > 0, size, dtype, redop, root, time, wrong)


def _json_lines(run: _TestRun, row: Json) -> Iterator[_SizeLine]:
    for key in ("out_of_place", "in_place"):
        if part := row.get(key):
            time = part.get("time", part.get("cpu_time"))
            words = str(row["type"]), str(row.get("redop") or ""), str(row.get("root") or "").strip()
            yield _SizeLine(
                run, key == "in_place", int(row["size"]), *words, float(time), float(part.get("nwrong") or 0)
            )


def _size_points(
    lines: Sequence[_SizeLine], path: Path, given: ImportOptions, digest: str, said: object
) -> list[Point]:
    """One point per series: a size that a log repeats is one point with several samples."""
    date, commit = date_of(given, path, said), named(given.commit or f"log-{digest[:8]}")
    series: dict[tuple[str, str, str, str], list[_SizeLine]] = {}
    for line in lines:
        backend = f"{line.run.family}_in_place" if line.in_place else line.run.family
        machine = given.machine or line.run.host or "unknown"
        series.setdefault((machine, _kernel(line, path, given), backend, _case(line)), []).append(line)
    return [{**_size_point(*key, those), "commit": commit, "date": date} for key, those in series.items()]


def _kernel(line: _SizeLine, path: Path, given: ImportOptions) -> str:
    """The collective: what the user, the log or the file's name says.  Raises ForeignError if none does."""
    known = (*TIMES_SENT, *WHOLE)
    in_name = max((name for name in known if name in path.name), key=len, default="")
    found = given.kernel or line.run.collective or in_name
    if not found:
        raise ForeignError(f"does not say which collective it is of; name it: --kernel {'|'.join(known)}")
    return NAMES.get(found, found)


def _size_point(machine: str, kernel: str, backend: str, case: str, lines: Sequence[_SizeLine]) -> Point:
    line, run = lines[0], lines[0].run
    wrong, found = sum(one.wrong for one in lines), times_of([one.time_us for one in lines])
    share = 1.0 if run.collective in WHOLE else TIMES_SENT.get(run.collective, math.nan) * (run.world - 1) / run.world
    return {
        "machine": machine_named(machine),
        "env": named(run.library.replace(" ", "-"), "unknown"),
        "source": f"{run.family}-tests",
        "device": named(run.device, ""),
        "runtime": run.runtime,
        "library": run.library,
        "kernel": named(kernel),
        "backend": backend,
        "case": named(case),
        **found,
        "value": math.nan if wrong else found["value"],
        "unit": "us",
        "status": "wrong" if wrong else "ok",
        "why": f"{wrong:g} elements are wrong" if wrong else "",
        "dtype": TYPES.get(line.dtype, line.dtype),
        "world": run.world,
        "link_bytes": share * line.size,
        "payload_bytes": float(line.size),
    }


def _case(line: _SizeLine) -> str:
    """Such as w8_fp32_1MB; an operation other than the usual sum, and a root other than 0, are said."""
    parts = [f"w{line.run.world}", TYPES.get(line.dtype, line.dtype), _shown_bytes(line.size)]
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


READERS = {
    "asv": (fits_asv, read_asv),
    "nccl-tests": (fits_report, read_report),
    "hyperfine": (fits_hyperfine, read_hyperfine),
    "google-benchmark": (fits_google, read_google),
}
"""By the tool that writes JSON: whether it looks like its file, and the reader."""
