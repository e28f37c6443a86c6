"""Why cases are slower: experiments for every group of cases with the same suspects, within a limit of time.

The one entry for every verb: `explain(...)` of a judgement of base and head, whatever led to it.
"""

from __future__ import annotations

import dataclasses
import io
import math
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, INTERRUPTED, MEASURED, MeasurePlan, measure
from ci.isa.compiled import TARGETS, CompileError, IsaError, TreeCompiler, Wanted
from ci.isa.judge import compare
from ci.isa.rules import IsaPolicy
from ci.isa.text import lines
from ci.judging.judge import judge
from ci.judging.live import Interrupted, MeasureAlone, of_head
from ci.judging.policy import Policy
from ci.judging.states import OUTCOMES
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records.ledger import Explanation, TriedCause
from ci.report.words import interval, percent
from ci.trials.comparisons import Status, comparisons
from ci.trials.file import Followed
from ci.trials.trial import Trial
from ci.why import suspects
from ci.why.search import CauseAnswer, CauseFinding, Search, Slowdown, Suspect, SuspectKind, classified, parts_first
from ci.why.suspects import Sides, digest
from kernels import project

# Head with something put back, measured against base in lock-step: how much of the slow-down is left.


LOOKS = (3, 6, 12)
"""Trials of one experiment: the fewest that the policy judges, and twice as many each time these leave it open, up to
the policy's own budget.  Where the trials say which code is launched, one comes first: base's own code needs no more.
"""


@dataclasses.dataclass(frozen=True)
class Question:
    """What is to be explained: a backend in one case of an operator that is so much slower.

    plan: how it was measured.  known_code: the trials say which code objects are launched.
    """

    operator: str
    backend: str
    case: str
    whole: Slowdown
    plan: MeasurePlan
    known_code: bool = False

    @property
    def name(self) -> str:
        """operator/backend/case."""
        return f"{self.operator}/{self.backend}/{self.case}"


@dataclasses.dataclass
class Experiments:
    """Makes and measures trees between base and head.  until: time.monotonic() at which no experiment begins any more.

    folder: where trees and trials go; what lies there of an interrupted run is used.  say: what is done now, for a bar.
    """

    sides: Sides
    policy: Policy
    folder: Path
    until: float
    measuring: MeasureAlone
    say: Callable[[str], None] = lambda said: None
    trials: int = 0
    experiments: int = 0

    def slowdown(self, question: Question, floor: float, put: Sequence[Suspect]) -> Slowdown | None:
        """How much slower than base head is with these put back; None when the time is over."""
        if time.monotonic() >= self.until:
            return None
        self.experiments += 1
        self.say(" + ".join(one.name for one in put))
        tree = self.sides.between(put)
        plan = planned(question, put)
        out = self.folder / f"{digest(question.name, tree.path.name, repr(plan))}.jsonl"
        left = Slowdown.failed("it was not measured")
        for target in (1, *LOOKS) if question.known_code else LOOKS:
            left = self._looked(question, tree, plan, out, target)
            unclear = classified(question.whole, question.whole, left, floor) is CauseAnswer.UNCLEAR
            if left.base_code or not unclear or time.monotonic() >= self.until:
                break
        return left

    def _looked(self, question: Question, tree: LocalCheckout, plan: MeasurePlan, out: Path, target: int) -> Slowdown:
        """What is left after so many trials; those that the file has already count."""
        missing = target - len(Followed(out).read().trials)
        said = self._measured(tree, dataclasses.replace(plan, trials=missing), out) if missing > 0 else ""
        trials = Followed(out).read().trials
        return of_trials(trials, question, self.policy) if trials else Slowdown.failed(said)

    def _measured(self, tree: LocalCheckout, plan: MeasurePlan, out: Path) -> str:
        """Measure; the last that the measuring program said, which is why there is no trial if there is none."""
        text = io.StringIO()
        code = self.measuring((self.sides.base, tree), plan, out, Console(file=text, width=400))
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; what was measured to explain the slow-down is in {self.folder}")
        self.trials += plan.trials if code in (MEASURED, FAULTS) else 0
        return (text.getvalue().strip().splitlines() or [""])[-1]


def planned(question: Question, put: Sequence[Suspect]) -> MeasurePlan:
    """The plan of the comparison, for one backend of one case, with head's knobs and Python as they are put back."""
    pythons = dict(question.plan.pythons)
    if any(one.kind is SuspectKind.ENVIRONMENT for one in put):
        pythons.pop("head", None)
        pythons |= {"head": pythons["base"]} if "base" in pythons else {}
    back = [f"head.{one.setting}" for one in put if one.kind is SuspectKind.KNOB]
    given = map(of_head, question.plan.knobs)
    return dataclasses.replace(
        question.plan,
        tier="sweep",
        kernels=(question.operator,),
        cases=(f"{question.operator}/{question.case}",),
        backends=(question.backend,),
        knobs=tuple({one.partition("=")[0]: one for one in [*given, *back]}.values()),
        pythons=pythons,
        first_trial=0,
    )


