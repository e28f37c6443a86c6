"""Lines of sweeps made by hand: points with known ratios to their anchor and known noise.

Apart from made_sweeps, because the stand-in for a measurement, which tests start some dozen times, needs no pandas.
"""

from __future__ import annotations

import zlib

import numpy as np

from benchmarks.points import Point
from tests.ci import made_trials
from tests.ci.made_trials import failed, ok

ANCHOR_S = 1e-3


def line(
    points,
    case="m16",
    rung=0,
    batch=0,
    rounds=8,
    noise=0.002,
    drift=0.005,
    plain=None,
    sweep="f3a9",
    regime="spaced",
    **more,
):
    """points: (knobs, true ratio to the anchor, or the status it failed with).  plain: ratios of plain backends."""
    random = np.random.default_rng(zlib.crc32(f"{case}/{rung}/{batch}/{sweep}".encode()))
    level = ANCHOR_S * (1 + drift * random.standard_normal(rounds))

    def timed(ratio):
        return ok((level * ratio * (1 + noise * random.standard_normal(rounds))).clip(1e-6).tolist())

    arms = {"head/triton": timed(1.0)}
    arms |= {f"head/{backend}": timed(ratio) for backend, ratio in (plain or {}).items()}
    listed = {}
    for knobs, ratio in points:
        point = Point(case, "triton", knobs)
        listed[point.id] = {"backend": "triton", "knobs": dict(knobs)}
        arms[f"head/{point.label}"] = failed(ratio) if isinstance(ratio, str) else timed(ratio)
    told = {"id": sweep, "rung": rung, "batch": batch, "anchor": "triton", "points": listed}
    made = made_trials.trial({case: arms}, number=rung, session=f"{sweep}{rung}", minute=rung, **more)
    made["protocol"] |= {"rounds": rounds, "regime": regime}
    return {**made, "sweep": told, "id": f"{made['id'][:12]}{rung:02d}{batch:02d}"}
