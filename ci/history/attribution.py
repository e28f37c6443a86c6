"""What else changed where a step is: versions, machine code, and how much was not measured in between."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd
from pandas.api.extensions import ExtensionArray

from ci.history.commits import CommitOrder
from ci.history.exact import RecordedCommit, sentences
from ci.history.steps.evidence import Candidate
from ci.history.steps.grouping import StepGroup
from ci.history.steps.series import Tracks
from ci.history.types import Cause, EventKind

COMPILER = ("triton", "torch")
BELOW = ("torch", "driver", "runtime", "library")
"""Versions that move a vendor's library: torch brings cuBLASLt and hipBLASLt, the runtime and driver the rest."""
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
    code: Sequence[RecordedCommit] = ()

    def causes(self, group: StepGroup) -> tuple[Cause, ...]:
        """What changed in the commit range of a group, the likeliest first."""
        return tuple(
            dict.fromkeys([*self._machine(group), *self._versions(group), *self._code(group), *self._unchanged(group)])
        )

    def same_compiler(self, one: Candidate) -> bool:
        """Whether torch and Triton are the same on both sides of a step, as far as known."""
        return not any(name in COMPILER for name, _, _ in self._changed(*self._rows(one)))

    def same_below(self, before: int, after: int) -> bool:
        """Whether all that a library depends on is the same in two rows, as far as known."""
        return not any(name in BELOW for name, _, _ in self._changed(before, after))

    def _machine(self, group: StepGroup) -> Iterator[Cause]:
        if group.kind is EventKind.MACHINE:
            vendors = sum(bool(self.tracks.is_baseline[one.track]) for one in group.members)
            others = len(group.members) - vendors
            yield Cause("machine", f"{vendors} series of vendor libraries and {others} others moved together")

    def _versions(self, group: StepGroup) -> Iterator[Cause]:
        found = [change for one in _at_place(group) for change in self._changed(*self._rows(one))]
        for name, before, after in dict.fromkeys(found):
            yield Cause("python" if name == "py" else name, f"{_WORDS.get(name, name)} {before} → {after}")

    def _code(self, group: StepGroup) -> Iterator[Cause]:
        """Machine code of the group's kernels that changed in its range."""
        if group.kind is not EventKind.KERNEL:
            return
        for record in self._code_between(group.good, group.bad):
            found = [step for step in record.steps if step.kernel in group.operators]
            yield from (Cause("code", f"{record.commit[:8]}: {sentence}") for sentence in sentences(found))

    def _code_between(self, good: int, bad: int) -> Iterator[RecordedCommit]:
        place = self.order.place
        return (record for record in self.code if good < place.get(record.commit, -1) <= bad)

    def _unchanged(self, group: StepGroup) -> Iterator[Cause]:
        """That the timed code objects are the same on both sides, where the records tell."""
        if group.kind is not EventKind.KERNEL or "code" not in self.frame:
            return
        pairs = [[self._text("code", row) for row in self._rows(one)] for one in _at_place(group)]
        known = [(before, after) for before, after in pairs if before and after]
        if known and all(before == after for before, after in known):
            yield Cause("same code", "the machine code that was timed is the same on both sides")

    def _rows(self, one: Candidate) -> tuple[int, int]:
        index = self.tracks.span(one.track).start + one.step.index
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


def _at_place(group: StepGroup) -> list[Candidate]:
    """The members that name the group's first bad commit."""
    return [one for one in group.members if one.bad == group.bad]
