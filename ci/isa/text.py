"""A judgement of machine code as text.  Pure: the same value gives the same text."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from ci.isa.compiled import CompiledTree, CompileStatus, ExecutedLaunch, Metrics, called
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement
from ci.isa.rules import CodeFinding
from ci.report.words import plural

# Machine code of two sides next to each other: the loop that changed, or the code outside loops.
#
# Texts are what benchmarks.isa keeps: one instruction per line, and a line `; loop L3 depth 2` or `; no loop` where
# another innermost loop begins.


CONTEXT = 3
"""Equal instructions shown around a change."""


@dataclasses.dataclass(frozen=True)
class Part:
    """The instructions of one innermost loop, or of everything outside loops."""

    title: str
    lines: tuple[str, ...]

    @property
    def heat(self) -> tuple[int, int]:
        """Loops come before the rest, those with most matrix instructions and memory accesses first."""
        matrix = sum(bool(re.match(r"v_mfma|v_smfmac|\w*GMMA|\w*MMA\b", line)) for line in self.lines)
        return (self.title != "no loop", matrix * 1000 + len(self.lines))


def parts(text: str) -> list[Part]:
    """The loops of a text in program order, and what is outside them."""
    found: dict[str, list[str]] = {}
    title = "no loop"
    for line in text.splitlines():
        if line.startswith("; loop ") or line == "; no loop":
            title = line[2:]
        elif not line.startswith(";") and line.strip():
            found.setdefault(title, []).append(line.strip())
    return [Part(name, tuple(lines)) for name, lines in found.items()]


def changed(base: str, head: str) -> list[tuple[Part, Part]]:
    """Parts that differ, hottest first.  Loops are matched in program order at each depth; one side may be empty."""
    old, new = parts(base), parts(head)
    pairs: list[tuple[Part, Part]] = []
    for key in dict.fromkeys([_depth(p) for p in [*new, *old]]):
        left, right = [p for p in old if _depth(p) == key], [p for p in new if _depth(p) == key]
        both = itertools.zip_longest(left, right, fillvalue=Part("nothing", ()))
        pairs += [(one, two) for one, two in both if _plain(one.lines) != _plain(two.lines)]
    return sorted(pairs, key=lambda pair: max(pair[0].heat, pair[1].heat), reverse=True)


def _depth(part: Part) -> str:
    return part.title.partition(" depth ")[2] or part.title


def _plain(lines: Sequence[str]) -> list[str]:
    """Mnemonics: register numbers and label names are noise when code is compared by eye."""
    return [line.split()[0] if not line.endswith(":") else "label" for line in lines]


def side_by_side(base: str, head: str, width: int = 120, most: int = 200) -> str:
    """The first changed part in two columns, `|` between changed lines, `<` and `>` for one-sided ones."""
    found = changed(base, head)
    if not found:
        return "The instructions are the same; only registers or labels differ.\n"
    one, two = found[0]
    column = max((width - 3) // 2, 20)
    lines = [_row(f"base: {_title(one)}", " ", f"head: {_title(two)}", column)]
    rows = _rows(one.lines, two.lines)
    lines += [_row(left, mark, right, column) for left, mark, right in rows[:most]]
    if len(rows) > most:
        lines.append(f"... {len(rows) - most} more lines")
    if len(found) > 1:
        lines.append(f"Also changed: {', '.join(_title(new if new.lines else old) for old, new in found[1:])}.")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _title(part: Part) -> str:
    return {"no loop": "outside loops", "nothing": "no such loop"}.get(part.title, part.title)


def _rows(base: Sequence[str], head: Sequence[str]) -> list[tuple[str, str, str]]:
    matcher = difflib.SequenceMatcher(None, _plain(base), _plain(head), autojunk=False)
    rows: list[tuple[str, str, str]] = []
    for group in matcher.get_grouped_opcodes(CONTEXT):
        rows += [("...", " ", "...")] if rows or group[0][1] else []
        for tag, a, b, c, d in group:
            for one, two in itertools.zip_longest(base[a:b], head[c:d], fillvalue=""):
                rows.append((one, " " if tag == "equal" else "<" if not two else ">" if not one else "|", two))
    return rows


def _row(left: str, mark: str, right: str, column: int) -> str:
    left, right = (text if len(text) <= column else text[: column - 1] + "…" for text in (left, right))
    return f"{left:<{column}} {mark} {right}"


STYLES = {
    CodeVerdict.BROKEN: "bold red",
    CodeVerdict.SLOWER: "bold red",
    CodeVerdict.CHANGED: "yellow",
    CodeVerdict.NEW: "cyan",
    CodeVerdict.GONE: "cyan",
    CodeVerdict.SAME: "green",
    CodeVerdict.CANNOT_TELL: "yellow",
}
SHOWN = (
    CodeVerdict.BROKEN,
    CodeVerdict.SLOWER,
    CodeVerdict.CANNOT_TELL,
    CodeVerdict.CHANGED,
    CodeVerdict.NEW,
    CodeVerdict.GONE,
)
"""Verdicts that are shown configuration by configuration; SAME is only counted."""

MOST_CASES = 4


def terminal(judgement: IsaJudgement) -> Text:
    """Verdict first, then what changed; `!` marks what a rule judges."""
    out = Text()
    out.append(f"ISA: {_said(judgement.verdict)}", STYLES[judgement.verdict]).append(f"  {judgement.why}\n")
    for difference, alike in grouped(judgement.of(*SHOWN)):
        _append(out, difference, alike)
    same = judgement.of(CodeVerdict.SAME)
    if same and judgement.verdict is not CodeVerdict.SAME:
        count = plural(len(same), "configuration")
        out.append(f"SAME  {count} with the same code on both sides.\n", STYLES[CodeVerdict.SAME])
    for difference in same:
        for finding in difference.findings:
            out.append(f"      {difference.name} on {difference.arch} {finding.sentence}\n")
    for warning in judgement.warnings:
        out.append(f"Warning: {warning}\n", "yellow")
    return out


def _append(out: Text, difference: Difference, alike: Sequence[Difference]) -> None:
    """One configuration with its findings, then a line for those that are alike."""
    out.append(f"{difference.verdict}", STYLES[difference.verdict])
    out.append(f"  {difference.name} on {difference.arch} ({few(difference.cases)})\n")
    for finding in difference.findings:
        out.append(f"    {'!' if finding.judged else ' '} {finding.sentence}", "bold" if finding.judged else "")
        out.append(f"  [{_note(finding)}]\n" if _note(finding) else "\n")
    for line in _also(difference, alike):
        out.append(f"    + {line}\n")


def lines(judgement: IsaJudgement) -> Iterator[str]:
    """For the report of `check`: what all of it says, then a line for each group of configurations that differ."""
    yield f"{_said(judgement.verdict)}: {judgement.why}"
    for difference, alike in grouped(judgement.of(*SHOWN)):
        found = "; ".join([finding.sentence for finding in difference.findings] + list(_also(difference, alike)))
        where = f"{difference.name} on {difference.arch} ({few(difference.cases)})"
        yield f"{where}: {difference.verdict}" + (f": {found}" if found else "")


def grouped(differences: Sequence[Difference]) -> list[tuple[Difference, list[Difference]]]:
    """Configurations of a backend with the same verdict for the same rules: the first, which is shown in full, and
    the others, so that a change to a function that all kernels share can still be read."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for d in differences:
        groups.setdefault((d.verdict, d.kernel, d.backend, *(f.rule for f in d.alarms)), []).append(d)
    return [(found[0], found[1:]) for found in groups.values()]


