"""asv's result format, version 2, as values: rows, benchmarks.json, machine.json.  No I/O.

Facts from asv 0.6.6 (asv/results.py, asv/benchmarks.py): results are flat lists in the order of
itertools.product(*params); null is a failure and the token NaN is a skip; a row is dropped from the pages unless its
version is that of benchmarks.json; every key of `params` is part of a graph's path, so it holds what never changes.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ci.records.pooling import Cell, PooledTimes, PooledTrials
from ci.trials.trial import Cost, Declaration, Machine, Scalar

Json = dict[str, Any]
"""An object of asv's files, as asv writes and reads it."""

VERSION = 2
COLUMNS = [
    "result",
    "params",
    "version",
    "started_at",
    "duration",
    "stats_ci_99_a",
    "stats_ci_99_b",
    "stats_q_25",
    "stats_q_75",
    "stats_number",
    "stats_repeat",
    "samples",
    "profile",
]

TIME = "track_time"
EXACT = {
    "track_flops": ("flops", "FLOP"),
    "track_hbm_bytes": ("hbm_bytes", "bytes"),
    "track_link_bytes": ("link_bytes", "bytes"),
    "track_payload_bytes": ("payload_bytes", "bytes"),
}
"""Exact series of a kernel: asv name, field of the cost, unit.  asv takes only names that start with track_."""
BROKEN = "track_broken_modules"

IDENTITY = {
    "gpu": ("kind", "arch", "device", "count", "compute_units", "chip_id", "power_cap_w", "partition"),
    "cpu": ("kind", "arch", "device", "cpu_count"),
}
"""What of a machine goes into asv's params: its static identity, from which its name is made too."""

FEWEST_SAMPLES = 7
"""Of 6 against 6 samples, as `asv run` and `asv continuous` hold them in memory, asv's Mann-Whitney test at p < 0.002
has a least p of 0.0022: it would never flag anything.  Our files of asv have no samples: it compares intervals."""


def machine_record(machine: Machine) -> dict[str, str]:
    """The machine as asv keeps it: its name and identity, as strings; what is unknown is absent."""
    keys = IDENTITY["cpu" if machine.kind == "cpu" else "gpu"]
    facts = {key: str(value) for key in keys if (value := machine.facts[key]) not in (None, "")}
    return {"machine": machine.name, **facts}


def result_file(pooled: PooledTrials, rows: Mapping[str, Any]) -> Json:
    """A whole result file around its rows."""
    place, environment = pooled.place, pooled.environment
    facts, needs = machine_record(pooled.machine), environment.requirements
    return asv_file(place.commit, place.env, pooled.date_ms, facts, environment.python, needs, rows)


def asv_file(
    commit: str,
    env: str,
    date_ms: int,
    machine: Mapping[str, str],
    python: str,
    requirements: Mapping[str, str],
    rows: Mapping[str, Any],
) -> Json:
    """A result file as asv writes one.  machine: its name and identity.  date_ms: of the commit."""
    return {
        "commit_hash": commit,
        "env_name": env,
        "date": date_ms,
        "params": {**machine, "python": python, **requirements},
        "python": python,
        "requirements": requirements,
        "env_vars": {},
        "result_columns": COLUMNS,
        "results": dict(sorted(rows.items())),
        "durations": {},
        "version": VERSION,
    }


def asv_rows(pooled: PooledTrials) -> dict[str, list[Any]]:
    """asv rows of everything in a pool, by benchmark name."""
    rows: dict[str, list[Any]] = {BROKEN: _row([len(pooled.broken)], [], "1", max(pooled.started_ms.values()))}
    for operator, declared in pooled.declarations.items():
        for name, benchmark in benchmarks_of(declared).items():
            if name.endswith(f".{TIME}"):
                rows[name] = _time_row(pooled, declared, benchmark)
            else:
                values = [cost_of(declared, case, name.split(".")[1]) for case in declared.cases]
                rows[name] = _row(values, benchmark["params"], benchmark["version"], pooled.started_ms[operator])
    return rows


def benchmarks_of(declared: Declaration, date_ms: int = 0) -> dict[str, Json]:
    """Entries of benchmarks.json for one operator: its times over (backend, case), its exact series over cases."""
    cases = list(declared.cases)
    entries = [(TIME, "seconds", {"backend": list(declared.backends), "case": cases})]
    for name, (field, unit) in EXACT.items():
        if any(getattr(case.cost, field) for case in declared.cases.values()):
            entries.append((name, unit, {"case": cases}))
    names = ((f"{declared.operator}.{name}", unit, params) for name, unit, params in entries)
    return {name: _benchmark(name, unit, params, declared.definition, date_ms) for name, unit, params in names}


def broken_benchmark() -> dict[str, Json]:
    """Entry of benchmarks.json for the count of modules that do not import."""
    return {BROKEN: _benchmark(BROKEN, "modules", {}, "1", 0)}


