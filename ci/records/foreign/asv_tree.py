"""Result files of any asv project, formats 1 and 2, whatever the file is called.

A benchmark becomes a kernel, its parameters the case; parameters called `backend` and `case`, as in our own suite, are
taken as such.  Times are seconds; other units are kept as they are.  Facts from asv 0.6.6 (asv/results.py): version 1
holds a value or {"params", "result", "stats"} for each benchmark, version 2 a row in the order of `result_columns`;
null is a failure, NaN a skip.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ci.records import rows
from ci.records.foreign.series_csv import (
    ForeignError,
    ForeignFile,
    ForeignPoint,
    ImportOptions,
    MeasuredAt,
    dated,
    machine_named,
    named,
)
from ci.records.rows import names_of, software

SOURCE = "asv"

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


def fits(data: object) -> bool:
    """Whether it looks like a result file."""
    return isinstance(data, dict) and {"commit_hash", "results", "params"} <= data.keys()


def read(data: rows.Json, path: Path, given: ImportOptions) -> ForeignFile:
    """The points of a result file.  Raises ForeignError."""
    if data.get("version") not in (1, 2):
        raise ForeignError(f"asv format {data.get('version')!r}; 1 and 2 are read")
    params = data["params"] if isinstance(data["params"], dict) else {}
    origin = _origin(data, params, path, given)
    declared = _declared(path.parent.parent / "benchmarks.json")
    points, remarks = list[ForeignPoint](), list[str]()
    for name, content in data["results"].items():
        try:
            row = _row(name, content, data.get("result_columns") or ())
            points += _points(origin, row, declared.get(name) or _guessed(name), given)
        except (ValueError, TypeError, IndexError, AttributeError) as error:
            remarks.append(f"{named(name)}: holds what asv does not write ({error}); left out")
    return ForeignFile(points, remarks)


def _origin(data: rows.Json, params: Mapping[str, object], path: Path, given: ImportOptions) -> MeasuredAt:
    needs = data.get("requirements") or {key: value for key, value in params.items() if key in ("torch", "triton")}
    date = given.date_ms if given.date_ms is not None else dated(float(data.get("date") or 0))
    env = (
        data.get("env_name") or path.stem.partition("-")[2] or f"py{data.get('python') or params.get('python') or '?'}"
    )
    machine = given.machine or str(params.get("machine") or path.parent.name)
    return MeasuredAt(
        machine_named(machine), named(given.commit or data["commit_hash"]), date, named(env), SOURCE, **software(needs)
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


def _row(name: str, content: object, columns: Sequence[str]) -> _AsvRow:
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


def _points(origin: MeasuredAt, row: _AsvRow, benchmark: _Benchmark, given: ImportOptions) -> Iterator[ForeignPoint]:
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
                _at(row.low, index),
                _at(row.high, index),
                0 if failed else int(_at(row.samples, index) if index < len(row.samples) and row.samples[index] else 1),
                "error" if failed else "ok",
                "failed under asv" if failed else "",
            )


def _backend_and_case(names: Sequence[str], values: Sequence[str]) -> tuple[str, str]:
    known = dict(zip(names, values, strict=False)) if len(names) == len(values) else {}
    if known.keys() == {"backend", "case"}:
        return named(known["backend"]), named(known["case"])
    said = [f"{name}={value}" for name, value in known.items()] if known else values
    return SOURCE, named(",".join(said), "all")


def _at(values: Sequence[float | None], index: int) -> float:
    value = values[index] if index < len(values) else None
    return math.nan if value is None or not math.isfinite(value) else float(value)
