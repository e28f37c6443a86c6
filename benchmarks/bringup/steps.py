"""The steps of the bring-up: what each looks at, is told and gives, and what to do when its process fails."""

from __future__ import annotations

import dataclasses
import enum
import importlib.metadata
import importlib.util
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.plan import UsageError


class Needs(enum.Enum):
    """What must be there before a step is tried."""

    NOTHING = enum.auto()
    TORCH = enum.auto()
    GPU = enum.auto()
    RANKS = enum.auto()  # one process per GPU, two on a machine without one
    LINKS = enum.auto()  # one process per GPU, and two GPUs


@dataclasses.dataclass(frozen=True)
class BringupStep:
    """One step.  probe: module:function of benchmarks.bringup.probes.  if_lost: what to do when it crashes or hangs.

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


DRIVER = "read the kernel's log (`dmesg | tail -50`) and the driver's tool (`amd-smi list`, `nvidia-smi`)"
ONLY = "run this step alone: `ridgeline bringup --only {step}`"
LINKS = f"check the links (`amd-smi topology`, `nvidia-smi topo -m`) and {ONLY}"
ALONE = f"read `detail` in the JSON, and {ONLY}"

HOMES = ("torch", "ipc")
"""Homes of the symmetric heap on GPUs: kernels.symmetric_heap.CHOICES but for `auto`."""


def of_home(home: str) -> tuple[BringupStep, BringupStep]:
    """The steps that try one home of the heap."""
    heap, fences = f"heap in {home} memory: write, order, rate", f"1 million messages per pair, {home} memory"
    return (
        BringupStep(f"heap/{home}", heap, "devices:heap", Needs.LINKS, 10, 120, LINKS),
        BringupStep(f"fences/{home}", fences, "devices:fences", Needs.LINKS, 10, 120, LINKS, after=f"heap/{home}"),
    )


FIXED = (
    BringupStep(
        "machine", "GPUs, partitions, space, sensors, limits: what the doctor says", "machine:machine", Needs.NOTHING,
        5, 180, DRIVER,
    ),
    BringupStep("torch", "torch: build, a product on each GPU", "software:torch_build", Needs.NOTHING, 6, 180, DRIVER),
    BringupStep("triton", "Triton: version, a kernel on each GPU", "software:triton_build", Needs.GPU, 7, 180, DRIVER),
    BringupStep("timer", "resolution of the timers", "devices:timer", Needs.TORCH, 5, 60, DRIVER),
    BringupStep("graph", "graph capture and replay", "devices:graph", Needs.GPU, 5, 90, DRIVER),
    BringupStep("heap", "symmetric heap: peer access, allocate, map", "devices:heap", Needs.RANKS, 10, 120, LINKS),
    *(step for home in HOMES for step in of_home(home)),
    BringupStep("rccl", "RCCL or NCCL: an all-gather", "devices:all_gather", Needs.RANKS, 6, 120, LINKS),
)  # fmt: skip
"""Every step but the vendor packages and the backends."""

BACKENDS = BringupStep(
    "backend", "every baseline and backend, one case", "", Needs.TORCH, 120, float("inf"), ALONE, True
)
"""No probe: it is benchmarks.bringup.run, where each backend has processes and a deadline of its own.  One result
for each kernel, backend/KERNEL."""


def all_steps() -> list[BringupStep]:
    """Every step, in order; the slowest is last."""
    packages = [
        BringupStep(
            f"package/{one.name}", one.about, "software:package", Needs.NOTHING, 1, 120,
            f"{one.about} cannot be measured; reinstall {one.distributions[0]} for this torch, or pip uninstall it",
        )
        for one in PACKAGES
    ]  # fmt: skip
    return [*FIXED, *packages, BACKENDS]


def choose(only: Sequence[str], skip: Sequence[str]) -> list[BringupStep]:
    """The steps asked for, in order; `package` stands for all of package/*.  UsageError lists the names."""
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
    root: where /sys, /proc and /dev are found.
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
    root: str = "/"

    @property
    def part(self) -> str:
        """What follows the slash in the name of the step: a home, a package."""
        return self.step.partition("/")[2]

    @property
    def gpu(self) -> bool:
        """Whether torch sees a GPU."""
        return bool(self.devices)

    @property
    def amd(self) -> bool:
        """Whether its GPUs are AMD's."""
        return self.gpu and str(self.devices[0]["arch"]).startswith("gfx")


# Packages that baselines call, by the name they are imported under.  Standard library only.
#
# What a baseline needs of a package is the business of kernels/*/vendors.py; here stands only how to find and name it.


@dataclasses.dataclass(frozen=True)
class VendorPackage:
    """name: its top module.  module: what is imported.  distributions: whose installation brings the right one.

    vendor: "amd", "nvidia", or "" for both.  about: what it is.
    """

    name: str
    module: str
    distributions: tuple[str, ...]
    vendor: str
    about: str


PACKAGES = (
    VendorPackage("aiter", "aiter", ("amd-aiter",), "amd", "aiter (MXFP4 MoE)"),
    VendorPackage("flydsl", "flydsl", ("flydsl",), "amd", "FlyDSL (MXFP4 MoE)"),
    VendorPackage("primus_turbo", "primus_turbo.pytorch", ("primus_turbo",), "amd", "Primus-Turbo (CK grouped GEMM)"),
    VendorPackage("grouped_gemm", "grouped_gemm.backend", ("grouped_gemm",), "", "grouped_gemm (gmm)"),
    VendorPackage(
        "triton_kernels", "triton_kernels", ("tokenspeed-triton-kernels", "triton-kernels"), "nvidia",
        "triton_kernels (MXFP4 MoE)",
    ),
    VendorPackage("humming", "humming", ("humming-kernels",), "nvidia", "humming (MXFP4 MoE)"),
)  # fmt: skip
"""Names on PyPI and of the wheels of ROCm/aiter, ROCm/FlyDSL, AMD-AGI/Primus-Turbo, tgale96/grouped_gemm (2026-11)."""


def package_of(name: str) -> VendorPackage:
    """The package of that name."""
    return next(one for one in PACKAGES if one.name == name)


def is_installed(package: VendorPackage) -> bool:
    """Whether its top module can be found; imports nothing."""
    try:
        return importlib.util.find_spec(package.name) is not None
    except (ImportError, ValueError):
        return False


def installed_packages() -> dict[str, str]:
    """Version by distribution of those that are there, under their own names."""
    return dict(_installed())


def _installed() -> Iterator[tuple[str, str]]:
    brought = importlib.metadata.packages_distributions()
    for package in PACKAGES:
        for name in dict.fromkeys(brought.get(package.name, ())):
            yield name, importlib.metadata.version(name)
