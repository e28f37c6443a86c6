"""What an earlier session left in a file of lines, so that the same command goes on where it was stopped."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def objects(path: Path, having: str = "") -> Iterator[dict[str, Any]]:
    """The JSON objects of a file's lines, compressed or not; torn and foreign lines are left out.

    Nothing, if there is no such file.  having: lines without this text are not parsed.  Raises EOFError or
    gzip.BadGzipFile after the last whole line of a compressed file whose end is torn.
    """
    if not path.exists():
        return
    with (gzip.open if path.suffix == ".gz" else open)(path, "rt", encoding="utf-8", errors="replace") as lines:
        for text in lines:
            if having in text:
                yield from _parsed(text)


def of_format(path: Path, form: str, version: int) -> Iterator[dict[str, Any]]:
    """Those of one format and version; raises as objects() does."""
    return (line for line in objects(path) if (line.get("format"), line.get("version")) == (form, version))


def _parsed(text: str) -> list[dict[str, Any]]:
    try:
        value = json.loads(text)
    except ValueError:
        return []
    return [value] if isinstance(value, dict) else []
