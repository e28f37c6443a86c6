"""Verdicts that need no times: broken, new, a changed yardstick, equal code, data that cannot be used."""

from __future__ import annotations

from ci.judging.policy import Settings
from ci.judging.types import CaseVerdict, Verdict
from ci.stats.measured import Sample
from ci.trials.compared import Comparison, Status

SAME_CODE = "both sides run the same code (equal code objects, or equal files of the kernel): SAME without timing"

ABSENT = (Status.MISSING, Status.UNSUPPORTED, Status.SKIPPED)


def settle(comparison: Comparison) -> CaseVerdict | None:
    """The verdict on a case whose times do not matter; None for one that must be judged by its times.

    The order is the meaning: a head that is wrong is BROKEN whatever else changed, and a fault in the data comes before
    any statement about the code.
    """
    c = comparison
    if c.head_status.failed and c.base_status.failed:
        return _said(c, Verdict.CANNOT_TELL, f"both sides fail: base {_how(c, 'base')}; head {_how(c, 'head')}")
    if c.head_status.failed:
        return _said(c, Verdict.BROKEN, f"head {_how(c, 'head')}, base {_how(c, 'base')}")
    if c.base_status is Status.OK and c.head_status is Status.UNSUPPORTED:
        return _said(c, Verdict.BROKEN, f"head no longer supports what base runs: {c.head_why or 'no reason given'}")
    if c.head_status in ABSENT:
        return _said(c, Verdict.CANNOT_TELL, f"head {_how(c, 'head')}; base {_how(c, 'base')}: nothing to compare")
    if c.base_status is not Status.OK:
        return _said(c, Verdict.NEW, f"base {_how(c, 'base')}: there is nothing to compare head with")
    if c.problems:
        return _said(c, Verdict.CANNOT_TELL, *c.problems)
    if c.base_definition and c.head_definition and c.base_definition != c.head_definition:
        which = f"base {c.base_definition}, head {c.head_definition}"
        return _said(
            c,
            Verdict.NOT_COMPARABLE,
            f"the yardstick differs ({which}): "
            "inputs, cost, reference, baseline or protocol changed, so the times are not of the same thing",
        )
    if c.same_code and not c.trials:
        return _said(c, Verdict.SAME, SAME_CODE)
    return None


def too_few(comparison: Comparison, settings: Settings, sample: Sample | None, warnings: list[str]) -> CaseVerdict:
    """CANNOT TELL for want of trials, unless both sides launch equal code; the ratio there is has no interval."""
    if comparison.same_code:
        return _said(comparison, Verdict.SAME, SAME_CODE)
    trials = sample.trials if sample else 0
    evidence = (
        f"{trials} usable trial{'s' * (trials != 1)}, at least {settings.min_trials} are needed: the rounds of "
        "one start of the processes say nothing about the next"
    )
    c, base, head = comparison, sample.base_seconds if sample else None, sample.head_seconds if sample else None
    return CaseVerdict(
        c.case,
        c.kernel,
        c.backend,
        Verdict.CANNOT_TELL,
        head / base if base and head else None,
        trials=trials,
        rounds=sample.rounds if sample else 0,
        base_seconds=base,
        head_seconds=head,
        wants_more=True,
        evidence=(evidence,),
        warnings=tuple(warnings),
    )


def _said(c: Comparison, verdict: Verdict, *evidence: str) -> CaseVerdict:
    return CaseVerdict(
        c.case, c.kernel, c.backend, verdict, trials=len(c.trials), evidence=evidence, warnings=c.warnings
    )


def _how(c: Comparison, role: str) -> str:
    status, why = (c.base_status, c.base_why) if role == "base" else (c.head_status, c.head_why)
    words = {
        Status.OK: "is right",
        Status.WRONG: "gives a wrong result",
        Status.ERROR: "raises an error",
        Status.HANG: "hangs",
        Status.CRASH: "crashes",
        Status.UNSUPPORTED: "does not support it",
        Status.SKIPPED: "was skipped",
        Status.MISSING: "does not have it",
    }[status]
    return f"{words} ({why})" if why else words
