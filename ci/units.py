"""Numbers with their units, as people write and read them.

Inside Ridgeline everything is in base units: seconds, bytes, FLOP, bytes/s, FLOP/s.  Prefixes are decimal (1 GB/s is
1e9 bytes/s, as nccl-tests and data sheets count); KiB, MiB and GiB are understood when read, never written.
"""

from __future__ import annotations

import math
import re

PREFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "µ": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "K": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
}
"""Factor of each prefix.  m, u and n are read before times only: there is no milli-byte."""

_SPELLINGS = {
    "s": "s",
    "sec": "s",
    "second": "s",
    "seconds": "s",
    "B": "B",
    "byte": "B",
    "bytes": "B",
    "B/s": "B/s",
    "FLOP": "FLOP",
    "FLOPs": "FLOP",
    "FLOPS": "FLOP/s",
    "FLOP/s": "FLOP/s",
    "Hz": "Hz",
    "W": "W",
}
"""Every accepted spelling of a unit and its base unit.  "FLOPS" is a rate, "FLOPs" a count, as the field writes."""

_TIMES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_SCALES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_NUMBER = re.compile(r"\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*(\S+(?:\s*/\s*s)?)\s*")


class UnitError(ValueError):
    """A quantity cannot be read; the text says which units are known."""


def parse(text: str) -> tuple[float, str]:
    """("532 TFLOPS") -> (5.32e14, "FLOP/s"): value in base units, and the base unit.

    Raises UnitError for a text without a number, or with a unit that is not known.
    """
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not a number with a unit; write it like '1.25 ms', '338 GB/s' or '532 TFLOPS'")
    number, written = float(match[1]), re.sub(r"\s", "", match[2])
    for prefix in sorted(PREFIXES, key=len, reverse=True):
        base = _SPELLINGS.get(written[len(prefix) :]) if written.startswith(prefix) else None
        if base and (PREFIXES[prefix] >= 1 or base == "s"):
            return number * PREFIXES[prefix], base
    raise UnitError(
        f"{text!r}: the unit {match[2]!r} is not known; known: {', '.join(sorted(set(_SPELLINGS)))}, "
        f"with a prefix {' '.join(p for p in PREFIXES if p)}"
    )


def parse_as(text: str, unit: str) -> float:
    """The value of `text` in base unit `unit`; UnitError if it measures something else."""
    value, found = parse(text)
    if found != unit:
        raise UnitError(f"{text!r} is in {found}; a quantity in {unit} is expected here")
    return value


def duration(seconds: float | None, digits: int = 3) -> str:
    """Seconds as "1.25 ms", `digits` significant; "n/a" for None and NaN."""
    if seconds is None or math.isnan(seconds):
        return "n/a"
    if seconds == 0 or math.isinf(seconds):
        return f"{seconds:g} s"
    scale, unit = next(((s, u) for s, u in _TIMES if abs(_rounded(seconds, digits)) >= s), _TIMES[-1])
    return f"{_plain(seconds / scale, digits)} {unit}"


def quantity(value: float | None, unit: str, digits: int = 3) -> str:
    """A value in a base unit with a decimal prefix: (3.38e11, "B/s") -> "338 GB/s"; FLOP/s is written "FLOPS"."""
    if unit == "s":
        return duration(value, digits)
    if value is None or math.isnan(value):
        return "n/a"
    scale, prefix = next(((s, p) for s, p in _SCALES if abs(_rounded(value, digits)) >= s), _SCALES[-1])
    return f"{_plain(value / scale, digits)} {prefix}{'FLOPS' if unit == 'FLOP/s' else unit}"


def percent(share: float | None, digits: int = 1) -> str:
    """A share as "66.3 %"; "n/a" for None and NaN."""
    return "n/a" if share is None or math.isnan(share) else f"{100 * share:.{digits}f} %"


def _rounded(value: float, digits: int) -> float:
    return float(f"{value:.{digits - 1}e}")


def _plain(value: float, digits: int) -> str:
    """`digits` significant digits without an exponent: 532, 1.25, 0.0421, 12300."""
    rounded = _rounded(value, digits)
    if rounded == 0:
        return "0"
    places = digits - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:.{max(places, 0)}f}"
