"""What a GPU could do at best: peaks, memories, links and occupancy rules, looked up by what the device reports.

A runner label is never consulted: a pool called "mi325" has been seen to hold MI350X.  A device that is not
in :data:`DEVICES`, or that fits several entries, is an :class:`UnknownHardware` that says what was reported.

Sources of the table (read 2026-09): rocm.docs.amd.com "GPU hardware specifications" 7.13 and 10.2; the AMD data
sheets of MI300X, MI325X, MI350X, MI355X; the NVIDIA data sheets of H100, H200 and B200; pci-ids for chip ids; what an
H200 reports (2026-10).  All matrix peaks are dense.  A field named in `unverified` comes from second-hand reports.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from .spec import Case

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
TERA, GIGA = 1e12, 1e9

MEMORY_SLACK = 0.12
"""Relative difference allowed between reported and nominal memory.  Devices report 0.5 to 3 % less than nominal, and
the closest two entries that only memory tells apart (192 and 256 GiB) differ by 33 %."""


class UnknownHardware(ValueError):
    """The device is not in the table, or fits several entries; the text says what was reported and what to add."""


@dataclasses.dataclass(frozen=True)
class Hardware:
    """One GPU product, or a partition of one.

    peak_flops: dense FLOP/s by dtype, of the matrix units (fp32: vector units, as the data sheets give it).
    hbm_bandwidth: bytes/s.  link_bandwidth: bytes/s per direction over all links; peer_bandwidth: to one peer.
    lds_bytes: LDS or shared memory per CU; vgpr_file_bytes: register file per CU; llc_bytes: Infinity Cache, 0 if none.
    waves_per_simd: resident waves (warps) a SIMD (sub-core) can hold; simds: SIMDs per CU; xcds: compute dies.
    partition: share of the product's CUs this device has, 1.0 for a whole one.
    unverified: names of the fields without a first-hand source.
    """

    market_name: str
    arch: str
    compute_units: int
    clock_mhz: int
    peak_flops: Mapping[str, float]
    hbm_bytes: int
    hbm_bandwidth: float
    link_bandwidth: float
    peer_bandwidth: float
    lds_bytes: int
    vgpr_file_bytes: int
    l2_bytes: int
    llc_bytes: int
    wave_size: int
    waves_per_simd: int
    power_w: int
    source: str
    date: str
    simds: int = 4
    xcds: int = 1
    chip_ids: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    unverified: tuple[str, ...] = ()
    partition: float = 1.0

    def peak(self, dtype: str) -> float:
        """Dense FLOP/s for a dtype of a case; an unknown dtype is a ValueError that names the known ones.

        mxfp4 without fp4 matrix units counts at the bf16 peak: there a kernel multiplies dequantised bf16 values.
        """
        name = {"mxfp4": "fp4"}.get(dtype, dtype)
        if name == "fp4" and name not in self.peak_flops:
            name = "bf16"
        if name not in self.peak_flops:
            raise ValueError(
                f"{self.market_name} has no {dtype!r} peak in kernels/hardware.py: DEVICES; "
                f"it has {', '.join(sorted(self.peak_flops))}"
            )
        return self.peak_flops[name]

    def link_to(self, peers: int) -> float:
        """Bytes/s per direction that one device can send to `peers` others at once: a mesh gives one link per peer."""
        return min(self.link_bandwidth, peers * self.peer_bandwidth)


def _peaks(fp16: float, fp8: float, fp32: float, **others: float) -> dict[str, float]:
    """Peaks in TFLOP/s to FLOP/s; bf16 equals fp16 on every device of the table."""
    table = {"fp16": fp16, "bf16": fp16, "fp8": fp8, "fp32": fp32, **others}
    return {dtype: value * TERA for dtype, value in table.items()}


_CDNA3 = Hardware(
    market_name="MI300X",
    arch="gfx942",
    compute_units=304,
    clock_mhz=2100,
    peak_flops=_peaks(1307.4, 2614.9, 163.4, tf32=653.7),
    hbm_bytes=192 * GIB,
    hbm_bandwidth=5.3 * TERA,
    link_bandwidth=448 * GIGA,
    peer_bandwidth=64 * GIGA,
    lds_bytes=64 * KIB,
    vgpr_file_bytes=512 * KIB,
    l2_bytes=32 * MIB,
    llc_bytes=256 * MIB,
    wave_size=64,
    waves_per_simd=8,
    power_w=750,
    xcds=8,
    chip_ids=("74a1", "74b5", "74a9", "74bd"),
    names=("MI300X",),
    source="rocm.docs GPU hardware specifications; AMD MI300X data sheet",
    date="2026-09",
    unverified=("chip_ids 74a9 74bd",),
)

_CDNA4 = dataclasses.replace(
    _CDNA3,
    market_name="MI350X",
    arch="gfx950",
    compute_units=256,
    clock_mhz=2200,
    peak_flops=_peaks(2306.9, 4613.7, 144.2, fp4=9227.0, fp6=9227.0),
    hbm_bytes=288 * GIB,
    hbm_bandwidth=8.0 * TERA,
    link_bandwidth=537.6 * GIGA,
    peer_bandwidth=76.8 * GIGA,
    lds_bytes=160 * KIB,
    power_w=1000,
    chip_ids=("75a0", "75b0"),
    names=("MI350X",),
    source="rocm.docs GPU hardware specifications; AMD MI350X data sheet",
    unverified=("chip_ids 75b0",),
)

_HOPPER = Hardware(
    market_name="H100 SXM",
    arch="sm_90",
    compute_units=132,
    clock_mhz=1980,
    peak_flops=_peaks(989.4, 1978.9, 66.9, tf32=494.7),
    hbm_bytes=80 * GIB,
    hbm_bandwidth=3.35 * TERA,
    link_bandwidth=450 * GIGA,
    peer_bandwidth=450 * GIGA,
    lds_bytes=228 * KIB,
    vgpr_file_bytes=256 * KIB,
    l2_bytes=50 * MIB,
    llc_bytes=0,
    wave_size=32,
    waves_per_simd=16,
    power_w=700,
    chip_ids=("2330",),
    names=("H100 80GB HBM3",),
    source="NVIDIA H100 data sheet and Hopper white paper",
    date="2026-09",
)

DEVICES: tuple[Hardware, ...] = (
    _CDNA3,
    dataclasses.replace(
        _CDNA3,
        market_name="MI308X",
        compute_units=80,
        clock_mhz=1420,
        peak_flops=_peaks(232.7, 465.3, 29.1, tf32=116.3),
        power_w=650,
        l2_bytes=16 * MIB,
        xcds=4,
        chip_ids=("74a2", "74b6"),
        names=("MI308X",),
        source="80 CUs x 2048 FLOP/clk at 1.42 GHz, computed; 4 XCDs: 20 CUs in CPX (rocMLIR PR 2197, 2026-01-06)",
        unverified=("clock_mhz", "peak_flops", "power_w", "chip_ids 74b6", "l2_bytes"),
    ),
    dataclasses.replace(
        _CDNA3,
        market_name="MI325X",
        hbm_bytes=256 * GIB,
        hbm_bandwidth=6.0 * TERA,
        power_w=1000,
        chip_ids=("74a5", "74b9"),
        names=("MI325X",),
        source="rocm.docs GPU hardware specifications; AMD MI325X data sheet",
        unverified=("chip_ids 74b9",),
    ),
    _CDNA4,
    dataclasses.replace(
        _CDNA4,
        market_name="MI355X",
        clock_mhz=2400,
        peak_flops=_peaks(2516.6, 5033.0, 157.3, fp4=10066.0, fp6=10066.0),
        power_w=1400,
        chip_ids=("75a3", "75b3"),
        names=("MI355X",),
        source="rocm.docs GPU hardware specifications; AMD MI355X data sheet",
        unverified=("chip_ids 75b3",),
    ),
    _HOPPER,
    dataclasses.replace(
        _HOPPER,
        market_name="H200 SXM",
        hbm_bytes=141 * GIB,
        hbm_bandwidth=4.8 * TERA,
        l2_bytes=60 * MIB,
        chip_ids=("2335",),
        names=("H200",),
        source="NVIDIA H200 data sheet; 132 SMs, 60 MB L2, 143771 MiB as the device reports",
        date="2026-10",
    ),
    dataclasses.replace(
        _HOPPER,
        market_name="B200",
        arch="sm_100",
        compute_units=148,
        clock_mhz=1965,
        peak_flops=_peaks(2250.0, 4500.0, 75.0, tf32=1100.0, fp4=9000.0, fp6=4500.0),
        hbm_bytes=180 * GIB,
        hbm_bandwidth=8.0 * TERA,
        link_bandwidth=900 * GIGA,
        peer_bandwidth=900 * GIGA,
        l2_bytes=126 * MIB,
        power_w=1000,
        chip_ids=("2901",),
        names=("B200",),
        source="NVIDIA B200 data sheet",
        unverified=("clock_mhz", "tf32", "fp32", "hbm_bytes"),
    ),
)
"""Every device whose peaks we state.  To add one: a new entry, with its source, its date and what is unverified.
The first one of an architecture is assumed where code is compiled without a device (assumed_units)."""

ARCHES = tuple(dict.fromkeys(device.arch for device in DEVICES))
"""Architectures of the table, in its order."""

_SPEAKING_NAME = re.compile(r"\b(MI\d{3}\w*|G?[ABHL]\d{2,3}\w*)\b", re.IGNORECASE)
"""A device name that names a product.  Others ("AMD Radeon Graphics", "") prove nothing."""


def by_market_name(name: str) -> Hardware:
    """The entry with that market name; UnknownHardware lists the known names."""
    for device in DEVICES:
        if device.market_name == name:
            return device
    raise UnknownHardware(
        f"no device {name!r} in kernels/hardware.py: DEVICES; known: {', '.join(d.market_name for d in DEVICES)}"
    )


def lookup(
    device_name: str | None = None,
    arch: str | None = None,
    compute_units: int | None = None,
    chip_id: str | int | None = None,
    memory_bytes: int | None = None,
) -> Hardware:
    """The product that reports this; every value given must agree with it.

    arch: "gfx942", "gfx942:sramecc+:xnack-", "sm_90".  chip_id: PCI device id ("0x74a1", "1002:74a1", NVML's
    0x233510DE).  A device with 1/2, 1/4 or 1/8 of a product's CUs is a partition: peaks, memory, bandwidths and L2
    are scaled to its fair share and `partition` says so.  Raises UnknownHardware if no entry or several fit.
    """
    reported = {"arch": arch, "compute_units": compute_units, "device_name": device_name, "chip_id": chip_id}
    reported |= {"memory_bytes": memory_bytes}
    if arch is None or arch.split(":")[0] not in ARCHES:
        raise _unknown(f"its architecture is not one of {', '.join(ARCHES)}", reported)
    alike = [device for device in DEVICES if device.arch == arch.split(":")[0]]
    fitting = [
        part
        for device in alike
        for part in parts(device, compute_units)
        if _agrees(part, device_name, normal_chip_id(chip_id), memory_bytes)
    ]
    if not fitting:
        raise _unknown(f"none of {', '.join(d.market_name for d in alike)} fits", reported)
    if len(fitting) > 1:
        names = " and ".join(d.market_name for d in fitting)
        raise _unknown(f"it fits {names}; a chip id, the memory size or a device name would tell them apart", reported)
    return fitting[0]


def normal_chip_id(chip_id: str | int | None) -> str | None:
    """A PCI device id as four lower-case hex digits; NVML's 32-bit id carries the device in its upper half."""
    if chip_id is None:
        return None
    try:
        number = chip_id if isinstance(chip_id, int) else int(str(chip_id).lower().split(":")[-1], 16)
    except ValueError:
        return None
    return f"{number >> 16 if number > 0xFFFF else number:04x}"


