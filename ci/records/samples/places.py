"""Where the samples of a project are: `[tool.ridgeline] samples` in its pyproject.toml.

    samples = "branch:ridgeline-samples"       a branch of this repository with nothing else in it
    samples = "../samples"                     a folder, relative to the project
    samples = "s3://bucket/ridgeline"          an object store (or file, hdfs): any URI that pyarrow.fs opens

Without an entry samples stay in the notes of their record.  Paths in a place are those of `ci.records.samples.parts`.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import os
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from ci.git.branch import Branch
from ci.git.command import GitError
from ci.git.push import PushError, author, authority
from ci.records.samples.parts import PATH
from ci.trials.file import RecordError
from kernels import project

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
class FolderPlace(SamplesPlace):
    """A folder."""

    name: str
    folder: Path

    def put(self, parts: Mapping[str, bytes]) -> None:
        for path, content in parts.items():
            target = self.folder / path
            draft = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                if target.is_file() and target.stat().st_size == len(content):
                    continue
                target.parent.mkdir(parents=True, exist_ok=True)
                draft.write_bytes(content)
                draft.replace(target)
            except OSError as error:
                with contextlib.suppress(OSError):
                    draft.unlink()
                raise _unwritable(self.name, error.strerror or error) from error

    def _get(self, path: str) -> bytes:
        return (self.folder / path).read_bytes()


@dataclasses.dataclass(frozen=True)
class StorePlace(SamplesPlace):
    """Whatever pyarrow.fs opens.  It takes its credentials from where the store's own tools do."""

    name: str

    def put(self, parts: Mapping[str, bytes]) -> None:
        try:
            store, base = self._opened
            for path, content in parts.items():
                target = f"{base}/{path}"
                if store.get_file_info(target).size == len(content):
                    continue
                if store.type_name in ("local", "hdfs"):  # object stores have no folders
                    store.create_dir(target.rpartition("/")[0], recursive=True)
                with store.open_output_stream(target) as stream:
                    stream.write(content)
        except (OSError, pa.ArrowException) as error:
            raise _unwritable(self.name, error) from error

    def _get(self, path: str) -> bytes:
        store, base = self._opened
        with store.open_input_stream(f"{base}/{path}") as stream:
            return bytes(stream.read())

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        try:
            store, base = fs.FileSystem.from_uri(self.name)
        except (OSError, pa.ArrowException) as error:
            raise RecordError(f"samples cannot be at {self.name}: {error}") from error
        return store, base.rstrip("/")


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
    return StorePlace(text) if URI.match(text) else FolderPlace(text, (root / text).resolve())


def _unwritable(name: str, why: object) -> RecordError:
    return RecordError(
        f"samples cannot be written to {name} ({why}); nothing was recorded.  The trial files are whole: "
        "repair the place ([tool.ridgeline] samples) and record them again"
    )
