"""Records as one long frame, through the Parquet cache.  Read by :mod:`ci.records.store`, which owns the folder."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from ci.git.repository import history_order
from ci.records import asv_files, cache
from ci.records.paired import beside_fastest
from ci.records.pooling import Cell, Place, PooledTrials, interval, pool
from ci.trials.file import TrialFile, read
from ci.trials.trial import DeclaredCase, Scalar

SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("machine", "kind", "arch", "device", "market_name")),
        ("count", pa.int64()),
        ("compute_units", pa.float64()),
        ("memory_bytes", pa.float64()),
        ("chip_id", pa.string()),
        ("commit", pa.string()),
        ("date", pa.timestamp("ms", tz="UTC")),
        *((name, pa.string()) for name in ("env", "kernel", "backend")),
        ("baseline", pa.bool_()),
        *((name, pa.string()) for name in ("case", "tier", "dtype")),
        ("world", pa.int64()),
        *((name, pa.float64()) for name in ("seconds", "seconds_low", "seconds_high")),
        ("samples", pa.int64()),
        ("trials", pa.int64()),
        *((name, pa.float64()) for name in ("flops", "hbm_bytes", "link_bytes", "payload_bytes")),
        *((name, pa.string()) for name in ("status", "why", "yardstick", "case_yardstick", "method")),
        *((name, pa.string()) for name in ("driver", "runtime", "library", "torch", "triton", "code", "paired_with")),
        *((name, pa.float64()) for name in ("paired_ratio", "paired_low", "paired_high")),
    ]
)
"""Columns of the frame.  seconds_low and seconds_high: 99 % interval (ci.records.pooling.interval).

driver, torch, triton: versions; runtime: "CUDA 13.0" or "HIP 7.1"; library: "NCCL 2.28.9" or "RCCL 2.27"; "" if not
known.  code: digest of the arm's machine code, "" if not known.  paired_ratio: time of the fastest baseline / the
row's time, round by round (ci.records.paired), with its 99 % interval; paired_with: that baseline.  NaN and "" where no
baseline was timed in the same trial."""

Row = dict[str, Any]
"""A row of the frame by column."""

VERSION = 2
"""Version of what the cache holds; raise it with any change of SCHEMA or of how rows are made."""


def load(results_dir: Path, machine: str | None, notes_path: Callable[[Path], Path]) -> pd.DataFrame:
    """See :func:`ci.records.store.load`."""
    tables, problems = [SCHEMA.append(pa.field(cache.UNIT, pa.string())).empty_table()], []
    for folder in sorted(results_dir.iterdir()) if results_dir.is_dir() else []:
        if not folder.is_dir() or folder.name.startswith(".") or machine not in (None, folder.name):
            continue
        files = {path.stem: path for path in sorted(folder.glob("*.json")) if path.name != "machine.json"}
        units = {stem: (path, notes_path(path)) for stem, path in files.items()}
        store = results_dir / ".cache" / f"{folder.name}.parquet"
        rows, bad = cache.table(units, _parser(folder.name, units), SCHEMA, store, VERSION)
        tables.append(rows)
        alone = (path for path in sorted(folder.glob("*.notes.jsonl")) if path.name.split(".notes.")[0] not in files)
        problems += bad + [f"{path}: notes without an asv file; to make it: ridgeline record {path}" for path in alone]
    frame: pd.DataFrame = pa.concat_tables(tables).drop_columns([cache.UNIT]).to_pandas()
    frame = _apart(frame, results_dir).sort_values(["date", "commit"], kind="stable", ignore_index=True)
    frame.attrs["problems"] = problems
    return frame


def _apart(frame: pd.DataFrame, folder: Path) -> pd.DataFrame:
    """Commits of one second, as a rebase makes them, 1 ms apart in the order of history: everything sorts by date."""
    dates = frame[["commit", "date"]].drop_duplicates()
    tied = dates[dates.duplicated("date", keep=False)].copy()
    if not tied.empty:
        tied["place"] = tied["commit"].map(history_order(folder, tied["commit"])).fillna(-1)
        tied = tied.sort_values(["date", "place", "commit"])
        tied["later"] = tied.groupby("date").cumcount()
        later = frame[["commit", "date"]].merge(tied, how="left", on=["commit", "date"])["later"].fillna(0)
        frame["date"] += pd.to_timedelta(later.to_numpy(), unit="ms")
    return frame


def _parser(machine: str, units: Mapping[str, tuple[Path, Path]]) -> cache.Parser:
    return lambda unit: _rows(machine, *units[unit])


def _rows(machine: str, path: Path, notes: Path) -> tuple[list[Row], list[str]]:
    """Rows of one asv file and the trials beside it, and what could not be used of them."""
    try:
        data, why = asv_files.checked(path.read_bytes(), machine)
    except OSError as error:
        data, why = {}, f"cannot be read: {error.strerror}"
    if why:
        return [], [f"{path}: {why}; left out"]
    file = read(notes) if notes.exists() else TrialFile(notes)
    problems = [f"{one.at(notes)}: {one.why}; left out" for one in file.rejected]
    place = Place(machine, data["commit_hash"], data["env_name"])
    try:
        pooled = pool(file.trials, place) if file.trials else None
    except ValueError as error:
        pooled, problems = None, [*problems, f"{notes}: {error}; its trials belong elsewhere"]
    rows = list(_noted_rows(pooled)) if pooled else []
    return rows + list(_bare_rows(data, pooled)), problems


def _noted_rows(pooled: PooledTrials) -> Iterator[Row]:
    """Rows of everything the notes hold."""
    place = _where(pooled.place, pooled.machine.facts, pooled.date_ms)
    place |= _software(pooled.environment.versions) | {"driver": pooled.machine.driver or ""}
    for (operator, backend, name), cell in pooled.cells.items():
        declared = pooled.declarations[operator]
        case = declared.cases.get(name, DeclaredCase(name))
        yield {
            **place,
            "kernel": operator,
            "backend": backend,
            "case": name,
            "baseline": backend in declared.baselines,
            "tier": case.tier,
            "dtype": case.dtype,
            "world": case.world,
            **_numbers(cell),
            **{field: _float(getattr(case.cost, field)) for field, _ in asv_files.EXACT.values()},
            "status": str(cell.status),
            "why": cell.why,
            "yardstick": cell.definition,
            "case_yardstick": cell.case_definition,
            "method": cell.method,
            "code": cell.code,
            **_paired(cell),
        }


def _bare_rows(data: asv_files.Json, pooled: PooledTrials | None) -> Iterator[Row]:
    """Rows that only asv's file has: measured by a plain `asv run` whose notes are elsewhere."""
    params = data["params"]
    place = _where(Place(params["machine"], data["commit_hash"], data["env_name"]), params, data["date"])
    place |= _software(data.get("requirements") or {}) | {"driver": ""}
    table = {name: dict(zip(data["result_columns"], row, strict=False)) for name, row in data["results"].items()}
    for name, row in table.items():
        kernel, _, series = name.rpartition(".")
        if series != asv_files.TIME or len(row.get("params") or ()) != 2 or not row.get("result"):
            continue
        for index, (backend, case) in enumerate(itertools.product(*map(_names, row["params"]))):
            value = row["result"][index]
            if (pooled and (kernel, backend, case) in pooled.cells) or (value is not None and math.isnan(value)):
                continue
            failed = value is None
            yield {
                **place,
                "kernel": kernel,
                "backend": backend,
                "case": case,
                "baseline": False,
                "tier": "",
                "dtype": "",
                "world": 1,
                "trials": 0 if failed else 1,
                "seconds": math.nan if failed else float(value),
                "seconds_low": _at(row, "stats_ci_99_a", index),
                "seconds_high": _at(row, "stats_ci_99_b", index),
                "samples": int(_at(row, "stats_repeat", index) or 0),
                **{field: _exact(table, f"{kernel}.{exact}", case) for exact, (field, _) in asv_files.EXACT.items()},
                "status": "error" if failed else "ok",
                "why": "failed under asv, without notes" if failed else "",
                "yardstick": str(row.get("version") or ""),
                "case_yardstick": "",
                "method": "",
                "code": "",
                "paired_with": "",
            }