def parts(device: Hardware, compute_units: int | None) -> list[Hardware]:
    """The device as a whole, or its partition with that many CUs; empty if the count fits neither."""
    if compute_units is None or compute_units == device.compute_units:
        return [device]
    for count in (2, 4, 8):
        if count <= device.xcds and compute_units * count == device.compute_units:
            return [_share(device, count)]
    return []


def _share(device: Hardware, parts: int) -> Hardware:
    """One of `parts` equal partitions, with its fair share of everything that is not per CU."""
    return dataclasses.replace(
        device,
        market_name=f"{device.market_name} (1/{parts} partition)",
        compute_units=device.compute_units // parts,
        peak_flops={dtype: peak / parts for dtype, peak in device.peak_flops.items()},
        hbm_bytes=device.hbm_bytes // parts,
        hbm_bandwidth=device.hbm_bandwidth / parts,
        link_bandwidth=device.link_bandwidth / parts,
        peer_bandwidth=device.peer_bandwidth / parts,
        l2_bytes=device.l2_bytes // parts,
        llc_bytes=device.llc_bytes // parts,
        xcds=device.xcds // parts,
        power_w=device.power_w // parts,
        partition=1 / parts,
    )


def _agrees(device: Hardware, name: str | None, chip_id: str | None, memory: int | None) -> bool:
    """Whether nothing that was reported contradicts this device.  A known chip id outranks the rest."""
    if chip_id is not None and any(chip_id in other.chip_ids for other in DEVICES):
        return chip_id in device.chip_ids
    if name and _SPEAKING_NAME.search(name) and not _names(device, name):
        return False
    return memory is None or any(abs(memory / nominal - 1) < MEMORY_SLACK for nominal in _memories(device))


