"""Both sides of a script: their processes, and one closure at which they wait, as a case whose arms are the sides.

A side answers at each timer with what it meets, and is asked there for what a trial asks of an arm (CaseRun): it is
looked at, compared, timed in turn with the other, and checked again; then both scripts go on.  What a side does costs
that side: it gets a status and a sentence, and the other is timed without it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import random
import re
import signal
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.adopted.survey import SAMPLE_S
from benchmarks.coordinator import samples, starting
from benchmarks.coordinator.case_run import STARVED_SHARE, CaseRun, RankStep
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.lanes import Quiet
from benchmarks.coordinator.ranks import Failed, Failure, PoolDied, RankProcess, WorkerPool
from benchmarks.coordinator.samples import ArmFacts, joint
from benchmarks.plan import PlannedArm, PlannedCase, Protocol
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import OF_RANKS, Status

RUN_S = 7 * 86400.0
"""How long a script may run in all: what limits it is the time between two timers."""

STEP = "the script, up to its next timer"

STALE = "its outputs are wrong where a rank is late: without a barrier it reads what the call before left"

SHORT_S = 100e-6
"""Calls shorter than this are timed in a graph, where they can be captured (DESIGN section 5)."""

MOST_CALLS = 1000
"""Calls in a sample on a host's clock."""


class ScriptSide:
    """The processes, one a rank, that run the script of one side, from its start to `ended`.

    held: an event that came and has not been dealt with.  met: its ranks made a group.  Several ranks run up to there
    at once, and then while somebody waits for them in `next`: kernels of two sides that each wait for other GPUs take
    2 to 10 times as long side by side, as no GPU runs both (H200, 2026-11-28).
    """

    def __init__(self, checkout: Checkout, directory: Path, variables: Mapping[str, str], ranks: int = 1) -> None:
        self.role = checkout.role
        self.ended: JsonObject | None = None
        self.failure: Failure | None = None
        self.held: JsonObject | None = None
        self._runs, self._printed, self._ranks, self.met = False, "", ranks, False
        self._waits: tuple[str, Sequence[Json], JsonObject] | None = None
        try:
            with starting.ready(checkout.python):
                self.pool = ScriptPool(checkout.role, checkout.python, checkout.path, ranks, directory, variables)
                self.pool.root = f"{checkout.path}{os.sep}"
        except OSError as error:
            raise CheckoutError(f"checkout {checkout.role}: cannot start {checkout.python}: {error}") from error
        self.begin = time.monotonic()

    def go_on(self, op: str = "resume", per_rank: Sequence[Json] = (), **fields: Any) -> None:
        """Have the processes run the script, or go on with the samples that they have."""
        if self.pool.alive and self.ended is None:
            self._runs, self._waits = True, (op, per_rank, fields)
            if self._ranks == 1 or op == "script":
                self._post()

    def _post(self) -> None:
        if self._waits:
            (op, per_rank, fields), self._waits = self._waits, None
            self.pool.post(STEP, RUN_S, op, per_rank, **fields)

    def next(self, limit_s: float) -> JsonObject | None:
        """The next timer; None when the script has ended, died, or come to none for so many seconds."""
        if not self._runs:
            return None
        self._post()
        self._runs = False
        try:
            found = self.pool.collect(limit_s)
            while all(one and one.get("event") == "group" for one in found):
                self.met = True
                self.pool.post(STEP, RUN_S, "resume")
                found = self.pool.collect(limit_s)
        except Failed as error:
            self.died(error.failure)
            return None
        if why := disagreement(found):
            self.kill()
            self.failure = Failure(Status.ERROR, why, self._printed)
            return None
        if all(one and "event" in one for one in found):
            return joint_facts(found)
        self.ended = joint_end(found)
        return None

    def died(self, failure: Failure) -> None:
        """Its process was lost."""
        self._printed = failure.detail.removeprefix("rank 0: ")
        self.failure = dataclasses.replace(failure, detail=self._printed)

    def printed(self) -> str:
        """The end of what the script printed."""
        return self.pool.workers[0].tail() if self.pool.alive else self._printed

    def kill(self) -> None:
        """End the process with all it started."""
        self._printed = self.printed()
        self.pool.kill()


class ScriptPools:
    """The processes of the sides, in the place of WorkerPools: one that ended is not started again."""

    flush_s = 0.0

    def __init__(self, sides: Iterable[ScriptSide]) -> None:
        self.pools = {side.role: side.pool for side in sides}
        self.lost: dict[str, Failure] = {}
        self.quiet = Quiet()

    def ready(self, roles: Iterable[str]) -> None:
        """Say which are lost."""
        self.lost |= {
            role: Failure(Status.CRASH, "its process ended with that of the other side")
            for role in roles
            if not self.pools[role].alive
        }


