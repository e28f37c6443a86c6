"""The samples of trials, out of git: as Parquet parts in a branch of results, a folder or an object store."""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import hashlib
import io
import os
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs

from ci.git.command import GitError
from ci.git.push import Branch, PushError, author, authority
from ci.stats.types import FloatArray
from ci.trials.compact import Altered, ArmSamples, compacted, digest, restored, samples_of
from ci.trials.file import RecordError
from ci.trials.trial import Trial
from kernels import project

# Samples as Parquet: `machine=<name>/kernel=<operator>/month=<YYYY-MM>/part-<digest>.parquet`, one row per sample.
#
# The folders are in the "hive" spelling that DuckDB, pandas, polars and Spark read. A part holds one trial and is never
# changed: its name is a digest of what is in it, so a trial that is recorded twice, or for both of its commits, is
# there once. `ridgeline records export --samples` writes many trials into few files.


TEXT = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("trial", TEXT),
        ("started", pa.timestamp("ms", tz="UTC")),
        *((name, TEXT) for name in ("commit", "env", "role", "backend", "case")),
        ("round", pa.int32()),
        ("seconds", pa.float64()),
        ("skew_s", pa.float64()),
    ]
)
"""Columns of a part.  trial: its id.  round: row i of every arm of a case in a trial is from round i.

seconds: of one call; of a collective, of the slowest rank.  skew_s: by how much its ranks started apart, else null.
"""

PATH = re.compile(r"machine=[^/]+/kernel=[^/]+/month=\d{4}-\d{2}/part-[0-9a-f]{32}\.parquet")
"""Every path of a part; nothing else is ever opened."""


def path_of(trial: Trial) -> str:
    """Where the samples of a full trial belong: it depends on the trial alone, so that it is there once."""
    said = f"{trial.id} {digest(samples_of(trial))}"
    return f"{folder(trial)}/part-{hashlib.blake2b(said.encode(), digest_size=16).hexdigest()}.parquet"


def folder(trial: Trial) -> str:
    """Where the samples of a trial belong."""
    month = trial.started_at[:7] if re.match(r"\d{4}-\d{2}-", trial.started_at) else "0000-00"
    return f"machine={quote(trial.machine.name, safe='')}/kernel={quote(trial.operator, safe='')}/month={month}"


def table(trials: Sequence[Trial]) -> pa.Table:
    """The samples of full trials as one table of SCHEMA."""
    rows = [(trial, one) for trial in trials for one in samples_of(trial)]
    lengths = np.array([max(len(one.seconds), len(one.skew_s)) for _, one in rows], np.int64)
    texts: dict[str, list[str]] = {
        "trial": [trial.id for trial, _ in rows],
        "commit": [trial.checkouts[one.role].recordable or "" for trial, one in rows],
        "env": [trial.checkouts[one.role].environment.name for trial, one in rows],
        **{name: [getattr(one, name) for _, one in rows] for name in ("role", "backend", "case")},
    }
    started = np.repeat(np.array([trial.started_ms for trial, _ in rows], "datetime64[ms]"), lengths)
    columns = {
        **{name: _repeated(values, lengths) for name, values in texts.items()},
        "started": pa.array(started, SCHEMA.field("started").type),
        "round": np.concatenate([np.arange(length, dtype=np.int32) for length in lengths] or [np.empty(0, np.int32)]),
        "seconds": _padded([one.seconds for _, one in rows], lengths),
        "skew_s": _padded([one.skew_s for _, one in rows], lengths),
    }
    return pa.table({name: columns[name] for name in SCHEMA.names}, schema=SCHEMA)


def written(rows: pa.Table) -> bytes:
    """Rows as a Parquet file; the same rows give the same bytes."""
    stream = io.BytesIO()
    texts = [field.name for field in rows.schema if field.type == TEXT]
    pq.write_table(
        rows,
        stream,
        compression="zstd",
        compression_level=9,
        use_dictionary=texts,
        column_encoding={"round": "DELTA_BINARY_PACKED"},
        write_page_checksum=True,
        store_schema=False,
    )
    return stream.getvalue()


def read(content: bytes, wanted: Sequence[str]) -> dict[str, list[ArmSamples]]:
    """The samples of the wanted trials (ids) in a part, by trial.  Raises pyarrow.ArrowException for a damaged file."""
    rows = pq.ParquetFile(io.BytesIO(content), page_checksum_verification=True).read(use_threads=False)
    rows = rows.filter(pc.is_in(rows["trial"], value_set=pa.array(list(wanted), pa.string())))
    found: dict[str, list[ArmSamples]] = {}
    keys = ["trial", "case", "role", "backend"]
    for (trial, case, role, backend), own in rows.to_pandas().groupby(keys, sort=False, observed=True):
        seconds, skew_s = (own[name].dropna().to_numpy(np.float64) for name in ("seconds", "skew_s"))
        found.setdefault(str(trial), []).append(ArmSamples(str(case), str(role), str(backend), seconds, skew_s))
    return found


