"""`ridgeline run A..B`: the commits of a range, each code of an operator measured once, into records.

Each trial times our backends beside the library, so that a step between two commits is one of paired ratios though they
were measured apart.  The trial file is the memory: the same command measures what it lacks.
"""

from __future__ import annotations

import bisect
import dataclasses
import hashlib
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.reach.operators import reached_by_all
from ci import harness
from ci.commands.common.measuring import VerbClock
from ci.git.repository import Commit, LocalCheckout, RangeError, Repository
from ci.harness import (
    INTERRUPTED,
    NOTHING,
    TIERS,
    USAGE,
    ChildExit,
    MeasureError,
    MeasurePlan,
    OneProgram,
    machine_kind,
)
from ci.judging.reach import EVERY, operator_labels, trees_of
from ci.options import Given, err_console, plan, wait_for_turn, with_rounds
from ci.records import store
from ci.records.store import Place
from ci.report.words import plain
from ci.trials.file import Followed, missing, read
from ci.trials.trial import Trial
from kernels import project

FOLDER = ".ridgeline/past"
"""Below the root of the project: trial files, named by what is asked: the same command goes on with its own."""

TRIAL_S = {"gpu": 3.6, "cpu": 10.0}
"""Seconds of a trial of one operator with all that is around it: `run --tier pr`, 15 trials, took 54 s on an H200
(2026-11-24); of a CPU an assumption."""

FEWEST_FAILURES = 3
"""So many commits that cannot be measured, and none that can: it is the machine's fault, not theirs."""

MeasureCommit = Callable[[LocalCheckout, MeasurePlan, float | None], ChildExit]
"""Measures a checkout by a plan within so many seconds."""


@dataclasses.dataclass(frozen=True)
class CommitRange:
    """A range, oldest first.  labels: of each commit, digests of its operators' files; equal ones, equal code."""

    commits: Sequence[Commit]
    labels: Sequence[Mapping[str, str]]

    def order(self) -> list[int]:
        """Places of the commits that bring new code of some operator: the last, the first, then the middle of the
        largest gap, so that any number of steps leaves an even history."""
        seen: set[tuple[str, str]] = set()
        places = []
        for place, labels in enumerate(self.labels):
            if not labels.items() <= seen:
                places.append(place)
            seen |= labels.items()
        return [places[index] for index in halving_order(len(places))]


