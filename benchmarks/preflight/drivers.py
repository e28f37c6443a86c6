"""Questions to the library of a driver, which may lack the function, refuse, or know no answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def answer(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a function says, None if it raises: a failed reading must never end a measurement."""
    try:
        return function(*arguments)
    except Exception:
        return None


def asked(library: Any, name: str, *arguments: Any) -> Any:
    """The answer of one function of a library, None if it is missing or refuses."""
    return answer(lambda: getattr(library, name)(*arguments))
