"""What a timed closure calls, as text of Python that a declaration can hold.

Source is looked at, nothing is run: a closure whose body is one expression (`lambda: layer_norm(x, w, eps=1e-5)`), a
partial, or a Timer's statement.  Every name in it must be a tensor that the closure holds, a plain value, or something
that can be imported by its name.  Of anything else nothing is told.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import linecache
import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch

LONGEST = 400
"""Characters of an expression that is told."""

PLAIN = (bool, int, float, str, type(None))

HOMES = ("torch", "torch.nn.functional")
"""Modules in which a built-in function of torch is looked for by its name."""

READ_ONLY = (ast.Call, ast.Name, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.Constant, ast.Tuple, ast.List, ast.keyword)
"""Parts that an expression may have; operators and contexts beside them."""


class Untold(Exception):
    """The expression has something in it that a declaration cannot hold."""


def told(call: Callable[[], Any], tensors: Sequence[torch.Tensor]) -> tuple[str, list[str]]:
    """The expression, with `tensors` as x0, x1, ..., and the modules that it needs; ("", []) where it is not told."""
    writer = _Writer({id(one): f"x{index}" for index, one in enumerate(tensors)})
    try:
        text = writer.of(call)
    except (Untold, OSError, TypeError, SyntaxError, ValueError, AttributeError, RecursionError):
        return "", []
    return (text, sorted(writer.modules)) if len(text) <= LONGEST else ("", [])


def statement_of(call: Callable[[], Any]) -> tuple[str, Mapping[str, Any]] | None:
    """The statement and the names of a Timer's call (`timers.statement`)."""
    return getattr(call, "statement", None)


class _Writer:
    """Writes expressions.  names: of the tensors, by id.  modules: those that it has named."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self.modules: set[str] = set()

    def of(self, call: Callable[[], Any]) -> str:
        """Any closure."""
        if (found := statement_of(call)) is not None:
            text, names = found
            return self._expression(ast.parse(text, mode="eval").body, names)
        if isinstance(call, functools.partial) and not (call.args or call.keywords):
            return self.of(call.func)
        if isinstance(call, functools.partial):
            given = [self.value(one) for one in call.args]
            named = [f"{name}={self.value(one)}" for name, one in call.keywords.items()]
            return f"{self.value(call.func)}({', '.join([*given, *named])})"
        if isinstance(call, FunctionType):
            return self._expression(_body(call), _names(call))
        raise Untold

    def _expression(self, node: ast.expr, names: Mapping[str, Any]) -> str:
        if not isinstance(node, ast.Call | ast.BinOp):
            raise Untold  # a value that is there already
        return ast.unparse(_Replacing(self.value, names, self.modules).visit(copy.deepcopy(node)))

    def value(self, value: Any) -> str:
        if id(value) in self._names:
            return self._names[id(value)]
        if type(value) in PLAIN:
            return repr(value)
        if isinstance(value, torch.dtype):
            return str(value)
        if isinstance(value, tuple | list) and len(value) <= 8:
            inner = ", ".join(map(self.value, value))
            return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
        module, name = importable(value)
        self.modules.add(module)
        return f"{module}.{name}" if name else module


class _Replacing(ast.NodeTransformer):
    """Puts what names stand for in their places."""

    def __init__(self, written: Callable[[Any], str], names: Mapping[str, Any], modules: set[str]) -> None:
        self._written, self._names, self._modules = written, names, modules

    def generic_visit(self, node: ast.AST) -> ast.AST:
        """Whatever else stands there."""
        if not isinstance(node, (*READ_ONLY, ast.operator, ast.unaryop, ast.expr_context)):
            raise Untold
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """A variable."""
        if node.id not in self._names:
            raise Untold
        return ast.parse(self._written(self._names[node.id]), mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """A name in a module, or a method of a tensor."""
        base = self._held(node.value)
        if isinstance(base, ModuleType):
            return ast.parse(self._in_module(base, node.attr), mode="eval").body
        if isinstance(base, torch.Tensor) and callable(getattr(type(base), node.attr, None)):
            return super().generic_visit(node)
        return ast.parse(self._written(getattr(base, node.attr)), mode="eval").body

    def _in_module(self, module: ModuleType, name: str) -> str:
        found = getattr(module, name)
        if not callable(found) or module.__name__ == "__main__":
            return self._written(found)
        self._modules.add(module.__name__)
        return f"{module.__name__}.{name}"

    def _held(self, node: ast.expr) -> Any:
        """What a dotted name stands for."""
        if isinstance(node, ast.Name) and node.id in self._names:
            return self._names[node.id]
        if isinstance(node, ast.Attribute) and isinstance(base := self._held(node.value), ModuleType):
            return getattr(base, node.attr)
        raise Untold


def importable(value: Any) -> tuple[str, str]:
    """(module, dotted name in it) of a function or a class, (module, "") of a module.  Raises Untold."""
    if isinstance(value, ModuleType):
        return value.__name__, ""
    name, home = getattr(value, "__qualname__", ""), getattr(value, "__module__", None)
    for module in (home, *HOMES):
        if module and module != "__main__" and name and "<" not in name:
            found: Any = sys.modules.get(module)
            parts = [name.rpartition(".")[2]] if module in HOMES else name.split(".")
            for part in parts:
                found = getattr(found, part, None)
            if found is value:
                return module, ".".join(parts)
    raise Untold


def _names(function: FunctionType) -> dict[str, Any]:
    """What the names of its code stand for: globals, then cells, then defaults of its parameters."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held = {name: cell.cell_contents for name, cell in cells}
    given = {
        name: one.default
        for name, one in inspect.signature(function).parameters.items()
        if one.default is not one.empty
    }
    return {**function.__globals__, **held, **given}


def _body(function: FunctionType) -> ast.expr:
    """The one expression that a closure is: a lambda's, or what a function with no other statement returns."""
    tree = ast.parse("".join(linecache.getlines(function.__code__.co_filename)))
    places = {place for place in function.__code__.co_positions() if None not in place}
    bodies = [one.body for one in ast.walk(tree) if isinstance(one, ast.Lambda)]
    for node in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef) and one.name == function.__name__):
        said = [one for one in node.body if not _is_text(one)]
        if len(said) == 1 and isinstance(said[0], ast.Return | ast.Expr) and said[0].value is not None:
            bodies.append(said[0].value)
    found = [one for one in bodies if (one.lineno, one.end_lineno, one.col_offset, one.end_col_offset) in places]
    if len(found) != 1:  # another statement beside it, or a lambda within a lambda
        raise Untold
    return found[0]


def _is_text(node: ast.stmt) -> bool:
    """A docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
