"""Why cases are slower: experiments for every group of cases with the same suspects, within a limit of time.

The one entry for every verb: `explain(...)` of a judgement of base and head, whatever led to it.
"""

from __future__ import annotations

import dataclasses
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan, measure
from ci.judging.live import Measure, MeasureAlone, Outcome, compare, in_session
from ci.judging.policy import Policy
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import Explanation, TriedCause
from ci.report.words import interval, percent
from ci.trials.comparisons import ExperimentLine
from ci.trials.file import Followed
from ci.trials.trial import Trial
from ci.why import search as searching
from ci.why import suspects
from ci.why.experiments import BothSides, Experiments, Question, Sides, keys, of_trials
from ci.why.search import CauseAnswer, CauseFinding, Search, Slowdown, Suspect, SuspectKind

# What was found, as sentences and as the values that a report keeps.


def state(search: Search) -> str:
    """proven, partly or not found."""
    if search.explained:
        return "proven"
    return "partly" if any(one.answer.explains for one in search.findings) else "not found"


def sentence(search: Search) -> str:
    """The causes, and how much of the slow-down is left without them."""
    causes = [one for one in search.findings if one.answer.explains]
    whole = percent(math.exp(search.whole.log_ratio))
    if not causes:
        return f"{whole} is not explained: {_unexplained(search)}"
    if len(causes) == 1 and search.explained:
        it = "them" if len(causes[0].suspects) > 1 else "it"
        return f"{_named(causes[0])}: putting {it} back leaves {_left(causes[0].left)} of {whole}: proven"
    each = "; ".join(f"{_named(one)} explains {_share(one)}" for one in causes)
    return f"{each}: without them {_left(causes[-1].left)} of {whole} is left" + (
        ": proven" if search.explained else ""
    )


def _unexplained(search: Search) -> str:
    if search.stopped:
        return "the experiments ended before a cause was found"
    if not search.findings:
        return "nothing that differs can be put back"
    tried = ", ".join(" + ".join(s.name for s in one.suspects) for one in search.findings)
    return f"putting back does not help, or does not build alone ({tried})"


def _named(finding: CauseFinding) -> str:
    """The suspects of a finding; of a file with one part that explains as much, that part."""
    parts = [part for part in finding.parts if part.answer.explains]
    named = [_suspect(one) for part in parts for one in part.suspects] or [_suspect(one) for one in finding.suspects]
    return " and ".join(named) + (" (only together)" if not parts and len(finding.suspects) > 1 else "")


def _suspect(one: Suspect) -> str:
    change = f" {one.change}" if one.change else ""
    return f"{one.kind} {one.name}{change}" if one.kind is SuspectKind.KNOB else f"{one.name}{change}"


def _share(finding: CauseFinding) -> str:
    return "a part" if finding.share is None else f"{100 * finding.share:.0f} %"


def _left(left: Slowdown) -> str:
    if left.base_code and not left.low < left.high:
        return "base's own code"
    change = f"{percent(math.exp(left.log_ratio))} {interval(math.exp(left.low), math.exp(left.high))}"
    return change + (", base's own code," if left.base_code else "")


def tried(findings: Sequence[CauseFinding], part_of: str = "") -> Iterator[TriedCause]:
    """Every finding, and under a file its parts."""
    for one in findings:
        name, change = (
            " + ".join(filter(None, texts)) for texts in zip(*((s.name, s.change) for s in one.suspects), strict=True)
        )
        seen = not one.left.broken and math.isfinite(one.left.low)
        numbers = (one.left.log_ratio, one.left.low, one.left.high)
        ratio, low, high = map(math.exp, numbers) if seen else (None, None, None)
        share = None if one.share is None or one.answer is CauseAnswer.UNCLEAR else one.share
        kind = str(one.suspects[0].kind)
        why = one.left.broken
        yield TriedCause(kind, name, change, str(one.answer), share, ratio, low, high, one.left.trials, why, part_of)
        yield from tried(one.parts, name)


