"""The code of an operator: every file of a tree that its declaration reaches.  Equal files, equal code.

An operator's code can come from any file in its part of a package (the folder or the module that declares it); from all
modules that these import, directly or indirectly, in whatever folder the repository keeps them; from files that are no
Python in the folders of such modules, and those whose names, endings or folders stand in their strings; and from what a
compiler makes of C, C++, CUDA and HIP.  Where an import cannot be followed, every file of the tree counts.  So it is
more than what runs, never less, unless a program assembles the name of a data file from pieces that say nothing of it;
what did run is looked at by who measures (benchmarks.worker.ran).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from benchmarks.reach.sources import KERNEL, Imported, Unreadable, imported, makers, names_in, syntax
from benchmarks.reach.tree import SourceFile, SourceTree, module_name
from kernels.project import current_kernel

OF_THE_HARNESS = ("kernels.spec", "kernels.symmetric_heap")
"""Modules of the tree under test that the measuring process imports for every operator (benchmarks.worker.requests)."""

COMPILED = (
    *(".c", ".cc", ".cpp", ".cxx", ".cu", ".cuh", ".h", ".hh", ".hip", ".hpp", ".pxd", ".pyx"),
    *(".so", ".pyd", ".a", ".o", ".co", ".cubin", ".fatbin", ".hsaco", ".ptx"),
)
"""Sources of machine code, and machine code: which operator ends up with it, no import says."""

FILE_NAME = re.compile(r"[\w.-]+")

NO_CODE = (".md", ".rst")
"""What no kernel reads."""

DIGITS = 16
"""Hexadecimal ones of a digest."""


@dataclasses.dataclass(frozen=True)
class Reach:
    """same: operators that no changed file can reach.  differing: the others, with the changed files that reach them.

    unknown: why nothing can be said, so that every operator counts as differing; "" where it can.
    new, gone: those that head alone, or base alone, declares.
    """

    same: tuple[str, ...] = ()
    differing: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    unknown: str = ""
    new: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether no operator can differ."""
        return not self.differing and not self.unknown


def compared(base: SourceTree, head: SourceTree) -> Reach:
    """What can differ between two trees."""
    if base.packages != head.packages:
        listed = f"{', '.join(base.packages)} in base, {', '.join(head.packages)} in head"
        return Reach(unknown=f"the two sides list other packages with kernels: {listed}")
    if base.layout.sources != head.layout.sources:
        return Reach(unknown="the two sides import packages from other folders")
    try:
        homes = [_under_names_of(head, declared(base)), declared(head)]
    except Unreadable as error:
        return Reach(unknown=str(error))
    names = dict.fromkeys([*homes[1], *homes[0]])
    if not names:
        return Reach(unknown="no operator can be read from the source without running it")
    changed = {name: _changed(name, (base, homes[0]), (head, homes[1])) for name in names}
    same = tuple(name for name, files in changed.items() if not files)
    of_base, of_head = (frozenset(one) for one in homes)
    differing = {name: files for name, files in changed.items() if files}
    return Reach(same, differing, new=of_head - of_base, gone=of_base - of_head)


def _under_names_of(head: SourceTree, homes: Homes) -> Homes:
    """Base's operators under the names that head's settings give them."""
    renamed = head.layout.renamed
    found: dict[str, dict[str, None]] = {}
    for name, parts in homes.items():
        found.setdefault(current_kernel(name, renamed), {}).update(dict.fromkeys(parts))
    return {name: tuple(parts) for name, parts in found.items()}


Homes = Mapping[str, tuple[str, ...]]
"""The parts of packages in which each operator is declared: folders, or modules without .py."""


def declared(tree: SourceTree) -> dict[str, tuple[str, ...]]:
    """Every operator, and where it is declared.  Raises Unreadable where that is not certain."""
    sources = {path: file.text for path, file in tree.files.items() if path.endswith(".py") and tree.listed(path)}
    found: dict[str, dict[str, None]] = {}
    for path, text in sources.items():
        for name in names_in(text) if KERNEL in text else ():
            found.setdefault(name, {})[part_of(tree, path)] = None
    if _made_elsewhere(tree, [(path, maker) for path, text in sources.items() for maker in makers(text)]):
        raise Unreadable
    return {name: tuple(parts) for name, parts in found.items()}


def declared_by(tree: SourceTree, module: str) -> list[str] | None:
    """The operators in the part of a package that a module stands for; None where the source does not say it."""
    part = part_of_module(tree, module)
    if not any(path == f"{part}.py" or path.startswith(f"{part}/") for path in tree.files):
        return None
    try:
        homes = declared(tree)
    except Unreadable:
        return None
    return [name for name, parts in homes.items() if any(f"{one}/".startswith(f"{part}/") for one in parts)]


