"""judge(comparisons, policy) -> Judgement: a pure function from recorded trials to a verdict with its evidence.

One case: BROKEN, NEW and YARDSTICK CHANGED are settled before any time is looked at; equal code objects are SAME
without timing.  Otherwise the effect and its interval come from `ci.stats`, and

    SLOWER / FASTER  the change is real (false-alarm rate of the policy, controlled over all cases) and at least the
                     effect floor; if the vendor baseline moved too, the ratio to it must have moved as well
    SAME             the whole interval lies within +-same_within, and no real change of at least the floor was found
    CANNOT TELL      anything else

With `progress` (live measuring) the error is split over the looks and SLOWER must be repeated by fresh trials.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from ci.judging import thresholds as floors
from ci.judging import unmeasured
from ci.judging.policy import Policy, Settings
from ci.judging.types import CaseVerdict, Group, Judgement, Verdict
from ci.stats import anomalies, grouping
from ci.stats.measured import Effect, Sample, Scale, adjusted, effects, samples
from ci.stats.multiple import found
from ci.stats.sequential import CONFIRMING_TAIL, Progress, share
from ci.trials.compared import Comparison

NOMINAL = 0.4
"""Share of the allowed false-alarm rate given to the posterior tail; the rest is for what the model does not know.
Chosen on recorded separate runs, where the tail is up to twice as heavy as the model's (ci/stats/study)."""

GROUP_SHARE, MEMBER_TAIL, GROUP_LOCK_STEP = 0.1, 0.01, 0.5
"""Neighbouring shapes: share of the rate for the median over shapes, the tail a shape itself must reach, and how likely
the arms must be in lock-step (shapes of one process that wanders agree with each other for no reason of the code)."""


@dataclasses.dataclass(eq=False)
class _Timed:
    """One case on its way to a verdict."""

    comparison: Comparison
    settings: Settings
    sample: Sample
    control: Sample | None
    warnings: list[str]
    effect: Effect
    control_effect: Effect | None = None
    real: bool = False
    neighbours: int = 0


def judge(comparisons: Sequence[Comparison], policy: Policy, progress: Progress | None = None) -> Judgement:
    """The verdict on all comparisons together; `progress` for live measuring (see `ci.stats.sequential`)."""
    settled = {c.case: said for c in comparisons if (said := unmeasured.settle(c)) is not None}
    timed, undecided = _timed([c for c in comparisons if c.case not in settled], policy)
    settled |= undecided
    _find(timed, progress)
    _borrow(timed, progress)
    settled |= {t.comparison.case: _verdict(t, progress) for t in timed}
    shared = Counter(w for c in comparisons for w in set(c.warnings))
    everywhere = tuple(w for w, n in shared.items() if n == len(comparisons) > 1)
    cases = tuple(_without(settled[c.case], everywhere) for c in comparisons)
    checks = floors.check(comparisons, policy)
    warnings = everywhere + _run_warnings(cases, timed)
    verdict, why = _overall(cases, checks)
    return Judgement(verdict, why, cases, _groups(cases, timed), checks, warnings)


def exit_code(judgement: Judgement) -> int:
    """0 pass, 1 regression, 2 no verdict; nothing compared is 2."""
    return judgement.verdict.exit_code


def to_json(judgement: Judgement) -> dict[str, Any]:
    """The judgement as plain JSON values, `ab --json` (DESIGN section 8); absent numbers are null."""
    cases = [{**dataclasses.asdict(case), "verdict": str(case.verdict)} for case in judgement.cases]
    return {
        "verdict": str(judgement.verdict),
        "why": judgement.why,
        "cases": cases,
        "groups": [dataclasses.asdict(group) for group in judgement.groups],
        "floors": [{**dataclasses.asdict(floor), "new": floor.new} for floor in judgement.floors],
        "warnings": list(judgement.warnings),
    }


