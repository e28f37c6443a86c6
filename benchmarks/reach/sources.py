"""What a Python file imports and names, read without running it, and whether nobody can read all that it imports."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator, Mapping

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
    """modules: dotted names that are, or may be, modules.  whole: packages of which any module may be imported.
    strings: its string constants that can be names.  dynamic: it can import what is not named here.  moves: it changes
    where modules are looked for (sys.path).
    """

    modules: frozenset[str] = frozenset()
    whole: frozenset[str] = frozenset()
    strings: frozenset[str] = frozenset()
    dynamic: bool = False
    moves: bool = False


@functools.lru_cache(maxsize=8192)
def imported(text: str, module: str, is_package: bool) -> Imported:
    """What a file imports.  module: its own dotted name, which relative imports start from."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it does not run either, by this Python
        return Imported(dynamic=True)
    return _Reader(module if is_package else module.rpartition(".")[0]).read(tree)


class _Reader:
    def __init__(self, home: str) -> None:
        self._home = home
        self._modules: set[str] = set()
        self._whole: set[str] = set()
        self._strings: set[str] = set()
        self._dynamic = self._moves = False

    def read(self, tree: ast.AST) -> Imported:
        """What all nodes of a file say together."""
        known: set[ast.AST] = set()  # references to what imports by name, in calls that say the name
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self._modules.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                self._from(node)
            elif isinstance(node, ast.Call) and _last(node.func) in BY_NAME and self._by_name(node):
                known.add(node.func)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._string(node.value)
            elif isinstance(node, (ast.Attribute, ast.Name)):
                self._named(node, node in known)
        return Imported(*map(frozenset, (self._modules, self._whole, self._strings)), self._dynamic, self._moves)

    def _from(self, node: ast.ImportFrom) -> None:
        start = ".".join(filter(None, (self._above(node.level), node.module)))
        self._modules.update((start, *(f"{start}.{alias.name}" for alias in node.names)))
        if any(alias.name == "*" for alias in node.names):
            self._whole.add(start)
        self._dynamic |= any(alias.name in UNSEEN or (alias.name in BY_NAME and alias.asname) for alias in node.names)

    def _above(self, level: int) -> str:
        """What the dots of a relative import stand for."""
        names = self._home.split(".")
        return ".".join(names[: len(names) - level + 1]) if level else ""

    def _by_name(self, call: ast.Call) -> bool:
        """Take the name that a call imports; whether it says one, or a package in which it lies."""
        name = call.args[0] if call.args else None
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            bare = name.value.lstrip(".")
            level = len(name.value) - len(bare)
            self._modules.add(".".join(filter(None, (self._above(level), bare))))
            return not level or len(call.args) == 2
        first = name.values[0] if isinstance(name, ast.JoinedStr) and name.values else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and "." in first.value.lstrip("."):
            self._whole.add(first.value.rpartition(".")[0])
            return not first.value.startswith(".")
        return False

    def _string(self, text: str) -> None:
        if ONE_WORD.fullmatch(text):
            self._strings.add(text)
            self._dynamic |= text in BY_NAME or text in UNSEEN
            if "." in text:
                self._modules.add(text)

    def _named(self, node: ast.Attribute | ast.Name, known: bool) -> None:
        name = _last(node)
        bare = isinstance(node, ast.Name)
        if name in BY_NAME or (name in UNSEEN and (bare or name not in METHODS)):
            self._dynamic |= not known
        if isinstance(node, ast.Attribute):
            dotted = _dotted(node)
            self._modules.add(dotted)
            self._moves |= dotted == "sys.path"


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _dotted(node: ast.expr) -> str:
    """ "package.part.name" of an attribute of an attribute of a name, "" of anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


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
# What cannot be read for certain (a name that is computed, a class derived from Kernel) is Unreadable.


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
    """Every name that a file gives to a Kernel, each of them a text or a constant of the file.

    Unreadable otherwise, and if Kernel is renamed, derived from, stored or passed on: its name could then be given
    anywhere.
    """
    module = _parsed(source)
    nodes = list(ast.walk(module))
    calls = [node for node in nodes if isinstance(node, ast.Call) and _is_kernel(node.func)]
    harmless: set[ast.AST] = {call.func for call in calls}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            harmless.update(ast.walk(node))
        for hint in _annotations(node):
            harmless.update(ast.walk(hint))
    for node in nodes:
        renamed = (
            isinstance(node, ast.alias) and node.name.split(".")[-1] == KERNEL and node.asname not in (None, KERNEL)
        )
        if renamed or (_is_kernel(node) and node not in harmless):
            raise Unreadable
    constants = _constants(module)
    return tuple(_text(_name_of(call), constants) for call in calls)


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    hints = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return (hint for hint in hints if isinstance(hint, ast.expr))


def _is_kernel(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == KERNEL) or (
        isinstance(node, ast.Attribute) and node.attr == KERNEL
    )


def _name_of(call: ast.Call) -> ast.expr:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    if not (call.args or named):
        raise Unreadable
    return call.args[0] if call.args else named[0]


def _constants(module: ast.Module) -> dict[str, str]:
    """Strings that a module gives to a name, if nothing else in it has that name."""
    found: dict[str, str] = {}
    parameters = {node.arg for node in ast.walk(module) if isinstance(node, ast.arg)}
    assigned = [part.id for part in ast.walk(module) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)]
    for statement in module.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant):
            names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
            if isinstance(statement.value.value, str):
                found.update(dict.fromkeys(names, statement.value.value))
    return {name: value for name, value in found.items() if assigned.count(name) == 1 and name not in parameters}


def _text(expression: ast.expr, constants: Mapping[str, str]) -> str:
    """The value of a text, or of a constant."""
    if isinstance(expression, ast.Name) and expression.id in constants:
        return constants[expression.id]
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value
    raise Unreadable


@functools.lru_cache(maxsize=4096)
def makers(source: str) -> tuple[str, ...]:
    """What may make an operator at the load of a module beside the class itself: dotted names, as they are imported, of
    functions that are called for a value of the module or that decorate one of its functions.

    Names of the standard library and of LIBRARIES are left out; relative ones begin with their dots.
    """
    known: dict[str, str] = {}
    used: list[ast.expr] = []
    left: list[ast.AST] = [*_parsed(source).body]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            known |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            known |= {alias.asname or alias.name: f"{start.rstrip('.') or start}.{alias.name}" for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            used += node.decorator_list
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            used += [part.func for part in ast.walk(node.value) if isinstance(part, ast.Call)]
        else:  # what stands in an `if` or a `try` is loaded too
            left += (inner for inner in ast.iter_child_nodes(node) if isinstance(inner, (ast.stmt, ast.ExceptHandler)))
    named = {known.get(_root(one), "") for one in used if not _is_kernel(one)} - {""}
    usual = LIBRARIES | sys.stdlib_module_names
    return tuple(sorted(name for name in named if name.partition(".")[0] not in usual))


def _root(node: ast.expr) -> str:
    """The first name of an attribute of an attribute of a name, or of a call of one."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""
