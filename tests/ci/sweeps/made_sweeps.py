"""Sweeps made by hand: catalogues, files and frames of known ratios (made_lines)."""

from __future__ import annotations

import json
from pathlib import Path

from ci.sweeps import measured
from ci.sweeps.catalogue import BackendOffer, Catalogue, TablePlace
from tests.ci.made_trials import declaration, tree, write
from tests.ci.sweeps.made_lines import line

# Catalogues made by hand.


KNOBS = {"block_m": 64, "num_warps": 4, "flatten": True, "variant": "split", "scale": 1.0, "swizzle": None}


def offer(case="m16", backend="triton", **more):
    given = {"config": {"block_m": 16}, "knobs": KNOBS, "defaults": KNOBS, **more}
    return BackendOffer("gemm", case, backend, **given)


def catalogue(offers=(), arch="sm_90"):
    blas = offer(backend="blas", baseline=True, config={}, knobs={}, defaults={})
    return Catalogue("gemm", arch, 132, tuple(offers) or (offer(), blas))


# Cases with a tuned table, and measured sweeps of them, made by hand.


DEFAULTS = {"warps": 4, "stages": 3, "rows": 8, "store": ""}
RULE = {"warps": 4, "stages": 2}
FAST, SLOW, OTHER = {"warps": 8, "stages": 2}, {"warps": 2, "stages": 2}, {"warps": 8, "stages": 4}

TABLE = """\
# Winners of a sweep.
# By hand.

[sm_90.m64]
# Somebody's word on m64.
warps = 8
stages = 2

[sm_90.m256]
warps = 2
stages = 2
"""


def case(name="m16_fp16", entry=None, file=Path("tuned.toml"), **more):
    """A case whose key is its name without the dtype."""
    place = TablePlace(file, ("sm_90",), name.partition("_")[0])
    candidates = tuple({**DEFAULTS, **knobs} for knobs in (RULE, FAST, SLOW, OTHER))
    table = {"entry": entry or {}, "rule": RULE, "defaults": DEFAULTS, "config": {**DEFAULTS, **(entry or RULE)}}
    return BackendOffer("gemm", name, "triton", place=place, candidates=candidates, **table, **more)


def sweep(folder, ratios, trials=3, entry=None):
    """A sweep whose anchor is the present choice: by case, knobs and their true ratios to it."""
    return measured.read([sweep_file(folder, ratios, trials, entry)])


def sweep_file(folder, ratios, trials=3, entry=None):
    """The trial file of such a sweep."""
    lines = [_line(name, own, rung, entry or RULE) for name, own in ratios.items() for rung in range(trials)]
    return write(folder / "sweep.jsonl", *lines)


def _line(name, own, rung, chosen):
    made = line(
        [(dict(knobs), ratio) for knobs, ratio in own], case=name, rung=rung, rounds=40, drift=0.003, trees=trees(name)
    )
    points = made["sweep"]["points"]
    for key, arm in made["cases"][name]["arms"].items():
        if arm["status"] == "ok":
            overrides = points[key.partition("@")[2]]["knobs"] if "@" in key else {}
            arm["knobs"] = {**chosen, **overrides}
    return json.loads(json.dumps(made))


def trees(*names, **more):
    """A checkout that declares these cases."""
    declared = declaration("gemm", cases=names)
    return {"head": tree(declared=declared, **more)}
