"""Steps of the arms of a case on all ranks, and what becomes of an arm whose step fails.

Whatever one arm does costs that arm: it is taken out with a status and a sentence, and the case starts anew (Again)
where the processes have ended or may be out of step.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed
from benchmarks.coordinator.referee import RefereeGone, truth_of
from benchmarks.coordinator.samples import spot_checks
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.trial_file import Status

FIRST_USE = ("build", "call")
"""Requests in which a library may compile itself: set-up and first call."""

COMPILE_S = 60.0
"""How much longer a step of a point may take in which it is compiled; the longest of ours takes 7 s (2026-11)."""


SETTLE_S = 0.2
"""How long processes may take to end with their parent, of which 300 MB are freed first: 5 to 50 ms (2026-11)."""


MOST_RESTARTS = 3
"""How often a case starts anew because the referee ended."""

ENDS_REFEREE = (
    f"the process that compares its output ended {MOST_RESTARTS + 1} times before it could: a kernel ended it or its "
    "parent, or memory ran out"
)


class Again(Exception):
    """The case starts anew, with fewer arms or another method."""


@dataclasses.dataclass(frozen=True)
class RankStep:
    """One request to the ranks of a checkout, for some arms of the case.  name, about: for messages."""

    name: str
    about: str
    op: str
    role: str
    arms: tuple[PlannedArm, ...]
    fields: Mapping[str, Any]


class ArmSteps:
    """Asks the ranks for steps of the arms of one case.  failures: by arm, why it is not measured any more.

    known: what hung before, by (case, arm); it is not tried again.
    """

    def __init__(
        self, workers: WorkerPools, case: PlannedCase, protocol: Protocol, known: dict[tuple[str, str], Failure]
    ) -> None:
        self.workers, self.case, self.protocol, self.known = workers, case, protocol, known
        self.say: Callable[[str], None] = lambda words: None
        self.failures: dict[str, Failure] = {}
        self.ended: set[str] = set()
        self._in_turns, self._restarts = False, 0
        self.referee, self.made_apart = workers.referee, workers.made_apart
        self.quiet = workers.quiet

    def arms(self) -> list[PlannedArm]:
        """The arms that have not failed."""
        return [arm for arm in self.case.arms if arm.key not in self.failures]

    def roles(self) -> list[str]:
        """The checkouts of these."""
        return list(dict.fromkeys(arm.role for arm in self.arms()))

    def step(self, arm: PlannedArm, step: str, op: str, more_s: float = 0.0, **fields: Any) -> list[Any] | None:
        """One step of one arm on all ranks; None if the arm failed and the others can go on.  more_s: than usual."""
        if op != "samples":
            fields["label"] = arm.label
        try:
            return self.ask(arm.role, f"{step} of {arm.key}", self._allow(op, arm) + more_s, op, **fields)
        except PoolDied as error:
            self.give_up(arm, error.failure, ended=True)
            raise Again from error
        except StepFailed as error:
            self._step_failed(arm, error.failure, step)
            return None

    def ask(self, role: str, what: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        """The answers of all ranks of a checkout.  Raises StepFailed, PoolDied, or Again where nobody can be blamed."""
        self.quiet.pause()
        pool = self.workers.pools[role]
        try:
            answers = pool.ask(what, limit_s, op, **fields)
        except PoolDied as error:
            self._unless_orphaned(error)
            raise
        self._look_at(role, what)
        return answers

    def _unless_orphaned(self, error: PoolDied) -> None:
        """Again, if the processes of all checkouts ended with their parent: which arm killed it is not known.

        From then on every step is looked at on its own, so that the next time it is.
        """
        if error.failure.orphaned and not self._in_turns:
            self._in_turns = True
            raise Again from error

    def _look_at(self, role: str, what: str) -> None:
        """PoolDied if processes have ended with their parent right behind a step; it is looked at where one has."""
        if self._in_turns:
            time.sleep(SETTLE_S)
            if not self.workers.pools[role].lives():
                raise PoolDied(Failure(Status.CRASH, f"its parent was killed in step: {what}", orphaned=True))

    def together(self, steps: Sequence[RankStep]) -> list[tuple[RankStep, list[Any]]]:
        """Steps of several checkouts at once; the answers to those that succeeded.

        Where all ended because one of them killed their parent, they are asked in turns from then on.
        """
        if self._in_turns and len(steps) > 1:
            return [found for step in steps for found in self.together([step])]
        self.quiet.pause()
        for step in steps:
            label = f"{step.name} of {step.about}"
            self.workers.pools[step.role].post(label, self._allow(step.op, *step.arms), step.op, **step.fields)
        answers, again = [], False
        for step in steps:
            try:
                answers.append((step, self.workers.pools[step.role].collect()))
                self._look_at(step.role, f"{step.name} of {step.about}")
            except PoolDied as error:
                self._unless_orphaned(error)
                again = True
                for arm in step.arms:
                    self.give_up(arm, error.failure, ended=True)
            except StepFailed as error:
                again = self._all_failed(step, error.failure) or again
        if again:
            raise Again
        return answers

    def look_at_files(self) -> None:
        """Take out the arms of a checkout whose processes ran a file that it has not, or that its digest leaves out."""
        asked = [
            RankStep("what it ran", self.case.name, "ran", role, arms, {"tops": self.workers.tops(role)})
            for role in self.roles()
            for arms in [tuple(arm for arm in self.arms() if arm.role == role)]
        ]
        for step, answers in self.together(asked):
            self.workers.look_at(step.role, answers)
        for arm in self.arms():
            if arm.role in self.workers.strayed:
                self.give_up(arm, Failure(Status.ERROR, self.workers.strayed[arm.role]))

    # ---- the referee ---------------------------------------------------------------------------------------------

    def truth_roles(self) -> list[str]:
        """The processes that are needed to make references of this case."""
        return [self._truth_role(role) for role in self._unknown(self.roles())] if self.made_apart else []

    def truth_steps(self, steps: Sequence[RankStep]) -> list[RankStep]:
        """The steps that make inputs, for the processes that make references."""
        fields = {"copies": 1, "keep": False, "reference": True}
        unknown = self._unknown(step.role for step in steps) if self.made_apart else []
        return [
            dataclasses.replace(step, role=self._truth_role(step.role), fields={**step.fields, **fields})
            for step in steps
            if step.role in unknown
        ]

    def expect(self, made: Sequence[RankStep]) -> None:
        """Have the references that were made handed to the referee."""
        if self.referee is None:
            return
        unknown = self._unknown(step.role for step in made)
        asked = {step.role: {"op": "truth", "fields": {"file": self.referee.file()}} for step in made}
        steps = [dataclasses.replace(step, **asked[step.role]) for step in made if step.role in unknown]
        told = self.together([dataclasses.replace(step, role=self._truth_role(step.role)) for step in steps])
        for step, answers in told:
            for rank, truth in enumerate(answers):
                try:
                    self.referee.expect(self._key(step.arms[0].role, rank), **truth)
                except (StepFailed, PoolDied) as error:
                    if isinstance(error, PoolDied):
                        self._unless_orphaned(error)
                    self._all_failed(step, error.failure)
                    raise Again from error

    def judged(self, arm: PlannedArm, step: str, handed: Sequence[Any]) -> list[Any] | None:
        """What the referee says of the outputs of every rank; None if they are wrong and the others can go on."""
        assert self.referee
        try:
            found = self._compared(arm, handed)
        except PoolDied as error:
            self._unless_orphaned(error)
            self.give_up(arm, _in_step(error.failure, step))
            raise Again from error
        except StepFailed as error:
            self._step_failed(arm, error.failure, step)
            return None
        wrong = [one["why"] for one in found if one["why"]]
        if wrong:
            self._step_failed(arm, Failure(Status.WRONG, wrong[0], everywhere=len(wrong) == len(found)), step)
            return None
        return [{**one, **errors} for one, errors in zip(handed, found, strict=True)]

    def spotted(self, arm: PlannedArm, reports: Sequence[Any]) -> str:
        """What is wrong with a spot check of an arm, by what every rank tells of it; "" if nothing is."""
        handed = [one for one in reports if "handed" in one]
        try:
            found = self._compared(arm, handed) if handed and len(handed) == len(reports) else reports
        except (StepFailed, PoolDied) as error:
            if isinstance(error, PoolDied):
                self._unless_orphaned(error)
            self.give_up(arm, _in_step(error.failure, "spot check"))
            raise Again from error
        told = (spot_checks.sentence({**one, **known}) for one, known in zip(reports, found, strict=True))
        return next(filter(None, told), "")

    def _compared(self, arm: PlannedArm, handed: Sequence[Any]) -> list[Any]:
        """What the referee says of what every rank handed over.  Raises StepFailed or PoolDied."""
        assert self.referee
        keyed = [(self._key(arm.role, rank), one) for rank, one in enumerate(handed)]
        try:
            return [self.referee.compare(key, one["handed"], one["sets"]) for key, one in keyed]
        except RefereeGone:
            self._restarts += 1
            if self._restarts <= MOST_RESTARTS:
                raise Again from None  # which may be no fault of this arm
            self._restarts = 0
            raise StepFailed(Failure(Status.CRASH, ENDS_REFEREE)) from None

    def _truth_role(self, role: str) -> str:
        return truth_of(role) if self.made_apart else role

    def _unknown(self, roles: Iterable[str]) -> list[str]:
        """The checkouts of whose references the referee does not know all ranks."""
        ranks = range(self.case.world)
        return [r for r in roles if self.referee and not self.referee.knows(self._key(r, rank) for rank in ranks)]

    def _key(self, role: str, rank: int) -> str:
        """The name of a reference."""
        return f"{self.workers.setting.kernel}/{self.case.name}/{role}/{rank}/{self.protocol.seed}"

    # ---- limits, and failures ------------------------------------------------------------------------------------

    def _allow(self, op: str, *arms: PlannedArm) -> float:
        """Seconds that a step may take; said where a library that compiles itself on first use gets more for that."""
        own_s = max((arm.first_call_s for arm in arms), default=0.0) if op in FIRST_USE else 0.0
        if own_s <= self.protocol.deadline_s:
            compiles = op in FIRST_USE and self.workers.setting.gpu and any(arm.point for arm in arms)
            extra_s = COMPILE_S if compiles else 0.0
            return self.protocol.deadline_s if op == "case" else self.deadline_s(arms, extra_s)
        if arms[0].libraries:  # it is installed
            self.say(f": {arms[0].key} compiling, allowed {own_s:g} s")
        return own_s

    def deadline_s(self, arms: Sequence[PlannedArm], extra_s: float = 0.0) -> float:
        """Seconds that calls of arms may take, beyond what is expected of them; fewer if one is a point of a sweep."""
        limit_s = self.protocol.deadline_s
        return min(limit_s, self.protocol.point_deadline_s + extra_s) if any(arm.point for arm in arms) else limit_s

    def _all_failed(self, step: RankStep, failure: Failure) -> bool:
        """Take out every arm of a failed step; True if the case must start anew."""
        for arm in step.arms:
            self.give_up(arm, _in_step(failure, step.name))
        try:
            for arm in step.arms:
                self._step_failed(arm, failure, step.name)
        except Again:
            return True
        return False

    def _step_failed(self, arm: PlannedArm, failure: Failure, step: str) -> None:
        """Take an arm out whose step failed.  Ranks that may be out of step with each other start anew."""
        self.give_up(arm, _in_step(failure, step))
        together = failure.status == Status.WRONG or (failure.status == Status.UNSUPPORTED and failure.everywhere)
        if failure.spoiled or (self.case.world > 1 and not together):
            raise Again
        pool = self.workers.pools[arm.role]
        try:
            pool.ask(f"dropping {arm.key}", self.protocol.deadline_s, "drop", label=arm.label)
        except (StepFailed, PoolDied) as error:
            pool.kill()
            raise Again from error

    def give_up(self, arm: PlannedArm, failure: Failure, ended: bool = False) -> None:
        """Take an arm out.  ended: with it its processes, or their device, were lost."""
        self.ended |= {arm.key} if ended else set()
        if arm.libraries and failure.status.failed:
            failure = dataclasses.replace(failure, why=f"{failure.why} ({arm.libraries})")
        self.failures[arm.key] = failure
        if failure.status == Status.HANG:
            why = f"not tried again: in an earlier trial {failure.why}"
            self.known[self.case.name, arm.key] = Failure(Status.HANG, why)

    def ended_processes(self, role: str) -> list[str]:
        """Backends of a checkout with which the processes or the device were lost in this case.

        A backend of which other points are measured is none of them: one point of it was at fault.
        """
        used = {arm.backend for arm in self.arms() if arm.role == role}
        lost = [arm.backend for arm in self.case.arms if arm.role == role and arm.key in self.ended]
        return [backend for backend in lost if backend not in used]


def _in_step(failure: Failure, step: str) -> Failure:
    """The failure with the step in its sentence; what a backend says about itself needs none."""
    if failure.status == Status.UNSUPPORTED:
        return failure
    return dataclasses.replace(failure, why=f"{step}: {failure.why}")
