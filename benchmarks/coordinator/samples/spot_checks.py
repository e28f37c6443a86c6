"""Samples that are not kept, at random among the timed ones: what the call did in them is compared afterwards."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.plan import PlannedArm

OF_AN_ARM = ("outputs", "inputs")
"""The spot checks of an arm in a trial, by what is changed before the call (worker.guards.spot_check.KINDS).  A call
that skips its work in a share p of the timed rounds passes them in (1 - p)^2 of the trials, of which there are three or
more."""

OF_A_POINT = ("inputs",)
"""Of a point of a sweep; where a kernel has no live inputs the worker changes the outputs."""

LATE = (
    "in a spot check during timing its output was not complete when the timed span ended: it works in a stream, thread "
    "or process that the span does not wait for, or when its output is read"
)
LEFT = "in a spot check during timing it left its output as it was: work is skipped while it is timed"
STALE = "in a spot check during timing its inputs had new values, and it gave the result of the old ones"
WRONG = "in a spot check during timing its output was wrong"

SECRETS = random.SystemRandom()
"""Where and when must not follow from the trial's number, as the order of the arms does."""


@dataclasses.dataclass(frozen=True)
class PlannedSample:
    """One sample of an arm.  spot: the kind of a spot check, "" for a sample that counts."""

    arm: PlannedArm
    spot: str = ""

    def request(self) -> dict[str, Any] | None:
        """What a measuring process is told of it, equal for all ranks; None for a sample that counts."""
        return {"kind": self.spot, "secret": secret()} if self.spot else None


def secret() -> int:
    """A seed that no kernel knows."""
    return SECRETS.getrandbits(62)


def among(schedule: Sequence[PlannedArm], chance: random.Random = SECRETS) -> list[PlannedSample]:
    """The samples of a schedule, in its order, with the spot checks of every arm between them."""
    found = [PlannedSample(arm) for arm in schedule]
    for arm in dict.fromkeys(schedule):
        for kind in OF_A_POINT if arm.point else OF_AN_ARM:
            found.insert(chance.randrange(len(found) + 1), PlannedSample(arm, kind))
    return found


def after(arms: Sequence[PlannedArm], rounds: int, chance: random.Random = SECRETS) -> dict[int, list[PlannedSample]]:
    """The spot checks of every arm by the number of bursts after which they come."""
    found: dict[int, list[PlannedSample]] = {}
    for arm in arms:
        for kind in OF_A_POINT if arm.point else OF_AN_ARM:
            found.setdefault(chance.randint(1, rounds * len(arms)), []).append(PlannedSample(arm, kind))
    return found


def sentence(report: Mapping[str, Any]) -> str:
    """What is said of a spot check, "" if all is well.

    late: the outputs changed after the timed span.  left: one holds what was put there.  why: what is wrong in them.
    stale: they are right for the values that the inputs had before.  misshapen: they are no plain tensors.
    """
    if report["misshapen"]:
        return f"in a spot check during timing it {report['misshapen']}"
    if report["late"]:
        return LATE
    if report["left"]:
        return LEFT
    if not report["why"]:
        return ""
    return f"{STALE if report['kind'] == 'inputs' and report['stale'] else WRONG}: {report['why']}"