def _also(difference: Difference, alike: Sequence[Difference]) -> Iterator[str]:
    """One line per further configuration about which a rule says something else; one for all the others."""
    counts: Counter[str] = Counter()
    for d in alike:
        if [f.sentence for f in d.alarms] == [f.sentence for f in difference.alarms]:
            counts[d.arch] += 1
        else:
            label = f"[{d.label}] " if d.label else ""
            yield f"also {label}on {d.arch} ({few(d.cases)}): {d.alarms[0].sentence}"
    if counts:
        what = "the same for" if difference.alarms else "so is" if counts.total() == 1 else "so are"
        yield f"{what} {counts.total()} more: " + ", ".join(f"{count} on {arch}" for arch, count in counts.items())


def _note(finding: CodeFinding) -> str:
    """Why a finding that a rule would judge is not judged, "" if there is nothing to say."""
    if finding.accepted:
        return f"accepted: {finding.accepted}"
    return "follows from it" if finding.follows else ""


def _said(verdict: CodeVerdict) -> str:
    return {CodeVerdict.SLOWER: "SLOWER expected", CodeVerdict.CHANGED: "CHANGED, not judged"}.get(
        verdict, str(verdict)
    )


def few(cases: Sequence[str], most: int = MOST_CASES) -> str:
    """one, two, three, four and 7 more"""
    more = len(cases) - most
    return ", ".join(cases[:most]) + (f" and {more} more" if more > 0 else "")


