"""Why cases are slower, told from experiments that somebody else measured: nothing is measured or checked out here.

The search is the one of `ci.why.explain`: it asks for the same experiments in the same order, because what differs
between the two commits is read from git here, and its answers are the trials that were handed over with the trial file.
So what is believed of the host that measured is that the times are of the trees that it says, as it is of all trials.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

from ci.harness import MeasurePlan
from ci.judging.policy import Policy
from ci.judging.types import Judgement
from ci.records.causes.explanation import Explanation
from ci.trials.experiments import ExperimentLine
from ci.trials.trial import Trial
from ci.why.experiments import Question, keys, of_trials
from ci.why.explain import SlowGroup, explained, not_examined, slower
from ci.why.trees import BothSides
from ci.why.types import Slowdown, Suspect

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