def halving_order(count: int) -> list[int]:
    """0 to count - 1: the last and the first one, then always the middle of the largest gap."""
    order = [count - 1, 0][: max(count, 0)]
    taken = sorted(order)
    while len(order) < count:
        low, high = max(itertools.pairwise(taken), key=lambda gap: (gap[1] - gap[0], gap))
        order.append((low + high) // 2)
        bisect.insort(taken, order[-1])
    return order


def commits_of(repository: Repository, span: str, newest: int | None, only: Sequence[str]) -> CommitRange:
    """The commits of "A..B" that touch a package with kernels, or a file that an operator of B can reach.

    only: these operators, () for all.  Raises RangeError, GitError.
    """
    start, end = repository.ends(span)
    commits = repository.commits(start, end)
    if commits:
        last = trees_of(repository.root, [commits[-1].hash])[0]
        touching = {commit.hash for commit in repository.commits(start, end, [*last.homes, *reached_by_all(last)])}
        commits = [commit for commit in commits if commit.hash in touching]
    commits = commits[-newest:] if newest else commits
    labels = operator_labels(repository, commits)
    declared = dict.fromkeys(name for operators in labels for name in operators)
    unknown = [name for name in only if name not in declared and EVERY not in declared]
    if unknown:
        raise RangeError(f"no commit of {span} declares {unknown[0]!r}; declared are: {', '.join(declared) or 'none'}")
    chosen = [{name: label for name, label in own.items() if not only or name in (*only, EVERY)} for own in labels]
    return CommitRange(commits, chosen)


@dataclasses.dataclass
class RangeRun:
    """A range that is measured into the file `out`.

    steps: most commits; minutes: of wall time; None: all of them.  results: records, of which those of this machine and
    environment count as well; which those are is known from the first trial of the file.
    failed: why an operator's code could not be measured, by (operator, label).
    """

    repository: Repository
    span: CommitRange
    plan: MeasurePlan
    out: Path
    console: Console
    steps: int | None = None
    minutes: float | None = None
    results: Path | None = None
    failed: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = Followed(self.out)
        self._place = {commit.hash: place for place, commit in enumerate(self.span.commits)}
        self._recorded: list[Trial] | None = None

    @property
    def trials(self) -> list[Trial]:
        """Those of the file that are of the range."""
        return [trial for trial in self._log.read().trials if _commit_of(trial) in self._place]

    def recorded(self) -> list[Trial]:
        """Trials of the range in the records of this machine and environment, with all that the plan would measure."""
        plan, own = self.plan, next((trial for trial in self._log.read().trials if _commit_of(trial)), None)
        if not own or not self.results or plan.cases or plan.backends or plan.knobs:
            return []
        if self._recorded is None:
            machine, env = own.machine.name, own.checkouts["head"].environment.name
            places = (Place(machine, commit.hash, env) for commit in self.span.commits)
            trials = (trial for place in places for trial in store.trials(self.results, place))
            self._recorded = [t for t in trials if _commit_of(t) in self._place and _has_all_cases(t, plan.tier)]
        return self._recorded

    def measured(self) -> set[tuple[str, str]]:
        """(operator, label) of which some commit has all trials of the plan."""
        ids: dict[tuple[str, int], set[str]] = defaultdict(set)
        for trial in (*self.trials, *self.recorded()):
            place = self._place[_commit_of(trial)]
            for name in {trial.operator, EVERY} & self.span.labels[place].keys():
                ids[name, place].add(trial.id)
        return {
            (name, self.span.labels[place][name])
            for (name, place), them in ids.items()
            if len(them) >= self.plan.trials
        }

    def left(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """(place of a commit, its operators) of what is still to be measured, in its order."""
        done = self.measured() | self.failed.keys()
        for place in self.span.order()[: self.steps]:
            new = {name: label for name, label in self.span.labels[place].items() if (name, label) not in done}
            done |= new.items()
            if new:
                yield place, tuple(new)

    def run(self, measure: MeasureCommit) -> None:
        """Measure until everything is, or the time is spent.  Raises MeasureError, KeyboardInterrupt."""
        begun, longest, steps = time.monotonic(), 0.0, 0
        while left := list(self.left()):
            spent = time.monotonic() - begun
            time_left = 60 * self.minutes - spent if self.minutes else None
            if time_left is not None and time_left < longest:
                break
            (place, operators), commit = left[0], self.span.commits[left[0][0]]
            remaining = f", about {spent / steps * len(left):.0f} s left" if steps else ""
            names = ", ".join(filter(None, operators)) or "all operators"
            self.console.print(
                f"{spent:.0f} s, {len(left)} commits to go{remaining}; now {commit.short} {commit.subject:.60}: "
                f"{names}",
                markup=False, highlight=False, soft_wrap=True,
            )  # fmt: skip
            self._measure(place, operators, measure, time_left)
            longest, steps = max(longest, time.monotonic() - begun - spent), steps + 1

    def _measure(self, place: int, operators: Sequence[str], measure: MeasureCommit, time_left: float | None) -> None:
        """Measure operators of a commit; those that leave too few trials failed.  Of an interrupted call they count."""
        commit, labels = self.span.commits[place], self.span.labels[place]
        own = [trial for trial in self.trials if _commit_of(trial) == commit.hash]
        for batch in missing(own, operators, 0, self.plan.trials):
            kernels = tuple(filter(None, batch.operators)) or tuple(self.plan.kernels)
            part = dataclasses.replace(self.plan, kernels=kernels, first_trial=batch.first, trials=batch.count)
            with self.repository.borrowed(commit) as folder:
                ended = measure(LocalCheckout("head", folder, commit), part, time_left)
            if ended.late:
                return
            why = ended.last if ended.code == USAGE else f"no trial: {ended.how}"
            numbers = {
                (name, t.number) for t in self.trials if _commit_of(t) == commit.hash for name in (t.operator, "")
            }
            last = batch.first + batch.count - 1
            self.failed |= {(name, labels[name]): why for name in batch.operators if (name, last) not in numbers}
        if len(self.failed) >= FEWEST_FAILURES and not self.trials:
            raise MeasureError(f"nothing can be measured here: {next(iter(self.failed.values()))}")

    def summary(self) -> str:
        """How many commits are measured, how many share a measurement, how many have none."""
        commits, measured = {_commit_of(trial) for trial in (*self.trials, *self.recorded())}, self.measured()
        others = [own for one, own in zip(self.span.commits, self.span.labels, strict=True) if one.hash not in commits]
        sharing = sum(bool(own.items() & measured) for own in others)
        failed = sum(bool(own.items() & self.failed.keys()) for own in self.span.labels)
        return (
            f"of {len(self.span.commits)} commits {len(commits)} are measured, {sharing} have the same files of some "
            f"operator as one of them, {failed} cannot be measured"
        )


def _commit_of(trial: Trial) -> str:
    """The full hash of its head, "" without one."""
    return (trial.checkouts["head"].commit if "head" in trial.checkouts else None) or ""


def _has_all_cases(trial: Trial, tier: str) -> bool:
    """Whether a recorded trial has all cases that a run of this tier has here, of head as it was committed."""
    head = trial.checkouts["head"]
    if head.dirty or not head.declaration:
        return False
    tiers = TIERS[: TIERS.index(tier) + 1]
    cases = head.declaration.cases.items()
    return {n for n, case in cases if case.tier in tiers and case.world <= trial.machine.count} <= trial.cases.keys()


def measured_here(out: Path, console: Console, program: OneProgram) -> MeasureCommit:
    """Measuring on this machine, all commits by one program."""

    def measure(checkout: LocalCheckout, plan: MeasurePlan, limit_s: float | None) -> ChildExit:
        out.parent.mkdir(parents=True, exist_ok=True)
        ended = program.follow(harness.command([checkout], plan, out), console, limit_s=limit_s)
        if ended.code == INTERRUPTED and not ended.late:
            raise KeyboardInterrupt
        return ended

    return measure


def run(given: Given) -> int:
    """Measure a range and record it; with --out only write the trial file."""
    if given.resume or given.commit or given.tree:
        raise click.UsageError("--resume, --commit and --tree are for one commit; leave them out")
    repository, planned = Repository(Path.cwd()), with_rounds(plan(given))
    span = commits_of(repository, given.span, given.newest, planned.kernels)
    asked = repr((given.span, given.newest, dataclasses.astuple(dataclasses.replace(planned, trials=0))))
    file = given.out or project.place(f"{FOLDER}/{hashlib.sha256(asked.encode()).hexdigest()[:12]}.jsonl")
    ranging = RangeRun(repository, span, planned, file, err_console(), given.steps, given.minutes, given.results)
    if given.dry_run:
        click.echo(plan_text(ranging))
        return 0
    clock, before = VerbClock(), len(ranging.trials)
    wait_for_turn()
    code = 0
    try:
        with OneProgram() as program:
            program.begin()
            ranging.run(measured_here(file, ranging.console, program))
    except KeyboardInterrupt:  # what is finished is recorded
        code = INTERRUPTED
    for labels, commit in zip(span.labels, span.commits, strict=True):
        if why := next((ranging.failed[one] for one in labels.items() if one in ranging.failed), ""):
            click.echo(f"not measured: {commit.short}: {plain(why, 500)}", err=True)
    click.echo(ranging.summary())
    new = ranging.trials[before:]
    if given.out:
        click.echo(f"{len(new)} new trials in {file}; `ridgeline records add {file}` records them")
    elif ranging.trials:
        from ci.commands.common.outcome import print_recorded  # a node that only measures has no pandas

        print_recorded(store.record([read(file)], given.results))
    clock.say(new)
    return code or (0 if ranging.trials else NOTHING)


def plan_text(ranging: RangeRun) -> str:
    """What would be measured, in its order, and how long it takes."""
    steps, span = list(ranging.left()), ranging.span
    trials = ranging.plan.trials * sum(len(operators) for _, operators in steps)
    lines = [f"would measure {len(steps)} of {len(span.commits)} commits into {ranging.out}, in this order:"]
    for place, operators in steps:
        names = ", ".join(filter(None, operators)) or "all operators"
        lines.append(f"  {span.commits[place].short} {plain(span.commits[place].subject, 60)}: {names}")
    end = f"; ends after {ranging.minutes:g} min" if ranging.minutes else ""
    minutes = trials * TRIAL_S[machine_kind()] / 60
    return "\n".join([*lines, f"{trials} trials of an operator at most, about {minutes:.0f} min{end}"])
