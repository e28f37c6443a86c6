"""Which operators can differ between two trees: those that a changed file can reach.

An operator's code can come from any file in its part of a package (the folder or the module that declares it), and from
all that these files import, directly or indirectly.  An import whose name is computed at run time cannot be followed;
then every part counts whose name appears in a string that the code has reached.  So the answer may hold more than is
used, but never less, unless a program assembles the name of a module from fragments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from benchmarks.reach.imports import Imported, imported
from benchmarks.reach.names import KERNEL, Unreadable, names_in
from benchmarks.reach.tree import SourceTree, folder_of, module_name

OF_THE_HARNESS = ("kernels.spec", "kernels.symmetric_heap")
"""Modules of the tree under test that the measuring process imports for every operator (benchmarks.worker.requests)."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """same: operators that no changed file can reach.  differing: the others, with the changed files that reach them.

    unknown: why nothing can be said, so that every operator counts as differing; "" where it can.
    """

    same: tuple[str, ...] = ()
    differing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    unknown: str = ""


def compared(base: SourceTree, head: SourceTree) -> Reach:
    """What can differ between two trees."""
    if base.packages != head.packages:
        listed = f"{', '.join(base.packages)} in base, {', '.join(head.packages)} in head"
        return Reach(unknown=f"the two sides list other packages with kernels: {listed}")
    try:
        homes = [declared(tree) for tree in (base, head)]
    except (Unreadable, ValueError, SyntaxError):
        return Reach(unknown="the name of an operator cannot be read from the source without running it")
    names = dict.fromkeys([*homes[1], *homes[0]])
    changed = {name: _changed(name, (base, homes[0]), (head, homes[1])) for name in names}
    same = tuple(name for name, files in changed.items() if not files)
    return Reach(same, {name: files for name, files in changed.items() if files})


Homes = Mapping[str, tuple[str, ...]]
"""The parts of packages in which each operator is declared: folders, or modules without .py."""


def declared(tree: SourceTree) -> dict[str, tuple[str, ...]]:
    """Every operator, and where it is declared.  Raises Unreadable, or SyntaxError, where that is not certain."""
    sources = {path: file.text for path, file in tree.files.items() if path.endswith(".py") and tree.listed(path)}
    found: dict[str, dict[str, None]] = {}
    for path, text in sources.items():
        for name in names_in(text, sources.values()) if KERNEL in text else ():
            found.setdefault(name, {})[_part(tree, path)] = None
    return {name: tuple(parts) for name, parts in found.items()}


def _part(tree: SourceTree, path: str) -> str:
    """The part of the longest listed package that a file lies in: kernels/gemm; the package itself for its __init__."""
    folders = [folder for folder in map(folder_of, tree.packages) if path.startswith(f"{folder}/")]
    if not folders:
        return path.removesuffix(".py")
    package = max(folders, key=len)
    first = path[len(package) + 1 :].partition("/")[0].removesuffix(".py")
    return package if first == "__init__" else f"{package}/{first}"


def _changed(name: str, *sides: tuple[SourceTree, Homes]) -> tuple[str, ...]:
    """Files that the operator can reach on one side and that the other side lacks or has otherwise."""
    digests = [
        {path: tree.files[path].digest for path in reached(tree, homes[name])} if name in homes else {}
        for tree, homes in sides
    ]
    paths = sorted({*digests[0], *digests[1]})
    return tuple(path for path in paths if digests[0].get(path) != digests[1].get(path))


def reached(tree: SourceTree, parts: Iterable[str]) -> set[str]:
    """Every file that the code of some parts can come from."""
    return _Closure(tree).of(parts)


class _Closure:
    def __init__(self, tree: SourceTree) -> None:
        self._tree = tree
        self._modules = {module_name(path): path for path in tree.files if path.endswith(".py")}
        self._parts = self._all_parts()
        self._found: set[str] = set()

    def _all_parts(self) -> dict[str, list[str]]:
        """The files of every part of a listed package, by the last word of its name."""
        found: dict[str, list[str]] = {}
        for path in self._tree.files:
            if self._tree.listed(path):
                found.setdefault(_part(self._tree, path).rpartition("/")[2], []).append(path)
        return found

    def of(self, parts: Iterable[str]) -> set[str]:
        """The files of these parts, and all that they need."""
        for part in parts:
            self._add(path for path in self._tree.files if path.startswith(f"{part}/") or path == f"{part}.py")
            self._add_module(part.replace("/", "."))  # the packages that it lies in are imported with it
        for module in OF_THE_HARNESS:
            self._add_module(module)
        dynamic, words = self._ways()
        if dynamic:
            for word in words & self._parts.keys():
                self._add(self._parts[word])
            if self._ways()[1] - words:
                return self.of(parts)
        return self._found

    def _ways(self) -> tuple[bool, set[str]]:
        """Whether anything found so far imports what cannot be followed, and the words of all strings in it."""
        ways = [self._imports(path) for path in self._found if path.endswith(".py")]
        return any(one.dynamic for one in ways), {word for one in ways for word in one.strings}

    def _imports(self, path: str) -> Imported:
        return imported(self._tree.files[path].text, module_name(path), path.endswith("__init__.py"))

    def _add(self, paths: Iterable[str]) -> None:
        """Files, and what they import."""
        left = [path for path in paths if path not in self._found]
        self._found.update(left)
        for path in left:
            if path.endswith(".py"):
                for module in self._imports(path).modules:
                    self._add_module(module)

    def _add_module(self, module: str) -> None:
        """A module if there is one of this name, with the packages that it lies in and the data beside it."""
        names = module.split(".")
        for length in range(1, len(names) + 1):
            path = self._modules.get(".".join(names[:length]))
            if path and path not in self._found:
                self._add([path, *self._data_beside(path)])

    def _data_beside(self, path: str) -> list[str]:
        """Files of the same folder that are no Python."""
        folder = path.rpartition("/")[0]
        return [one for one in self._tree.files if one.rpartition("/")[0] == folder and not one.endswith(".py")]