def _timed(comparisons: Sequence[Comparison], policy: Policy) -> tuple[list[_Timed], dict[str, CaseVerdict]]:
    """The cases that have enough trials to be fitted, and verdicts on those that have not."""
    chosen = {(c.kernel, c.machine_kind): policy.settings(c.kernel, c.machine_kind) for c in comparisons}
    settings = [chosen[c.kernel, c.machine_kind] for c in comparisons]
    usable = [[t for t in c.trials if len(t.base) >= s.min_rounds] for c, s in zip(comparisons, settings, strict=True)]
    measured, controls = samples(usable), samples(usable, baseline=True)
    timed, undecided = [], {}
    for c, s, sample, control in zip(comparisons, settings, measured, controls, strict=True):
        warnings = list(c.warnings)
        short = len(c.trials) - (sample.trials if sample else 0)
        if short:
            warnings.append(f"{short} of {len(c.trials)} trials left out: fewer than {s.min_rounds} rounds")
        if sample is None or sample.trials < s.min_trials:
            undecided[c.case] = unmeasured.too_few(c, s, sample, warnings)
        else:
            enough = control if control and control.trials >= s.min_trials else None
            timed.append((c, s, sample, enough, warnings))
    fitted = effects([t[2] for t in timed], (_scale(t[1]) for t in timed))
    cases = [_Timed(*t, effect) for t, effect in zip(timed, fitted, strict=True)]
    controlled = [t for t in cases if t.control]
    for t, effect in zip(
        controlled,
        effects([t.control for t in controlled if t.control], (_scale(t.settings) for t in controlled)),
        strict=True,
    ):
        t.control_effect = effect
    return cases, undecided


def _scale(settings: Settings) -> Scale:
    return Scale(settings.trial_noise, math.log1p(settings.arm_bias), settings.confidence)


def _allowed(t: _Timed, progress: Progress | None) -> float:
    """Tail probability at which a change of this case is real."""
    part = share(t.sample.trials, progress.looks) if progress else 1.0
    return NOMINAL * t.settings.false_alarm * part


def _find(timed: list[_Timed], progress: Progress | None) -> None:
    """Mark the changes that are real, over all cases together."""
    p_values = np.array([t.effect.p_value for t in timed])
    each = np.array([_allowed(t, progress) for t in timed])
    strictest = min((t.settings.false_share for t in timed), default=1.0)
    for t, real in zip(timed, found(p_values, each, strictest), strict=True):
        t.real = bool(real)


def _borrow(timed: list[_Timed], progress: Progress | None) -> None:
    """The shapes of one kernel speak together: if their median moved, a shape that leans that way is a finding too."""
    together = []
    for members in grouping.neighbours([(t.comparison.kernel, t.comparison.backend) for t in timed]):
        sample = grouping.together([timed[i].sample for i in members], robust=True)
        if sample is not None and sample.trials >= timed[members[0]].settings.min_trials:
            together.append((members, sample))
    fitted = effects([sample for _, sample in together], (_scale(timed[m[0]].settings) for m, _ in together))
    for (members, _), effect in zip(together, fitted, strict=True):
        first = timed[members[0]]
        certain = effect.p_value <= GROUP_SHARE * _allowed(first, progress) and effect.lock_step >= GROUP_LOCK_STEP
        if not certain or not _beyond_floor(effect, first.settings):
            continue
        for t in (timed[i] for i in members):
            tail = t.effect.not_slower if effect.log_ratio > 0 else t.effect.not_faster
            if not t.real and tail <= MEMBER_TAIL:
                t.real, t.neighbours = True, len(members) - 1


def _beyond_floor(effect: Effect, settings: Settings) -> bool:
    return abs(effect.log_ratio) >= math.log1p(settings.effect_floor)


def _moved(control: Effect, settings: Settings) -> bool:
    """Whether a control, which should not, has moved."""
    return control.p_value <= NOMINAL * settings.false_alarm and _beyond_floor(control, settings)


def _verdict(t: _Timed, progress: Progress | None) -> CaseVerdict:
    verdict, evidence = _from_effect(t)
    warnings = t.warnings + anomalies.clock_warnings(t.comparison.trials) + _wander(t)
    if verdict in (Verdict.SLOWER, Verdict.FASTER) and t.control_effect:
        verdict, blame = _against_control(t, verdict, progress)
        warnings += blame
    verdict, tail_evidence, tail_warnings = _tails(t, verdict)
    evidence += tail_evidence
    if t.comparison.same_code:
        if verdict in (Verdict.SLOWER, Verdict.FASTER):
            tail_warnings.append(
                f"the times alone would say {verdict}: look at what surrounds the code "
                "(grid, arguments, launch order, a busy machine)"
            )
        verdict, evidence = Verdict.SAME, [unmeasured.SAME_CODE, *evidence]
    confirmed = True
    if verdict is Verdict.SLOWER and progress:
        verdict, confirmed, said = _confirmation(t, progress)
        evidence.append(said)
    budget = (progress.looks if progress else t.settings.looks)[-1]
    return CaseVerdict(
        t.comparison.case,
        t.comparison.kernel,
        t.comparison.backend,
        verdict,
        math.exp(t.effect.log_ratio),
        math.exp(t.effect.low),
        math.exp(t.effect.high),
        t.effect.p_value,
        t.sample.trials,
        t.sample.rounds,
        t.sample.base_seconds,
        t.sample.head_seconds,
        wants_more=not confirmed or (verdict is Verdict.CANNOT_TELL and t.sample.trials < budget),
        evidence=tuple(evidence),
        warnings=tuple(warnings + tail_warnings),
    )


