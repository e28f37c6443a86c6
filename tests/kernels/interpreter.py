"""Triton's interpreter for tests, without work that it does again and again.

It patches triton.language at the start of a launch, and at every call of a function that is no kernel once more, which
finds everything patched already: 40 % of the time of a kernel that calls many.  Triton 3.6 to 3.9.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def patch_once() -> None:
    """Within a launch, patch each module of the language once.  In a process that interprets."""
    from triton import language
    from triton.runtime import interpreter

    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched: set[frozenset[str]] = set()

    def patch_new(function: Callable[..., Any]) -> Any:
        found = [value for value in function.__globals__.values() if inspect.ismodule(value)]
        seen = frozenset(one.__name__ for one in found if one in (language, language.core))
        if seen in patched:
            return None  # what a nested call would put back; it never does
        patched.add(seen)
        return patch(function)

    def launch_anew(executor: Any, *arguments: Any, **named: Any) -> Any:
        patched.clear()
        return launch(executor, *arguments, **named)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_new, launch_anew
