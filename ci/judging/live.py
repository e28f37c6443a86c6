"""Live comparison: trials until every case has a verdict, confirmed where it is SLOWER, or the budget is spent."""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ci.git.repository import LocalCheckout
from ci.harness import INTERRUPTED, NOTHING, USAGE, MeasureError, MeasurePlan, again, measure
from ci.judging.judge import better_rounds, judge
from ci.judging.policy import PROGRAM, Policy
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.stats.sequential import Progress
from ci.trials.comparisons import Comparison, comparisons, undeclared
from ci.trials.file import Followed, TrialFile
from ci.trials.trial import Trial

# Judge a finished file as the live comparison would have: look by look, with the policy's looks and confirmation.
#
# Whoever measured stopped when its own judgement was content. Judging the whole file at once would give that stopping
# the full rate of false alarms at every look; so the looks are taken again here, by the policy of this tree, and a
# trial beyond what a look asks for is not used: measuring on until the answer pleases gains nothing.


def judged(trials: Sequence[Trial], policy: Policy, kind: str, warnings: Iterable[str] = ()) -> Judgement:
    """The judgement at the last look that the trials (in the order they were measured) allow.

    kind: of the machine, "gpu" or "cpu"; programs have looks of their own.  An open case whose trials ran out stays
    what it was at its last look.
    """
    of_programs = [trial for trial in trials if trial.by_program]
    if of_programs:
        rest = [trial for trial in trials if not trial.by_program]
        parts = [_judged_by_looks(of_programs, policy, kind + PROGRAM, warnings)]
        return functools.reduce(joined, [_judged_by_looks(rest, policy, kind, warnings), *parts] if rest else parts)
    return _judged_by_looks(trials, policy, kind, warnings)


def _judged_by_looks(trials: Sequence[Trial], policy: Policy, kind: str, warnings: Iterable[str]) -> Judgement:
    settings, remarks = policy.settings(machine_kind=kind), tuple(warnings)
    progress = Progress(settings.looks, settings.confirming)
    gone = undeclared(trials)
    recorded = Counter(f"{trial.operator}/{case}" for trial in trials for case in trial.cases)
    allowed = dict.fromkeys(recorded, 1)

    def judge_at(progress: Progress) -> Judgement:
        return judge([*comparisons(_first_results(trials, allowed), remarks), *gone], policy, progress)

    def recorded_beyond(cases: Sequence[str]) -> int:
        return max(recorded[operator_case(case)] for case in cases) - progress.budget

    while True:
        judgement, progress, looks = next_looks(progress, judge_at, recorded_beyond)
        more = {case for case in map(operator_case, looks) if recorded[case] > allowed.get(case, 0)}
        if not more:
            return judgement
        allowed |= dict.fromkeys(more, min(looks.values()))


def next_looks(
    progress: Progress, judge_at: Callable[[Progress], Judgement], extra_trials: Callable[[Sequence[str]], int]
) -> tuple[Judgement, Progress, dict[str, int]]:
    """(judgement, progress, how many trials each open case should have at its next look).

    extra_trials: of cases that look slower to the end, how many more they may have, once; at most 0 for none.
    """
    judgement = judge_at(progress)
    progress = progress.advanced({case.case: case.trials for case in judgement.of(Verdict.SLOWER)})
    looks = {case.case: look for case in judgement.cases if (look := _next_look(case, progress))}
    leaning = [case.case for case in judgement.cases if case.leans_slower]
    if not looks and leaning and (extra := extra_trials(leaning)) > 0:
        return next_looks(progress.extended(progress.budget + extra), judge_at, lambda cases: 0)
    return judgement, progress, looks


def _next_look(case: CaseVerdict, progress: Progress) -> int:
    """Trials this case should have next, 0 if it is settled or its budget is spent."""
    if not case.wants_more:
        return 0
    flagged = progress.flagged.get(case.case)
    if flagged is not None and case.trials < flagged + progress.confirming:
        return flagged + progress.confirming
    if not case.undecided:
        return 0
    return next((look for look in progress.looks if look > case.trials), 0)