def _from_effect(t: _Timed) -> tuple[Verdict, list[str]]:
    """The verdict of the interval alone, and why."""
    s, e = t.settings, t.effect
    scatter = float(t.sample.shifts.shift.std(ddof=1))
    evidence = [
        f"{math.expm1(e.log_ratio):+.2%}, {s.confidence:.0%} interval {math.expm1(e.low):+.2%} to "
        f"{math.expm1(e.high):+.2%}, from {t.sample.trials} trials of {t.sample.rounds} rounds whose ratios "
        f"differ by {scatter:.2%} (standard deviation)"
    ]
    within = max(abs(e.low), abs(e.high)) <= math.log1p(s.same_within)
    if t.real and _beyond_floor(e, s):
        if t.neighbours:
            evidence.append(
                f"alone it would be CANNOT TELL; the median of it and {t.neighbours} neighbouring shapes "
                "moved the same way"
            )
        return (Verdict.SLOWER if e.log_ratio > 0 else Verdict.FASTER), evidence
    if within and t.real:
        evidence.append(f"a real change, but below the effect floor of {s.effect_floor:.1%}")
        return Verdict.SAME, evidence
    leans = _beyond_floor(e, s) and (e.low > 0 or e.high < 0)
    if within and not leans:
        evidence.append(f"the whole interval lies within {s.same_within:.1%} of no change")
        return Verdict.SAME, evidence
    evidence.append(
        "the interval excludes no change, but not as surely as the false-alarm rate asks"
        if leans
        else f"the interval reaches beyond {s.same_within:.1%}: neither a change nor its absence is shown"
    )
    return Verdict.CANNOT_TELL, evidence


def _against_control(t: _Timed, verdict: Verdict, progress: Progress | None) -> tuple[Verdict, list[str]]:
    """If the vendor baseline moved between the trees, the machine did: only the ratio to it counts then."""
    control, s = t.control_effect, t.settings
    if control is None or t.control is None or not _moved(control, s):
        return verdict, []
    name = t.comparison.baseline or "the control"
    blame = (
        f"the machine moved: {name}, the same library in both trees, changed by "
        f"{math.expm1(control.log_ratio):+.2%} ({math.expm1(control.low):+.2%} to "
        f"{math.expm1(control.high):+.2%})"
    )
    relative = adjusted(t.sample, t.control)
    if relative is not None:
        effect = effects([relative], [_scale(s)])[0]
        tail = effect.not_slower if verdict is Verdict.SLOWER else effect.not_faster
        said = f"; relative to it the change is {math.expm1(effect.log_ratio):+.2%}"
        if 2 * tail <= _allowed(t, progress) and _beyond_floor(effect, s):
            return verdict, [blame + said + ", which stands"]
        blame += said + ", which is no finding"
    return Verdict.CANNOT_TELL, [blame]


def _tails(t: _Timed, verdict: Verdict) -> tuple[Verdict, list[str], list[str]]:
    """Intermittent collapse and two speeds: (verdict, evidence, warnings)."""
    base, head = t.sample.base_relative, t.sample.head_relative
    evidence, warnings = [], anomalies.bimodal_sentences(base, head, t.sample.shifts.shift)
    worse, better = anomalies.collapse(head, base), anomalies.collapse(base, head)
    if worse and worse.real:
        evidence.append(worse.sentence("head"))
        if t.settings.collapse == "slower":
            verdict = Verdict.SLOWER
    elif worse and worse.probability < 0.01:
        warnings.append(worse.sentence("head"))
    if better and better.real:
        warnings.append(better.sentence("base"))
    return verdict, evidence, warnings


