"""What cannot be drawn, and how a program that draws says so."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path


class FigureError(ValueError):
    """There is nothing to draw; the text says what the records have instead."""


def exit_code(draw: Callable[[], Iterable[Path]]) -> int:
    """Draw and print the paths: 0.  What cannot be drawn or written is said on stderr: 3."""
    try:
        for path in draw():
            print(path)
    except (FigureError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    return 0