def _memories(device: Hardware) -> tuple[int, int]:
    """Memory a device may report: its own share, or (a partition in NPS1) that of the whole product."""
    return device.hbm_bytes, round(device.hbm_bytes / device.partition)


def _names(device: Hardware, name: str) -> bool:
    """Whether a reported name is this product's; "NVIDIA H200 NVL" is not an H200 SXM."""
    bare = re.sub(r"^(NVIDIA|AMD)\s+(Instinct\s+)?|\s+(OAM|VF|HF)$", "", name.strip(), flags=re.IGNORECASE)
    bare = re.sub(r".*\[Instinct (\w+)[^\]]*\].*", r"\1", bare)
    return bare.upper() in (known.upper() for known in device.names)


def _unknown(why: str, reported: Mapping[str, Any]) -> UnknownHardware:
    said = ", ".join(f"{key} {value!r}" for key, value in reported.items() if value is not None) or "nothing"
    return UnknownHardware(
        f"unknown device: {why}. It reported: {said}. "
        "Extend the table kernels/hardware.py: DEVICES, with a source and a date."
    )


def lds_limit(arch: str) -> int:
    """Bytes of LDS (shared memory) that one workgroup may use on an architecture.

    gfx942 64 KiB, gfx950 160 KiB (ISA documents); sm_90 and sm_100 227 KiB: 228 KiB less 1 KiB that the
    CUDA runtime keeps (CUDA programming guide, compute capabilities).
    """
    limits = {device.arch: device.lds_bytes - (KIB if device.arch.startswith("sm_") else 0) for device in DEVICES}
    if arch not in limits:
        raise UnknownHardware(
            f"no LDS limit for arch {arch!r}; known: {', '.join(limits)}; extend kernels/hardware.py: DEVICES"
        )
    return limits[arch]


