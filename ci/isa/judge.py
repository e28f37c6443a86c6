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
    def place(self) -> dict[str, Any]:
        """What it is, as JSON values."""
        names = ("kernel", "backend", "label", "arch")
        return {**{name: getattr(self, name) for name in names}, "cases": list(self.cases)}

    @property
    def compared(self) -> bool:
        """Whether both sides have code."""
        return all(side is not None and side.code is not None for side in (self.base, self.head))

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
    judge = _CodeJudge(policy, (of_base, of_head), counted_cases(base) & counted_cases(head))
    every = [judge.difference(*sides, cases) for sides, cases in (*pairs(base, head), *launches(base, head))]
    order = {verdict: rank for rank, verdict in enumerate(CodeVerdict)}
    judged = [difference for difference in every if difference]
    differences = tuple(sorted(judged, key=lambda d: (order[d.verdict], d.kernel, d.backend, d.arch, d.label)))
    verdict, why = _overall(differences, head), ""
    lost = _lost_modules(base, head)
    if not lost or verdict is CodeVerdict.BROKEN:
        why = _why(verdict, differences)
    verdict = CodeVerdict.BROKEN if lost else verdict
    return IsaJudgement(verdict, f"{lost} {why}".strip(), differences, tuple(_warnings(base, head)))


def _lost_modules(base: CompiledTree, head: CompiledTree) -> str:
    """A sentence on the modules that base could import and head cannot; their kernels would only seem gone."""
    lost = [module for module in head.broken if module not in base.broken]
    return f"Modules with kernels can no longer be imported: {', '.join(lost)}." if lost else ""


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

Sides = tuple[CompiledEntry | None, CompiledEntry | None]


def pairs(base: CompiledTree, head: CompiledTree) -> list[tuple[Sides, tuple[str, ...]]]:
    """((base entry, head entry), cases) of every configuration of either side.

    A configuration is found again by kernel, backend, architecture and case.  Where a case has several compilations
    they are found by label, and those left over in declared order: a label may name the tile that was changed.
    """
    grouped: dict[Sides, list[str]] = {}
    old, new = entries_by_case(base), entries_by_case(head)
    for where in dict.fromkeys([*old, *new]):
        for sides in _matched(old.get(where, []), new.get(where, [])):
            grouped.setdefault(sides, []).append(where[3])
    return [(sides, tuple(cases)) for sides, cases in grouped.items()]


def entries_by_case(tree: CompiledTree) -> dict[tuple[str, str, str, str], list[CompiledEntry]]:
    """The entries of each (kernel, backend, arch, case)."""
    found: dict[tuple[str, str, str, str], list[CompiledEntry]] = {}
    for entry in tree.entries:
        for case in entry.cases:
            found.setdefault((entry.kernel, entry.backend, entry.arch, case), []).append(entry)
    return found


def _matched(base: Sequence[CompiledEntry], head: Sequence[CompiledEntry]) -> Iterator[Sides]:
    by_label = {entry.label: entry for entry in base}
    left_base, left_head = list(base), []
    for entry in head:
        found = by_label.get(entry.label)
        if found is not None and found in left_base:
            left_base.remove(found)
            yield found, entry
        else:
            left_head.append(entry)
    yield from itertools.zip_longest(left_base, left_head)


LaunchSides = tuple[ExecutedLaunch | None, ExecutedLaunch | None]


def launches(base: CompiledTree, head: CompiledTree) -> list[tuple[LaunchSides, tuple[str, ...]]]:
    """((base launch, head launch), cases) of all that is executed on a side; none where one was not asked for it."""
    if not (base.executed and head.executed):
        return []
    old, new = (
        {(one.kernel, one.backend, one.arch, case): one for one in tree.executed for case in one.cases}
        for tree in (base, head)
    )
    grouped: dict[LaunchSides, list[str]] = {}
    for where in dict.fromkeys([*old, *new]):
        grouped.setdefault((old.get(where), new.get(where)), []).append(where[3])
    return [(sides, tuple(cases)) for sides, cases in grouped.items() if not all(map(is_unsupported, sides))]


def is_unsupported(launch: ExecutedLaunch | None) -> bool:
    """Whether an emulator has nothing to say of a launch."""
    return launch is None or launch.status is CompileStatus.UNSUPPORTED


# ---- verdicts ------------------------------------------------------------------------------------------------------

CaseKey = tuple[str, str, str, str]
"""kernel, backend, arch, case"""


def counted_cases(tree: CompiledTree) -> set[CaseKey]:
    """The cases of which a tree has the counts of executing it."""
    launches = (launch for launch in tree.executed if launch.counts)
    return {(launch.kernel, launch.backend, launch.arch, case) for launch in launches for case in launch.cases}


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


