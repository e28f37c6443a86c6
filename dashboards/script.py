"""Values as JSON that is safe inside a script, wherever their texts came from."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson

from dashboards.columns import plain

ESCAPED = {character: f"\\u{ord(character):04x}".encode() for character in "<>&\u2028\u2029"}
"""What must not stand in a script as it is; these occur in strings only."""


def script_json(value: Any) -> bytes:
    """JSON in UTF-8 without <, > and &.  NaN, which JSON lacks, is null: a hole in a line of numbers.

    Lone surrogates and NUL become U+FFFD: UTF-8 and HTML cannot carry them.
    """
    try:
        text = orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except orjson.JSONEncodeError:  # lone surrogates, or a type that it does not know
        text = orjson.dumps(_plain(value))
    if b"\\u0000" in text:
        text = orjson.dumps(_plain(value))
    for character, escape in ESCAPED.items():
        text = text.replace(character.encode(), escape)
    return text


def receive(path: str, content: bytes) -> bytes:
    """A data file: a script that hands JSON to the page."""
    return b"Ridgeline.receive(" + script_json(path) + b"," + content + b");\n"


def _plain(value: Any) -> Any:
    """The same with texts that UTF-8 and HTML can carry, and in types that JSON knows."""
    if isinstance(value, str):
        return plain(str(value))
    if isinstance(value, dict):
        return {plain(str(key)): _plain(one) for key, one in value.items()}
    if isinstance(value, (np.generic, np.ndarray)):
        return _plain(value.tolist())
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value
