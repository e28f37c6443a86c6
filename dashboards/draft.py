"""A site on its way: files as they are made, what of the site that stands is still good, and putting it in place.

A part is a group of files that is made of one input.  A part whose input has the digest that it had when the standing
site was made is taken over from there, if its files are whole; so a record touches only the files that show it.

Standard library alone: whether the whole site stands already is asked before anything else is imported.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import fcntl
import functools
import glob
import hashlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from kernels import project

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
class Draft:
    """Files below `folder`, which are to take the place of the site `standing`.

    whole: nobody has touched the files of that site since it was built, so that they need not be read to know.
    digests: by path.  parts: by name, {"made_of": digest of its input, "files": {path: digest}}.
    """

    folder: Path
    standing: Path
    whole: bool = False
    digests: dict[str, str] = dataclasses.field(default_factory=dict)
    parts: dict[str, Any] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def before(self) -> dict[str, Any]:
        """The parts of the site that stands; none if there is no site or it says nothing that can be used."""
        with contextlib.suppress(OSError, ValueError):
            return dict(json.loads((self.standing / PARTS).read_text()))
        return {}

    def add(self, path: str, content: bytes) -> str:
        """Write a file; its digest."""
        target = self.folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        self.digests[path] = digest(content)
        return self.digests[path]

    def part(self, name: str, made_of: str, make: Callable[[], Iterable[File]]) -> None:
        """The files of a part: those that stand, if they were made of the same input, else made now."""
        files = self._taken(self.before.get(name), made_of)
        if files is None:
            files = {path: self.add(path, content) for path, content in make()}
        self.parts[name] = {"made_of": made_of, "files": files}

    def finish(self) -> None:
        """Write down of what the parts were made."""
        self.add(PARTS, json.dumps(self.parts, sort_keys=True, separators=(",", ":")).encode("ascii"))

    def _taken(self, part: Any, made_of: str) -> dict[str, str] | None:
        """The files of a part that stands as it would be made now, linked (or copied) into the draft."""
        with contextlib.suppress(OSError, TypeError, KeyError, AttributeError):
            files: dict[str, str] = part["files"]
            if part["made_of"] != made_of or not (self.whole or all(map(self._stands, files.items()))):
                return None
            for folder in {os.path.dirname(path) for path in files}:
                (self.folder / folder).mkdir(parents=True, exist_ok=True)
            for path in files:
                _link(f"{self.standing}/{path}", f"{self.folder}/{path}")
            self.digests.update(files)
            return files
        return None

    def _stands(self, file: tuple[str, str]) -> bool:
        path, wanted = file
        return digest((self.standing / path).read_bytes()) == wanted


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

    whole: see Draft.  Raises SiteError if `out` holds anything but a site.
    """
    _check_target(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _take_back(out)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}{DRAFT}", dir=out.parent))
    with _held(folder):
        try:
            yield Draft(folder, out, whole)
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


# Does the site that would be built stand already?
#
# After a build, a note beside the records' cache says of which files the site was made and which files it has, by name,
# size and time of change.  The note is safe to delete; a wrong guess can only cost time, never show an old site:
# whatever could change a page is among the inputs.


HOUSE = Path(__file__).parent.parent
CODE = ("dashboards", "ci", "kernels", "benchmarks")
"""Packages whose files a page may depend on: code, templates, tables."""

BESIDE = ("results_isa", "results_sustained", ".ridgeline/checks.jsonl")
"""What a site shows besides the records, in the folder around them."""


def inputs(results: Path, repo_url: str | None = None, reports: Sequence[Path] = ()) -> str:
    """Digest of all that a site is made of: records, machine code, decisions, git's commits, reports, our code."""
    around = results.resolve().parent
    settings = project.around(around)
    trees = [
        results,
        *(around / name for name in BESIDE),
        settings.events,
        *([settings.policy] if settings.policy else []),
        *reports,
        *(HOUSE / name for name in CODE),
    ]
    said = [sys.version, repr(repo_url), *map(_stats, trees), *map(_stats, _refs(around))]
    return hashlib.sha256("\0".join(said).encode(errors="surrogateescape")).hexdigest()


def stands(out: Path, results: Path, made_of: str) -> bool:
    """Whether the site at `out` was made of these inputs and is as it was then."""
    return _said(out, results).get("made_of") == made_of and untouched(out, results)


def untouched(out: Path, results: Path) -> bool:
    """Whether every file of the site at `out` is as it was when it was built."""
    return _said(out, results).get("site") == _stats(out)


def _said(out: Path, results: Path) -> dict[str, str]:
    with contextlib.suppress(OSError, ValueError):
        said = json.loads(_note(out, results).read_text())
        return said if isinstance(said, dict) else {}
    return {}


def remember(out: Path, results: Path, made_of: str) -> None:
    """Note of what the site at `out` was made; where it cannot be written, the next build takes its time."""
    with contextlib.suppress(OSError):
        note = _note(out, results)
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"made_of": made_of, "site": _stats(out)}))
        os.replace(draft, note)


def _note(out: Path, results: Path) -> Path:
    """Not *.json: asv takes every such file below its results for one of its own."""
    name = hashlib.sha256(os.fsencode(out.absolute())).hexdigest()[:16]
    return results / ".cache" / f"site-{name}.note"


def _stats(root: Path) -> str:
    """Digest of name, size and time of change of every file in a tree; caches left out."""
    whole = hashlib.sha256()
    for path, found in sorted(_files(root)):
        whole.update(f"{path}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    if root.is_file():
        yield str(root), root.stat()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in (".cache", "__pycache__", "node_modules")]
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                path = os.path.join(folder, name)
                yield path, os.stat(path)


def _refs(around: Path) -> list[Path]:
    """What changes in git with the commit that is checked out, any branch and a fetch: they bring authors and order."""
    own = next((folder / ".git" for folder in (around, *around.parents) if (folder / ".git").exists()), None)
    if own is None:
        return []
    shared = own
    if own.is_file():  # a worktree: "gitdir: PATH", and there the way to what all worktrees share
        own = own.parent / own.read_text().removeprefix("gitdir:").strip()
        common = own / "commondir"
        shared = own / common.read_text().strip() if common.exists() else own
    return [own / "HEAD", shared / "refs", shared / "packed-refs", own / "FETCH_HEAD", shared / "FETCH_HEAD"]
