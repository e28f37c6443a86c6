"""Verdicts that need no times: broken, new, not comparable, equal code, data that cannot be used."""

from __future__ import annotations

from ci.judging.policy import Settings
from ci.judging.types import CaseVerdict, Verdict
from ci.stats.measured import Sample
from ci.stats.types import Role
from ci.trials.compared import Comparison, Status

SAME_CODE = "both sides run the same code (equal code objects, or equal files of the kernel): SAME without timing"

ABSENT = (Status.MISSING, Status.UNSUPPORTED, Status.SKIPPED)

ENDED = {
    Status.OK: "is right",
    Status.WRONG: "gives a wrong result",
    Status.ERROR: "raises an error",
    Status.HANG: "hangs",
    Status.CRASH: "crashes",
    Status.UNSUPPORTED: "does not support it",
    Status.SKIPPED: "was skipped",
    Status.MISSING: "does not have it",
}


def settle(comparison: Comparison) -> CaseVerdict | None:
    """The verdict on a case whose times do not matter; None for one that must be judged by its times.

    The order matters: a head that is wrong is BROKEN whatever else changed, and a fault in the data comes before any
    statement about the code.
    """
    said = _by_status(comparison)
    if said is None and comparison.problems:
        return _said(comparison, Verdict.CANNOT_TELL, *comparison.problems)
    return said or _by_definition(comparison)


def _by_status(c: Comparison) -> CaseVerdict | None:
    """What the status of the arms settles: None if both are right."""
    base, head = f"base {_how(c, 'base')}", f"head {_how(c, 'head')}"
    if c.head_status.failed and c.base_status.failed:
        return _said(c, Verdict.CANNOT_TELL, f"both sides fail: {base}; {head}")
    if c.head_status.failed:
        return _said(c, Verdict.BROKEN, f"{head}, {base}")
    if c.base_status is Status.OK and c.head_status is Status.UNSUPPORTED:
        return _said(c, Verdict.BROKEN, f"head no longer supports what base runs: {c.head_why or 'no reason given'}")
    if c.head_status in ABSENT:
        return _said(c, Verdict.CANNOT_TELL, f"{head}; {base}: nothing to compare")
    if c.base_status is not Status.OK:
        return _said(c, Verdict.NEW, f"{base}: there is nothing to compare head with")
    return None


def _by_definition(c: Comparison) -> CaseVerdict | None:
    """NOT COMPARABLE where something else was measured, SAME for equal code that was not timed."""
    if c.base_definition and c.head_definition and c.base_definition != c.head_definition:
        digests = f"base {c.base_definition}, head {c.head_definition}"
        changed = "inputs, cost, reference, baseline or protocol changed, so the times are not of the same thing"
        return _said(c, Verdict.NOT_COMPARABLE, f"the benchmark definition differs ({digests}): {changed}")
    return _said(c, Verdict.SAME, SAME_CODE) if c.same_code and not c.trials else None


def too_few(c: Comparison, settings: Settings, sample: Sample | None, warnings: list[str]) -> CaseVerdict:
    """CANNOT TELL for want of trials, unless both sides launch equal code; the ratio there has no interval."""
    if c.same_code:
        return _said(c, Verdict.SAME, SAME_CODE)
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


def _said(c: Comparison, verdict: Verdict, *evidence: str) -> CaseVerdict:
    trials, warnings = len(c.trials), c.warnings
    return CaseVerdict(c.case, c.kernel, c.backend, verdict, trials=trials, evidence=evidence, warnings=warnings)


def _how(c: Comparison, role: Role) -> str:
    status, why = (c.base_status, c.base_why) if role == "base" else (c.head_status, c.head_why)
    return f"{ENDED[status]} ({why})" if why else ENDED[status]
