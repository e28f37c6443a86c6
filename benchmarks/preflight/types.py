"""What is known of a node before a run, and what is wrong with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class GpuFacts:
    """One GPU as drivers and files show it; None or "" where nobody says it.

    address: on the PCI bus, "0000:c1:00.0".  chip_id: PCI device id, four hex digits.  product: its market name in
    kernels.hardware.  compute, memory: partition modes ("SPX", "NPS1"; "MIG").  power_cap_w, power_default_w: watts.
    max_clock_mhz: of the compute units.  clock_limit: why they may not choose their clock themselves.
    corrected, uncorrected: ECC errors since the driver was loaded.  bad_pages: memory pages that wait to be retired.
    links, links_down: XGMI or NVLink.  link_errors: whether one counts errors.  used_bytes, busy_percent: of
    its memory and its time.  processes: who is on it.
    """

    address: str
    name: str = ""
    chip_id: str = ""
    product: str = ""
    compute: str = ""
    memory: str = ""
    power_cap_w: float | None = None
    power_default_w: float | None = None
    max_clock_mhz: int | None = None
    clock_limit: str = ""
    corrected: int | None = None
    uncorrected: int | None = None
    bad_pages: int | None = None
    links: int | None = None
    links_down: int | None = None
    link_errors: bool | None = None
    used_bytes: int | None = None
    busy_percent: int | None = None
    processes: tuple[str, ...] | None = None

    def or_else(self, other: GpuFacts) -> GpuFacts:
        """What this one says, and the other where it says nothing."""
        mine = dataclasses.asdict(self)
        return dataclasses.replace(other, **{key: value for key, value in mine.items() if value not in (None, "")})


@dataclasses.dataclass(frozen=True)
class NodeFacts:
    """The node.  gpus: those of the run.  absent: by library, why it says nothing.

    numa_balancing: the kernel's setting.  iommu_pt: whether iommu=pt was given at boot.  memlock_bytes: how much a
    process may lock, -1 without limit.  shm_bytes, disk_bytes: free in /dev/shm and on each disk that a run writes to.
    """

    gpus: tuple[GpuFacts, ...] = ()
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    numa_balancing: int | None = None
    iommu_pt: bool | None = None
    memlock_bytes: int | None = None
    shm_bytes: int | None = None
    disk_bytes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def compact(self) -> dict[str, Any]:
        """As JSON values: a fact that all GPUs share stands once, one that nobody says is left out."""
        whole = {key: value for key, value in dataclasses.asdict(self).items() if key != "gpus" and value is not None}
        names = [field.name for field in dataclasses.fields(GpuFacts)]
        columns = {name: [getattr(gpu, name) for gpu in self.gpus] for name in names}
        said = {name: values for name, values in columns.items() if any(value not in (None, "") for value in values)}
        listed = {name: [list(v) if isinstance(v, tuple) else v for v in values] for name, values in said.items()}
        shared = {name: v[0] if all(one == v[0] for one in v) else v for name, v in listed.items()}
        return {**whole, "gpus": {"count": len(self.gpus), **shared}}


@dataclasses.dataclass(frozen=True)
class Demand:
    """What the pool says of its machines: the product, and how many GPUs the job has; "" and 0: whatever is there."""

    product: str = ""
    count: int = 0


@dataclasses.dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a machine.  level: "error" fails it, "warning" is kept beside the times.

    why: it matters; "" where the text says it.
    """

    kind: str
    level: Literal["error", "warning"]
    text: str
    next_step: str
    why: str = ""

    def as_json(self) -> dict[str, str]:
        """JSON values, without a reason where there is none."""
        return {name: str(value) for name, value in dataclasses.asdict(self).items() if value or name != "why"}
