"""Measure a sweep: rung by rung, what its file lacks, within a budget; interrupted anywhere, it goes on where it was.

The file is the only memory.  What is measured next follows from its lines (`ci.sweeps.rungs`), so a sweep that was
killed is resumed by the same command, and a finished point is not measured again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from filelock import FileLock, Timeout
from rich.console import Console

from benchmarks.points import Batch, Point, PointsFile, UntimedPoint
from benchmarks.reach.code import CheckoutCode
from ci import harness
from ci.git.repository import LocalCheckout
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.measured import Measured, SweepError, gathered
from ci.sweeps.pruning import Pruned
from ci.sweeps.rungs import DueRung, Rungs, due, seen_in
from ci.trials.file import read
from ci.trials.trial import Cost, Trial
from kernels import hardware

Follow = Callable[..., harness.ChildExit]
"""`ci.harness.follow`, or the method of a program that runs many commands."""


@dataclasses.dataclass(frozen=True)
class Progressed:
    """What a call came to.  left: what is due next, None when all is measured; why: why it stopped before that."""

    measured: Measured | None
    left: DueRung | None
    why: str = ""


@contextlib.contextmanager
def lone_writer(out: Path) -> Iterator[None]:
    """Nobody else measures into this file meanwhile.  SweepError."""
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(out.with_name(f".{out.name}.lock"), timeout=0):
            yield
    except Timeout:
        raise SweepError(f"{out} is being measured by another call; wait for it, or give another --out") from None


def measure(plan: SweepPlan, console: Console) -> Progressed:
    """Measure what the file of a sweep lacks.  KeyboardInterrupt on Ctrl-C; what is finished stays in the file."""
    with lone_writer(plan.out):
        return go_on(plan, console, harness.follow)


def go_on(plan: SweepPlan, console: Console, follow: Follow) -> Progressed:
    """As :func:`measure`, where we are its :func:`lone_writer` already.  follow: runs the measuring program."""
    began = time.monotonic()
    while True:
        trials = trials_of(plan)
        sweeps = gathered(trials)
        if len(sweeps) > 1:
            origins = "; ".join(str(sweep.origin) for sweep in sweeps)
            raise SweepError(
                f"{plan.out} has lines of {len(sweeps)} origins ({origins}): ratios of two machines are not mixed"
            )
        measured = sweeps[0] if sweeps else None
        left = due(plan.dealt, plan.rungs_here, seen_in(trials, plan.operator, plan.regime), plan.anchors)
        if left is None:
            return Progressed(measured, None)
        spent_min = (time.monotonic() - began) / 60 * plan.world
        if plan.budget_min is not None and spent_min >= plan.budget_min:
            return Progressed(measured, left, f"the budget of {plan.budget_min:g} GPU minutes is spent")
        if not _rung(plan, left, spent_min, console, follow) and not _gained(plan, left):
            return Progressed(measured, left, "the measuring program wrote no line for the points that are left")


def _rung(plan: SweepPlan, left: DueRung, spent_min: float, console: Console, follow: Follow) -> bool:
    """One command of the measuring program, for the points that a rung lacks; whether the budget ended it."""
    asked = plan.out.with_name(f".{plan.out.name}.points.json")
    asked.write_text(json.dumps(dataclasses.asdict(plan.points_file(left))))
    limit_s = None if plan.budget_min is None else (plan.budget_min - spent_min) * 60 / plan.world
    title = f"rung {left.rung + 1} of {len(plan.rungs_here)}, {left.count} of {left.entered} points"
    try:
        ended = follow(command(plan, asked), console, title, limit_s=limit_s)
    finally:
        asked.unlink(missing_ok=True)
    if not ended.late and (ended.code < 0 or ended.code == harness.USAGE):
        safe = f"what is finished is in {plan.out}"
        raise SweepError(f"the measuring program broke off ({ended.how}): {ended.last}; {safe}")
    return ended.late


def command(plan: SweepPlan, asked: Path) -> list[str]:
    """The argument list that measures a points file."""
    argv = harness.program("benchmarks", "run", "--progress", "json")
    argv += harness.options(points=asked.resolve(), out=plan.out.resolve(), seed=plan.seed)
    argv += harness.of_checkout(plan.checkout)
    cache = "hot" if harness.machine_kind() == "cpu" else None  # as in `ci.options.with_rounds`
    return argv + harness.options(point_deadline=plan.deadline_s, heap=plan.heap or None, cache=cache)


def _gained(plan: SweepPlan, before: DueRung) -> bool:
    """Whether the file has more of a rung than it had."""
    seen = seen_in(trials_of(plan), plan.operator, plan.regime)
    now = due(plan.dealt, plan.rungs_here, seen, plan.anchors)
    return now is None or (now.rung, -now.count) > (before.rung, -before.count)


def trials_of(plan: SweepPlan) -> list[Trial]:
    """The lines of this sweep, in its file and in those that count as measured.

    SweepError if its file has lines of another sweep, which would be mixed with it.
    """
    by_id: dict[str, Trial] = {}
    for path in (plan.out, *plan.earlier):
        file = read(path) if path.exists() else None
        for trial in file.trials if file else ():
            if trial.sweep and trial.sweep.id == plan.id and trial.operator == plan.operator:
                by_id.setdefault(trial.id, trial)
            elif not plan.shared:
                raise SweepError(_another(path, trial, plan))
    return list(by_id.values())


def _another(path: Path, trial: Trial, plan: SweepPlan) -> str:
    what = f"a line of the sweep {trial.sweep.id}" if trial.sweep else "a trial that is of no sweep"
    differs = "its operator, code, rounds, regime or seed is another"
    return f"{path} has {what}, and this is the sweep {plan.id} of {plan.operator}: {differs}; give another --out"


# One sweep, ready to be measured: its points, its anchors, its rungs, and the name under which it is resumed.


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
        own = {
            case: [point for point in points if in_shard(point, self.shard)]
            for case, points in self.pruned.to_measure.items()
        }
        return {case: points for case, points in own.items() if points}

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
            labels = {point.label for point in part} | ({anchor, ""} if number == 0 else set())
            batches.append(Batch(case, anchor, part, tuple(point for point in untimed if point.same_as in labels)))
        return batches

    def _untimed(self, case: str) -> list[UntimedPoint]:
        """The points of a case in this shard that are recorded and not timed; a twin goes where its point goes."""
        gone = (UntimedPoint(point.point, "", f"{point.kind}: {point.why}") for point in self.pruned.dropped)
        return [
            point
            for point in (*self.pruned.twins, *gone)
            if point.point.case == case
            and (point.same_as not in ("", self.anchors[case]) or in_shard(point.point, self.shard))
        ]


def sweep_id(operator: str, checkout: LocalCheckout, rungs: Rungs, regime: str = "spaced", seed: int = 0) -> str:
    """The same for all sweeps whose lines may be put together: operator, code, rounds, regime and seed are the same."""
    commit = checkout.commit.hash if checkout.commit else ""
    parts = [operator, commit, CheckoutCode(checkout.path).digest(), rungs.rounds, regime, seed]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def in_shard(point: Point, shard: tuple[int, int]) -> bool:
    """Whether a point is dealt to shard k of n: by its digest, so that it stays there when others are added."""
    number, count = shard
    return _place(point) % count == number - 1


def _place(point: Point) -> int:
    """A number that is the same for a point everywhere; neighbours in a grid have nothing in common."""
    name = json.dumps([point.case, point.label])
    return int(hashlib.sha256(name.encode()).hexdigest()[:12], 16)


def anchors_of(points: Mapping[str, Sequence[Point]], asked: str, baselines: Sequence[str]) -> dict[str, str]:
    """The backend whose default is the anchor, by case: the one asked for, or the first one that is swept."""
    anchors = {}
    for case, own in points.items():
        swept = list(dict.fromkeys(point.backend for point in own if point.knobs))
        anchor = asked or next((name for name in swept if name not in baselines), "") or next(iter(swept), "")
        if not anchor:
            raise SweepError(f"case {case} has no point with knobs, so nothing is compared there; leave it out: --case")
        anchors[case] = anchor
    return anchors


# How many GPU minutes a sweep is expected to take, from a stated model of what a point costs.
#
#     minutes = ranks * (starts * START_S + sum over rungs of points * (POINT_S + calls * (time + spacing))) / 60
#
# time: the roofline time of the case / REACHED.  calls of a point in a rung: its rounds and WARM_UP_ROUNDS, of several
# calls each where a call is short, a warm-up of WARM_UP_S, and CHECKS.  Of the points of a rung STAYING enter the next.


REACHED = 0.4
"""Roofline time / time of a point in the middle of a sweep: the best reach 0.7 to 0.8 (gemm on H200, results/), half of
a grid is twice as slow."""

START_S = 12.0
"""Of a rung: 6.6 s until the first line begins, and 6 s of first calls before the first point (H200, 2026-11-22)."""

POINT_S = 0.05
"""Setting up, checking twice and recording a point that is compiled ahead: batches of 24 took 0.065 s a point, calls
included (gemm_all_scatter on an H200, 63 points, 2026-11-22)."""

SPACING_S = 5e-4
"""Flushing the caches and enqueueing between two calls: 1.9 ms a call of 1.4 ms in the same batches."""

SHORT_S, GRAPH_CALLS = 50e-6, 20
"""Shorter calls are timed in graphs of so many (benchmarks.plan)."""

WARM_UP_S, WARM_UP_ROUNDS, CHECKS = 0.005, 1, 4
"""benchmarks.sweeping; a check before and one after timing, of a poisoned and a timed call."""

STAYING = 0.15
"""Of the points of a rung, those that enter the next: 0.03 to 0.2 where the noise is that of recorded H200 trials
(tests/ci/stats/sweeps)."""

NOMINAL_FLOPS, NOMINAL_BYTES_S = 2e10, 5e9
"""Of a CPU of few cores: float32 products through oneDNN, memory of one channel."""


@dataclasses.dataclass(frozen=True)
class ExpectedEffort:
    """points: measured in the first rung.  samples: timed calls over all rungs.  minutes: of GPUs, all ranks."""

    points: int
    samples: int
    minutes: float


def expected(catalogue: Catalogue, points: Mapping[str, Sequence[Point]], rungs: Rungs) -> ExpectedEffort:
    """Of these points, by case."""
    known = [device for device in hardware.DEVICES if device.arch == catalogue.arch]  # none for a CPU
    exact = [device for device in known if device.compute_units == catalogue.compute_units]
    device = next(iter(exact or known), None)
    seconds, samples, entering = 0.0, 0, sum(map(len, points.values()))
    for rung, rounds in enumerate(rungs.rounds):
        staying = STAYING**rung if rungs.halving and rung < 3 else STAYING**2 if rungs.halving else 1.0
        seconds += START_S if entering else 0.0
        for case, own in points.items():
            offer = next(offer for offer in catalogue.offers if offer.case == case)
            count = max(1.0, len(own) * staying)
            seconds += count * (POINT_S + point_seconds(offer, device, rounds))
            samples += round(count * rounds)
    return ExpectedEffort(entering, samples, catalogue.world(points) * seconds / 60)


def point_seconds(offer: BackendOffer, device: hardware.Hardware | None, rounds: int) -> float:
    """Seconds of the calls of one point in the middle of a sweep in a rung, its share of the anchor's left out."""
    cost = Cost(**{name: value or 0 for name, value in dataclasses.asdict(offer.cost).items()})
    flops, hbm_bytes = float(cost.flops or 0), float(cost.hbm_bytes or 0)
    if device is None:
        time = (flops / NOMINAL_FLOPS + hbm_bytes / NOMINAL_BYTES_S) / REACHED
    else:
        try:
            time = hardware.roofline_seconds(cost, offer.dtype, device, offer.world) / REACHED
        except ValueError:  # no peak for this dtype: memory alone
            time = hbm_bytes / device.hbm_bandwidth / REACHED
    calls = GRAPH_CALLS if time * REACHED < SHORT_S and device else 1
    warm_up = min(5, max(3, WARM_UP_S / max(time * calls, 1e-6)))
    return (rounds + WARM_UP_ROUNDS + warm_up) * calls * (time + SPACING_S) + CHECKS * time
