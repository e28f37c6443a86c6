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
import functools
import importlib.machinery
import inspect
import itertools
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, FrameType, ModuleType
from typing import Any

SKIPS = "ridgeline_skips"
"""Under this name a module whose functions are decorated has the decorator."""


class CallName(str):
    """NUMBER:FILE:FUNCTION of a call of a function, while it runs: hangs on its frame, as a tracer of nothing."""

    def __call__(self, *_: Any) -> None:
        """As a tracing function of the frame."""


def call_names(frames: Iterable[FrameType], root: str, numbers: itertools.count[int]) -> list[CallName]:
    """Of frames those that are calls of functions.  root: of the checkout, with a separator behind it."""
    names = []
    for frame in frames:
        if not frame.f_code.co_name.startswith("<"):
            if not isinstance(frame.f_trace, CallName):
                frame.f_trace = CallName(f"{next(numbers)}:{_function_address(frame.f_code, root)}")
            names.append(frame.f_trace)
    return names


def _function_address(code: CodeType, root: str) -> str:
    return f"{code.co_filename.removeprefix(root)}:{code.co_qualname}"


class Skips:
    """The decorator of functions of which some calls are not made in a trial.

    rows: (FILE:FUNCTION, how many closures come before, closures inside) of calls that are not wanted.
    passed: gets the closures of a call that is not made.  met: how many closures the script has come to.
    files: absolute paths of what has such functions.
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
        self._names = {place.rpartition(":")[2].rpartition(".")[2] for place in self._places}
        self._root, self._passed, self._met = root, passed, met
        self._returned: dict[str, Any] = {}
        self.files = {os.path.join(root, place.rpartition(":")[0]) for place in self._places}

    def decorated(self, tree: ast.Module, file: str) -> ast.Module:
        """The tree of a file, functions of these names decorated if it is one of the files."""
        for node in ast.walk(tree) if file in self.files else ():
            if isinstance(node, ast.FunctionDef) and node.name in self._names:
                node.decorator_list.append(ast.copy_location(ast.Name(SKIPS, ast.Load()), node))
        return tree

    def __call__(self, function: Any) -> Any:
        place = _function_address(function.__code__, self._root)
        if place not in self._places or inspect.isgeneratorfunction(function):
            return function

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            keys = self._inside.get((place, self._met()))
            if keys and place in self._returned:
                self._passed(keys)
                return copy.deepcopy(self._returned[place])
            returned = function(*args, **kwargs)
            try:
                self._returned[place] = blank(returned)
            except NotPlain:
                self._returned.pop(place, None)
            return returned

        return called


class NotPlain(Exception):
    """A value is more than data."""


def blank(value: Any) -> Any:
    """A copy of plain data with nan in place of every number with a point.  Raises NotPlain."""
    if isinstance(value, float):
        return math.nan
    if value is None or isinstance(value, (int, str)):
        return value
    if type(value) is dict:
        return {key: blank(held) for key, held in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(blank, value))
    raise NotPlain


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
