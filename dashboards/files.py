"""The files of a site: safe names, JSON that is safe inside a script, and putting a folder in place whole.

Standard library and orjson alone: whether the site stands already is asked before anything else is imported.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from kernels import project

MARKER = ".ridgeline-site"
"""File that says a folder was built here and may be replaced, of what it was made, and what its files are."""

DRAFT, OLD = ".ridgeline-draft-", ".old"
"""In the names of folders beside a site: of a build's draft, and of the site that it is about to replace."""

DIGITS = 6
"""Significant digits of a number of a page: paired timing repeats to 0.1 %."""

ESCAPED = {character: f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"}
"""What must not stand in a script as it is; these occur in strings only."""

_REPLACED = {0: "\ufffd"} | dict.fromkeys(range(0xD800, 0xE000), "\ufffd")


class SiteError(Exception):
    """The site cannot be built; the text says what to do."""


# ---- names and values -----------------------------------------------------------------------------------------------


def slug(name: str) -> str:
    """A file name for `name`: itself if it is plain lower-case, else cleaned, with a digest that keeps it unique."""
    if re.fullmatch(r"[a-z0-9][a-z0-9_.-]{0,79}", name):
        return name
    clean = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:60]
    return f"{clean or 'x'}-{hashlib.sha256(name.encode(errors='surrogatepass')).hexdigest()[:8]}"


def case_address(kernel: str, machine: str, case: str) -> str:
    """Of a case on the page of its operator, from the root of the site."""
    return f"kernels/{slug(kernel)}.html#machine={quote(machine)}&case={quote(case)}"


def natural(name: str) -> list[tuple[int, int, str]]:
    """Key for the order people expect: m64 before m512."""
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in re.split(r"(\d+)", name) if part]


def script_json(value: Any) -> bytes:
    """JSON in UTF-8 without <, > and &; numbers in six significant digits, NaN and infinities as null.

    Lone surrogates and NUL become U+FFFD: UTF-8 and HTML cannot carry them.
    """
    import orjson

    text = orjson.dumps(_plain(value), option=orjson.OPT_SERIALIZE_NUMPY)
    for character, escape in ESCAPED.items():
        text = text.replace(character.encode(), escape)
    return text


def rounded(value: float) -> float | None:
    """In the digits of a page; None for what is not finite."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() and "\0" not in value else value.translate(_REPLACED)
    if kind is float:
        return rounded(value)
    if kind is list or kind is tuple:
        return [_plain(item) for item in value]
    if kind is dict:
        return {_plain(key): _plain(item) for key, item in value.items()}
    if kind is int or kind is bool or value is None:
        return value
    if isinstance(value, str):
        return _plain(str(value))
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.item() if getattr(value, "shape", None) == () else value  # an array of NumPy's, rounded by its maker


def receive(path: str, value: Any) -> bytes:
    """A data file: a script that hands a value to the page."""
    return b"Ridgeline.receive(" + script_json(path) + b"," + script_json(value) + b");\n"


# ---- putting a folder in place --------------------------------------------------------------------------------------


def write(out: Path, files: Mapping[str, bytes], made_of: str) -> None:
    """Put a site of these files, by path, where `out` is: wholly, or `out` is as before.

    Raises SiteError if `out` holds anything but a site; OSError if it cannot be written.
    """
    check_target(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    _clear(out)
    draft = Path(tempfile.mkdtemp(prefix=f".{out.name}{DRAFT}{os.getpid()}-", dir=out.parent))
    try:
        for path, content in files.items():
            (draft / path).parent.mkdir(parents=True, exist_ok=True)
            (draft / path).write_bytes(content)
        (draft / MARKER).write_text(json.dumps({"made_of": made_of, "files": tree_digest(draft)}))
        draft.chmod(0o777 & ~_umask())  # mkdtemp makes a folder that a web server cannot read
        _swap(draft, out)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def check_target(out: Path) -> None:
    """Raises SiteError where a build would replace something that is no site."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise SiteError(f"{out} is not a folder; give another --out")
    if out.is_dir() and any(out.iterdir()) and not (out / MARKER).exists():
        advice = "building would replace them; give an empty or new folder with --out"
        raise SiteError(f"{out} holds files that are not a Ridgeline site, and {advice}")


def _clear(out: Path) -> None:
    """Put a site back that a killed build had put aside, and remove the drafts of builds that no longer run."""
    for folder in sorted(out.parent.glob(f".{out.name}{DRAFT}*")):
        number = folder.name.rpartition(DRAFT)[2].partition("-")[0]
        if number.isdecimal() and _runs(int(number)):
            continue
        with contextlib.suppress(OSError):
            if folder.suffix == OLD and not out.exists():
                folder.rename(out)
        shutil.rmtree(folder, ignore_errors=True)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _swap(draft: Path, out: Path) -> None:
    """Put `draft` where `out` is; if that fails, `out` is as before."""
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


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


# ---- does the site that would be built stand already? ---------------------------------------------------------------


HOUSE = Path(__file__).parent.parent
CODE = ("dashboards", "ci", "kernels", "benchmarks")
"""Packages whose files a page may depend on: code, templates, tables."""

BESIDE = ("results_isa", "results_sustained", ".ridgeline/checks.jsonl")
"""What a site shows besides the records, in the folder around them."""


def inputs(results: Path, repo_url: str | None = None) -> str:
    """Digest of all that a site is made of: records, machine code, decisions, git's commits, our code."""
    around = results.resolve().parent
    settings = project.around(around)
    named = [path for path in (settings.policy, settings.file) if path]
    trees = [results, *(around / name for name in BESIDE), settings.events, *named]
    trees += [HOUSE / name for name in CODE]
    facts = [sys.version, repr(repo_url), *map(tree_digest, trees), *map(tree_digest, _refs(around))]
    return hashlib.sha256("\0".join(facts).encode(errors="surrogateescape")).hexdigest()


def stands(out: Path, made_of: str) -> bool:
    """Whether the site at `out` was made of these inputs and its files are as they were then."""
    with contextlib.suppress(OSError, ValueError):
        return bool(json.loads((out / MARKER).read_text()) == {"made_of": made_of, "files": tree_digest(out)})
    return False


def tree_digest(root: Path) -> str:
    """Digest of name, size and time of change of every file in a tree; caches and the marker left out."""
    whole = hashlib.sha256()
    for path, found in sorted(_files(root)):
        name = path.removeprefix(str(root))
        whole.update(f"{name}\0{found.st_size}\0{found.st_mtime_ns}\0".encode(errors="surrogateescape"))
    return whole.hexdigest()


def _files(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    if root.is_file():
        yield str(root), root.stat()
    for folder, below, names in os.walk(root):
        below[:] = [name for name in below if name not in (".cache", "__pycache__", "node_modules")]
        for name in names:
            if name != MARKER:
                with contextlib.suppress(FileNotFoundError):
                    path = os.path.join(folder, name)
                    yield path, os.stat(path)


def _refs(around: Path) -> Sequence[Path]:
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
