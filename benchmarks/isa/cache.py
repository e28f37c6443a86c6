"""Compiled results by content: one JSON record per compilation, and code texts named by their own digest.

Safe to delete and to share between trees, processes and versions of Triton: the key covers all that decides the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .readers.code import digest

READERS = (
    *(f"readers/{name}.py" for name in ("code", "amd", "nvidia", "provenance", "drains")),
    "compile.py",
    "cache.py",
)
"""Files of this package that turn code into a record: a change to one of them changes every key."""


class Cache:
    """A folder of records (`<key>.json`) and code texts (`<digest>.s`)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def load(self, key: str) -> dict[str, Any] | None:
        """The record, or None if it is not there, torn, or its code text is gone or changed."""
        try:
            record = json.loads((self.folder / f"{key}.json").read_text())
            text = (self.folder / record["asm"]).read_text() if record.get("asm") else None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return record if text is None or f"{digest(text)}.s" == record["asm"] else None

    def store(self, key: str, record: dict[str, Any], text: str | None) -> dict[str, Any]:
        """Keep a record and its code text; returns the record with `asm`, the name of the text's file."""
        record = record | {"asm": f"{digest(text)}.s" if text is not None else None}
        if text is not None:
            self.write(record["asm"], text)
        self.write(f"{key}.json", json.dumps(record))
        return record

    def write(self, name: str, text: str) -> None:
        """A file of the folder, whole or not at all."""
        descriptor, temporary = tempfile.mkstemp(dir=self.folder, prefix=".writing-")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(temporary, self.folder / name)


def readers_digest() -> str:
    """Digest of the code that makes records: part of every key."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in READERS)).hexdigest()[:16]


def key_of(parts: dict[str, Any]) -> str:
    """The key of a record: a digest of everything that decides it, as JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]