class ScriptCase(CaseRun):
    """A closure, by its key, that waits on one side or both.

    no_graph: it could not be captured before.  rounds: where they are not the protocol's.  late: look at it with a rank
    that comes late.
    """

    spots = False

    def __init__(
        self,
        workers: Any,
        key: str,
        protocol: Protocol,
        order: random.Random,
        directory: Path,
        no_graph: bool = False,
        rounds: int = 0,
        ranks: int = 1,
        late: bool = False,
    ) -> None:
        backend, _, name = key.partition("/")
        arms = tuple(PlannedArm(role, backend) for role in workers.pools)
        super().__init__(workers, PlannedCase(name, ranks, arms, rounds=rounds), protocol, order, {})
        self._directory, self.no_graph, self._late, self._sample_calls = directory, no_graph, late, 1
        self._seen: dict[str, JsonObject] = {}

    @property
    def held(self) -> dict[str, str]:
        """By role, a digest of what the closure's inputs hold."""
        return {arm.role: self._seen[arm.key]["held"] for arm in self.case.arms if arm.key in self._seen}

    def _attempt(self) -> None:
        self._facts = {arm.key: ArmFacts(error={"norm": 0.0, "peak": 0.0}) for arm in self.case.arms}
        self._start()
        if self.case.world > 1:
            self.together([RankStep("meeting", arm.key, "meet", arm.role, (arm,), {}) for arm in self.arms()])
        for arm in self.arms():
            self._examine(arm)
        by_role = {arm.role: arm for arm in self.arms()}
        if set(by_role) == {"base", "head"}:
            self._compare(**by_role)
        if self.arms():
            self._take()

    def _examine(self, arm: PlannedArm) -> None:
        if arm.key not in self._seen:
            if (answers := self.step(arm, "first calls", "examine", late=self._late)) is None:
                return
            self._seen[arm.key] = joint_facts(answers)
        seen, facts = self._seen[arm.key], self._facts[arm.key]
        facts.first_call_s, facts.expected_s = seen["first_call_s"], seen["expected_s"]
        if seen["changed"]:
            self.warnings.append(
                f"{arm.role}: it changes its inputs with every call: they are put back before each, untimed "
                f"({len(seen['changed'])} tensors)"
            )

    def _compare(self, base: PlannedArm, head: PlannedArm) -> None:
        """Outputs of both sides from equal random numbers: base is the reference."""
        if not self._seen[base.key]["repeats"]:
            self.warnings.append("not compared: equal calls give different outputs (base)")
            return
        stale = [arm for arm in (base, head) if self._seen[arm.key]["stale"]]
        if stale == [head]:
            self.give_up(head, Failure(Status.WRONG, STALE))
            return
        self.warnings += [f"{arm.role}: {STALE}" for arm in stale]
        also = "" if self._seen[head.key]["repeats"] else "equal calls give different outputs in head alone"
        if (bits := self._seen[base.key]["bits"]) and bits == self._seen[head.key]["bits"]:
            return  # the same, bit by bit
        path = self._directory / "outputs.pt"
        if self.step(base, "keeping outputs", "keep_outputs", path=str(path)) is None:
            return
        answers = self.step(head, "comparing outputs", "compare", path=str(path))
        for left in self._directory.glob(f"{path.name}*"):
            left.unlink()
        found = self._of_ranks(answers or ())
        for one in found:
            if not one["right"]:
                self.give_up(head, Failure(Status.WRONG, "; ".join(filter(None, [one["why"], also]))))
            elif not one["compared"]:
                self.warnings.append(one["why"])
        self.warnings += [also] if also else []
        self._facts[head.key].error = {key: max((one[key] for one in found), default=0.0) for key in ("norm", "peak")}

    def _of_ranks(self, agreements: Sequence[JsonObject]) -> list[JsonObject]:
        """What each rank found in comparing, with its number; first those that are wrong."""
        if len(agreements) == 1:
            return list(agreements)
        named = [{**one, "why": f"rank {rank}: {one['why']}"} for rank, one in enumerate(agreements)]
        return sorted(named, key=lambda one: bool(one["right"]))

    def _bundle(self) -> None:
        """A graph for short closures on a GPU, as many calls a sample as a host's clock needs on a CPU."""
        arms = self.arms()
        seen = [self._seen[arm.key] for arm in arms]
        expected_s = max((one["expected_s"] for one in seen), default=0.0)
        changes = any(one["changed"] or one["prepared"] for one in seen)
        if not all(one["on_gpu"] for one in seen):
            self.method = "clock"
            needed = math.ceil(SAMPLE_S / max(expected_s, 1e-9))
            self._sample_calls = 1 if changes else min(MOST_CALLS, max(1, needed))
        else:
            self.method = "graph" if expected_s < SHORT_S and not changes and not self.no_graph else "events"
        reasons = self._bundled()
        if self.method == "graph" and (any(reasons) or len(self.arms()) < len(arms)):
            self.no_graph, self.method = True, "events"
            why = next(filter(None, reasons), None)
            self.warnings.append(f"it cannot be captured in a graph ({why}): both sides are timed by events")
            self._bundled()

    def _bundled(self) -> list[str]:
        fields = {"calls": self._sample_calls, "graph": self.method == "graph"}
        answers = [self.step(arm, "graph capture", "bundle", **fields) for arm in self.arms()]
        return [why for one in answers for why in one or ()]

    def _calls(self, arm: PlannedArm) -> int:
        return self._sample_calls

    def _warn(self, arm: PlannedArm, facts: ArmFacts) -> None:
        self.warnings += [f"{arm.role}: {one}" for one in samples.symptoms_of(facts.seconds)]
        if self.case.world > 1 and facts.starved > STARVED_SHARE * len(facts.seconds):
            many = f"{facts.starved} of {len(facts.seconds)} samples"
            self.warnings.append(f"{arm.role}: in {many} a rank's host was late, and the others waited for it")

    def _entry(self) -> JsonObject:
        entry = super()._entry()
        return {**entry, "method": entry["method"] + OF_RANKS} if self.case.world > 1 else entry

    def _check(self, arm: PlannedArm, step: str) -> list[Any] | None:
        """After timing a side must still give what it gave before, if equal calls give equal outputs at all."""
        repeats = self._seen[arm.key]["repeats"]
        answers = self.step(arm, step, "check_after") if repeats else None
        wrong = [found for found in self._of_ranks(answers or ()) if not found["right"]]
        if wrong:
            why = wrong[0]["why"].replace("base", "its first call")
            self.give_up(arm, Failure(Status.WRONG, f"after timing, {why}"))
        return answers


