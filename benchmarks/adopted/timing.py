"""One closure on both sides: looked at, compared, warmed up, timed in turn, checked again; then both scripts go on.

Whatever one side does costs that side: it gets a status and a sentence, and the other is timed without it.
"""

from __future__ import annotations

import dataclasses
import math
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.adopted.choosing import SAMPLE_S
from benchmarks.adopted.side import ScriptSide
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed
from benchmarks.coordinator.samples import symptoms
from benchmarks.coordinator.samples.entries import failed
from benchmarks.trial_file import Status

SHORT_S = 100e-6
"""Calls shorter than this are timed in a graph, where they can be captured."""

MOST_CALLS = 1000
"""Calls in a sample on a host's clock."""

WARM_UP_ROUNDS = 2


@dataclasses.dataclass(frozen=True)
class ScriptProtocol:
    """rounds: in a trial.  deadline_s: of one step, and between two timers.  directory: for outputs to compare."""

    rounds: int
    deadline_s: float
    directory: Path


class PairedClosure:
    """A closure that waits on one side or both.  no_graph: it could not be captured before."""

    def __init__(
        self, sides: Mapping[str, ScriptSide], protocol: ScriptProtocol, order: random.Random, no_graph: bool = False
    ) -> None:
        self.sides, self.protocol, self.order = dict(sides), protocol, order
        self.failures: dict[str, Failure] = {}
        self.facts: dict[str, dict[str, Any]] = {}
        self.seconds: dict[str, list[float]] = {role: [] for role in sides}
        self.warnings: list[str] = []
        self.method, self.no_graph, self.calls = "events", no_graph, 1
        self._error: dict[str, float] = {}

    def run(self) -> dict[str, Any]:
        """Measure it; returns the statuses, samples and facts of each side, by role."""
        for role in list(self.sides):
            self._examine(role)
        self._compare()
        self._choose_method()
        for _ in range(WARM_UP_ROUNDS):
            self._round(warm_up=True)
        for _ in range(self.protocol.rounds):
            self._round(warm_up=False)
        self._check_after()
        for side in self.sides.values():
            if side.running:
                side.resume()
        return {role: self._entry(role) for role in self.sides}

    # ---- steps ---------------------------------------------------------------------------------------------------

    def _ask(self, role: str, step: str, op: str, **fields: Any) -> Any:
        """One step of one side; None if it failed, which costs this side."""
        if role in self.failures:
            return None
        limit_s = self.protocol.deadline_s + 10 * self._expected_s(role) * fields.get("count", 1) * fields.get(
            "calls", 1
        )
        try:
            return self.sides[role].ask(step, limit_s, op, **fields)
        except (StepFailed, PoolDied) as error:
            self.failures[role] = error.failure
            return None

    def _examine(self, role: str) -> None:
        if (facts := self._ask(role, "first calls", "examine")) is None:
            return
        self.facts[role] = facts
        if facts["changed"]:
            what = "it changes its inputs with every call: they are put back before each, untimed"
            self.warnings.append(f"{role}: {what} ({len(facts['changed'])} tensors)")

    def _compare(self) -> None:
        """Outputs of both sides from equal random numbers: base is the reference."""
        if set(self.facts) != {"base", "head"}:
            return
        unstable = [role for role, facts in self.facts.items() if not facts["repeats"]]
        if unstable:
            said = f"not compared: equal calls give different outputs ({', '.join(unstable)})"
            self.warnings.append(said)
            return
        path = self.protocol.directory / f"outputs-{os.urandom(4).hex()}.pt"
        if self._ask("base", "keeping outputs", "keep_outputs", path=str(path)) is None:
            return
        found = self._ask("head", "comparing outputs", "compare", path=str(path))
        path.unlink(missing_ok=True)
        if found is None:
            return
        if not found["right"]:
            self.failures["head"] = Failure(Status.WRONG, found["why"])
        elif not found["compared"]:
            self.warnings.append(found["why"])
        self._error = {"norm": found["norm"], "peak": found["peak"]}

    def _choose_method(self) -> None:
        """A graph for short closures on a GPU, as many calls a sample as a host's clock needs on a CPU."""
        facts = [one for role, one in self.facts.items() if role not in self.failures]
        if not facts:
            return
        expected_s = max(one["expected_s"] for one in facts)
        changes = any(one["changed"] for one in facts)
        if not all(one["on_gpu"] for one in facts):
            self.method = "clock"
            self.calls = 1 if changes else min(MOST_CALLS, max(1, math.ceil(SAMPLE_S / max(expected_s, 1e-9))))
        elif expected_s < SHORT_S and not changes and not self.no_graph:
            self._capture()

    def _capture(self) -> None:
        reasons = {role: self._ask(role, "graph capture", "capture", calls=1) for role in self.facts}
        why = next(filter(None, reasons.values()), None)
        if why or any(role in self.failures for role in reasons):
            self.no_graph = True
            self.warnings.append(f"it cannot be captured in a graph ({why}): both sides are timed by events")
            for role in self.facts:
                self._ask(role, "leaving the graph", "release")
        else:
            self.method = "graph"

    def _round(self, warm_up: bool) -> None:
        roles = [role for role in self.facts if role not in self.failures]
        for role in self.order.sample(roles, len(roles)):
            found = self._ask(role, "timing", "samples", count=1, calls=self.calls, warm_up=warm_up)
            if found and not warm_up:
                self.seconds[role] += found

    def _check_after(self) -> None:
        """After timing a side must still give what it gave before, if equal calls give equal outputs at all."""
        for role, facts in self.facts.items():
            found = self._ask(role, "check after timing", "check_after") if facts["repeats"] else None
            if found and not found["right"]:
                self.failures[role] = Failure(
                    Status.WRONG, f"after timing, {found['why'].replace('base', 'its first call')}"
                )

    # ---- what is written -----------------------------------------------------------------------------------------

    def _expected_s(self, role: str) -> float:
        return float(self.facts.get(role, {}).get("expected_s", 0.0))

    def _entry(self, role: str) -> dict[str, Any]:
        if failure := self.failures.get(role):
            return failed(failure.status, failure.why, failure.detail)
        facts, seconds = self.facts[role], self.seconds[role]
        self.warnings += [f"{role}: {one}" for one in symptoms.of(seconds, None)]
        return {
            "status": Status.OK,
            "seconds": seconds,
            "skew_s": None,
            "calls_per_sample": self.calls,
            "knobs": {},
            "code_hash": None,
            "first_call_s": facts["first_call_s"],
            "error": self._error if role == "head" else {"norm": 0.0, "peak": 0.0},
        }
