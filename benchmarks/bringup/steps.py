"""The steps of the bring-up, the rows that they give, and the place of a rank in one."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Sequence
from typing import Any

from benchmarks.plan import UsageError


@dataclasses.dataclass(frozen=True)
class BringupStep:
    """probe: a function of benchmarks.bringup.probes, which runs in one process per GPU, or in two without one.

    expected_s: on 2 H200 (2026-11), shown by --dry-run.  deadline_s: after which it counts as hanging.
    """

    name: str
    about: str
    probe: str
    expected_s: float
    deadline_s: float
    needs_gpus: bool = False


BACKEND = "backend"
"""The last step, whose arms have processes and deadlines of their own (run.tried_backends)."""

STEPS = (
    BringupStep("heap", "symmetric heap: peer access, allocate, write to each peer", "heap", 15, 120),
    BringupStep("fences", "1 million messages per pair of GPUs, with and without fences", "fences", 10, 120, True),
    BringupStep("rccl", "RCCL or NCCL: an all-gather", "all_gather", 6, 120),
    BringupStep(BACKEND, "every baseline and backend, one case", "", 120, math.inf),
)


def chosen_steps(only: Sequence[str], skip: Sequence[str]) -> list[BringupStep]:
    """The steps asked for, in order.  UsageError lists the names."""
    names = [step.name for step in STEPS]
    if unknown := [name for name in (*only, *skip) if name not in names]:
        raise UsageError(f"no step {unknown[0]!r}; the steps are {', '.join(names)}")
    steps = [step for step in STEPS if (not only or step.name in only) and step.name not in skip]
    if not steps:
        raise UsageError("--only and --skip together leave no step")
    return steps


class RowStatus(enum.StrEnum):
    """What became of one thing that was looked at; the status of a step is the first that one of its rows has."""

    FAIL = "fail"
    PASS = "pass"
    NOT_HERE = "not here"


TEXT_CHARACTERS, DETAIL_CHARACTERS = 600, 1500
"""How much of a sentence, and of a traceback or log, is kept."""

Row = dict[str, Any]
"""A line of the report: name, status, text, next_step ("" for none), numbers ({name: {value, unit}}), detail."""


def row(
    name: str, status: RowStatus, text: str, next_step: str = "", detail: str = "", **numbers: tuple[float, str]
) -> Row:
    """A row of bounded size.  numbers: name=(value, unit); one that is not finite is left out."""
    finite = {key: (value, unit) for key, (value, unit) in numbers.items() if math.isfinite(value)}
    return {
        "name": name,
        "status": str(status),
        "text": text[:TEXT_CHARACTERS],
        "next_step": next_step[:TEXT_CHARACTERS],
        "numbers": {key: {"value": float(f"{value:.4g}"), "unit": unit} for key, (value, unit) in finite.items()},
        "detail": detail[-DETAIL_CHARACTERS:],
    }


def verdict_row(name: str, text: str, problem: str, next_step: str, **numbers: tuple[float, str]) -> Row:
    """A row that fails with a problem, and passes without."""
    if problem:
        return row(name, RowStatus.FAIL, f"{text}: {problem}", next_step, **numbers)
    return row(name, RowStatus.PASS, text, **numbers)


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