def _made_elsewhere(tree: SourceTree, called: Iterable[tuple[str, str]]) -> bool:
    """Whether a function that a listed module calls as it is loaded may make operators: one of another project, or one
    that reaches the class from outside of the listed packages.  called: path of the module, name (see makers)."""
    files: set[str] = set()
    for path, maker in called:
        bare = maker.lstrip(".")
        above = module_name(path).split(".")
        up = len(maker) - len(bare) - path.endswith("__init__.py")
        names = ".".join([*above[: len(above) - up], bare] if maker != bare else [bare]).split(".")
        places = (files_of_module(tree, ".".join(names[:length])) for length in range(len(names), 0, -1))
        found = next(filter(None, places), [])
        if not found:
            return True
        files.update(found)
    parts = tuple(sorted(one.removesuffix(".py").removesuffix("/__init__") for one in files))
    reachable = (_Closure(tree).of(parts) or whole(tree)) if parts else ()
    outside = (one for one in reachable if one.endswith(".py") and not tree.listed(one))
    return any(KERNEL in tree.files[one].text and "spec" in tree.files[one].text for one in outside)


def part_of(tree: SourceTree, path: str) -> str:
    """The part of the longest listed package that a file lies in: kernels/gemm; the package itself for its __init__."""
    homes = [home for home in tree.homes if path.startswith(f"{home}/")]
    if not homes:
        return path.removesuffix(".py")
    package = max(homes, key=len)
    first = path[len(package) + 1 :].partition("/")[0].removesuffix(".py")
    return package if first == "__init__" else f"{package}/{first}"


def part_of_module(tree: SourceTree, module: str) -> str:
    """The part that a module of a listed package lies in."""
    packages = zip(tree.packages, tree.homes, strict=True)
    fits = [(package, home) for package, home in packages if f"{module}.".startswith(f"{package}.")]
    package, home = max(fits, key=lambda one: len(one[0]), default=("", ""))
    first = module.removeprefix(package).strip(".").partition(".")[0]
    return "/".join(filter(None, (home, first)))


def _changed(name: str, *sides: tuple[SourceTree, Homes]) -> tuple[str, ...]:
    """Files that the operator can reach on one side and that the other side lacks or has otherwise; comments and
    formatting of Python files do not count."""
    digests = [
        {path: tree.files[path].digest for path in reached(tree, homes[name])} if name in homes else {}
        for tree, homes in sides
    ]
    paths = sorted({*digests[0], *digests[1]})
    differing = [path for path in paths if digests[0].get(path) != digests[1].get(path)]
    trees = [tree for tree, _ in sides]
    return tuple(path for path in differing if not _is_same_code(*(tree.files.get(path) for tree in trees)))


def _is_same_code(base: SourceFile | None, head: SourceFile | None) -> bool:
    """Whether both are Python that is executed alike."""
    if base is None or head is None or not (base.text and head.text):
        return False
    code = syntax(base.text)
    return code is not None and code == syntax(head.text)


def digest(tree: SourceTree, paths: Iterable[str]) -> str:
    """Of files of a tree: their names and their contents."""
    files = sorted(set(paths))
    told = "".join(f"{path}\0{tree.files[path].digest}\n" for path in files)
    return hashlib.sha256(told.encode()).hexdigest()[:DIGITS]


def environment(tree: SourceTree, paths: Iterable[str]) -> dict[str, str]:
    """The variables that are set and whose names stand in some files: what the files do may hang on them."""
    words = {word for path in paths if path.endswith(".py") for word in _imports(tree, path).strings}
    return {name: os.environ[name] for name in sorted(words & os.environ.keys())}


def whole(tree: SourceTree) -> set[str]:
    """Every file that can be code."""
    aside = tuple(f"{place}/" for place in tree.layout.aside)
    return {path for path in tree.files if not f"{path}/".startswith(aside) and not path.endswith(NO_CODE)}


def reached_by_all(tree: SourceTree, names: Iterable[str] = ()) -> set[str]:
    """Every file that the code of some operators can come from, of none of all; every file where it is not certain
    which operators there are."""
    try:
        homes = declared(tree)
    except Unreadable:
        homes = {}
    wanted = tuple(names) or tuple(homes)
    if not homes or not homes.keys() >= set(wanted):
        return whole(tree)
    return reached(tree, dict.fromkeys(part for name in wanted for part in homes[name]))


def reached(tree: SourceTree, parts: Iterable[str]) -> set[str]:
    """Every file that the code of some parts can come from."""
    closure = _Closure(tree)
    return closure.of(tuple(parts)) or whole(tree)


def _imports(tree: SourceTree, path: str) -> Imported:
    return imported(tree.files[path].text, module_name(path), path.endswith("__init__.py"))


