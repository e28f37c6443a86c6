"""The rows of one record: of asv's file and of the trials beside it, as a table of the columns of the frame."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks import trial_file
from ci.records.pooling import Cell, Place, PooledTrials, outdated, pool, times_of
from ci.trials.file import TrialFile, read
from ci.trials.pooled import PairedRatio, PooledTimes
from ci.trials.trial import Cost, Declaration, DeclaredCase, Machine, Scalar

# asv's result format, version 2, as values: rows, benchmarks.json, machine.json.  No I/O.
#
# Facts from asv 0.6.6 (asv/results.py, asv/benchmarks.py): results are flat lists in the order of
# itertools.product(*params); null is a failure and the token NaN is a skip; a row is dropped from the pages unless its
# version is that of benchmarks.json; every key of `params` is part of a graph's path, so it holds what never changes.


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
"""Fewer samples are left out of asv's file (the notes have them).  With 6 against 6 asv's compare uses the Mann-Whitney
test at p < 0.002, whose least p is then 0.0022: it would never flag anything; without samples it compares intervals."""


def machine_record(machine: Machine) -> dict[str, str]:
    """The machine as asv keeps it: its name and identity, as strings; what is unknown is absent."""
    keys = IDENTITY["cpu" if machine.kind == "cpu" else "gpu"]
    facts = {key: str(value) for key in keys if (value := machine.facts[key]) not in (None, "")}
    return {"machine": machine.name, **facts}


def result_file(pooled: PooledTrials, rows: Mapping[str, Any]) -> Json:
    """A whole result file around its rows."""
    environment = pooled.environment
    python, needs = environment.python, environment.requirements
    return {
        "commit_hash": pooled.place.commit,
        "env_name": pooled.place.env,
        "date": pooled.date_ms,
        "params": {**machine_record(pooled.machine), "python": python, **needs},
        "python": python,
        "requirements": needs,
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
    keys = itertools.product(declared.backends, declared.cases)
    cells = [pooled.cells.get((operator, backend, case)) for backend, case in keys]
    statistics, samples = [_stats(cell) for cell in cells], [_samples(cell) for cell in cells]
    values, params, version = [value_of(cell) for cell in cells], benchmark["params"], benchmark["version"]
    when = pooled.started_ms[operator], pooled.duration_s[operator]
    return _row(values, params, version, *when, statistics, samples)


def _row(
    values: Sequence[float | None],
    params: Any,
    version: str,
    started_ms: int,
    duration: float | None = None,
    stats: Sequence[Sequence[float] | None] = (),
    samples: Sequence[list[float] | None] = (),
) -> list[Any]:
    columns = [[None if one is None else one[i] for one in stats] for i in range(6)]
    row = [list(values), params, version, started_ms, duration, *columns, list(samples), None]
    row = [
        None if index != 1 and isinstance(entry, list) and all(x is None for x in entry) else entry
        for index, entry in enumerate(row)
    ]
    while row[-1] is None:
        row.pop()
    return row


def _stats(cell: Cell | None) -> tuple[float, ...] | None:
    """ci_99_a, ci_99_b, q_25, q_75, number, repeat of a timed cell."""
    times = times_of(cell) if cell else None
    if times is None:
        return None
    return (*(float(f"{value:.6g}") for value in (times.low, times.high, times.q25, times.q75)), 1, times.samples)


def _samples(cell: Cell | None) -> list[float] | None:
    if cell is None or sum(map(len, cell.trials)) < FEWEST_SAMPLES:
        return None
    return [float(f"{value:.7g}") for trial in cell.trials for value in trial]


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


# Columns of the long frame, and tables of them from blocks of rows that share most of their values.
#
# A block is a number of rows: every column is one value for all of them, or one value per row.  Texts are kept as
# dictionaries (codes and distinct texts): a history repeats a few names millions of times.


TEXT = pa.dictionary(pa.int32(), pa.string())


def _fields(kind: pa.DataType, *names: str) -> list[pa.Field]:
    return [pa.field(name, kind) for name in names]


SCHEMA = pa.schema(
    [
        *_fields(TEXT, "machine", "kind", "arch", "device", "market_name"),
        *_fields(pa.int32(), "count"),
        *_fields(pa.float64(), "compute_units", "memory_bytes"),
        *_fields(TEXT, "chip_id", "commit"),
        *_fields(pa.timestamp("ms", tz="UTC"), "date"),
        *_fields(TEXT, "env", "kernel", "backend"),
        *_fields(pa.bool_(), "baseline"),
        *_fields(TEXT, "case", "tier", "dtype"),
        *_fields(pa.int32(), "world"),
        *_fields(pa.float64(), "seconds", "seconds_low", "seconds_high"),
        *_fields(pa.int32(), "samples", "trials"),
        *_fields(pa.float64(), "flops", "hbm_bytes", "link_bytes", "payload_bytes"),
        *_fields(TEXT, "status", "why", "yardstick", "case_yardstick", "method"),
        *_fields(TEXT, "driver", "runtime", "library", "torch", "triton", "code", "shape", "paired_with"),
        *_fields(pa.float64(), "paired_ratio", "paired_low", "paired_high"),
    ]
)
"""Columns of the frame.  seconds_low and seconds_high: 99 % interval (ci.records.pooling.interval).

