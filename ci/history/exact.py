"""The recorded machine code: exact counts, so every change from one recorded commit to the next is one."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ci.git.repository import history_order
from ci.history.series import Tracks
from ci.history.types import Cause, CommitOrder, EventKind, SeriesStep

MACHINE = "isa"
"""The machine of these records in asv's sense: code depends on the commit and on Triton, not on who compiled it."""

SERIES = (
    *("vgpr", "spills", "scalar_spills", "scratch_bytes", "scratch_ops_in_loops", "lds_bytes", "empty_wave_slots"),
    *("code_bytes", "loop_instructions", "stores", "loads", "remote_stores", "subdword_remote_stores"),
    *("remote_store_drains", "heap_base_loads", "barriers", "waits"),
)
"""The recorded series in the order in which they are told; of each, less is better (ci.commands.isa makes them)."""


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
class CodeRecord:
    """The asv file of one commit under one version of Triton."""

    commit: str
    date_ms: int
    env: str
    values: Values


def records(results: Path, repository: Path | None = None) -> list[CodeRecord]:
    """The recorded commits, oldest first, each environment (version of Triton) on its own; torn files are left out.

    repository: a folder in the repository whose history puts commits of the same second in order; without it, the one
    around `results`.
    """
    paths = sorted((results / MACHINE).glob("*-triton*.json"))
    found = [record for path in paths if (record := _read(path, path.stat().st_mtime_ns))]
    place = history_order(repository or results, (one.commit for one in found))
    return sorted(found, key=lambda one: (one.env, one.date_ms, place.get(one.commit, -1)))


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
    of_row = (zip(_points_of(name, tuple(map(tuple, row[1]))), row[0], strict=True) for name, row in rows.items())
    return {point: value for point, value in itertools.chain.from_iterable(of_row) if value == value}  # no NaN


@functools.lru_cache(maxsize=1024)
def _points_of(name: str, params: tuple[tuple[str, ...], ...]) -> tuple[CodePoint, ...]:
    """Of a row: a history repeats a few hundred of them at every commit."""
    kernel, _, series = name.partition(".track_isa_")
    named = itertools.product(*([key[1:-1] for key in keys] for keys in params))  # asv writes them in quotes
    return tuple(CodePoint(kernel, series, *place) for place in named)


def changes(before: Values, after: Values, kernel: str) -> list[str]:
    """What differs in what both have of a kernel, a sentence for each backend and architecture:

    gemm/triton on gfx942, 2 configurations: vgpr 86 → 128, spills 12 to 23 → 0
    """
    moved = [point for point, value in after.items() if point.kernel == kernel and before.get(point, value) != value]
    moved.sort(key=lambda point: (point.backend, point.arch, series_rank(point.series), point.configuration))
    sentences = []
    for (backend, arch), of_backend in itertools.groupby(moved, key=lambda point: (point.backend, point.arch)):
        names, parts = set[str](), []
        for series, of_series in itertools.groupby(of_backend, key=lambda point: point.series):
            own = list(of_series)
            names |= {point.configuration for point in own}
            parts.append(f"{series.replace('_', ' ')} {_range(before, own)} → {_range(after, own)}")
        where = f"{len(names)} configurations" if len(names) > 1 else names.pop()
        sentences.append(f"{kernel}/{backend} on {arch}, {where}: {', '.join(parts)}")
    return sentences


def series_rank(series: str) -> int:
    """The place of a series; those of other versions of this program come last."""
    return SERIES.index(series) if series in SERIES else len(SERIES)


def _range(values: Values, of: Sequence[CodePoint]) -> str:
    """ "12 to 23", "128", "failed"."""
    known = sorted(value for value in map(values.get, of) if value is not None)
    parts = [" to ".join(f"{value:.10g}" for value in dict.fromkeys([known[0], known[-1]]))] if known else []
    return " or ".join(parts + ["failed"] * (len(known) < len(of)))


# What else changed where a step is: versions, machine code, and how much was not measured in between.


VERSIONS = ("triton", "torch", "driver", "runtime", "library", "py")

_IN_NAME = re.compile(r"(?:^|-)(py|torch|triton)(?=\d)([^-]*)")
"""Versions in the name of an environment: py3.12-torch2.11.0-triton3.6.0."""

_WORDS = {"library": "NCCL or RCCL", "runtime": "CUDA or ROCm", "triton": "Triton", "py": "Python"}


@dataclasses.dataclass(frozen=True, eq=False)
class Surroundings:
    """What lies around a step: the rows of its two points, and the machine code of the commits between."""

    frame: pd.DataFrame
    tracks: Tracks
    order: CommitOrder
    code: Sequence[CodeRecord] = ()

    def causes(self, group: Sequence[SeriesStep], good: int, bad: int) -> tuple[Cause, ...]:
        """What changed between two places of a group of steps, the likeliest first."""
        at_place = [step for step in group if step.bad == bad]
        changes = dict.fromkeys(change for step in at_place for change in self._changed(*self._rows(step)))
        versions = [
            Cause("python" if name == "py" else name, f"{_WORDS.get(name, name)} {before} → {after}")
            for name, before, after in changes
        ]
        return (*versions, *(self._code(group[0].key.kernel, good, bad) if group[0].kind is EventKind.KERNEL else ()))

    def same_code(self, step: SeriesStep) -> bool:
        """Whether the same code ran on both sides of a step, as far as known, under the same versions of all."""
        rows = self._rows(step)
        before, after = (self._text("code", row) for row in rows)
        return before == after != "" and not self._changed(*rows)

    def _code(self, kernel: str, good: int, bad: int) -> Iterator[Cause]:
        """Machine code of a kernel that changed between two places, from one recorded commit to the next."""
        for before, after in itertools.pairwise(self.code):
            if before.env == after.env and good < self.order.place.get(after.commit, -1) <= bad:
                for sentence in changes(before.values, after.values, kernel):
                    yield Cause("code", f"{after.commit[:8]}: {sentence}")

    def _rows(self, step: SeriesStep) -> tuple[int, int]:
        index = self.tracks.span(step.track).start + step.step.index
        return int(self.tracks.row[index - 1]), int(self.tracks.row[index])

    def _changed(self, before: int, after: int) -> list[tuple[str, str, str]]:
        old, new = (self._versions_of(row) for row in (before, after))
        return [
            (name, old[name], new[name]) for name in VERSIONS if name in old.keys() & new and old[name] != new[name]
        ]

    def _versions_of(self, row: int) -> Mapping[str, str]:
        named = _IN_NAME.findall(self._text("env", row))
        return {name: text for name, text in [*named, *((one, self._text(one, row)) for one in VERSIONS)] if text}

    def _text(self, column: str, row: int) -> str:
        """A cell of the frame; "" where it has none: only a few rows are looked at, whatever the frame's size."""
        value = self.frame[column].iat[row] if column in self.frame else None
        return value if isinstance(value, str) else ""
