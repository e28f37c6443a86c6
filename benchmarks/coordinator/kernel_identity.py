"""The files that a kernel's code can come from, and one digest of them: equal digests, equal code.

Found by words alone, without importing anything.  A package of kernels has parts: its modules and sub-packages.  A part
can only use another one by its name, in an import or as a string passed to importlib; so a part whose text contains the
name of another as a word is assumed to need it, in a comment too.  That is more than it needs, never less, unless a
program assembles a name from pieces.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

Part = tuple[str, str]
"""(package, name); the name of what lies in the package's own __init__.py is ""."""

Files = dict[str, bytes]
"""Contents by path from the root."""


def kernel_digests(root: Path, packages: Sequence[str], modules: Mapping[str, str]) -> dict[str, str]:
    """16 hex digits for each kernel over the files it can depend on.  modules: where each kernel is declared."""
    parts = _parts(root, packages)
    hashes = {part: digest_of(files.items()) for part, files in parts.items()}
    needs = _needs(parts)
    return {kernel: _joint(hashes, _reached(_home(module, packages), needs)) for kernel, module in modules.items()}


def files_of(folder: Path) -> list[Path]:
    """Every file in a folder or below, without compiled Python; a package that is one module is that file."""
    module = folder.with_name(f"{folder.name}.py")
    if module.is_file() and not folder.is_dir():
        return [module]
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def read(root: Path, paths: Iterable[Path]) -> Iterator[tuple[str, bytes]]:
    """Each file's path from the root, and its contents."""
    return ((path.relative_to(root).as_posix(), path.read_bytes()) for path in paths)


def digest_of(files: Iterable[tuple[str, bytes]]) -> str:
    """64 hex digits over names and contents, in the order given."""
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0".encode())
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()


def _parts(root: Path, packages: Sequence[str]) -> dict[Part, Files]:
    """The files of every part; files beside a package's modules that are not modules belong to its __init__.py."""
    found: dict[Part, Files] = {}
    for package in packages:
        found[package, ""] = {}
        folder = root.joinpath(*package.split("."))
        if not folder.is_dir():
            found[package, ""] = dict(read(root, files_of(folder)))
        for path in sorted(folder.iterdir()) if folder.is_dir() else []:
            if path.name != "__pycache__":
                own = path.suffix == ".py" and path.stem != "__init__"
                name = path.name if path.is_dir() else path.stem if own else ""
                files = files_of(path) if path.is_dir() else [path]
                found.setdefault((package, name), {}).update(read(root, files))
    return found


def _needs(parts: Mapping[Part, Files]) -> dict[Part, set[Part]]:
    """What each part's text names, and every package's __init__.py, which comes with any of its parts."""
    words = _words(parts)
    return {part: {other for other in parts if other[1] in words[part] or other == (part[0], "")} for part in parts}


def _words(parts: Mapping[Part, Files]) -> dict[Part, set[str]]:
    """Every word of each part's text."""
    return {
        part: set().union(*(re.findall(r"\w+", content.decode(errors="replace")) for content in files.values()))
        for part, files in parts.items()
    }


def _reached(start: Part, needs: Mapping[Part, Iterable[Part]]) -> set[Part]:
    """The part and all that it needs, directly or not; everything if the part is not known."""
    if start not in needs:
        return set(needs)
    reached, left = {start}, [start]
    while left:
        new = set(needs[left.pop()]) - reached
        reached |= new
        left += new
    return reached


def _home(module: str, packages: Sequence[str]) -> Part:
    """The part that a module lies in."""
    package = max((p for p in packages if f"{module}.".startswith(f"{p}.")), key=len, default="")
    return package, module[len(package) :].strip(".").partition(".")[0]


def _joint(hashes: Mapping[Part, str], parts: Iterable[Part]) -> str:
    text = "".join(f"{package} {name} {hashes[package, name]}\n" for package, name in sorted(parts))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
