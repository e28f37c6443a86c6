"""What the states of both sides make of a case, before any time is looked at: one table for every verb.

`ab`, `check`, `gate`, reports and the page ask it of arms that were run, `isa` of code that was compiled.  No cell is
better than what was seen: a head that is right passes only beside a base that was as right, or that declares nothing.
.github/ARCHITECTURE.md has the table, as `markdown` writes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping

from benchmarks.trial_file import FAILED, Status, not_looked_at
from ci.judging.types import CaseVerdict, Verdict
from ci.stats.types import Role
from ci.trials.comparisons import Comparison
from kernels.project import current_name


class Open(enum.StrEnum):
    """What the states of both sides leave open."""

    TIMES = "by its times"
    CODE = "by its code"
    NOTHING = "not looked at"


def verdict_of_states(base: Status, head: Status) -> Verdict | Open:
    """The verdict on a case, or what decides it.

    NOTHING: neither side can do it here, so that there is no case.
    """
    no_result = (*FAILED, Status.UNIMPORTED)
    if not_looked_at(base, head):
        return Open.NOTHING
    if head in no_result:
        return Verdict.CANNOT_TELL if base in no_result else Verdict.BROKEN
    if head is Status.MISSING:
        return Verdict.CANNOT_TELL if base is Status.UNIMPORTED else Verdict.GONE
    if head is Status.UNSUPPORTED and base in (Status.OK, Status.UNTIMED):
        return Verdict.BROKEN
    if head in (Status.UNSUPPORTED, Status.SKIPPED):
        return Verdict.CANNOT_TELL
    if base is Status.MISSING:
        return Verdict.NEW
    if base is head:
        return Open.TIMES if head is Status.OK else Open.CODE
    return Verdict.CANNOT_TELL


STATES = {
    Status.UNIMPORTED: "does not import",
    Status.MISSING: "imports, does not declare it",
    Status.UNSUPPORTED: "declares it, not supported here",
    Status.SKIPPED: "declares it, not tried",
    Status.ERROR: "does not compile, raises, crashes or hangs",
    Status.WRONG: "executes, is wrong",
    Status.UNTIMED: "is right, not timed",
    Status.OK: "is right, timed",
}
"""How far a side came, from the least to the most.  A crash and a hang are decided as an error is."""


def markdown() -> Iterator[str]:
    """The table in lines of Markdown: base by rows, head by columns."""
    yield "| base \\ head | " + " | ".join(STATES.values()) + " |"
    yield "|---" * (len(STATES) + 1) + "|"
    for base, name in STATES.items():
        yield f"| **{name}** | " + " | ".join(verdict_of_states(base, head) for head in STATES) + " |"


# ---- the verdict on a case that was run, in words ------------------------------------------------------------------


OUTCOMES = {
    Status.OK: "is right",
    Status.WRONG: "gives a wrong result",
    Status.ERROR: "raises an error",
    Status.HANG: "hangs",
    Status.CRASH: "crashes",
    Status.UNSUPPORTED: "does not support it",
    Status.SKIPPED: "was not tried",
    Status.UNTIMED: "was not timed",
    Status.MISSING: "does not declare it",
    Status.UNIMPORTED: "does not import",
}


def verdict_by_states(c: Comparison, renamed: Mapping[str, str]) -> CaseVerdict | None:
    """What the states of both sides decide: None if both are right."""
    verdict, base, head = (
        verdict_of_states(c.base_status, c.head_status),
        outcome_text(c, "base"),
        outcome_text(c, "head"),
    )
    if isinstance(verdict, Open):
        undecided = verdict is Open.CODE and not c.same_code
        return case_verdict(c, Verdict.CANNOT_TELL, c.head_why) if undecided else None
    if verdict is Verdict.GONE:
        return verdict_on_gone(c, renamed)
    if verdict is Verdict.NEW:
        before = f", the new name of {old}" if (old := former_name(c, renamed)) else ""
        return case_verdict(c, verdict, f"head is right; base declares nothing of it{before}")
    if verdict is Verdict.BROKEN:
        return case_verdict(c, verdict, f"{head}, {base}")
    both_fail = c.head_status.failed or c.head_status is Status.UNIMPORTED
    what = "both sides fail" if both_fail else "nothing to compare"
    alike = (c.base_status, c.base_why) == (c.head_status, c.head_why)
    return case_verdict(c, verdict, f"{what}: each{head.removeprefix('head')}" if alike else f"{what}: {base}; {head}")


def verdict_on_gone(c: Comparison, renamed: Mapping[str, str]) -> CaseVerdict:
    """The verdict on a case that head no longer declares: it passes where the settings say so."""
    name = full_name(c)
    new = current_name(name, renamed)
    if new and new != name:
        moved = f"it is {new} now: a case of another kernel is not compared in lock-step"
        return case_verdict(c, Verdict.GONE, f'{moved}; "" in place of its new name says that it need not be')
    if new:
        gone, other = (
            (f"{c.kernel}/{case_name(c)}", f"{c.kernel}/NEW NAME") if c.head_declares else (c.kernel, "NEW NAME")
        )
        line = f'renamed = {{"{gone}" = "{other}"}}'
        next_step = f'if it is meant, say so in ridgeline.toml: {line}, or = "" for what was deleted'
        return case_verdict(c, Verdict.GONE, c.head_why or f"head does not declare {gone}; {next_step}")
    return case_verdict(c, Verdict.GONE, "was deleted, as the settings say")


def is_meant_to_be_gone(c: Comparison, renamed: Mapping[str, str]) -> bool:
    """Whether the settings say that a case was deleted."""
    return not current_name(full_name(c), renamed)


def full_name(c: Comparison) -> str:
    """ "kernel/backend/case", of a recording's case too, whatever it is called there."""
    return f"{c.kernel}/{c.backend}/{case_name(c)}"


def case_name(c: Comparison) -> str:
    """The last part of the name of a case."""
    return c.case.rpartition("/")[2]


def former_name(c: Comparison, renamed: Mapping[str, str]) -> str:
    """What the settings say that a new case, its backend or its kernel was called before, "" where they say nothing."""
    names = (f"{c.kernel}/{case_name(c)}", f"{c.kernel}/{c.backend}", c.kernel)
    return next((old for old, new in renamed.items() if new in names), "")


def case_verdict(c: Comparison, verdict: Verdict, *evidence: str) -> CaseVerdict:
    """The verdict on a case with its reasons, and without times."""
    trials, warnings = len(c.trials), c.warnings
    return CaseVerdict(c.case, c.kernel, c.backend, verdict, trials=trials, evidence=evidence, warnings=warnings)


def outcome_text(c: Comparison, role: Role) -> str:
    """What became of one side, in words: "head gives a wrong result (the error is 1.02)"."""
    status, why = (c.base_status, c.base_why) if role == "base" else (c.head_status, c.head_why)
    return f"{role} {OUTCOMES[status]} ({why})" if why else f"{role} {OUTCOMES[status]}"
