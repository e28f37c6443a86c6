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
from ci.judging.types import OUTCOMES, CaseVerdict, Judgement, Verdict
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


@dataclasses.dataclass
class CaseExperiments:
    """Makes and measures trees between base and head, for a case that is slower.

    verdict: by how much it is.  trial: the newest that has its times.  plan: how that was measured.  until:
    time.monotonic() at which no experiment begins any more.  folder: where trees and trials go; what lies there of an
    interrupted run is used.  report: is told what is measured now.
    """

    verdict: CaseVerdict
    trial: Trial
    sides: Sides
    plan: MeasurePlan
    policy: Policy
    folder: Path
    until: float
    measuring: MeasureAlone
    report: Callable[[str], None]
    trials: int = 0
    experiments: int = 0

    def __post_init__(self) -> None:
        slower = self.verdict
        self.case, trials = _short(slower), slower.trials
        self.slowdown = Slowdown.of_ratio(slower.ratio or 1.0, slower.ci_low or 1.0, slower.ci_high or 1.0, trials)
        settings = self.policy.settings(slower.kernel, self.trial.machine.kind)
        self.smallest = math.log1p(settings.smallest_effect)

    def slowdown_without(self, suspects: Sequence[Suspect]) -> Slowdown | None:
        """How much slower than base head is with these put back; None when the time is over."""
        if time.monotonic() >= self.until:
            return None
        self.experiments += 1
        self.report(" + ".join(suspect.name for suspect in suspects))
        tree = self.sides.between(suspects)
        plan = self._plan_without(suspects)
        out = self.folder / f"{digest(self.verdict.case, tree.path.name, repr(plan))}.jsonl"
        left = Slowdown.failed("it was not measured")
        head = self.trial.cases[self.case].arms["head", self.verdict.backend]
        for trials in LOOKS if head.code_hash is None else (1, *LOOKS):
            left = self._slowdown_after(trials, tree, plan, out)
            unclear = classified(self.slowdown, self.slowdown, left, self.smallest) is CauseAnswer.UNCLEAR
            if left.base_code or not unclear or time.monotonic() >= self.until:
                break
        return left

    def _plan_without(self, suspects: Sequence[Suspect]) -> MeasurePlan:
        """The plan of the comparison, for this case alone, with head's knobs and Python as they are put back."""
        pythons = dict(self.plan.pythons)
        if any(suspect.kind is SuspectKind.ENVIRONMENT for suspect in suspects):
            pythons.pop("head", None)
            pythons |= {"head": pythons["base"]} if "base" in pythons else {}
        put_back = [f"head.{suspect.setting}" for suspect in suspects if suspect.kind is SuspectKind.KNOB]
        knobs = {knob.partition("=")[0]: knob for knob in [*map(of_head, self.plan.knobs), *put_back]}
        return dataclasses.replace(
            self.plan,
            tier="sweep",
            kernels=(self.verdict.kernel,),
            cases=(f"{self.verdict.kernel}/{self.case}",),
            backends=(self.verdict.backend,),
            knobs=tuple(knobs.values()),
            pythons=pythons,
            first_trial=0,
        )

    def _slowdown_after(self, count: int, tree: LocalCheckout, plan: MeasurePlan, out: Path) -> Slowdown:
        """What is left after so many trials; those that the file has already count."""
        missing = count - len(Followed(out).read().trials)
        last_line = self._measure(tree, dataclasses.replace(plan, trials=missing), out) if missing > 0 else ""
        trials = Followed(out).read().trials
        return self._slowdown_of(trials) if trials else Slowdown.failed(last_line)

    def _measure(self, tree: LocalCheckout, plan: MeasurePlan, out: Path) -> str:
        """Measure; the last line of the measuring program, which says why there is no trial if there is none."""
        text = io.StringIO()
        code = self.measuring((self.sides.base, tree), plan, out, Console(file=text, width=400))
        if code == INTERRUPTED:
            raise Interrupted(f"interrupted; what was measured to explain the slow-down is in {self.folder}")
        self.trials += plan.trials if code in (MEASURED, FAULTS) else 0
        return (text.getvalue().strip().splitlines() or [""])[-1]

    def _slowdown_of(self, trials: Sequence[Trial]) -> Slowdown:
        """What the trials of a tree say of the case."""
        compared = [comparison for comparison in comparisons(trials) if comparison.case == self.verdict.case]
        if not compared:
            return Slowdown.failed("neither side can run it")
        status, same_code = compared[0].head_status, compared[0].same_code
        if status is not Status.OK:
            return Slowdown.failed(f"{OUTCOMES[status]}: {compared[0].head_why}")
        verdict = judge(compared, self.policy).cases[0]
        if verdict.ratio and verdict.ci_low and verdict.ci_high:
            left = Slowdown.of_ratio(verdict.ratio, verdict.ci_low, verdict.ci_high, verdict.trials)
            return dataclasses.replace(left, base_code=same_code)
        reach = 0.0 if same_code else math.inf
        return Slowdown(0.0, -reach, reach, len(trials), base_code=same_code)


