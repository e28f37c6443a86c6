"""Head with something put back, measured against base in lock-step: how much of the slow-down is left."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import trial_file
from ci.git.repository import LocalCheckout
from ci.harness import FAULTS, INTERRUPTED, MEASURED, MeasurePlan
from ci.judging.judge import judge
from ci.judging.live import Interrupted, MeasureAlone
from ci.judging.policy import Policy
from ci.judging.unmeasured import ENDED
from ci.trials.compared import Status
from ci.trials.comparisons import comparisons
from ci.trials.experiments import ExperimentLine
from ci.trials.file import Followed
from ci.trials.trial import Trial
from ci.why.search import classified
from ci.why.trees import Sides
from ci.why.types import CauseAnswer, Slowdown, Suspect, SuspectKind

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
    log: the trial file that is explained; what was measured is kept in it, for who judges elsewhere.
    """

    sides: Sides
    policy: Policy
    folder: Path
    until: float
    measuring: MeasureAlone
    say: Callable[[str], None] = lambda said: None
    trials: int = 0
    experiments: int = 0
    log: Followed | None = None

    def slowdown(self, question: Question, floor: float, put: Sequence[Suspect]) -> Slowdown | None:
        """How much slower than base head is with these put back; None when the time is over."""
        if time.monotonic() >= self.until:
            return None
        self.experiments += 1
        self.say(" + ".join(one.name for one in put))
        tree = self.sides.between(put)
        plan = planned(question, put)
        out = self.folder / f"{_digest(question.name, tree.path.name, repr(plan))}.jsonl"
        left = Slowdown.failed("it was not measured")
        for target in (1, *LOOKS) if question.known_code else LOOKS:
            left = self._looked(question, tree, plan, out, target)
            unclear = classified(question.whole, question.whole, left, floor) is CauseAnswer.UNCLEAR
            if left.base_code or not unclear or time.monotonic() >= self.until:
                break
        self.keep(ExperimentLine(question.name, keys(put), Followed(out).read().trials))
        return left

    def keep(self, line: ExperimentLine) -> None:
        """Append a line to the log, unless it says nothing new."""
        if self.log is None:
            return
        known = {one.key: one for one in self.log.read().experiments}.get(line.key)
        if known is None or len(known.trials) < len(line.trials) or known.code != line.code:
            trial_file.append(self.log.path, line.as_json())

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


def keys(put: Sequence[Suspect]) -> tuple[str, ...]:
    """What was put back, in one order."""
    return tuple(sorted(one.key for one in put))


def planned(question: Question, put: Sequence[Suspect]) -> MeasurePlan:
    """The plan of the comparison, for one backend of one case, with head's knobs and Python as they are put back."""
    pythons = dict(question.plan.pythons)
    if any(one.kind is SuspectKind.ENVIRONMENT for one in put):
        pythons.pop("head", None)
        pythons |= {"head": pythons["base"]} if "base" in pythons else {}
    back = [f"head.{one.setting}" for one in put if one.kind is SuspectKind.KNOB]
    given = [one if "." in one.split("=")[0] else f"head.{one}" for one in question.plan.knobs]
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
        return Slowdown.failed(f"{ENDED[found[0].head_status]}: {found[0].head_why}")
    said, same = judge(found, policy).cases[0], found[0].same_code
    if said.ratio and said.ci_low and said.ci_high:
        left = Slowdown.of_ratio(said.ratio, said.ci_low, said.ci_high, said.trials)
        return dataclasses.replace(left, base_code=same)
    reach = 0.0 if same else math.inf
    return Slowdown(0.0, -reach, reach, len(trials), base_code=same)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
