"""What a Python file imports, names and declares, read without running it, and whether that can be read at all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator, Sequence

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


@dataclasses.dataclass(frozen=True)
class Imported:
    """modules: dotted names that are, or may be, modules; "package.*" is every module of a package.

    strings: its string constants that can be names.  dynamic: it can import what is not named here, because it imports
    by a name that it computes, or changes where modules are looked for.
    """

    modules: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    dynamic: bool = False


@functools.lru_cache(maxsize=8192)
def imported(text: str, module: str, is_package: bool) -> Imported:
    """What a file imports.  module: its own dotted name, which relative imports start from."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError):  # it does not run either, by this Python
        return Imported(dynamic=True)
    package = _package(module, is_package)
    modules, strings, dynamic = set[str](), set[str](), False
    followed: set[ast.AST] = set()  # references to what imports by name, in calls that say the name
    for node in nodes:
        if isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = _absolute("." * node.level + (node.module or ""), package)
            modules.update((start, *(f"{start}.{alias.name}" for alias in node.names)))
            dynamic |= any(one.name in UNSEEN or (one.name in BY_NAME and one.asname) for one in node.names)
        elif isinstance(node, ast.Call) and _last(node.func) in BY_NAME and (name := _by_name(node, package)):
            modules.add(name)
            followed.add(node.func)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and ONE_WORD.fullmatch(node.value):
            strings.add(node.value)
            modules.update([node.value] if "." in node.value else [])
            dynamic |= node.value in (*BY_NAME, *UNSEEN)
        elif isinstance(node, (ast.Attribute, ast.Name)):
            name = _last(node)
            unseen = name in UNSEEN and (isinstance(node, ast.Name) or name not in METHODS)
            dynamic |= unseen or (name in BY_NAME and node not in followed)
            modules.add(dotted := _dotted(node))
            dynamic |= dotted == "sys.path"
    return Imported(frozenset(modules), frozenset(strings), dynamic)


def _package(module: str, is_package: bool) -> Sequence[str]:
    """The package that a module's relative imports start from."""
    return (module if is_package else module.rpartition(".")[0]).split(".")


def _absolute(dotted: str, package: Sequence[str]) -> str:
    """The full name of a module; one that begins with dots is relative to a package."""
    bare = dotted.lstrip(".")
    level = len(dotted) - len(bare)
    above = package[: len(package) - level + 1] if level else ()
    return ".".join(filter(None, (*above, bare)))


def _by_name(call: ast.Call, package: Sequence[str]) -> str:
    """The module that a call imports by its name, or the package in which it lies; "" where it says neither."""
    name = call.args[0] if call.args else None
    first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else name
    if not (isinstance(first, ast.Constant) and isinstance(first.value, str)):
        return ""
    if first is name:
        return "" if first.value.startswith(".") and len(call.args) < 2 else _absolute(first.value, package)
    stem = first.value.rpartition(".")[0]
    return f"{stem}.*" if stem.strip(".") and not stem.startswith(".") else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _dotted(node: ast.expr) -> str:
    """ "package.part.name" of an attribute of an attribute of a name, "" of anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if names and isinstance(node, ast.Name) else ""


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

LIBRARIES = frozenset(("torch", "triton", "numpy", "ridgeline", "kernels"))
"""Packages whose functions make no operator of ours; `ridgeline.spec` and `kernels.spec` have the contract."""


class Unreadable(ValueError):
    """Which operators a tree declares does not follow from its source alone; the text says why."""

    def __init__(self, why: str = "the name of an operator cannot be read from the source without running it") -> None:
        super().__init__(why)


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        raise Unreadable(f"a file with kernels is not valid Python ({error.msg}, line {error.lineno})") from None
    except ValueError:  # a null byte
        raise Unreadable() from None


@functools.lru_cache(maxsize=4096)
def names_in(source: str) -> tuple[str, ...]:
    """Every name that a file gives to a Kernel.

    Unreadable if one is no literal text, and if Kernel is renamed, derived from, stored or passed on: its name could
    then be given anywhere.
    """
    nodes = list(ast.walk(_parsed(source)))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _last(node.func) == KERNEL]
    harmless = {call.func for call in calls}
    for node in nodes:
        asks = isinstance(node, ast.Call) and _last(node.func) == "isinstance"
        parts = (node if asks else None, getattr(node, "annotation", None), getattr(node, "returns", None))
        harmless.update(inner for part in parts if isinstance(part, ast.AST) for inner in ast.walk(part))
    for node in nodes:
        refers = isinstance(node, (ast.Name, ast.Attribute)) and _last(node) == KERNEL and node not in harmless
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


@functools.lru_cache(maxsize=4096)
def makers(source: str, module: str, is_package: bool) -> tuple[str, ...]:
    """What may make an operator at the load of a module beside the class itself: full names of functions that are
    called for a value of the module or that decorate one of its functions.

    Names of the standard library and of LIBRARIES are left out.
    """
    package = _package(module, is_package)
    known: dict[str, str] = {}
    used: list[ast.expr] = []
    for node in _at_load(_parsed(source)):
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = _absolute("." * node.level + (node.module or ""), package)
            known |= {alias.asname or alias.name: f"{start}.{alias.name}" for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            used += node.decorator_list
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            used += [part.func for part in ast.walk(node.value) if isinstance(part, ast.Call)]
    names = {known.get(_root(function), "") for function in used if _last(function) != KERNEL}
    usual = LIBRARIES | sys.stdlib_module_names | {""}
    return tuple(sorted(name for name in names if name.partition(".")[0] not in usual))


def _at_load(node: ast.AST) -> Iterator[ast.AST]:
    """The statements that the load of a module executes, those in an `if` or a `try` too."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, (ast.stmt, ast.ExceptHandler)):
            yield inner
            if not isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from _at_load(inner)


def _root(node: ast.expr) -> str:
    """The first name of an attribute of an attribute of a name, or of a call of one."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""