def _wander(t: _Timed) -> list[str]:
    if t.effect.lock_step > 0.1:
        return []
    return [
        "the arms look as if measured apart: trials differ by far more than their rounds explain; measure both "
        "trees in lock-step (ridgeline ab BASE HEAD)"
    ]


def _confirmation(t: _Timed, progress: Progress) -> tuple[Verdict, bool, str]:
    """(verdict, settled, evidence) of a SLOWER in live measuring: trials without part in the finding must repeat it."""
    seen = progress.flagged.get(t.comparison.case)
    fresh = t.sample.trials - seen if seen is not None else 0
    if seen is None or fresh < progress.confirming:
        return Verdict.SLOWER, False, f"to be confirmed: {fresh} of {progress.confirming} fresh trials so far"
    alone = effects([t.sample.only(range(seen, t.sample.trials))], [_scale(t.settings)])[0]
    said = f"{fresh} fresh trials on their own say {math.expm1(alone.log_ratio):+.2%}"
    if alone.not_slower <= CONFIRMING_TAIL or any("collapse" in s for s in _tails(t, Verdict.SAME)[1]):
        return Verdict.SLOWER, True, f"confirmed: {said}"
    return Verdict.CANNOT_TELL, True, f"not confirmed: {said}"


def _groups(cases: Sequence[CaseVerdict], timed: Sequence[_Timed]) -> tuple[Group, ...]:
    """Findings of one kernel and backend in one direction, two or more: one cause is likely."""
    by_case = {t.comparison.case: t for t in timed}
    moved: dict[tuple[str, str, str], list[str]] = {}
    for case in cases:
        if case.verdict in (Verdict.SLOWER, Verdict.FASTER):
            moved.setdefault((case.kernel, case.backend, str(case.verdict).lower()), []).append(case.case)
    groups = []
    for (kernel, backend, direction), names in moved.items():
        sample = grouping.together([by_case[n].sample for n in names], robust=False) if len(names) > 1 else None
        if sample is None:
            continue
        of_kernel = sum(1 for c in cases if (c.kernel, c.backend) == (kernel, backend) and c.ratio is not None)
        effect = effects([sample], [_scale(by_case[names[0]].settings)])[0]
        groups.append(
            Group(
                kernel,
                backend,
                "slower" if direction == "slower" else "faster",
                tuple(names),
                math.exp(effect.log_ratio),
                math.exp(effect.low),
                math.exp(effect.high),
                f"{len(names)} of {of_kernel} shapes moved the same way, by {math.expm1(effect.log_ratio):+.2%} on "
                "average",
            )
        )
    return tuple(groups)


def _run_warnings(cases: Sequence[CaseVerdict], timed: Sequence[_Timed]) -> tuple[str, ...]:
    counts = Counter(case.verdict for case in cases)
    one_sided = grouping.one_sided(counts[Verdict.SLOWER], counts[Verdict.FASTER])
    controls = [t for t in timed if t.control_effect]
    moved = [t for t in controls if t.control_effect and _moved(t.control_effect, t.settings)]
    said = [one_sided] if one_sided else []
    if moved:
        said.append(
            f"the vendor baseline, the same on both sides, moved in {len(moved)} of {len(controls)} cases: "
            "the machine was not the same for both trees"
        )
    return tuple(said)


def _without(case: CaseVerdict, shared: tuple[str, ...]) -> CaseVerdict:
    if not shared:
        return case
    return dataclasses.replace(case, warnings=tuple(w for w in case.warnings if w not in shared))


def _overall(cases: Sequence[CaseVerdict], checks: Sequence[Any]) -> tuple[Verdict, str]:
    """(verdict, one sentence): the worst of the cases; a floor newly missed counts as SLOWER."""
    counts: Counter[Verdict] = Counter(case.verdict for case in cases if case.verdict is not Verdict.NEW)
    verdict = Verdict.worst(counts)
    missed = sum(1 for check in checks if check.new)
    listed = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
    new = sum(1 for case in cases if case.verdict is Verdict.NEW)
    why = f"{sum(counts.values())} cases compared: {listed}" if counts else "nothing was compared"
    if new:
        why += f"; {new} NEW, without a base to compare with"
    if missed:
        why += f"; {missed} below the floor against the vendor baseline"
        verdict = verdict if verdict in (Verdict.BROKEN, Verdict.SLOWER) else Verdict.SLOWER
    return verdict, why
