"""The source files of one side, from a folder or from whatever else holds them, with a digest of each."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath


@dataclasses.dataclass(frozen=True)
class SourceFile:
    """A file.  digest: equal digests, equal content; text: of a Python file, "" of any other."""

    digest: str
    text: str = ""


@dataclasses.dataclass(frozen=True)
class SourceTree:
    """The files of a checkout by path from its root, and the packages with kernels that it lists."""

    files: Mapping[str, SourceFile]
    packages: tuple[str, ...]

    def listed(self, path: str) -> bool:
        """Whether a file belongs to a listed package."""
        return any(path.startswith(f"{folder}/") or path == f"{folder}.py" for folder in map(folder_of, self.packages))


def folder_of(package: str) -> str:
    """The folder of a dotted name, from the root."""
    return package.replace(".", "/")


def blob(content: bytes) -> str:
    """The digest that git gives a file, so that files of a folder and of a commit compare."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def of_folder(root: Path, packages: Iterable[str]) -> SourceTree:
    """The listed packages of a checkout on this disk, and the Python files beside them: a kernel can import those."""
    packages = tuple(packages)
    tops = {folder_of(package).partition("/")[0] for package in packages}
    files: dict[str, SourceFile] = {}
    for path in sorted(_python_files(root, tops) | {one for top in tops for one in _all_files(root / top)}):
        content = path.read_bytes()
        text = content.decode(errors="replace") if path.suffix == ".py" else ""
        files[path.relative_to(root).as_posix()] = SourceFile(blob(content), text)
    return SourceTree(files, packages)


def _all_files(folder: Path) -> set[Path]:
    module = folder.with_name(f"{folder.name}.py")
    found = folder.rglob("*") if folder.is_dir() else [module]
    return {path for path in found if path.is_file() and "__pycache__" not in path.parts}


def _python_files(root: Path, without: set[str]) -> set[Path]:
    """Python files of the root and of its packages, hidden folders and environments left out."""
    found = set(root.glob("*.py"))
    for folder in root.iterdir():
        if folder.is_dir() and not is_hidden(folder.name) and folder.name not in without:
            found |= {path for path in folder.rglob("*.py") if not any(map(is_hidden, path.relative_to(root).parts))}
    return {path for path in found if path.is_file()}


def is_hidden(name: str) -> bool:
    """Whether nothing imports from a folder of this name by accident: hidden, caches, environments."""
    return name.startswith(".") or name in ("__pycache__", "node_modules", "venv", "site-packages")


def module_name(path: str) -> str:
    """The dotted name of a Python file: kernels/gemm/__init__.py is kernels.gemm."""
    parts = PurePosixPath(path).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
