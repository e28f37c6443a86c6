"""Source trees of head with some files as they are in base: copies, which leave git's index, refs and objects alone."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Protocol

from benchmarks.reach import tree
from benchmarks.reach.tree import SourceTree
from ci.git.command import git
from ci.git.repository import LocalCheckout, listed_packages, records
from ci.judging import reach
from ci.why import hunks
from ci.why.types import Suspect, SuspectKind


class BothSides(Protocol):
    """What is asked of the source of base and head to say what differs."""

    @property
    def changed(self) -> tuple[str, ...]:
        """Paths of the files that differ, in order."""

    @property
    def sources(self) -> tuple[SourceTree, SourceTree]:
        """The files that an operator can come from, of base and of head."""

    def texts(self, name: str) -> tuple[str, str]:
        """A file on both sides, "" where a side lacks it."""


@dataclasses.dataclass(frozen=True)
class CommitSides:
    """Both sides as git has them, for who must not check them out.  root: of a repository that has both commits.

    Raises GitError, and kernels.project.ProjectError, where a commit cannot be read.
    """

    root: Path
    base: str
    head: str

    @functools.cached_property
    def sources(self) -> tuple[SourceTree, SourceTree]:
        """See BothSides."""
        base, head = reach.trees_of(self.root, (self.base, self.head))
        return base, head

    @functools.cached_property
    def changed(self) -> tuple[str, ...]:
        """Without those that only read differently."""
        base, head = (side.files for side in self.sources)
        return tuple(n for n in sorted({*base, *head}) if base.get(n) != head.get(n) and not self._reads_alike(n))

    def _reads_alike(self, name: str) -> bool:
        both = all(name in side.files for side in self.sources)
        return both and name.endswith(".py") and hunks.same_program(*self.texts(name))

    def texts(self, name: str) -> tuple[str, str]:
        """See BothSides."""
        base, head = (self._text(side, name) for side in self.sources)
        return base, head

    def _text(self, side: SourceTree, name: str) -> str:
        file = side.files.get(name)
        if file is None or file.text:
            return file.text if file else ""
        return dict(reach.texts(self.root, [file.digest]))[file.digest]


@dataclasses.dataclass(frozen=True)
class Sides:
    """Both sides of a comparison as they lie on the disk; folder: where trees between the two are put."""

    base: LocalCheckout
    head: LocalCheckout
    folder: Path

    @functools.cached_property
    def changed(self) -> tuple[str, ...]:
        """Paths of the files that differ, or that one side lacks; without those that only read differently."""
        names = sorted({*listed(self.base.path), *listed(self.head.path)})
        return tuple(name for name in names if self._differs(name))

    def _differs(self, name: str) -> bool:
        base, head = content(self.base.path / name), content(self.head.path / name)
        if base == head or base is None or head is None:
            return base != head
        return not (name.endswith(".py") and hunks.same_program(decoded(base), decoded(head)))

    @functools.cached_property
    def sources(self) -> tuple[SourceTree, SourceTree]:
        """See BothSides."""
        base, head = (tree.of_folder(side.path, listed_packages(side.path)) for side in (self.base, self.head))
        return base, head

    def texts(self, name: str) -> tuple[str, str]:
        """See BothSides."""
        base, head = (content(side.path / name) or b"" for side in (self.base, self.head))
        return decoded(base), decoded(head)

    def between(self, put: Iterable[Suspect]) -> LocalCheckout:
        """Head with the files, and parts of files, that are put back; head itself where there are none."""
        suspects = list(put)
        files = {one.path: content(self.base.path / one.path) for one in suspects if one.kind is SuspectKind.FILE}
        parts = {one.path for one in suspects if one.kind is SuspectKind.PART} - files.keys()
        for name in parts:
            numbers = {number for one in suspects if one.path == name for number in one.hunks}
            files[name] = hunks.put_back(*self.texts(name), numbers).encode()
        return self._made(files) if files else self.head

    def _made(self, files: dict[str, bytes | None]) -> LocalCheckout:
        """A copy of head with these contents; one that is there already is used as it is."""
        key = hashlib.sha256(repr((self.head.commit.hash, self._state, sorted(files.items()))).encode()).hexdigest()[
            :12
        ]
        where = self.folder / f"tree-{key}"
        if not where.exists():
            draft = where.with_name(f"{where.name}.draft")
            shutil.rmtree(draft, ignore_errors=True)
            _copied(self.head.path, draft, set(listed(self.head.path)) - files.keys())
            for name, data in files.items():
                _written(draft / name, data)
            draft.rename(where)
        return dataclasses.replace(self.head, path=where, dirty=True)

    @functools.cached_property
    def _state(self) -> str:
        """A digest of what is changed in head beside its commit."""
        names = self.changed if self.head.dirty else ()
        return _digest([content(self.head.path / name) for name in names])


def listed(folder: Path) -> list[str]:
    """The files of a checkout, committed or not, without ignored ones and without records."""
    names = git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".", *records(folder))
    return [name for name in names.split("\0") if name and not (folder / name).is_dir()]


def content(path: Path) -> bytes | None:
    """The bytes of a file, of a link its target; None if there is none."""
    if path.is_symlink():
        return str(path.readlink()).encode()
    return path.read_bytes() if path.is_file() else None


def decoded(data: bytes) -> str:
    """Text as it can be compared."""
    return data.decode("utf-8", "surrogateescape")


def _copied(source: Path, target: Path, names: Collection[str]) -> None:
    target.mkdir(parents=True)
    for name in names:
        if (source / name).exists() or (source / name).is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, target / name, follow_symlinks=False)


def _written(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
