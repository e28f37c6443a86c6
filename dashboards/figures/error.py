"""What cannot be drawn."""

from __future__ import annotations


class FigureError(ValueError):
    """There is nothing to draw; the text says what the records have instead."""
