"""The judgement of a job that may be believed, on trials from a host that may not.

Trials that fit their run are judged with this tree's code and policy.  Nothing that is refused, left out or missing can
make a pass: it makes CANNOT TELL, while a regression that is shown stays one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ci.judging import claims, looks
from ci.judging.claims import Expected, Sifted
from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.reach import with_left_out
from ci.judging.types import Judgement, Verdict
from ci.trials.comparisons import comparisons
from ci.trials.experiments import ExperimentLine
from ci.trials.file import TrialFile
from ci.trials.trial import Trial

SHOWN = 20
"""Refused trials and missing cases that a report names; the next ones are counted."""


@dataclasses.dataclass(frozen=True)
class TrustedOutcome:
    """The judgement, the trials it rests on, and the sentences on everything that was not used.

    experiments: what was measured to find out why a case is slower; no verdict rests on it.
    """

    judgement: Judgement
    trials: tuple[Trial, ...]
    remarks: tuple[str, ...] = ()
    experiments: tuple[ExperimentLine, ...] = ()


def decided(files: Sequence[TrialFile], expected: Expected, policy: Policy, tier: str = "pr") -> TrustedOutcome:
    """Judge the trials of a leg's files, as far as they fit what is expected of the run."""
    trials = sorted({trial.id: trial for file in files for trial in file.trials}.values(), key=lambda one: one.order)
    sifted = claims.sift(trials, expected)
    doubts = [*_few(rejected(files)), *_few(list(map(str, sifted.refused))), *sifted.gaps]
    doubts += _few([f"{case} was not measured" for case in missing(sifted, expected, tier)])
    judgement = _judged(sifted.trials, expected, policy) if sifted.trials else _nothing(expected)
    measured = {trial.operator for trial in trials}
    judgement = with_left_out(judgement, tuple(name for name in expected.unreached if name not in measured))
    judgement = _doubted(judgement, doubts)
    machine = sifted.trials[0].machine.name if sifted.trials else ""
    found = claims.of_experiments([line for file in files for line in file.experiments], expected, machine)
    judgement = dataclasses.replace(judgement, warnings=(*judgement.warnings, *_few(list(found.left_out))))
    return TrustedOutcome(judgement, sifted.trials, tuple(doubts), found.lines)


ALWAYS = 2
"""Ranks up to which a machine with as many GPUs measures every case of its tier."""


def missing(sifted: Sifted, expected: Expected, tier: str) -> list[str]:
    """Cases of the tier that base declares and no trial has, "gemm/m64".  Those of more ranks than GPUs need none.

    With eight GPUs the pr tier leaves cases of four ranks to the night, with fewer those of eight (benchmarks.plan), so
    only cases of one and two ranks are asked for.
    """
    measured = {f"{trial.operator}/{case}" for trial in sifted.trials for case in trial.cases}
    wanted = (
        f"{operator}/{case.name}"
        for operator, declared in (expected.declared or {}).items()
        if operator not in expected.unreached
        for case in declared.cases.values()
        if case.tier == tier and case.world <= min((ALWAYS, *expected.counts))
    )
    return [name for name in wanted if name not in measured]


def _judged(trials: Sequence[Trial], expected: Expected, policy: Policy) -> Judgement:
    kind = "cpu" if expected.product is None else "gpu"
    paired = [trial for trial in trials if trial.paired]
    if paired or not expected.same_kernels:
        return looks.judged(paired, policy, kind)
    mirrored = [trial.mirrored(expected.base) for trial in trials]
    return judge([dataclasses.replace(c, trials=(), same_code=True) for c in comparisons(mirrored)], policy)


def _nothing(expected: Expected) -> Judgement:
    """What no trial says: SAME where no operator needed one."""
    if not expected.reached:
        return Judgement(Verdict.SAME, "nothing differs")
    return Judgement(Verdict.CANNOT_TELL, "no trial fits the run: nothing could be judged")


def _doubted(judgement: Judgement, doubts: Sequence[str]) -> Judgement:
    """A judgement with doubts is no pass."""
    if not doubts:
        return judgement
    verdict, why = judgement.verdict, judgement.why
    if verdict.exit_code == 0:
        verdict, why = Verdict.CANNOT_TELL, f"{doubts[0]}; of the trials that count: {why}"
    return dataclasses.replace(judgement, verdict=verdict, why=why, warnings=(*judgement.warnings, *doubts))


def rejected(files: Sequence[TrialFile]) -> list[str]:
    """A sentence on every line that is not a trial."""
    return [f"{one.at(Path(file.path.name))}: {one.why}" for file in files for one in file.rejected]


def _few(sentences: list[str]) -> list[str]:
    more = len(sentences) - SHOWN
    return sentences if more <= 0 else [*sentences[:SHOWN], f"and {more} more of this kind"]
