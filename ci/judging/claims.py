"""What a trial says of itself, held against what we know of the run that should have produced it.

A trial that a stranger's code measured is a claim.  The platform knows which commits the run was started for; the pool
knows which GPU it has and how many; the default branch knows its benchmark definitions, and which cases there must be.
A trial that contradicts one of them is refused by name.

What this cannot show: that the numbers are true.  Whoever runs code on the measuring host can write any file, with the
right commits and digests.  `UNTRUSTED` is the sentence that says so in every such report.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.trial_file import identity
from ci.judging import live
from ci.judging.policy import Policy
from ci.judging.reach import doubted, with_left_out
from ci.judging.types import Judgement, Verdict
from ci.trials.file import TrialFile
from ci.trials.trial import Declaration, Trial

UNTRUSTED = (
    "these trials come from an untrusted tree ({head} is not in the history of this branch): its code ran on the host "
    "that measured. Commits, machine and benchmark definition fit the run; that the times themselves are not "
    "made up cannot be shown from outside the host"
)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is known of a run from sources that its measured code cannot write.

    head, base: 40 hex digits.  product: of `kernels.hardware`, None for a CPU.  counts: GPUs it may have, empty: any.
    same_kernels: git says that both commits have the same kernel files, so that head alone is measured.
    unreached: operators that no changed file can reach, by the commits as git has them: they need no trial.
    reached: whether there is any other operator.
    declared: what base declares, by operator, from a tree of our own; None: not known.  python: its version, "3.12".
    past: earlier commits that the run may have measured too, each alone.
    programs: benchmark programs that a changed file can reach and that run on such a machine.
    """

    head: str
    base: str
    product: str | None
    counts: tuple[int, ...] = ()
    same_kernels: bool = False
    unreached: tuple[str, ...] = ()
    reached: bool = True
    declared: Mapping[str, Declaration] | None = None
    python: str = ""
    past: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()


def sift(trials: Sequence[Trial], expected: Expected) -> tuple[list[Trial], list[str]]:
    """The trials that fit their run and each other, and a sentence on each that does not."""
    fitting, refused = list[Trial](), list[str]()
    for trial in trials:
        reason = contradiction(trial, expected)
        if not reason and fitting and trial.machine.name != fitting[0].machine.name:
            reason = f"it says it ran on {trial.machine.name}, others of its leg on {fitting[0].machine.name}"
        if reason:
            refused.append(f"trial {trial.id} of {trial.operator} is refused: {reason}")
        else:
            fitting.append(trial)
    return fitting, refused


def contradiction(trial: Trial, expected: Expected) -> str:
    """Why a trial cannot be of this run, "" if it can."""
    reasons = (check(trial, expected) for check in CHECKS)
    return next((reason for reason in reasons if reason), "")


# ---- one trial -------------------------------------------------------------------------------------------------------


def _sides(trial: Trial, expected: Expected) -> str:
    if trial.paired:
        return ""
    alone = "head alone was measured" if "head" in trial.checkouts else "its head was not measured"
    return "" if expected.same_kernels and "head" in trial.checkouts else f"{alone}; base and head run in lock-step"


def _commits(trial: Trial, expected: Expected) -> str:
    for role, commit in (("head", expected.head), ("base", expected.base)):
        checkout = trial.checkouts.get(role)
        if checkout is None:
            continue
        if checkout.named:
            return f"its {role} was renamed to {checkout.named}; a run measures commits under their own names"
        if checkout.dirty:
            return f"its {role} has uncommitted changes"
        if checkout.commit != commit and (trial.paired or checkout.commit not in expected.past):
            return f"it says its {role} is {checkout.commit}; the run was started for {commit}"
    return ""


def _machine(trial: Trial, expected: Expected) -> str:
    machine = trial.machine
    if expected.product is None:
        return "" if machine.kind == "cpu" else f"it says it ran on {machine.market_name}; the pool has no GPU"
    if machine.kind != "gpu" or machine.market_name != expected.product:
        said = machine.market_name or machine.device or "a machine without a known GPU"
        return f"it says it ran on {said}; the pool has {expected.product}"
    if expected.counts and machine.count not in expected.counts:
        return f"it says it had {machine.count} GPUs; the leg was given {' or '.join(map(str, expected.counts))}"
    return ""


def _id(trial: Trial, expected: Expected) -> str:
    body = json.loads(trial.text)
    body.pop("id")
    try:
        digest = identity(body)
    except ValueError:
        return "it holds a number that JSON has not: the line was edited"
    return "" if trial.id == digest else f"its id is not that of its content, {digest}: the line was edited"


