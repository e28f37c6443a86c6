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

from ci.records import derived, store
from ci.trials.file import RecordError

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
    try:
        paths = _parquet(frame, out) if kind == "parquet" else [_file(frame, out, kind)]
    except OSError as error:
        raise RecordError(f"{out} cannot be written ({error.strerror or error}); name another: --out") from error
    return Exported(len(frame), paths)


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
def _replaced(path: Path) -> Iterator[Path]:
    """A draft that takes the place of `path` once it is whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)