MOST_GROUPS = 4
"""Groups of cases that are examined: a commit has one or two causes, and the largest slow-downs come first."""

LARGEST = f"the {MOST_GROUPS} largest slow-downs with different suspects come first; name these with --case"

DEFAULT_S = 300.0
"""Seconds for all experiments: an experiment is three trials of one arm on each side, 10 to 30 s on a GPU (2026-11)."""

Code = Callable[[Question, Trial], Sequence[str]]
"""What the compiler emits differently for the case of a question on the machine of a trial, a sentence each."""


@dataclasses.dataclass(frozen=True)
class SlowGroup:
    """Slower cases of one backend with the same suspects.  trial: the newest that has the worst of them."""

    cases: tuple[CaseVerdict, ...]
    trial: Trial

    @property
    def worst(self) -> CaseVerdict:
        """The case whose slow-down stands out most from what it might be by chance."""
        return max(self.cases, key=lambda one: one.ci_low or 0.0)


def explain(
    checkouts: Sequence[LocalCheckout],
    judgement: Judgement,
    trials: Sequence[Trial],
    plan: MeasurePlan,
    policy: Policy,
    folder: Path,
    *,
    seconds: float = DEFAULT_S,
    measuring: MeasureAlone = measure,
    code: Code = lambda question, trial: (),
    say: Callable[[str], None] = lambda said: None,
    log: Path | None = None,
) -> tuple[Explanation, ...]:
    """The causes of every SLOWER of a judgement of (base, head), each shown by putting it back; () if none is.

    trials: those of the judgement.  folder: for the trees and trials of the experiments, which are no records; the
    same call with the same folder goes on where it was interrupted.  log: a trial file to which the experiments are
    added, for `explain_handed`.  Raises Interrupted, GitError, and benchmarks.trial_file.OutputError.
    """
    base, head = checkouts
    groups = slower(judgement, trials)
    until, followed = time.monotonic() + seconds, Followed(log) if log else None
    bench = Experiments(Sides(base, head, folder), policy, folder, until, measuring, say, log=followed)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        made = [explained(group, bench, plan, code) for group in groups[:MOST_GROUPS]]
        return (*made, *not_examined(judgement, made))
    finally:
        for tree in folder.glob("tree-*"):
            shutil.rmtree(tree, ignore_errors=True)


def explain_pair(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    policy: Policy,
    kind: str,
    folder: Path,
    console: Console,
    *,
    comparing: Measure = in_session,
    seconds: float = DEFAULT_S,
    measuring: MeasureAlone = measure,
    code: Code = lambda question, trial: (),
) -> tuple[Outcome, tuple[Explanation, ...]]:
    """Compare two commits afresh, such as the last good and the first bad one of a search, and explain what is SLOWER.

    Raises as `ci.judging.live.compare` and `explain`.
    """
    found = compare(checkouts, plan, policy, kind, folder / "compared.jsonl", console, comparing)
    trials = found.file.trials
    asked = (checkouts, found.judgement, trials, plan, policy, folder)
    return found, explain(*asked, seconds=seconds, measuring=measuring, code=code)


def slower(judgement: Judgement, trials: Sequence[Trial]) -> list[SlowGroup]:
    """The slower cases with the same operator, backend and changed knobs together, the largest slow-down first."""
    groups: dict[tuple[str, ...], list[tuple[CaseVerdict, Trial]]] = {}
    for case in judgement.of(Verdict.SLOWER):
        trial = next((one for one in reversed(trials) if _both(one, case)), None)
        if trial and case.ci_low and case.ci_low > 1:
            arms = trial.cases[_short(case)].arms
            key = (case.kernel, case.backend, *suspects.signature(arms, case.backend))
            groups.setdefault(key, []).append((case, trial))
    made = []
    for members in groups.values():
        _, of_worst = max(members, key=lambda one: one[0].ci_low or 0.0)  # later trials hold only what was open then
        made.append(SlowGroup(tuple(case for case, _ in members), of_worst))
    return sorted(made, key=lambda one: -(one.worst.ratio or 0.0))