# The ranks of a side as one: whether they are at the same timer, and their answers put together; and the starts of a
# trial as one.
#
# A closure is the same on all ranks by its place in the order of calls.  It has the name that rank 0 gives it.


FRAME = re.compile(r'File "([^"]+)", line (\d+) in (\S+)')
"""Of a traceback as faulthandler writes it, the innermost first."""

ABORTED_S = 2.0
"""How long a process may take to write one."""


class ScriptPool(WorkerPool):
    """The ranks of a side.  Where one ends badly, the others have a moment, as they may wait for it forever.

    root: of the checkout, with a separator behind it.
    """

    root = ""

    def _hurries(self, answer: Json) -> bool:
        return super()._hurries(answer) or _ended_badly(answer["result"])

    def _results(self, answers: Mapping[int, JsonObject]) -> list[Any]:
        """Of ranks that wait for one that has ended, None; PoolDied with the place of the others for a hang."""
        waiting = [worker for worker in self.workers if worker.rank not in answers]
        good = all(answer["ok"] for answer in answers.values())
        if waiting and good and any(_ended_badly(answer["result"]) for answer in answers.values()):
            world = len(self.workers)
            self.kill()
            return [answers[rank]["result"] if rank in answers else None for rank in range(world)]
        where = {rank: _where(answer["result"]) for rank, answer in answers.items() if answer["ok"]}
        where |= {worker.rank: self._aborted(worker) for worker in waiting if good}
        try:
            return super()._results(answers)
        except PoolDied as error:
            if error.failure.status != Status.HANG:
                raise
            several = len(where) > 1
            places = [f"rank {rank} {place}" if several else place for rank, place in sorted(where.items()) if place]
            raise PoolDied(dataclasses.replace(error.failure, why="; ".join([error.failure.why, *places]))) from None

    def _aborted(self, worker: RankProcess) -> str:
        """Abort a process that hangs; where in the checkout it was, "" where it does not say."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker.process.pid, signal.SIGABRT)
        worker.ending(ABORTED_S)
        frames = (frame for frame in FRAME.findall(worker.tail()) if frame[0].startswith(self.root))
        return next((f"was in {name} ({os.path.basename(file)}:{line})" for file, line, name in frames), "")


def _ended_badly(result: Any) -> bool:
    """Whether it is the end of a script that raised, or left with a code."""
    return isinstance(result, dict) and bool(result.get("code"))


def _where(result: Any) -> str:
    if not isinstance(result, dict) or not ("event" in result or "programs" in result):
        return "is through with it"
    return f"is at {result['line']}" if "event" in result else "has ended"


def disagreement(answers: Sequence[JsonObject]) -> str:
    """Why the ranks are not at the same timer, "" where they are, or where all have ended, or one has badly."""
    if any(one is None or _ended_badly(one) for one in answers) or len({_where(one) for one in answers}) == 1:
        return ""
    return f"its ranks time different things: {', '.join(f'rank {at} {_where(one)}' for at, one in enumerate(answers))}"


def joint_end(answers: Sequence[JsonObject | None]) -> JsonObject:
    """How the script ended: as on the first rank on which it ended badly, or as on rank 0."""
    bad = [rank for rank, one in enumerate(answers) if one and one.get("code")]
    rank = min(bad, key=lambda one: answers[one]["ended_at"], default=0)  # type: ignore[index]
    found = dict(answers[rank] or {})
    if bad and len(answers) > 1 and len(bad) < len(answers) and found.get("why"):
        found["why"] = f"rank {rank} of {len(answers)}: {found['why']}"
    return found


def _together(lists: Sequence[list[str]]) -> list[str]:
    """Lists that differ follow each other."""
    return lists[0] if lists.count(lists[0]) == len(lists) else [*itertools.chain(*lists)]


def _of_digests(digests: Sequence[str]) -> str:
    """Digests that differ have one of their own."""
    return joint([one or None for one in digests]) or ""


JOINED: Mapping[Callable[[Any], Any], Sequence[str]] = {
    max: ("first_call_s", "expected_s", "at_s", "took_s", "untuned", "unseen"),
    all: ("repeats",),
    any: ("on_gpu", "stale"),
    _together: ("inputs", "outputs", "changed"),
    _of_digests: ("held", "bits"),
}
"""How facts of ranks become one."""


def joint_facts(answers: Sequence[JsonObject]) -> JsonObject:
    """What the ranks saw of a closure, as of one process.

    Times are those of the slowest; names are those of rank 0, and `names` has those of every rank where they differ.
    """
    first = answers[0]
    if len(answers) == 1:
        return first
    names = [f"{one['backend']}/{one['case']}" for one in answers if "case" in one]
    found = {**first, "names": names if len(set(names)) > 1 else []}
    for rank, one in enumerate(answers):
        if one.get("status", "ok") != "ok":
            failed = {name: one[name] for name in ("status", "detail") if name in one}
            return {**found, **failed, "why": f"rank {rank}: {one['why']}"}
    of_all = {name: [one[name] for one in answers] for name in first}
    found |= {name: joined(of_all[name]) for joined, names in JOINED.items() for name in names if name in first}
    if "ran" in first:
        parts = dict.fromkeys(part for ran in of_all["ran"] for part in ran if not found["unseen"])
        found["ran"] = {part: _of_digests([ran.get(part, "nothing") for ran in of_all["ran"]]) for part in parts}
    return found


APART = 0.03
"""Ranks whose times changed more differently are named, if also by more than three standard errors of a median."""


def joint_starts(starts: Sequence[JsonObject]) -> JsonObject:
    """The entry of a closure in a trial, of its entries in the starts of that trial, arms by role.

    Sample i is the mean of their samples i.  An arm that failed in a start has no samples.
    """
    arms = {role: _joint_arm([one["arms"][role] for one in starts]) for role in starts[0]["arms"]}
    warnings = dict.fromkeys(warning for one in starts for warning in one["warnings"])
    return {**starts[0], "arms": arms, "warnings": [*warnings, *_uneven_ranks(arms)]}


def _joint_arm(starts: Sequence[JsonObject]) -> JsonObject:
    if failed := next((arm for arm in starts if arm["status"] != Status.OK), None):
        return failed
    series = [name for name in ("seconds", "skew_s", "rank_s") if starts[0].get(name)]
    by_start = {name: zip(*(arm[name] for arm in starts), strict=True) for name in series}
    return {**starts[0], **{name: list(map(statistics.fmean, rows)) for name, rows in by_start.items()}}


def _uneven_ranks(arms: Mapping[str, Json]) -> list[str]:
    """What is said where head is slower on some ranks than on others."""
    base, head = (arms.get(role, {}).get("rank_s") for role in ("base", "head"))
    ratios = [after / before for before, after in zip(base or (), head or (), strict=True)] if base and head else [1.0]
    error = math.hypot(*(_error_of_median(arm["seconds"]) for arm in arms.values() if arm.get("rank_s")))
    if max(ratios) <= (1 + APART + 3 * error) * min(ratios):
        return []
    told = ", ".join(f"rank {rank} {100 * (one - 1):+.1f} %" for rank, one in enumerate(ratios))
    return [f"head takes longer on some ranks than on others: {told}"]


def _error_of_median(seconds: Sequence[float]) -> float:
    """Of samples, relative to it: half of them lie within 0.67 standard deviations of it, and it scatters by 1.25 times
    as much as their mean.  Infinite for one sample.
    """
    if len(seconds) < 2:
        return math.inf
    lower, median, upper = statistics.quantiles(seconds, n=4)
    return 1.25 * (upper - lower) / (1.35 * median * math.sqrt(len(seconds)))
