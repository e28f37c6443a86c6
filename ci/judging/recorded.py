"""Judge one recorded commit against another: every trial of both that a machine has.

Trials in which both commits ran in lock-step are paired, round by round, and judged as they are.  Commits that were
recorded apart are not: clocks wander by 2 to 3 % between runs.  There every sample is divided by the median of the
vendor baseline of its own trial, which the same clocks moved, and the policy's `recorded_*` settings apply.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ci.judging.judge import judge
from ci.judging.policy import Policy
from ci.judging.types import Judgement
from ci.records import store as records
from ci.records.pooling import Place, role_at
from ci.stats.types import FloatArray, PairedRounds
from ci.trials.compared import Comparison
from ci.trials.comparisons import comparisons
from ci.trials.file import TrialLine

ROLES = ("base", "head")


class GateError(Exception):
    """The commits cannot be compared; the text says what is recorded and the next step."""


@dataclasses.dataclass(frozen=True)
class Judged:
    """What one machine and environment says about the two commits; lines: base's trials, then head's."""

    machine: str
    env: str
    paired: bool
    judgement: Judgement
    lines: tuple[TrialLine, ...]


def gate(results: Path, base: str, head: str, policy: Policy, machine: str | None = None) -> list[Judged]:
    """Judge `head` against `base` (full hashes) in every environment in which a machine recorded both.

    Raises GateError if there is none.
    """
    machines = (
        [machine]
        if machine
        else sorted(path.name for path in results.iterdir() if path.is_dir())
        if results.is_dir()
        else []
    )
    found = [judged for name in machines for judged in _on_machine(results, name, base, head, policy)]
    if not found:
        raise GateError(_missing(results, machines, base, head))
    return found


def _on_machine(results: Path, machine: str, base: str, head: str, policy: Policy) -> Iterable[Judged]:
    sides = {
        role: {place.env: place for place in records.places(results, machine, commit)}
        for role, commit in zip(ROLES, (base, head), strict=True)
    }
    for env in sorted(sides["base"].keys() & sides["head"].keys()):
        yield _judged(results, sides["base"][env], sides["head"][env], policy)


def _judged(results: Path, base: Place, head: Place, policy: Policy) -> Judged:
    base_lines, head_lines = records.trials(results, base), records.trials(results, head)
    both = [line for line in head_lines if _roles(line.data) >= set(ROLES) and _is(line.data, base, head)]
    kernels_paired = {line.data["kernel"] for line in both}
    apart = _joined(
        [line for line in base_lines if line.data["kernel"] not in kernels_paired],
        base,
        [line for line in head_lines if line.data["kernel"] not in kernels_paired],
        head,
    )
    judgement = judge(
        [*comparisons([line.data for line in both]), *(relative(comparison) for comparison in comparisons(apart))],
        policy if both and not apart else policy.recorded(),
    )
    return Judged(head.machine, head.env, bool(both) and not apart, judgement, (*base_lines, *head_lines))


def _roles(data: Mapping[str, Any]) -> set[str]:
    return set(data["trees"])


def _is(data: Mapping[str, Any], base: Place, head: Place) -> bool:
    return (
        role_at({**data, "trees": {"base": data["trees"]["base"]}}, base) == "base"
        and role_at({**data, "trees": {"head": data["trees"]["head"]}}, head) == "head"
    )


def _joined(bases: Sequence[TrialLine], base: Place, heads: Sequence[TrialLine], head: Place) -> list[dict[str, Any]]:
    """Trials of two sessions put side by side, in order of time, as if base and head had shared them."""
    joined = []
    for kernel in dict.fromkeys(line.data["kernel"] for line in (*bases, *heads)):
        left = [_as_role(line.data, base, "base") for line in bases if line.data["kernel"] == kernel]
        right = [_as_role(line.data, head, "head") for line in heads if line.data["kernel"] == kernel]
        count = min(len(left), len(right)) or 1
        for number in range(count):
            pair = [side[number] for side in (left, right) if number < len(side)]
            joined.append(
                {
                    **pair[-1],
                    "trial": number,
                    "trees": {k: v for p in pair for k, v in p["trees"].items()},
                    "cases": _cases(pair),
                    "state": None,
                }
            )
    return [data for data in joined if set(data["trees"]) >= set(ROLES)]


def _as_role(data: Mapping[str, Any], place: Place, role: str) -> dict[str, Any]:
    """The trial as seen from one of its trees, which is called `role` from now on."""
    own = role_at(data, place)
    cases = {
        name: {
            **case,
            "arms": {
                f"{role}/{arm.partition('/')[2]}": result
                for arm, result in case["arms"].items()
                if arm.partition("/")[0] == own
            },
        }
        for name, case in data["cases"].items()
    }
    return {**data, "trees": {role: data["trees"][own]}, "cases": cases}


def _cases(pair: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for data in pair for name in data["cases"])
    return {
        name: {
            **next(d["cases"][name] for d in pair if name in d["cases"]),
            "arms": {arm: result for d in pair for arm, result in d["cases"].get(name, {}).get("arms", {}).items()},
        }
        for name in names
    }


def relative(comparison: Comparison) -> Comparison:
    """Times divided by the median of the baseline in their own trial, then scaled back to seconds.

    A comparison without a baseline on both sides stays as it is and says so.
    """
    controlled = [t for t in comparison.trials if t.baseline_base is not None and t.baseline_head is not None]
    if not controlled or len(controlled) < len(comparison.trials):
        warning = "recorded apart and without a vendor baseline: a change of clocks looks like a change of code"
        return (
            dataclasses.replace(comparison, warnings=(*comparison.warnings, warning))
            if comparison.trials
            else comparison
        )
    scale = float(np.exp(np.mean([np.log(_middle(t.baseline_base)) for t in controlled])))
    return dataclasses.replace(comparison, trials=tuple(_relative(t, scale) for t in controlled))


def _relative(trial: PairedRounds, scale: float) -> PairedRounds:
    """Both arms of each side by the middle of its baseline: the share of the baseline stays what it was."""
    base, head = scale / _middle(trial.baseline_base), scale / _middle(trial.baseline_head)
    assert trial.baseline_base is not None
    assert trial.baseline_head is not None
    return dataclasses.replace(
        trial,
        base=trial.base * base,
        head=trial.head * head,
        baseline_base=trial.baseline_base * base,
        baseline_head=trial.baseline_head * head,
    )


def _middle(values: FloatArray | None) -> float:
    assert values is not None
    return float(np.median(values))


def _missing(results: Path, machines: Sequence[str], base: str, head: str) -> str:
    if not machines:
        return f"{results} holds no records; measure with `ridgeline run` or record trial files with `ridgeline record`"
    said = []
    for name in machines:
        have = [
            f"{commit[:8]} in {', '.join(p.env for p in places)}"
            for commit in (base, head)
            if (places := records.places(results, name, commit))
        ]
        said.append(f"{name}: {'; '.join(have) or 'neither'}")
    return (
        f"no machine has recorded both {base[:8]} and {head[:8]} in the same environment ({' | '.join(said)}); "
        "`asv show --results` or the site list what is there; measure the missing one with `ridgeline run`"
    )
