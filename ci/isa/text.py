"""A judgement of machine code as text.  Pure: the same value gives the same text."""

from __future__ import annotations

import difflib
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from ci.isa.compiled import CompiledTree, CompileStatus, ExecutedLaunch, Metrics, called
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement
from ci.report.words import plural

# The loop that changed, or the code outside loops, as a diff of its instructions.
#
# Texts are what benchmarks.isa keeps: one instruction per line, and a line `; loop L3 depth 2` or `; no loop` where
# another innermost loop begins.


CONTEXT = 3
"""Equal instructions shown around a change."""

OUTSIDE = "no loop"

Loop = tuple[str, tuple[str, ...]]
"""Title and instructions of an innermost loop, or of everything outside loops."""


def loops_of(text: str) -> list[Loop]:
    """The loops of a text in program order, and what is outside them."""
    lines: dict[str, list[str]] = {}
    title = OUTSIDE
    for line in text.splitlines():
        if line.startswith("; loop ") or line == f"; {OUTSIDE}":
            title = line[2:]
        elif not line.startswith(";") and line.strip():
            lines.setdefault(title, []).append(line.strip())
    return [(name, tuple(instructions)) for name, instructions in lines.items()]


def changed_loops(base: str, head: str) -> list[tuple[Loop, Loop]]:
    """Loops that differ, hottest first.  They are matched in program order at each depth; one side may be empty."""
    old, new = loops_of(base), loops_of(head)
    pairs: list[tuple[Loop, Loop]] = []
    for depth in dict.fromkeys(map(_depth, (*new, *old))):
        sides = ([loop for loop in side if _depth(loop) == depth] for side in (old, new))
        both = itertools.zip_longest(*sides, fillvalue=("nothing", ()))
        pairs += [(one, two) for one, two in both if _mnemonics(one) != _mnemonics(two)]
    return sorted(pairs, key=lambda pair: max(map(_heat, pair)), reverse=True)


def _depth(loop: Loop) -> str:
    return loop[0].partition(" depth ")[2] or loop[0]


def _heat(loop: Loop) -> tuple[bool, int]:
    """Loops come before the rest, those with most matrix instructions first, then the longest."""
    matrix = sum(bool(re.match(r"v_mfma|v_smfmac|\w*GMMA|\w*MMA\b", line)) for line in loop[1])
    return loop[0] != OUTSIDE, matrix * 1000 + len(loop[1])


def _mnemonics(loop: Loop) -> list[str]:
    """Register numbers and label names are noise when code is compared by eye."""
    return ["label" if line.endswith(":") else line.split()[0] for line in loop[1]]


def loop_diff(base: str, head: str, most: int = 200) -> str:
    """The first changed loop as a diff by mnemonics, `-` before base's lines and `+` before head's."""
    changed = changed_loops(base, head)
    if not changed:
        return "The instructions are the same; only registers or labels differ.\n"
    old, new = changed[0]
    lines = [f"--- base: {_title(old)}", f"+++ head: {_title(new)}"]
    matcher = difflib.SequenceMatcher(None, _mnemonics(old), _mnemonics(new), autojunk=False)
    for group in matcher.get_grouped_opcodes(CONTEXT):
        lines += ["..."] * (group[0][1] > 0 or len(lines) > 2)
        for tag, a, b, c, d in group:
            lines += [f"  {line}" for line in new[1][c:d]] if tag == "equal" else []
            lines += [f"- {line}" for line in old[1][a:b]] if tag != "equal" else []
            lines += [f"+ {line}" for line in new[1][c:d]] if tag != "equal" else []
    lines[most + 2 :] = [f"... {len(lines) - most - 2} more lines"] * (len(lines) > most + 2)
    others = [_title(two if two[1] else one) for one, two in changed[1:]]
    return "\n".join([*lines, *([f"Also changed: {', '.join(others)}."] if others else [])]) + "\n"


def _title(loop: Loop) -> str:
    return {OUTSIDE: "outside loops", "nothing": "no such loop"}.get(loop[0], loop[0])


STYLES = {
    CodeVerdict.BROKEN: "bold red",
    CodeVerdict.SLOWER: "bold red",
    CodeVerdict.CANNOT_TELL: "yellow",
    CodeVerdict.CHANGED: "yellow",
    CodeVerdict.NEW: "cyan",
    CodeVerdict.GONE: "cyan",
    CodeVerdict.SAME: "green",
}
"""In the order in which they are shown."""

SHOWN = (*(verdict for verdict in STYLES if verdict is not CodeVerdict.SAME),)
"""Verdicts that are shown configuration by configuration; SAME is only counted."""

MOST_CASES = 4


def terminal(judgement: IsaJudgement) -> Text:
    """Verdict first, then what changed; `!` marks what a rule judges."""
    out = Text()
    out.append(f"ISA: {verdict_text(judgement.verdict)}", STYLES[judgement.verdict]).append(f"  {judgement.why}\n")
    for shown, alike in grouped(judgement.of(*SHOWN)):
        out.append(f"{shown.verdict}", STYLES[shown.verdict])
        out.append(f"  {shown.name} on {shown.arch} ({few(shown.cases)})\n")
        for finding in shown.findings:
            mark, style = ("!", "bold") if finding.judged else (" ", "")
            note = f"accepted: {finding.accepted}" if finding.accepted else "follows from it" * finding.follows
            out.append(f"    {mark} {finding.sentence}", style).append(f"  [{note}]\n" if note else "\n")
        for line in others_text(shown, alike):
            out.append(f"    + {line}\n")
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


def lines(judgement: IsaJudgement) -> Iterator[str]:
    """For the report of `check`: what all of it says, then a line for each group of configurations that differ."""
    yield f"{verdict_text(judgement.verdict)}: {judgement.why}"
    for shown, alike in grouped(judgement.of(*SHOWN)):
        sentences = [*(finding.sentence for finding in shown.findings), *others_text(shown, alike)]
        where = f"{shown.name} on {shown.arch} ({few(shown.cases)}): {shown.verdict}"
        yield ": ".join(filter(None, (where, "; ".join(sentences))))


def grouped(differences: Sequence[Difference]) -> list[tuple[Difference, list[Difference]]]:
    """Configurations of a backend with the same verdict for the same rules: the first, which is shown in full, and
    the others, so that a change to a function that all kernels share can still be read."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for d in differences:
        groups.setdefault((d.verdict, d.kernel, d.backend, *(f.rule for f in d.alarms)), []).append(d)
    return [(members[0], members[1:]) for members in groups.values()]


def others_text(shown: Difference, alike: Sequence[Difference]) -> Iterator[str]:
    """One line per further configuration about which a rule says something else; one for all the others."""
    counts: Counter[str] = Counter()
    for other in alike:
        if [alarm.sentence for alarm in other.alarms] == [alarm.sentence for alarm in shown.alarms]:
            counts[other.arch] += 1
        else:
            label = f"[{other.label}] " if other.label else ""
            yield f"also {label}on {other.arch} ({few(other.cases)}): {other.alarms[0].sentence}"
    if counts:
        what = "the same for" if shown.alarms else "so is" if counts.total() == 1 else "so are"
        yield f"{what} {counts.total()} more: " + ", ".join(f"{count} on {arch}" for arch, count in counts.items())


def verdict_text(verdict: CodeVerdict) -> str:
    """What a verdict by code alone is called."""
    names = {CodeVerdict.SLOWER: "SLOWER expected", CodeVerdict.CHANGED: "CHANGED, not judged"}
    return names.get(verdict, str(verdict))


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