# What was found, as sentences and as the values that a report keeps.


def state(search: Search) -> str:
    """proven, partly or not found."""
    if search.explained:
        return "proven"
    return "partly" if any(finding.answer.explains for finding in search.findings) else "not found"


def sentence(search: Search) -> str:
    """The causes, and how much of the slow-down is left without them."""
    causes = [finding for finding in search.findings if finding.answer.explains]
    whole = percent(math.exp(search.whole.log_ratio))
    if not causes:
        return f"{whole} is not explained: {_unexplained(search)}"
    left = _slowdown_text(causes[-1].left)
    if len(causes) == 1 and search.explained:
        it = "them" if len(causes[0].suspects) > 1 else "it"
        return f"{_cause_text(causes[0])}: putting {it} back leaves {left} of {whole}: proven"
    shares = ["a part" if cause.share is None else f"{100 * cause.share:.0f} %" for cause in causes]
    each = "; ".join(f"{_cause_text(cause)} explains {share}" for cause, share in zip(causes, shares, strict=True))
    return f"{each}: without them {left} of {whole} is left{': proven' if search.explained else ''}"


def _unexplained(search: Search) -> str:
    if search.stopped:
        return "the experiments ended before a cause was found"
    if not search.findings:
        return "nothing that differs can be put back"
    tried = ", ".join(" + ".join(suspect.name for suspect in finding.suspects) for finding in search.findings)
    return f"putting back does not help, or does not build alone ({tried})"


def _cause_text(finding: CauseFinding) -> str:
    """The suspects of a finding; of a file with one part that explains as much, that part."""
    parts = [suspect for part in finding.parts if part.answer.explains for suspect in part.suspects]
    named = [
        " ".join(filter(None, (str(one.kind) if one.kind is SuspectKind.KNOB else "", one.name, one.change)))
        for one in parts or finding.suspects
    ]
    return " and ".join(named) + (" (only together)" if not parts and len(finding.suspects) > 1 else "")


def _slowdown_text(left: Slowdown) -> str:
    if left.base_code and not left.low < left.high:
        return "base's own code"
    change = f"{percent(math.exp(left.log_ratio))} {interval(math.exp(left.low), math.exp(left.high))}"
    return change + (", base's own code," if left.base_code else "")


def tried_causes(findings: Sequence[CauseFinding], part_of: str = "") -> Iterator[TriedCause]:
    """Every finding, and under a file its parts."""
    for finding in findings:
        left, (kind, *_) = finding.left, [suspect.kind for suspect in finding.suspects]
        name, change = (
            " + ".join(filter(None, texts))
            for texts in zip(*((suspect.name, suspect.change) for suspect in finding.suspects), strict=True)
        )
        has_times = not left.broken and math.isfinite(left.low)
        logs = (left.log_ratio, left.low, left.high)
        ratio, interval_low, interval_high = map(math.exp, logs) if has_times else (None, None, None)
        share = None if finding.answer is CauseAnswer.UNCLEAR else finding.share
        answer = str(finding.answer)
        yield TriedCause(
            str(kind),
            name,
            change,
            answer,
            share,
            ratio,
            interval_low,
            interval_high,
            left.trials,
            left.broken,
            part_of,
        )
        yield from tried_causes(finding.parts, name)


MOST_GROUPS = 4
"""Groups of cases that are examined: a commit has one or two causes, and the largest slow-downs come first."""

ONLY = f"only the {MOST_GROUPS} largest slow-downs whose median is slower beyond doubt are; --case names others"

DEFAULT_S = 300.0
"""Seconds for all experiments: an experiment is three trials of one arm on each side, 10 to 30 s on a GPU (2026-11)."""


Slower = tuple[CaseVerdict, Trial]
"""A slower case, and the newest trial that has times of it on both sides."""


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
    report: Callable[[str], None] = lambda suspects: None,
) -> tuple[Explanation, ...]:
    """The causes of every SLOWER of a judgement of (base, head), each shown by putting it back; () if none is.

    trials: those of the judgement.  folder: for the trees and trials of the experiments, which are no records; the
    same call with the same folder goes on where it was interrupted.
    Raises Interrupted, GitError, and benchmarks.trial_file.OutputError.
    """
    base, head = checkouts
    sides, until = Sides(base, head, folder), time.monotonic() + seconds
    folder.mkdir(parents=True, exist_ok=True)
    explanations = []
    try:
        for group in slower_groups(judgement, trials)[:MOST_GROUPS]:
            case, trial = worst_of(group)
            experiments = CaseExperiments(case, trial, sides, plan, policy, folder, until, measuring, report)
            explanations.append(explanation([slower.case for slower, _ in group], experiments))
        return (*explanations, *not_examined(judgement, explanations))
    finally:
        for tree in folder.glob("tree-*"):
            shutil.rmtree(tree, ignore_errors=True)


