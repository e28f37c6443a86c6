"""Names of the kernels that a source file declares, read without importing anything.

What cannot be read for certain (a name that is computed, a class derived from Kernel) is Unreadable.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator, Mapping

KERNEL = "Kernel"
"""The class of kernels/spec.py whose first argument is the name."""

LIBRARIES = frozenset(("torch", "triton", "numpy", "ridgeline", "kernels"))
"""Packages whose functions make no operator of ours; `ridgeline.spec` and `kernels.spec` have the contract."""


class Unreadable(Exception):
    """A name does not follow from the source alone."""


@functools.lru_cache(maxsize=4096)
def names_in(source: str) -> tuple[str, ...]:
    """Every name that a file gives to a Kernel, each of them a text or a constant of the file.

    Unreadable otherwise, and if Kernel is renamed, derived from, stored or passed on: its name could then be given
    anywhere.
    """
    module = ast.parse(source)
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
    left: list[ast.AST] = [*ast.parse(source).body]
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
