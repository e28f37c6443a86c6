"""First contact with a node: its steps, the rows that they give, and the place of a rank in one.

`python -m benchmarks.bringup` starts every step in processes of its own, with a deadline; `probes` runs in them.
Standard library only: both sides import this.
"""

from __future__ import annotations

import dataclasses
import enum

from benchmarks.shapes import JsonObject

STEPS = ("heap", "fences", "rccl", "backend")
"""heap: peer access, allocate, write to each peer; fences: 1 million messages per pair of GPUs; rccl: an all-gather of
RCCL or NCCL; backend: every baseline and backend in one case.  All but `backend` are functions of
benchmarks.bringup.probes, one process per GPU."""


class RowStatus(enum.StrEnum):
    """What became of one thing that was looked at; the status of a step is the first that one of its rows has."""

    FAIL = "fail"
    PASS = "pass"
    NOT_HERE = "not here"


Row = JsonObject
"""A line of the report: name, status, text, next_step and detail ("" for none)."""


def row(name: str, status: RowStatus, text: str, next_step: str = "", detail: str = "") -> Row:
    """A row."""
    return {"name": name, "status": str(status), "text": text, "next_step": next_step, "detail": detail}


def verdict_row(name: str, text: str, problem: str, next_step: str) -> Row:
    """A row that fails with a problem, and passes without."""
    return row(name, RowStatus.FAIL, f"{text}: {problem}", next_step) if problem else row(name, RowStatus.PASS, text)


@dataclasses.dataclass(frozen=True)
class RankPlace:
    """device: "cuda:0" or "cpu".  store: file in which ranks meet.  heap_directory: for heaps of a CPU."""

    rank: int
    world: int
    device: str
    store: str
    heap_directory: str

    @property
    def is_gpu(self) -> bool:
        """Whether it has a GPU."""
        return self.device != "cpu"
