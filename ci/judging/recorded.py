"""Judge one recorded commit against another: every trial of both that a machine has.

Trials in which both commits ran in lock-step are paired, round by round, and judged as they are.  Commits that were
recorded apart are not: clocks drift by 2 to 3 % between runs.  There every sample is divided by the median of the
baseline of its own trial, which the same clocks moved, and the policy's `recorded_*` settings apply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import CaseVerdict, Judgement
from ci.records import store
from ci.records.ledger import machine_folders
from ci.records.pooling import Place
from ci.stats.types import FloatArray
from ci.trials.comparisons import Comparison, comparisons, undeclared
from ci.trials.file import Problem, unpacked
from ci.trials.trial import Declaration, Trial
from kernels.project import current_kernel, current_name


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
    declared = {trial.operator: declaration for trial in heads if (declaration := trial.declaration())}
    bases = [_under_names_of_head(trial, declared, policy.renamed) for trial in bases] if policy.renamed else bases
    apart = _joined(bases, heads, base, head)
    paired = bool(both) and not apart
    compared = [*comparisons(both), *map(relative, comparisons(apart)), *undeclared([*both, *apart])]
    judgement = judge(compared, policy if paired else policy.recorded())
    return Judged(head.machine, head.env, paired, judgement, (*of_base, *of_head), frozenset(lock_step))


def _under_names_of_head(trial: Trial, of_head: Mapping[str, Declaration], renamed: Mapping[str, str]) -> Trial:
    """A trial of base under the names that head gives its operator, backends and cases (kernels.project).

    of_head: what head declares, by operator.  The digest of a case's definition has its name in it; where all else of
    the definition is head's, it is head's.
    """
    operator = current_kernel(trial.operator, renamed)

    def parts(backend: str, case: str) -> list[str]:
        named = current_name(f"{trial.operator}/{backend}/{case}", renamed).split("/")
        return named if named[0] == operator else [operator, backend, case]

    def case_of(name: str) -> str:
        return parts("-", name)[2]

    def backend_of(name: str) -> str:
        return parts(name, "-")[1]

    def declared(own: Declaration) -> Declaration:
        head, cases = of_head.get(operator), {}
        for name, case in own.cases.items():
            other = head.cases.get(case_of(name)) if head and head.definition == own.definition else None
            alike = other and (case.shape, case.dtype, case.world) == (other.shape, other.dtype, other.world)
            definition = other.definition if other and alike else case.definition
            cases[case_of(name)] = dataclasses.replace(case, name=case_of(name), definition=definition)
        backends, baselines = (tuple(map(backend_of, names)) for names in (own.backends, own.baselines))
        return dataclasses.replace(own, operator=operator, backends=backends, baselines=baselines, cases=cases)

    sides = {
        role: dataclasses.replace(side, declaration=side.declaration and declared(side.declaration))
        for role, side in trial.checkouts.items()
    }
    cases = {
        case_of(name): dataclasses.replace(
            case, arms={(role, backend_of(backend)): arm for (role, backend), arm in case.arms.items()}
        )
        for name, case in trial.cases.items()
    }
    return dataclasses.replace(trial, operator=operator, checkouts=sides, cases=cases)


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
    recorded = [f"{name}: {_recorded_there(results, name, (base, head))}" for name in machines]
    return (
        f"no machine has recorded both {base[:8]} and {head[:8]} in the same environment ({' | '.join(recorded)}); "
        "`asv show --results` or the site list what is there; measure the missing one with `ridgeline run`"
    )


def _recorded_there(results: Path, machine: str, commits: Sequence[str]) -> str:
    have = []
    for commit in commits:
        places = store.places(results, machine, commit)
        if places:
            have.append(f"{commit[:8]} in {', '.join(place.env for place in places)}")
    return "; ".join(have) or "neither"
