"""Judge trials that were measured before, or elsewhere: all that a machine recorded of two commits, and those that a
host which is not trusted hands over.

Trials in which both commits ran in lock-step are paired, round by round, and judged as they are.  Commits that were
recorded apart are not: clocks drift by 2 to 3 % between runs.  There every sample is divided by the median of the
baseline of its own trial, which the same clocks moved, and the policy's `recorded_*` settings apply.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from benchmarks.reach import Reach
from benchmarks.trial_file import identity
from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import CaseVerdict, Judgement, Verdict
from ci.records import store
from ci.records.ledger import machine_folders
from ci.records.pooling import Place
from ci.stats import FloatArray
from ci.trials.comparisons import Comparison, comparisons, undeclared
from ci.trials.file import Problem, TrialFile, unpacked
from ci.trials.trial import Trial


class GateError(Exception):
    """The commits cannot be compared; the text says what is recorded and the next step."""


@dataclasses.dataclass(frozen=True)
class Judged:
    """What one machine and environment says about the two commits; trials: base's, then head's.

    lock_step: operators in whose trials both ran side by side.
    """

    machine: str
    env: str
    paired: bool
    judgement: Judgement
    trials: tuple[Trial, ...]
    lock_step: frozenset[str] = frozenset()


def gate(results: Path, base: str, head: str, policy: Policy, machine: str | None = None) -> list[Judged]:
    """Judge `head` against `base` (full hashes) in every environment in which a machine recorded both.

    Raises GateError if there is none.
    """
    machines = [machine] if machine else [folder.name for folder in machine_folders(results)]
    places = [judged for name in machines for judged in _on_machine(results, name, base, head, policy)]
    if not places:
        raise GateError(_missing(results, machines, base, head))
    return places


def unread(results: Path, base: str, head: str, machine: str | None = None) -> list[Problem]:
    """What cannot be read of the records of two commits (full hashes): with it the verdict could be another one."""
    machines = [machine] if machine else [folder.name for folder in machine_folders(results)]
    return [problem for name in machines for problem in store.problems_at(results, name, (base, head))]


def in_pairs(results: Path, base: str, head: str, policy: Policy, machine: str) -> list[CaseVerdict]:
    """What the gate says of the cases in whose trials both commits (full hashes) ran side by side on a machine."""
    notes = (results / machine).glob(f"{head[:8]}*.notes.jsonl*")
    if not any(base.encode() in unpacked(path.read_bytes())[0] for path in notes):
        return []  # most commits never met: their trials need not be parsed
    judged = _on_machine(results, machine, base, head, policy)
    return [case for place in judged for case in place.judgement.cases if case.kernel in place.lock_step]


def _on_machine(results: Path, machine: str, base: str, head: str, policy: Policy) -> Iterable[Judged]:
    bases, heads = ({place.env: place for place in store.places(results, machine, commit)} for commit in (base, head))
    for env in sorted(bases.keys() & heads.keys()):
        yield _judged(results, bases[env], heads[env], policy)


def _judged(results: Path, base: Place, head: Place, policy: Policy) -> Judged:
    of_base, of_head = store.trials(results, base), store.trials(results, head)
    both = [trial for trial in of_head if _of_both(trial, base, head)]
    lock_step = {trial.operator for trial in both}
    bases, heads = ([trial for trial in trials if trial.operator not in lock_step] for trials in (of_base, of_head))
    apart = _joined(bases, heads, base, head)
    paired = bool(both) and not apart
    compared = [*comparisons(both), *map(relative, comparisons(apart)), *undeclared([*both, *apart])]
    judgement = judge(compared, policy if paired else policy.recorded())
    return Judged(head.machine, head.env, paired, judgement, (*of_base, *of_head), frozenset(lock_step))


def _of_both(trial: Trial, base: Place, head: Place) -> bool:
    """Whether the two commits ran in this trial side by side, each in its role."""
    return trial.paired and base.is_of(trial.checkouts["base"]) and head.is_of(trial.checkouts["head"])


def _joined(bases: Sequence[Trial], heads: Sequence[Trial], base: Place, head: Place) -> list[Trial]:
    """Trials of two sessions put side by side, in order of time, as if base and head had shared them."""
    joined = []
    for operator in dict.fromkeys(trial.operator for trial in (*bases, *heads)):
        left = [trial.as_role(base.role_in(trial) or "", "base") for trial in bases if trial.operator == operator]
        right = [trial.as_role(head.role_in(trial) or "", "head") for trial in heads if trial.operator == operator]
        joined += [of_base.beside(of_head, n) for n, (of_base, of_head) in enumerate(zip(left, right, strict=False))]
    return joined


def relative(comparison: Comparison) -> Comparison:
    """Times divided by the median of the baseline in their own trial, then scaled back to seconds.

    A comparison without a baseline on both sides stays as it is and says so.
    """
    comparison = dataclasses.replace(comparison, lock_step=False)
    beside = [t for t in comparison.trials if t.baseline_base is not None and t.baseline_head is not None]
    if not comparison.trials:
        return comparison
    if not beside or len(beside) < len(comparison.trials):
        warning = "recorded apart and without a baseline: a change of clocks looks like a change of code"
        return dataclasses.replace(comparison, warnings=(*comparison.warnings, warning))
    middles = [(_middle(rounds.baseline_base), _middle(rounds.baseline_head)) for rounds in beside]
    scale = float(np.exp(np.mean([np.log(base) for base, _ in middles])))
    trials = (rounds.scaled(scale / base, scale / head) for rounds, (base, head) in zip(beside, middles, strict=True))
    return dataclasses.replace(comparison, trials=tuple(trials))


def _middle(values: FloatArray | None) -> float:
    assert values is not None
    return float(np.median(values))


def _missing(results: Path, machines: Sequence[str], base: str, head: str) -> str:
    if not machines:
        return (
            f"{results} holds no records; `ridgeline run` measures, `ridgeline records add --help` is for trial files"
        )
    by_commit = (
        f"{commit[:8]} by {', '.join(name for name in machines if store.places(results, name, commit)) or 'none'}"
        for commit in (base, head)
    )
    return (
        f"no machine has recorded both {base[:8]} and {head[:8]} in the same environment ({'; '.join(by_commit)}); "
        "`asv show --results` or the site list what is there; measure the missing one with `ridgeline run`"
    )


# What a trial says of itself, held against what we know of the run that should have produced it.
#
# A trial that a stranger's code measured is a claim.  The platform knows which commits the run was started for, the
# pool which GPU it has and how many, and git which operators a changed file can reach.  A trial that contradicts one of
# them is refused by name.
#
# What this cannot show: that the numbers are true.  Whoever runs code on the measuring host can write any file, with
# the right commits, cases and digests.  `UNTRUSTED` is the sentence that says so in every such report.


UNTRUSTED = (
    "these trials come from an untrusted tree ({head} is not in the history of this branch): its code ran on the host "
    "that measured. Commits and machine fit the run; that the times themselves are not made up cannot be "
    "shown from outside the host"
)


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is known of a run from sources that its measured code cannot write.

    head, base: 40 hex digits.  product: of `kernels.hardware`, None for a CPU.  counts: GPUs it may have, empty: any.
    reach: what differs, by the commits as git has them.  Where no operator does, head may be measured alone.
    programs: benchmark programs that a changed file can reach and that run on such a machine.
    past: earlier commits that the run may have measured too, each alone.
    """

    head: str
    base: str
    product: str | None
    counts: tuple[int, ...] = ()
    reach: Reach = Reach(unknown="what differs is not known")
    programs: tuple[str, ...] = ()
    past: frozenset[str] = frozenset()

    @property
    def nothing(self) -> bool:
        """Whether no operator and no program can differ."""
        return self.reach.nothing and bool(self.reach.same) and not self.programs


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
    reasons = (_of_sides, _of_machine, _of_content)
    return next((reason for check in reasons for reason in check(trial, expected)), "")