def slower_groups(judgement: Judgement, trials: Sequence[Trial]) -> list[list[Slower]]:
    """The slower cases with the same operator, backend and changed knobs together, the largest slow-down first."""
    groups: dict[tuple[str, ...], list[Slower]] = {}
    for case in judgement.of(Verdict.SLOWER):
        trial = next((trial for trial in reversed(trials) if _has_both_times(trial, case)), None)
        if trial and case.ci_low and case.ci_low > 1:
            arms = trial.cases[_short(case)].arms
            key = (case.kernel, case.backend, *suspects.signature(arms, case.backend))
            groups.setdefault(key, []).append((case, trial))
    return sorted(groups.values(), key=lambda group: -(worst_of(group)[0].ratio or 0.0))


def worst_of(group: Sequence[Slower]) -> Slower:
    """The case whose slow-down stands out most from what it might be by chance."""
    return max(group, key=lambda slower: slower[0].ci_low or 0.0)


def not_examined(judgement: Judgement, known: Sequence[Explanation]) -> Iterator[Explanation]:
    """The slower cases that no explanation is about, with the reason."""
    explained = {name for explanation in known for name in explanation.cases}
    if left := tuple(case.case for case in judgement.of(Verdict.SLOWER) if case.case not in explained):
        yield Explanation(left, left[0], NOT_EXAMINED, f"not examined: {ONLY}")


NOT_EXAMINED = "not examined"


def _has_both_times(trial: Trial, case: CaseVerdict) -> bool:
    result = trial.cases.get(_short(case)) if trial.operator == case.kernel else None
    arms = [result.arms.get((role, case.backend)) for role in ("base", "head")] if result else []
    return bool(arms) and all(arm and arm.ok for arm in arms)


def _short(case: CaseVerdict) -> str:
    return case.case.split("/", 2)[2]


def explanation(cases: Sequence[str], experiments: CaseExperiments) -> Explanation:
    """The causes of cases with the same suspects."""
    begin = time.monotonic()
    search = _search(experiments)
    return Explanation(
        tuple(cases),
        experiments.verdict.case,
        state(search),
        sentence(search),
        tuple(tried_causes(search.findings)),
        machine_code(experiments),
        experiments.experiments,
        experiments.trials,
        round(time.monotonic() - begin, 1),
    )


def _search(experiments: CaseExperiments) -> Search:
    """The search among all suspects, and then among the parts of each file that explains something."""
    other_python = bool(experiments.plan.pythons.keys() & {"base", "head"})
    backend = experiments.verdict.backend
    every = suspects.of_case(experiments.trial, experiments.case, backend, experiments.sides, other_python)
    search = Search(experiments.slowdown, experiments.smallest, experiments.slowdown_without)
    search.run(every)
    put_back, findings = tuple[Suspect, ...](), []
    for finding in search.findings:
        if parts_first(finding):
            finding = dataclasses.replace(finding, parts=_parts(finding, put_back, experiments))
        put_back = (*put_back, *(finding.suspects if finding.answer.explains else ()))
        findings.append(finding)
    search.findings = findings
    return search


def _parts(
    finding: CauseFinding, put_back: tuple[Suspect, ...], experiments: CaseExperiments
) -> tuple[CauseFinding, ...]:
    """Which parts of a file explain what the file explains.  put_back: beside the file, when it was."""
    parts = suspects.parts_of(finding.suspects[0].path, experiments.sides)
    if len(parts) < 2:
        return tuple(dataclasses.replace(finding, suspects=(part,)) for part in parts)
    share = 1.0 if finding.share is None else finding.share
    slowdown = experiments.slowdown.changed(lambda value: share * value)
    search = Search(
        *(slowdown, experiments.smallest),
        lambda more: experiments.slowdown_without((*put_back, *more)),
        finding.left.log_ratio,
    )
    search.run(parts)
    return tuple(search.findings)


# What the compiler emits differently for the case that was examined.


CACHE = ".ridgeline/isa"

SAME_CODE = "the machine code is the same: what differs is the launch (grid, arguments) or work on the host"


def machine_code(experiments: CaseExperiments) -> tuple[str, ...]:
    """A sentence on each configuration that differs; () for a machine that nothing is compiled for, and where other
    knobs or Pythons than the declared ones were measured."""
    arch, plan, verdict = experiments.trial.machine.arch, experiments.plan, experiments.verdict
    if arch not in TARGETS or plan.knobs or plan.pythons:
        return ()
    case = [verdict.kernel], [experiments.case], [verdict.backend]
    compiler = TreeCompiler(project.place(CACHE), Console(file=io.StringIO()))
    try:
        base, head = (
            compiler.compile(side.path, Wanted([arch], "sweep", *case, lenient=True))
            for side in (experiments.sides.base, experiments.sides.head)
        )
    except (CompileError, IsaError) as error:
        return (f"the machine code could not be compared: {error}",)
    _, *differing = lines(compare(base, head, IsaPolicy()))
    return tuple(differing) or (SAME_CODE,)
