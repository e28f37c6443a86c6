"""The source files of one side, from a folder or from whatever else holds them, with a digest of each; and what a
Python file imports, names and declares, read without running it, and whether that can be read at all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import os
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
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
        if not (known := self.files[path]):
            blob = b"blob %d\0" % len(self._content(path)) + self._content(path)  # as git makes it
            known = self.files[path] = hashlib.sha1(blob, usedforsecurity=False).hexdigest()
        return known

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
    folder that is not a checkout."""
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


# What a Python file imports.


BY_NAME = ("import_module", "__import__")
"""Functions that import the module whose name they are given."""

UNSEEN = (
    *("exec", "eval", "run_path", "run_module", "resolve_name", "spec_from_file_location", "SourceFileLoader"),
    *("ExtensionFileLoader", "exec_module", "load_module", "zipimporter", "EntryPoint", "entry_points"),
)
"""What runs code or imports modules that no import statement names."""

METHODS = ("eval", "exec")
"""Of these only the builtins, not methods of the same name (torch's Module.eval)."""

ONE_WORD = re.compile(r"[\w./%{}*?\[\]-]+")
"""A string that can be the name of a module, a file or a folder, or a pattern of such names."""


LIBRARIES = frozenset(("torch", "triton", "numpy", "ridgeline", "kernels"))
"""Packages whose functions make no operator of ours; `ridgeline.spec` and `kernels.spec` have the contract."""


@dataclasses.dataclass(frozen=True)
class Imported:
    """modules: dotted names that are, or may be, modules; "package.*" is every module of a package.

    strings: its string constants that can be names.  dynamic: it can import what is not named here, because it imports
    by a name that it computes, or changes where modules are looked for.
    called: full names, or those of their modules, of functions that its load calls for a value, or that decorate one of
    its functions or classes, and that may make operators: not of the standard library and of LIBRARIES.
    """

    modules: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    dynamic: bool = False
    called: frozenset[str] = frozenset()


@functools.lru_cache(maxsize=8192)
def imported(text: str, module: str, is_package: bool) -> Imported:
    """What a file imports.  module: its own dotted name, which relative imports start from."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it does not run either, by this Python
        return Imported(dynamic=True)
    nodes = list(ast.walk(tree))
    package = (module if is_package else module.rpartition(".")[0]).split(".")
    bindings = _import_bindings(nodes, package)
    modules, strings, dynamic = set[str]().union(*bindings.values()), set[str](), False
    followed: set[ast.AST] = set()  # references to what imports by name, in calls that say the name
    for node in nodes:
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            dynamic |= any(one.name in UNSEEN or (one.name in BY_NAME and one.asname) for one in node.names)
        elif (
            isinstance(node, ast.Call) and _last_name(node.func) in BY_NAME and (name := _module_in_call(node, package))
        ):
            modules.add(name)
            followed.add(node.func)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ONE_WORD.fullmatch(node.value):
            strings.add(node.value)
            dynamic |= node.value in (*BY_NAME, *UNSEEN)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = _last_name(node)
            unseen = name in UNSEEN and (isinstance(node, ast.Name) or name not in METHODS)
            dynamic |= unseen or (name in BY_NAME and node not in followed)
            modules.update(_full_names(node, bindings, any_name="*" in bindings))
    dynamic |= "sys.path" in modules
    usual = LIBRARIES | sys.stdlib_module_names
    functions = (function for function in _called_at_load(tree) if _last_name(function) != KERNEL)
    called = (name for function in functions for name in _full_names(function, bindings))
    return Imported(
        *(frozenset(modules.union(text for text in strings if "." in text)), frozenset(strings), dynamic),
        frozenset(name for name in called if name.partition(".")[0] not in usual),
    )


def _import_bindings(nodes: Sequence[ast.AST], package: Sequence[str]) -> dict[str, set[str]]:
    """By name that an import of a file binds: the full dotted names of what it can be, "package.*" under "*"."""
    bindings = defaultdict[str, set[str]](set)
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                full = alias.name if alias.asname else alias.name.partition(".")[0]
                bindings[alias.asname or full].add(full)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute("." * node.level + (node.module or ""), package)
            for alias in node.names:
                bindings[alias.asname or alias.name].add(f"{start}.{alias.name}")
    return bindings


def _full_names(node: ast.expr, bindings: Mapping[str, set[str]], *, any_name: bool = False) -> Iterator[str]:
    """What a name, or an attribute of an attribute of one, can be of what a file imports: "package.part.name".

    any_name: a name that the file does not bind can be that of a module, as in a file that imports by "*".
    """
    names: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Call)):
        names, node = ([node.attr, *names], node.value) if isinstance(node, ast.Attribute) else ([], node.func)
    if isinstance(node, ast.Name):
        roots = bindings.get(node.id, {node.id} if any_name else ())
        yield from (".".join((root, *names)) for root in roots)


def _called_at_load(node: ast.AST) -> Iterator[ast.expr]:
    """The functions that the load of a module calls for a value of it, in an `if` or a `try` too, or as decorators."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield from inner.decorator_list
        elif isinstance(inner, (ast.Assign, ast.AnnAssign)) and inner.value:
            yield from (part.func for part in ast.walk(inner.value) if isinstance(part, ast.Call))
        elif isinstance(inner, (ast.stmt, ast.ExceptHandler)):
            yield from _called_at_load(inner)


