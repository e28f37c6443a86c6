"""The steps of the bring-up: what each looks at, is told and gives, and what to do when its process fails."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from benchmarks.plan import UsageError


class Needs(enum.Enum):
    """What must be there before a step is tried."""

    TORCH = enum.auto()
    RANKS = enum.auto()  # one process per GPU, two on a machine without one
    LINKS = enum.auto()  # one process per GPU, and two GPUs


@dataclasses.dataclass(frozen=True)
class BringupStep:
    """One step.  probe: a function of benchmarks.bringup.probes.  if_lost: what to do when it crashes or hangs.

    expected_s: on 2 H200 (2026-11), shown by --dry-run.  deadline_s: after which it counts as hanging.
    in_parts: it gives several results, NAME/PART.  after: not tried if this step failed.
    """

    name: str
    about: str
    probe: str
    needs: Needs
    expected_s: float
    deadline_s: float
    if_lost: str
    in_parts: bool = False
    after: str = ""

    def has(self, name: str) -> bool:
        """Whether a result of that name is of this step: its own, or that of a part."""
        return name == self.name or (self.in_parts and name.startswith(f"{self.name}/"))


ONLY = "run this step alone: `ridgeline bringup --only {step}`"
LINKS = f"check the links (`amd-smi topology`, `nvidia-smi topo -m`) and {ONLY}"
ALONE = f"read `detail` in the JSON, and {ONLY}"

HOMES = ("torch", "ipc")
"""Homes of the symmetric heap on GPUs: kernels.symmetric_heap.CHOICES but for `auto`."""


def of_home(home: str) -> tuple[BringupStep, BringupStep]:
    """The steps that try one home of the heap."""
    heap, fences = f"heap in {home} memory: write, order, rate", f"1 million messages per pair, {home} memory"
    return (
        BringupStep(f"heap/{home}", heap, "heap", Needs.LINKS, 10, 120, LINKS),
        BringupStep(f"fences/{home}", fences, "fences", Needs.LINKS, 10, 120, LINKS, after=f"heap/{home}"),
    )


FIXED = (
    BringupStep("heap", "symmetric heap: peer access, allocate, map", "heap", Needs.RANKS, 10, 120, LINKS),
    *(step for home in HOMES for step in of_home(home)),
    BringupStep("rccl", "RCCL or NCCL: an all-gather", "all_gather", Needs.RANKS, 6, 120, LINKS),
)
"""Every step but the backends."""

BACKENDS = BringupStep(
    "backend", "every baseline and backend, one case", "", Needs.TORCH, 120, float("inf"), ALONE, True
)
"""No probe: it is benchmarks.bringup.run, where each backend has processes and a deadline of its own.  One result
for each kernel, backend/KERNEL."""


def all_steps() -> list[BringupStep]:
    """Every step, in order; the slowest is last."""
    return [*FIXED, BACKENDS]


def choose(only: Sequence[str], skip: Sequence[str]) -> list[BringupStep]:
    """The steps asked for, in order; `fences` stands for all of fences/*.  UsageError lists the names."""
    steps = all_steps()
    for name in (*only, *skip):
        if not any(_means(name, step) for step in steps):
            raise UsageError(f"no step {name!r}; known: {', '.join(step.name for step in steps)}")
    wanted = [step for step in steps if not only or any(_means(name, step) for name in only)]
    left = [step for step in wanted if not any(_means(name, step) for name in skip)]
    if not left:
        raise UsageError("--only and --skip together leave no step")
    return left


def _means(name: str, step: BringupStep) -> bool:
    return name in (step.name, step.name.partition("/")[0])


# What a step of the bring-up found: rows, as they travel between processes and stand in the report.


TEXT_CHARACTERS, DETAIL_CHARACTERS = 600, 1500
"""How much of a sentence, and of a traceback or log, is kept."""


class RowStatus(enum.StrEnum):
    """What became of one thing that was looked at."""

    PASS = "pass"
    FAIL = "fail"
    NOT_HERE = "not here"


WORST_FIRST = (RowStatus.FAIL, RowStatus.PASS, RowStatus.NOT_HERE)
"""The status of a step is the first of these that one of its rows has."""


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the report.  name: what was looked at.  next_step: "" where there is nothing to do.

    numbers: value and unit by name.  detail: the end of a traceback or log.
    """

    name: str
    status: RowStatus
    text: str
    next_step: str = ""
    numbers: Mapping[str, tuple[float, str]] = dataclasses.field(default_factory=dict)
    detail: str = ""

    def as_json(self) -> dict[str, Any]:
        """JSON values, of bounded size; a number that is not finite is left out."""
        numbers = {
            name: {"value": float(f"{value:.4g}"), "unit": unit}
            for name, (value, unit) in self.numbers.items()
            if math.isfinite(value)
        }
        return {
            "name": self.name,
            "status": str(self.status),
            "text": self.text[:TEXT_CHARACTERS],
            "next_step": self.next_step[:TEXT_CHARACTERS],
            "numbers": numbers,
            "detail": self.detail[-DETAIL_CHARACTERS:],
        }


def passed(name: str, text: str, next_step: str = "", **numbers: tuple[float, str]) -> Row:
    """A row of what works.  numbers: name=(value, unit)."""
    return Row(name, RowStatus.PASS, text, next_step, numbers)


def failed(name: str, text: str, next_step: str, detail: str = "", **numbers: tuple[float, str]) -> Row:
    """A row of what does not."""
    return Row(name, RowStatus.FAIL, text, next_step, numbers, detail)


def not_here(name: str, text: str, next_step: str = "") -> Row:
    """A row of what this machine does not have; text says why."""
    return Row(name, RowStatus.NOT_HERE, text, next_step)


def status_of(rows: Iterable[Mapping[str, Any]]) -> RowStatus:
    """The status of a step by its rows; one without rows is not here."""
    found = {row["status"] for row in rows}
    return next((status for status in WORST_FIRST if status in found), RowStatus.NOT_HERE)


# What a step is told about the machine and its own place on it.


@dataclasses.dataclass(frozen=True)
class StepContext:
    """devices, environment: worker.probe of this Python.  step: its name.  checkout: the tree whose kernels are tried.

    rank, world, device: place among the ranks.  store: file in which ranks meet.  heap_directory: for CPU heaps.
    """

    step: str
    checkout: str
    devices: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    rank: int = 0
    world: int = 1
    device: str = "cpu"
    store: str = ""
    heap_directory: str = ""

    @property
    def part(self) -> str:
        """What follows the slash in the name of the step: a home of the heap."""
        return self.step.partition("/")[2]

    @property
    def gpu(self) -> bool:
        """Whether torch sees a GPU."""
        return bool(self.devices)

    @property
    def amd(self) -> bool:
        """Whether its GPUs are AMD's."""
        return self.gpu and str(self.devices[0]["arch"]).startswith("gfx")
