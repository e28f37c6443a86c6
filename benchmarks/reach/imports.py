"""What a Python file imports, read without running it: names of modules, and whether nobody can read them all."""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
from collections.abc import Iterator

DYNAMIC = ("import_module", "__import__", "exec", "eval", "run_path", "run_module", "spec_from_file_location")
"""Calls that can import something whose name is not in an import statement."""

NAME = re.compile(r"[\w./]+")


@dataclasses.dataclass(frozen=True)
class Imported:
    """modules: dotted names that are, or may be, modules.  strings: words of its string constants that could be part of
    a module's name.  dynamic: it imports by a name that is made while it runs."""

    modules: frozenset[str]
    strings: frozenset[str]
    dynamic: bool


UNREADABLE = Imported(frozenset(), frozenset(), True)


@functools.lru_cache(maxsize=4096)
def imported(text: str, module: str, is_package: bool) -> Imported:
    """What a file imports.  module: its own dotted name, which relative imports start from."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # it does not run either
        return UNREADABLE
    home = module if is_package else module.rpartition(".")[0]
    found = frozenset(name for node in ast.walk(tree) for name in _named(node, home))
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = [text for text in texts if NAME.fullmatch(text)]
    dotted = frozenset(name for name in names if "." in name)
    words = frozenset(word for name in names for word in re.split(r"[./]", name) if word)
    return Imported(found | dotted, words, any(map(_is_dynamic, ast.walk(tree))))


def _named(node: ast.AST, home: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Attribute):
        yield _dotted(node)
    elif isinstance(node, ast.ImportFrom):
        above = home.split(".")[: len(home.split(".")) - node.level + 1] if node.level else []
        start = ".".join([*above, *([node.module] if node.module else [])])
        yield from (start, *(f"{start}.{alias.name}" for alias in node.names))


def _dotted(node: ast.expr) -> str:
    """ "package.part.name" of an attribute of an attribute of a name, "" of anything else."""
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def _is_dynamic(node: ast.AST) -> bool:
    """Whether a node imports what only running it tells: a module by a computed name, or all names of one (`*`)."""
    if isinstance(node, ast.ImportFrom):
        return any(alias.name == "*" for alias in node.names)
    if not isinstance(node, ast.Call):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
    return called in DYNAMIC and not (constant and called in ("import_module", "__import__"))