def _of_sides(trial: Trial, expected: Expected) -> Iterator[str]:
    sides = trial.checkouts
    if not trial.paired and not (expected.reach.nothing and "head" in sides):
        alone = "head alone was measured" if "head" in sides else "its head was not measured"
        yield f"{alone}; base and head run in lock-step"
    for role, commit in (("head", expected.head), ("base", expected.base)):
        if (side := sides.get(role)) is None:
            continue
        if side.named:
            yield f"its {role} was renamed to {side.named}; a run measures commits under their own names"
        if side.dirty:
            yield f"its {role} has uncommitted changes"
        if side.commit != commit and (trial.paired or side.commit not in expected.past):
            yield f"it says its {role} is {side.commit}; the run was started for {commit}"


def _of_machine(trial: Trial, expected: Expected) -> Iterator[str]:
    machine = trial.machine
    wanted = ("gpu", expected.product) if expected.product else ("cpu", machine.market_name)
    if (machine.kind, machine.market_name) != wanted:
        device = machine.market_name or machine.device or "a machine without a known GPU"
        yield f"it says it ran on {device}; the pool has {expected.product or 'no GPU'}"
    if expected.product and expected.counts and machine.count not in expected.counts:
        yield f"it says it had {machine.count} GPUs; the leg was given {' or '.join(map(str, expected.counts))}"