def _padded(arrays: Sequence[FloatArray], lengths: np.ndarray) -> pa.Array:
    """Arrays end to end, each filled up with nulls to its length."""
    ends = np.cumsum(lengths)
    values = np.full(int(ends[-1]) if len(ends) else 0, np.nan)
    for array, end, length in zip(arrays, ends, lengths, strict=True):
        values[end - length : end - length + len(array)] = array
    return pa.array(values, pa.float64(), from_pandas=True)


def _repeated(values: Sequence[str], lengths: np.ndarray) -> pa.DictionaryArray:
    texts: Mapping[str, int] = {text: code for code, text in enumerate(sorted(set(values)))}
    codes = np.repeat(np.array([texts[value] for value in values], np.int32), lengths)
    return pa.DictionaryArray.from_arrays(codes, pa.array(list(texts), pa.string()))


# Where the samples of a project are: `[tool.ridgeline] samples` in its pyproject.toml.
#
#     samples = "branch:ridgeline-samples"       a branch of this repository with nothing else in it
#     samples = "../samples"                     a folder, relative to the project
#     samples = "s3://bucket/ridgeline"          an object store (or file, hdfs): any URI that pyarrow.fs opens
#
# Without an entry samples stay in the notes of their record.  Paths in a place are those of `ci.records.samples.parts`.


BRANCH = "branch:"

URI = re.compile(r"[a-z][a-z0-9+.-]+://")


class SamplesPlace(abc.ABC):
    """A place for parts.  name: as it is configured."""

    name: str

    @abc.abstractmethod
    def put(self, parts: Mapping[str, bytes]) -> None:
        """Keep these parts by path; one that is there already is left alone.  Raises RecordError."""

    def publish(self) -> str:
        """Send what was put here to where others see it, if that is not the same; a sentence for people."""
        return ""

    def get(self, path: str) -> bytes:
        """A part.  Raises RecordError."""
        if not PATH.fullmatch(path) or ".." in path:
            raise RecordError(f"{path!r} is no path of samples (machine=/kernel=/month=/part-); its record is damaged")
        try:
            return self._get(path)
        except (OSError, GitError, pa.ArrowException) as error:
            said = getattr(error, "strerror", None) or error
            raise RecordError(f"the samples {path} cannot be read from {self.name} ({said}); {self._hint}") from error

    @abc.abstractmethod
    def _get(self, path: str) -> bytes: ...

    _hint = "is it the place that [tool.ridgeline] samples names, and can it be reached?"


@dataclasses.dataclass(frozen=True)
class StorePlace(SamplesPlace):
    """Whatever pyarrow.fs opens: a folder, an object store.  It takes credentials from where the store's own tools do.

    location: a URI, or the path of a folder.
    """

    name: str
    location: str

    def put(self, parts: Mapping[str, bytes]) -> None:
        try:
            store, base = self._opened
            for path, content in parts.items():
                target = f"{base}/{path}"
                if store.get_file_info(target).size == len(content):
                    continue
                folder, _, leaf = target.rpartition("/")
                if store.type_name not in ("local", "hdfs"):  # object stores have no folders, and show what is whole
                    _written_to(store, target, content)
                    continue
                store.create_dir(folder, recursive=True)
                draft = f"{folder}/.{leaf}.{os.getpid()}"
                try:
                    _written_to(store, draft, content)
                    store.move(draft, target)
                except OSError:
                    with contextlib.suppress(OSError):
                        store.delete_file(draft)
                    raise
        except (OSError, pa.ArrowException) as error:
            raise _unwritable(self.name, error.strerror if getattr(error, "strerror", None) else error) from error

    def _get(self, path: str) -> bytes:
        store, base = self._opened
        with store.open_input_stream(f"{base}/{path}") as stream:
            return bytes(stream.read())

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        try:
            store, base = fs.FileSystem.from_uri(self.location)
        except (OSError, pa.ArrowException) as error:
            raise RecordError(f"samples cannot be at {self.name}: {error}") from error
        return store, base.rstrip("/")


def _written_to(store: fs.FileSystem, path: str, content: bytes) -> None:
    with store.open_output_stream(path) as stream:
        stream.write(content)


