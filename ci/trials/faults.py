"""What a trial says was wrong with its node before the run.  Standard library only: nodes that measure read it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any


@dataclasses.dataclass(frozen=True)
class NodeFault:
    """What was wrong with the node before the run.  fatal: its times are not those of a healthy node."""

    kind: str
    text: str
    next_step: str = ""
    fatal: bool = True

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        return f"{self.text}; {self.next_step}" if self.next_step else self.text


def faults_of(data: Mapping[str, Any]) -> tuple[NodeFault, ...]:
    """The problems of a line's `preflight`."""
    rows = data.get("problems") or ()
    return tuple(NodeFault(row["kind"], row["text"], row.get("next_step", ""), row["level"] == "error") for row in rows)


def unfit(faults: Iterable[NodeFault]) -> str:
    """Why no verdict can rest on a trial: what failed its node before the run; "" for a node that was fit."""
    return "; ".join(fault.sentence for fault in faults if fault.fatal)
