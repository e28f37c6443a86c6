"""Compare what the compiler emitted for two source trees: findings per configuration, and one verdict by rules.

Nothing here compiles, and nothing is random: the same two trees give the same judgement.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from benchmarks.trial_file import Status
from ci.isa.compiled import CompiledEntry, CompiledTree, CompileStatus, ExecutedLaunch, called
from ci.isa.rules import CodeFinding, IsaPolicy, executed_findings, findings
from ci.judging.types import Open, verdict_of_states
from ci.report.words import plural
from kernels.project import current_name


class CodeVerdict(enum.StrEnum):
    """What the code alone says about one configuration, or about all together; the worst comes first.

    SLOWER is an expectation by rule, not a measurement.  CHANGED: the code differs and no rule says that it is worse;
    a timing run tells more.
    """

    BROKEN = "BROKEN"
    SLOWER = "SLOWER"
    CHANGED = "CHANGED"
    NEW = "NEW"
    GONE = "GONE"
    SAME = "SAME"
    CANNOT_TELL = "CANNOT TELL"


@dataclasses.dataclass(frozen=True)
class Difference:
    """One configuration on both sides; `cases` are all cases of the kernel that lead to these two compilations.

    label: the name the declaration gives it on the head side (on the base side where head lacks it).
    """

    kernel: str
    backend: str
    label: str
    arch: str
    cases: tuple[str, ...]
    verdict: CodeVerdict
    findings: tuple[CodeFinding, ...] = ()
    base: CompiledEntry | None = None
    head: CompiledEntry | None = None

    @property
    def name(self) -> str:
        """How it is called in tables: kernel/backend, and the label in brackets."""
        return called(self.kernel, self.backend, self.label)

    @property
    def alarms(self) -> tuple[CodeFinding, ...]:
        """The findings that a rule judges."""
        return tuple(finding for finding in self.findings if finding.judged)


@dataclasses.dataclass(frozen=True)
class IsaJudgement:
    """The verdict on all configurations together; `warnings` concern the whole comparison."""

    verdict: CodeVerdict
    why: str
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 2 no verdict: other code that no rule judges is one of them, and code that is gone."""
        codes = {CodeVerdict.SLOWER: 1, CodeVerdict.BROKEN: 1, CodeVerdict.SAME: 0, CodeVerdict.NEW: 0}
        code = codes.get(self.verdict, 2)
        return 2 if code == 0 and self.of(CodeVerdict.GONE) else code

    def of(self, *verdicts: CodeVerdict) -> tuple[Difference, ...]:
        """The configurations with one of these verdicts, in order."""
        return tuple(d for d in self.differences if d.verdict in verdicts)


def compare(
    base: CompiledTree, head: CompiledTree, policy: IsaPolicy, renamed: Mapping[str, str] | None = None
) -> IsaJudgement:
    """Judge head's code against base's.  renamed: what head's settings say of names of base (kernels.project)."""
    base = under_current_names(base, renamed or {})
    broken = (set(base.broken) - set(head.broken), set(head.broken) - set(base.broken))  # what is in them is not known
    of_base, of_head = (Status.UNIMPORTED if modules else Status.MISSING for modules in broken)
    executed = [tree.executed if base.executed and head.executed else () for tree in (base, head)]
    counted = [by_case([launch for launch in those if launch.counts]).keys() for those in executed]
    judge = _CodeJudge(policy, (of_base, of_head), counted[0] & counted[1])
    launched = [pair for pair in pairs(*executed) if not all(map(is_unsupported, pair[0]))]
    every = [judge.difference(*sides, cases) for sides, cases in (*pairs(base.entries, head.entries), *launched)]
    order = {verdict: rank for rank, verdict in enumerate(CodeVerdict)}
    judged = [difference for difference in every if difference]
    differences = tuple(sorted(judged, key=lambda d: (order[d.verdict], d.kernel, d.backend, d.arch, d.label)))
    verdict = _overall(differences, head)
    why = why_of(verdict, differences)
    if broken[1]:  # their kernels would only seem gone
        lost = f"Modules with kernels can no longer be imported: {', '.join(sorted(broken[1]))}."
        why = f"{lost} {why}" if verdict is CodeVerdict.BROKEN else lost
        verdict = CodeVerdict.BROKEN
    return IsaJudgement(verdict, why, differences, tuple(_warnings(base, head)))


