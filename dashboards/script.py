"""Values as JSON that is safe inside a script, wherever their texts came from."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dashboards.columns import plain


def script_json(value: Any) -> bytes:
    """JSON in ASCII without <, > and &.  Arrays are lists, in which NaN is null; elsewhere NaN is an error.

    Lone surrogates and NUL become U+FFFD: UTF-8 and HTML cannot carry them.
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), default=_line)
    if "\\u0000" in text or "\\ud" in text:
        text = json.dumps(_plain(value), allow_nan=False, separators=(",", ":"), default=_line)
    for character in "<>&":  # these occur in strings only; non-ASCII is escaped already
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("ascii")


def _line(line: np.ndarray) -> list[float | None]:
    return [None if value != value else value for value in line.tolist()]


def _plain(value: Any) -> Any:
    """The same with texts that UTF-8 and HTML can carry."""
    if isinstance(value, str):
        return plain(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(one) for key, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