def mirrored(trials: Iterable[Trial], base: str | None, policy: Policy, warnings: Iterable[str] = ()) -> Judgement:
    """The judgement on trials of head alone, as if base, a commit with the same files, had done what head did.

    The verdict on every case that head can run is SAME, without timing; a case that fails, fails on both sides.
    """
    both = comparisons([trial.mirrored(base) for trial in trials], warnings)
    return judge([dataclasses.replace(c, trials=(), same_code=True) for c in both], policy)


def operator_case(name: str) -> str:
    """ "gemm/m64" of "gemm/triton/m64": every backend of a case is timed in the same trials."""
    operator, _, case = name.split("/", 2)
    return f"{operator}/{case}"


def _first_results(trials: Iterable[Trial], allowed: Mapping[str, int]) -> list[Trial]:
    """The trials with the first results of each case, as many as allowed."""
    taken, first = Counter[str](), []
    for trial in trials:
        names = {case: f"{trial.operator}/{case}" for case in trial.cases}
        taken.update(names.values())
        cases = {case: trial.cases[case] for case, name in names.items() if taken[name] <= allowed[name]}
        if cases:
            first.append(dataclasses.replace(trial, cases=cases))
    return first


NextOrders = Callable[[], str]
"""Asked for the next orders of a session: a JSON list in one line, empty to end it."""

Measure = Callable[[Sequence[LocalCheckout], MeasurePlan, Path, Console, NextOrders], int]
"""Runs a session; returns its exit code."""

MeasureAlone = Callable[[Sequence[LocalCheckout], MeasurePlan, Path, Console], int]
"""Runs `plan.trials` trials of everything; returns the exit code."""


def in_session(
    checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, next_orders: NextOrders
) -> int:
    """One measuring program for all looks: what it found out in its first seconds is not asked again."""
    return measure(checkouts, dataclasses.replace(plan, trials=1), out, console, "run", "--orders", told=next_orders)


class Interrupted(Exception):
    """Ctrl-C: the finished trials are in the trial file and can be resumed."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a live comparison came to: the judgement, and the file with all its trials."""

    judgement: Judgement
    file: TrialFile


def joined(one: Judgement, two: Judgement) -> Judgement:
    """Two judgements on the same commits, of other cases, as one: the worse verdict."""
    both = {
        field.name: (*getattr(one, field.name), *getattr(two, field.name))
        for field in dataclasses.fields(Judgement)
        if field.name not in ("verdict", "why")
    }
    return Judgement(Verdict.worst([one.verdict, two.verdict]), f"{one.why}; {two.why}", **both)


def compare(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    policy: Policy,
    kind: str,
    out: Path,
    console: Console,
    measuring: Measure = in_session,
    program: str = "",
) -> Outcome:
    """Measure and judge, look by look; `plan.trials` is the budget (0: the policy's).

    program: the name of that which is measured, "" for operators; `out` may hold trials of others, too.
    A knob without a role is head's: base keeps what its config() says.
    Trials that `out` holds already count: an interrupted comparison goes on where it stopped.
    Raises MeasureError if measuring cannot start, Interrupted on Ctrl-C.
    """
    plan = dataclasses.replace(plan, knobs=tuple(map(of_head, plan.knobs)))
    settings = policy.settings(program, kind + PROGRAM * bool(program))
    log = Followed(out)
    refuse_other_regime(log.read(), plan)
    progress = Progress(_looks(settings.looks, plan.trials), settings.confirming)
    scheduler = TrialScheduler(log, plan, policy, progress, console, program)
    orders = [scheduler.next()]

    def next_orders() -> str:
        refuse_unused_knobs(log.read().trials, plan.knobs)
        return orders_json(orders.pop() if orders else scheduler.next())

    if orders[0]:
        measured(measuring(checkouts, plan, out, console, next_orders), out)
    refuse_unused_knobs(log.read().trials, plan.knobs)
    return scheduler.outcome()


@dataclasses.dataclass(frozen=True)
class TrialOrder:
    """Trials `first_trial` and on of some cases of an operator, in the words of the measuring program.

    kernel "": of every operator but those `without`.  rounds: by case, where it is not the usual number.
    """

    kernel: str
    cases: tuple[str, ...]
    first_trial: int
    trials: int
    without: tuple[str, ...] = ()
    rounds: Mapping[str, int] = dataclasses.field(default_factory=dict, hash=False)