# ---- what head's settings say of base's names -----------------------------------------------------------------------


def under_current_names(tree: CompiledTree, renamed: Mapping[str, str]) -> CompiledTree:
    """The tree with each case under its current name, and without those that were deleted."""
    if not renamed:
        return tree
    entries, executed = _renamed(tree.entries, renamed), _renamed(tree.executed, renamed)
    return dataclasses.replace(tree, entries=entries, executed=executed)


Named = TypeVar("Named", CompiledEntry, ExecutedLaunch)


def _renamed(those: Sequence[Named], renamed: Mapping[str, str]) -> tuple[Named, ...]:
    """Each for every kernel and backend that its cases belong to now."""
    found = []
    for one in those:
        names = [current_name(f"{one.kernel}/{one.backend}/{case}", renamed) for case in one.cases]
        cases: dict[tuple[str, str], list[str]] = {}
        for kernel, backend, case in (name.split("/", 2) for name in names if name):
            cases.setdefault((kernel, backend), []).append(case)
        found += [
            dataclasses.replace(one, kernel=kernel, backend=backend, cases=tuple(own))
            for (kernel, backend), own in cases.items()
        ]
    return tuple(found)


# ---- which configurations belong together --------------------------------------------------------------------------

Side = CompiledEntry | ExecutedLaunch | None
Sides = tuple[Named | None, Named | None]
CaseKey = tuple[str, str, str, str]
"""kernel, backend, arch, case"""


def pairs(base: Sequence[Named], head: Sequence[Named]) -> list[tuple[Sides[Named], tuple[str, ...]]]:
    """((base entry, head entry), cases) of every configuration, or every launch, of either side.

    It is found again by kernel, backend, architecture and case.  Where a case has several compilations they are found
    by label, and those left over in declared order: a label may name the tile that was changed.
    """
    grouped: dict[Sides[Named], list[str]] = {}
    old: dict[CaseKey, list[Named]] = by_case(base)
    new: dict[CaseKey, list[Named]] = by_case(head)
    for where in dict.fromkeys([*old, *new]):
        rest, unmatched = list(old.get(where, [])), []
        for entry in new.get(where, []):
            same = next((other for other in rest if other.label == entry.label), None)
            if same is None:
                unmatched.append(entry)
            else:
                rest.remove(same)
                grouped.setdefault((same, entry), []).append(where[3])
        for sides in itertools.zip_longest(rest, unmatched):
            grouped.setdefault(sides, []).append(where[3])
    return [(sides, tuple(cases)) for sides, cases in grouped.items()]


def by_case(those: Sequence[Named]) -> dict[CaseKey, list[Named]]:
    """The entries, or launches, of each (kernel, backend, arch, case)."""
    groups: dict[CaseKey, list[Named]] = {}
    for one in those:
        for case in one.cases:
            groups.setdefault((one.kernel, one.backend, one.arch, case), []).append(one)
    return groups


def is_unsupported(launch: ExecutedLaunch | None) -> bool:
    """Whether an emulator has nothing to say of a launch."""
    return launch is None or launch.status is CompileStatus.UNSUPPORTED


# ---- verdicts ------------------------------------------------------------------------------------------------------

STATUS = {
    CompileStatus.OK: Status.OK,
    CompileStatus.FAILED: Status.ERROR,
    CompileStatus.REFUSED: Status.ERROR,
    CompileStatus.UNSUPPORTED: Status.UNSUPPORTED,
}
"""What a compilation came to, in the words for what was run (`ci.judging.types`)."""