def resident_waves(arch: str, vgprs: int, lds_bytes: int, waves_per_group: int) -> int:
    """Waves per SIMD that registers and LDS allow, 0 if not even one workgroup fits.

    AMD: 512 registers per lane (arch and accumulation VGPRs together), granule 8, LDS granule 512 B (CDNA3) or
    1280 B (CDNA4).  NVIDIA: 65536 registers per SM in granules of 256 per warp, shared memory granule 128 B.
    """
    device = next((d for d in DEVICES if d.arch == arch), None)
    if device is None:
        raise UnknownHardware(f"no occupancy rule for arch {arch!r}; extend kernels/hardware.py: DEVICES")
    per_lane = -(-max(vgprs, 1) // 8) * 8
    file_per_simd = device.vgpr_file_bytes // device.simds // (4 * device.wave_size)
    by_registers = min(device.waves_per_simd, file_per_simd // per_lane) * device.simds // waves_per_group
    granule = {"gfx942": 512, "gfx950": 1280}.get(arch, 128)
    groups = min(by_registers, device.lds_bytes // (-(-max(lds_bytes, 1) // granule) * granule))
    return math.ceil(groups * waves_per_group / device.simds)


def roofline_seconds(cost: Any, dtype: str, hardware: Hardware, world: int | None = None) -> float:
    """The least time of a cost (kernels.spec.Cost, per rank) on one device: max of FLOP/peak, HBM and link time.

    With a world size the link bound is what `world - 1` peers can take at once: on a mesh of xGMI links two ranks
    use one link.  Without one, all links count.
    """
    link = hardware.link_bandwidth if world is None or world < 2 else hardware.link_to(world - 1)
    return max(
        cost.flops / hardware.peak(dtype) if cost.flops else 0.0,
        cost.hbm_bytes / hardware.hbm_bandwidth,
        cost.link_bytes / link if cost.link_bytes else 0.0,
    )


# How many compute units and dies a persistent kernel is spread over: what the device has, not what its product has.
#
# MI308X shares gfx942 with MI300X and has 80 CUs; a partition (DPX, QPX, CPX) is a device with a half, a quarter or an
# eighth of the CUs and as much of the dies.


ON_A_CPU = 4
"""Programs of a persistent kernel in the interpreter."""


def compute_units(case: Case, arch: str) -> int:
    """CUs or SMs of the device on which the case is placed; without one, those that are assumed."""
    if case.place is not None and case.place.compute_units:
        return case.place.compute_units
    return assumed_units(arch)


def assumed_units(arch: str) -> int:
    """CUs or SMs where no device is there to ask: those of the first product of the architecture in DEVICES."""
    return next((device.compute_units for device in DEVICES if device.arch == arch), ON_A_CPU)


def xcds(arch: str, units: int | None = None) -> int:
    """Compute dies of a device with so many CUs, over which the hardware distributes workgroups round robin.

    None: of the product that is assumed.  A count that fits no product and no partition gives 1: programs keep their
    order, which is never wrong.
    """
    count = units or assumed_units(arch)
    found = {part.xcds for device in DEVICES if device.arch == arch for part in parts(device, count)}
    return found.pop() if len(found) == 1 else 1