def orders_json(orders: Sequence[TrialOrder]) -> str:
    """Orders as the measuring program reads them."""
    return json.dumps([dataclasses.asdict(order) for order in orders])


EXTRA_S = 120.0
"""Seconds beyond the policy's looks for cases whose whole interval says slower, and which are not decided: a pull
request waits a little longer, and what is slower does not pass for undecided."""


def is_asked(comparison: Comparison, plan: MeasurePlan) -> bool:
    """Whether the options of a verb name the case of a comparison; without any they name all."""
    case = comparison.case.rpartition("/")[2]
    of_case = not plan.cases or any(
        fnmatch.fnmatchcase(name, pattern) for name in (case, f"{comparison.kernel}/{case}") for pattern in plan.cases
    )
    return of_case and (not plan.backends or comparison.backend in plan.backends)


class TrialScheduler:
    """Says what is measured next, from what the file holds; when that is nothing, the comparison is over."""

    def __init__(
        self, log: Followed, plan: MeasurePlan, policy: Policy, progress: Progress, console: Console, program: str = ""
    ) -> None:
        self._log, self._plan, self._policy, self._progress, self._console = log, plan, policy, progress, console
        self._program = program
        self._begun, self._held, self._extra_s = False, -1, 0.0 if plan.trials else EXTRA_S
        self._last: Outcome | None = None
        self._compared: Sequence[Comparison] = ()

    def next(self) -> list[TrialOrder]:
        """The next orders: one trial of everything, which shows what launches equal code and needs no time; then what
        is open, up to its next look."""
        trials = self._own(self._log.read())
        begun, self._begun = self._begun, True
        if not begun and not any(count > 1 for count in Counter(t.operator for t in trials).values()):
            return [TrialOrder("", (), 0, 1, tuple({t.operator: None for t in trials}))]
        judgement, self._progress, looks = next_looks(self._progress, self._judge_at, self._extra_trials)
        target = min(looks.values(), default=0)
        orders = [self._informed(order, trials) for order in up_to(target, tuple(looks), trials)]
        if not orders:
            return []
        brought, self._held = len(trials) > self._held, len(trials)
        undecided = f"{len(looks)} of {len(judgement.cases)} cases have no verdict yet"
        if not brought:
            self._console.print(f"{undecided}; the last attempt brought no trial, so nothing more is measured")
            return []
        self._console.print(f"{undecided}; measuring them until they have {target} trials")
        return orders

    def _extra_trials(self, cases: Sequence[str]) -> int:
        """How many trials EXTRA_S are enough for, of the operators of cases that look slower to the end."""
        kernels = {name.partition("/")[0] for name in cases}
        newest = {t.operator: t.duration_s for t in self._own(self._log.read()) if t.operator in kernels}
        extra, self._extra_s = int(self._extra_s / max(sum(newest.values()), 1e-3)), 0.0
        if extra:
            slower = f"{len(cases)} of the undecided cases look slower"
            self._console.print(f"{slower}, not surely enough: measured on for up to {EXTRA_S:g} s")
        return extra

    def _informed(self, order: TrialOrder, trials: Sequence[Trial]) -> TrialOrder:
        """The order with the rounds that tell most in a second."""
        rounds = better_rounds(order.kernel, order.cases, self._compared, trials, self._policy)
        return dataclasses.replace(order, rounds=rounds)

    def outcome(self) -> Outcome:
        """The judgement of everything in the file, at its last look."""
        if self._last is None or len(self._last.file.trials) < len(self._log.read().trials):
            self._judge_at(self._progress)
        assert self._last
        return self._last

    def _judge_at(self, progress: Progress) -> Judgement:
        file = self._log.read()
        trials = self._own(file)
        gone = [comparison for comparison in undeclared(trials) if is_asked(comparison, self._plan)]
        self._compared = [*comparisons(trials, remarks(file)), *gone]
        self._last = Outcome(judge(self._compared, self._policy, progress), file)
        return self._last.judgement

    def _own(self, file: TrialFile) -> list[Trial]:
        """The trials of what is compared: of the program, or of operators."""
        if self._program:
            return [trial for trial in file.trials if trial.operator == self._program]
        return [trial for trial in file.trials if not trial.by_program]


