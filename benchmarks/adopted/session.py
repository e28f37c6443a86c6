"""Survey and trials of a script on two checkouts, as lines of a trial file."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
import random
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.adopted.sides import ScriptCase, ScriptPools, ScriptSide, joint_starts
from benchmarks.adopted.survey import (
    NO_MEMORY,
    CannotRun,
    Chosen,
    ScriptEnd,
    ScriptRun,
    SeenClosure,
    SideSurvey,
    Survey,
    choose,
)
from benchmarks.channel import free_port
from benchmarks.coordinator.checkouts import Checkout, probe
from benchmarks.coordinator.orders import CaseCounter, MeasureOrder, Report
from benchmarks.coordinator.ranks import VARIABLES, Failure
from benchmarks.coordinator.samples import failed_entry, is_sound
from benchmarks.coordinator.trial import Session
from benchmarks.machine import system
from benchmarks.plan import PlannedCase, Protocol, Selection, WarmUp
from benchmarks.shapes import Json, JsonObject, built, text_digest
from benchmarks.trial_file import Status

ON_CPU = {
    **dict.fromkeys(("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"), ""),
    "TRITON_INTERPRET": "1",
}
"""Variables of a process of `--device cpu`: it sees no GPU, and Triton interprets what is not timed
(benchmarks.worker.scripts.running)."""

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1"}
"""Variables of a rank: a process that is killed while it holds a multicast object of NVLink can take the GPUs out of
service (kernels/_shared/collectives/registered.py)."""

SURVEY_SHARE, CLOSURES_SHARE = 0.5, 0.1
"""Parts of a budget: when the survey ends, and what belongs to closures where imports took all of that; what a script
times later is not compared."""

OVER = 1.2
"""No trial begins that would end after so many times the budget, and one that does not end then is ended."""

REST_S = 10.0
"""Seconds, and at most a twentieth of a budget, that a script has for what comes after its last timed closure: its
tables are printed there."""

STARTS = 2
"""Of a trial of ranks on GPUs, each side set up first in one of them: who comes first has other places in memory, and
so another time, for as long as its processes live.  That is the same in every start: 8 closures of 94 to 350 us were
1.4 to 5.4 % apart in every start with base first, as much the other way with head first, and 0 to 0.5 % in the mean of
two (2 H200, 2026-11-28)."""

LEAST_ROUNDS = 8
"""Of a start."""

WARM_UP = WarmUp(seconds=0.0, fewest=0, most=0, rounds=2)
"""Of a closure: what looks at it has called it several times."""


class ScriptSession(Session):
    """One command.  A context manager: on leaving it none of its processes stays.  seen: what `survey` found."""

    def __init__(self, script: ScriptRun, checkouts: Sequence[Checkout], protocol: Protocol, report: Report) -> None:
        super().__init__(checkouts, dataclasses.replace(protocol, warm_up=WARM_UP), Selection(), report)
        self.script, self.seen = script, Survey({})
        self._no_graph: set[str] = set()
        self._ranks = max(1, script.ranks)
        self._leaves_out = True
        self._longest_s = 0.0
        self._next: tuple[Any, dict[str, ScriptSide]] = (None, {})
        self._begin = time.monotonic()
        self.warnings: list[str] = []
        self.printed: dict[str, str] = {}

    def __exit__(self, *error: Any) -> None:
        _end_all(self._next[1].values())
        super().__exit__(*error)

    # ---- the machine ---------------------------------------------------------------------------------------------

    def _describe(self) -> None:
        """A script declares nothing before it has run."""

    def _variables(self) -> dict[str, str]:
        own = {**VARIABLES, "MPLBACKEND": "Agg", **NO_MULTICAST, **(ON_CPU if self.script.device == "cpu" else {})}
        return own if self._has_gpu else {**own, "OMP_NUM_THREADS": "1"}

    @property
    def _has_gpu(self) -> bool:
        return bool(self.machine) and self.machine["kind"] == "gpu"

    # ---- the survey ----------------------------------------------------------------------------------------------

    def survey(self) -> Survey:
        """What both sides time, by running it once on both.

        A side that finds no memory on the GPU that it shares is looked at again, alone.
        """
        pythons = {one.python: one for one in self.checkouts}
        seen = {
            python: probe(one, self._directory, self._variables(), bool(self.script.device))
            for python, one in pythons.items()
        }
        self.descriptions = {one.role: seen[one.python] for one in self.checkouts}
        self._look_at_machine()
        self.on_progress({"done": 0, "total": None, "what": f"looking at {self.script.operator}"})
        looked = self._side_surveys()
        if self._ranks == 1 and (own := max(side.end.ranks for side in looked.values())) > 1:
            self._ranks = own  # it would have started them itself
            looked = self._side_surveys()
        self.seen = Survey(looked)
        return self.seen

    def _refuse_more_ranks_than_gpus(self) -> None:
        if self._has_gpu and self._ranks > len(self.devices):
            raise CannotRun(f"{self.script.path} is for {self._ranks} ranks, and there are {len(self.devices)} GPUs")

    def _side_surveys(self) -> dict[str, SideSurvey]:
        """Both sides: at once where each has a process; of several, one after the other is at work and then gone."""
        self._refuse_more_ranks_than_gpus()
        at_once = len(self.checkouts) if self._ranks == 1 else 1
        with ThreadPoolExecutor(at_once) as threads, self._sides(None) as sides:
            looked = dict(zip(sides, threads.map(self._surveyed, sides.values()), strict=True))
        for one in self.checkouts:
            if looked[one.role].short_of_memory:
                with self._sides(None, only=one) as sides:
                    looked[one.role] = self._surveyed(sides[one.role])
        return looked

    def _surveyed(self, side: ScriptSide) -> SideSurvey:
        """What a side times, up to its share of the budget.  Its own time before the first timer is in every trial."""
        closures: list[SeenClosure] = []
        until = self._at(1.0)
        while time.monotonic() < until and (event := side.next(self._until(until))):
            side.go_on()
            if event["event"] == "at":
                continue
            closures.append(built(SeenClosure, event))
            what = f"looking at {side.role}: {closures[-1].case}"
            self.on_progress({"done": len(closures), "total": None, "what": what})
            if len(closures) == 1:
                until = max(self._at(SURVEY_SHARE), time.monotonic() + self._at(CLOSURES_SHARE) - self._at(0.0))
        late = time.monotonic() > until and not side.ended
        end = _end(side, late, time.monotonic() - self._begin)
        if self._ranks > 1:
            side.kill()
        return SideSurvey(tuple(closures), end)

    def _at(self, share: float) -> float:
        """When so many budgets are spent, on the clock of time.monotonic; never where there is none."""
        return self._begin + share * (self.script.budget_s or math.inf) if share else self._begin

    def _until(self, end: float) -> float:
        """Seconds that a step may take which is to be over then."""
        return min(self.protocol.deadline_s, max(end - time.monotonic(), 1.0))

    @contextlib.contextmanager
    def _sides(
        self, wanted: Sequence[str] | None, only: Checkout | None = None, turn: int = 0
    ) -> Iterator[dict[str, ScriptSide]]:
        """Both scripts, or that of one side, running.  turn: of ranks, head comes first in every second."""
        (begun, sides), self._next = self._next, (None, {})
        try:
            if begun != (wanted, turn % 2, self._leaves_out):
                _end_all(sides.values())
                sides = {}
                self._start(sides, wanted, only, turn)
            for side in sides.values():
                side.begin, side.pool.ledger = time.monotonic(), self._ledger
            yield sides
        finally:
            _end_all(sides.values())

    def _start(
        self, sides: dict[str, ScriptSide], wanted: Sequence[str] | None, only: Checkout | None, turn: int
    ) -> None:
        """Start what _sides gives, into a dict whose owner ends it."""
        checkouts = [only] if only else list(self.checkouts)
        cores = system.cores()
        if self._ranks > 1 and turn % 2:
            checkouts.reverse()
        for one in checkouts:
            own = {**self._variables(), **builds_of(one.path)}
            sides[one.role] = ScriptSide(one, self._directory, own, self._ranks)
        for one in checkouts:
            sides[one.role].go_on("script", self._of_ranks(self._task(one, wanted), wanted, cores))

    def _start_ahead(self, sides: Mapping[str, ScriptSide], wanted: Sequence[str], turn: int) -> None:
        """Start the processes of the next turn while these measure: on a GPU, where ranks make a group, they import all
        that the script does and wait there.  A machine without one has no cores for it.
        """
        if self._has_gpu and not self._next[1] and all(side.met and side.pool.alive for side in sides.values()):
            self._next = (wanted, turn % 2, self._leaves_out), {}
            self._start(self._next[1], wanted, None, turn)

    def _of_ranks(self, task: JsonObject, wanted: Sequence[str] | None, cores: Sequence[int]) -> list[JsonObject]:
        """The fields of each rank's request."""
        found = []
        meeting = {
            "world": self._ranks,
            "port": free_port(),
            "torchrun": bool(self.script.ranks),
            "store": str(self._directory / f"{os.urandom(4).hex()}.store"),
        }
        for rank in range(self._ranks):
            own = {**task, **meeting, "rank": rank}
            if wanted is not None:
                role = task["role"]
                own["wanted"] = self.seen.on_rank(role, wanted, rank)
                own["unwanted"] = [(*row, self.seen.on_rank(role, keys, rank)) for *row, keys in task["unwanted"]]
            found.append({"task": own, "core": None if self._has_gpu else cores[rank % len(cores)]})
        return found

    def _task(self, checkout: Checkout, wanted: Sequence[str] | None) -> JsonObject:
        """The fields of worker.scripts.interception.ScriptTask."""
        script = self.script
        leaves_out = self._leaves_out and wanted is not None
        return {
            "role": checkout.role,
            "checkout": str(checkout.path),
            "script": str(checkout.path / script.path),
            "source": str(Path(script.source).resolve()),
            "arguments": list(script.arguments),
            "folder": str(checkout.path / script.folder),
            "paths": script.roots(checkout.path),
            "packages": script.packages(checkout.path),
            "pytest": script.by_pytest,
            "on_cpu": script.device == "cpu",
            "wanted": None if wanted is None else list(wanted),
            "seed": script.seed,
            "gpu": self._has_gpu,
            "flush_bytes": self.flush_bytes() if self.protocol.cache == "cold" else 0,
            "tuned": str(self._directory / "tuned"),
            "unwanted": self.seen.unwanted_calls(checkout.role, wanted or ()) if leaves_out else [],
        }

    # ---- trials --------------------------------------------------------------------------------------------------

    @property
    def same(self) -> frozenset[str]:
        """Closures that are SAME by their code: both sides run it, with the same Python."""
        one_python = len({one.python for one in self.checkouts}) == 1
        return self.seen.same if one_python and not self.script.all_cases else frozenset()

    def closures_to_time(self) -> Chosen:
        """What is timed: what can differ, as much of it as the budget holds."""
        asked, left_s = self.script, None
        if asked.budget_s:
            left_s = max(self._at(1.0) - time.monotonic(), asked.budget_s * (1 - SURVEY_SHARE))
        return choose(self.seen, self.protocol.rounds, asked.budget_trials, left_s, self.same, self._starts)

    def trials(self, orders: Iterable[Sequence[MeasureOrder]]) -> Iterator[JsonObject]:
        """The lines of these orders, as far as the budget goes."""
        chosen, operator = self.closures_to_time(), self.script.operator
        if chosen.left_out:
            self.on_progress({"done": 0, "total": None, "what": next(iter(chosen.left_out.values()))})
        for role, known in self.descriptions.items():
            self.descriptions[role] = dataclasses.replace(known, kernels={operator: self._declaration(role)})
        for order in (one for several in orders for one in several if operator not in one.without):
            asked = [key for key in chosen.timed if not order.cases or key.partition("/")[2] in order.cases]
            progress = CaseCounter(order.trials * self._starts * len(asked), self.on_progress)
            for number in range(order.first_trial, order.first_trial + order.trials):
                trial_s = max(chosen.trial_s if not order.cases else 0.0, self._longest_s)
                if number and asked and time.monotonic() + trial_s > self._at(OVER):
                    return
                part = dataclasses.replace(chosen, timed=tuple(asked))
                try:
                    yield self._script_trial(part, number, order, progress)
                except BudgetSpent as spent:
                    if not number:  # what was seen is told in any case
                        why = dict.fromkeys(asked, f"not timed: {spent}")
                        part = dataclasses.replace(chosen, timed=(), left_out=chosen.left_out | why)
                        yield self._script_trial(part, number, order, progress)
                    return
            progress.finish()

    def _script_trial(self, chosen: Chosen, number: int, order: MeasureOrder, progress: CaseCounter) -> JsonObject:
        cases: JsonObject = {}
        differs = {} if self.script.all_cases else self.seen.differing
        for key, arms in () if order.cases else _untimed(self.seen, chosen, self.same):
            _add(cases, key, arms)

        def measured() -> None:
            begin, starts = time.monotonic(), list[dict[str, JsonObject]]()
            for part in range(self._starts):
                starts.append(self._one_start(chosen.timed, number * self._starts + part, order, progress))
                if not is_sound(starts[-1]):
                    break
            self._longest_s = max(self._longest_s, time.monotonic() - begin)
            for key in chosen.timed:
                _add(cases, key, **joint_starts([one[key] for one in starts]))
                if why := differs.get(key):
                    _add(cases, key, {}, warnings=[f"timed, not the same code: {why}"])

        def filled(entries: JsonObject, warnings: list[str]) -> None:
            try:
                if chosen.timed:
                    measured()
            except LeftOut as missed:
                self._leaves_out = False
                self.warnings.append(f"{missed}: trials make every call of the script")
                measured()
            entries.update(cases)
            warnings += self.warnings

        names = dict.fromkeys([*cases, *(key.partition("/")[2] for key in chosen.timed)])
        planned = [PlannedCase(name, self._ranks, ()) for name in names]
        return self.line(self.script.operator, planned, number, filled)

    @property
    def _starts(self) -> int:
        """Of a trial."""
        return STARTS if self._ranks > 1 and self._has_gpu else 1

    def _one_start(
        self, timed: Sequence[str], turn: int, order: MeasureOrder, progress: CaseCounter
    ) -> dict[str, JsonObject]:
        """The entries of the closures, of one start of both sides."""
        with self._sides(timed, turn=turn) as sides:
            entries = {}
            for key in timed:
                entries[key] = self._closure(sides, key, turn, order, progress)
                self._start_ahead(sides, timed, turn + 1)
            if not self.printed:
                rest = time.monotonic() + min(REST_S, (self._at(OVER) - self._at(0.0)) / 20)
                for side in sides.values():
                    side.next(self._until(rest))
                self.printed = {role: side.printed() for role, side in sides.items()}
        return entries

    def _closure(
        self, sides: Mapping[str, ScriptSide], key: str, turn: int, order: MeasureOrder, progress: CaseCounter
    ) -> JsonObject:
        """One closure, at which both scripts arrive in their own time.  Raises LeftOut and BudgetSpent."""
        progress.start(f"trial {turn // self._starts + 1}: {key}")
        here: list[ScriptSide] = []
        absent: dict[str, JsonObject] = {}
        for role, side in sides.items():
            event = side.held or side.next(self._until(self._at(OVER)))
            side.held = event
            if time.monotonic() > self._at(OVER):
                took_s = time.monotonic() - side.begin
                raise BudgetSpent(
                    f"the budget was spent {took_s:.0f} s after the start of a trial; give a longer --budget"
                )
            if event and f"{event['backend']}/{event['case']}" == key:
                here, side.held = [*here, side], None
            elif event:
                absent[role] = failed_entry(Status.ERROR, "it did not time this in this trial, as it had before")
            else:
                absent[role] = _missed(_end(side, False, 0.0))
        shuffled = random.Random(f"{turn}/{self.script.operator}/{key}")
        usual = max(min(self.protocol.rounds, LEAST_ROUNDS), math.ceil(self.protocol.rounds / self._starts))
        no_graph, rounds = key in self._no_graph, order.rounds.get(key.partition("/")[2], 0) or usual
        run = ScriptCase(
            ScriptPools(here),
            key,
            self.protocol,
            shuffled,
            self._directory,
            no_graph,
            rounds,
            self._ranks,
            late=self._ranks > 1 and not turn,
        )
        entry = run.run()
        if self._leaves_out and (
            absent or any(self.seen.sides[role].by_key[key].held != held for role, held in run.held.items())
        ):
            raise LeftOut(f"{key} needs a call of the script in which nothing is timed here")
        progress.done += 1
        for side, arm in zip(here, run.case.arms, strict=True):
            if side.pool.alive:
                side.go_on()
            else:
                side.died(run.failures[arm.key])
        self._no_graph |= {key} if run.no_graph else set()
        found = {arm.role: entry["arms"][arm.key] for arm in run.case.arms}
        return {**entry, "arms": {**found, **absent}}

    def _declaration(self, role: str) -> JsonObject:
        survey, side = self.seen, self.seen.sides[role]
        backend, _, later = LATER.partition("/")
        closures = [*side.closures, *survey.lost(role), *([SeenClosure(backend, later)] if survey.cut_short() else [])]
        cases = {one.case: one for one in closures}
        return {
            "kernel": self.script.operator,
            "backends": list(dict.fromkeys(one.backend for one in closures)) or ["script"],
            "baselines": [],
            "cases": [
                {"name": name, "tier": "pr", "dtype": one.dtype, "world": self._ranks} for name, one in cases.items()
            ],
            "yardstick": self.script.definition,
            "case_yardsticks": {name: survey.definition(role, name) for name in cases},
        }


