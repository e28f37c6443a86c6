"""The code of an operator: every file of a tree that its declaration reaches.  Equal files, equal code.

An operator's code can come from any file in its part of a package (the folder or the module that declares it); from all
modules that these import, directly or indirectly, in whatever folder the repository keeps them; from files that are no
Python in the folders of such modules, and those whose names, endings or folders stand in their strings; and from what a
compiler makes of C, C++, CUDA and HIP.  Where an import cannot be followed, every file of the tree counts.  So it is
more than what runs, never less, unless a program assembles the name of a data file from pieces that say nothing of it;
what did run is looked at by who measures (benchmarks.naming).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from benchmarks.shapes import text_digest
from benchmarks.sources import (
    KERNEL,
    Imported,
    SourceTree,
    Unreadable,
    imported,
    is_of_part,
    module_name,
    names_in,
    of_folder,
    syntax,
)
from kernels.project import FILES, current_kernel

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
    old, new = ((tree.layout.packages, tree.layout.sources) for tree in (base, head))
    if old != new:
        listed = f"{', '.join(old[0])} in base, {', '.join(new[0])} in head"
        return Reach(unknown=f"the two sides list other packages with kernels, or import from other folders: {listed}")
    try:
        of_base, of_head = dict[str, tuple[str, ...]](), declared(head)
        for name, parts in declared(base).items():  # under the names that head's settings give them
            now = current_kernel(name, head.layout.renamed)
            of_base[now] = (*of_base.get(now, ()), *parts)
    except Unreadable as error:
        return Reach(unknown=str(error))
    names = dict.fromkeys([*of_head, *of_base])
    if not names:
        return Reach(unknown="no operator can be read from the source without running it")
    changed = {
        name: differing_files(
            *(base, reached(base, of_base[name]) if name in of_base else ()),
            *(head, reached(head, of_head[name]) if name in of_head else ()),
        )
        for name in names
    }
    same = tuple(name for name, files in changed.items() if not files)
    differing = {name: files for name, files in changed.items() if files}
    new, gone = frozenset(of_head.keys() - of_base.keys()), frozenset(of_base.keys() - of_head.keys())
    return Reach(same, differing, new=new, gone=gone)


def declared(tree: SourceTree) -> dict[str, tuple[str, ...]]:
    """Every operator, and where it is declared.  Raises Unreadable where that is not certain."""
    paths = [path for path in tree.files if path.endswith(".py") and tree.listed(path)]
    homes: dict[str, tuple[str, ...]] = {}
    for path in paths:
        for name in names_in(tree.text(path)) if KERNEL in tree.text(path) else ():
            homes[name] = (*homes.get(name, ()), part_of(tree, path))
    if _may_make_operators(tree, {maker for path in paths for maker in _imports(tree, path).called}):
        raise Unreadable
    return homes


def declared_by(tree: SourceTree, module: str) -> list[str] | None:
    """The operators in the part of a package that a module stands for; None where the source does not say it."""
    part = part_of_module(tree, module)
    if not any(is_of_part(path, part) for path in tree.files):
        return None
    try:
        homes = declared(tree)
    except Unreadable:
        return None
    return [name for name, parts in homes.items() if any(f"{home}/".startswith(f"{part}/") for home in parts)]


def _may_make_operators(tree: SourceTree, called: Iterable[str]) -> bool:
    """Whether functions that listed modules call as they are loaded may make operators: those of another project, and
    those that reach the class from outside of the listed packages.  called: see Imported."""
    of_makers = [list(_index(tree).of_name(maker)) for maker in called]
    files = _closure(tree, itertools.chain(*of_makers)) or every_file(tree) if of_makers else ()
    outside = (tree.text(path) for path in files if not tree.listed(path))
    return not all(of_makers) or any(KERNEL in text and "spec" in text for text in outside)


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
    packages = zip(tree.layout.packages, tree.homes, strict=True)
    fits = [(package, home) for package, home in packages if f"{module}.".startswith(f"{package}.")]
    package, home = max(fits, key=lambda fit: len(fit[0]), default=("", ""))
    first = module.removeprefix(package).strip(".").partition(".")[0]
    return "/".join(filter(None, (home, first)))


def differing_files(
    base: SourceTree, of_base: Iterable[str], head: SourceTree, of_head: Iterable[str]
) -> tuple[str, ...]:
    """Those of these files that the other side lacks or has otherwise; comments and formatting of Python files do not
    count."""
    old, new = ({path: tree.digest(path) for path in paths} for tree, paths in ((base, of_base), (head, of_head)))
    differing = sorted(path for path in {*old, *new} if old.get(path) != new.get(path))
    return tuple(path for path in differing if not _is_same_code(path, (base, head)))


def _is_same_code(path: str, trees: Iterable[SourceTree]) -> bool:
    """Whether a file is Python on both sides that is executed alike."""
    python = path.endswith(".py")
    base, head = (syntax(tree.text(path)) if python and path in tree.files else None for tree in trees)
    return base is not None and base == head


def digest(tree: SourceTree, paths: Iterable[str]) -> str:
    """Of files of a tree: their names and their contents."""
    return text_digest("".join(f"{path}\0{tree.digest(path)}\n" for path in sorted(set(paths))), DIGITS)


def every_file(tree: SourceTree) -> set[str]:
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
        return every_file(tree)
    return reached(tree, dict.fromkeys(part for name in wanted for part in homes[name]))


def reached(tree: SourceTree, parts: Iterable[str]) -> set[str]:
    """Every file that the code of some parts can come from."""
    parts = tuple(parts)
    modules = {*(part.replace("/", ".") for part in parts), *OF_THE_HARNESS}  # with the packages that they lie in
    paths = [path for path in tree.files for part in parts if is_of_part(path, part)]
    paths += [path for module in modules for path in _index(tree).of_name(module)]
    return _closure(tree, paths) or every_file(tree)


def _imports(tree: SourceTree, path: str) -> Imported:
    return imported(tree.text(path), module_name(path), path.endswith("__init__.py"))


class _Index:
    """The files of a tree by what can be said of them.

    modules: paths by dotted name, from the folders that packages are imported from.  elsewhere: the same from any other
    folder that is itself no package.  named: by name, by ending (*.json) and by each folder that they lie in (data/).
    inside: by their own folder.
    """

    def __init__(self, tree: SourceTree) -> None:
        self.modules, self.elsewhere = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        self.named, self.inside = defaultdict[str, list[str]](list), defaultdict[str, list[str]](list)
        sources = {*tree.layout.sources, ""}
        self.paths = sorted(every_file(tree))
        for path in self.paths:
            *above, name = path.split("/")
            self.inside["/".join(above)].append(path)
            for key in (name, f"*{PurePosixPath(name).suffix}", *(f"{folder}/" for folder in above)):
                self.named[key].append(path)
            names = module_name(path).split(".") if name.endswith(".py") and path != "__init__.py" else []
            for start, first in enumerate(names):
                root, dotted = "/".join(names[:start]), ".".join(names[start:])
                if root in sources:
                    self.modules[dotted].append(path)
                elif first not in sys.stdlib_module_names and f"{root}/__init__.py" not in tree.files:
                    self.elsewhere[dotted].append(path)

    def module(self, dotted: str) -> list[str]:
        """The files of a module; if no source folder has it, those of folders that are not packages."""
        return self.modules.get(dotted) or self.elsewhere.get(dotted, [])

    def of_name(self, dotted: str) -> Iterator[str]:
        """The files of a module, if there is one of this name, and of the packages that it lies in; "package.*" is
        every file below a package."""
        names = dotted.split(".")
        for length in range(1, len(names) + 1):
            yield from self.module(".".join(names[:length]))
        if names[-1] == "*":
            for init in self.module(".".join(names[:-1])):
                below = f"{init.rpartition('/')[0]}/"
                yield from (path for path in self.paths if path.startswith(below))


@functools.lru_cache(maxsize=8)
def _index(tree: SourceTree) -> _Index:
    return _Index(tree)


def _closure(tree: SourceTree, paths: Iterable[str]) -> set[str]:
    """Some files, and all that they need; empty where that cannot be known."""
    index, pending = _index(tree), list(paths)
    files = {path for path in tree.files if path.endswith((*COMPILED, "/"))}
    words: set[str] = set()
    while pending:
        path = pending.pop()
        if path not in files and path.endswith(".py"):
            imports = _imports(tree, path)
            if imports.dynamic:
                return set()
            words |= imports.strings
            pending += (file for module in imports.modules for file in index.of_name(module))
            pending += (near for near in index.inside.get(path.rpartition("/")[0], ()) if not near.endswith(".py"))
        files.add(path)
        if not pending:
            pending = [file for word in words for file in _files_named(index, word, files) if file not in files]
    return files


def _files_named(index: _Index, text: str, reached_files: set[str]) -> Iterator[str]:
    """The files that a string can mean: by the end of their path (only those beside a module that is reached, where
    there are some), by an ending or a pattern, or by their folder."""
    path = "/".join(piece for piece in text.split("/") if piece not in ("", ".", ".."))
    name = path.rpartition("/")[2]
    named = [file for file in index.named.get(name, ()) if f"/{file}".endswith(f"/{path}")]
    yield from named if reached_files.isdisjoint(named) else ()
    if name.startswith((".", "*")) or not FILE_NAME.fullmatch(name):
        ending = PurePosixPath(f"x{name}").suffix
        yield from index.named.get(f"*{ending}", ()) if ending.strip(".") else ()
    for file in index.named.get(f"{name}/", ()):
        if not file.endswith(".py") and f"/{path}/" in f"/{file}":
            yield file


# The code of a checkout on this disk: its digests, and whether what ran is what they cover.


HARNESS = Path(__file__).resolve().parents[1]

BY_HARNESS = ("kernels/registry.py", "kernels/project.py", "kernels/_shared/__init__.py", *FILES)
"""Files of a checkout that the measuring process reads for itself: settings, and modules of one of Ridgeline."""

BY_PYTHON = ("sitecustomize", "usercustomize")
"""Modules that Python imports before all else (https://docs.python.org/3/library/site.html): the machine's, whatever
file of that name a checkout has."""

DIGITS_RAN = 12
"""Of the digest of a file that ran, in a trial file."""


@dataclasses.dataclass(frozen=True)
class Ran:
    """What a process ran of a checkout.  files: digest by path.  fault: what it must not have run; "" if nothing."""

    files: dict[str, str] = dataclasses.field(default_factory=dict)
    fault: str = ""


def of_harness() -> str:
    """A digest of what measures, checks and compiles: a kept result holds for one state of it."""
    files = [*(HARNESS / "benchmarks").rglob("*.py"), *(HARNESS / "kernels").glob("*.py")]
    digest = hashlib.sha256()
    for path in sorted(files):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:DIGITS]


class CheckoutCode:
    """The source of a checkout as it was when it was first asked.  Raises kernels.project.ProjectError."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @functools.cached_property
    def tree(self) -> SourceTree:
        """All of its files."""
        return of_folder(self._root)

    @functools.lru_cache(maxsize=256)  # noqa: B019 - lives as long as a command
    def files(self, module: str = "") -> frozenset[str]:
        """The files that the operators of a module can come from; "": those of all operators."""
        if module:
            return frozenset(reached(self.tree, [part_of_module(self.tree, module)]))
        listed = {path for path in self.tree.files if self.tree.listed(path)}  # all of them are imported to list them
        return frozenset(reached_by_all(self.tree) | listed)

    def digest(self, module: str = "") -> str:
        """Equal digests, equal code: 16 hexadecimal digits over these files."""
        return digest(self.tree, self.files(module))

    def environment(self, module: str = "") -> dict[str, str]:
        """The environment variables that are set and whose names stand in this code: what it does may hang on them."""
        words = {
            word for path in self.files(module) if path.endswith(".py") for word in _imports(self.tree, path).strings
        }
        return {name: os.environ[name] for name in sorted(words & os.environ.keys())}

    @functools.cached_property
    def tops(self) -> list[str]:
        """First names that modules among these files can have, from whatever folder they are imported."""
        parts = {part for path in self.files() if path.endswith(".py") for part in path.removesuffix(".py").split("/")}
        return sorted(part for part in parts if part.isidentifier() and not part.startswith("__"))

    def ran(self, module: str, files: Iterable[str], foreign: Iterable[Sequence[str]]) -> Ran:
        """What a process that ran operators of a module ran, by what benchmarks.naming saw there."""
        known, own, fault = self.files(module), {}, ""
        for name, file in foreign:
            fault = fault or self._foreign(name, file)
        for file in files:
            path = self._inside(file)
            if path is None:
                fault = fault or self._elsewhere(file)
            elif path in known:
                own[path] = self.tree.digest(path)[:DIGITS_RAN]
            elif path not in BY_HARNESS:
                fault = fault or self._unseen(path)
        return Ran(own, fault)

    def _inside(self, file: str) -> str | None:
        """The path of a file from the root of the checkout, None where it lies elsewhere."""
        for root in {self._root.absolute(), self._root.resolve()}:
            path = Path(file)
            if path.is_relative_to(root):
                inside = path.relative_to(root).as_posix()
                return None if inside.startswith(".ridgeline/trees/") else inside
        return None

    def _foreign(self, name: str, file: str) -> str:
        own = next((path for path in _index(self.tree).module(name) if path in self.files()), "")
        if name in BY_PYTHON or not own or not self._is_copy(name, Path(file), own):
            return ""
        return (
            f"it ran module {name} of {file}, not that of this side's checkout ({own} in {self._root}): an installed "
            "copy comes first; say where the package lies in the repository (ridgeline.toml: sources = [...]), "
            "or uninstall it"
        )

    def _is_copy(self, name: str, file: Path, own: str) -> bool:
        """Whether a module from elsewhere is taken in place of one of this checkout, and has not only its name.

        Where the checkout's lies in a folder that nothing is imported from, most modules of the other one's package
        must be the checkout's as well: it may have stand-ins for the libraries that it uses.
        """
        if any(own.startswith(f"{source}/{name.partition('.')[0]}") for source in self.tree.layout.sources if source):
            return True
        depth = len(name.split(".")) - (file.stem != "__init__")
        if depth == 0 or own.startswith(name.partition(".")[0]):
            return True
        there, here = file.parents[depth - 1], "/".join(own.split("/")[:-depth]) + "/"
        names = {path.relative_to(there).as_posix() for path in there.rglob("*.py")}
        return 2 * sum(f"{here}{one}" in self.tree.files for one in names) >= len(names)

    def _elsewhere(self, file: str) -> str:
        return (
            f"it ran {file}, which is not in this side's checkout ({self._root}): the commit has no such file and an "
            "installation in place (pip install -e, a .pth file), PYTHONPATH or a path in the code leads to the other "
            "one; commit the file, say where packages lie (ridgeline.toml: sources = [...]), or uninstall it"
        )

    def _unseen(self, path: str) -> str:
        if path not in self.tree.files:
            return (
                f"it ran {path}, which is no file of the commit (git ignores it, or it was made meanwhile): commit it, "
                "or keep it outside of the repository"
            )
        return (
            f"it ran {path}, though nothing in the source of the operator says so: import it by its name, or write its "
            "name as a string where it is opened; else a change of it would go unseen"
        )
