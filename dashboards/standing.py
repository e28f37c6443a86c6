"""Does the site that would be built stand already?  Asked with the standard library alone, before the rest is imported.

After a build, a note beside the records' cache says of which files the site was made and which files it has, by name,
size and time of change.  The note is safe to delete; a wrong guess can only cost time, never show an old site: whatever
could change a page is among the inputs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernels import project

HERE = Path(__file__).parent.parent
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
        *(HERE / name for name in CODE),
    ]
    said = [sys.version, repr(repo_url), *map(_stats, trees), *map(_stats, _refs(around))]
    return hashlib.sha256("\0".join(said).encode(errors="surrogateescape")).hexdigest()


def stands(out: Path, results: Path, made_of: str) -> bool:
    """Whether the site at `out` was made of these inputs and is as it was then."""
    said = _said(out, results)
    return said.get("made_of") == made_of and untouched(out, results)


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