def listing(tree: CompiledTree) -> Text:
    """One line per compiled configuration: what a person looks at first; then what failed, and why."""
    out = Text()
    for entry in tree.entries:
        out.append(f"{entry.name} on {entry.arch} ({few(entry.cases)}): ", "bold")
        if entry.code is None:
            out.append(f"{entry.status}: {entry.why}\n", "yellow")
            continue
        out.append(summary(entry.code.metrics) + "\n")
        if entry.code.will_not_load:
            out.append(f"    ! does not load: {entry.code.will_not_load}\n", "bold red")
        for note in entry.code.notes:
            out.append(f"    note: {note}\n", "yellow")
    for launch in tree.executed:
        name = called(launch.kernel, launch.backend, f"executed, {launch.at}" if launch.at else "")
        out.append(f"{name} on {launch.arch} ({few(launch.cases)}): ", "bold")
        out.append(f"{executed_summary(launch)}\n", "" if launch.counts else "yellow")
    for module, why in tree.broken.items():
        out.append(f"module {module} cannot be imported: {why}\n", "yellow")
    for why in tree.failures.values():
        out.append(f"{why}\n", "bold red")
    return out


def executed_summary(launch: ExecutedLaunch) -> str:
    """20320 instructions, 16384 matrix cycles, 6144 requests of 64 B (86 % used), 0 bank conflicts; at most ..."""
    counts = launch.counts
    if counts is None:
        how = "not executed" if launch.status is CompileStatus.UNSUPPORTED else "failed"
        return f"{how}: {launch.why}"
    parts = [
        f"{counts.total} instructions",
        f"{counts.matrix_cycles} matrix cycles" if counts.matrix_cycles else "",
        f"{counts.all_requests} requests of 64 B ({100 * counts.used:.0f} % used)" if counts.used is not None else "",
        f"{counts.lds_cycles} LDS cycles ({counts.bank_conflicts} of bank conflicts)" if counts.lds_cycles else "",
        f"at most {launch.bound.percent:g} % of the roofline by {launch.bound.unit}" if launch.bound else "",
    ]
    return ", ".join(filter(None, parts))


def summary(metrics: Metrics) -> str:
    """128 VGPRs, 0 spilled, 32768 B LDS, 4 waves per SIMD, stores 16 B per lane"""
    remote, stores = metrics.bytes_per_remote_store, metrics.bytes_per_store
    parts = [
        f"{metrics.lane_registers} {'VGPRs' if metrics.is_amd else 'registers'}",
        f"{metrics.vgpr_spills} spilled" if metrics.is_amd else "",
        f"{metrics.scratch_bytes} B scratch" if metrics.scratch_bytes else "",
        f"{metrics.lds_bytes} B LDS" if metrics.lds_bytes else "",
        f"{metrics.occupancy} {'waves per SIMD' if metrics.is_amd else 'warps per scheduler'}",
        f"remote stores {remote:g} B per lane" if remote else "",
        f"{metrics.remote_store_drains} drains of them" if metrics.remote_store_drains else "",
        f"stores {stores:g} B per lane" if stores else "",
    ]
    return ", ".join(filter(None, parts))