def _absolute(dotted: str, package: Sequence[str]) -> str:
    """The full name of a module; one that begins with dots is relative to a package."""
    bare = dotted.lstrip(".")
    level = len(dotted) - len(bare)
    above = package[: len(package) - level + 1] if level else ()
    return ".".join(filter(None, (*above, bare)))


def _module_in_call(call: ast.Call, package: Sequence[str]) -> str:
    """The module that a call imports by its name, or the package in which it lies; "" where it says neither."""
    name = call.args[0] if call.args else None
    first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else name
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return ""
    if first is name:
        return "" if first.value.startswith(".") and len(call.args) < 2 else _absolute(first.value, package)
    stem = first.value.rpartition(".")[0]
    return f"{stem}.*" if stem.strip(".") and not stem.startswith(".") else ""


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


ENCODING = re.compile(r"coding[:=]")
"""A comment that changes what a file says (https://peps.python.org/pep-0263/)."""


@functools.lru_cache(maxsize=512)
def syntax(source: str) -> str | None:
    """A file without its comments and formatting; None where that is not certain."""
    if any(ENCODING.search(line) for line in source.splitlines()[:2]):
        return None
    try:
        return ast.dump(ast.parse(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Names of the kernels that a source file declares, read without importing anything.
#
# What cannot be read for certain (a name that is not a literal, a class derived from Kernel) is Unreadable.


KERNEL = "Kernel"
"""The class of kernels/spec.py whose first argument is the name."""


class Unreadable(ValueError):
    """Which operators a tree declares does not follow from its source alone; the text says why."""

    def __init__(self, why: str = "the name of an operator cannot be read from the source without running it") -> None:
        super().__init__(why)


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError) as error:  # a null byte
        raise Unreadable(f"a file with kernels is not valid Python ({error})") from None


@functools.lru_cache(maxsize=4096)
def names_in(source: str) -> tuple[str, ...]:
    """Every name that a file gives to a Kernel.

    Unreadable if one is no literal text, and if Kernel is renamed, derived from, stored or passed on: its name could
    then be given anywhere.
    """
    nodes = list(ast.walk(_parsed(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _last_name(node.func) == KERNEL]
    harmless = {call.func for call in calls}
    for node in nodes:
        asks = isinstance(node, ast.Call) and _last_name(node.func) == "isinstance"
        parts = (node if asks else None, getattr(node, "annotation", None), getattr(node, "returns", None))
        harmless.update(inner for part in parts if isinstance(part, ast.AST) for inner in ast.walk(part))
    for node in nodes:
        refers = isinstance(node, (ast.Name, ast.Attribute)) and _last_name(node) == KERNEL and node not in harmless
        if refers or (isinstance(node, ast.alias) and _is_other_name(node)):
            raise Unreadable
    return tuple(map(_name_of, calls))


def _name_of(call: ast.Call) -> str:
    names = [*call.args[:1], *(keyword.value for keyword in call.keywords if keyword.arg == "name")]
    if not (names and isinstance(names[0], ast.Constant) and isinstance(names[0].value, str)):
        raise Unreadable
    return names[0].value


def _is_other_name(alias: ast.alias) -> bool:
    return alias.name.rpartition(".")[2] == KERNEL and alias.asname not in (None, KERNEL)
