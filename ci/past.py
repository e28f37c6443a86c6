"""Past commits measured: which of a range, in which order, and what those say that are not measured.

Commits whose files are the same for an operator share one measurement of it.  The rest come in the order that halves
the largest gap first, gaps whose ends launched different code before those whose ends did not, so that any end of the
budget leaves an even history.  Each trial times our backends beside the library, so that a step between two commits is
one of paired ratios though they were measured apart.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.reach.operators import reached_by_all
from ci import harness
from ci.git.repository import Commit, LocalCheckout, RangeError, Repository
from ci.harness import INTERRUPTED, TIERS, USAGE, ChildExit, MeasureError, MeasurePlan, OneProgram
from ci.judging.reach import EVERY, operator_labels, trees_of
from ci.records import store, unmeasured
from ci.records.store import Place
from ci.records.unmeasured import Unmeasured
from ci.trials.file import Followed, read
from ci.trials.trial import Trial

FEWEST_FAILURES = 3
"""So many commits that cannot be measured, and none that can: it is the machine's fault, not theirs."""


@dataclasses.dataclass(frozen=True)
class PastCommits:
    """A range, oldest first.  labels: of each commit, digests of its operators' files; equal ones, equal code."""

    commits: Sequence[Commit]
    labels: Sequence[Mapping[str, str]]

    @property
    def operators(self) -> list[str]:
        """All that some commit declares."""
        return list(dict.fromkeys(name for one in self.labels for name in one))

    def classes(self, operator: str) -> list[int]:
        """The first commit of each class of commits with equal code, by its place."""
        first: dict[str, int] = {}
        for place, one in enumerate(self.labels):
            if operator in one:
                first.setdefault(one[operator], place)
        return list(first.values())


def of_range(
    repository: Repository, span: str, newest: int | None, since_ms: int | None, only: Sequence[str]
) -> PastCommits:
    """The commits of "A..B" that touch a package with kernels, or a file that an operator of B can reach.

    only: these operators, () for all.  Raises RangeError, GitError.
    """
    start, end = repository.ends(span)
    commits = repository.commits(start, end)
    if commits:
        last = trees_of(repository.root, [commits[-1].hash])[0]
        touching = {one.hash for one in repository.commits(start, end, [*last.homes, *reached_by_all(last)])}
        commits = [one for one in commits if one.hash in touching and one.date_ms >= (since_ms or 0)]
    commits = commits[-newest:] if newest else commits
    head = repository.resolve("HEAD")  # it may say names that they do not
    labels = operator_labels(repository, [*commits, head])[:-1]
    there = dict.fromkeys(name for one in labels for name in one)
    missing = [name for name in only if name not in there and EVERY not in there]
    if missing:
        raise RangeError(f"no commit of {span} declares {missing[0]!r}; declared are: {', '.join(there) or 'none'}")
    kept = [{name: one for name, one in own.items() if not only or name in (*only, EVERY)} for own in labels]
    return PastCommits(commits, kept)


@dataclasses.dataclass(frozen=True)
class NextCommit:
    """What is measured next: the place of a commit, its operators, and the number of their first trial."""

    place: int
    operators: tuple[str, ...]


Known = Mapping[str, Mapping[str, str]]
"""Of each operator, by label: what a measured commit launched; "" where it could not be measured."""


def next_commit(past: PastCommits, known: Known) -> NextCommit | None:
    """The commit in the middle of the largest gap, with the operators that are wanted there; None where none is left.

    Both ends of an operator come first, its newest commit before its oldest.
    """
    found = [(*gap, name) for name in past.operators if (gap := _gap(past, name, known.get(name, {})))]
    if not found:
        return None
    urgency, _, place, _ = max(found, key=lambda one: (one[0], one[1], one[2]))
    wanted = [
        name
        for name, label in past.labels[place].items()
        if label not in known.get(name, {}) and _urgency(past, name, place, known.get(name, {})) >= min(urgency, 1)
    ]
    return NextCommit(place, tuple(wanted))


def order(past: PastCommits, known: Known) -> Iterator[NextCommit]:
    """All that are left, in their order as long as nothing is known of the code: each counts as different."""
    found = {name: dict(labels) for name, labels in known.items()}
    while after := next_commit(past, found):
        for name in after.operators:
            found.setdefault(name, {})[past.labels[after.place][name]] = f"{after.place}"
        yield after


def unknown_places(past: PastCommits, known: Known) -> set[int]:
    """The first commits of the classes that are left: no fewer than will be measured."""
    return {
        place
        for name in past.operators
        for place in past.classes(name)
        if past.labels[place][name] not in known.get(name, {})
    }


LAST, FIRST, DIFFERENT, EQUAL = 3, 2, 1, 0
"""How much a gap is wanted: an end of the history; ends with different code; ends with equal code."""