driver, torch, triton: versions; runtime: "CUDA 13.0" or "HIP 7.1"; library: "NCCL 2.28.9" or "RCCL 2.27"; "" if not
known.  code: what the arm ran (`ci.records.pooling.Cell`), shape: the dimensions of the case as a JSON object,
"" if not known.
paired_ratio: time of the fastest baseline / the row's time, round by round (ci.records.pooling), its 99 % interval;
paired_with: that baseline.  NaN and "" where no baseline was timed in the same trial."""

UNKNOWN = {field.name: "" for field in SCHEMA if field.type == TEXT} | {
    "baseline": False,
    "count": 1,
    "world": 1,
    "samples": 0,
    "trials": 0,
}
"""What a column is where nothing is known; NaN for all others."""

Value: TypeAlias = str | float | int | bool | None
Column: TypeAlias = Value | Sequence[Value] | npt.NDArray[np.generic]


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """`rows` rows; columns that are not given are unknown."""

    rows: int
    columns: Mapping[str, Column]

    def column(self, name: str) -> Column:
        """One value, or one per row."""
        return self.columns.get(name, UNKNOWN.get(name, math.nan))


def table_of(blocks: Sequence[RowBlock], schema: pa.Schema = SCHEMA) -> pa.Table:
    """All blocks as one table."""
    return pa.table([_array(field, blocks) for field in schema], schema=schema)


def unified(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Tables of one schema as one, each text column with one dictionary."""
    return pa.concat_tables([schema.empty_table(), *tables]).unify_dictionaries()


def constant(value: str, rows: int) -> pa.DictionaryArray:
    """A text column with the same text in every row."""
    return pa.DictionaryArray.from_arrays(np.zeros(rows, np.int32), pa.array([value], pa.string()))


def _array(field: pa.Field, blocks: Sequence[RowBlock]) -> pa.Array:
    if not any(field.name in block.columns for block in blocks):
        blocks = [RowBlock(sum(block.rows for block in blocks), {})]
    found = [(block.column(field.name), block.rows) for block in blocks]
    if field.type != TEXT:
        return _numbers(field.type, found)
    same = {column if isinstance(column, str) else None for column, _ in found}
    if len(same) == 1 and None not in same:
        return constant(str(found[0][0]), sum(rows for _, rows in found))
    texts = [text for column, rows in found for text in _repeated(column, rows)]
    return pa.array(texts, pa.string()).dictionary_encode()


def _repeated(column: Column, rows: int) -> Sequence[Value]:
    return column if isinstance(column, (list, tuple)) else [str(column)] * rows


def _numbers(kind: pa.DataType, found: Sequence[tuple[Column, int]]) -> pa.Array:
    """A column of numbers; what is not known is null, which every engine leaves out of a mean."""
    dtype = np.dtype("datetime64[ms]") if pa.types.is_timestamp(kind) else np.dtype(kind.to_pandas_dtype())
    values, end = np.empty(sum(rows for _, rows in found), dtype), 0
    for column, rows in found:
        if not rows:
            continue
        values[end : end + rows] = np.array(column, dtype) if isinstance(column, list) else column
        end += rows
    return pa.array(values, kind, from_pandas=True)


UNPAIRED = PairedRatio("", math.nan, math.nan, math.nan)

UNTIMED = PooledTimes(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0)

CACHED = SCHEMA.remove(SCHEMA.get_field_index("machine"))
"""What a record's rows say; the machine is the name of their folder."""

EXACT_FIELDS = {series: field for series, (field, _) in EXACT.items()}

SOFTWARE = ("torch", "triton", "cuda", "hip", "nccl")
"""Names of versions in a trial's environment."""


