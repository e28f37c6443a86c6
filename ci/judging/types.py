"""What is decided: verdicts in their one order, what the states of both sides make of a case, and the judgement with
its evidence.  Frozen, free of I/O.

`ci.trials` makes a :class:`ci.trials.comparisons.Comparison` of files, `ci.judging.judge` makes a :class:`Judgement` of
comparisons, `ci.report` renders it.  Times are **seconds**; a ratio is head time / base time, above 1 is slower.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from benchmarks.shapes import number
from benchmarks.trial_file import FAILED, Status, not_looked_at
from ci.stats import Role
from kernels.project import current_name

if TYPE_CHECKING:
    from ci.trials.comparisons import Comparison

Ratio = Annotated[float, number(1e-9, 1e9)]
"""Of two times; a report may come from a stranger."""


class Verdict(enum.StrEnum):
    """What is said about one case, or about all of them together: worst first, the one order of verdicts.

    GONE and NEW are said of a case only, never of a whole judgement: one side declares it, and the other does not.
    """

    BROKEN = "BROKEN"
    SLOWER = "SLOWER"
    NOT_COMPARABLE = "NOT COMPARABLE"
    CANNOT_TELL = "CANNOT TELL"
    GONE = "GONE"
    FASTER = "FASTER"
    SAME = "SAME"
    NEW = "NEW"

    @property
    def rank(self) -> int:
        """Place in the order, 0 is the worst."""
        return list(Verdict).index(self)

    @property
    def exit_code(self) -> int:
        """Of a judging command: 0 pass, 1 regression, 2 no verdict."""
        return EXIT_CODES[self]

    @property
    def moved(self) -> bool:
        """Whether a reader must see such a case by itself; all others are counted."""
        return self not in (Verdict.CANNOT_TELL, Verdict.SAME, Verdict.NEW)

    @classmethod
    def worst(cls, verdicts: Iterable[Verdict]) -> Verdict:
        """The worst of them, where NEW passes like SAME, and GONE does not; CANNOT TELL if there is none."""
        of_all = {cls.NEW: cls.SAME, cls.GONE: cls.CANNOT_TELL}
        counting = (of_all.get(verdict, verdict) for verdict in verdicts)
        return min(counting, key=lambda verdict: verdict.rank, default=cls.CANNOT_TELL)


EXIT_CODES = {
    Verdict.BROKEN: 1,
    Verdict.SLOWER: 1,
    Verdict.NOT_COMPARABLE: 2,
    Verdict.CANNOT_TELL: 2,
    Verdict.GONE: 2,
    Verdict.FASTER: 0,
    Verdict.SAME: 0,
    Verdict.NEW: 0,
}


@dataclasses.dataclass(frozen=True)
class Floor:
    """A bound against the baseline and what was found: share = baseline time / head time (> 1: ours is faster).

    state: "met", "missed" (the whole interval lies below the bound), "cannot tell", or "absent" (not timed).
    """

    case: str
    baseline: str
    bound: Ratio
    reason: str
    state: Literal["met", "missed", "cannot tell", "absent"]
    share: Ratio | None = None
    share_low: Ratio | None = None
    share_high: Ratio | None = None
    base_share: Ratio | None = None

    @property
    def new(self) -> bool:
        """True for a floor that head misses and base did not (or base was not timed)."""
        return self.state == "missed" and (self.base_share is None or self.base_share >= self.bound)


@dataclasses.dataclass(frozen=True)
class CaseVerdict:
    """What was decided about one case.

    ratio, ci_low, ci_high: head time / base time with its confidence interval; None where nothing was compared.
    p_value: two-sided, of a true change of nothing, before false findings are limited over all cases; None as above.
    trials, rounds: how many trials were used, and the median number of rounds in them.
    wants_more: further trials could change a CANNOT TELL (or must confirm a SLOWER) and the budget allows them.
    more_trials: live, of a CANNOT TELL that is not measured further: how many more would probably decide it; None: not
    known, or too many.
    evidence: sentences on why; warnings: sentences on what makes it less sure.
    """

    case: str
    kernel: str
    backend: str
    verdict: Verdict
    ratio: Ratio | None = None
    ci_low: Ratio | None = None
    ci_high: Ratio | None = None
    p_value: float | None = None
    trials: int = 0
    rounds: int = 0
    base_seconds: float | None = None
    head_seconds: float | None = None
    wants_more: bool = False
    more_trials: int | None = None
    evidence: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def leans_slower(self) -> bool:
        """Whether it is undecided, and its whole interval says slower."""
        return self.undecided and self.ci_low is not None and self.ci_low > 1

    @property
    def undecided(self) -> bool:
        """Whether more trials may settle it."""
        return self.verdict is Verdict.CANNOT_TELL


@dataclasses.dataclass(frozen=True)
class Group:
    """Neighbouring cases of one kernel and backend that moved the same way: one cause, many shapes.

    ratio: the geometric mean over `cases`; ci_low, ci_high: its confidence interval.
    """

    kernel: str
    backend: str
    direction: Literal["slower", "faster"]
    cases: tuple[str, ...]
    ratio: Ratio
    ci_low: Ratio
    ci_high: Ratio
    evidence: str


@dataclasses.dataclass(frozen=True)
class Judgement:
    """The verdict on all cases together.

    verdict: the worst of the cases, where NEW passes like SAME, and so does GONE where the settings say so;
    CANNOT TELL where there is none.
    why: one sentence for the heading.  warnings concern the whole run (the machine, one-sided findings).
    unreached: operators that were not measured, because no changed file can reach them.
    machine_code: what the compiler emits differently, a sentence each, the first on all of it; () if not compared.
    """

    verdict: Verdict
    why: str
    cases: tuple[CaseVerdict, ...] = ()
    groups: tuple[Group, ...] = ()
    floors: tuple[Floor, ...] = ()
    warnings: tuple[str, ...] = ()
    unreached: tuple[str, ...] = ()
    machine_code: tuple[str, ...] = ()

    def of(self, *verdicts: Verdict) -> tuple[CaseVerdict, ...]:
        """The cases with one of these verdicts, in order."""
        return tuple(case for case in self.cases if case.verdict in verdicts)

    def sentences(self) -> tuple[str, ...]:
        """What it says of everything together, and of each case."""
        return (self.why, *self.warnings, *(one for case in self.cases for one in case.evidence))


def to_json(judgement: Judgement) -> dict[str, Any]:
    """The judgement as plain JSON values, `ab --json` (.github/ARCHITECTURE.md); absent numbers are null."""
    told = dataclasses.asdict(judgement)
    for floor, said in zip(judgement.floors, told["floors"], strict=True):
        said["new"] = floor.new
    return told


# What the states of both sides make of a case: one table for every verb.
#
# `ab`, `check`, `gate`, reports and the page ask it of arms that were run, `isa` of code that was compiled.  No cell is
# better than what was seen: a head that is right passes only beside a base that was as right, or that declares nothing.
# .github/ARCHITECTURE.md has the table.


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
        return case_verdict(c, verdict, "head is right; base declares nothing of it")
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
        moved = f"it is {new} now, and these trials have no time of it by that name: `ridgeline ab` measures both sides"
        return case_verdict(c, Verdict.GONE, f'{moved}; "" in place of its new name says that it need not be compared')
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


def case_verdict(c: Comparison, verdict: Verdict, *evidence: str) -> CaseVerdict:
    """The verdict on a case with its reasons, and without times."""
    trials, warnings = len(c.trials), c.warnings
    return CaseVerdict(c.case, c.kernel, c.backend, verdict, trials=trials, evidence=evidence, warnings=warnings)


def outcome_text(c: Comparison, role: Role) -> str:
    """What became of one side, in words: "head gives a wrong result (the error is 1.02)"."""
    status, why = (c.base_status, c.base_why) if role == "base" else (c.head_status, c.head_why)
    return f"{role} {OUTCOMES[status]} ({why})" if why else f"{role} {OUTCOMES[status]}"
