"""Errors of other libraries as one sentence."""

from __future__ import annotations


def first_line(error: BaseException) -> str:
    """The first line of the error's text, or its type where it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
