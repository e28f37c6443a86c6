"""Which of the files that differ an operator can depend on, and how likely; read from their imports, nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

OWN, USED, UNSEEN = 3.0, 1.0, 0.1
"""Weights: a file of the operator's own folder; one that it imports, directly or not; any other file of the packages
with kernels, which it might import by a name put together at run time.  Only their order counts."""

SOURCE = (".py", ".toml", ".json", ".yaml", ".cu", ".cuh", ".hip", ".cpp", ".cc", ".c", ".h", ".hpp", ".so", ".s")
"""Files that can make code faster or slower."""


def weights(
    operator: str, changed: Iterable[str], roots: Collection[Path], packages: Iterable[str]
) -> dict[str, float]:
    """By path, for the changed files that can matter to the operator on one of the sides.

    roots: the folders of both sides.  A file outside the packages counts only if the operator imports it.
    """
    folders = [package.replace(".", "/") for package in packages]
    found = {}
    own, used = zip(*(_reached(root, operator, folders) for root in roots), strict=True)
    for name in changed:
        if PurePosixPath(name).suffix in SOURCE:
            here = PurePosixPath(name).parent.as_posix()
            if any(_under(name, home) for home in set().union(*own)):
                found[name] = OWN
            elif name in set().union(*used) or (not name.endswith(".py") and _holds(here, set().union(*used))):
                found[name] = USED
            elif any(_under(name, folder) for folder in folders):
                found[name] = UNSEEN
    return found


def _reached(root: Path, operator: str, folders: Iterable[str]) -> tuple[set[str], set[str]]:
    """(homes, files): where the operator is declared, and every file that the files there import, directly or not."""
    homes = _homes(root, operator, folders)
    left = [path for home in homes for path in _modules(root, home)]
    files: set[str] = set()
    while left:
        name = left.pop()
        if name not in files:
            files.add(name)
            left += _imported(root, name)
    return homes, files


def _homes(root: Path, operator: str, folders: Iterable[str]) -> set[str]:
    """The modules and folders of the packages that are called as the operator is, or that say its name in quotes."""
    parts = {part for folder in folders for part in _parts(root, folder)}
    called = {part for part in parts if PurePosixPath(part).stem == operator}
    quoted = re.compile(rf"""["']{re.escape(operator)}["']""")
    return called or {p for p in parts if any(quoted.search(_text(root / name)) for name in _modules(root, p))}


def _parts(root: Path, folder: str) -> Iterator[str]:
    """What lies directly in a package; the package itself where it is one module."""
    if (root / f"{folder}.py").is_file():
        yield f"{folder}.py"
    for path in sorted((root / folder).iterdir()) if (root / folder).is_dir() else ():
        if path.suffix == ".py" or path.is_dir() and path.name != "__pycache__":
            yield path.relative_to(root).as_posix()


def _modules(root: Path, part: str) -> list[str]:
    where = root / part
    return [part] if where.is_file() else [path.relative_to(root).as_posix() for path in where.rglob("*.py")]


def _imported(root: Path, name: str) -> Iterator[str]:
    """The files below the root that a module's imports name."""
    try:
        tree = ast.parse(_text(root / name))
    except (SyntaxError, ValueError, RecursionError):
        return
    for dotted in {one for node in ast.walk(tree) for one in _named(node, name)}:
        parts = dotted.split(".")
        for length in range(1, len(parts) + 1):
            path = "/".join(parts[:length])
            yield from (file for file in (f"{path}.py", f"{path}/__init__.py") if (root / file).is_file())


def _named(node: ast.AST, name: str) -> Iterator[str]:
    """Dotted names that an import may mean; of `from a import b` both a and a.b."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        above = PurePosixPath(name).parts[: -node.level or None] if node.level else ()
        start = ".".join(filter(None, (*above, node.module or "")))
        yield from (f"{start}.{alias.name}".strip(".") for alias in node.names)


def _holds(folder: str, files: Iterable[str]) -> bool:
    return any(PurePosixPath(name).parent.as_posix() == folder for name in files)


def _under(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
