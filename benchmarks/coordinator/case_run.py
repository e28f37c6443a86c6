"""One case of one trial: prove every arm right, warm up, take the rounds, prove every arm right again.

A protocol of no rounds stops after the first proof: nothing is timed.

Whatever one arm does (raise, hang, crash, compute nonsense) costs that arm: it gets a status and a sentence, and the
others are measured without it, in fresh processes where the old ones have ended or may be out of step.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from benchmarks.coordinator import symptoms
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.trial_file import Status

WARM_UP_S = 0.02
"""How long each arm is called before the warm-up rounds, within WARM_UP_CALLS."""

WARM_UP_CALLS = (3, 20)
"""Fewest and most calls of an arm before the warm-up rounds."""

WARM_UP_ROUNDS = 2
"""Untimed rounds in the real schedule."""

SAMPLE_S, LEAST_CALLS = 2e-3, 4
"""A graph of an arm need not last longer than SAMPLE_S, as long as it has LEAST_CALLS calls."""

MESSAGE_S, MESSAGE_SAMPLES = 5.0, 2000
"""A request for samples should be done in that time and ask for no more than that many."""

FIRST_USE = ("build", "call")
"""Requests in which a library may compile itself: set-up and first call."""

STARVED_SHARE = 0.1
"""A larger share of samples taken behind an empty queue is reported in a warning."""


class Again(Exception):
    """The case starts anew, with fewer arms or another method."""


@dataclasses.dataclass
class ArmFacts:
    """What an attempt found out about one arm.  seconds, by_rank: by round, of the slowest and of every rank."""

    knobs: dict[str, Any] = dataclasses.field(default_factory=dict)
    error: dict[str, float] = dataclasses.field(default_factory=dict)
    code_hash: str | None = None
    first_call_s: float = 0.0
    compile_s: float = 0.0
    expected_s: float = 0.0
    starved: int = 0
    seconds: list[float] = dataclasses.field(default_factory=list)
    by_rank: list[Sequence[float]] = dataclasses.field(default_factory=list)

    def add_sample(self, by_rank: Sequence[float], starved: int) -> None:
        """One sample: the slowest rank counts."""
        self.seconds.append(max(by_rank))
        self.by_rank.append(by_rank)
        self.starved = starved

    def ranks(self) -> dict[str, list[float]]:
        """Seconds between the ranks by round, and the median of each rank: one that is always slower is its GPU."""
        skew_s = [max(one) - min(one) for one in self.by_rank]
        return {"skew_s": skew_s, "rank_s": [statistics.median(rank) for rank in zip(*self.by_rank, strict=True)]}

    def proven(self) -> dict[str, Any]:
        """The part of its entry that needs no timing."""
        return {key: getattr(self, key) for key in ("knobs", "error", "code_hash", "first_call_s", "compile_s")}


@dataclasses.dataclass(frozen=True)
class RankStep:
    """One request to the ranks of a checkout, for some arms of the case.  name, about: for messages."""

    name: str
    about: str
    op: str
    role: str
    arms: tuple[PlannedArm, ...]
    fields: Mapping[str, Any]


class CaseRun:
    """Runs one case.  hangs: what hung in an earlier trial, by (case, arm); it is not tried again."""

    def __init__(
        self,
        workers: WorkerPools,
        case: PlannedCase,
        protocol: Protocol,
        order: random.Random,
        hangs: dict[tuple[str, str], str],
    ) -> None:
        self.workers, self.case, self.protocol, self.order, self.hangs = workers, case, protocol, order, hangs
        self.method = case.method
        self.warnings: list[str] = []
        self.busy_s = self.wall_s = 0.0
        self.say: Callable[[str], None] = lambda words: None
        self._failures: dict[str, Failure] = {}
        self._ended: set[str] = set()
        self._facts: dict[str, ArmFacts] = {}
        self._one_arm_per_message = False

    def run(self) -> dict[str, Any]:
        """The case's entry in the trial line."""
        for arm in self.case.arms:
            if arm.key in self.case.errors:
                self._failures[arm.key] = Failure(Status.ERROR, self.case.errors[arm.key])
            elif (self.case.name, arm.key) in self.hangs:
                self._failures[arm.key] = Failure(Status.HANG, self.hangs[self.case.name, arm.key])
                self._ended.add(arm.key)
        while True:
            try:
                self._attempt()
                return self._entry()
            except Again:
                continue

    # ---- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        self._facts = {arm.key: ArmFacts() for arm in self.case.arms}
        self._start()
        self._make_inputs()
        self._set_up()
        for arm in self._arms():
            self._prove(arm)
        if self.protocol.rounds:
            self._take()

    def _start(self) -> None:
        self.workers.ready(self._roles())
        for arm in self._arms():
            if arm.role in self.workers.lost:
                self._failures[arm.key] = self.workers.lost[arm.role]

    def _make_inputs(self) -> None:
        """Inputs and reference in every checkout at once."""
        fields = {"case": self.case.name, "seed": self.protocol.seed, "copies": self._copies}
        own = {role: {**fields, "without": self._ended_processes(role)} for role in self._roles()}
        by_role = {role: tuple(arm for arm in self._arms() if arm.role == role) for role in self._roles()}
        names = {role: ("inputs and reference", f"{role} {self.case.name}", "case") for role in by_role}
        self._together([RankStep(*names[role], role, arms, own[role]) for role, arms in by_role.items()])

    def _set_up(self) -> None:
        """Build the arms, one per checkout at a time."""
        by_role = [[arm for arm in self._arms() if arm.role == role] for role in self._roles()]
        for arms in zip_longest(*by_role):
            fields = {arm: {"backend": arm.backend, "overrides": dict(arm.overrides)} for arm in arms if arm}
            steps = [RankStep("set-up", arm.key, "build", arm.role, (arm,), own) for arm, own in fields.items()]
            for step, answers in self._together(steps):
                self._facts[step.arms[0].key].knobs = answers[0]

    def _prove(self, arm: PlannedArm) -> None:
        """First call, then a call into poisoned outputs, compared with the reference."""
        first = self._step(arm, "first call", "call")
        checks = self._check(arm, "check") if first else None
        hashes = self._step(arm, "tracing", "trace") if checks else None
        if first is None or checks is None or hashes is None:
            return
        facts = self._facts[arm.key]
        facts.first_call_s = max(one["seconds"] - one["compile_s"] for one in first)
        facts.compile_s = max(one["compile_s"] for one in first)
        facts.expected_s = max(check["seconds"] for check in checks)
        facts.error = {key: max(check[key] for check in checks) for key in ("norm", "peak")}
        facts.code_hash = _joint(hashes)

    def _check(self, arm: PlannedArm, step: str) -> list[Any] | None:
        if self._step(arm, f"poison before {step}", "poison") is None:
            return None
        return self._step(arm, step, "check")

    def _take(self) -> None:
        """Samples of every arm that is right."""
        self.say("")
        if self.method == "graph":
            for arm in self._arms():
                self._capture(arm)
        self._warm_up()
        self._rounds(self.protocol.rounds, warm_up=False)
        for arm in self._arms():
            self._check(arm, "check after timing")

    def _capture(self, arm: PlannedArm) -> None:
        reasons = self._step(arm, "graph capture", "capture", calls=self._calls(arm))
        if reasons is None:
            return
        if any(reasons):
            why = next(filter(None, reasons))
            self.method = "events"
            self.warnings.append(
                f"{arm.key} cannot be captured in a graph ({why}): all arms of this case are timed by events"
            )
            self.workers.pools[arm.role].kill()  # a failed capture can leave the device library in a bad state
            raise Again
        self._check(arm, "check of the graph")

    def _warm_up(self) -> None:
        for arm in self._arms():
            fewest, most = WARM_UP_CALLS
            sample_s = self._facts[arm.key].expected_s * self._calls(arm)
            count = min(most, max(fewest, math.ceil(WARM_UP_S / max(sample_s, 1e-6))))
            self._step(arm, "warm-up", "samples", order=[arm.backend] * count, warm_up=True)
        self._rounds(WARM_UP_ROUNDS, warm_up=True)

    def _rounds(self, rounds: int, warm_up: bool) -> None:
        """Samples of every arm, round by round; those of the warm-up are not kept."""
        for message in self._messages(list(shuffled(self._arms(), rounds, self.order))):
            begin = time.perf_counter()
            answers = self._samples(message, warm_up)
            if warm_up:
                continue
            self.wall_s += time.perf_counter() - begin
            self.busy_s += sum(answer["busy_s"] for answer in answers) / len(answers)
            for index, arm in enumerate(message):
                starved = max(answer["starved"][arm.backend] for answer in answers)
                self._facts[arm.key].add_sample([answer["seconds"][index] for answer in answers], starved)

    def _messages(self, schedule: Sequence[PlannedArm]) -> Iterator[list[PlannedArm]]:
        """Parts of the schedule that one checkout can do in one go; single arms once something went wrong."""
        message: list[PlannedArm] = []
        expected_s = 0.0
        for arm in schedule:
            same = message and (arm == message[0] if self._one_arm_per_message else arm.role == message[0].role)
            if message and not (same and expected_s < MESSAGE_S and len(message) < MESSAGE_SAMPLES):
                yield message
                message, expected_s = [], 0.0
            message.append(arm)
            expected_s += self._facts[arm.key].expected_s
        if message:
            yield message

    def _samples(self, message: Sequence[PlannedArm], warm_up: bool) -> list[Any]:
        names = sorted({arm.key for arm in message})
        limit_s = self.protocol.deadline_s + 10 * sum(self._facts[arm.key].expected_s for arm in message)
        order = [arm.backend for arm in message]
        pool = self.workers.pools[message[0].role]
        try:
            return pool.ask(f"timing of {', '.join(names)}", limit_s, "samples", order=order, warm_up=warm_up)
        except (StepFailed, PoolDied) as error:
            if len(names) == 1:
                self._give_up(message[0], error.failure, isinstance(error, PoolDied))
            self._one_arm_per_message = True
            raise Again from error

    # ---- steps and their failures --------------------------------------------------------------------------------

    def _step(self, arm: PlannedArm, step: str, op: str, **fields: Any) -> list[Any] | None:
        """One step of one arm on all ranks; None if the arm failed and the others can go on."""
        if op != "samples":
            fields["backend"] = arm.backend
        try:
            return self.workers.pools[arm.role].ask(f"{step} of {arm.key}", self._allow(op, arm), op, **fields)
        except PoolDied as error:
            self._give_up(arm, error.failure, ended=True)
            raise Again from error
        except StepFailed as error:
            self._step_failed(arm, error.failure, step)
            return None

    def _together(self, steps: Sequence[RankStep]) -> list[tuple[RankStep, list[Any]]]:
        """Steps of several checkouts at once; the answers to those that succeeded."""
        for step in steps:
            label = f"{step.name} of {step.about}"
            self.workers.pools[step.role].post(label, self._allow(step.op, *step.arms), step.op, **step.fields)
        answers, again = [], False
        for step in steps:
            try:
                answers.append((step, self.workers.pools[step.role].collect()))
            except PoolDied as error:
                again = True
                for arm in step.arms:
                    self._give_up(arm, error.failure, ended=True)
            except StepFailed as error:
                again = self._all_failed(step, error.failure) or again
        if again:
            raise Again
        return answers

    def _allow(self, op: str, *arms: PlannedArm) -> float:
        """Seconds that a step may take; said where a library that compiles itself on first use gets more for that."""
        own_s = max((arm.first_call_s for arm in arms), default=0.0) if op in FIRST_USE else 0.0
        if own_s <= self.protocol.deadline_s:
            return self.protocol.deadline_s
        if arms[0].libraries:  # it is installed
            self.say(f": {arms[0].key} compiling, allowed {own_s:g} s")
        return own_s

    def _all_failed(self, step: RankStep, failure: Failure) -> bool:
        """Take out every arm of a failed step; True if the case must start anew."""
        for arm in step.arms:
            self._give_up(arm, _in_step(failure, step.name))
        try:
            for arm in step.arms:
                self._step_failed(arm, failure, step.name)
        except Again:
            return True
        return False

    def _step_failed(self, arm: PlannedArm, failure: Failure, step: str) -> None:
        """Take an arm out whose step failed.  Ranks that may be out of step with each other start anew."""
        self._give_up(arm, _in_step(failure, step))
        together = failure.status == Status.WRONG or (failure.status == Status.UNSUPPORTED and failure.everywhere)
        if failure.spoiled or (self.case.world > 1 and not together):
            raise Again
        pool = self.workers.pools[arm.role]
        try:
            pool.ask(f"dropping {arm.key}", self.protocol.deadline_s, "drop", backend=arm.backend)
        except (StepFailed, PoolDied) as error:
            pool.kill()
            raise Again from error

    def _give_up(self, arm: PlannedArm, failure: Failure, ended: bool = False) -> None:
        """Take an arm out.  ended: with it its processes, or their device, were lost."""
        self._ended |= {arm.key} if ended else set()
        if arm.libraries and failure.status.failed:
            failure = dataclasses.replace(failure, why=f"{failure.why} ({arm.libraries})")
        self._failures[arm.key] = failure
        if failure.status == Status.HANG:
            self.hangs[self.case.name, arm.key] = f"not tried again: in an earlier trial {failure.why}"

    def _ended_processes(self, role: str) -> list[str]:
        """Backends of a checkout with which the processes or the device were lost in this case."""
        return [arm.backend for arm in self.case.arms if arm.role == role and arm.key in self._ended]

    # ---- what is left, and what is written -----------------------------------------------------------------------

    @property
    def _copies(self) -> int:
        return self.case.copies if self.method == "graph" and self.protocol.rounds else 1

    def _calls(self, arm: PlannedArm) -> int:
        """Calls per sample."""
        if self.method != "graph":
            return 1
        enough = max(LEAST_CALLS, math.ceil(SAMPLE_S / max(self._facts[arm.key].expected_s, 1e-9)))
        return min(self.case.calls, enough)

    def _arms(self) -> list[PlannedArm]:
        return [arm for arm in self.case.arms if arm.key not in self._failures]

    def _roles(self) -> list[str]:
        return list(dict.fromkeys(arm.role for arm in self._arms()))

    def _entry(self) -> dict[str, Any]:
        arms = {arm.key: self._arm_entry(arm) for arm in self.case.arms}
        return {"method": self.method, "arms": arms, "warnings": list(dict.fromkeys(self.warnings))}

    def _arm_entry(self, arm: PlannedArm) -> dict[str, Any]:
        if arm.key in self._failures:
            failure = self._failures[arm.key]
            return {"status": failure.status, "why": failure.why, "detail": failure.detail}
        facts = self._facts[arm.key]
        if not self.protocol.rounds:
            return {"status": Status.OK, **facts.proven()}
        self._warn(arm, facts)
        ranks = facts.ranks() if self.case.world > 1 else {"skew_s": None}
        timed = {"seconds": facts.seconds, **ranks, "calls_per_sample": self._calls(arm)}
        return {"status": Status.OK, **timed, **facts.proven()}

    def _warn(self, arm: PlannedArm, facts: ArmFacts) -> None:
        self.warnings += [f"{arm.key}: {finding}" for finding in symptoms.of(facts.seconds, facts.first_call_s)]
        rounds = self.protocol.rounds
        if facts.starved > STARVED_SHARE * rounds:
            self.warnings.append(
                f"{arm.key}: in {facts.starved} of {rounds} samples the device was faster than the host could "
                "enqueue the call: launch latency is in the time"
            )


def _in_step(failure: Failure, step: str) -> Failure:
    """The failure with the step in its sentence; what a backend says about itself needs none."""
    if failure.status == Status.UNSUPPORTED:
        return failure
    return dataclasses.replace(failure, why=f"{step}: {failure.why}")


def _joint(hashes: Sequence[str | None]) -> str | None:
    """One digest for all ranks, None if any is unknown."""
    if any(one is None for one in hashes):
        return None
    return hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(map(str, hashes)).encode()).hexdigest()[:16]


def shuffled(arms: Sequence[PlannedArm], rounds: int, order: random.Random) -> Iterator[PlannedArm]:
    """Every arm once per round, each round in an order of its own."""
    for _ in range(rounds):
        yield from order.sample(list(arms), len(arms))