# ---- parts -----------------------------------------------------------------------------------------------------------


class BudgetSpent(Exception):
    """A trial was ended with the budget; the text says when, and what to do."""


def _end_all(sides: Collection[ScriptSide]) -> None:
    """End them at once: a device's context takes a second to end."""
    for side in sides:
        for worker in side.pool.workers:
            worker.process.kill()
    for side in sides:
        side.kill()


class LeftOut(Exception):
    """A closure does not come, or holds something else, in a trial that leaves calls of the script out."""


def builds_of(checkout: Path) -> dict[str, str]:
    """The variable by which torch builds C++ extensions of each checkout in a folder of its own: names are equal."""
    usual = os.environ.get("TORCH_EXTENSIONS_DIR") or str(Path.home() / ".cache/torch_extensions")
    own = text_digest(str(checkout.resolve()), 8)
    return {"TORCH_EXTENSIONS_DIR": str(Path(usual) / f"ridgeline-{own}")}


def _end(side: ScriptSide, late: bool, spent_s: float) -> ScriptEnd:
    """How the script of a side ended."""
    took_s, printed = time.monotonic() - side.begin, side.printed()
    if side.ended:
        return dataclasses.replace(built(ScriptEnd, side.ended), took_s=took_s, printed=printed)
    if late:
        why = f"its survey was ended after {spent_s:.0f} s, its share of the budget: what comes later is not compared"
        return ScriptEnd(0, "late", why, took_s=took_s, printed=printed)
    failure = side.failure or Failure(Status.ERROR, "it did not end")
    return ScriptEnd(1, failure.status, failure.why, failure.detail, took_s, printed=printed)


