"""Whether an arm runs the same machine code in every trial of a session.

It comes out of a compiler's cache, which every process of a user can write: a kernel, a compiler that was killed, or a
disk that was full could change what the next trial loads.  Or an arm chooses by chance, as an autotuner does on times;
then its trials are not of one thing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CHANGED = (
    "runs other machine code than in an earlier trial of this session: it chooses by chance, as an autotuner does, or "
    "its compiler's cache was written to meanwhile"
)


class CodesSeen:
    """The digest of the code of every arm, as it was in the first trial that launched it."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str, str], str] = {}

    def look(self, kernel: str, entries: Mapping[str, Any]) -> None:
        """Add a warning for each arm whose code is another now.  entries: by case, of one trial."""
        for case, entry in entries.items():
            for key, arm in entry["arms"].items():
                launch = (kernel, case, key, json.dumps(arm.get("knobs"), sort_keys=True, default=str))
                if (code := arm.get("code_hash")) and self._first.setdefault(launch, code) != code:
                    entry["warnings"].append(f"{key}: {CHANGED}")
