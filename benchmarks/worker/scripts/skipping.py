"""Calls of a script's functions that a trial need not make: of what they time, nothing is wanted.

What such a function builds before its timers, a model, inputs, a compiled graph, often takes longer than a trial of one
closure.  The survey notes in which calls of the script's functions each closure is timed.  In a trial these functions
are wrapped; a call that would come to unwanted closures alone is not made where an earlier one of the same function
returned plain data: it gives the same again, with nan for measured times.

What such a call would have done beside that, for closures behind it, is not done.  So the coordinator holds a wanted
closure's inputs against those of the survey, and where they differ, or the script does not come to it, makes the trial
again with every call.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import functools
import importlib.machinery
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import FrameType, ModuleType
from typing import Any

SKIPS = "ridgeline_skips"
"""Under this name a module whose functions are wrapped has what wraps them."""


class Activation:
    """One call of a function, while it runs: it hangs on the frame.  A tracer may call it, and it traces nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *_: Any) -> None:
        """As a tracing function of the frame."""


class Activations:
    """Tells the calls of a survey apart.  root: of the checkout, with a separator behind it."""

    def __init__(self, root: str) -> None:
        self._root, self._count = root, 0

    def named(self, frames: Sequence[FrameType]) -> list[str]:
        """NUMBER:FILE:FUNCTION of each frame that is a call of a function, outermost first."""
        return [self._of(one) for one in reversed(frames) if not one.f_code.co_name.startswith("<")]

    def _of(self, frame: FrameType) -> str:
        if not isinstance(frame.f_trace, Activation):
            self._count += 1
            place = f"{frame.f_code.co_filename.removeprefix(self._root)}:{frame.f_code.co_qualname}"
            frame.f_trace = Activation(f"{self._count}:{place}")
        return frame.f_trace.name  # type: ignore[union-attr]


class Skips:
    """What a trial does at a call of a wrapped function.

    rows: (FILE:FUNCTION, how many closures come before, closures inside) of calls that are not wanted.
    passed: told of closures that are left out.  met: how many closures the script has come to.
    """

    def __init__(
        self,
        rows: Sequence[tuple[str, int, Sequence[str]]],
        root: str,
        passed: Callable[[Sequence[str]], None],
        met: Callable[[], int],
    ) -> None:
        self._inside = {(place, first): keys for place, first, keys in rows}
        self._places = {place for place, _, _ in rows}
        self._root, self._passed, self._met = root, passed, met
        self._returned: dict[str, Any] = {}

    def files(self) -> set[str]:
        """Absolute paths of what has such functions."""
        return {os.path.join(self._root, place.rpartition(":")[0]) for place in self._places}

    def marked(self, tree: ast.Module, file: str) -> ast.Module:
        """The tree with these functions wrapped."""
        below = file.removeprefix(self._root)
        own = {place.rpartition(":")[2] for place in self._places if place.rpartition(":")[0] == below}
        for name, node in _functions(tree, ""):
            if name in own and not any(isinstance(one, (ast.Yield, ast.YieldFrom)) for one in ast.walk(node)):
                by = ast.Call(ast.Name(SKIPS, ast.Load()), [ast.Constant(f"{below}:{name}")], [])
                node.decorator_list.append(ast.copy_location(by, node))
        return ast.fix_missing_locations(tree)

    def __call__(self, place: str) -> Callable[[Any], Any]:
        """The decorator of a function."""

        def wrapping(function: Any) -> Any:
            @functools.wraps(function)
            def called(*args: Any, **kwargs: Any) -> Any:
                keys = self._inside.get((place, self._met()))
                if keys and place in self._returned:
                    self._passed(keys)
                    return copy.deepcopy(self._returned[place])
                returned = function(*args, **kwargs)
                self._keep(place, returned)
                return returned

            return called

        return wrapping

    def _keep(self, place: str, returned: Any) -> None:
        try:
            self._returned[place] = blank(returned)
        except NotPlain:
            self._returned.pop(place, None)


class NotPlain(Exception):
    """A value is more than data."""


def blank(value: Any) -> Any:
    """A copy of plain data with nan in place of every number with a point.  Raises NotPlain."""
    if isinstance(value, float):
        return math.nan
    if value is None or isinstance(value, (bool, int, str, bytes)):
        return value
    if isinstance(value, dict):
        return {blank(key) if not isinstance(key, float) else key: blank(one) for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(blank, value))
    if type(value) in (list, tuple):
        return type(value)(map(blank, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        made = copy.copy(value)
        for name, one in vars(value).items():
            object.__setattr__(made, name, blank(one))
        return made
    raise NotPlain


def _functions(node: ast.AST, inside: str) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Every function by its qualified name."""
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.FunctionDef):
            yield f"{inside}{one.name}", one
        named = isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        below = "." if isinstance(one, ast.ClassDef) else ".<locals>."
        yield from _functions(one, f"{inside}{one.name}{below}" if named else inside)  # type: ignore[attr-defined]


class RewritingFinder:
    """Finds modules as they are imported whose text is rewritten.

    rewritten: (name, text, file) -> the tree, None for a module that stays as it is.  held: names that the tree uses.
    """

    def __init__(self, rewritten: Callable[[str, bytes, str], ast.Module | None], held: Mapping[str, Any]) -> None:
        self._rewritten, self._held = rewritten, held

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Of one of the files; None leaves all others to the other finders."""
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or not isinstance(spec.loader, SourceFileLoader):
            return None
        file, loader = spec.origin, spec.loader
        try:
            tree = self._rewritten(name, loader.get_data(file), file)
        except SyntaxError:  # whoever imports it is told
            return None
        if tree is None:
            return None

        def execute(module: ModuleType) -> None:
            """Run the rewritten text.  The bytecode cached on disk stays that of the original."""
            vars(module).update(self._held)
            exec(compile(tree, file, "exec"), vars(module))

        loader.exec_module = execute  # type: ignore[method-assign]
        return spec