SAME = "both sides run the same code"

LATER = "script/what_comes_later"
"""Stands for what one side may time after the place where it ended."""


def _untimed(survey: Survey, chosen: Chosen, same: Collection[str]) -> Iterator[tuple[str, JsonObject]]:
    """(key, arms by role) of every closure that is not timed, each arm with its reason.

    Of the same code, it has the code's digest: that is a verdict.
    """
    sides = {role: side.by_key for role, side in survey.sides.items()}
    for key in [one for one in survey.paired if one not in chosen.timed]:
        failing = {role: known[key] for role, known in sides.items() if known[key].status != "ok"}
        if len(failing) == len(sides) and all(NO_MEMORY in one.why for one in failing.values()):
            yield key, dict.fromkeys(sides, failed_entry(Status.SKIPPED, f"not measured on either side: {NO_MEMORY}"))
            continue
        why = f"not timed: {next(iter(failing))} fails" if failing else chosen.left_out.get(key, SAME)
        arms = {role: failed_entry(Status(one.status), one.why, one.detail) for role, one in failing.items()}
        code = {"code_hash": sides["head"][key].code} if key in same and not failing else {}
        yield key, {**dict.fromkeys(sides, {**failed_entry(Status.UNTIMED, why), **code}), **arms}
    lost = {role: {one.key for one in survey.lost(role)} for role in sides}
    for key, why in survey.unpaired().items():
        gone = {role: _missed(side.end) for role, side in survey.sides.items() if key in lost[role]}
        yield key, gone | {role: failed_entry(Status.UNTIMED, why) for role, known in sides.items() if key in known}
    if short := survey.cut_short():
        failed = {role: (end := survey.sides[role].end).early and end.kind != "late" for role in short}
        why = next(iter(short.values()))
        entries = {role: failed_entry(Status.ERROR if failed[role] else Status.UNTIMED, why) for role in short}
        yield LATER, {**dict.fromkeys(sides, failed_entry(Status.UNTIMED, why)), **entries}