@dataclasses.dataclass(frozen=True)
class _CodeJudge:
    """Judges one configuration.  absent: why base, and head, lacks what it lacks.  counted: executed on both."""

    policy: IsaPolicy
    absent: tuple[Status, Status]
    counted: Container[CaseKey]

    def difference(
        self,
        base: CompiledEntry | ExecutedLaunch | None,
        head: CompiledEntry | ExecutedLaunch | None,
        cases: tuple[str, ...],
    ) -> Difference | None:
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
        label = f"executed, {known.at}" if isinstance(known, ExecutedLaunch) else known.label
        old, new = (side if isinstance(side, CompiledEntry) else None for side in (base, head))
        return Difference(known.kernel, known.backend, label, known.arch, cases, verdict, changes, old, new)


def _verdict_of(changes: Sequence[CodeFinding]) -> CodeVerdict:
    """On code that both sides have."""
    if not changes:
        return CodeVerdict.SAME
    return CodeVerdict.SLOWER if any(change.judged for change in changes) else CodeVerdict.CHANGED


def _reason(
    base: CompiledEntry | ExecutedLaunch | None, head: CompiledEntry | ExecutedLaunch | None, verdict: CodeVerdict
) -> Iterator[CodeFinding]:
    """Why a configuration has its verdict, where that is not its code."""
    broken = verdict is CodeVerdict.BROKEN
    if isinstance(head, ExecutedLaunch):
        for side, launch in (("", head), ("base ", base)):
            if isinstance(launch, ExecutedLaunch) and launch.counts is None:
                how = "not" if launch.status is CompileStatus.UNSUPPORTED else "cannot be"
                yield CodeFinding("execute", f"{side}{how} executed: {launch.why}", judged=broken)
                return
    elif isinstance(head, CompiledEntry) and head.code is None:
        yield CodeFinding("compile", f"{TEXT[head.status]}: {head.why}", judged=broken)
    elif isinstance(head, CompiledEntry) and head.code and verdict is CodeVerdict.NEW:
        if head.code.will_not_load:
            yield CodeFinding("load", head.code.will_not_load, judged=False)
    elif head:
        why = f"base {TEXT[base.status]}: {base.why}" if base else "base does not import"
        yield CodeFinding("compile", why, judged=False)
    elif broken:
        yield CodeFinding("compile", "head does not import", judged=True)


def _overall(differences: Sequence[Difference], head: CompiledTree) -> CodeVerdict:
    said = {difference.verdict for difference in differences}
    for verdict in (CodeVerdict.BROKEN, CodeVerdict.SLOWER):
        if verdict in said:
            return verdict
    passing = [one for one in (CodeVerdict.CHANGED, CodeVerdict.SAME, CodeVerdict.NEW) if one in said]
    only_new = passing == [CodeVerdict.NEW] and CodeVerdict.GONE in said
    undecided = CodeVerdict.CANNOT_TELL in said or bool(head.failures)
    return CodeVerdict.CANNOT_TELL if undecided or only_new or not passing else passing[0]


def _why(verdict: CodeVerdict, differences: Sequence[Difference]) -> str:
    """One sentence for the heading."""
    concerned = [d for d in differences if d.verdict is verdict]
    if verdict is CodeVerdict.CANNOT_TELL and not concerned:
        return "Nothing could be compared."
    one = len(concerned) == 1
    kernels = ", ".join(dict.fromkeys(d.kernel for d in concerned))
    said = {
        CodeVerdict.BROKEN: f"no longer {'compiles' if one else 'compile'}: {kernels}",
        CodeVerdict.SLOWER: f"{'is' if one else 'are'} expected to be slower, by what the compiler emits: {kernels}",
        CodeVerdict.CHANGED: f"{'has' if one else 'have'} other code that no rule calls worse: {kernels}",
        CodeVerdict.NEW: f"{'is' if one else 'are'} new: {kernels}",
        CodeVerdict.SAME: f"{'has' if one else 'have'} the same code on both sides, none has other code",
        CodeVerdict.CANNOT_TELL: f"could not be compared: {kernels}",
    }[verdict]
    return f"{len(concerned)} of {plural(len(differences), 'configuration')} {said}."


def _warnings(base: CompiledTree, head: CompiledTree) -> Iterator[str]:
    if base.triton != head.triton:
        yield f"base was compiled with Triton {base.triton}, head with {head.triton}"
    for side, tree in (("base", base), ("head", head)):
        yield from (f"{side}: module {module} cannot be imported: {why}" for module, why in tree.broken.items())
        yield from (f"{side}: {why}" for why in tree.failures.values())
    yield from _not_executed(head)
    for side, tree in (("base", base), ("head", head)):
        for entry in tree.entries:
            for note in entry.code.notes if entry.code else ():
                yield f"{side}: {entry.kernel}/{entry.backend} on {entry.arch}: {note}"


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
    found = [dataclasses.asdict(finding) for finding in difference.findings]
    told = {"verdict": str(difference.verdict), "base_hash": base, "head_hash": head, "findings": found}
    return {**difference.place, **told}