def _gap(past: PastCommits, operator: str, known: Mapping[str, str]) -> tuple[int, int, int] | None:
    """(how much it is wanted, its classes, the place in its middle) of an operator's gap that comes first."""
    places = past.classes(operator)
    left = [n for n, place in enumerate(places) if past.labels[place][operator] not in known]
    if not left:
        return None
    if left[-1] == len(places) - 1:
        return LAST, len(left), places[-1]
    if left[0] == 0:
        return FIRST, len(left), places[0]
    gaps = [[n for _, n in run] for _, run in itertools.groupby(enumerate(left), key=lambda one: one[1] - one[0])]
    ranked = [(_urgency(past, operator, places[gap[0]], known), len(gap), places[gap[len(gap) // 2]]) for gap in gaps]
    return max(ranked)


def _urgency(past: PastCommits, operator: str, place: int, known: Mapping[str, str]) -> int:
    """By what the nearest measured commits before and after a place launched."""
    there = [(n, code) for n in past.classes(operator) if (code := known.get(past.labels[n][operator]))]
    before = [code for n, code in there if n < place]
    after = [code for n, code in there if n > place]
    return DIFFERENT if not before or not after or before[-1] != after[0] else EQUAL


def launched(trial: Trial) -> str:
    """Digest of the code that a trial launched with its knobs; of the operator's files where that is not known."""
    declared = trial.declaration()
    baselines = declared.baselines if declared else ()
    rows = [
        [case, backend, arm.code_hash or trial.checkouts["head"].kernel_digest, sorted(arm.knobs.items())]
        for case, _, backend, arm in trial.arms()
        if backend not in baselines and arm.ok
    ]
    return hashlib.sha256(json.dumps(rows, default=str).encode()).hexdigest()[:16] if rows else ""


Measuring = Callable[[LocalCheckout, MeasurePlan, float | None], ChildExit]
"""Measures a checkout by a plan within so many seconds."""


@dataclasses.dataclass
class PastRun:
    """A range that is measured into a file.  The file is the memory: the same command goes on with it.

    steps: most commits; minutes: of wall time; None: all of them.  results: records, of which those of this machine and
    environment count as well; which those are is known from the first trial of the file.
    """

    repository: Repository
    past: PastCommits
    plan: MeasurePlan
    out: Path
    console: Console
    steps: int | None = None
    minutes: float | None = None
    results: Path | None = None

    def __post_init__(self) -> None:
        self._log = Followed(self.out)
        self._place = {one.hash: place for place, one in enumerate(self.past.commits)}
        self.failed: dict[tuple[int, str], str] = {}
        self._steps_here = 0
        self._recorded: dict[tuple[Path, str], list[Trial]] = {}
        self._failed_before = unmeasured.read(unmeasured.beside(self.out))

    @property
    def trials(self) -> list[Trial]:
        """Those of the file that are of the range."""
        return [one for one in self._log.read().trials if self._has(one)]

    def _has(self, trial: Trial) -> bool:
        """Whether its head is a commit of the range."""
        return "head" in trial.checkouts and trial.checkouts["head"].commit in self._place

    def measured(self) -> dict[str, dict[int, list[Trial]]]:
        """The trials of each operator by the place of their commit."""
        found: dict[str, dict[int, list[Trial]]] = {}
        for trial in (*self.trials, *self.recorded()):
            place = self._place[trial.checkouts["head"].commit or ""]
            for name in {trial.operator, EVERY} & self.past.labels[place].keys():
                found.setdefault(name, {}).setdefault(place, []).append(trial)
        return found

    def recorded(self) -> Sequence[Trial]:
        """Trials of the range in the records of this machine and environment, with all that the plan would measure."""
        plan, own = self.plan, next((one for one in self._log.read().trials if "head" in one.checkouts), None)
        if not own or not self.results or plan.cases or plan.backends or plan.knobs:
            return ()
        where = self.results / own.machine.name, own.checkouts["head"].environment.name
        if where not in self._recorded:
            folder, env = where
            places = (Place(folder.name, commit.hash, env) for commit in self.past.commits)
            trials = (trial for place in places for trial in store.trials(self.results, place))
            self._recorded[where] = [one for one in trials if self._has(one) and _is_whole(one, plan.tier)]
        known = {one.id for one in self.trials}
        return [one for one in self._recorded[where] if one.id not in known]

    def known(self) -> dict[str, dict[str, str]]:
        """What is measured already (see Known), with what cannot be."""
        found: dict[str, dict[str, str]] = {}
        for name, places in self.measured().items():
            for place, trials in places.items():
                if len({one.id for one in trials}) >= self.plan.trials:
                    found.setdefault(name, {})[self.past.labels[place][name]] = launched(trials[0])
        for place, name in self.failed:
            found.setdefault(name, {}).setdefault(self.past.labels[place][name], "")
        return found

    def run(self, measuring: Measuring) -> None:
        """Measure until everything is, or the budget is spent.  Raises MeasureError, KeyboardInterrupt."""
        begun, longest = time.monotonic(), 0.0
        while (after := next_commit(self.past, self.known())) and not self._enough():
            spent = time.monotonic() - begun
            left = 60 * self.minutes - spent if self.minutes else None
            if left is not None and left < longest:
                break
            self._say(after, spent)
            self._one(after, measuring, left)
            self._steps_here += 1
            longest = max(longest, time.monotonic() - begun - spent)

    def take(self, recording: Path) -> None:
        """Take the trials of the range from a recording into the file, each once, and what failed beside them."""
        before = {one.id for one in self.trials}
        self._failed_before += unmeasured.read(unmeasured.beside(recording))
        self.out.parent.mkdir(parents=True, exist_ok=True)
        with self.out.open("a", encoding="utf-8") as stream:
            for one in read(recording).trials:
                if self._has(one) and one.id not in before:
                    stream.write(f"{one.text}\n")

    def _enough(self) -> bool:
        return self.steps is not None and len({one.checkouts["head"].commit for one in self.trials}) >= self.steps

    def _say(self, after: NextCommit, spent_s: float) -> None:
        commit, measured = self.past.commits[after.place], len({one.checkouts["head"].commit for one in self.trials})
        left = len(unknown_places(self.past, self.known()))
        left = min(left, self.steps - measured) if self.steps else left
        here = self._steps_here
        time_left = f", about {spent_s / here * left:.0f} s left" if here else ""
        names = ", ".join(filter(None, after.operators)) or "all operators"
        self.console.print(
            f"{spent_s:.0f} s, {measured} of {measured + left} commits{time_left}; now {commit.short} "
            f"{commit.subject:.60}: {names}",
            markup=False, highlight=False, soft_wrap=True,
        )  # fmt: skip

    def _one(self, after: NextCommit, measuring: Measuring, left_s: float | None) -> None:
        """Measure a commit; what leaves no trial failed.  The trials of an interrupted call count."""
        commit = self.past.commits[after.place]
        own = [one for one in self.trials if one.checkouts["head"].commit == commit.hash]
        numbers = {name: 1 + max((t.number for t in own if t.operator == name), default=-1) for name in after.operators}
        for first, names in itertools.groupby(sorted(numbers, key=numbers.__getitem__), key=numbers.__getitem__):
            kernels, count = tuple(filter(None, names)) or tuple(self.plan.kernels), max(self.plan.trials - first, 1)
            part = dataclasses.replace(self.plan, kernels=kernels, first_trial=first, trials=count)
            with self.repository.borrowed(commit) as folder:
                ended = measuring(LocalCheckout("head", folder, commit), part, left_s)
            if ended.late:
                return
            there = self.measured()
            for name in (one for one in after.operators if numbers[one] == first):
                if len(there.get(name, {}).get(after.place, ())) < self.plan.trials:
                    self.failed[after.place, name] = ended.last if ended.code == USAGE else f"no trial: {ended.how}"
        if len(self.failed) >= FEWEST_FAILURES and not self.trials:
            raise MeasureError(f"nothing can be measured here: {next(iter(self.failed.values()))}")
        if self.trials and self.failed:
            unmeasured.write(unmeasured.beside(self.out), (row for row in self.unmeasured() if row.why))

    def unmeasured(self) -> list[Unmeasured]:
        """What commits without a measurement of their own share, or why they have none."""
        there = self.measured()
        sources: dict[tuple[str, str], str] = {}
        for name, places in there.items():
            for place in sorted(places, reverse=True):
                sources[name, self.past.labels[place][name]] = self.past.commits[place].hash
        failed = {
            (self._place[row.commit], name): row.why
            for row in self._failed_before
            if row.commit in self._place
            for name in row.kernels
            if name in self.past.labels[self._place[row.commit]]
        } | self.failed
        reasons = {(name, self.past.labels[place][name]): why for (place, name), why in failed.items()}
        groups: dict[tuple[int, str, str], list[str]] = {}
        for place, labels in enumerate(self.past.labels):
            for name, label in labels.items():
                source, why = sources.get((name, label), ""), reasons.get((name, label), "")
                if place not in there.get(name, {}) and (source or why):
                    groups.setdefault((place, source, "" if source else why), []).append(name)
        return [
            Unmeasured(self.past.commits[place].hash, self.past.commits[place].date_ms, tuple(names), source, why)
            for (place, source, why), names in groups.items()
        ]


def _is_whole(trial: Trial, tier: str) -> bool:
    """Whether a recorded trial has all cases that a run of this tier has here, of head as it was committed."""
    head = trial.checkouts["head"]
    if head.dirty or not head.declaration:
        return False
    cases = head.declaration.cases.items()
    tiers = TIERS[: TIERS.index(tier) + 1]
    wanted = {name for name, case in cases if case.tier in tiers and case.world <= trial.machine.count}
    return wanted <= trial.cases.keys()


def measured_here(out: Path, console: Console, by: OneProgram) -> Measuring:
    """Measuring on this machine, all commits by one program."""

    def measuring(checkout: LocalCheckout, plan: MeasurePlan, left_s: float | None) -> ChildExit:
        out.parent.mkdir(parents=True, exist_ok=True)
        ended = by.follow(harness.command([checkout], plan, out), console, limit_s=left_s)
        if ended.code == INTERRUPTED and not ended.late:
            raise KeyboardInterrupt
        return ended

    return measuring
