"""One sweep, ready to be measured: its points, its anchors, its rungs, and the name under which it is resumed."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from benchmarks.reach.code import CheckoutCode
from ci.git.repository import LocalCheckout
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import Pruned
from ci.sweeps.rungs import DueRung, Rungs

BATCH = 24
"""Points of a batch: the anchor costs 1 call in 25, and a killed run loses half a minute at most."""

FOLDER = ".ridgeline/sweeps"
"""Below the root of the project: where the lines of a sweep go unless --out says otherwise."""


@dataclasses.dataclass(frozen=True, eq=False)
class SweepPlan:
    """What `ci.sweeps.run` measures.  id: see `sweep_id`.  anchors: backend by case.  out: trial file, appended to.

    earlier: files whose lines count as measured.  budget_min: GPU minutes that one call may take, None: any.
    shard: (k, n), from 1: only the points dealt to it.  finals: False leaves out the rungs after the second, in which
    points of all shards must meet.  shared: the file has lines of other sweeps too, which are left alone.
    whole_calls: of every point, timed from the host's side too.
    """

    id: str
    operator: str
    checkout: LocalCheckout
    pruned: Pruned
    anchors: Mapping[str, str]
    out: Path
    rungs: Rungs = Rungs()
    regime: str = "spaced"
    seed: int = 0
    batch: int = BATCH
    shard: tuple[int, int] = (1, 1)
    finals: bool = True
    earlier: tuple[Path, ...] = ()
    budget_min: float | None = None
    deadline_s: float | None = None
    heap: str = ""
    world: int = 1
    shared: bool = False
    whole_calls: int = 0

    @property
    def dealt(self) -> dict[str, list[Point]]:
        """The points of this shard, by case."""
        own = {case: [one for one in found if in_shard(one, self.shard)] for case, found in self.pruned.kept.items()}
        return {case: found for case, found in own.items() if found}

    @property
    def rungs_here(self) -> Rungs:
        """The rungs that are measured in this call."""
        if self.finals or len(self.rungs) < 3:
            return self.rungs
        return dataclasses.replace(self.rungs, rounds=self.rungs.rounds[:2], miss=self.rungs.miss_each)

    def points_file(self, due: DueRung) -> PointsFile:
        """What the measuring program is asked for."""
        first = due.rung == 0
        batches = [batch for case, own in due.points.items() for batch in self._batches(case, own, first)]
        rounds = self.rungs.rounds[due.rung]
        return PointsFile(self.id, self.operator, due.rung, rounds, tuple(batches), self.regime, self.whole_calls)

    def _batches(self, case: str, own: Sequence[Point], first: bool) -> list[Batch]:
        """first: whether it is the first rung, whose lines say what became of the points that are not timed too."""
        mixed = sorted(own, key=_place)
        parts = [tuple(mixed[i : i + self.batch]) for i in range(0, len(mixed), self.batch)]
        anchor, untimed = self.anchors[case], self._untimed(case) if first else []
        batches = []
        for number, part in enumerate(parts):
            labels = {one.label for one in part} | ({anchor, ""} if number == 0 else set())
            batches.append(Batch(case, anchor, part, tuple(one for one in untimed if one.same_as in labels)))
        return batches

    def _untimed(self, case: str) -> list[UntimedPoint]:
        """The points of a case in this shard that are recorded and not timed; a twin goes where its point goes."""
        equal, anchor = self.pruned.equal, self.anchors[case]
        twins = [UntimedPoint(one, equal[case, one.label]) for one in self.pruned.twins if one.case == case]
        gone = [UntimedPoint(one.point, "", f"{one.kind}: {one.why}") for one in self.pruned.dropped]
        return [
            one
            for one in (*twins, *(one for one in gone if one.point.case == case))
            if one.same_as not in ("", anchor) or in_shard(one.point, self.shard)
        ]


def sweep_id(operator: str, checkout: LocalCheckout, rungs: Rungs, regime: str = "spaced", seed: int = 0) -> str:
    """The same for all sweeps whose lines may be put together: operator, code, rounds, regime and seed are the same."""
    commit = checkout.commit.hash if checkout.commit else ""
    told = [operator, commit, CheckoutCode(checkout.path).digest(), rungs.rounds, regime, seed]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]


def in_shard(point: Point, shard: tuple[int, int]) -> bool:
    """Whether a point is dealt to shard k of n: by its digest, so that it stays there when others are added."""
    number, count = shard
    return _place(point) % count == number - 1


def _place(point: Point) -> int:
    """A number that is the same for a point everywhere; neighbours in a grid have nothing in common."""
    told = json.dumps([point.case, point.label])
    return int(hashlib.sha256(told.encode()).hexdigest()[:12], 16)


def anchors_of(points: Mapping[str, Sequence[Point]], asked: str, baselines: Sequence[str]) -> dict[str, str]:
    """The backend whose default is the anchor, by case: the one asked for, or the first one that is swept."""
    found = {}
    for case, own in points.items():
        swept = list(dict.fromkeys(one.backend for one in own if one.knobs))
        anchor = asked or next((name for name in swept if name not in baselines), "") or next(iter(swept), "")
        if not anchor:
            raise SweepError(f"case {case} has no point with knobs, so nothing is compared there; leave it out: --case")
        found[case] = anchor
    return found
