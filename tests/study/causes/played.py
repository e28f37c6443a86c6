"""Measuring that is played: trials of a planted tree, with the noise of recorded ones."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import trial_file
from ci import harness
from ci.git.repository import LocalCheckout
from ci.harness import MEASURED, MeasurePlan
from ci.judging.live import Told
from ci.stats.types import FloatArray
from ci.trials.trial import Json, Scalar
from tests.study.causes.planting import Plant, has
from tests.study.simulate import lock_step_trials, trial_files

Knobs = Mapping[str, Scalar]

PYTHON = "/another/python"
"""The Python of base in a plant of another compiler; nothing is run by it."""

VERSIONS = {"python": "3.11.9", "torch": "2.11.0", "triton": "3.8.0"}


Pair = tuple[FloatArray, FloatArray]
"""Seconds of both arms of a trial of equal code, shape (rounds,) each."""


@dataclasses.dataclass
class RecordedNoise:
    """Recorded A/A trials by case, of which one case at a time is drawn from."""

    cases: Sequence[Sequence[Pair]]
    rng: np.random.Generator
    case: int = 0

    @classmethod
    def of(cls, data: Path, seed: int) -> RecordedNoise:
        """From every case of the H200 recordings."""
        arms = [arms for file in trial_files(data) for arms in lock_step_trials(file).values()]
        pairs = [list(zip(one["base"], one["same"], strict=True)) for one in arms]
        return cls(pairs, np.random.default_rng(seed))

    def next_case(self) -> RecordedNoise:
        """The same, drawing from another case."""
        return dataclasses.replace(self, case=int(self.rng.integers(len(self.cases))))

    def pair(self) -> Pair:
        """A trial, at random."""
        drawn = self.cases[self.case]
        return drawn[int(self.rng.integers(len(drawn)))]


@dataclasses.dataclass
class PlayedMeasuring:
    """Plays `benchmarks run`.  effect: share by which the planted edit makes a call longer.  knobs: by side."""

    plant: Plant
    effect: float
    noise: RecordedNoise
    knobs: Mapping[str, Knobs]
    numbers: itertools.count[int] = dataclasses.field(default_factory=itertools.count)

    def session(
        self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, told: Told
    ) -> int:
        """Append the trials that are ordered, until none is."""
        while orders := json.loads(told()):
            wanted = sum(order["trials"] for order in orders if plan.kernels[0] not in order["without"])
            self(checkouts, dataclasses.replace(plan, trials=wanted), out, console)
        return MEASURED

    def __call__(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> int:
        """Append the trials of a plan."""
        for _ in range(plan.trials):
            trial_file.append(out, trial_file.finished(self._line(checkouts[1].path, plan)))
        return MEASURED

    def _line(self, tree: Path, plan: MeasurePlan) -> Json:
        number, plant = next(self.numbers), self.plant
        head = {"status": "error", "why": "NameError: half of an edit", "detail": ""} if self._broken(tree) else None
        base_s, head_s = self.noise.pair()
        knobs = {**self.knobs["head" if self._edited(tree) else "base"], **_overrides(plan)}
        slow = 1 + self.effect * self._slow(tree, plan, knobs)
        arms = {
            f"base/{plant.backend}": _arm(base_s, self.knobs["base"]),
            f"head/{plant.backend}": head or _arm(head_s * slow, knobs),
        }
        return {
            "session": "5" * 16,
            "trial": number,
            "started_at": f"2026-11-22T12:{number // 60 % 60:02d}:{number % 60:02d}+00:00",
            "kernel": plant.operator,
            "machine": {"name": "played", "kind": "gpu", "arch": plant.arch, "device": "played", "count": 1},
            "trees": {role: self._checkout(role, plan) for role in ("base", "head")},
            "cases": {plant.case: {"method": "events", "arms": arms, "warnings": []}},
        }

    def _edited(self, tree: Path) -> bool:
        return bool(self.plant.file) and all(has(self.plant, tree))

    def _broken(self, tree: Path) -> bool:
        """Whether a tree has one of two edits that need each other."""
        found = has(self.plant, tree) if self.plant.coupled else ()
        return any(found) and not all(found)

    def _slow(self, tree: Path, plan: MeasurePlan, knobs: Knobs) -> bool:
        """Whether what is planted is in effect: head's value of the knob, the edit, or head's compiler."""
        if self.plant.triton:
            return plan.pythons.get("head") != PYTHON
        name = self.plant.knob
        return knobs[name] == self.knobs["head"][name] if name else self._edited(tree)

    def _checkout(self, role: str, plan: MeasurePlan) -> Json:
        plant, versions = self.plant, dict(VERSIONS)
        if plant.triton:
            versions["triton"] = plant.triton[plan.pythons.get(role) != PYTHON]
        declared = {"kernel": plant.operator, "backends": [plant.backend], "baselines": [], "yardstick": "1" * 16}
        case = {"name": plant.case, "world": 1, "dtype": "fp16", "tier": "pr"}
        declaration = {**declared, "cases": [case], "case_yardsticks": {plant.case: "1"}, "costs": {plant.case: {}}}
        return {"commit": ("b" if role == "base" else "a") * 40, "dirty": False, "environment": versions,
                "declaration": declaration}  # fmt: skip


def _arm(seconds: FloatArray, knobs: Knobs) -> Json:
    return {"status": "ok", "seconds": seconds.tolist(), "knobs": dict(knobs)}


def _overrides(plan: MeasurePlan) -> Knobs:
    """What a plan sets in head; numbers and words as `--set` reads them."""
    pairs = (one.removeprefix("head.").split("=", 1) for one in plan.knobs)
    return {name: _literal(value) for name, value in pairs}


def _literal(text: str) -> Scalar:
    try:
        found: Scalar = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return found


def chosen_knobs(plant: Plant, tree: Path) -> Knobs:
    """What config() of a tree chooses for the case of a plant."""
    where = harness.options(kernel=plant.operator, case=plant.case, backend=plant.backend, arch=plant.arch, tree=tree)
    found = harness.query("candidates", *where)["entries"]
    return dict(found[0]["config"])