def rows_of(machine: str, path: Path, notes: Path) -> tuple[pa.Table, list[str]]:
    """Rows of an asv file and of the notes beside it, and what could not be used of them."""
    try:
        data, why = checked(path.read_bytes(), machine)
    except OSError as error:
        data, why = {}, f"cannot be read: {error.strerror}"
    if why:
        return table_of([], CACHED), [f"{path.name}: {why}; left out"]
    file = read(notes) if notes.exists() else TrialFile(notes)
    problems = [f"{one.at(Path(notes.name))}: {one.why}; left out" for one in file.rejected]
    place = Place(machine, data["commit_hash"], data["env_name"])
    try:
        pooled = pool(file.trials, place, file.pooled) if file.trials else None
        problems += [_outdated(one, notes) for one in outdated(file.trials, place, file.pooled)]
    except ValueError as error:
        pooled, problems = None, [*problems, f"{notes.name}: {error}; its trials belong elsewhere"]
    noted = [_noted(pooled)] if pooled else []
    try:
        return table_of([*noted, *_bare(data, pooled)], CACHED), problems
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        said = f"{path.name}: holds what asv does not write ({type(error).__name__}: {error}); its notes alone are used"
        return table_of(noted, CACHED), [*problems, said]


def _noted(pooled: PooledTrials) -> RowBlock:
    """Everything the notes hold."""
    keys, cells = list(pooled.cells), list(pooled.cells.values())
    declarations = [pooled.declarations[kernel] for kernel, _, _ in keys]
    cases = [d.cases.get(name, DeclaredCase(name)) for d, (_, _, name) in zip(declarations, keys, strict=True)]
    times = [times_of(cell) or UNTIMED for cell in cells]
    paired = [one.paired or UNPAIRED for one in times]
    columns: dict[str, Column] = {
        **_where(pooled.place, pooled.machine, pooled.date_ms),
        **software(pooled.environment.versions),
        "driver": pooled.machine.driver or "",
        "kernel": [key[0] for key in keys],
        "backend": [key[1] for key in keys],
        "case": [key[2] for key in keys],
        "baseline": [key[1] in d.baselines for d, key in zip(declarations, keys, strict=True)],
        **{name: [getattr(case, name) for case in cases] for name in ("tier", "dtype", "world")},
        "shape": [json.dumps(dict(case.shape)) if case.shape else "" for case in cases],
        **{field: [getattr(case.cost, field) for case in cases] for field, _ in EXACT.values()},
        **_times(times),
        "status": [str(cell.status) for cell in cells],
        "yardstick": [cell.definition for cell in cells],
        "case_yardstick": [cell.case_definition for cell in cells],
        **{name: [getattr(cell, name) for cell in cells] for name in ("why", "method", "code")},
        "paired_with": [one.name for one in paired],
        "paired_ratio": [one.ratio for one in paired],
        "paired_low": [one.low for one in paired],
        "paired_high": [one.high for one in paired],
    }
    return RowBlock(len(keys), columns)


def _times(times: Sequence[PooledTimes]) -> dict[str, Column]:
    return {
        "seconds": [one.seconds for one in times],
        "seconds_low": [one.low for one in times],
        "seconds_high": [one.high for one in times],
        "samples": [one.samples for one in times],
        "trials": [one.trials for one in times],
    }


def _outdated(operator: str, notes: Path) -> str:
    said = f"{notes.name}: the line with the times of {operator} is missing or older than its trials"
    return f"{said}; `ridgeline records add {shlex.quote(str(notes))}` makes it anew from the samples"


def _bare(data: Json, pooled: PooledTrials | None) -> Iterator[RowBlock]:
    """What only asv's file has: measured by a plain `asv run` whose notes are elsewhere."""
    params = data["params"]
    if not trial_file.EARLIEST_MS <= int(data["date"]) <= trial_file.LATEST_MS:
        raise ValueError(f"the date {data['date']} ms since 1970 is not before 2100")
    place = {
        **_where(Place(params["machine"], data["commit_hash"], data["env_name"]), _machine(params), data["date"]),
        **software(data.get("requirements") or {}),
    }
    columns = data["result_columns"]
    rows = {name: dict(zip(columns, row, strict=False)) for name, row in data["results"].items()}
    for name, row in rows.items():
        kernel, _, series = name.rpartition(".")
        if series == TIME and len(row.get("params") or ()) == 2 and row.get("result"):
            block = _bare_kernel(kernel, row, rows, pooled)
            if block.rows:
                yield RowBlock(block.rows, {**place, **block.columns})