@dataclasses.dataclass(frozen=True)
class BranchPlace(SamplesPlace):
    """A branch of the repository around the project, which no work tree has."""

    name: str
    branch: Branch

    _hint = "fetch the branch: git fetch origin BRANCH:BRANCH"

    def put(self, parts: Mapping[str, bytes]) -> None:
        try:
            self.branch.add(parts, f"Samples: {len(parts)} parts")
        except GitError as error:
            raise _unwritable(self.name, error) from error

    def publish(self) -> str:
        if not self.branch.exists:
            return ""
        try:
            return f"pushed {self.branch.push({**author(), **authority()})[:8]} to {self.branch.name}"
        except (GitError, PushError) as error:
            raise RecordError(f"the samples stay here: {error}") from error

    def _get(self, path: str) -> bytes:
        return self.branch.read(path)


class CountingPlace(SamplesPlace):
    """Keeps nothing and says how much that would have been.  parts: bytes by path."""

    def __init__(self, name: str) -> None:
        self.name, self.parts = name, dict[str, int]()

    def put(self, parts: Mapping[str, bytes]) -> None:
        self.parts |= {path: len(content) for path, content in parts.items()}

    def _get(self, path: str) -> bytes:
        raise FileNotFoundError(path)


def configured(results_dir: Path) -> SamplesPlace | None:
    """The place of the project that a folder (results, or one below it) is in, None if it names none.

    Raises RecordError.
    """
    try:
        found = project.around(results_dir)
    except project.ProjectError as error:
        raise RecordError(str(error)) from error
    return None if found.samples is None else named(found.samples, found.root)


def published(results_dir: Path) -> str:
    """Send samples to where others see them, before the records that refer to them; a sentence for people, or ""."""
    place = configured(results_dir)
    return place.publish() if place else ""


def named(text: str, root: Path) -> SamplesPlace:
    """The place that a text names, of a project.  Raises RecordError."""
    if text.startswith(BRANCH):
        try:
            return BranchPlace(text, Branch.of(root, text.removeprefix(BRANCH)))
        except GitError as error:
            raise RecordError(f"[tool.ridgeline] samples is {text!r}: {error}") from error
    return StorePlace(text, text if URI.match(text) else str((root / text).resolve()))


def _unwritable(name: str, why: object) -> RecordError:
    return RecordError(
        f"samples cannot be written to {name} ({why}); nothing was recorded.  The trial files are whole: "
        "repair the place ([tool.ridgeline] samples) and record them again"
    )


# Trials without their samples and back: samples go to a place, trials come back whole.


def kept(trials: Sequence[Trial], place: SamplesPlace | None) -> list[Trial]:
    """The trials with their samples at the place; as they are where there is none.  Raises RecordError.

    Samples are written before anything refers to them.
    """
    full = [trial for trial in trials if trial.samples is None]
    if place is None or not full:
        return list(trials)
    paths = {trial.id: path_of(trial) for trial in full}
    place.put({paths[trial.id]: written(table([trial])) for trial in full})
    return [compacted(trial, paths[trial.id]) if trial.samples is None else trial for trial in trials]


def whole(trials: Sequence[Trial], place: SamplesPlace | None) -> list[Trial]:
    """The trials with their samples.  Raises RecordError where they cannot be had."""
    away = [trial for trial in trials if trial.samples]
    if not away:
        return list(trials)
    if place is None:
        raise RecordError(
            f"the samples of trial {away[0].id} are at {_path(away[0])} of a place that is not named here; "
            'name it in pyproject.toml: [tool.ridgeline] samples = "branch:NAME", a folder or a URI'
        )
    by_path: dict[str, list[Trial]] = {}
    for trial in away:
        by_path.setdefault(_path(trial), []).append(trial)
    back = {trial.id: trial for path, those in by_path.items() for trial in _of_part(path, those, place)}
    return [back.get(trial.id, trial) for trial in trials]


def whole_in(trials: Sequence[Trial], results_dir: Path) -> list[Trial]:
    """The same, from the place of the project around a results folder."""
    return whole(trials, configured(results_dir) if any(trial.samples for trial in trials) else None)


def _of_part(path: str, trials: Sequence[Trial], place: SamplesPlace) -> list[Trial]:
    content = place.get(path)
    try:
        found = read(content, [trial.id for trial in trials])
        return [restored(trial, found.get(trial.id, ())) for trial in trials]
    except (pa.ArrowException, OSError, KeyError) as error:
        raise RecordError(f"{path} in {place.name} is damaged ({error}); bring back the file from a copy") from error
    except Altered as error:
        raise RecordError(f"{error} ({place.name}); bring back the file from a copy") from error


def _path(trial: Trial) -> str:
    return trial.samples.path if trial.samples else ""