def of_trials(trials: Sequence[Trial], question: Question, policy: Policy) -> Slowdown:
    """What a file of an experiment says of its one case."""
    found = [one for one in comparisons(trials) if one.case == question.name]
    if not found:
        return Slowdown.failed("neither side can run it")
    if found[0].head_status is not Status.OK:
        return Slowdown.failed(f"{OUTCOMES[found[0].head_status]}: {found[0].head_why}")
    said, same = judge(found, policy).cases[0], found[0].same_code
    if said.ratio and said.ci_low and said.ci_high:
        left = Slowdown.of_ratio(said.ratio, said.ci_low, said.ci_high, said.trials)
        return dataclasses.replace(left, base_code=same)
    reach = 0.0 if same else math.inf
    return Slowdown(0.0, -reach, reach, len(trials), base_code=same)


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
    say: Callable[[str], None] = lambda said: None,
) -> tuple[Explanation, ...]:
    """The causes of every SLOWER of a judgement of (base, head), each shown by putting it back; () if none is.

    trials: those of the judgement.  folder: for the trees and trials of the experiments, which are no records; the
    same call with the same folder goes on where it was interrupted.
    Raises Interrupted, GitError, and benchmarks.trial_file.OutputError.
    """
    base, head = checkouts
    groups = slower(judgement, trials)
    bench = Experiments(Sides(base, head, folder), policy, folder, time.monotonic() + seconds, measuring, say)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        made = [explained(group, bench, plan) for group in groups[:MOST_GROUPS]]
        return (*made, *not_examined(judgement, made))
    finally:
        for tree in folder.glob("tree-*"):
            shutil.rmtree(tree, ignore_errors=True)


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


def explained(group: SlowGroup, bench: Experiments, plan: MeasurePlan) -> Explanation:
    """The causes of one group of cases."""
    begin, before = time.monotonic(), (bench.experiments, bench.trials)
    question = _question(group, plan)
    found = _searched(question, group, bench)
    return Explanation(
        tuple(case.case for case in group.cases),
        question.name,
        state(found),
        sentence(found),
        tuple(tried(found.findings)),
        machine_code(question, group.trial, bench.sides),
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


def _searched(question: Question, group: SlowGroup, bench: Experiments) -> Search:
    """The search among all suspects, and then among the parts of each file that explains something."""
    floor = math.log1p(bench.policy.settings(question.operator, group.trial.machine.kind).smallest_effect)
    other = "base" in question.plan.pythons or "head" in question.plan.pythons
    every = suspects.of_case(group.trial, question.case, question.backend, bench.sides, other)
    found = Search(question.whole, floor, lambda put: bench.slowdown(question, floor, put))
    found.run(every)
    found.findings = list(_with_parts(found, question, floor, bench))
    return found


def _with_parts(found: Search, question: Question, floor: float, bench: Experiments) -> Iterator[CauseFinding]:
    put: tuple[Suspect, ...] = ()
    for one in found.findings:
        if parts_first(one):
            one = dataclasses.replace(one, parts=_parts(one, put, question, floor, bench))
        put = (*put, *(one.suspects if one.answer.explains else ()))
        yield one


def _parts(
    finding: CauseFinding, put: tuple[Suspect, ...], question: Question, floor: float, bench: Experiments
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


# What the compiler emits differently for the case that was examined.


CACHE = ".ridgeline/isa"

SAME_CODE = "the machine code is the same: what differs is the launch (grid, arguments) or work on the host"


def machine_code(question: Question, trial: Trial, sides: Sides) -> tuple[str, ...]:
    """A sentence on each configuration that differs; () for a machine that nothing is compiled for, and where other
    knobs or Pythons than the declared ones were measured."""
    arch = trial.machine.arch
    if arch not in TARGETS or question.plan.knobs or question.plan.pythons:
        return ()
    wanted = Wanted([arch], "sweep", [question.operator], [question.case], [question.backend], lenient=True)
    compiler = TreeCompiler(project.place(CACHE), Console(file=io.StringIO()))
    try:
        base, head = (compiler.compile(side.path, wanted) for side in (sides.base, sides.head))
    except (CompileError, IsaError) as error:
        return (f"the machine code could not be compared: {error}",)
    _, *differing = lines(compare(base, head, IsaPolicy()))
    return tuple(differing) or (SAME_CODE,)
