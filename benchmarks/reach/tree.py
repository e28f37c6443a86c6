"""The source files of one side, from a folder or from whatever else holds them, with a digest of each."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

from kernels.project import Layout, layout

LOADED = (".py", ".so", ".pyd")
"""What a process can import: it counts though git ignores it, as what a build writes in place."""


class SourceFile:
    """A file of a commit.  digest: equal digests, equal content; text: of a Python file, "" of any other."""

    def __init__(self, digest: str, text: str = "") -> None:
        self._digest, self._text = digest, text

    @property
    def digest(self) -> str:
        """As git has it."""
        return self._digest

    @property
    def text(self) -> str:
        """Its content, if it is Python."""
        return self._text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SourceFile) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


class FileOnDisk(SourceFile):
    """A file of a folder, read when it is asked for: a repository may hold data sets, and few files are reached."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @functools.cached_property
    def _content(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError:  # gone meanwhile, or not for us to read
            return b""

    @functools.cached_property
    def _name(self) -> str:
        return blob(self._content)

    @property
    def digest(self) -> str:
        """As git would have it."""
        return self._name

    @property
    def text(self) -> str:
        """See SourceFile."""
        return self._content.decode(errors="replace") if self._path.suffix == ".py" else ""


class SourceTree:
    """The files of a checkout by path from its root, and its layout."""

    def __init__(self, files: Mapping[str, SourceFile], laid_out: Layout) -> None:
        self.files, self.layout = files, laid_out

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages with kernels that it lists."""
        return self.layout.packages

    @functools.cached_property
    def homes(self) -> tuple[str, ...]:
        """The folder of each listed package, or its module without .py, from the root."""
        return tuple(self._home(package.replace(".", "/")) for package in self.packages)

    def _home(self, name: str) -> str:
        places = [f"{source}/{name}" if source else name for source in self.layout.sources]
        known = (place for place in places if f"{place}.py" in self.files or place in self._folders)
        return next(known, name)

    @functools.cached_property
    def _folders(self) -> frozenset[str]:
        return frozenset(str(folder) for path in self.files for folder in PurePosixPath(path).parents)

    def listed(self, path: str) -> bool:
        """Whether a file belongs to a listed package."""
        return any(path.startswith(f"{home}/") or path == f"{home}.py" for home in self.homes)


def blob(content: bytes) -> str:
    """The digest that git gives a file, so that files of a folder and of a commit compare."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def of_folder(root: Path) -> SourceTree:
    """The files of a checkout on this disk: those that git knows or does not ignore, all of them where git has no say,
    and what a process can import from it.  Raises kernels.project.ProjectError."""
    known = _known_to_git(root)
    found = _walk(root)
    paths = (path for path, linked in found if linked or known is None or path in known or path.endswith(LOADED))
    files: dict[str, SourceFile] = {path: FileOnDisk(root / path) for path in sorted(paths)}
    return SourceTree(files | {f"{path}/": SourceFile(at) for path, at in (known or {}).items() if at}, layout(root))


ENTRY = re.compile(r"(\d+) (?:[a-z]+ )?([0-9a-f]{40,64})(?: \d)?\t(.*)", re.DOTALL)
"""An entry of `git ls-tree -r -z` or `git ls-files --stage -z`: mode, digest, path."""

SUBMODULE = "160000"
"""git's mode of a submodule, whose digest is a commit.  Among the files its path ends with a slash."""


def _known_to_git(root: Path) -> dict[str, str] | None:
    """The files of the checkout whose root a folder is, and the commit of each submodule; None without git, or for a
    folder that is no checkout."""
    if not (root / ".git").exists():
        return None
    listed: list[str] = []
    for what in (("--stage",), ("--others", "--exclude-standard")):
        try:
            found = subprocess.run(["git", "-C", str(root), "ls-files", "-z", *what], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        listed += os.fsdecode(found.stdout).split("\0")
    known = {}
    for one in filter(None, listed):
        entry = ENTRY.fullmatch(one)
        mode, digest, path = entry.groups() if entry else ("", "", one)
        known[path] = digest if mode == SUBMODULE else ""
    return known


def _walk(root: Path) -> Iterator[tuple[str, bool]]:
    """Every regular file below a folder, without hidden folders and environments, and whether a linked folder has it.

    A pipe or a socket is not a source, and reading one may never end.
    """
    entered: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True):
        place = os.path.relpath(folder, root)
        real = os.path.realpath(folder)
        if real in entered or "pyvenv.cfg" in names or "conda-meta" in below:
            below.clear()
            continue
        entered.add(real)
        below[:] = [name for name in below if not is_hidden(name)]
        linked = real != os.path.join(os.path.realpath(root), place) and place != "."
        for name in names:
            if not is_hidden(name) and os.path.isfile(os.path.join(folder, name)):
                yield name if place == "." else f"{place}/{name}", linked


def is_hidden(name: str) -> bool:
    """Whether nothing imports from a folder of this name by accident: hidden, caches, environments."""
    return name.startswith(".") or name in ("__pycache__", "node_modules", "venv", "site-packages")


def module_name(path: str) -> str:
    """The dotted name of a Python file from the root: kernels/gemm/__init__.py is kernels.gemm."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
