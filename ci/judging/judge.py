"""judge(comparisons, policy) -> Judgement: a pure function from recorded trials to a verdict with its evidence.

One case: the states of both sides (`ci.judging.types`) and the benchmark definition are looked at before any time;
equal code objects are SAME without timing.  Otherwise the effect and its interval come from `ci.stats`, and

    SLOWER / FASTER  the change is real (false-alarm rate of the policy, controlled over all cases) and at least the
                     smallest effect; if the baseline moved too, the ratio to it must have moved as well
    SAME             the whole interval lies within +-same_within, and no real change of the smallest effect was found;
                     of what ran on a CPU, whose smallest effect is large, not where the whole interval says slower
    CANNOT TELL      anything else

With `progress` (live measuring) the error is split over the looks and SLOWER must be repeated by fresh trials.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from benchmarks import trial_file
from ci.judging.policy import PROGRAM, FloorRule, Policy, Settings
from ci.judging.types import (
    CaseVerdict,
    Floor,
    Group,
    Judgement,
    Verdict,
    case_verdict,
    is_meant_to_be_gone,
    verdict_by_states,
)
from ci.stats import FloatArray, PairedRounds, anomalies
from ci.stats.interval import Effect, Sample, Scale, adjusted, effects, samples
from ci.stats.sequential import (
    CONFIRMING_TAIL,
    MOST_TRIALS,
    SURE,
    DecisionRule,
    Progress,
    SoFar,
    TrialSeconds,
    error_share,
    groups_of_equal,
    joined_sample,
    next_rounds,
    one_sided,
    probability_decided,
    significant,
    trials_needed,
)
from ci.trials.comparisons import Comparison, Status
from ci.trials.trial import Trial

# Floors against the baseline: is ours at least so many times as fast as what a user would call otherwise?


def check(comparisons: Sequence[Comparison], policy: Policy) -> tuple[Floor, ...]:
    """Every floor that applies to a comparison whose head ran, in order."""
    rows = [
        (c, rule, settings_for(c, policy))
        for c in comparisons
        if c.head_status is Status.OK and not c.problems
        for rule in policy.floor_rules(c.kernel, c.backend, c.case)
        if rule.baseline in ("*", c.baseline) or c.baseline is None
    ]
    found = samples([baseline_pairs(c, settings.min_rounds) for c, _, settings in rows])
    timed = [
        (i, sample, Scale(settings.trial_noise, 0.0, settings.confidence))
        for i, (sample, (_, _, settings)) in enumerate(zip(found, rows, strict=True))
        if sample is not None and sample.trials >= settings.min_trials
    ]
    fitted = effects([sample for _, sample, _ in timed], (scale for _, _, scale in timed))
    shares = {i: effect for (i, _, _), effect in zip(timed, fitted, strict=True)}
    return tuple(_floor(c, rule, shares.get(i)) for i, (c, rule, _) in enumerate(rows))


def settings_for(c: Comparison, policy: Policy) -> Settings:
    """What the policy says of a case."""
    return policy.settings(c.kernel, c.machine_kind + PROGRAM * c.by_program)


def baseline_pairs(c: Comparison, min_rounds: int) -> list[PairedRounds]:
    """Head against its baseline, as if they were base and head."""
    timed = [(t, t.baseline_head) for t in c.trials if t.baseline_head is not None]
    return [
        PairedRounds(t.number, t.head, baseline)
        for t, baseline in timed
        if len(baseline) == len(t.head) and len(baseline) >= min_rounds
    ]


def _base_share(c: Comparison) -> float | None:
    """Median over the trials of baseline time / our time on the side of base."""
    shares = [np.median(t.baseline_base) / np.median(t.base) for t in c.trials if t.baseline_base is not None]
    return float(np.median(shares)) if shares else None


def _floor(c: Comparison, rule: FloorRule, share: Effect | None) -> Floor:
    baseline, base_share = c.baseline or rule.baseline, _base_share(c)
    if share is None:
        return Floor(c.case, baseline, rule.share, rule.reason, "absent", base_share=base_share)
    middle, low, high = share.ratios
    state: Literal["met", "missed", "cannot tell"] = "cannot tell"
    if high < rule.share or low >= rule.share:
        state = "missed" if high < rule.share else "met"
    return Floor(c.case, baseline, rule.share, rule.reason, state, middle, low, high, base_share)


# Verdicts that need no times: by the states of both sides, the benchmark definition, equal code, unusable data.


SAME_CODE = "both sides run the same code (equal code objects, or equal files of the kernel): SAME without timing"


def verdict_without_times(comparison: Comparison, renamed: Mapping[str, str]) -> CaseVerdict | None:
    """The verdict on a case whose times do not matter; None for one that must be judged by its times.

    The order matters: a head that is wrong is BROKEN whatever else changed, and a fault in the data comes before any
    statement about the code.  renamed: see kernels.project.
    """
    by_states = verdict_by_states(comparison, renamed)
    if by_states is None and comparison.problems:
        return case_verdict(comparison, Verdict.CANNOT_TELL, *comparison.problems)
    return by_states or verdict_by_definition(comparison)


def verdict_by_definition(c: Comparison) -> CaseVerdict | None:
    """NOT COMPARABLE where something else was measured, SAME for equal code that was not timed."""
    if c.base_definition and c.head_definition and c.base_definition != c.head_definition:
        digests = f"base {c.base_definition}, head {c.head_definition}"
        changed = "; ".join(c.definition_changes) or f"inputs, cost, reference, baseline or protocol ({digests})"
        why = "so the times are not of the same thing"
        return case_verdict(c, Verdict.NOT_COMPARABLE, f"the benchmark definition changed, {why}: {changed}")
    return case_verdict(c, Verdict.SAME, SAME_CODE) if c.same_code and not c.trials else None


def too_few(c: Comparison, settings: Settings, sample: Sample | None, warnings: list[str]) -> CaseVerdict:
    """CANNOT TELL for want of trials, unless both sides launch equal code; the ratio there has no interval."""
    if c.same_code:
        return case_verdict(c, Verdict.SAME, SAME_CODE)
    trials = sample.trials if sample else 0
    usable = f"{trials} usable trial{'s' * (trials != 1)}, at least {settings.min_trials} are needed"
    base, head = (sample.base_seconds, sample.head_seconds) if sample else (None, None)
    return CaseVerdict(
        *(c.case, c.kernel, c.backend, Verdict.CANNOT_TELL),
        ratio=head / base if base and head else None,
        trials=trials,
        rounds=sample.rounds if sample else 0,
        base_seconds=base,
        head_seconds=head,
        wants_more=True,
        evidence=(f"{usable}: the rounds of one start of the processes say nothing about the next",),
        warnings=tuple(warnings),
    )


def stand_in_times(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """A sentence on each case of a backend that stands in for a GPU: its times, which are not judged."""
    for c in comparisons:
        base, head = (float(np.median([np.median(getattr(t, role)) for t in c.trials])) for role in ("base", "head"))
        times = f"{base * 1e6:,.1f} → {head * 1e6:,.1f} µs ({_percent(math.log(head / base))})"
        yield f"{c.case} only stands in for a GPU and is not judged: {times}"


Logs = float | FloatArray
Flags = npt.NDArray[np.bool_]

NOMINAL = 0.4
"""Share of the allowed false-alarm rate given to the posterior tail; the rest is for what the model does not know.
Chosen on recorded separate runs, where the tail is up to twice as heavy as the model's (tests/study/ab_study.md,
2026-11-20)."""

GROUP_SHARE, MEMBER_TAIL, GROUP_LOCK_STEP = 0.1, 0.01, 0.5
"""Neighbouring shapes: share of the rate for the median over shapes, the tail a shape itself must reach, and how likely
the arms must be in lock-step (shapes of one process that drifts agree with each other for no reason of the code).
Chosen on the H200 recordings (2026-11-20)."""

APART_BELOW = 0.1
"""A case whose arms saw the same machine with less probability than this is said to scatter (2026-11-20)."""


@dataclasses.dataclass(eq=False)
class _Timed:
    """One case on its way to a verdict."""

    comparison: Comparison
    settings: Settings
    sample: Sample
    baseline: Sample | None
    warnings: list[str]
    effect: Effect = dataclasses.field(init=False)
    baseline_effect: Effect | None = None
    real: bool = False
    neighbours: int = 0

    @property
    def scale(self) -> Scale:
        """What `effects` needs to know of the policy of this case."""
        return Scale(self.settings.trial_noise, math.log1p(self.settings.arm_bias), self.settings.confidence)

    @property
    def slower_on_cpu(self) -> bool:
        """Whether its whole interval says slower, if only by less than the smallest effect, which is large on a CPU."""
        return self.comparison.machine_kind == "cpu" and self.effect.low > 0

    @property
    def baseline_moved(self) -> bool:
        """Whether the baseline, which should not, has moved."""
        effect, settings = self.baseline_effect, self.settings
        if effect is None or effect.p_value > NOMINAL * settings.false_alarm:
            return False
        return bool(is_large(effect.log_ratio, settings))


@dataclasses.dataclass
class _Draft:
    """The verdict on one case while reasons are added to it.

    collapsed: head collapses intermittently, beyond doubt.  confirmed: fresh trials need not repeat it.
    """

    verdict: Verdict
    evidence: list[str]
    warnings: list[str] = dataclasses.field(default_factory=list)
    collapsed: bool = False
    confirmed: bool = True

    @property
    def changed(self) -> bool:
        """SLOWER or FASTER."""
        return self.verdict in (Verdict.SLOWER, Verdict.FASTER)


def judge(comparisons: Sequence[Comparison], policy: Policy, progress: Progress | None = None) -> Judgement:
    """The verdict on all comparisons together; `progress` for live measuring (see `ci.stats.sequential`)."""
    without_times = ((c.case, verdict_without_times(c, policy.renamed)) for c in comparisons)
    settled = {case: verdict for case, verdict in without_times if verdict is not None}
    stand_ins = [c for c in comparisons if c.stands_in and c.trials and c.case not in settled]
    comparisons = [c for c in comparisons if c not in stand_ins]
    timed, undecided = _timed([c for c in comparisons if c.case not in settled], policy)
    settled |= undecided
    _find(timed, progress)
    _borrow(timed, progress)
    settled |= {t.comparison.case: _verdict(t, progress) for t in timed}
    shared = Counter(w for c in comparisons for w in set(c.warnings))
    everywhere = tuple(w for w, n in shared.items() if n == len(comparisons) > 1)
    cases = tuple(_without(settled[c.case], everywhere) for c in comparisons)
    floors = check(comparisons, policy)
    warnings = (*everywhere, *_run_warnings(cases, timed), *stand_in_times(stand_ins))
    expected = {c.case for c in comparisons if is_meant_to_be_gone(c, policy.renamed)}
    verdict, why = _overall(cases, floors, expected)
    return Judgement(verdict, why, cases, _groups(cases, timed), floors, warnings)


# ---- which changes are real ---------------------------------------------------------------------------------------


def _timed(comparisons: Sequence[Comparison], policy: Policy) -> tuple[list[_Timed], dict[str, CaseVerdict]]:
    """The cases that have enough trials to be fitted, and verdicts on those that have not."""
    chosen = {(c.kernel, c.machine_kind): settings_for(c, policy) for c in comparisons}
    settings = [chosen[c.kernel, c.machine_kind] for c in comparisons]
    usable = [[t for t in c.trials if len(t.base) >= s.min_rounds] for c, s in zip(comparisons, settings, strict=True)]
    measured, baselines = samples(usable), samples(usable, baseline=True)
    enough, undecided = list[_Timed](), {}
    for c, s, sample, baseline in zip(comparisons, settings, measured, baselines, strict=True):
        short = len(c.trials) - (sample.trials if sample else 0)
        left_out = f"{short} of {len(c.trials)} trials left out: fewer than {s.min_rounds} rounds"
        warnings = [*c.warnings, *([left_out] if short else [])]
        if c.of_ranks and sample and sample.base_seconds:
            s = s.of_ranks(sample.base_seconds)
        if sample is None or sample.trials < s.min_trials:
            undecided[c.case] = too_few(c, s, sample, warnings)
        else:
            beside = baseline if baseline and baseline.trials >= s.min_trials else None
            enough.append(_Timed(c, s, sample, beside, warnings))
    for t, effect in zip(enough, effects([t.sample for t in enough], (t.scale for t in enough)), strict=True):
        t.effect = effect
    with_baseline = [(t, t.baseline) for t in enough if t.baseline]
    fitted = effects([baseline for _, baseline in with_baseline], (t.scale for t, _ in with_baseline))
    for (t, _), effect in zip(with_baseline, fitted, strict=True):
        t.baseline_effect = effect
    return enough, undecided


def _allowed(t: _Timed, progress: Progress | None) -> float:
    """Tail probability at which a change of this case is real."""
    part = error_share(t.sample.trials, progress.looks) if progress else 1.0
    return NOMINAL * t.settings.false_alarm * part


def _find(timed: list[_Timed], progress: Progress | None) -> None:
    """Mark the changes that are real, over all cases together."""
    p_values = np.array([t.effect.p_value for t in timed])
    each = np.array([_allowed(t, progress) for t in timed])
    strictest = min((t.settings.false_share for t in timed), default=1.0)
    for t, real in zip(timed, significant(p_values, each, strictest), strict=True):
        t.real = bool(real)


def _borrow(timed: list[_Timed], progress: Progress | None) -> None:
    """If the median of all shapes of one kernel moved, a shape that leans the same way is a finding too."""
    together = []
    for members in groups_of_equal([(t.comparison.kernel, t.comparison.backend) for t in timed]):
        sample = joined_sample([timed[i].sample for i in members], robust=True)
        if sample is not None and sample.trials >= timed[members[0]].settings.min_trials:
            together.append((members, sample))
    fitted = effects([sample for _, sample in together], (timed[m[0]].scale for m, _ in together))
    for (members, _), effect in zip(together, fitted, strict=True):
        first = timed[members[0]]
        certain = effect.p_value <= GROUP_SHARE * _allowed(first, progress) and effect.lock_step >= GROUP_LOCK_STEP
        if certain and is_large(effect.log_ratio, first.settings):
            _lend([timed[i] for i in members], effect)


def _lend(members: Sequence[_Timed], effect: Effect) -> None:
    """Mark the members that lean the way their median moved."""
    for t in members:
        tail = t.effect.not_slower if effect.log_ratio > 0 else t.effect.not_faster
        if not t.real and tail <= MEMBER_TAIL:
            t.real, t.neighbours = True, len(members) - 1


def is_large(log_ratio: Logs, settings: Settings) -> Flags:
    """Whether a change is at least the smallest effect, of one case or of an array of them."""
    return np.abs(log_ratio) >= math.log1p(settings.smallest_effect)


def _percent(log_ratio: float) -> str:
    return f"{math.expm1(log_ratio):+.2%}"


# ---- one case -----------------------------------------------------------------------------------------------------


def _verdict(t: _Timed, progress: Progress | None) -> CaseVerdict:
    draft = _from_effect(t)
    draft.warnings += t.warnings + anomalies.clock_warnings(t.comparison.trials) + _scattering(t)
    draft.warnings += anomalies.too_fast(t.effect.log_ratio)
    _beside_baseline(t, draft, progress)
    _add_anomalies(t, draft)
    if t.comparison.same_code:
        _equal_code(draft)
    if draft.verdict is Verdict.SLOWER and progress:
        _confirm(t, draft, progress)
    return _case_verdict(t, draft, progress)


def _case_verdict(t: _Timed, draft: _Draft, progress: Progress | None) -> CaseVerdict:
    c, sample, undecided = t.comparison, t.sample, draft.verdict is Verdict.CANNOT_TELL
    hope = Outlook(sample.trials < t.settings.looks[-1])
    if progress and undecided and t.slower_on_cpu:
        hope = Outlook(sample.trials < progress.budget)
    elif progress and undecided:
        hope = expected(t.effect, sample.trials, t.settings, _allowed(t, progress), progress)
    return CaseVerdict(
        *(c.case, c.kernel, c.backend, draft.verdict),
        *t.effect.ratios,
        p_value=t.effect.p_value,
        trials=sample.trials,
        rounds=sample.rounds,
        base_seconds=sample.base_seconds,
        head_seconds=sample.head_seconds,
        wants_more=not draft.confirmed or (undecided and hope.going_on),
        more_trials=hope.more_trials,
        evidence=(*draft.evidence, *filter(None, [hope.said])),
        warnings=tuple(draft.warnings),
    )


def _from_effect(t: _Timed) -> _Draft:
    """The verdict of the interval alone, and why."""
    s, e = t.settings, t.effect
    large, within = bool(is_large(e.log_ratio, s)), max(abs(e.low), abs(e.high)) <= math.log1p(s.same_within)
    leans = large and (e.low > 0 or e.high < 0)
    if t.real and large:
        verdict = Verdict.SLOWER if e.log_ratio > 0 else Verdict.FASTER
        beside = f"the median of it and {t.neighbours} neighbouring shapes moved the same way"
        said = f"alone it would be CANNOT TELL; {beside}" if t.neighbours else ""
    elif within and t.slower_on_cpu and not large:
        verdict = Verdict.CANNOT_TELL
        said = f"the whole interval says slower, by less than the smallest effect on a CPU ({s.smallest_effect:.1%})"
    elif within and t.real:
        verdict, said = Verdict.SAME, f"a real change, but below the smallest effect of {s.smallest_effect:.1%}"
    elif within and not leans:
        verdict, said = Verdict.SAME, f"the whole interval lies within {s.same_within:.1%} of no change"
    elif leans:
        verdict = Verdict.CANNOT_TELL
        said = "the interval excludes no change, but not as surely as the false-alarm rate asks"
    else:
        verdict = Verdict.CANNOT_TELL
        said = f"the interval reaches beyond {s.same_within:.1%}: neither a change nor its absence is shown"
    return _Draft(verdict, [_numbers(t), *([said] if said else [])])


def _numbers(t: _Timed) -> str:
    """The effect in one sentence."""
    e, scatter = t.effect, float(t.sample.shifts.shift.std(ddof=1))
    interval = f"{t.settings.confidence:.0%} interval {_percent(e.low)} to {_percent(e.high)}"
    source = f"from {t.sample.trials} trials of {t.sample.rounds} rounds"
    return f"{_percent(e.log_ratio)}, {interval}, {source} whose ratios differ by {scatter:.2%} (standard deviation)"


def _beside_baseline(t: _Timed, draft: _Draft, progress: Progress | None) -> None:
    """If the baseline moved between the sides, the machine did: only the ratio to it counts then."""
    if not draft.changed or not t.baseline_moved or t.baseline is None or t.baseline_effect is None:
        return
    name = t.comparison.baseline or "the baseline"
    by = t.baseline_effect
    change = f"{_percent(by.log_ratio)} ({_percent(by.low)} to {_percent(by.high)})"
    said = f"the machine moved: {name}, the same library on both sides, changed by {change}"
    stands, relative = False, adjusted(t.sample, t.baseline)
    if relative is not None:
        effect = effects([relative], [t.scale])[0]
        tail = effect.not_slower if draft.verdict is Verdict.SLOWER else effect.not_faster
        stands = 2 * tail <= _allowed(t, progress) and bool(is_large(effect.log_ratio, t.settings))
        outcome = "which stands" if stands else "which is not a finding"
        said += f"; relative to it the change is {_percent(effect.log_ratio)}, {outcome}"
    draft.verdict = draft.verdict if stands else Verdict.CANNOT_TELL
    draft.warnings.append(said)


def _add_anomalies(t: _Timed, draft: _Draft) -> None:
    """Intermittent collapse of head is SLOWER; all other anomalies are warnings."""
    for anomaly in anomalies.of_pair(t.sample.base_relative, t.sample.head_relative, t.sample.shifts.shift):
        if anomaly.collapse and anomaly.arm == "head":
            draft.collapsed = True
            draft.evidence.append(anomaly.sentence)
            draft.verdict = Verdict.SLOWER
        else:
            draft.warnings.append(anomaly.sentence)


def _equal_code(draft: _Draft) -> None:
    """Equal code cannot have become slower: what the times say is a warning."""
    if draft.changed:
        causes = "grid, arguments, launch order, a busy machine"
        draft.warnings.append(f"the times alone would say {draft.verdict}: look at what surrounds the code ({causes})")
    draft.verdict, draft.evidence = Verdict.SAME, [SAME_CODE, *draft.evidence]


def _scattering(t: _Timed) -> list[str]:
    """Of arms that did not see the same machine: measured apart, unless it is known that they ran in turn."""
    if t.effect.lock_step > APART_BELOW:
        return []
    seen = "trials differ by far more than their rounds explain"
    if t.comparison.lock_step:
        return [f"{seen}: something else changed between them; `ridgeline doctor` looks for other work on the machine"]
    return [f"the arms look as if measured apart: {seen}; measure both sides in turn, as `ridgeline ab` does"]


def _confirm(t: _Timed, draft: _Draft, progress: Progress) -> None:
    """In live measuring, trials without part in a finding of SLOWER must repeat it."""
    seen = progress.flagged.get(t.comparison.case)
    fresh = t.sample.trials - seen if seen is not None else 0
    if seen is None or fresh < progress.confirming:
        draft.confirmed = False
        draft.evidence.append(f"to be confirmed: {fresh} of {progress.confirming} fresh trials so far")
        return
    alone = effects([t.sample.of(t.sample.numbers[seen:])], [t.scale])[0]
    repeated = alone.not_slower <= CONFIRMING_TAIL or draft.collapsed
    draft.verdict = Verdict.SLOWER if repeated else Verdict.CANNOT_TELL
    outcome = "confirmed" if repeated else "not confirmed"
    draft.evidence.append(f"{outcome}: {fresh} fresh trials on their own say {_percent(alone.log_ratio)}")


# ---- all cases ----------------------------------------------------------------------------------------------------


def _groups(cases: Sequence[CaseVerdict], timed: Sequence[_Timed]) -> tuple[Group, ...]:
    """Findings of one kernel and backend in one direction, two or more: one cause is likely."""
    by_case = {t.comparison.case: t for t in timed}
    moved: dict[tuple[str, str, Verdict], list[_Timed]] = {}
    for case in cases:
        if case.verdict in (Verdict.SLOWER, Verdict.FASTER):
            moved.setdefault((case.kernel, case.backend, case.verdict), []).append(by_case[case.case])
    of_kernel = Counter((c.kernel, c.backend) for c in cases if c.ratio is not None)
    made = (
        _group(kernel, backend, verdict, members, of_kernel[kernel, backend])
        for (kernel, backend, verdict), members in moved.items()
        if len(members) > 1
    )
    return tuple(group for group in made if group is not None)


def _group(kernel: str, backend: str, verdict: Verdict, members: Sequence[_Timed], of_kernel: int) -> Group | None:
    """The members as one finding; None if they share fewer than 3 trials."""
    sample = joined_sample([t.sample for t in members], robust=False)
    if sample is None:
        return None
    effect = effects([sample], [members[0].scale])[0]
    return Group(
        *(kernel, backend, "slower" if verdict is Verdict.SLOWER else "faster"),
        tuple(t.comparison.case for t in members),
        *effect.ratios,
        f"{len(members)} of {of_kernel} shapes moved the same way",
    )


def _run_warnings(cases: Sequence[CaseVerdict], timed: Sequence[_Timed]) -> tuple[str, ...]:
    counts = Counter(case.verdict for case in cases)
    all_one_way = one_sided(counts[Verdict.SLOWER], counts[Verdict.FASTER])
    beside = [t for t in timed if t.baseline_effect]
    moved = [t for t in beside if t.baseline_moved]
    said = [all_one_way] if all_one_way and not _machine_cleared(cases, timed) else []
    if moved:
        where = f"moved in {len(moved)} of {len(beside)} cases"
        machine = "the machine was not the same for both sides"
        said.append(f"the baseline, the same on both sides, {where}: {machine}")
    return tuple(said)


def _machine_cleared(cases: Sequence[CaseVerdict], timed: Sequence[_Timed]) -> bool:
    """Whether baselines, timed in the same trials as the findings, all stood still."""
    changed = {case.case for case in cases if case.verdict in (Verdict.SLOWER, Verdict.FASTER)}
    beside = [t for t in timed if t.comparison.case in changed and t.baseline_effect]
    return bool(beside) and not any(t.baseline_moved for t in beside)


def _without(case: CaseVerdict, shared: tuple[str, ...]) -> CaseVerdict:
    if not shared:
        return case
    return dataclasses.replace(case, warnings=tuple(w for w in case.warnings if w not in shared))


def _overall(cases: Sequence[CaseVerdict], floors: Sequence[Floor], expected: Container[str]) -> tuple[Verdict, str]:
    """(verdict, one sentence): the worst of the cases; a newly missed floor counts as SLOWER.

    expected: cases that pass where they are GONE, because the settings say so.
    """
    counts = Counter(case.verdict for case in cases)
    missed = sum(1 for floor in floors if floor.new)
    meant = [case.verdict is Verdict.GONE and case.case in expected for case in cases]
    counting = [Verdict.SAME if passes else case.verdict for case, passes in zip(cases, meant, strict=True)]
    verdict = Verdict.worst([*counting, *([Verdict.SLOWER] if missed else [])])
    new, lost = counts.pop(Verdict.NEW, 0), counts.pop(Verdict.GONE, 0)
    listed = ", ".join(f"{counts[v]} {v}" for v in Verdict if counts[v])
    compared = sum(counts.values())
    said = [f"{compared} case{'s' * (compared != 1)} compared: {listed}"] if counts else []
    if new:
        said.append(f"{new} NEW: right, without a base to compare with")
    if lost:
        said.append(f"{lost} GONE{f', {sum(meant)} as the settings say' if any(meant) else ''}")
    if missed:
        said.append(f"{missed} below the floor against the baseline")
    return verdict, "; ".join(said) or "nothing was compared"


# In live measuring: whether it is worth going on with an undecided case, what it would take, and with which rounds.


@dataclasses.dataclass(frozen=True)
class Outlook:
    """What is to be expected of more trials.  going_on: the budget may decide it.

    more_trials: how many would probably decide it, where they are not measured.  said: why it stops, "" if it goes on.
    """

    going_on: bool
    more_trials: int | None = None
    said: str = ""


def expected(effect: Effect, trials: int, settings: Settings, tail: float, progress: Progress) -> Outlook:
    """Of a case that is CANNOT TELL after so many trials.  tail: the two-sided one at which a change is real."""
    if trials < progress.looks[0]:
        return Outlook(True)
    limits = (settings.same_within, settings.smallest_effect, settings.arm_bias)
    within, smallest, bias = map(math.log1p, limits)
    rule = DecisionRule(within, smallest, bias, tail / 2, settings.confidence)
    now = SoFar(effect.log_ratio, (effect.high - effect.low) / 2, trials)
    later = [look for look in progress.looks if look > trials]
    likely = max((probability_decided(now, look, rule) for look in later), default=0.0)
    if later and (likely >= settings.least_chance or effect.low > 0):  # what looks slower is measured to the end
        return Outlook(True)
    stopped = f"stopped early: the chance that {progress.budget} trials decide it is {likely:.0%}; " if later else ""
    more = trials_needed(now, rule)
    would = f"about {more} more trials would decide it with a chance of {SURE:.0%}"
    return Outlook(
        False, more, stopped + (f"more than {MOST_TRIALS} trials would be needed" if more is None else would)
    )


SHARED = ("start", "end", "between")
"""Phases that a trial has once, however many cases it measures (benchmarks.coordinator.lanes)."""


def better_rounds(
    operator: str, cases: Sequence[str], compared: Sequence[Comparison], trials: Sequence[Trial], policy: Policy
) -> dict[str, int]:
    """By case of an operator that is measured on, how many rounds tell most in a second; none: as many as before.

    cases: those that its next trials have.
    """
    cost = _cost([trial for trial in trials if trial.operator == operator], len(cases))
    found: dict[str, int] = {}
    if cost is None:
        return found
    for one in compared:
        case = one.case.split("/", 2)[-1]
        if one.kernel == operator and case in cases and one.trials and not one.same_code:
            settings = settings_for(one, policy)
            had = np.array([len(trial.base) for trial in one.trials], dtype=np.float64)
            [sample] = samples([one.trials])
            assert sample
            wanted = next_rounds(sample.shifts, had, settings.trial_noise, cost)
            if wanted > had.min():
                found[case] = max(wanted, found.get(case, 0))
    return found


def _cost(trials: Sequence[Trial], cases: int) -> TrialSeconds | None:
    """Of one of so many cases, by the newest of an operator's trials; None where nothing says so, and of bursts."""
    newest = trials[-1] if trials else None
    had = [len(arm.seconds) for _, _, _, arm in newest.arms() if len(arm.seconds)] if newest else []
    phases = newest.phases if newest else {}
    if not newest or not phases or not had or newest.regime != trial_file.REGIMES[0]:
        return None
    timed = sum(any(len(arm.seconds) for arm in case.arms.values()) for case in newest.cases.values())
    once, samples_s = sum(phases.get(name, 0.0) for name in SHARED), phases.get("rounds", 0.0)
    of_each = sum(phases.values()) - once - samples_s
    return TrialSeconds(once / cases + of_each / timed, samples_s / timed / float(np.median(had)))