def identical(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    policy: Policy,
    out: Path,
    console: Console,
    measuring: MeasureAlone = measure,
) -> Outcome:
    """Two checkouts with the same kernel files: measure head once, for its numbers; base is what head is
    (`mirrored`).
    """
    base, head = checkouts
    refuse_other_regime(Followed(out).read(), plan)
    console.print(
        "both commits have the same kernel files: nothing can have changed; head is run once, to see it right"
    )
    measured(measuring([head], dataclasses.replace(plan, trials=plan.trials or 1), out, console), out)
    file = Followed(out).read()
    return Outcome(mirrored(file.trials, base.commit.hash if base.commit else None, policy, remarks(file)), file)


def refuse_other_regime(file: TrialFile, plan: MeasurePlan) -> None:
    """MeasureError if a file that is to be gone on with has trials of another regime than the plan's."""
    other = next((trial.regime for trial in file.trials if trial.regime != plan.regime), None)
    if other:
        raise MeasureError(
            f"{file.path} holds trials of the {other} regime, and times of two regimes are never compared: "
            "give another file with --out"
        )


def refuse_unused_knobs(trials: Sequence[Trial], settings: Sequence[str]) -> None:
    """MeasureError if no arm of a side that was timed has a knob that was set there: both sides ran the same.

    settings: as [ROLE.]KEY=VALUE; without a role any side counts.  Nothing is said before anything was timed.
    """
    arms = [(role, arm) for trial in trials for _, role, _, arm in trial.arms() if arm.ok]
    for setting in settings if arms else ():
        key = setting.partition("=")[0]
        side, _, name = key.rpartition(".")
        if not any(name in arm.knobs for role, arm in arms if side in ("", role)):
            known = ", ".join(sorted({knob for _, arm in arms for knob in arm.knobs})) or "no knobs"
            lacking = f"no backend that was timed here has the knob {name}; those that were have {known}"
            raise MeasureError(f"--set {setting.removeprefix('head.')}: {lacking}")


def remarks(file: TrialFile) -> list[str]:
    """A sentence on every line of a file that is not used."""
    return [f"{line.at(file.path)}: {line.why}; the other trials count" for line in file.rejected]


def up_to(target: int, cases: Sequence[str], trials: Sequence[Trial]) -> list[TrialOrder]:
    """What brings cases, named operator/backend/case, to so many trials, an order for each operator.

    Every backend of a case is timed again with it.  The numbers of an operator's trials go on.
    """
    open_cases: dict[str, dict[str, None]] = {}
    for operator, _, case in (name.split("/", 2) for name in cases):
        open_cases.setdefault(operator, {})[case] = None
    orders = []
    for operator, names in open_cases.items():
        own = [trial for trial in trials if trial.operator == operator]
        missing = target - min(sum(case in trial.cases for trial in own) for case in names)
        if missing > 0:
            orders.append(TrialOrder(operator, tuple(names), len(own), missing))
    return orders


def measured(code: int, out: Path) -> None:
    """Raise what the exit code of the measuring program means, if it means that measuring did not come to its end."""
    if code == INTERRUPTED:
        raise Interrupted(f"interrupted; the finished trials are in {out}; `{again(out=out)}` goes on")
    if code == USAGE:
        finished = f"; finished trials are in {out}" if out.exists() else ""
        raise MeasureError(f"measuring broke off; the reason is printed above{finished}")
    if code == NOTHING and not out.exists():
        raise MeasureError("nothing was measured; the reason is printed above")


def of_head(knob: str) -> str:
    """A knob with its role: one that names none is head's."""
    return knob if "." in knob.split("=")[0] else f"head.{knob}"


def _looks(looks: tuple[int, ...], budget: int) -> tuple[int, ...]:
    """The policy's looks within a budget of trials, which is the last look; 0: as the policy says."""
    if not budget:
        return looks
    return (*(look for look in looks if look < budget), budget)