def merged(old: Mapping[str, Any], new: Mapping[str, Json]) -> Json:
    """benchmarks.json with new entries: grids are united, version and unit are those of the newer declaration."""
    result = {name: entry for name, entry in old.items() if name != "version"}
    for name, entry in new.items():
        known = result.get(name)
        if known is None or not _same_axes(known, entry):
            result[name] = dict(entry)
            continue
        newer = entry if entry.get("declared_ms", 0) >= known.get("declared_ms", 0) else known
        grid = [list(dict.fromkeys([*a, *b])) for a, b in zip(known["params"], entry["params"], strict=True)]
        result[name] = {**known, **newer, "params": grid}
    return {**dict(sorted(result.items())), "version": VERSION}


def checked(content: bytes, machine: str) -> tuple[Json, str]:
    """An asv result file as asv itself would accept it; else {} and why not."""
    try:
        data = json.loads(content)
    except ValueError as error:
        return {}, f"torn or no JSON ({error})"
    needed = {"commit_hash", "env_name", "params", "results", "result_columns", "date"}
    if not isinstance(data, dict) or not needed <= data.keys():
        return {}, "not an asv result file"
    if not (isinstance(data["params"], dict) and isinstance(data["results"], dict)):
        return {}, "holds what asv does not write"
    if data.get("version") != VERSION:
        return {}, f"of asv format {data.get('version')!r}, this Ridgeline reads {VERSION}; update it"
    if data["params"].get("machine") != machine:
        return {}, f"of a foreign machine, {data['params'].get('machine')!r}, in the folder of {machine!r}"
    return data, ""


def cost_of(declared: Declaration, case: str, series: str) -> float:
    """A case's FLOPs or bytes, NaN (asv's "skipped") where the declaration states none."""
    cost = declared.cases[case].cost if case in declared.cases else Cost()
    value = getattr(cost, EXACT[series][0])
    return math.nan if value is None else value


def value_of(cell: Cell | None) -> float | None:
    """What asv is told: seconds, None for a failure, NaN for what was not or cannot be measured."""
    if cell is not None and cell.status.failed:
        return None
    return math.nan if cell is None else cell.seconds


def dumps(data: Any) -> str:
    """The text asv itself would write (json.dump); the only token that is not JSON is NaN, where asv needs it."""
    return json.dumps(data)


def _time_row(pooled: PooledTrials, declared: Declaration, benchmark: Json) -> list[Any]:
    operator = declared.operator
    keys = [(operator, backend, case) for backend, case in itertools.product(declared.backends, declared.cases)]
    statistics = [_stats(pooled.times.get(key)) for key in keys]
    values = [value_of(pooled.cells.get(key)) for key in keys]
    params, version = benchmark["params"], benchmark["version"]
    when = pooled.started_ms[operator], pooled.duration_s[operator]
    return _row(values, params, version, *when, statistics)


def _row(
    values: Sequence[float | None],
    params: Any,
    version: str,
    started_ms: int,
    duration: float | None = None,
    stats: Sequence[Sequence[float] | None] = (),
) -> list[Any]:
    columns = [[None if one is None else one[i] for one in stats] for i in range(6)]
    row = [list(values), params, version, started_ms, duration, *columns]
    row = [
        None if index != 1 and isinstance(entry, list) and all(x is None for x in entry) else entry
        for index, entry in enumerate(row)
    ]
    while row[-1] is None:
        row.pop()
    return row


def _stats(times: PooledTimes | None) -> tuple[float, ...] | None:
    """ci_99_a, ci_99_b, q_25, q_75, number, repeat of a timed cell."""
    if times is None:
        return None
    return (*(float(f"{value:.6g}") for value in (times.low, times.high, times.q25, times.q75)), 1, times.samples)


def _benchmark(name: str, unit: str, params: Mapping[str, Sequence[str]], version: str, date_ms: int) -> Json:
    return {
        "name": name,
        "unit": unit,
        "type": "track",
        "param_names": list(params),
        "params": [[repr(value) for value in values] for values in params.values()],
        "version": version,
        "declared_ms": date_ms,
    }


def _same_axes(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one.get("param_names") == other.get("param_names") and len(one.get("params", ())) == len(other["params"])


SOFTWARE = ("torch", "triton", "cuda", "hip", "nccl")
"""Names of versions in a trial's environment."""


def software(versions: Mapping[str, Scalar]) -> dict[str, str]:
    """Versions that can change a time, "" where they are not known; a build for AMD has no CUDA and the reverse."""
    found = {name: str(versions.get(name) or "") for name in SOFTWARE}
    runtime = f"HIP {found['hip']}" if found["hip"] else f"CUDA {found['cuda']}" if found["cuda"] else ""
    library = f"{'RCCL' if found['hip'] else 'NCCL'} {found['nccl']}" if found["nccl"] else ""
    return {"runtime": runtime, "library": library, "torch": found["torch"], "triton": found["triton"]}