class _Index:
    """The files of a tree by what can be said of them.

    modules: paths by dotted name, from the folders that packages are imported from.  elsewhere: the same from any other
    folder, with whether that folder is itself a package.
    """

    def __init__(self, tree: SourceTree) -> None:
        self.modules: dict[str, list[str]] = {}
        self.elsewhere: dict[str, list[tuple[str, bool]]] = {}
        self.names: dict[str, list[str]] = {}
        self.endings: dict[str, list[str]] = {}
        self.folders: dict[str, list[str]] = {}
        self.inside: dict[str, list[str]] = {}
        sources = set(tree.layout.sources)
        for path in sorted(whole(tree)):
            *above, name = path.split("/")
            self.names.setdefault(name, []).append(path)
            self.endings.setdefault(PurePosixPath(name).suffix, []).append(path)
            self.inside.setdefault("/".join(above), []).append(path)
            for folder in above:
                self.folders.setdefault(folder, []).append(path)
            if path.endswith(".py"):
                self._add_module(tree, path, sources)

    def _add_module(self, tree: SourceTree, path: str, sources: set[str]) -> None:
        names = module_name(path).split(".") if path != "__init__.py" else []
        for start in range(len(names)):
            root, dotted = "/".join(names[:start]), ".".join(names[start:])
            if root in sources or not root:
                self.modules.setdefault(dotted, []).append(path)
            elif names[start] not in sys.stdlib_module_names:
                self.elsewhere.setdefault(dotted, []).append((path, f"{root}/__init__.py" in tree.files))

    def module(self, dotted: str, anywhere: bool) -> list[str]:
        """The files of a module.  Those that no source folder has are looked for in every folder that is no package;
        anywhere: in packages too, and as well as in the source folders."""
        known = self.modules.get(dotted, [])
        if known and not anywhere:
            return known
        return known + [path for path, package in self.elsewhere.get(dotted, ()) if anywhere or not package]


def files_of_module(tree: SourceTree, dotted: str) -> list[str]:
    """The files that a module of this name can be in a tree."""
    return _index(tree).module(dotted, anywhere=False)


@functools.lru_cache(maxsize=8)
def _index(tree: SourceTree) -> _Index:
    return _Index(tree)


class _Closure:
    def __init__(self, tree: SourceTree) -> None:
        self._tree, self._index = tree, _index(tree)
        self._found: set[str] = set()
        self._anywhere = False

    def of(self, parts: tuple[str, ...]) -> set[str]:
        """The files of these parts, and all that they need; empty where that cannot be known."""
        self._found = {path for path in self._tree.files if path.endswith((*COMPILED, "/"))}
        left = [path for path in self._tree.files for part in parts if path.startswith(f"{part}/")]
        left += [path for part in parts if (path := f"{part}.py") in self._tree.files]
        modules = {*(part.replace("/", ".") for part in parts), *OF_THE_HARNESS}  # with the packages that they lie in
        left += [path for module in modules for path in self._modules(module)]
        words: set[str] = set()
        while left:
            path = left.pop()
            if path not in self._found and path.endswith(".py"):
                one = _imports(self._tree, path)
                if one.dynamic:
                    return set()
                if one.moves and not self._anywhere:
                    self._anywhere = True
                    return self.of(parts)
                words |= one.strings
                left += self._needed(path, one)
            self._found.add(path)
            if not left:
                left = [file for word in words for file in self._files_named(word) if file not in self._found]
        return self._found

    def _needed(self, path: str, one: Imported) -> Iterator[str]:
        for module in one.modules:
            yield from self._modules(module)
        for package in one.whole:
            for init in self._index.module(package, self._anywhere):
                below = init.rpartition("/")[0] + "/"
                yield from (one for one in self._tree.files if one.startswith(below))
        folder = path.rpartition("/")[0]
        yield from (near for near in self._index.inside.get(folder, ()) if not near.endswith(".py"))

    def _modules(self, dotted: str) -> Iterator[str]:
        """The files of a module, if there is one of this name, and of the packages that it lies in."""
        names = dotted.split(".")
        for length in range(1, len(names) + 1):
            yield from self._index.module(".".join(names[:length]), self._anywhere)

    def _files_named(self, text: str) -> Iterator[str]:
        """The files that a string can mean: by the end of their path (only those beside a module that is reached, where
        there are some), by an ending or a pattern, or by their folder."""
        path = "/".join(piece for piece in text.split("/") if piece not in ("", ".", ".."))
        name = path.rpartition("/")[2]
        named = [one for one in self._index.names.get(name, ()) if f"/{one}".endswith(f"/{path}")]
        yield from named if self._found.isdisjoint(named) else ()
        if name.startswith((".", "*")) or not FILE_NAME.fullmatch(name):
            ending = PurePosixPath(f"x{name}").suffix
            yield from self._index.endings.get(ending, ()) if len(ending) > 1 else ()
        for one in self._index.folders.get(name, ()):
            if not one.endswith(".py") and f"/{path}/" in f"/{one}":
                yield one
