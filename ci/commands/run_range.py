"""`ridgeline run A..B`: the commits of a range, each code of an operator measured once, into records.

Each trial times our backends beside the library, so that a step between two commits is one of paired ratios though they
were measured apart.  The trial file is the memory: the same command measures what it and the records lack.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from benchmarks.reach import reached_by_all
from ci import harness
from ci.commands.measuring import VerbClock
from ci.git.repository import Commit, LocalCheckout, RangeError, Repository
from ci.harness import INTERRUPTED, NOTHING, USAGE, MeasurePlan
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


@dataclasses.dataclass(frozen=True)
class CommitRange:
    """A range, oldest first.  labels: of each commit, digests of its operators' files; equal ones, equal code."""

    commits: Sequence[Commit]
    labels: Sequence[Mapping[str, str]]

    def order(self, steps: int | None = None) -> list[int]:
        """Places of the commits that bring new code of some operator, the newest first; at most `steps`, evenly."""
        seen: set[tuple[str, str]] = set()
        places = []
        for place, labels in enumerate(self.labels):
            if not labels.items() <= seen:
                places.append(place)
            seen |= labels.items()
        places.reverse()
        count = min(steps or len(places), len(places))
        return [places[round(step * (len(places) - 1) / max(count - 1, 1))] for step in range(count)]


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

    steps: most commits; None: all.  results: records, of which those of this machine and environment count as well;
    which those are is known from the first trial of the file.  failed: why a commit could not be measured, by hash.
    """

    repository: Repository
    span: CommitRange
    plan: MeasurePlan
    out: Path
    steps: int | None = None
    results: Path | None = None
    failed: dict[str, str] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        self._log = Followed(self.out)
        self._labels = {commit.hash: own for commit, own in zip(self.span.commits, self.span.labels, strict=True)}
        self._recorded: list[Trial] | None = None

    @property
    def trials(self) -> list[Trial]:
        """Those of the file that are of the range."""
        return [trial for trial in self._log.read().trials if _commit_of(trial) in self._labels]

    def _of_records(self) -> list[Trial]:
        """Trials of the range in the records of this machine and environment, where the plan names no part of them."""
        own, plan = next(iter(self.trials), None), self.plan
        if self._recorded is None and own and self.results and not (plan.cases or plan.backends or plan.knobs):
            env = own.checkouts["head"].environment.name
            places = (Place(own.machine.name, commit.hash, env) for commit in self.span.commits)
            self._recorded = [
                trial
                for place in places
                for trial in store.trials(self.results, place)
                if _commit_of(trial) in self._labels and _has_all_cases(trial, plan.tier)
            ]
        return self._recorded or []

    def measured(self) -> set[tuple[str, str]]:
        """(operator, label) of which some commit has all trials of the plan."""
        ids: dict[tuple[str, str], set[str]] = defaultdict(set)
        for trial in (*self.trials, *self._of_records()):
            for name in {trial.operator, EVERY} & self._labels[_commit_of(trial)].keys():
                ids[name, _commit_of(trial)].add(trial.id)
        done = (key for key, trials in ids.items() if len(trials) >= self.plan.trials)
        return {(name, self._labels[commit][name]) for name, commit in done}

    def remaining(self) -> Iterator[tuple[Commit, tuple[str, ...]]]:
        """(commit, its operators) of what is still to be measured, in its order."""
        done = self.measured()
        for commit in (self.span.commits[place] for place in self.span.order(self.steps)):
            new = {name: label for name, label in self._labels[commit.hash].items() if (name, label) not in done}
            done |= new.items()
            if new and commit.hash not in self.failed:
                yield commit, tuple(new)

    def run(self, minutes: float | None = None) -> int:
        """Measure until everything is, or the time is over; 0, or INTERRUPTED."""
        begun = time.monotonic()
        while left := list(self.remaining()):
            spent_s = time.monotonic() - begun
            if minutes and spent_s > 60 * minutes:
                break
            commit, operators = left[0]
            names = ", ".join(filter(None, operators)) or "all operators"
            click.echo(
                f"{spent_s:.0f} s, {len(left)} commits to go; now {commit.short} {plain(commit.subject, 60)}: {names}",
                err=True,
            )
            if self._measure(commit, operators) == INTERRUPTED:
                return INTERRUPTED
        return 0

    def _measure(self, commit: Commit, operators: Sequence[str]) -> int:
        """Measure operators of a commit; it failed where that leaves too few trials.  The child's exit code."""
        code, own = 0, [trial for trial in self.trials if _commit_of(trial) == commit.hash]
        for batch in missing(own, operators, 0, self.plan.trials):
            kernels = tuple(filter(None, batch.operators)) or tuple(self.plan.kernels)
            part = dataclasses.replace(self.plan, kernels=kernels, first_trial=batch.first, trials=batch.count)
            with self.repository.borrowed(commit) as folder:
                code = harness.measure([LocalCheckout("head", folder, commit)], part, self.out, err_console())
            if code == INTERRUPTED:
                return code
        if {(name, self._labels[commit.hash][name]) for name in operators} - self.measured():
            self.failed[commit.hash] = "the lines above say why" if code == USAGE else "too few trials came of it"
            click.echo(f"not measured: {commit.short}: {self.failed[commit.hash]}", err=True)
        return code


def _commit_of(trial: Trial) -> str:
    """The full hash of its head, "" without one."""
    return (trial.checkouts["head"].commit if "head" in trial.checkouts else None) or ""


def _has_all_cases(trial: Trial, tier: str) -> bool:
    """Whether a recorded trial has all cases that a run of this tier has here, of head as it was committed."""
    head, tiers = trial.checkouts["head"], harness.TIERS[: harness.TIERS.index(tier) + 1]
    cases = head.declaration.cases.items() if head.declaration and not head.dirty else ()
    wanted = {name for name, case in cases if case.tier in tiers and case.world <= trial.machine.count}
    return bool(cases) and wanted <= trial.cases.keys()


def run(given: Given) -> int:
    """Measure a range and record it; with --out only write the trial file."""
    if given.resume or given.commit or given.tree:
        raise click.UsageError("--resume, --commit and --tree are for one commit; leave them out")
    repository, planned = Repository(Path.cwd()), with_rounds(plan(given))
    span = commits_of(repository, given.span, given.newest, planned.kernels)
    asked = repr((given.span, given.newest, dataclasses.astuple(dataclasses.replace(planned, trials=0))))
    file = given.out or project.place(f"{FOLDER}/{hashlib.sha256(asked.encode()).hexdigest()[:12]}.jsonl")
    ranging = RangeRun(repository, span, planned, file, given.steps, given.results)
    if given.dry_run:
        steps = [(commit, ", ".join(filter(None, names)) or "all operators") for commit, names in ranging.remaining()]
        click.echo(f"would measure {len(steps)} of {len(span.commits)} commits into {file}, in this order:")
        for commit, names in steps:
            click.echo(f"  {commit.short} {plain(commit.subject, 60)}: {names}")
        return 0
    clock, before = VerbClock(), len(ranging.trials)
    wait_for_turn()
    code = ranging.run(given.minutes)
    trials = ranging.trials
    commits = len({_commit_of(trial) for trial in trials})
    click.echo(f"of {len(span.commits)} commits {commits} are measured, {len(ranging.failed)} cannot be measured")
    if given.out:
        click.echo(f"{len(trials) - before} new trials in {file}; `ridgeline records add {file}` records them")
    elif trials:
        from ci.commands.outcome import print_recorded  # a node that only measures has no pandas

        print_recorded(store.record([read(file)], given.results))
    clock.say(trials[before:])
    return code or (0 if trials else NOTHING)
