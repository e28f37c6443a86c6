"""One case of one trial: prove every arm right, warm up, take the rounds, prove it right again.

A protocol of no rounds stops after the first proof: nothing is timed.

Whatever one arm does (raise, hang, crash, compute nonsense) costs that arm: it gets a status and a sentence, and the
others are measured without it, in fresh processes where the old ones are gone or may be out of step.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from benchmarks.coordinator import symptoms
from benchmarks.coordinator.ranks import Failure, PoolDied, StepFailed
from benchmarks.coordinator.worker_pools import Crew
from benchmarks.plan import Arm, PlannedCase, Protocol

WARM_UP_S = 0.02
"""How long each arm is called before the warm-up rounds, within WARM_UP_CALLS."""

WARM_UP_CALLS = (3, 20)

WARM_UP_ROUNDS = 2
"""Untimed rounds in the real schedule."""

SAMPLE_S, LEAST_CALLS = 2e-3, 4
"""A graph of an arm need not last longer than SAMPLE_S, as long as it has LEAST_CALLS calls."""

MESSAGE_S, MESSAGE_SAMPLES = 5.0, 2000
"""A request for samples should be done in that time and have no more of them."""

STARVED_SHARE = 0.1
"""More samples than this behind an empty queue are worth a warning."""


class Again(Exception):
    """The case starts anew, with fewer arms or another method."""


class CaseRun:
    """Conducts one case.  hangs: what hung in an earlier trial, by (case, arm); it is not tried again."""

    def __init__(
        self, crew: Crew, case: PlannedCase, protocol: Protocol, order: random.Random, hangs: dict[tuple[str, str], str]
    ) -> None:
        self.crew, self.case, self.protocol, self.order, self.hangs = crew, case, protocol, order, hangs
        self.method = case.method
        self.warnings: list[str] = []
        self.busy_s = self.wall_s = 0.0
        self._out: dict[str, Failure] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._careful = False

    def run(self) -> dict[str, Any]:
        """The case's entry in the trial line."""
        for arm in self.case.arms:
            if arm.key in self.case.errors:
                self._out[arm.key] = Failure("error", self.case.errors[arm.key])
            elif (self.case.name, arm.key) in self.hangs:
                self._out[arm.key] = Failure("hang", self.hangs[self.case.name, arm.key])
        while True:
            try:
                self._attempt()
                return self._entry()
            except Again:
                continue

    # ---- one attempt ---------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        self._facts = {arm.key: {} for arm in self.case.arms}
        self._start()
        self._together(
            [
                (
                    None,
                    role,
                    "inputs and reference",
                    "case",
                    {"case": self.case.name, "seed": self.protocol.seed, "copies": self._copies},
                )
                for role in self._roles()
            ]
        )
        by_role = [[arm for arm in self._arms() if arm.role == role] for role in self._roles()]
        for arms in zip_longest(*by_role):
            self._together(
                [
                    (arm, arm.role, "set-up", "build", {"backend": arm.backend, "overrides": dict(arm.overrides)})
                    for arm in arms
                    if arm
                ]
            )
        for arm in self._arms():
            self._prove(arm)
        if self.protocol.rounds:
            self._take()

    def _take(self) -> None:
        """Samples of every arm that is right."""
        if self.method == "graph":
            for arm in self._arms():
                self._capture(arm)
        self._warm_up()
        self._keep(self._rounds(self.protocol.rounds, warm_up=False))
        for arm in self._arms():
            self._check(arm, "check after timing")

    def _start(self) -> None:
        self.crew.ready(self._roles())
        for arm in self._arms():
            if arm.role in self.crew.lost:
                self._out[arm.key] = self.crew.lost[arm.role]

    def _prove(self, arm: Arm) -> None:
        """First call, then a call into poisoned outputs, compared with the reference."""
        first = self._step(arm, "first call", "call")
        if first is None:
            return
        checks = self._check(arm, "check")
        hashes = self._step(arm, "tracing", "trace") if checks else None
        if checks is None or hashes is None:
            return
        self._facts[arm.key].update(
            first_call_s=max(one["seconds"] - one["compile_s"] for one in first),
            compile_s=max(one["compile_s"] for one in first),
            expected_s=max(check["seconds"] for check in checks),
            error={key: max(check[key] for check in checks) for key in ("norm", "peak")},
            code_hash=_joint(hashes),
        )

    def _check(self, arm: Arm, step: str) -> list[Any] | None:
        if self._step(arm, f"poison before {step}", "poison") is None:
            return None
        return self._step(arm, step, "check")

    def _capture(self, arm: Arm) -> None:
        whys = self._step(arm, "graph capture", "capture", calls=self._calls(arm))
        if whys is None:
            return
        if any(whys):
            self.method = "events"
            self.warnings.append(
                f"{arm.key} cannot be captured in a graph ({next(filter(None, whys))}): "
                "all arms of this case are timed by events"
            )
            self.crew.pools[arm.role].kill()  # a failed capture can leave the device library in a bad state
            raise Again
        self._check(arm, "check of the graph")

    def _warm_up(self) -> None:
        for arm in self._arms():
            least, most = WARM_UP_CALLS
            sample_s = self._facts[arm.key]["expected_s"] * self._calls(arm)
            count = min(most, max(least, math.ceil(WARM_UP_S / max(sample_s, 1e-6))))
            self._step(arm, "warm-up", "samples", order=[arm.backend] * count, warm_up=True)
        self._rounds(WARM_UP_ROUNDS, warm_up=True)

    def _rounds(self, rounds: int, warm_up: bool) -> dict[str, list[list[float]]]:
        """Samples of every arm by round, each a list over ranks."""
        samples: dict[str, list[list[float]]] = {arm.key: [] for arm in self._arms()}
        schedule = list(shuffled(self._arms(), rounds, self.order))
        for message in self._messages(schedule):
            begin = time.perf_counter()
            answers = self._samples(message, warm_up)
            if not warm_up:
                self.wall_s += time.perf_counter() - begin
                self.busy_s += sum(answer["busy_s"] for answer in answers) / len(answers)
            for index, arm in enumerate(message):
                samples[arm.key].append([answer["seconds"][index] for answer in answers])
                self._facts[arm.key]["starved"] = max(answer["starved"][arm.backend] for answer in answers)
        return samples

    def _messages(self, schedule: Sequence[Arm]) -> Iterator[list[Arm]]:
        """Runs of the schedule that one tree can do at a stretch; single arms once something went wrong."""
        message: list[Arm] = []
        expected_s = 0.0
        for arm in schedule:
            same = message and (arm == message[0] if self._careful else arm.role == message[0].role)
            if message and not (same and expected_s < MESSAGE_S and len(message) < MESSAGE_SAMPLES):
                yield message
                message, expected_s = [], 0.0
            message.append(arm)
            expected_s += self._facts[arm.key]["expected_s"]
        if message:
            yield message

    def _samples(self, message: Sequence[Arm], warm_up: bool) -> list[Any]:
        names = sorted({arm.key for arm in message})
        expected_s = sum(self._facts[arm.key]["expected_s"] for arm in message)
        limit_s = self.protocol.deadline_s + 10 * expected_s
        try:
            return self.crew.pools[message[0].role].ask(
                f"timing of {', '.join(names)}",
                limit_s,
                "samples",
                order=[arm.backend for arm in message],
                warm_up=warm_up,
            )
        except (StepFailed, PoolDied) as error:
            if len(names) == 1:
                self._put_out(message[0], error.failure)
            self._careful = True
            raise Again from error

    # ---- steps and their failures --------------------------------------------------------------------------------

    def _step(self, arm: Arm, step: str, op: str, **fields: Any) -> list[Any] | None:
        """One step of one arm on all ranks; None if the arm is out and the others can go on."""
        pool = self.crew.pools[arm.role]
        try:
            return pool.ask(
                f"{step} of {arm.key}",
                self.protocol.deadline_s,
                op,
                **{"backend": arm.backend, **fields} if op != "samples" else fields,
            )
        except PoolDied as error:
            self._put_out(arm, error.failure)
            raise Again from error
        except StepFailed as error:
            self._failed(arm, error.failure, step)
            return None

    def _together(self, requests: Sequence[tuple[Arm | None, str, str, str, Mapping[str, Any]]]) -> None:
        """Steps of several trees at once: (arm or None for all of the role's, role, step, op, fields)."""
        for arm, role, step, op, fields in requests:
            label = f"{step} of {arm.key if arm else f'{role} {self.case.name}'}"
            self.crew.pools[role].post(label, self.protocol.deadline_s, op, **fields)
        again = False
        for arm, role, step, _, _ in requests:
            affected = [arm] if arm else [a for a in self._arms() if a.role == role]
            try:
                answers = self.crew.pools[role].collect()
                if arm:
                    self._facts[arm.key]["knobs"] = answers[0]
            except PoolDied as error:
                again = True
                for one in affected:
                    self._put_out(one, error.failure)
            except StepFailed as error:
                for one in affected:
                    self._put_out(one, _told(error.failure, step))
                try:
                    for one in affected:
                        self._failed(one, error.failure, step)
                except Again:
                    again = True
        if again:
            raise Again

    def _failed(self, arm: Arm, failure: Failure, step: str) -> None:
        """Take an arm out whose step failed.  Ranks that may be out of step with each other start anew."""
        self._put_out(arm, _told(failure, step))
        in_step = failure.status == "wrong" or (failure.status == "unsupported" and failure.everywhere)
        if failure.spoiled or (self.case.world > 1 and not in_step):
            raise Again
        try:
            self.crew.pools[arm.role].ask(f"dropping {arm.key}", self.protocol.deadline_s, "drop", backend=arm.backend)
        except (StepFailed, PoolDied) as error:
            self.crew.pools[arm.role].kill()
            raise Again from error

    def _put_out(self, arm: Arm, failure: Failure) -> None:
        self._out[arm.key] = failure
        if failure.status == "hang":
            self.hangs[self.case.name, arm.key] = f"not tried again: in an earlier trial {failure.why}"

    # ---- what is left, and what is written -----------------------------------------------------------------------

    @property
    def _copies(self) -> int:
        return self.case.copies if self.method == "graph" and self.protocol.rounds else 1

    def _calls(self, arm: Arm) -> int:
        """Calls in a sample."""
        if self.method != "graph":
            return 1
        enough = max(LEAST_CALLS, math.ceil(SAMPLE_S / max(self._facts[arm.key]["expected_s"], 1e-9)))
        return min(self.case.calls, enough)

    def _arms(self) -> list[Arm]:
        return [arm for arm in self.case.arms if arm.key not in self._out]

    def _roles(self) -> list[str]:
        return list(dict.fromkeys(arm.role for arm in self._arms()))

    def _keep(self, samples: Mapping[str, list[list[float]]]) -> None:
        for key, by_round in samples.items():
            self._facts[key]["seconds"] = [max(ranks) for ranks in by_round]
            self._facts[key]["skew_s"] = (
                [max(ranks) - min(ranks) for ranks in by_round] if self.case.world > 1 else None
            )

    def _entry(self) -> dict[str, Any]:
        arms = {arm.key: self._arm_entry(arm) for arm in self.case.arms}
        return {"method": self.method, "arms": arms, "warnings": list(dict.fromkeys(self.warnings))}

    def _arm_entry(self, arm: Arm) -> dict[str, Any]:
        facts = self._facts.get(arm.key, {})
        if arm.key in self._out:
            failure = self._out[arm.key]
            return {"status": failure.status, "why": failure.why, "detail": failure.detail}
        proven = {key: facts[key] for key in ("knobs", "error", "code_hash", "first_call_s", "compile_s")}
        if not self.protocol.rounds:
            return {"status": "ok", **proven}
        self.warnings += [f"{arm.key}: {finding}" for finding in symptoms.of(facts["seconds"], facts["first_call_s"])]
        if facts["starved"] > STARVED_SHARE * self.protocol.rounds:
            self.warnings.append(
                f"{arm.key}: in {facts['starved']} of {self.protocol.rounds} samples the device was "
                "faster than the host could enqueue the call: launch latency is in the time"
            )
        return {
            "status": "ok",
            "seconds": facts["seconds"],
            "skew_s": facts["skew_s"],
            "calls_per_sample": self._calls(arm),
            **proven,
        }


def _told(failure: Failure, step: str) -> Failure:
    """The failure with the step in its sentence; what a backend says about itself needs none."""
    if failure.status == "unsupported":
        return failure
    return dataclasses.replace(failure, why=f"{step}: {failure.why}")


def _joint(hashes: Sequence[str | None]) -> str | None:
    """One digest for all ranks, None if any is unknown."""
    if any(one is None for one in hashes):
        return None
    return hashes[0] if len(set(hashes)) == 1 else hashlib.sha256("".join(map(str, hashes)).encode()).hexdigest()[:16]


def shuffled(arms: Sequence[Arm], rounds: int, order: random.Random) -> Iterator[Arm]:
    """Every arm once a round, each round in an order of its own."""
    for _ in range(rounds):
        yield from order.sample(list(arms), len(arms))
