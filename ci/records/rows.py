"""The rows of one record: of asv's file and of the trials beside it, as a table of the columns of the frame."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks import trial_file
from ci.records import asv_files
from ci.records.columns import SCHEMA, Column, RowBlock, table_of
from ci.records.paired import times_of
from ci.records.pooling import Place, PooledTrials, outdated, pool
from ci.trials.file import TrialFile, read
from ci.trials.pooled import PairedRatio, PooledTimes
from ci.trials.trial import DeclaredCase, Machine, Scalar

UNPAIRED = PairedRatio("", math.nan, math.nan, math.nan)

UNTIMED = PooledTimes(math.nan, math.nan, math.nan, math.nan, math.nan, 0, 0)

CACHED = SCHEMA.remove(SCHEMA.get_field_index("machine"))
"""What a record's rows say; the machine is the name of their folder."""

EXACT_FIELDS = {series: field for series, (field, _) in asv_files.EXACT.items()}

SOFTWARE = ("torch", "triton", "cuda", "hip", "nccl")
"""Names of versions in a trial's environment."""


def rows_of(machine: str, path: Path, notes: Path) -> tuple[pa.Table, list[str]]:
    """Rows of an asv file and of the notes beside it, and what could not be used of them."""
    try:
        data, why = asv_files.checked(path.read_bytes(), machine)
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
        **{field: [getattr(case.cost, field) for case in cases] for field, _ in asv_files.EXACT.values()},
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
    return f"{said}; `ridgeline record {notes}` makes it anew from the samples"


def _bare(data: asv_files.Json, pooled: PooledTrials | None) -> Iterator[RowBlock]:
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
        if series == asv_files.TIME and len(row.get("params") or ()) == 2 and row.get("result"):
            block = _bare_kernel(kernel, row, rows, pooled)
            if block.rows:
                yield RowBlock(block.rows, {**place, **block.columns})


def _bare_kernel(
    kernel: str, row: asv_files.Json, rows: Mapping[str, asv_files.Json], pooled: PooledTrials | None
) -> RowBlock:
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


def _machine(params: asv_files.Json) -> Machine:
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


def _at(row: asv_files.Json, column: str, which: np.ndarray) -> np.ndarray:
    """A column of statistics at these places; NaN where asv has none."""
    values = row.get(column)
    return np.array(values, np.float64)[which] if values else np.full(len(which), np.nan)


def _counts(values: Sequence[int | None] | None, which: np.ndarray) -> Column:
    return np.array([value or 0 for value in values], np.int32)[which] if values else 0


def _of_cases(row: asv_files.Json | None, cases: Sequence[str]) -> np.ndarray | None:
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