def not_examined(judgement: Judgement, made: Sequence[Explanation], more: str = LARGEST) -> Iterator[Explanation]:
    """The slower cases that no explanation is about, with the reason.  more: of those that could be examined."""
    known = {name for one in made for name in one.cases}
    left = [case for case in judgement.of(Verdict.SLOWER) if case.case not in known]
    moved = tuple(case.case for case in left if case.ci_low and case.ci_low > 1)
    still = tuple(case.case for case in left if case.case not in moved)
    if moved:
        yield Explanation(moved, moved[0], NOT_EXAMINED, f"not examined: {more}")
    if still:
        why = "its median is not slower beyond doubt, so there is nothing that could be put back to base's"
        yield Explanation(still, still[0], NOT_EXAMINED, f"not examined: {why}")


NOT_EXAMINED = "not examined"


def _both(trial: Trial, case: CaseVerdict) -> bool:
    """Whether a trial has times of a case on both sides."""
    result = trial.cases.get(_short(case)) if trial.operator == case.kernel else None
    arms = [result.arms.get((role, case.backend)) for role in ("base", "head")] if result else []
    return bool(arms) and all(arm and arm.ok for arm in arms)


def _short(case: CaseVerdict) -> str:
    return case.case.split("/", 2)[2]


class CauseBench(Protocol):
    """What answers how slow head is with something put back: by measuring it, or by what was measured elsewhere.

    experiments, trials: how many it took so far.
    """

    policy: Policy
    trials: int
    experiments: int

    @property
    def sides(self) -> BothSides:
        """Base and head."""

    def slowdown(self, question: Question, floor: float, put: Sequence[Suspect]) -> Slowdown | None:
        """How much slower than base head is with these put back; None where nothing tells."""

    def keep(self, line: ExperimentLine) -> None:
        """Take note of what belongs to a question beside its experiments."""


def explained(group: SlowGroup, bench: CauseBench, plan: MeasurePlan, code: Code) -> Explanation:
    """The causes of one group of cases."""
    begin, before = time.monotonic(), (bench.experiments, bench.trials)
    question = _question(group, plan)
    found = _searched(question, group, bench)
    differing = tuple(code(question, group.trial))
    bench.keep(ExperimentLine(question.name, (), (), differing))
    return Explanation(
        tuple(case.case for case in group.cases),
        question.name,
        state(found),
        sentence(found),
        tuple(tried(found.findings)),
        differing,
        bench.experiments - before[0],
        bench.trials - before[1],
        round(time.monotonic() - begin, 1),
    )


def _question(group: SlowGroup, plan: MeasurePlan) -> Question:
    worst = group.worst
    ratio, low, high = (value or 1.0 for value in (worst.ratio, worst.ci_low, worst.ci_high))
    whole = Slowdown.of_ratio(ratio, low, high, worst.trials)
    arm = group.trial.cases[_short(worst)].arms["head", worst.backend]
    return Question(worst.kernel, worst.backend, _short(worst), whole, plan, arm.code_hash is not None)


def _searched(question: Question, group: SlowGroup, bench: CauseBench) -> Search:
    """The search among all suspects, and then among the parts of each file that explains something."""
    floor = math.log1p(bench.policy.settings(question.operator, group.trial.machine.kind).smallest_effect)
    other = "base" in question.plan.pythons or "head" in question.plan.pythons
    every = suspects.of_case(group.trial, question.case, question.backend, bench.sides, other)
    found = Search(question.whole, floor, lambda put: bench.slowdown(question, floor, put))
    found.run(every)
    found.findings = list(_with_parts(found, question, floor, bench))
    return found


def _with_parts(found: Search, question: Question, floor: float, bench: CauseBench) -> Iterator[CauseFinding]:
    put: tuple[Suspect, ...] = ()
    for one in found.findings:
        if searching.parts_first(one):
            one = dataclasses.replace(one, parts=_parts(one, put, question, floor, bench))
        put = (*put, *(one.suspects if one.answer.explains else ()))
        yield one