def _bare_kernel(kernel: str, row: Json, rows: Mapping[str, Json], pooled: PooledTrials | None) -> RowBlock:
    """The combinations of one time series that asv's file has and the notes lack; what asv skipped is no row."""
    backends, cases = map(names_of, row["params"])
    keys = list(itertools.product(backends, cases))
    values = np.array(row["result"], np.float64)
    if len(values) != len(keys):
        raise ValueError(f"{kernel} has {len(values)} results for {len(keys)} combinations of parameters")
    exact = {field: _of_cases(rows.get(f"{kernel}.{one}"), row["params"][1]) for one, field in EXACT_FIELDS.items()}
    failed = np.array([value is None for value in row["result"]])
    keep = failed | ~np.isnan(values)
    if pooled:
        keep &= np.array([(kernel, *key) not in pooled.cells for key in keys], bool)
    which = np.flatnonzero(keep)
    failed = failed[which]
    columns: dict[str, Column] = {
        "kernel": kernel,
        "backend": [keys[i][0] for i in which],
        "case": [keys[i][1] for i in which],
        "trials": np.where(failed, 0, 1),
        "seconds": values[which],
        "seconds_low": _at(row, "stats_ci_99_a", which),
        "seconds_high": _at(row, "stats_ci_99_b", which),
        "samples": _counts(row.get("stats_repeat"), which),
        **{field: found[which % len(cases)] for field, found in exact.items() if found is not None},
        "status": ["error" if one else "ok" for one in failed] if failed.any() else "ok",
        "why": ["failed under asv, without notes" if one else "" for one in failed] if failed.any() else "",
        "yardstick": str(row.get("version") or ""),
    }
    return RowBlock(len(which), columns)


def _machine(params: Json) -> Machine:
    """What asv's file says of the machine, as far as it is told."""
    arch = str(params.get("arch") or "")
    kind = str(params.get("kind") or ("cpu" if arch in ("cpu", "") else "gpu"))
    return Machine(
        params["machine"],
        kind,
        arch,
        str(params.get("device") or ""),
        str(params.get("market_name") or ""),
        int(params.get("count") or 1),
        params.get("compute_units"),
        params.get("memory_bytes"),
        chip_id=str(params.get("chip_id") or ""),
    )


def _where(place: Place, machine: Machine, date_ms: int) -> dict[str, Column]:
    return {
        "kind": machine.kind,
        "arch": machine.arch or "",
        "device": machine.device or "",
        "market_name": machine.market_name or "",
        "count": machine.count,
        "compute_units": _float(machine.compute_units),
        "memory_bytes": _float(machine.memory_bytes),
        "chip_id": machine.chip_id or "",
        "commit": place.commit,
        "date": int(date_ms),
        "env": place.env,
    }


def software(versions: Mapping[str, Scalar]) -> dict[str, str]:
    """Versions that can change a time, "" where they are not known; a build for AMD has no CUDA and the reverse."""
    found = {name: str(versions.get(name) or "") for name in SOFTWARE}
    runtime = f"HIP {found['hip']}" if found["hip"] else f"CUDA {found['cuda']}" if found["cuda"] else ""
    library = f"{'RCCL' if found['hip'] else 'NCCL'} {found['nccl']}" if found["nccl"] else ""
    return {"runtime": runtime, "library": library, "torch": found["torch"], "triton": found["triton"]}


def names_of(params: Sequence[str]) -> list[str]:
    """Parameters as asv keeps them (repr) back to names."""
    return [text[1:-1] if text[:1] in "'\"" else text for text in params]


def _at(row: Json, column: str, which: np.ndarray) -> np.ndarray:
    """A column of statistics at these places; NaN where asv has none."""
    values = row.get(column)
    return np.array(values, np.float64)[which] if values else np.full(len(which), np.nan)


def _counts(values: Sequence[int | None] | None, which: np.ndarray) -> Column:
    return np.array([value or 0 for value in values], np.int32)[which] if values else 0


def _of_cases(row: Json | None, cases: Sequence[str]) -> np.ndarray | None:
    """An exact series at these cases (as asv keeps them), NaN where it lacks one; None if there is no such series."""
    if not row or not row.get("params") or not row.get("result"):
        return None
    own, values = row["params"][0], row["result"]
    if own != cases:
        known = dict(zip(own, values, strict=False))
        values = [known.get(case) for case in cases]
    return np.array(values, np.float64)


def _float(value: Scalar) -> float:
    return math.nan if value is None else float(value)
