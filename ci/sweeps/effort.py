"""How many GPU minutes a sweep is expected to take, from a stated model of what a point costs.

    minutes = ranks * (starts * START_S + sum over rungs of points * (POINT_S + calls * (time + spacing))) / 60

time: the roofline time of the case / REACHED.  calls of a point in a rung: its rounds and WARM_UP_ROUNDS, of several
calls each where a call is short, a warm-up of WARM_UP_S, and CHECKS.  Of the points of a rung, STAYING enter the next.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from benchmarks.points import Point
from ci.sweeps.catalogue import BackendOffer, Catalogue
from ci.sweeps.rungs import Rungs
from kernels import hardware

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
    device = device_of(catalogue.arch, catalogue.compute_units)
    seconds, samples, entering = 0.0, 0, sum(map(len, points.values()))
    for rung, rounds in enumerate(rungs.rounds):
        staying = STAYING**rung if rungs.halving and rung < 3 else STAYING**2 if rungs.halving else 1.0
        seconds += START_S if entering else 0.0
        for case, own in points.items():
            offer = next(one for one in catalogue.offers if one.case == case)
            count = max(1.0, len(own) * staying)
            seconds += count * (POINT_S + point_seconds(offer, device, rounds))
            samples += round(count * rounds)
    return ExpectedEffort(entering, samples, catalogue.world(points) * seconds / 60)


def point_seconds(offer: BackendOffer, device: hardware.Hardware | None, rounds: int) -> float:
    """Seconds of the calls of one point in a rung, its share of the anchor's left out."""
    time = call_seconds(offer, device)
    calls = GRAPH_CALLS if time * REACHED < SHORT_S and device else 1
    warm_up = min(5, max(3, WARM_UP_S / max(time * calls, 1e-6)))
    return (rounds + WARM_UP_ROUNDS + warm_up) * calls * (time + SPACING_S) + CHECKS * time


def call_seconds(offer: BackendOffer, device: hardware.Hardware | None) -> float:
    """Seconds of one call of a point in the middle of a sweep."""
    cost = offer.cost
    if device is None:
        return ((cost.flops or 0) / NOMINAL_FLOPS + (cost.hbm_bytes or 0) / NOMINAL_BYTES_S) / REACHED
    try:
        return hardware.roofline_seconds(_known(offer), offer.dtype, device, offer.world) / REACHED
    except ValueError:  # no peak for this dtype: memory alone
        return (cost.hbm_bytes or 0) / device.hbm_bandwidth / REACHED


def _known(offer: BackendOffer) -> object:
    """The cost with zeros where nothing is declared."""
    given = {name: value or 0 for name, value in dataclasses.asdict(offer.cost).items()}
    return dataclasses.replace(offer.cost, **given)


def device_of(arch: str, compute_units: int | None) -> hardware.Hardware | None:
    """A product of an architecture, by its number of compute units where several have it; None for a CPU."""
    found = [one for one in hardware.DEVICES if one.arch == arch]
    exact = [one for one in found if one.compute_units == compute_units]
    return next(iter(exact or found), None)


def model(rungs: Rungs) -> str:
    """The model in a sentence."""
    of = f"{100 * STAYING:.0f} % of the points of a rung enter the next" if rungs.halving else "all points in all rungs"
    return (
        f"expected: {START_S:g} s for a start, {POINT_S:g} s for a point and its calls at {100 * REACHED:.0f} % of the "
        f"roofline; {of}"
    )
