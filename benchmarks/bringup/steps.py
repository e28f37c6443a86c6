"""The steps of the bring-up: what each looks at, how long it takes, and what to do when its process fails."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Sequence

from benchmarks.bringup.vendor_packages import PACKAGES
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
        BringupStep(f"heap/{home}", heap, "heap:heap", Needs.LINKS, 10, 120, LINKS),
        BringupStep(f"fences/{home}", fences, "fences:fences", Needs.LINKS, 10, 120, LINKS, after=f"heap/{home}"),
    )


FIXED = (
    BringupStep(
        "machine", "GPUs, partitions, space, sensors, limits: what the doctor says", "machine:machine", Needs.NOTHING,
        5, 180, DRIVER,
    ),
    BringupStep("torch", "torch: build, a product on each GPU", "software:torch_build", Needs.NOTHING, 6, 180, DRIVER),
    BringupStep("triton", "Triton: version, a kernel on each GPU", "software:triton_build", Needs.GPU, 7, 180, DRIVER),
    BringupStep("timer", "resolution of the timers", "timing:timer", Needs.TORCH, 5, 60, DRIVER),
    BringupStep("graph", "graph capture and replay", "timing:graph", Needs.GPU, 5, 90, DRIVER),
    BringupStep("heap", "symmetric heap: peer access, allocate, map", "heap:heap", Needs.RANKS, 10, 120, LINKS),
    *(step for home in HOMES for step in of_home(home)),
    BringupStep("rccl", "RCCL or NCCL: an all-gather", "rccl:all_gather", Needs.RANKS, 6, 120, LINKS),
)  # fmt: skip
"""Every step but the vendor packages and the backends."""

BACKENDS = BringupStep(
    "backend", "every baseline and backend, one case", "", Needs.TORCH, 120, float("inf"), ALONE, True
)
"""No probe: it is benchmarks.bringup.backends, where each backend has processes and a deadline of its own.  One result
for each kernel, backend/KERNEL."""


def all_steps() -> list[BringupStep]:
    """Every step, in order; the slowest is last."""
    packages = [
        BringupStep(
            f"package/{one.name}", one.about, "packages:package", Needs.NOTHING, 1, 120,
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
