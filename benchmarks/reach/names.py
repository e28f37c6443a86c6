"""Names of the kernels that a source file declares, read without importing anything.

What cannot be read for certain (a name computed from something unknown, a class derived from Kernel) is Unreadable.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping

KERNEL = "Kernel"
"""The class of kernels/spec.py whose first argument is the name."""

Values = Mapping[str, str]
"""Strings that are known, by the name of their variable."""


LIBRARIES = frozenset(("torch", "triton", "numpy", "ridgeline", "kernels"))
"""Packages whose functions make no operator of ours; `ridgeline.spec` and `kernels.spec` have the contract."""


class Unreadable(Exception):
    """A name does not follow from the source alone."""


@dataclasses.dataclass(frozen=True)
class _NamesOfFile:
    """What one file says by itself.  certain: names that follow from it.  of_functions: for each call of Kernel with a
    name that its function is given, (function, names if no other file calls it; None where they do not follow)."""

    certain: tuple[str, ...]
    of_functions: tuple[tuple[str, tuple[str, ...] | None], ...]


def names_in(source: str, sources: Iterable[str] = ()) -> Iterator[str]:
    """Every name that a file gives to a Kernel.  sources: the other files, which may call its functions."""
    found = _of_file(source)
    if found is None:
        raise Unreadable
    yield from found.certain
    for function, names in found.of_functions:
        if names is None or any(_uses(other, function) for other in sources if other is not source):
            raise Unreadable
        yield from names


@functools.lru_cache(maxsize=4096)
def _of_file(source: str) -> _NamesOfFile | None:
    """None where a name does not follow whatever the other files are.  A commit has most files of the one before."""
    try:
        module = ast.parse(source)
        _only_called(module)
        constants = _constants(module)
        certain = [_text(_name_of(call), constants) for call in _kernel_calls(module.body)]
        functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
        calls = [(function, call) for function in functions for call in _kernel_calls(function.body)]
    except Unreadable:
        return None
    of_functions: list[tuple[str, tuple[str, ...] | None]] = []
    for function, call in calls:
        try:
            certain.append(_text(_name_of(call), constants))
        except Unreadable:
            of_functions.append((function.name, _alone(call, function, module, constants)))
    return _NamesOfFile(tuple(certain), tuple(of_functions))


def _alone(call: ast.Call, function: ast.FunctionDef, module: ast.Module, constants: Values) -> tuple[str, ...] | None:
    """Names that a function gives a kernel if no other file calls it; None where they do not follow."""
    try:
        return tuple(_names_of_function(_name_of(call), function, module, constants))
    except Unreadable:
        return None


def _uses(source: str, name: str) -> bool:
    """Whether another module may call a function of that name: it imports the name, or has it as an attribute."""
    return bool(re.search(rf"\.{name}\b|import\s[^\n(]*\b{name}\b|import\s*\([^)]*\b{name}\b", source))


def _only_called(module: ast.Module) -> None:
    """Unreadable if Kernel is renamed, derived from, stored or passed on: its name could then be given anywhere."""
    harmless: set[int] = set()
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and _is_kernel(node.func):
            harmless.add(id(node.func))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            harmless.update(id(part) for part in ast.walk(node))
        harmless.update(id(part) for hint in _annotations(node) for part in ast.walk(hint))
    for node in ast.walk(module):
        renamed = (
            isinstance(node, ast.alias) and node.name.split(".")[-1] == KERNEL and node.asname not in (None, KERNEL)
        )
        if renamed or (_is_kernel(node) and id(node) not in harmless):
            raise Unreadable


def _annotations(node: ast.AST) -> Iterator[ast.expr]:
    hints = (getattr(node, "annotation", None), getattr(node, "returns", None))
    return (hint for hint in hints if isinstance(hint, ast.expr))


def _is_kernel(node: ast.AST) -> bool:
    return (isinstance(node, ast.Name) and node.id == KERNEL) or (
        isinstance(node, ast.Attribute) and node.attr == KERNEL
    )


def _kernel_calls(body: Iterable[ast.stmt]) -> Iterator[ast.Call]:
    """Calls of Kernel in statements, without those in functions that the statements define."""
    left: list[ast.AST] = list(body)
    while left:
        node = left.pop()
        if isinstance(node, ast.Call) and _is_kernel(node.func):
            yield node
        if isinstance(node, (ast.Lambda, ast.AsyncFunctionDef)) and any(_is_kernel(part) for part in ast.walk(node)):
            raise Unreadable
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            left += ast.iter_child_nodes(node)


def _name_of(call: ast.Call) -> ast.expr:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "name"]
    if not (call.args or named):
        raise Unreadable
    return call.args[0] if call.args else named[0]


def _names_of_function(
    name: ast.expr, function: ast.FunctionDef, module: ast.Module, constants: Values
) -> Iterator[str]:
    """The names that a function gives a kernel, one for each call of the function; it is not used elsewhere."""
    uses = [node for node in ast.walk(module) if isinstance(node, ast.Name) and node.id == function.name]
    calls = [node for node in ast.walk(module) if isinstance(node, ast.Call) and node.func in uses]
    parameters = [argument.arg for argument in function.args.args]
    if not calls or len(calls) < len(uses) or _stored(function) & set(parameters):
        raise Unreadable
    for call in calls:
        given = dict(zip(parameters, call.args, strict=False))
        given |= {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
        used = [node.id for node in ast.walk(name) if isinstance(node, ast.Name) and node.id in given]
        yield _text(name, {**constants, **{key: _text(given[key], constants) for key in used}})


def _stored(node: ast.AST) -> set[str]:
    """Names that are assigned anywhere in a node."""
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}


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


def _text(expression: ast.expr, known: Values) -> str:
    """The value of a string, a known name, or an f-string of these."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return expression.value
    if isinstance(expression, ast.Name) and expression.id in known:
        return known[expression.id]
    if isinstance(expression, ast.JoinedStr):
        return "".join(_text(part, known) for part in expression.values)
    if isinstance(expression, ast.FormattedValue) and expression.conversion == -1 and expression.format_spec is None:
        return _text(expression.value, known)
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