def _of_content(trial: Trial, expected: Expected) -> Iterator[str]:
    body = json.loads(trial.text)
    body.pop("id")
    try:
        digest = identity(body)
    except ValueError:
        digest = "none: it holds a number that JSON has not"
    if trial.id != digest:
        yield f"its id is not that of its content, {digest}: the line was edited"


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
    from ci.judging.reach import doubted, with_left_out  # whoever judges records, as a page does, needs none of it

    trials = sorted(
        {trial.id: trial for file in files for trial in file.trials}.values(), key=lambda trial: trial.order
    )
    fitting, refused = sift(trials, expected)
    unmeasured = [f"{name} was not measured" for name in missing(fitting, expected, tier)]
    remarks = [*few(rejected(files)), *few(refused), *few(unmeasured)]
    judgement = _judged_alone(fitting, expected, policy)
    measured = {trial.operator for trial in trials}
    judgement = with_left_out(judgement, tuple(name for name in expected.reach.same if name not in measured))
    judgement = doubted(judgement, remarks)
    return TrustedOutcome(judgement, tuple(fitting), tuple(remarks))


ALWAYS = 2
"""Ranks up to which a machine with as many GPUs measures every case of its tier."""


def missing(trials: Sequence[Trial], expected: Expected, tier: str) -> list[str]:
    """What no trial has: programs and operators that differ, and cases of the tier that base declares, "gemm/m64".

    Cases of more ranks than GPUs need none.  With eight GPUs the pr tier leaves cases of four ranks to the night, with
    fewer those of eight (benchmarks.plan), so only cases of one and two ranks are asked for.
    """
    measured = {f"{trial.operator}/{case}" for trial in trials for case in trial.cases}
    declared = {trial.operator: side.declaration for trial in trials if (side := trial.checkouts.get("base"))}
    cases = (
        f"{operator}/{case.name}"
        for operator, declaration in declared.items()
        for case in (declaration.cases.values() if declaration else ())
        if case.tier == tier and case.world <= min((ALWAYS, *expected.counts))
    )
    ran = {trial.operator for trial in trials}
    operators = [name for name in (*expected.reach.differing, *expected.programs) if name not in ran]
    return [*operators, *(name for name in cases if name not in measured)]


def _judged_alone(trials: Sequence[Trial], expected: Expected, policy: Policy) -> Judgement:
    if not trials:
        if expected.nothing:
            return Judgement(Verdict.SAME, "nothing differs")
        return Judgement(Verdict.CANNOT_TELL, "no trial fits the run: nothing could be judged")
    from ci.judging import live

    paired = [trial for trial in trials if trial.paired]
    if paired or not expected.reach.nothing:
        return live.judged(paired, policy, "cpu" if expected.product is None else "gpu")
    return live.mirrored(trials, expected.base, policy)


def rejected(files: Sequence[TrialFile]) -> list[str]:
    """A sentence on every line that is not a trial."""
    return [f"{line.at(Path(file.path.name))}: {line.why}" for file in files for line in file.rejected]


def few(sentences: Sequence[str]) -> list[str]:
    """The first ones, and how many more there are."""
    more = len(sentences) - SHOWN
    return [*sentences] if more <= 0 else [*sentences[:SHOWN], f"and {more} more of this kind"]
