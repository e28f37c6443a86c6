"""One case of one trial: prove every arm right, warm up, take the rounds, prove every arm right again.

A protocol of no rounds stops after the first proof: nothing is timed.

Whatever one arm does (raise, hang, crash, compute nonsense) costs that arm: it gets a status and a sentence, and the
others are measured without it, in fresh processes where the old ones have ended or may be out of step.
"""

from __future__ import annotations

import dataclasses
import math
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from benchmarks.coordinator import samples
from benchmarks.coordinator.ranks import Failed, Failure, PoolDied, StepFailed
from benchmarks.coordinator.samples import SETTLED, ArmFacts, BurstRounds, PhysicalFloor, PlannedSample, joint, shuffled
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import Status

FIRST_USE = ("build", "call")
"""Requests in which a library may compile itself: set-up and first call."""

COMPILE_S = 60.0
"""How much longer a step of a point may take in which it is compiled; the longest of ours takes 7 s (2026-11)."""

SETTLE_S = 0.2
"""How long processes may take to end with their parent, of which 300 MB are freed first: 5 to 50 ms (2026-11)."""

SAMPLE_S, LEAST_CALLS = 2e-3, 4
"""A graph of an arm need not last longer than SAMPLE_S, as long as it has LEAST_CALLS calls."""

OVERDUE = 10
"""Beyond its deadline a request for samples may take this many times as long as they are expected to."""

MESSAGE_S, MESSAGE_SAMPLES = 5.0, 2000
"""A request for samples should be done in that time and ask for no more than that many."""

AGAIN = 5
"""Calls of which the shortest says how long a call takes, where other processes take turns on the device."""

STARVED_SHARE = 0.1
"""A larger share of samples taken behind an empty queue is reported in a warning."""


class Again(Exception):
    """The case starts anew, with fewer arms or another method."""


@dataclasses.dataclass(frozen=True)
class RankStep:
    """One request to the ranks of a checkout, for some arms of the case.  name, about: for messages.

    more_s: than such a request usually may take.
    """

    name: str
    about: str
    op: str
    role: str
    arms: tuple[PlannedArm, ...]
    fields: Json
    more_s: float = 0.0

    @property
    def what(self) -> str:
        """In a message."""
        return f"{self.name} of {self.about}"