def _definition(trial: Trial, expected: Expected) -> str:
    """Whether base declares what our own tree of it declares.  Digests of two versions of Python are not alike."""
    base = trial.checkouts.get("base") or trial.checkouts["head"]
    ours, theirs = (expected.declared or {}).get(trial.operator), base.declaration
    by_program = ours is None and trial.operator in expected.programs  # its cases are the rows that it prints
    if expected.declared is None or base.environment.python != expected.python or by_program:
        return ""
    if ours is None or theirs is None:
        return "" if ours is theirs else f"base does not declare {trial.operator} as its commit does"
    if set(ours.baselines) != set(theirs.baselines) or ours.cases.keys() != theirs.cases.keys():
        return "it lists other cases or baselines of base than its commit declares"
    # On a CPU digests cover the state of the caches, hot there (ci.options.with_rounds), cold in a listing.
    measured = trial.cases.keys() & ours.cases.keys() if expected.product else ()
    unlike = sorted(name for name in measured if ours.cases[name].definition != theirs.cases[name].definition)
    return f"its benchmark definition of {unlike[0]} in base is not that of the commit" if unlike else ""


CHECKS = (_sides, _commits, _machine, _id, _definition)
"""Each gives a reason against a trial, or ""."""


# The judgement of a job that may be believed, on trials from a host that may not.
#
# Trials that fit their run are judged with this tree's code and policy. Nothing that is refused, left out or missing
# can make a pass: it makes CANNOT TELL, while a regression that is shown stays one.


SHOWN = 20
"""Refused trials and missing cases that a report names; the next ones are counted."""


@dataclasses.dataclass(frozen=True)
class TrustedOutcome:
    """The judgement, the trials it rests on, and the sentences on everything that was not used."""

    judgement: Judgement
    trials: tuple[Trial, ...] = ()
    remarks: tuple[str, ...] = ()


def decided(files: Sequence[TrialFile], expected: Expected, policy: Policy, tier: str = "pr") -> TrustedOutcome:
    """Judge the trials of a leg's files, as far as they fit what is expected of the run."""
    trials = sorted(
        {trial.id: trial for file in files for trial in file.trials}.values(), key=lambda trial: trial.order
    )
    fitting, refused = sift(trials, expected)
    ran = {trial.operator for trial in fitting}
    lacking = [*missing(fitting, expected, tier), *(name for name in expected.programs if name not in ran)]
    unmeasured = [f"{name} was not measured" for name in lacking]
    remarks = [*few(rejected(files)), *few(refused), *few(unmeasured)]
    judgement = _judged(fitting, expected, policy)
    measured = {trial.operator for trial in trials}
    judgement = with_left_out(judgement, tuple(name for name in expected.unreached if name not in measured))
    judgement = doubted(judgement, remarks)
    return TrustedOutcome(judgement, tuple(fitting), tuple(remarks))


ALWAYS = 2
"""Ranks up to which a machine with as many GPUs measures every case of its tier."""


def missing(trials: Sequence[Trial], expected: Expected, tier: str) -> list[str]:
    """Cases of the tier that base declares and no trial has, "gemm/m64".  Those of more ranks than GPUs need none.

    With eight GPUs the pr tier leaves cases of four ranks to the night, with fewer those of eight (benchmarks.plan), so
    only cases of one and two ranks are asked for.
    """
    measured = {f"{trial.operator}/{case}" for trial in trials for case in trial.cases}
    wanted = (
        f"{operator}/{case.name}"
        for operator, declared in (expected.declared or {}).items()
        if operator not in expected.unreached
        for case in declared.cases.values()
        if case.tier == tier and case.world <= min((ALWAYS, *expected.counts))
    )
    return [name for name in wanted if name not in measured]


def _judged(trials: Sequence[Trial], expected: Expected, policy: Policy) -> Judgement:
    if not trials:
        if not expected.reached:
            return Judgement(Verdict.SAME, "nothing differs")
        return Judgement(Verdict.CANNOT_TELL, "no trial fits the run: nothing could be judged")
    paired = [trial for trial in trials if trial.paired]
    if paired or not expected.same_kernels:
        return live.judged(paired, policy, "cpu" if expected.product is None else "gpu")
    return live.mirrored(trials, expected.base, policy)


def rejected(files: Sequence[TrialFile]) -> list[str]:
    """A sentence on every line that is not a trial."""
    return [f"{line.at(Path(file.path.name))}: {line.why}" for file in files for line in file.rejected]


def few(sentences: Sequence[str]) -> list[str]:
    """The first ones, and how many more there are."""
    more = len(sentences) - SHOWN
    return [*sentences] if more <= 0 else [*sentences[:SHOWN], f"and {more} more of this kind"]