def _where(place: Place, machine: Mapping[str, Any], date_ms: int) -> Row:
    arch = str(machine.get("arch") or "")
    kind = str(machine.get("kind") or ("cpu" if arch in ("cpu", "") else "gpu"))
    return {
        "machine": place.machine,
        "kind": kind,
        "arch": arch,
        "device": str(machine.get("device") or ""),
        "market_name": str(machine.get("market_name") or ""),
        "count": int(machine.get("count") or 1),
        "compute_units": _float(machine.get("compute_units")),
        "memory_bytes": _float(machine.get("memory_bytes")),
        "chip_id": str(machine.get("chip_id") or ""),
        "commit": place.commit,
        "date": int(date_ms),
        "env": place.env,
    }


def _software(versions: Mapping[str, Scalar]) -> dict[str, str]:
    """Versions that can change a time, "" where they are not known; a build for AMD has no CUDA and the reverse."""
    found = {name: str(versions.get(name) or "") for name in ("torch", "triton", "cuda", "hip", "nccl")}
    runtime = f"HIP {found['hip']}" if found["hip"] else f"CUDA {found['cuda']}" if found["cuda"] else ""
    library = f"{'RCCL' if found['hip'] else 'NCCL'} {found['nccl']}" if found["nccl"] else ""
    return {"runtime": runtime, "library": library, "torch": found["torch"], "triton": found["triton"]}


def _paired(cell: Cell) -> Row:
    beside = beside_fastest(cell)
    if beside is None:
        return {"paired_with": "", "paired_ratio": math.nan, "paired_low": math.nan, "paired_high": math.nan}
    return {
        "paired_with": beside.name,
        "paired_ratio": beside.ratio,
        "paired_low": beside.low,
        "paired_high": beside.high,
    }


def _numbers(cell: Cell) -> Row:
    low, high = interval(cell.trials) if cell.trials else (math.nan, math.nan)
    return {
        "seconds": cell.seconds,
        "seconds_low": low,
        "seconds_high": high,
        "samples": sum(map(len, cell.trials)),
        "trials": len(cell.trials),
    }


def _names(params: list[str]) -> list[str]:
    """Parameters as asv keeps them (repr) back to names."""
    return [text[1:-1] if text[:1] in "'\"" else text for text in params]


def _at(row: asv_files.Json, column: str, index: int) -> float | None:
    values = row.get(column)
    return _float(values[index]) if values else None


def _exact(table: Mapping[str, asv_files.Json], name: str, case: str) -> float | None:
    row = table.get(name) or {}
    cases = _names(row["params"][0]) if row.get("params") else []
    return _at(row, "result", cases.index(case)) if case in cases else None


def _float(value: Any) -> float | None:
    return None if value is None else float(value)
