"""A judgement of machine code as text.  Pure: the same value gives the same text."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterator, Sequence

from rich.text import Text

from ci.isa.compiled import CompiledTree, CompileStatus, ExecutedLaunch, Metrics, called
from ci.isa.judge import CodeVerdict, Difference, IsaJudgement
from ci.report.words import plural

# The code of both sides as a diff of its instructions.
#
# Texts are what benchmarks.isa keeps: one instruction per line, and a line `; loop L3 depth 2` or `; no loop` where
# another innermost loop begins.


CONTEXT = 3
"""Equal instructions shown around a change."""

Instruction = tuple[str, str]
"""The innermost loop that an instruction lies in, and the instruction."""


def instructions(text: str) -> list[Instruction]:
    """The instructions of a text, each with its loop."""
    found, loop = list[Instruction](), "no loop"
    for line in filter(None, map(str.strip, text.splitlines())):
        if line.startswith(("; loop ", "; no loop")):
            loop = line[2:]
        elif not line.startswith(";"):
            found.append((loop, line))
    return found


def mnemonic(instruction: Instruction) -> str:
    """Register numbers and label names are noise when code is compared by eye."""
    return "label" if instruction[1].endswith(":") else instruction[1].split()[0]


def code_diff(base: str, head: str, most: int = 200) -> str:
    """A diff by mnemonics, `-` before base's lines and `+` before head's; each hunk below the loop that it lies in."""
    old, new = instructions(base), instructions(head)
    matcher = difflib.SequenceMatcher(None, [*map(mnemonic, old)], [*map(mnemonic, new)], autojunk=False)
    lines: list[str] = []
    for hunk in matcher.get_grouped_opcodes(CONTEXT):
        loop = None
        for tag, a, b, c, d in hunk:
            removed, added = (old[a:b], new[c:d]) if tag != "equal" else ([], new[c:d])
            signed = [("-", one) for one in removed] + [("+" if tag != "equal" else " ", one) for one in added]
            for sign, (own, text) in signed:
                lines += [f"@@ {own} @@"] * (own != loop) + [f"{sign} {text}"]
                loop = own
    if not lines:
        return "The instructions are the same; only registers or labels differ.\n"
    lines[most:] = [f"... {len(lines) - most} more lines"] * (len(lines) > most)
    return "\n".join(lines) + "\n"


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
        out.append(f"{shown.verdict}", STYLES[shown.verdict]).append(f"  {where_text(shown)}\n")
        for finding in shown.findings:
            note = "follows from it" * finding.follows
            out.append(f"    {'!' if finding.judged else ' '} {finding.sentence}", "bold" if finding.judged else "")
            out.append(f"  [{note}]\n" if note else "\n")
        out.append("".join(f"    + {line}\n" for line in others_text(shown, alike)))
    same = judgement.of(CodeVerdict.SAME)
    if same and judgement.verdict is not CodeVerdict.SAME:
        out.append(
            f"SAME  {plural(len(same), 'configuration')} with the same code on both sides.\n", STYLES[CodeVerdict.SAME]
        )
    return out.append("".join(f"Warning: {warning}\n" for warning in judgement.warnings), "yellow")


def lines(judgement: IsaJudgement) -> Iterator[str]:
    """For the report of `check`: what all of it says, then a line for each group of configurations that differ."""
    yield f"{verdict_text(judgement.verdict)}: {judgement.why}"
    for shown, alike in grouped(judgement.of(*SHOWN)):
        sentences = "; ".join([*(finding.sentence for finding in shown.findings), *others_text(shown, alike)])
        yield ": ".join(filter(None, (f"{where_text(shown)}: {shown.verdict}", sentences)))


def where_text(shown: Difference) -> str:
    """kernel/backend [label] on gfx942 (one, two)"""
    return f"{shown.name} on {shown.arch} ({few(shown.cases)})"


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
    """128 VGPRs, 0 spilled, 32768 B LDS, 4 waves per SIMD (registers allow 4, LDS 5), stores 16 B per lane, hot loop
    of 70 instructions, 46 % of them matrix ones"""
    remote, stores, loop = metrics.bytes_per_remote_store, metrics.bytes_per_store, metrics.loop
    share = f"{100 * loop.matrix_share:.0f} % of them matrix ones" if loop else ""
    allowed = f"registers allow {metrics.occupancy_by_registers}, LDS {metrics.occupancy_by_lds}"
    parts = [
        f"{metrics.lane_registers} {'VGPRs' if metrics.is_amd else 'registers'}",
        f"{metrics.vgpr_spills} spilled" if metrics.is_amd else "",
        f"{metrics.scratch_bytes} B scratch" if metrics.scratch_bytes else "",
        f"{metrics.lds_bytes} B LDS" if metrics.lds_bytes else "",
        f"{metrics.occupancy} {'waves per SIMD' if metrics.is_amd else 'warps per scheduler'} ({allowed})",
        f"remote stores {remote:g} B per lane" if remote else "",
        f"{metrics.remote_store_drains} drains of them" if metrics.remote_store_drains else "",
        f"stores {stores:g} B per lane" if stores else "",
        f"hot loop of {loop.instructions} instructions, {share}" if loop else "",
    ]
    return ", ".join(filter(None, parts))
