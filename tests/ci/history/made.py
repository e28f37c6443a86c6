"""Histories made by hand: a frame as records give it, from a few series."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from ci.history.types import CommitFacts
from ci.records.cache import SCHEMA
from ci.records.derived import derive

DAY_MS = 86_400_000
START_MS = 1_750_000_000_000
ENV = "py3.12-torch2.11.0-triton3.6.0"


def commit(number):
    """A full hash that tells its number."""
    return f"{number:08x}" + "a" * 32


@dataclasses.dataclass
class Line:
    """One series: its seconds at commits `at` (default: 0, 1, 2, ...)."""

    kernel: str
    case: str
    seconds: Sequence[float]
    backend: str = "triton"
    machine: str = "h200x1-00000001"
    baseline: bool = False
    at: Sequence[int] | None = None
    env: str | Sequence[str] = ENV
    yardstick: str | Sequence[str] = "1"
    more: Mapping[str, object] = dataclasses.field(default_factory=dict)


def frame(lines, dates=None, hashes=None):
    """The derived frame of series.  dates: ms of commits whose clock was off; hashes: of commits with real ones."""
    rows = [row for line in lines for row in _rows(line, dates or {}, hashes or {})]
    whole = pd.DataFrame(rows)
    for field in SCHEMA:
        if field.name not in whole:
            whole[field.name] = "" if str(field.type).endswith("string") else np.nan
    whole["date"] = pd.to_datetime(whole["date"], unit="ms", utc=True)
    return derive(whole.sort_values(["date", "commit"], kind="stable", ignore_index=True))


def _rows(line, dates, hashes):
    places = range(len(line.seconds)) if line.at is None else line.at
    for index, (place, seconds) in enumerate(zip(places, line.seconds, strict=True)):
        yield {
            "machine": line.machine,
            "commit": hashes.get(place, commit(place)),
            "date": dates.get(place, START_MS + place * DAY_MS),
            "env": line.env if isinstance(line.env, str) else line.env[index],
            "kernel": line.kernel,
            "backend": line.backend,
            "baseline": line.baseline,
            "case": line.case,
            "dtype": "fp16",
            "world": 1,
            "count": 1,
            "trials": 3,
            "seconds": float(seconds),
            "status": "ok" if np.isfinite(seconds) else "error",
            "yardstick": line.yardstick if isinstance(line.yardstick, str) else line.yardstick[index],
            **line.more,
        }


def noisy(seed, count, steps=None, level=1e-3, sigma=0.005):
    """Seconds about a level, with ratios that last from a point on."""
    logs = np.log(level) + sigma * np.random.default_rng(seed).standard_normal(count)
    for index, ratio in (steps or {}).items():
        logs[index:] += np.log(ratio)
    return np.exp(logs)


def pair(seed, count, ours=None, theirs=None, kernel="gemm", case="small", wander=0.005, **other):
    """A series and the baseline of the same trials: both wander together, their ratio is quiet."""
    together = np.exp(wander * np.random.default_rng(seed + 1000).standard_normal(count))
    mine = noisy(seed, count, ours, sigma=0.001) * together
    vendor = noisy(seed + 1, count, theirs, sigma=0.001) * together
    return [Line(kernel, case, mine, **other), Line(kernel, case, vendor, backend="blas", baseline=True, **other)]


def facts(count):
    """A straight history as git would tell it."""
    names = [commit(number) for number in range(count)]
    return {
        name: CommitFacts(
            name, START_MS + n * DAY_MS, "A. Author", f"change {n} (#{n})", n, (names[n - 1],) if n else ()
        )
        for n, name in enumerate(names)
    }
