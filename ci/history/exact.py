"""The recorded machine code: exact counts, so every change from one recorded commit to the next is one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ci.git.repository import history_order

MACHINE = "isa"
"""The machine of these records in asv's sense: code depends on the commit and on Triton, not on who compiled it."""

SERIES = (
    *("vgpr", "spills", "scalar_spills", "scratch_bytes", "scratch_ops_in_loops", "lds_bytes", "empty_wave_slots"),
    *("code_bytes", "loop_instructions", "stores", "loads", "remote_stores", "subdword_remote_stores"),
    *("remote_store_drains", "heap_base_loads", "barriers", "waits"),
)
"""The recorded series in the order in which they are told; of each, less is better (ci.isa.series makes them)."""


class CodePoint(NamedTuple):
    """Which series of which configuration a value is of."""

    kernel: str
    series: str
    backend: str
    configuration: str
    arch: str


Values = Mapping[CodePoint, float | None]
"""Recorded values: None for what failed to compile."""


@dataclasses.dataclass(frozen=True)
class CodeStep:
    """A series that has another value at a commit than at the recorded commit before.  Values: None for a failure.

    configurations: all that make the same step.
    """

    kernel: str
    backend: str
    arch: str
    series: str
    before: float | None
    after: float | None
    configurations: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class RecordedCommit:
    """A recorded commit and what changed since `previous` ("" for the first); `new` kernels had no series before."""

    commit: str
    date_ms: int
    env: str
    steps: tuple[CodeStep, ...]
    new: tuple[str, ...]
    previous: str = ""


@dataclasses.dataclass(frozen=True)
class CodeRecord:
    """The asv file of one commit under one version of Triton."""

    commit: str
    date_ms: int
    env: str
    values: Values


def read(
    results: Path, keep: Callable[[CodePoint], bool] = lambda point: True, repository: Path | None = None
) -> list[RecordedCommit]:
    """The recorded commits, oldest first, each environment (version of Triton) on its own; torn files are left out.

    Only configurations that both commits have are compared.  keep: which series to look at.  repository: a folder in
    the repository whose history puts commits of the same second in order; without it, the one around `results`.
    """
    found: list[RecordedCommit] = []
    for env, group in itertools.groupby(records(results, repository), key=lambda one: one.env):
        before: Values = {}
        previous = ""
        for one in group:
            now = {point: value for point, value in one.values.items() if keep(point)}
            new = tuple(sorted({point.kernel for point in now} - {point.kernel for point in before}))
            found.append(RecordedCommit(one.commit, one.date_ms, env, tuple(steps(before, now)), new, previous))
            before, previous = now, one.commit
    return found


def records(results: Path, repository: Path | None = None) -> list[CodeRecord]:
    """All values of the recorded commits, in the order of :func:`read`."""
    found = [one for path in sorted((results / MACHINE).glob("*-triton*.json")) if (one := _record(path))]
    place = history_order(repository or results, (one.commit for one in found))
    return sorted(found, key=lambda one: (one.env, one.date_ms, place.get(one.commit, -1)))


def _record(path: Path) -> CodeRecord | None:
    try:
        return _read(path, path.stat().st_mtime_ns)
    except OSError:
        return None


@functools.lru_cache(maxsize=4096)
def _read(path: Path, changed_ns: int) -> CodeRecord | None:
    """The record in a file as it was at `changed_ns`: a page wants its values, and the history its changes."""
    try:
        data = json.loads(path.read_text())
        return CodeRecord(str(data["commit_hash"]), int(data["date"]), str(data["env_name"]), points(data["results"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def points(rows: Mapping[str, list[Any]]) -> dict[CodePoint, float | None]:
    """Values of asv rows by kernel, series, backend, configuration and arch; what does not exist is left out."""
    found: dict[CodePoint, float | None] = {}
    for name, (values, params, *_) in rows.items():
        kernel, _, series = name.partition(".track_isa_")
        for keys, value in zip(itertools.product(*params), values, strict=True):
            if value is None or not math.isnan(value):
                backend, configuration, arch = (key[1:-1] for key in keys)
                found[CodePoint(kernel, series, backend, configuration, arch)] = value
    return found


def steps(before: Values, now: Values) -> list[CodeStep]:
    """What differs, configurations with the same step together, in the order of the series."""
    grouped: dict[tuple[str, str, str, str, float | None, float | None], list[str]] = {}
    for point, value in now.items():
        if point in before and value != before[point]:
            step = (point.kernel, point.backend, point.arch, point.series, before[point], value)
            grouped.setdefault(step, []).append(point.configuration)
    found = [CodeStep(*step, tuple(names)) for step, names in grouped.items()]
    return sorted(found, key=lambda step: (*_place(step), _rank(step), step.configurations))


def sentences(found: Sequence[CodeStep]) -> list[str]:
    """One for each kernel, backend and architecture: gemm/triton on gfx942, 2 configurations: vgpr 86 → 128"""
    return [_sentence(list(same)) for _, same in itertools.groupby(found, key=_place)]


def _sentence(found: Sequence[CodeStep]) -> str:
    kernel, backend, arch = _place(found[0])
    names = dict.fromkeys(name for step in found for name in step.configurations)
    several = f"{len(names)} configurations" if len(names) > 1 else next(iter(names))
    series = itertools.groupby(found, key=_rank)
    return f"{kernel}/{backend} on {arch}, {several}: " + ", ".join(_words(list(same)) for _, same in series)


def _place(step: CodeStep) -> tuple[str, str, str]:
    return step.kernel, step.backend, step.arch


def _rank(step: CodeStep) -> int:
    """The place of its series; series of other versions of this program come last."""
    return SERIES.index(step.series) if step.series in SERIES else len(SERIES)


def _words(same_series: Sequence[CodeStep]) -> str:
    """spills 12 to 23 → 0: the values of all configurations on both sides."""
    sides = [[step.before for step in same_series], [step.after for step in same_series]]
    return f"{same_series[0].series.replace('_', ' ')} {_range(sides[0])} → {_range(sides[1])}"


def _range(values: Sequence[float | None]) -> str:
    known = sorted({value for value in values if value is not None})
    parts = [" to ".join(_number(value) for value in dict.fromkeys([known[0], known[-1]]))] if known else []
    return " or ".join(parts + ["failed"] * (None in values))


def _number(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else f"{value:g}"
