"""The recorded machine code: exact counts, so every change from one recorded commit to the next is one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pandas as pd
from pandas.api.extensions import ExtensionArray

from ci.git.repository import history_order
from ci.history.series import Tracks
from ci.history.types import Cause, CommitOrder, EventKind, SeriesKey
from ci.stats.types import Step

MACHINE = "isa"
"""The machine of these records in asv's sense: code depends on the commit and on Triton, not on who compiled it."""

SERIES = (
    *("vgpr", "spills", "scalar_spills", "scratch_bytes", "scratch_ops_in_loops", "lds_bytes", "empty_wave_slots"),
    *("code_bytes", "loop_instructions", "stores", "loads", "remote_stores", "subdword_remote_stores"),
    *("remote_store_drains", "heap_base_loads", "barriers", "waits"),
    *("executed_instructions", "executed_valu", "executed_matrix_cycles", "executed_memory_requests"),
    *("executed_memory_bytes", "executed_lds_cycles", "executed_bank_conflicts", "executed_scalar_loads"),
    *("executed_waits", "executed_divergent_branches", "executed_idle_lanes"),
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


def read(results: Path, repository: Path | None = None, aside: Container[str] = ()) -> list[RecordedCommit]:
    """The recorded commits, oldest first, each environment (version of Triton) on its own; torn files are left out.

    Only configurations that both commits have are compared.   repository: a folder in
    the repository whose history puts commits of the same second in order; without it, the one around `results`.
    aside: commits that are no part of this history.
    """
    found: list[RecordedCommit] = []
    recorded = (one for one in records(results, repository) if one.commit not in aside)
    for env, group in itertools.groupby(recorded, key=lambda one: one.env):
        before: Values = {}
        previous = ""
        for one in group:
            now = one.values
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
        named = _points_of(name, tuple(map(tuple, params)))
        found |= {point: value for point, value in zip(named, values, strict=True) if value == value}  # no NaN
    return found


@functools.lru_cache(maxsize=1024)
def _points_of(name: str, params: tuple[tuple[str, ...], ...]) -> tuple[CodePoint, ...]:
    """Of a row: a history repeats a few hundred of them at every commit."""
    kernel, _, series = name.partition(".track_isa_")
    named = itertools.product(*([key[1:-1] for key in keys] for keys in params))  # asv writes them in quotes
    return tuple(CodePoint(kernel, series, *place) for place in named)


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


# What else changed where a step is: versions, machine code, and how much was not measured in between.


VERSIONS = ("triton", "torch", "driver", "runtime", "library", "py")

_IN_NAME = re.compile(r"(?:^|-)(py|torch|triton)(?=\d)([^-]*)")
"""Versions in the name of an environment: py3.12-torch2.11.0-triton3.6.0."""

_WORDS = {"library": "NCCL or RCCL", "runtime": "CUDA or ROCm", "triton": "Triton", "py": "Python"}


class LocatedStep(Protocol):
    """What is asked of a step (`ci.history.analysis.SeriesStep`)."""

    @property
    def kind(self) -> EventKind: ...
    @property
    def key(self) -> SeriesKey: ...
    @property
    def track(self) -> int: ...
    @property
    def step(self) -> Step: ...
    @property
    def bad(self) -> int: ...


@dataclasses.dataclass(frozen=True, eq=False)
class Surroundings:
    """What lies around a step: the rows of its two points, and the machine code of the commits between."""

    frame: pd.DataFrame
    tracks: Tracks
    order: CommitOrder
    code: Sequence[RecordedCommit] = ()

    def causes(self, group: Sequence[LocatedStep], good: int, bad: int) -> tuple[Cause, ...]:
        """What changed between two places of a group of steps, the likeliest first."""
        at_place = [step for step in group if step.bad == bad]
        changes = dict.fromkeys(change for step in at_place for change in self._changed(*self._rows(step)))
        versions = [
            Cause("python" if name == "py" else name, f"{_WORDS.get(name, name)} {before} → {after}")
            for name, before, after in changes
        ]
        return (*versions, *(self._code(group[0].key.kernel, good, bad) if group[0].kind is EventKind.KERNEL else ()))

    def same_code(self, step: LocatedStep) -> bool:
        """Whether the same code ran on both sides of a step, as far as known, under the same versions of all."""
        rows = self._rows(step)
        before, after = (self._text("code", row) for row in rows)
        return before == after != "" and not self._changed(*rows)

    def _code(self, kernel: str, good: int, bad: int) -> Iterator[Cause]:
        """Machine code of a kernel that changed between two places."""
        for record in self.code:
            if good < self.order.place.get(record.commit, -1) <= bad:
                changed = [step for step in record.steps if step.kernel == kernel]
                yield from (Cause("code", f"{record.commit[:8]}: {sentence}") for sentence in sentences(changed))

    def _rows(self, step: LocatedStep) -> tuple[int, int]:
        index = self.tracks.span(step.track).start + step.step.index
        return int(self.tracks.row[index - 1]), int(self.tracks.row[index])

    def _changed(self, before: int, after: int) -> list[tuple[str, str, str]]:
        sides = [self._versions_of(row) for row in (before, after)]
        both = ((name, sides[0].get(name, ""), sides[1].get(name, "")) for name in VERSIONS)
        return [change for change in both if change[1] and change[2] and change[1] != change[2]]

    def _versions_of(self, row: int) -> Mapping[str, str]:
        named = _in_name(self._text("env", row))
        columns = {name: self._text(name, row) for name in VERSIONS}
        return {**named, **{name: text for name, text in columns.items() if text}}

    def _text(self, column: str, row: int) -> str:
        """A cell of the frame; "" where it has none: only a few rows are looked at, whatever the frame's size."""
        value = self._columns[column][row] if column in self._columns else None
        return value if isinstance(value, str) else ""

    @functools.cached_property
    def _columns(self) -> Mapping[str, ExtensionArray]:
        return {name: self.frame[name].array for name in (*VERSIONS, "env", "code") if name in self.frame}


@functools.lru_cache(maxsize=256)
def _in_name(env: str) -> Mapping[str, str]:
    return dict(_IN_NAME.findall(env))
