"""JSON of hyperfine (`--export-json`) and of Google Benchmark (`--benchmark_out_format=json`).

hyperfine: the program is the kernel, the command line the case.  Google Benchmark: the function is the kernel, its
arguments the case; repetitions are samples; where only aggregates were written, the median, else the mean is taken.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from ci.records import rows
from ci.records.foreign.series_csv import (
    SECONDS,
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
    timed = [] if broken else list(_timed(runs))
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


def _timed(runs: list[rows.Json]) -> Iterator[tuple[float, rows.Json]]:
    """(seconds, run) of every repetition; of the median or the mean where there are only aggregates."""
    single = [run for run in runs if run.get("run_type", "iteration") == "iteration"]
    named_so = {str(run.get("aggregate_name")): run for run in runs}
    best = named_so.get("median") or named_so.get("mean")
    for run in single or ([best] if best else []):
        yield float(run["real_time"]) * SECONDS[str(run.get("time_unit", "ns"))], run
