"""`ridgeline run A..B`: the commits of a range, each code of an operator measured once, into records.

Each trial times our backends beside the library, so that a step between two commits is one of paired ratios though they
were measured apart.  The trial file is the memory: the same command measures what it and the records lack.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks.reach import reached_by_all
from ci.commands.measuring import VerbClock, measure_missing
from ci.git.repository import Commit, LocalCheckout, RangeError, Repository
from ci.harness import INTERRUPTED, NOTHING, TIERS, MeasurePlan
from ci.judging.reach import EVERY, operator_labels, trees_of
from ci.options import Given, plan, wait_for_turn, with_rounds
from ci.records import store
from ci.records.store import Place
from ci.report.words import plain
from ci.trials.file import Followed, read
from ci.trials.trial import Trial
from kernels import project

FOLDER = ".ridgeline/past"
"""Below the root of the project: trial files, named by what is asked: the same command goes on with its own."""


Codes = Sequence[tuple[Commit, Mapping[str, str]]]
"""Commits, oldest first, each with the digests of its operators' files: equal digests, equal code."""


def codes_of(repository: Repository, span: str, newest: int | None, only: Sequence[str]) -> Codes:
    """The commits of "A..B" that touch a package with kernels, or a file that an operator of B can reach.

    only: these operators, () for all.  Raises RangeError, GitError.
    """
    start, end = repository.ends(span)
    commits = repository.commits(start, end)
    if commits:
        last = trees_of(repository.root, [commits[-1].hash])[0]
        touching = {*repository.commits(start, end, [*last.homes, *reached_by_all(last)])}
        commits = [commit for commit in commits if commit in touching][-(newest or 0) :]
    labels = operator_labels(repository, commits)
    declared = dict.fromkeys(name for operators in labels for name in operators)
    unknown = [name for name in only if name not in declared and EVERY not in declared]
    if unknown:
        raise RangeError(f"no commit of {span} declares {unknown[0]!r}; declared are: {', '.join(declared) or 'none'}")
    measured = [{name: label for name, label in own.items() if not only or name in (*only, EVERY)} for own in labels]
    return list(zip(commits, measured, strict=True))


def steps_of(codes: Codes, steps: int | None = None) -> Codes:
    """Those that bring new code of some operator, the newest first; at most `steps`, evenly."""
    seen: set[tuple[str, str]] = set()
    new = []
    for commit, labels in codes:
        if not labels.items() <= seen:
            new.append((commit, labels))
        seen |= labels.items()
    new.reverse()
    count = min(steps or len(new), len(new))
    return [new[round(step * (len(new) - 1) / max(count - 1, 1))] for step in range(count)]