LAUNCH_STATUS = {**STATUS, CompileStatus.UNSUPPORTED: Status.SKIPPED}
"""The same of a launch: what the emulator cannot execute was not tried."""

TEXT = {
    CompileStatus.FAILED: "does not compile",
    CompileStatus.REFUSED: "is declared wrongly",
    CompileStatus.UNSUPPORTED: "is not supported",
}
LAUNCH_TEXT = {**dict.fromkeys(CompileStatus, "cannot be executed"), CompileStatus.UNSUPPORTED: "not executed"}


@dataclasses.dataclass(frozen=True)
class _CodeJudge:
    """Judges one configuration.  absent: why base, and head, lacks what it lacks.  counted: executed on both."""

    policy: IsaPolicy
    absent: tuple[Status, Status]
    counted: Container[CaseKey]

    def difference(self, base: Side, head: Side, cases: tuple[str, ...]) -> Difference | None:
        """What both sides compile to, or execute; None where neither side has anything to say of it."""
        known = head or base
        assert known is not None
        words = LAUNCH_STATUS if isinstance(known, ExecutedLaunch) else STATUS
        each = zip((base, head), self.absent, strict=True)
        decided = verdict_of_states(*(words[one.status] if one else lacking for one, lacking in each))
        if decided is Open.NOTHING:
            return None
        if isinstance(base, ExecutedLaunch) and isinstance(head, ExecutedLaunch) and decided is Open.TIMES:
            changes = executed_findings(base, head, self.policy)
            if base.at != head.at:
                changes = (CodeFinding("execute", f"executed in {head.at}, not {base.at}", judged=False),)
            verdict = _verdict_of(changes)
        elif isinstance(base, CompiledEntry) and isinstance(head, CompiledEntry) and decided is Open.TIMES:
            counted = all((known.kernel, known.backend, known.arch, case) in self.counted for case in cases)
            same = base.emitted.hash == head.emitted.hash
            changes = () if same else findings(base, head, self.policy, counted)
            verdict = _verdict_of(changes)
        else:
            verdict = CodeVerdict.CANNOT_TELL if isinstance(decided, Open) else CodeVerdict(decided)
            changes = tuple(_reason(base, head, verdict))
        old, new = (side if isinstance(side, CompiledEntry) else None for side in (base, head))
        return Difference(known.kernel, known.backend, known.label, known.arch, cases, verdict, changes, old, new)


def _verdict_of(changes: Sequence[CodeFinding]) -> CodeVerdict:
    """On code that both sides have."""
    if not changes:
        return CodeVerdict.SAME
    return CodeVerdict.SLOWER if any(change.judged for change in changes) else CodeVerdict.CHANGED


def _reason(base: Side, head: Side, verdict: CodeVerdict) -> Iterator[CodeFinding]:
    """Why a configuration has its verdict, where that is not its code."""
    broken = verdict is CodeVerdict.BROKEN
    if isinstance(head, CompiledEntry) and verdict is CodeVerdict.NEW and head.emitted.will_not_load:
        yield CodeFinding("load", head.emitted.will_not_load, judged=False)
    for side, one in (("", head), ("base ", base)):
        if head and one and one.status is not CompileStatus.OK:
            rule, words = ("execute", LAUNCH_TEXT) if isinstance(one, ExecutedLaunch) else ("compile", TEXT)
            yield CodeFinding(rule, f"{side}{words[one.status]}: {one.why}", judged=broken)
            return
    if broken or (head and verdict is CodeVerdict.CANNOT_TELL):
        yield CodeFinding("compile", f"{'base' if head else 'head'} does not import", judged=broken)


