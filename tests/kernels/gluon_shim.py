"""Gluon's language for Triton's interpreter, which knows none: layouts are dropped, the rest is Triton's own.

It serves kernels that only load, store, compute and use atomics.  What a layout does to speed, and that a tile fits
it, is not seen here: the compiler checks that (tests/kernels/test_compiled.py).
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.experimental import gluon


class Language(types.ModuleType):
    """triton.experimental.gluon.language; names are looked up late, when the interpreter has put its own in place."""

    constexpr = tl.constexpr

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(tl, name)

    @staticmethod
    def arange(start: int, end: int, layout: Any = None) -> Any:
        return tl.arange(start, end)

    @staticmethod
    def full(shape: Any, value: Any, dtype: Any, layout: Any = None) -> Any:
        return tl.full(shape, value, dtype)

    @staticmethod
    def barrier() -> None:
        tl.debug_barrier()

    @staticmethod
    def BlockedLayout(*parts: Any) -> tuple[Any, ...]:
        return parts


def jit(function: Any = None, **options: Any) -> Any:
    """gluon.jit; the interpreter looks for triton.language in a function's globals, and for its constexpr."""
    if function is None:
        return lambda given: jit(given, **options)
    function.__globals__.setdefault("tl", tl)
    kernel = triton.jit(function, **options)
    kernel.rewrite().__annotations__ = dict.fromkeys(function.__annotations__, "tl.constexpr")
    return kernel


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Kernels that are imported inside take the shim for Gluon."""
    originals = gluon.jit, gluon.language
    gluon.jit, gluon.language = jit, Language("language")
    try:
        yield
    finally:
        gluon.jit, gluon.language = originals