@dataclasses.dataclass
class RangeRun:
    """A range that is measured into the file `out`.

    steps: most commits; None: all.  results: records, of which those of this machine and environment count as well;
    which those are is known from the first trial of the file.  failed: commits that leave too few trials.
    """

    repository: Repository
    codes: Codes
    plan: MeasurePlan
    out: Path
    steps: int | None = None
    results: Path | None = None
    failed: list[Commit] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self._log, self._labels = Followed(self.out), {commit.hash: labels for commit, labels in self.codes}

    @property
    def trials(self) -> list[Trial]:
        """Those of the file that are of the range."""
        return [trial for trial in self._log.read().trials if _commit_of(trial) in self._labels]

    @functools.cached_property
    def _recorded(self) -> list[Trial]:
        """Trials of the range in the records of the machine and environment of the file's first trial."""
        first, plan = self.trials[0], self.plan
        if not self.results or plan.cases or plan.backends or plan.knobs:
            return []
        env = first.checkouts["head"].environment.name
        places = [Place(first.machine.name, commit, env) for commit in self._labels]
        every = (trial for place in places for trial in store.trials(self.results, place))
        return [trial for trial in every if _commit_of(trial) in self._labels and _has_all_cases(trial, plan.tier)]

    def remaining(self) -> dict[Commit, tuple[str, ...]]:
        """The commits that are still to be measured, in their order, with their operators."""
        trials, ids = self.trials, defaultdict[tuple[str, str], set[str]](set)
        for trial in (*trials, *(self._recorded if trials else ())):
            for name in {trial.operator, EVERY} & self._labels[_commit_of(trial)].keys():
                ids[name, _commit_of(trial)].add(trial.id)
        whole = (key for key, own in ids.items() if len(own) >= self.plan.trials)
        done, remaining = {(name, self._labels[commit][name]) for name, commit in whole}, {}
        for commit, labels in steps_of(self.codes, self.steps):
            if new := tuple(name for name, label in labels.items() if (name, label) not in done):
                remaining[commit] = new
            done |= labels.items()
        return remaining

    def run(self, minutes: float | None = None) -> int:
        """Measure until everything is, or the time is over; 0, or INTERRUPTED."""
        begun = time.monotonic()
        while steps := [step for step in self.remaining().items() if step[0] not in self.failed]:
            spent_s, (commit, operators) = time.monotonic() - begun, steps[0]
            if minutes and spent_s > 60 * minutes:
                break
            click.echo(f"{spent_s:.0f} s, {len(steps)} commits to go; now {_text(commit, operators)}", err=True)
            own = [trial for trial in self.trials if _commit_of(trial) == commit.hash]
            with self.repository.borrowed(commit) as folder:
                head = LocalCheckout("head", folder, commit)
                if measure_missing(head, self.plan, self.out, own, operators) == INTERRUPTED:
                    return INTERRUPTED
            if commit in self.remaining():
                self.failed.append(commit)
                click.echo(f"not measured: {commit.short}: the lines above say why", err=True)
        return 0


def _text(commit: Commit, operators: Sequence[str]) -> str:
    names = ", ".join(filter(None, operators)) or "all operators"
    return f"{commit.short} {plain(commit.subject, 60)}: {names}"


def _commit_of(trial: Trial) -> str:
    """The full hash of its head, "" without one."""
    return (trial.checkouts["head"].commit if "head" in trial.checkouts else None) or ""


def _has_all_cases(trial: Trial, tier: str) -> bool:
    """Whether a recorded trial has all cases that a run of this tier has here, of head as it was committed."""
    head, tiers = trial.checkouts["head"], TIERS[: TIERS.index(tier) + 1]
    cases = head.declaration.cases.items() if head.declaration and not head.dirty else ()
    wanted = {name for name, case in cases if case.tier in tiers and case.world <= trial.machine.count}
    return bool(cases) and wanted <= trial.cases.keys()


def run(given: Given) -> int:
    """Measure a range and record it; with --out only write the trial file."""
    if given.resume or given.commit or given.tree:
        raise click.UsageError("--resume, --commit and --tree are for one commit; leave them out")
    repository, planned = Repository(Path.cwd()), with_rounds(plan(given))
    codes = codes_of(repository, given.span, given.newest, planned.kernels)
    searched = repr((given.span, given.newest, dataclasses.astuple(dataclasses.replace(planned, trials=0))))
    file = given.out or project.place(f"{FOLDER}/{hashlib.sha256(searched.encode()).hexdigest()[:12]}.jsonl")
    ranging = RangeRun(repository, codes, planned, file, given.steps, given.results)
    if given.dry_run:
        steps = ranging.remaining().items()
        click.echo(f"would measure {len(steps)} of {len(codes)} commits into {file}, in this order:")
        click.echo("".join(f"  {_text(*step)}\n" for step in steps), nl=False)
        return 0
    clock, before = VerbClock(), len(ranging.trials)
    wait_for_turn()
    code = ranging.run(given.minutes)
    trials = ranging.trials
    commits = len(set(map(_commit_of, trials)))
    click.echo(f"of {len(codes)} commits {commits} are measured, {len(ranging.failed)} cannot be measured")
    if given.out:
        click.echo(f"{len(trials) - before} new trials in {file}; `ridgeline records add {file}` records them")
    elif trials:
        from ci.commands.outcome import print_recorded  # a node that only measures has no pandas

        print_recorded(store.record([read(file)], given.results))
    clock.say(trials[before:])
    return code or (0 if trials else NOTHING)