def _overall(differences: Sequence[Difference], head: CompiledTree) -> CodeVerdict:
    verdicts = {difference.verdict for difference in differences}
    worst = next((verdict for verdict in (CodeVerdict.BROKEN, CodeVerdict.SLOWER) if verdict in verdicts), None)
    if worst:
        return worst
    passing = [one for one in (CodeVerdict.CHANGED, CodeVerdict.SAME, CodeVerdict.NEW) if one in verdicts]
    only_new = passing == [CodeVerdict.NEW] and CodeVerdict.GONE in verdicts
    undecided = CodeVerdict.CANNOT_TELL in verdicts or bool(head.failures)
    return CodeVerdict.CANNOT_TELL if undecided or only_new or not passing else passing[0]


def why_of(verdict: CodeVerdict, differences: Sequence[Difference], *, launches: bool = False) -> str:
    """One sentence for the heading.  launches: the differences are those of launches, not of what is compiled."""
    concerned = [d for d in differences if d.verdict is verdict]
    if verdict is CodeVerdict.CANNOT_TELL and not concerned:
        return "Nothing could be compared."
    one = len(concerned) == 1
    is_, has = ("is", "has") if one else ("are", "have")
    by = "what they execute" if launches else "what the compiler emits"
    every = f"{len(differences)} launches" if launches else plural(len(differences), "configuration")
    said = {
        CodeVerdict.BROKEN: f"no longer {'compiles' if one else 'compile'}",
        CodeVerdict.SLOWER: f"{is_} expected to be slower, by {by}",
        CodeVerdict.CHANGED: f"{has} other code that no rule calls worse",
        CodeVerdict.NEW: f"{is_} new",
        CodeVerdict.GONE: f"{is_} gone",
        CodeVerdict.SAME: f"{has} the same code on both sides, none has other code",
        CodeVerdict.CANNOT_TELL: "could not be compared",
    }[verdict]
    kernels = f": {', '.join(dict.fromkeys(d.kernel for d in concerned))}" if verdict is not CodeVerdict.SAME else ""
    return f"{len(concerned)} of {every} {said}{kernels}."


def _warnings(base: CompiledTree, head: CompiledTree) -> Iterator[str]:
    if base.triton != head.triton:
        yield f"base was compiled with Triton {base.triton}, head with {head.triton}"
    for side, tree in (("base", base), ("head", head)):
        yield from (f"{side}: module {module} cannot be imported: {why}" for module, why in tree.broken.items())
        yield from (f"{side}: {why}" for why in tree.failures.values())
        for entry in tree.entries:
            for note in entry.code.notes if entry.code else ():
                yield f"{side}: {entry.kernel}/{entry.backend} on {entry.arch}: {note}"
    yield from _not_executed(head)


def _not_executed(tree: CompiledTree) -> Iterator[str]:
    """A sentence for each reason for which launches are not executed."""
    by_reason: dict[str, list[ExecutedLaunch]] = {}
    for launch in tree.executed:
        if launch.status is CompileStatus.UNSUPPORTED:
            by_reason.setdefault(launch.why, []).append(launch)
    for why, launches in by_reason.items():
        named = ", ".join(dict.fromkeys(called(one.kernel, one.backend, "") for one in launches))
        cases = plural(len({(one.kernel, case) for one in launches for case in one.cases}), "case")
        arches = ", ".join(dict.fromkeys(one.arch for one in launches))
        yield f"not executed for {arches}: {named} ({cases}): {why}"


def as_json(judgement: IsaJudgement) -> dict[str, Any]:
    """The judgement as JSON values; the entries themselves are in the result files."""
    return {
        "verdict": str(judgement.verdict),
        "why": judgement.why,
        "warnings": list(judgement.warnings),
        "configurations": [_configuration(difference) for difference in judgement.differences],
    }


def _configuration(difference: Difference) -> dict[str, Any]:
    base, head = (entry.code.hash if entry and entry.code else None for entry in (difference.base, difference.head))
    place = {name: getattr(difference, name) for name in ("kernel", "backend", "label", "arch")}
    judged = {"verdict": str(difference.verdict), "base_hash": base, "head_hash": head}
    findings = [dataclasses.asdict(finding) for finding in difference.findings]
    return {**place, "cases": list(difference.cases), **judged, "findings": findings}
