"""One case of one trial: prove every arm right, warm up, take the rounds, prove every arm right again.

A protocol of no rounds stops after the first proof: nothing is timed.

Whatever one arm does (raise, hang, crash, compute nonsense) costs that arm: it gets a status and a sentence, and the
others are measured without it, in fresh processes where the old ones have ended or may be out of step.
"""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NoReturn

from benchmarks.coordinator.arm_steps import Again, ArmSteps, RankStep
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed
from benchmarks.coordinator.referee import truth_of
from benchmarks.coordinator.samples import entries, spot_checks, symptoms
from benchmarks.coordinator.samples.facts import ArmFacts, joint, same_code, shuffled
from benchmarks.coordinator.samples.floor import PhysicalFloor
from benchmarks.coordinator.samples.spot_checks import PlannedSample
from benchmarks.coordinator.sustained.energy import EnergyMeter
from benchmarks.coordinator.sustained.rounds import SETTLED, BurstRounds
from benchmarks.coordinator.worker_pools import WorkerPools
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.trial_file import Status

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


class CaseRun(ArmSteps):
    """Runs one case.  keep_inputs: where its processes still have inputs and reference of this case, they are good.

    known: what hung before, by (case, arm); it is not tried again.
    """

    def __init__(
        self,
        workers: WorkerPools,
        case: PlannedCase,
        protocol: Protocol,
        order: random.Random,
        known: dict[tuple[str, str], Failure],
        keep_inputs: bool = False,
    ) -> None:
        super().__init__(workers, case, protocol, known)
        self.order = order
        self.method = case.method
        self.warnings: list[str] = []
        self.busy_s = self.wall_s = 0.0
        self._facts: dict[str, ArmFacts] = {}
        self._same: dict[str, str] = {}
        self._one_arm_per_message = False
        self._keep_inputs = keep_inputs
        self.meter = EnergyMeter(None, case.world, "not asked for")
        self.floor, self.secret = PhysicalFloor(), 0

    def run(self) -> dict[str, Any]:
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
        self._facts, self._same = {arm.key: ArmFacts() for arm in self.case.arms}, {}
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
        self.workers.ready([*self.roles(), *self.truth_roles()])
        for arm in self.arms():
            for role in (arm.role, truth_of(arm.role)):
                if role in self.workers.lost:
                    self.failures[arm.key] = self.workers.lost[role]

    def _make_inputs(self) -> None:
        """Inputs and reference in every checkout at once."""
        fields = {"case": self.case.name, "seed": self.protocol.seed, "copies": self._copies}
        fields |= {"secret": self.secret if self.protocol.rounds else 0}
        fields |= {"keep": self._keep_inputs, "reference": not self.made_apart}
        self._keep_inputs = False  # an attempt that ended early may have left them changed
        own = {role: {**fields, "without": self.ended_processes(role)} for role in self.roles()}
        by_role = {role: tuple(arm for arm in self.arms() if arm.role == role) for role in self.roles()}
        steps = [
            RankStep("inputs and reference", f"{role} {self.case.name}", "case", role, arms, own[role])
            for role, arms in by_role.items()
        ]
        self.together([*steps, *self.truth_steps(steps)])
        self.expect(steps)

    def _set_up(self) -> None:
        """Build the arms, one per checkout at a time, and let them tune."""
        self.workers.compiled(self.case.name)
        by_role = [[arm for arm in self.arms() if arm.role == role] for role in self.roles()]
        tunes = [arm for arms in zip_longest(*by_role) for arm in self._built([arm for arm in arms if arm])]
        if tunes:
            with self.quiet.alone():
                for arm in tunes:
                    self.step(arm, "tuning", "tune")

    def _built(self, arms: Sequence[PlannedArm]) -> list[PlannedArm]:
        """Build arms of different checkouts; those that have yet to tune.

        Where a set-up itself chooses by times, nothing else is at work.
        """
        steps = [
            RankStep("set-up", arm.key, "build", arm.role, (arm,), {"label": arm.label, **own})
            for arm in arms
            for own in [{"backend": arm.backend, "overrides": dict(arm.overrides)}]
        ]
        tuning = any(arm.backend in self.workers.tuning.get(arm.role, ()) for arm in arms)
        with self.quiet.alone() if tuning else contextlib.nullcontext():
            built = self.together(steps)
        for step, answers in built:
            self._facts[step.arms[0].key].knobs = answers[0]["knobs"]
        return [step.arms[0] for step, answers in built if answers[0]["tunes"]]

    def _prove(self, arm: PlannedArm) -> None:
        """First call, then a call into poisoned outputs, compared with the reference.

        Where others are at work, a call is expected to take what the shortest of some took, as nobody waits for them.
        """
        beside = self.quiet.in_lane()
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
        if self.referee is None:
            return self.step(arm, step, "check")
        handed = self.step(arm, step, "check", file=self.referee.file())
        return self.judged(arm, step, handed) if handed else None

    def _take(self) -> None:
        """Samples of every arm that is right; of points with the same code, of the first."""
        self.say("")
        self._same = same_code(self.arms(), [self._facts[arm.key].code_hash for arm in self.arms()])
        if self.method == "graph":
            for arm in self._timed():
                self._capture(arm)
        with self.quiet.alone():
            self._time()
        for arm in self._timed():
            self._check(arm, "check after timing")
        for arm in self._timed():
            if cannot_be := self.floor.broken_by(self._facts[arm.key].seconds):
                self.give_up(arm, Failure(Status.ERROR, cannot_be))

    def _time(self) -> None:
        """Warm-up, samples, and calls as the host sees them; nothing else of ours is at work."""
        if self.protocol.sustained:
            self._bursts()
        else:
            self._warm_up()
            self._rounds(self.case.rounds or self.protocol.rounds, warm_up=False)
        for arm in self._timed() if self.protocol.whole_calls else ():
            by_rank = self.step(arm, "whole calls", "whole", count=self.protocol.whole_calls)
            self._facts[arm.key].whole_s = [max(one) for one in zip(*by_rank or (), strict=True)]

    def _timed(self) -> list[PlannedArm]:
        return [arm for arm in self.arms() if arm.key not in self._same]

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
        for arm in self._timed():
            sample_s = self._facts[arm.key].expected_s * self._calls(arm)
            count = min(how.most, max(how.fewest, math.ceil(how.seconds / max(sample_s, 1e-6))))
            order, flushes_s = [arm.label] * count, OVERDUE * count * self.workers.flush_s
            self.step(arm, "warm-up", "samples", more_s=flushes_s, order=order, warm_up=True)
        self._rounds(how.rounds, warm_up=True)

    def _rounds(self, rounds: int, warm_up: bool) -> None:
        """Samples of every arm, round by round; those of the warm-up and spot checks are not kept."""
        schedule = list(shuffled(self._timed(), rounds, self.order))
        planned = [PlannedSample(arm) for arm in schedule] if warm_up else spot_checks.among(schedule)
        for message in self._messages(planned):
            begin = time.perf_counter()
            answers = self._samples(message, warm_up)
            if warm_up:
                continue
            self.wall_s += time.perf_counter() - begin
            self.busy_s += sum(answer["busy_s"] for answer in answers) / len(answers)
            for index, one in enumerate(message):
                if not one.spot:
                    starved = max(answer["starved"][one.arm.label] for answer in answers)
                    facts = self._facts[one.arm.key]
                    facts.add_sample([answer["seconds"][index] for answer in answers], starved)

    def _refuse(self, arm: PlannedArm, answers: Sequence[Any]) -> None:
        """Take an arm out that failed a spot check on some rank; the others are measured again without it."""
        reports = [answer["spot"] for answer in answers if answer["spot"]]
        if reports and (why := self.spotted(arm, reports)):
            self.give_up(arm, Failure(Status.WRONG, why))
            raise Again

    def _request(self, sample: PlannedSample) -> dict[str, Any] | None:
        return sample.request(self.referee.file() if self.referee and sample.spot else "")

    def _bursts(self) -> None:
        """Bursts of every arm, round by round, once the device has settled."""
        arms, begin = self._timed(), time.perf_counter()
        if not arms:
            return
        timed = BurstRounds(self._burst, self.protocol.burst_s, self.order, self.meter)
        checks = spot_checks.after(arms, self.protocol.rounds)
        with self.meter.running():
            for arm in arms:
                timed.calibrate(arm, self._facts[arm.key].expected_s * self._calls(arm))
            unsettled = timed.settle(arms[0], SETTLED[self.method])
            for burst in timed.take(arms, self.protocol.rounds):
                self._facts[burst.arm.key].add_burst(burst)
                for one in checks.pop(sum(len(self._facts[arm.key].seconds) for arm in arms), ()):
                    self._burst(one.arm, timed.fewest(one.arm), self._request(one))
        self.wall_s, self.busy_s = self.wall_s + time.perf_counter() - begin, self.busy_s + timed.busy_s
        self.warnings += [unsettled] if unsettled else []

    def _burst(self, arm: PlannedArm, launches: int, spot: dict[str, Any] | None = None) -> list[Any]:
        """One burst of an arm on all ranks; spot: a spot check is in it."""
        launch_s = self._facts[arm.key].expected_s * self._calls(arm)
        limit_s = self.deadline_s([arm]) + OVERDUE * max(self.protocol.burst_s, 2 * launch_s)
        fields = {"label": arm.label, "launches": launches, "spot": spot}
        try:
            answers = self.ask(arm.role, f"timing of {arm.key}", limit_s, "burst", **fields)
        except (StepFailed, PoolDied) as error:
            self.give_up(arm, error.failure, isinstance(error, PoolDied))
            raise Again from error
        self._refuse(arm, answers)
        return answers

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
        arms, last = [one.arm for one in message], message[-1]
        names = sorted({arm.key for arm in arms})
        limit_s = self.deadline_s(arms) + OVERDUE * sum(map(self._expected_s, arms))
        fields = {"order": [arm.label for arm in arms], "warm_up": warm_up, "spot": self._request(last)}
        try:
            answers = self.ask(last.arm.role, f"timing of {', '.join(names)}", limit_s, "samples", **fields)
        except (StepFailed, PoolDied) as error:
            if len(names) == 1:
                self.give_up(last.arm, error.failure, isinstance(error, PoolDied))
            self._one_arm_per_message = True
            raise Again from error
        self._refuse(last.arm, answers)
        return answers

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

    def _entry(self) -> dict[str, Any]:
        arms = {arm.key: self._arm_entry(arm) for arm in self.case.arms}
        energy = {"energy": self.meter.facts()} if self.protocol.sustained else {}
        return {"method": self.method, "arms": arms, "warnings": list(dict.fromkeys(self.warnings)), **energy}

    def _arm_entry(self, arm: PlannedArm) -> dict[str, Any]:
        if arm.key in self._same:
            return self._same_entry(arm, next(one for one in self.case.arms if one.key == self._same[arm.key]))
        if arm.key in self.failures:
            failure = self.failures[arm.key]
            return entries.failed(failure.status, failure.why, failure.detail)
        facts = self._facts[arm.key]
        if not self.protocol.rounds:
            return {"status": Status.OK, **facts.proven()}
        self._warn(arm, facts)
        return {"status": Status.OK, **self._samples_of(arm), **facts.proven()}

    def _samples_of(self, arm: PlannedArm) -> dict[str, Any]:
        facts = self._facts[arm.key]
        ranks = facts.ranks() if self.case.world > 1 else {"skew_s": None}
        whole = {"whole_s": facts.whole_s} if facts.whole_s else {}
        times = {"seconds": facts.seconds, **ranks, **whole, **facts.energy()}
        return {**times, "calls_per_sample": self._calls(arm)}

    def _same_entry(self, arm: PlannedArm, timed: PlannedArm) -> dict[str, Any]:
        """Of a point whose code another arm has: that arm's samples, or its failure."""
        if timed.key in self.failures:
            failure = self.failures[timed.key]
            return entries.failed(failure.status, f"its code is that of {timed.key}: {failure.why}", failure.detail)
        same = {"same_as": timed.key, **self._samples_of(timed)}
        return {"status": Status.OK, **same, **self._facts[arm.key].proven()}

    def _warn(self, arm: PlannedArm, facts: ArmFacts) -> None:
        self.warnings += [f"{arm.key}: {finding}" for finding in symptoms.of(facts.seconds, facts.first_call_s)]
        rounds = self.case.rounds or self.protocol.rounds
        if facts.starved > STARVED_SHARE * rounds:
            self.warnings.append(
                f"{arm.key}: in {facts.starved} of {rounds} samples the device was faster than the host could "
                "enqueue the call: launch latency is in the time"
            )
