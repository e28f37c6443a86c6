"""A site on its way: files as they are made, what of the site that stands is still good, and putting it in place.

A part is a group of files that is made of one input.  A part whose input has the digest that it had when the standing
site was made is taken over from there, if its files are whole; so a record touches only the files that show it.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Self

MARKER = ".ridgeline-site"
"""File that says a folder was built here and may be replaced."""

PARTS = ".ridgeline-parts.json"
"""File that says of which input each part was made, and which files it has, with their digests."""

DRAFT, OLD = ".ridgeline-draft-", ".old"
"""In the names of folders beside a site: of a build's draft, and of the site that it is about to replace."""

NEW_S = 60.0
"""A draft of this age that nobody holds is that of a build that was killed; a new one is held at once."""

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""linux/fcntl.h and linux/fs.h (Linux 6.12)."""

File = tuple[str, bytes]
"""Path from the root of the site, and content."""


class SiteError(Exception):
    """The site cannot be built; the text says what to do."""


@dataclasses.dataclass(frozen=True)
class SitePart:
    """made_of: digest of the input; files: digest by path."""

    made_of: str
    files: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Standing:
    """The site that stands: where, and its parts; none if there is no site or it says nothing that can be used.

    whole: nobody has touched its files since it was built, so that they need not be read to know.
    """

    folder: Path
    parts: Mapping[str, SitePart]
    whole: bool = False

    @classmethod
    def at(cls, folder: Path, whole: bool = False) -> Self:
        """What the folder says of itself."""
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            found = json.loads((folder / PARTS).read_text())
            return cls(folder, {name: SitePart(**part) for name, part in found.items()}, whole)
        return cls(folder, {})


@dataclasses.dataclass(frozen=True)
class Draft:
    """Files below `folder`.  digests: by path; made: how many files were made, not taken over."""

    folder: Path
    standing: Standing
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: dict[str, SitePart] = dataclasses.field(default_factory=dict)
    made: list[str] = dataclasses.field(default_factory=list)

    def add(self, path: str, content: bytes) -> str:
        """Write a file; its digest."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.digests[path] = digest(content)
        self.made.append(path)
        return self.digests[path]

    def part(self, name: str, made_of: str, make: Callable[[], Iterable[File]]) -> None:
        """The files of a part: those that stand, if they were made of the same input, else made now."""
        before = self.standing.parts.get(name)
        if before and before.made_of == made_of and self._take(before):
            self.parts[name] = before
        else:
            self.parts[name] = SitePart(made_of, {path: self.add(path, content) for path, content in make()})

    def finish(self) -> None:
        """Write down of what the parts were made."""
        found = {name: dataclasses.asdict(part) for name, part in sorted(self.parts.items())}
        self.add(PARTS, json.dumps(found, sort_keys=True, separators=(",", ":")).encode("ascii"))

    def _take(self, part: SitePart) -> bool:
        """Whether all files of a part stand as they were made; then they are linked (or copied) into the draft."""
        for path, wanted in () if self.standing.whole else part.files.items():
            try:
                if digest((self.standing.folder / path).read_bytes()) != wanted:
                    return False
            except OSError:
                return False
        for folder in {os.path.dirname(path) for path in part.files}:
            (self.folder / folder).mkdir(parents=True, exist_ok=True)
        for path in part.files:
            _link(f"{self.standing.folder}/{path}", f"{self.folder}/{path}")
        self.digests.update(part.files)
        return True


def digest(content: bytes) -> str:
    """Twelve hex digits of SHA-256."""
    return hashlib.sha256(content).hexdigest()[:12]


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


# ---- putting it in place --------------------------------------------------------------------------------------------


@contextlib.contextmanager
def replacing(out: Path, whole: bool = False) -> Iterator[Draft]:
    """A draft that takes the place of the folder `out` when the block ends; if it fails, `out` is as before.

    whole: see Standing.  Raises SiteError if `out` holds anything but a site.
    """
    _check_target(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _take_back(out)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}{DRAFT}", dir=out.parent))
    with _held(folder):
        try:
            yield Draft(folder, Standing.at(out, whole))
            folder.chmod(0o777 & ~_umask())  # mkdtemp makes a folder that a web server cannot read
            _swap(folder, out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[bool]:
    """Hold a folder (flock(2)) as long as this process lives, however it ends; whether nobody else held it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield True
    except BlockingIOError:
        yield False
    finally:
        os.close(descriptor)


def _take_back(out: Path) -> None:
    """Put a site back that a killed build had put aside, and remove the drafts of builds that were killed."""
    for folder in out.parent.glob(f".{glob.escape(out.name)}{DRAFT}*"):
        with contextlib.suppress(OSError), _held(folder) as abandoned:
            if abandoned and folder.suffix == OLD and not out.exists():
                folder.rename(out)
            elif abandoned and time.time() - folder.stat().st_mtime > NEW_S:
                shutil.rmtree(folder, ignore_errors=True)


def _check_target(out: Path) -> None:
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise SiteError(f"{out} is not a folder; give another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        advice = "building would replace them; give an empty or new folder with --out"
        raise SiteError(f"{out} holds files that are not a Ridgeline site, and {advice}")


def _swap(draft: Path, out: Path) -> None:
    """Put `draft` where `out` is; if that fails, `out` is as before.  Where it can be, there is a site all the time."""
    if out.exists() and _exchanged(draft, out):
        return
    old = draft.with_name(f"{draft.name}{OLD}")
    if out.exists():
        os.rename(out, old)
    try:
        os.rename(draft, out)
    except OSError:
        if old.exists():
            os.rename(old, out)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _exchanged(one: Path, other: Path) -> bool:
    """Exchange two folders in one step, renameat2(2); False where the file system (NFS) or the C library cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    return bool(libc.renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE) == 0)


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