def _missed(end: ScriptEnd) -> JsonObject:
    """The entry of a closure to which a script did not come."""
    return failed_entry(end.status, f"the script ended before it: {end.reason}", end.detail)


def _add(cases: JsonObject, key: str, arms: Json, method: str = "", warnings: Sequence[str] = ()) -> None:
    """Add a closure to the cases of a trial line, where arms of all backends that share a case stand together."""
    backend, _, case = key.partition("/")
    held = cases.setdefault(case, {"method": "", "warnings": [], "arms": {}})
    held["method"] = held["method"] or method
    held["warnings"] += [f"{backend}: {one}" for one in warnings]
    held["arms"].update({f"{role}/{backend}": arm for role, arm in _without_room(arms).items()})


def _without_room(arms: Json) -> Json:
    """Both sides stand on the GPU at once: that one of them finds no memory there says nothing of its code."""
    short = [role for role, arm in arms.items() if NO_MEMORY in arm.get("why", "")]
    if len(arms) < 2 or len(short) != 1:
        return arms
    told = f"{short[0]} found no memory on the GPU beside the other side: {arms[short[0]]['why']}"
    why = f"not judged: {told}; take smaller shapes, or a GPU that nobody else uses"
    return dict.fromkeys(arms, failed_entry(Status.UNTIMED, why))
