"""Compare what the compiler emitted for two source trees: findings per configuration, and one verdict by rules.

Reads the result files of `python -m benchmarks.isa metrics`; nothing here compiles, and nothing is random: the same two
files give the same judgement.
"""

from __future__ import annotations

import dataclasses
import enum
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.isa.rules import Finding, IsaPolicy, findings

FORMAT, VERSION = "ridgeline-isa", 1

Entry = Mapping[str, Any]


class IsaError(ValueError):
    """A result file cannot be used; the text names it and says why."""


class Verdict(enum.StrEnum):
    """What the code alone says about one configuration, or about all together.

    SLOWER is an expectation by rule, not a measurement.  CHANGED: other code, no rule speaks; a timing run tells more.
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
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    base: Entry | None = None
    head: Entry | None = None

    @property
    def name(self) -> str:
        """How it is called in tables: kernel/backend, and the label in brackets."""
        return f"{self.kernel}/{self.backend}" + (f" [{self.label}]" if self.label else "")

    @property
    def alarms(self) -> tuple[Finding, ...]:
        """The findings that a rule judges."""
        return tuple(finding for finding in self.findings if finding.judged)


@dataclasses.dataclass(frozen=True)
class IsaJudgement:
    """The verdict on all configurations together; `warnings` concern the whole comparison."""

    verdict: Verdict
    why: str
    differences: tuple[Difference, ...]
    warnings: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """0 pass, 1 regression, 2 no verdict."""
        return {Verdict.SLOWER: 1, Verdict.BROKEN: 1, Verdict.CANNOT_TELL: 2}.get(self.verdict, 0)

    def of(self, *verdicts: Verdict) -> tuple[Difference, ...]:
        """The configurations with one of these verdicts, in order."""
        return tuple(d for d in self.differences if d.verdict in verdicts)


def read(path: Path) -> dict[str, Any]:
    """A result file; IsaError if it is not one."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise IsaError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise IsaError(f"{path} is not JSON: {error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise IsaError(f"{path} is not written by `python -m benchmarks.isa metrics`")
    if document.get("version") != VERSION:
        raise IsaError(
            f"{path} has version {document.get('version')!r} of its format; this tree reads version {VERSION}"
        )
    return document


def compare(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> IsaJudgement:
    """Judge head's code against base's."""
    differences = tuple(_difference(one, two, cases, policy) for one, two, cases in pairs(base, head))
    order = {verdict: rank for rank, verdict in enumerate(Verdict)}
    differences = tuple(sorted(differences, key=lambda d: (order[d.verdict], d.kernel, d.backend, d.arch, d.label)))
    verdict, lost = _overall(differences, head), _lost_modules(base, head)
    why = " ".join(filter(None, (lost, _why(verdict, differences) if not lost or verdict is Verdict.BROKEN else "")))
    return IsaJudgement(Verdict.BROKEN if lost else verdict, why, differences, tuple(_warnings(base, head)))


def _lost_modules(base: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """A sentence on the modules that base could import and head cannot: their kernels are gone without a word."""
    before = {broken["module"] for broken in base["broken"]}
    lost = [f"{b['module']} ({b['why']})" for b in head["broken"] if b["module"] not in before]
    return f"Modules with kernels no longer import: {', '.join(lost)}." if lost else ""


def pairs(base: Mapping[str, Any], head: Mapping[str, Any]) -> list[tuple[Entry | None, Entry | None, tuple[str, ...]]]:
    """(base entry, head entry, cases) of every configuration of either side.

    A configuration is found again by kernel, backend, architecture and case.  Where a case has several compilations
    they are found by label, and those left over in declared order: a label may name the tile that was changed.
    """
    grouped: dict[tuple[int, int], tuple[Entry | None, Entry | None, list[str]]] = {}
    sides = [_by_case(base), _by_case(head)]
    for where in dict.fromkeys([*sides[0], *sides[1]]):
        for one, two in _matched(sides[0].get(where, []), sides[1].get(where, [])):
            grouped.setdefault((id(one), id(two)), (one, two, []))[2].append(where[3])
    return [(one, two, tuple(cases)) for one, two, cases in grouped.values()]


def _by_case(document: Mapping[str, Any]) -> dict[tuple[str, str, str, str], list[Entry]]:
    found: dict[tuple[str, str, str, str], list[Entry]] = {}
    for entry in document["entries"]:
        for case in entry["cases"]:
            found.setdefault((entry["kernel"], entry["backend"], entry["arch"], case), []).append(entry)
    return found


def _matched(base: Sequence[Entry], head: Sequence[Entry]) -> Iterator[tuple[Entry | None, Entry | None]]:
    by_label = {entry["label"]: entry for entry in base}
    left_base, left_head = list(base), []
    for entry in head:
        found = by_label.get(entry["label"])
        if found is not None and any(found is entry for entry in left_base):
            left_base = [entry for entry in left_base if entry is not found]
            yield found, entry
        else:
            left_head.append(entry)
    for index in range(max(len(left_base), len(left_head))):
        yield (
            left_base[index] if index < len(left_base) else None,
            left_head[index] if index < len(left_head) else None,
        )


def _difference(base: Entry | None, head: Entry | None, cases: tuple[str, ...], policy: IsaPolicy) -> Difference:
    known = head if head is not None else base
    assert known is not None
    verdict, found = _decide(base, head, policy)
    return Difference(
        known["kernel"], known["backend"], known["label"], known["arch"], cases, verdict, found, base, head
    )


def _decide(base: Entry | None, head: Entry | None, policy: IsaPolicy) -> tuple[Verdict, tuple[Finding, ...]]:
    """The verdict on one configuration and what led to it."""
    if head is None:
        return Verdict.GONE, ()
    if head["status"] != "ok":
        why = Finding("compile", f"{_STATUS[head['status']]}: {head['why']}", judged=False)
        if head["status"] == "unsupported":
            return Verdict.GONE if base is not None and base["status"] == "ok" else Verdict.SAME, (why,)
        if base is not None and base["status"] == "ok":
            return Verdict.BROKEN, (dataclasses.replace(why, judged=True),)
        return Verdict.CANNOT_TELL, (why,)
    if base is None or base["status"] != "ok":
        note = () if not head.get("will_not_load") else (Finding("load", head["will_not_load"], judged=False),)
        return Verdict.NEW, note
    if base["hash"] == head["hash"]:
        return Verdict.SAME, ()
    found = findings(base, head, policy)
    return Verdict.SLOWER if any(f.judged for f in found) else Verdict.CHANGED, found


_STATUS = {"failed": "does not compile", "refused": "is declared wrongly", "unsupported": "is not supported"}


def _overall(differences: Sequence[Difference], head: Mapping[str, Any]) -> Verdict:
    said = {difference.verdict for difference in differences}
    for verdict in (Verdict.BROKEN, Verdict.SLOWER):
        if verdict in said:
            return verdict
    compared = said & {Verdict.CHANGED, Verdict.SAME}
    new_faults = any(d.verdict is Verdict.CANNOT_TELL and d.base is None for d in differences)
    if not compared or new_faults or head["failures"]:
        return Verdict.CANNOT_TELL
    return Verdict.CHANGED if Verdict.CHANGED in said else Verdict.SAME


def _why(verdict: Verdict, differences: Sequence[Difference]) -> str:
    """One sentence for the heading."""
    concerned = [d for d in differences if d.verdict is verdict]
    kernels = ", ".join(dict.fromkeys(d.kernel for d in concerned))
    number = f"Of {len(differences)} configurations, {len(concerned)}"
    return {
        Verdict.BROKEN: f"{number} no longer compile: {kernels}.",
        Verdict.SLOWER: f"{number} expected to be slower by what the compiler emits: {kernels}.",
        Verdict.CHANGED: f"{number} with other code, and no rule says for the worse: {kernels}.",
        Verdict.SAME: f"{number} with the same code on both sides, none with other code.",
    }.get(verdict, "Nothing could be compared." if not concerned else f"{number} could not be compiled: {kernels}.")


def _warnings(base: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[str]:
    if base["triton"] != head["triton"]:
        yield f"base was compiled with Triton {base['triton']}, head with {head['triton']}"
    for side, document in (("base", base), ("head", head)):
        for broken in document["broken"]:
            yield f"{side}: module {broken['module']} cannot be imported: {broken['why']}"
        for failure in document["failures"]:
            yield f"{side}: {failure['why']}"
        for entry in document["entries"]:
            for note in entry.get("notes", ()):
                yield f"{side}: {entry['kernel']}/{entry['backend']} on {entry['arch']}: {note}"


def as_json(judgement: IsaJudgement) -> dict[str, Any]:
    """The judgement as JSON values; the entries themselves are in the result files."""
    return {
        "verdict": str(judgement.verdict),
        "why": judgement.why,
        "warnings": list(judgement.warnings),
        "configurations": [
            {
                "kernel": d.kernel,
                "backend": d.backend,
                "label": d.label,
                "arch": d.arch,
                "cases": list(d.cases),
                "verdict": str(d.verdict),
                "base_hash": (d.base or {}).get("hash"),
                "head_hash": (d.head or {}).get("hash"),
                "findings": [dataclasses.asdict(f) for f in d.findings],
            }
            for d in judgement.differences
        ],
    }
