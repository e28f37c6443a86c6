"""What a Python file imports and names, read without running it, and whether nobody can read all that it imports."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re

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
