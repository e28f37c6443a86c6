"""Whether an arm runs the same machine code in every trial of a session.

It comes out of a compiler's cache, which every process of a user can write: a kernel, a compiler that was killed, or a
disk that was full could change what the next trial loads.  Or the arm picks its code anew in every process, as an
autotuner does by timing; then its trials time different code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

CHANGED = (
    "its machine code differs from that of an earlier trial of this run: either it picks its code anew in every "
    "process, as an autotuner does by timing, or something wrote to the compiler's cache in between"
)


class CodesSeen:
    """The digest of the code of every arm, as it was in the first trial that launched it."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str, str, str], str] = {}

    def look(self, kernel: str, entries: Mapping[str, Any]) -> None:
        """Add a warning for each arm whose code differs from its first trial.  entries: by case, of one trial."""
        for case, entry in entries.items():
            for key, arm in entry["arms"].items():
                launch = (kernel, case, key, json.dumps(arm.get("knobs"), sort_keys=True, default=str))
                if (code := arm.get("code_hash")) and self._first.setdefault(launch, code) != code:
                    entry["warnings"].append(f"{key}: {CHANGED}")
