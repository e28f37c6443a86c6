"""The long frame with derived units, written for other engines.

Parquet is written as a data set of one folder per machine (`machine=<name>/records.parquet`, "hive" spelling): DuckDB,
pandas, polars and Spark read the folder as one table.  CSV and JSON lines are one file.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pandas as pd

from ci.records import derived, samples, store
from ci.trials.file import RecordError, read
from ci.trials.trial import Trial

FORMATS = ("parquet", "csv", "json")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What was written."""

    rows: int
    paths: list[Path]


def export(
    results_dir: Path,
    out: Path,
    kind: str = "parquet",
    machines: Sequence[str] = (),
    kernels: Sequence[str] = (),
    since: datetime.datetime | None = None,
    dry_run: bool = False,
) -> Exported:
    """Write the records that match; nothing where none does.  Raises RecordError if `out` cannot be written."""
    frame = derived.derive(chosen(store.load(results_dir), machines, kernels, since))
    if not len(frame) or dry_run:
        return Exported(len(frame), [])
    with _written(out):
        paths = _parquet(frame, out) if kind == "parquet" else [_file(frame, out, kind)]
    return Exported(len(frame), paths)


def export_samples(
    results_dir: Path,
    out: Path,
    machines: Sequence[str] = (),
    kernels: Sequence[str] = (),
    since: datetime.datetime | None = None,
    dry_run: bool = False,
) -> Exported:
    """Write every sample of the trials that match, a row each (`ci.records.samples.SCHEMA`), wherever they are.

    A trial of two commits counts once.  since: of trials that started on this day or later.  One file per machine,
    operator and month.  Raises RecordError.
    """
    groups: dict[str, dict[str, Trial]] = {}
    for path in sorted(results_dir.glob("*/*.notes.jsonl")):
        for trial in read(path).trials if not machines or path.parent.name in machines else ():
            if (not kernels or trial.operator in kernels) and (since is None or trial.started_ms >= _ms(since)):
                groups.setdefault(samples.folder(trial), {})[trial.id] = trial
    rows, paths = 0, []
    for folder, trials in sorted(groups.items()):
        ordered = sorted(trials.values(), key=lambda trial: trial.order)
        if dry_run:
            rows += sum(arm.rounds for trial in ordered for *_, arm in trial.arms())
            continue
        found = samples.table(samples.whole_in(ordered, results_dir))
        rows, path = rows + len(found), out / folder / "samples.parquet"
        with _written(out), _replaced(path) as draft:
            draft.write_bytes(samples.written(found))
        paths.append(path)
    return Exported(rows, paths)


def _ms(day: datetime.datetime) -> int:
    return round(day.replace(tzinfo=datetime.UTC).timestamp() * 1000)


def chosen(
    frame: pd.DataFrame, machines: Sequence[str], kernels: Sequence[str], since: datetime.datetime | None
) -> pd.DataFrame:
    """The rows of these machines and kernels (all without any) from a day on (UTC)."""
    for column, names in (("machine", machines), ("kernel", kernels)):
        if names:
            frame = frame[frame[column].isin(list(names))]
    if since is not None:
        frame = frame[frame["date"] >= pd.Timestamp(since, tz="UTC")]
    return frame.reset_index(drop=True)


def _parquet(frame: pd.DataFrame, out: Path) -> list[Path]:
    paths = []
    for machine, rows in frame.groupby("machine", observed=True):
        path = out / f"machine={quote(str(machine), safe='')}" / "records.parquet"
        with _replaced(path) as draft:
            rows.drop(columns="machine").to_parquet(draft, index=False, compression="zstd")
        paths.append(path)
    return paths


def _file(frame: pd.DataFrame, out: Path, kind: str) -> Path:
    write: dict[str, Callable[[Path], object]] = {
        "csv": lambda draft: frame.to_csv(draft, index=False),
        "json": lambda draft: frame.to_json(draft, orient="records", lines=True, date_format="iso"),
    }
    with _replaced(out) as draft:
        write[kind](draft)
    return out


@contextlib.contextmanager
def _written(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RecordError(f"{out} cannot be written ({error.strerror or error}); name another: --out") from error


@contextlib.contextmanager
def _replaced(path: Path) -> Iterator[Path]:
    """A draft that takes the place of `path` once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
