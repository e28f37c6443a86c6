"""The source files of one side, from a folder or from whatever else holds them, with a digest of each."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath

from kernels.project import Layout, layout

LOADED = (".py", ".so", ".pyd")
"""What a process can import: it counts though git ignores it, as what a build writes in place."""


class SourceTree:
    """The files of a checkout or of a commit by path from its root, and its layout.

    files: the digest of each as git has it, None where it is computed when it is asked for: a repository may hold data
    sets, and few files are reached.  read: the content of a file.
    """

    def __init__(self, files: Mapping[str, str | None], laid_out: Layout, read: Callable[[str], bytes]) -> None:
        self.files, self.layout, self._content = dict(files), laid_out, functools.cache(read)

    def digest(self, path: str) -> str:
        """Equal digests, equal content."""
        known = self.files[path] or hashlib.sha1(self._blob(path), usedforsecurity=False).hexdigest()
        self.files[path] = known
        return known

    def _blob(self, path: str) -> bytes:
        """What git makes the digest of a file of."""
        return b"blob %d\0" % len(self._content(path)) + self._content(path)

    def text(self, path: str) -> str:
        """The content of a Python file, "" of any other."""
        return self._content(path).decode(errors="replace") if path.endswith(".py") else ""

    @functools.cached_property
    def homes(self) -> tuple[str, ...]:
        """The folder of each listed package, or its module without .py, from the root."""
        return tuple(self._home(package.replace(".", "/")) for package in self.layout.packages)

    def _home(self, name: str) -> str:
        places = [f"{source}/{name}" if source else name for source in self.layout.sources]
        return next((place for place in places if any(is_of_part(path, place) for path in self.files)), name)

    def listed(self, path: str) -> bool:
        """Whether a file belongs to a listed package."""
        return any(is_of_part(path, home) for home in self.homes)


def is_of_part(path: str, part: str) -> bool:
    """Whether a file is a module, named without .py, or lies in the folder of that name."""
    return path.startswith(f"{part}/") or path == f"{part}.py"


def of_folder(root: Path) -> SourceTree:
    """The files of a checkout on this disk: those that git knows or does not ignore, all of them where git has no say,
    and what a process can import from it.  Raises kernels.project.ProjectError."""
    known = _known_to_git(root)
    paths = sorted(
        path for path, linked in _walk(root) if linked or known is None or path in known or path.endswith(LOADED)
    )
    submodules = {f"{path}/": digest for path, digest in (known or {}).items() if digest}
    return SourceTree({**dict.fromkeys(paths), **submodules}, layout(root), functools.partial(_content, root))


def _content(root: Path, path: str) -> bytes:
    try:
        return (root / path).read_bytes()
    except OSError:  # gone meanwhile, or not for us to read
        return b""


ENTRY = re.compile(r"(\d+) (?:[a-z]+ )?([0-9a-f]{40,64})(?: \d)?\t(.*)", re.DOTALL)
"""An entry of `git ls-tree -r -z` or `git ls-files --stage -z`: mode, digest, path."""

SUBMODULE = "160000"
"""git's mode of a submodule, whose digest is a commit.  Among the files its path ends with a slash."""


def _known_to_git(root: Path) -> dict[str, str] | None:
    """The files of the checkout whose root a folder is, and the commit of each submodule; None without git, or for a
    folder that is no checkout."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--stage", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout if (root / ".git").exists() else None
    except (OSError, subprocess.CalledProcessError):
        listed = None
    if listed is None:
        return None
    known = {}
    for line in filter(None, os.fsdecode(listed).split("\0")):
        entry = ENTRY.fullmatch(line)
        mode, digest, path = entry.groups() if entry else ("", "", line)
        known[path] = digest if mode == SUBMODULE else ""
    return known


def _walk(root: Path) -> Iterator[tuple[str, bool]]:
    """Every regular file below a folder, without hidden folders and environments, and whether a linked folder has it.

    A pipe or a socket is not a source, and reading one may never end.
    """
    entered: set[str] = set()
    for folder, below, names in os.walk(root, followlinks=True):
        real = os.path.realpath(folder)
        if real in entered or "pyvenv.cfg" in names or "conda-meta" in below:
            below.clear()
            continue
        entered.add(real)
        below[:] = [name for name in below if not is_hidden(name)]
        place = PurePosixPath(os.path.relpath(folder, root))
        linked = real != os.path.normpath(os.path.join(os.path.realpath(root), place))
        for name in names:
            if not is_hidden(name) and os.path.isfile(os.path.join(folder, name)):
                yield str(place / name), linked


def is_hidden(name: str) -> bool:
    """Whether nothing imports from a folder of this name by accident: hidden, caches, environments."""
    return name.startswith(".") or name in ("__pycache__", "node_modules", "venv", "site-packages")


def module_name(path: str) -> str:
    """The dotted name of a Python file from the root: kernels/gemm/__init__.py is kernels.gemm."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
