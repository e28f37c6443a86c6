"""Which code one call of a script's closure runs, as a digest that is equal for equal code on both sides.

Three things are in it: the Python functions of the checkout that run (bytecode without lines, and the plain values of
the globals that they name), what they launch (code_hash: Triton kernels, grids, arguments, operations of torch), and
the shared libraries of the checkout that the process has loaded.  torch, Triton and what else is installed are those of
the machine: whoever compares two digests holds the environments against each other.

There is no digest where code runs that cannot be seen from here: graphs that were captured or compiled before, and
functions of other packages' C code.  Such a closure is timed.
"""

from __future__ import annotations

import contextlib
import enum
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import torch

from .. import code_hash
from ..ran import mapped

KNOWN_C = frozenset(
    {*sys.stdlib_module_names, "torch", "triton", "numpy", "__triton_launcher", "cuda_utils", "hip_utils"}
)
"""Packages whose C functions do what their arguments say; of others' nobody here knows what they launch.  The last
three are what Triton compiles for its launches (3.6 to 3.9)."""

COMPILED = (f"torch{os.sep}_functorch{os.sep}", f"torch{os.sep}_inductor{os.sep}", "torchinductor_")
"""In the path of a file that runs when a compiled graph does."""

DEEPEST, MOST = 3, 200
"""Of a container among the globals: levels, and elements of each, that count."""


class Watch:
    """What ran in one call.  owns: whether a file is the user's."""

    def __init__(self, owns: Callable[[str], bool]) -> None:
        self._owns = owns
        self._functions: dict[CodeType, dict[str, Any]] = {}
        self.unseen = ""

    def __call__(self, frame: FrameType, event: str, given: Any) -> None:
        """The profiling function of the interpreter."""
        if event == "call":
            file = frame.f_code.co_filename
            if any(part in file for part in COMPILED):
                self.unseen = "a compiled graph"
            elif frame.f_code not in self._functions and self._owns(file):
                self._functions[frame.f_code] = frame.f_globals
        elif event == "c_call":
            self._hear(given)

    def _hear(self, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        if getattr(function, "__name__", "") == "replay" and isinstance(owner, torch.cuda.CUDAGraph):
            self.unseen = "a captured graph"
        package = str(getattr(function, "__module__", None) or type(owner).__module__).partition(".")[0]
        if package not in KNOWN_C:
            self.unseen = f"{package}.{getattr(function, '__name__', 'a function')}"

    def functions(self) -> list[Any]:
        """Every function once, in the order of their first calls."""
        return [[_code(code), _named(code, held)] for code, held in self._functions.items()]


@contextlib.contextmanager
def watched(owns: Callable[[str], bool]) -> Iterator[Watch]:
    """Watch this thread inside; a backward pass runs in it, too."""
    watch, before = Watch(owns), sys.getprofile()
    with torch.autograd.set_multithreading_enabled(False):
        sys.setprofile(watch)
        try:
            yield watch
        finally:
            sys.setprofile(before)


def digest(call: Callable[[], Any], owns: Callable[[str], bool], checkout: str, results: str) -> str:
    """16 hex digits of what two calls run, one watched and one traced; "" where some of it cannot be seen.

    results: what the call computes, where equal calls give equal bits.
    """
    if any(name in sys.modules for name in code_hash.LAUNCHERS):
        return ""
    with watched(owns) as watch:
        call()
    if watch.unseen:
        return ""
    with torch.autograd.set_multithreading_enabled(False), code_hash.traced() as trace:
        call()
    seen = [watch.functions(), trace.events, libraries(checkout), results]
    return hashlib.sha256(json.dumps(seen, sort_keys=True).encode()).hexdigest()[:16]


def libraries(checkout: str) -> list[str]:
    """Digests of the shared libraries below a folder that are loaded."""
    root = checkout.rstrip(os.sep) + os.sep
    return sorted(_of_file(file) for file in set(mapped((root,))) if ".so" in os.path.basename(file))


def _of_file(path: str) -> str:
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return f"{path} cannot be read"


def _code(code: CodeType) -> list[Any]:
    """What a function does, without lines, files and its docstring."""
    constants = [_constant(one) for one in code.co_consts]
    documented = bool(constants) and isinstance(code.co_consts[0], str) and code.co_name[:1] != "<"
    constants = ["a docstring", *constants[1:]] if documented else constants
    return [code.co_name, code.co_code.hex(), constants, code.co_names, code.co_varnames, code.co_freevars]


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _code(value)
    return sorted(map(repr, value)) if isinstance(value, frozenset) else repr(value)


def _named(code: CodeType, held: dict[str, Any]) -> dict[str, Any]:
    """The plain values of the globals that a function's code names."""
    found = {name: _plain(held[name], DEEPEST) for name in code.co_names if name in held}
    return {name: value for name, value in found.items() if value is not None}


def _plain(value: Any, depth: int) -> Any:
    if isinstance(value, (bool, int, float, complex, str, bytes, enum.Enum, torch.dtype)):
        return repr(value)
    if isinstance(value, (tuple, list)) and depth:
        return [_plain(one, depth - 1) for one in value[:MOST]]
    if isinstance(value, dict) and depth:
        return [[repr(key), _plain(one, depth - 1)] for key, one in list(value.items())[:MOST] if isinstance(key, str)]
    return None