def _parts(
    finding: CauseFinding, put: tuple[Suspect, ...], question: Question, floor: float, bench: CauseBench
) -> tuple[CauseFinding, ...]:
    """Which parts of a file explain what the file explains; put: what was put back when the file was."""
    parts = suspects.parts_of(finding.suspects[0].path, bench.sides)
    if len(parts) < 2:
        return tuple(dataclasses.replace(finding, suspects=(part,)) for part in parts)
    share = 1.0 if finding.share is None else finding.share
    whole = question.whole.changed(lambda value: share * value)
    level = finding.left.log_ratio
    within = Search(whole, floor, lambda some: bench.slowdown(question, floor, (*put, *some)), level)
    within.run(parts)
    return tuple(within.findings)


# Why cases are slower, told from experiments that somebody else measured: nothing is measured or checked out here.
#
# The search is the one of `ci.why.explain`: it asks for the same experiments in the same order, because what differs
# between the two commits is read from git here, and its answers are the trials that were handed over with the trial
# file. So what is believed of the host that measured is that the times are of the trees that it says, as it is of all
# trials.


Key = tuple[str, tuple[str, ...]]
"""The case of an experiment, and the sorted keys of what was put back."""


@dataclasses.dataclass
class HandedExperiments:
    """Answers from lines of a trial file; of several lines about the same, from the one with the most trials."""

    sides: BothSides
    policy: Policy
    lines: Mapping[Key, ExperimentLine]
    code: Mapping[str, tuple[str, ...]]
    trials: int = 0
    experiments: int = 0
    seconds: float = 0.0

    @classmethod
    def of(cls, sides: BothSides, policy: Policy, lines: Iterable[ExperimentLine]) -> HandedExperiments:
        """From the lines of a file."""
        ordered = sorted(lines, key=lambda one: len(one.trials))
        put = {(one.case, tuple(sorted(one.put))): one for one in ordered if one.put}
        return cls(sides, policy, put, {one.case: one.code for one in ordered if not one.put})

    def slowdown(self, question: Question, floor: float, put: Sequence[Suspect]) -> Slowdown | None:
        """What an experiment came to; None where it was not made."""
        line = self.lines.get((question.name, keys(put)))
        if line is None:
            return None
        self.experiments += 1
        self.trials += len(line.trials)
        self.seconds += sum(trial.duration_s for trial in line.trials)
        failed = Slowdown.failed("it could not be measured")
        return of_trials(line.trials, question, self.policy) if line.trials else failed

    def keep(self, line: ExperimentLine) -> None:
        """Nothing: it was kept where it was measured."""

    def known(self, case: str) -> bool:
        """Whether there is any experiment on a case."""
        return any(name == case for name, _ in self.lines)


def explain_handed(
    sides: BothSides, judgement: Judgement, trials: Sequence[Trial], lines: Sequence[ExperimentLine], policy: Policy
) -> tuple[Explanation, ...]:
    """The causes of every SLOWER of a judgement, from the experiments of its trial file; () if it has none.

    Raises GitError, and kernels.project.ProjectError, where a commit cannot be read.
    """
    if not any(line.put for line in lines):
        return ()
    bench = HandedExperiments.of(sides, policy, lines)
    groups = slower(judgement, trials)
    made = tuple(_of_group(group, bench) for group in groups if any(bench.known(case.case) for case in group.cases))
    return (*made, *not_examined(judgement, made, "no experiment on it was handed over"))


def _of_group(group: SlowGroup, bench: HandedExperiments) -> Explanation:
    """About the slowest case on which there are experiments."""
    examined = tuple(case for case in group.cases if bench.known(case.case))
    before = bench.seconds
    found = explained(
        dataclasses.replace(group, cases=examined),
        bench,
        MeasurePlan(),
        lambda question, trial: bench.code.get(question.name, ()),
    )
    names = tuple(case.case for case in group.cases)
    return dataclasses.replace(found, cases=names, seconds=round(bench.seconds - before, 1))