class CaseRun:
    """Runs one case.  keep_inputs: where its processes still have inputs and reference of this case, they are good.

    known: what hung before, by (case, arm); it is not tried again.  failures: by arm, why it is not measured any more.
    spots: there are spot checks among the samples.
    """

    spots = True

    def __init__(
        self,
        workers: WorkerPools,
        case: PlannedCase,
        protocol: Protocol,
        order: random.Random,
        known: dict[tuple[str, str], Failure],
        keep_inputs: bool = False,
    ) -> None:
        self.workers, self.case, self.protocol, self.known, self.order = workers, case, protocol, known, order
        self.quiet = workers.quiet
        self.say: Callable[[str], None] = lambda words: None
        self.failures: dict[str, Failure] = {}
        self.ended: set[str] = set()
        self._in_turns = False
        self.method = case.method
        self.warnings: list[str] = []
        self._facts: dict[str, ArmFacts] = {}
        self._one_arm_per_message = False
        self._keep_inputs = keep_inputs
        self.floor, self.secret = PhysicalFloor(), 0

    def run(self) -> JsonObject:
        """The case's entry in the trial line."""
        for arm in self.case.arms:
            if arm.key in self.case.errors:
                self.failures[arm.key] = Failure(Status.ERROR, self.case.errors[arm.key])
            elif (self.case.name, arm.key) in self.known:
                self.failures[arm.key] = self.known[self.case.name, arm.key]
                self.ended.add(arm.key)
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
        for arm in self.arms():
            self._prove(arm)
        self.look_at_files()
        if self.protocol.rounds:
            self._take()
            self.look_at_files()

    def _start(self) -> None:
        self.workers.ready(self.roles())
        for arm in self.arms():
            if arm.role in self.workers.lost:
                self.failures[arm.key] = self.workers.lost[arm.role]

    def _make_inputs(self) -> None:
        """Inputs and reference in every checkout at once."""
        fields = {"case": self.case.name, "seed": self.protocol.seed, "copies": self._copies}
        fields |= {"secret": self.secret if self.protocol.rounds else 0, "keep": self._keep_inputs}
        self._keep_inputs = False  # an attempt that ended early may have left them changed
        self.together(
            [
                RankStep("inputs and reference", f"{role} {self.case.name}", "case", role, self.arms_of(role), own)
                for role in self.roles()
                for own in [{**fields, "without": self.ended_processes(role)}]
            ]
        )

    def _set_up(self) -> None:
        """Build the arms, one per checkout at a time, and let them tune."""
        self.workers.compiled(self.case.name)
        by_role = [self.arms_of(role) for role in self.roles()]
        tunes = [arm for arms in zip_longest(*by_role) for arm in self._built([arm for arm in arms if arm])]
        if tunes:
            with self.quiet.alone():
                for arm in tunes:
                    self.step(arm, "tuning", "tune")

    def _built(self, arms: Sequence[PlannedArm]) -> list[PlannedArm]:
        """Build arms of different checkouts; those that have yet to tune."""
        steps = [
            RankStep("set-up", arm.key, "build", arm.role, (arm,), {"label": arm.label, **own})
            for arm in arms
            for own in [{"backend": arm.backend, "overrides": dict(arm.overrides)}]
        ]
        built = self.together(steps)
        for step, answers in built:
            self._facts[step.arms[0].key].knobs = answers[0]["knobs"]
        return [step.arms[0] for step, answers in built if answers[0]["tunes"]]

    def _prove(self, arm: PlannedArm) -> None:
        """First call, then a call into poisoned outputs, compared with the reference.

        Where others are at work, a call is expected to take what the shortest of some took, as nobody waits for them;
        a call of ranks is timed once more before its samples (_expect).
        """
        beside = self.quiet.in_lane() and self.case.world == 1
        first = self.step(arm, "first call", "call", **({"again": AGAIN} if beside else {}))
        checks = self._check(arm, "check") if first else None
        hashes = self.step(arm, "tracing", "trace") if checks else None
        if first is None or checks is None or hashes is None:
            return
        facts = self._facts[arm.key]
        facts.first_call_s = max(one["seconds"] - one["compile_s"] for one in first)
        facts.compile_s = max(one["compile_s"] for one in first)
        facts.expected_s = max(one["again_s"] for one in first) if beside else max(one["seconds"] for one in checks)
        facts.error = {key: max(check[key] for check in checks) for key in ("norm", "peak")}
        facts.code_hash = joint(hashes)

    def _check(self, arm: PlannedArm, step: str) -> list[Any] | None:
        if self.step(arm, f"poison before {step}", "poison") is None:
            return None
        return self.step(arm, step, "check")

    def _take(self) -> None:
        """Samples of every arm that is right."""
        self.say("")
        beside_ranks = self.case.world > 1 and self.quiet.in_lane()
        if not beside_ranks:
            self._bundle()
        with self.quiet.alone():
            if beside_ranks:
                self._expect()
                self._bundle()
            self._time()
        for arm in self.arms():
            self._check(arm, "check after timing")
        for arm in self.arms():
            if cannot_be := self.floor.broken_by(self._facts[arm.key].seconds):
                self.give_up(arm, Failure(Status.ERROR, cannot_be))

    def _time(self) -> None:
        """Warm-up, samples, and calls as the host sees them; nothing else of ours is at work."""
        if self.protocol.sustained:
            self._bursts()
        else:
            self._warm_up()
            self._rounds(self.case.rounds or self.protocol.rounds, warm_up=False)
        for arm in self.arms() if self.protocol.whole_calls else ():
            by_rank = self.step(arm, "whole calls", "whole", count=self.protocol.whole_calls)
            self._facts[arm.key].whole_s = [max(one) for one in zip(*by_rank or (), strict=True)]

    def _expect(self) -> None:
        """What a call of ranks takes: beside others a device that waits for its peers gives way, for milliseconds."""
        for arm in self.arms():
            if again := self.step(arm, "calls with nothing beside", "call", again=AGAIN):
                self._facts[arm.key].expected_s = max(one["again_s"] for one in again)

    def _bundle(self) -> None:
        """Make samples of several calls, where they have some."""
        for arm in self.arms() if self.method == "graph" else ():
            self._capture(arm)

    def _capture(self, arm: PlannedArm) -> None:
        reasons = self.step(arm, "graph capture", "capture", calls=self._calls(arm))
        if reasons is None:
            return
        if any(reasons):
            self._by_events(arm, f"cannot be captured in a graph ({next(filter(None, reasons))})")
        if self._check(arm, "check of the graph") is None and self.failures[arm.key].status == Status.WRONG:
            self._by_events(arm, f"gives another result in a graph ({self.failures.pop(arm.key).why})")

    def _by_events(self, arm: PlannedArm, why: str) -> NoReturn:
        """Start the case anew without graphs: a call may decide on the host, or work in a thread, and be right."""
        self.method = "events"
        self.warnings.append(f"{arm.key} {why}: all arms of this case are timed by events")
        self.workers.pools[arm.role].kill()  # a failed capture can leave the device library in a bad state
        raise Again

    def _warm_up(self) -> None:
        how = self.protocol.warm_up
        for arm in self.arms() if how.most else ():
            sample_s = self._facts[arm.key].expected_s * self._calls(arm)
            count = min(how.most, max(how.fewest, math.ceil(how.seconds / max(sample_s, 1e-6))))
            order, flushes_s = [arm.label] * count, OVERDUE * count * self.workers.flush_s
            self.step(arm, "warm-up", "samples", more_s=flushes_s, order=order, warm_up=True)
        self._rounds(how.rounds, warm_up=True)

    def _rounds(self, rounds: int, warm_up: bool) -> None:
        """Samples of every arm, round by round; those of the warm-up and spot checks are not kept."""
        schedule = list(shuffled(self.arms(), rounds, self.order))
        plain = warm_up or not self.spots
        planned = [PlannedSample(arm) for arm in schedule] if plain else samples.with_spot_checks(schedule)
        for message in self._messages(planned):
            answers = self._samples(message, warm_up)
            for index, one in enumerate(message):
                if not (warm_up or one.spot):
                    starved = max(answer["starved"][one.arm.label] for answer in answers)
                    facts = self._facts[one.arm.key]
                    facts.add_sample([answer["seconds"][index] for answer in answers], starved)

    def _bursts(self) -> None:
        """Bursts of every arm, round by round, once the device has settled."""
        arms = self.arms()
        if not arms:
            return
        timed = BurstRounds(self._burst, self.protocol.burst_s, self.order)
        checks = samples.spot_checks_after(arms, self.protocol.rounds)
        for arm in arms:
            timed.calibrate(arm, self._facts[arm.key].expected_s * self._calls(arm))
        unsettled = timed.settle(arms[0], SETTLED[self.method])
        for burst in timed.take(arms, self.protocol.rounds):
            self._facts[burst.arm.key].add_burst(burst)
            for one in checks.pop(sum(len(self._facts[arm.key].seconds) for arm in arms), ()):
                self._burst(one.arm, timed.fewest(one.arm), one.request())
        self.warnings += [unsettled] if unsettled else []

    def _burst(self, arm: PlannedArm, launches: int, spot: JsonObject | None = None) -> list[Any]:
        """One burst of an arm on all ranks; spot: a spot check is in it."""
        launch_s = self._facts[arm.key].expected_s * self._calls(arm)
        limit_s = self.deadline_s([arm]) + OVERDUE * max(self.protocol.burst_s, 2 * launch_s)
        fields = {"label": arm.label, "launches": launches, "spot": spot}
        return self._timing([arm], limit_s, "burst", **fields)

    def _messages(self, schedule: Sequence[PlannedSample]) -> Iterator[list[PlannedSample]]:
        """Parts of the schedule that one checkout can do in one go; single arms once something went wrong.

        A spot check ends its part: nothing comes between it and the sample before.
        """
        message: list[PlannedSample] = []
        expected_s = 0.0
        for one in schedule:
            arm, first = one.arm, message[0].arm if message else one.arm
            same = arm == first if self._one_arm_per_message else arm.role == first.role
            full = expected_s >= MESSAGE_S or len(message) >= MESSAGE_SAMPLES
            if message and (message[-1].spot or full or not same):
                yield message
                message, expected_s = [], 0.0
            message.append(one)
            expected_s += self._expected_s(arm)
        if message:
            yield message

    def _expected_s(self, arm: PlannedArm) -> float:
        """Of a sample: its call, and before it the flush of the caches, 0.1 s on a CPU with 480 MB of them."""
        return self._facts[arm.key].expected_s + self.workers.flush_s

    def _samples(self, message: Sequence[PlannedSample], warm_up: bool) -> list[Any]:
        arms = [one.arm for one in message]
        limit_s = self.deadline_s(arms) + OVERDUE * sum(map(self._expected_s, arms))
        fields = {"order": [arm.label for arm in arms], "warm_up": warm_up, "spot": message[-1].request()}
        return self._timing(arms, limit_s, "samples", **fields)

    def _timing(self, arms: Sequence[PlannedArm], limit_s: float, op: str, **fields: Any) -> list[Any]:
        """Samples of arms of a checkout; the last arm is taken out if it fails a spot check on some rank."""
        names = sorted({arm.key for arm in arms})
        what = f"timing of {', '.join(names)}"
        self.quiet.pause()
        self.workers.pools[arms[-1].role].post(what, limit_s, op, **fields)
        try:
            answers = self._collected(arms[-1].role, what)
        except Failed as error:
            if len(names) == 1:
                self.give_up(arms[-1], error.failure, isinstance(error, PoolDied))
            self._one_arm_per_message = True
            raise Again from error
        said = (samples.spot_sentence(answer["spot"]) for answer in answers if answer["spot"])
        if why := next(filter(None, said), ""):
            self.give_up(arms[-1], Failure(Status.WRONG, why))
            raise Again  # the others are measured again without it
        return answers

    # ---- what is left, and what is written -----------------------------------------------------------------------

    @property
    def _copies(self) -> int:
        return self.case.copies if self.method == self.case.method and self.protocol.rounds else 1

    def _calls(self, arm: PlannedArm) -> int:
        """Calls per sample."""
        if self.method != "graph":
            return 1
        enough = max(LEAST_CALLS, math.ceil(SAMPLE_S / max(self._facts[arm.key].expected_s, 1e-9)))
        return min(self.case.calls, enough)

    def _entry(self) -> JsonObject:
        arms = {arm.key: self._arm_entry(arm) for arm in self.case.arms}
        return {"method": self.method, "arms": arms, "warnings": list(dict.fromkeys(self.warnings))}

    def _arm_entry(self, arm: PlannedArm) -> JsonObject:
        if arm.key in self.failures:
            failure = self.failures[arm.key]
            return samples.failed_entry(failure.status, failure.why, failure.detail)
        facts = self._facts[arm.key]
        if not self.protocol.rounds:
            return {"status": Status.OK, **facts.proven()}
        self._warn(arm, facts)
        ranks = facts.ranks() if self.case.world > 1 else {"skew_s": None}
        whole = {"whole_s": facts.whole_s} if facts.whole_s else {}
        taken = {"seconds": facts.seconds, **ranks, **whole, "calls_per_sample": self._calls(arm)}
        return {"status": Status.OK, **taken, **facts.proven()}

    def _warn(self, arm: PlannedArm, facts: ArmFacts) -> None:
        self.warnings += [f"{arm.key}: {finding}" for finding in samples.symptoms_of(facts.seconds, facts.first_call_s)]
        rounds = self.case.rounds or self.protocol.rounds
        if facts.starved > STARVED_SHARE * rounds:
            self.warnings.append(
                f"{arm.key}: in {facts.starved} of {rounds} samples the device was faster than the host could "
                "enqueue the call: launch latency is in the time"
            )

    # ---- steps on all ranks -----------------------------------------------------------------------------------

    def arms(self) -> list[PlannedArm]:
        """The arms that have not failed."""
        return [arm for arm in self.case.arms if arm.key not in self.failures]

    def roles(self) -> list[str]:
        """The checkouts of these."""
        return list(dict.fromkeys(arm.role for arm in self.arms()))

    def arms_of(self, role: str) -> tuple[PlannedArm, ...]:
        """Those of a checkout."""
        return tuple(arm for arm in self.arms() if arm.role == role)

    def step(self, arm: PlannedArm, step: str, op: str, more_s: float = 0.0, **fields: Any) -> list[Any] | None:
        """One step of one arm on all ranks; None if the arm failed and the others can go on.  more_s: than usual."""
        named = {} if op == "samples" else {"label": arm.label}
        answered = self.together([RankStep(step, arm.key, op, arm.role, (arm,), {**fields, **named}, more_s)])
        return answered[0][1] if answered else None

    def together(self, steps: Sequence[RankStep]) -> list[tuple[RankStep, list[Any]]]:
        """Steps of several checkouts at once; the answers to those that succeeded.

        Where all ended because one of them killed their parent, they are asked in turns from then on.
        """
        if self._in_turns and len(steps) > 1:
            return [found for step in steps for found in self.together([step])]
        self.quiet.pause()
        for step in steps:
            limit_s = self._allow(step.op, *step.arms) + step.more_s
            self.workers.pools[step.role].post(step.what, limit_s, step.op, **step.fields)
        answers, again = [], False
        for step in steps:
            try:
                answers.append((step, self._collected(step.role, step.what)))
            except PoolDied as error:
                again = True
                for arm in step.arms:
                    self.give_up(arm, error.failure, ended=True)
            except StepFailed as error:
                again = self._failed(step, error.failure) or again
        if again:
            raise Again
        return answers

    def _collected(self, role: str, what: str) -> list[Any]:
        """The answers of all ranks of a checkout.  Raises StepFailed or PoolDied.

        Again, if the processes of all checkouts ended with their parent: which arm killed it is not known.  From then
        on it is looked at, right behind every step, where one has.
        """
        pool = self.workers.pools[role]
        try:
            answers = pool.collect()
        except PoolDied as error:
            if error.failure.orphaned and not self._in_turns:
                self._in_turns = True
                raise Again from error
            raise
        if self._in_turns:
            time.sleep(SETTLE_S)
            if not pool.lives():
                raise PoolDied(Failure(Status.CRASH, f"its parent was killed in step: {what}", orphaned=True))
        return answers

    def look_at_files(self) -> None:
        """Take out the arms of a checkout whose processes ran a file that it has not, or that its digest leaves out."""
        asked = [
            RankStep("what it ran", self.case.name, "ran", role, self.arms_of(role), {"tops": self.workers.tops(role)})
            for role in self.roles()
        ]
        for step, answers in self.together(asked):
            self.workers.look_at(step.role, answers)
        for arm in self.arms():
            if arm.role in self.workers.strayed:
                self.give_up(arm, Failure(Status.ERROR, self.workers.strayed[arm.role]))

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

    def _failed(self, step: RankStep, failure: Failure) -> bool:
        """Take out every arm of a failed step; True if the case must start anew, as ranks may be out of step."""
        for arm in step.arms:
            self.give_up(arm, _in_step(failure, step.name))
        together = failure.status == Status.WRONG or (failure.status == Status.UNSUPPORTED and failure.everywhere)
        if failure.spoiled or (self.case.world > 1 and not together):
            return True
        pool = self.workers.pools[step.role]
        try:
            for arm in step.arms:
                pool.ask(f"dropping {arm.key}", self.protocol.deadline_s, "drop", label=arm.label)
        except Failed:
            pool.kill()
            return True
        return False

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
