"""A judgement of machine code as text: for a terminal, and as Markdown.  Pure: the same value gives the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.text import Text

from ci.isa.judge import Difference, IsaJudgement, Verdict
from ci.isa.rules import Finding
from ci.report.markdown import code, text

STYLES = {
    Verdict.BROKEN: "bold red",
    Verdict.SLOWER: "bold red",
    Verdict.CHANGED: "yellow",
    Verdict.NEW: "cyan",
    Verdict.GONE: "cyan",
    Verdict.SAME: "green",
    Verdict.CANNOT_TELL: "yellow",
}
SIGNS = {Verdict.BROKEN: "❌", Verdict.SLOWER: "❌", Verdict.SAME: "✅", Verdict.CANNOT_TELL: "❔"}
TOLD = (Verdict.BROKEN, Verdict.SLOWER, Verdict.CANNOT_TELL, Verdict.CHANGED, Verdict.NEW, Verdict.GONE)
"""Verdicts that are told configuration by configuration; SAME is only counted."""

MOST_CASES = 4


def terminal(judgement: IsaJudgement) -> Text:
    """Verdict first, then what changed; `!` marks what a rule judges."""
    out = Text()
    out.append(f"ISA: {_said(judgement.verdict)}", STYLES[judgement.verdict]).append(f"  {judgement.why}\n")
    for difference, alike in grouped(judgement.of(*TOLD)):
        out.append(f"{difference.verdict}", STYLES[difference.verdict])
        out.append(f"  {difference.name} on {difference.arch} ({_cases(difference)})\n")
        for finding in difference.findings:
            out.append(f"    {'!' if finding.judged else ' '} {finding.sentence}", "bold" if finding.judged else "")
            out.append(f"  [{_note(finding)}]\n" if _note(finding) else "\n")
        for line in _also(difference, alike):
            out.append(f"    + {line}\n")
    same = judgement.of(Verdict.SAME)
    if same and judgement.verdict is not Verdict.SAME:
        out.append(f"SAME  the code of {len(same)} more is the same on both sides.\n", STYLES[Verdict.SAME])
    for difference in same:
        for finding in difference.findings:
            out.append(f"      {difference.name} on {difference.arch} {finding.sentence}\n")
    for warning in judgement.warnings:
        out.append(f"Warning: {warning}\n", "yellow")
    return out


def grouped(differences: Sequence[Difference]) -> list[tuple[Difference, list[Difference]]]:
    """Configurations of a backend with the same verdict for the same rules: the first, which is told in full, and the
    others, so that a change to a function that all kernels share can still be read."""
    groups: dict[tuple[object, ...], list[Difference]] = {}
    for d in differences:
        groups.setdefault((d.verdict, d.kernel, d.backend, *(f.rule for f in d.alarms)), []).append(d)
    return [(found[0], found[1:]) for found in groups.values()]


def _also(difference: Difference, alike: Sequence[Difference]) -> Iterator[str]:
    """A line for each further configuration of which a rule says something else; one for all the others."""
    counts: Counter[str] = Counter()
    for d in alike:
        if [f.sentence for f in d.alarms] == [f.sentence for f in difference.alarms]:
            counts[d.arch] += 1
        else:
            label = f"[{d.label}] " if d.label else ""
            yield f"also {label}on {d.arch} ({_cases(d)}): {d.alarms[0].sentence}"
    if counts:
        what = "the same of" if difference.alarms else "likewise"
        yield f"{what} {counts.total()} more: " + ", ".join(f"{count} on {arch}" for arch, count in counts.items())


def markdown(judgement: IsaJudgement) -> str:
    """The judgement as a section of a pull-request comment; foreign text in it is inert."""
    sign = SIGNS.get(judgement.verdict, "ℹ️")
    lines = [f"## {sign} ISA: {_said(judgement.verdict)}", "", text(judgement.why), ""]
    for verdict in TOLD:
        found = judgement.of(verdict)
        if found:
            folded = verdict in (Verdict.CHANGED, Verdict.NEW, Verdict.GONE)
            lines += _section(verdict, found, folded)
    lines += [f"- ⚠️ {text(warning)}" for warning in judgement.warnings]
    return "\n".join(lines).rstrip() + "\n"


def _section(verdict: Verdict, found: Sequence[Difference], folded: bool) -> list[str]:
    title = f"{verdict}: {len(found)} configuration{'s' if len(found) > 1 else ''}"
    body = [line for difference, alike in grouped(found) for line in _bullets(difference, alike)]
    if folded:
        return ["<details><summary>" + title + "</summary>", "", *body, "", "</details>", ""]
    return [f"### {title}", "", *body, ""]


def _bullets(difference: Difference, alike: Sequence[Difference]) -> Iterator[str]:
    yield f"- {code(difference.name)} on {code(difference.arch)} ({text(_cases(difference))})"
    for finding in difference.findings:
        sentence = text(finding.sentence)
        note = f" ({text(_note(finding))})" if _note(finding) else ""
        yield f"  - **{sentence}**" if finding.judged else f"  - {sentence}{note}"
    for line in _also(difference, alike):
        yield f"  - {text(line)}"


def _note(finding: Finding) -> str:
    """Why a finding that a rule would judge is not judged, "" if there is nothing to say."""
    if finding.accepted:
        return f"accepted: {finding.accepted}"
    return "follows from it" if finding.follows else ""


def _said(verdict: Verdict) -> str:
    return {Verdict.SLOWER: "SLOWER expected", Verdict.CHANGED: "CHANGED, not judged"}.get(verdict, str(verdict))


def _cases(difference: Difference) -> str:
    return few(difference.cases)


def few(cases: Sequence[str], most: int = MOST_CASES) -> str:
    """one, two, three, four and 7 more"""
    more = len(cases) - most
    return ", ".join(cases[:most]) + (f" and {more} more" if more > 0 else "")


def listing(document: Mapping[str, Any]) -> Text:
    """One line per compiled configuration: what a person looks at first; then what failed, and why."""
    out = Text()
    for entry in document["entries"]:
        name = f"{entry['kernel']}/{entry['backend']}" + (f" [{entry['label']}]" if entry["label"] else "")
        out.append(f"{name} on {entry['arch']} ({few(entry['cases'])}): ", "bold")
        if entry["status"] == "ok":
            out.append(summary(entry["metrics"]) + "\n")
            if entry["will_not_load"]:
                out.append(f"    ! does not load: {entry['will_not_load']}\n", "bold red")
            for note in entry.get("notes", ()):
                out.append(f"    note: {note}\n", "yellow")
        else:
            out.append(f"{entry['status']}: {entry['why']}\n", "yellow")
    for broken in document["broken"]:
        out.append(f"module {broken['module']} cannot be imported: {broken['why']}\n", "yellow")
    for failure in document["failures"]:
        out.append(f"{failure['why']}\n", "bold red")
    return out


def summary(metrics: Mapping[str, Any]) -> str:
    """128 VGPRs, 0 spilled, 32768 B LDS, 4 waves a SIMD, stores 16 B a lane"""
    parts = [f"{metrics['vgpr']} VGPRs" if "vgpr" in metrics else f"{metrics['registers']} registers"]
    parts.append(f"{metrics['vgpr_spills']} spilled" if "vgpr_spills" in metrics else "")
    parts.append(f"{metrics['scratch_bytes']} B scratch" if metrics["scratch_bytes"] else "")
    parts.append(f"{metrics['lds_bytes']} B LDS" if metrics["lds_bytes"] else "")
    parts.append(f"{metrics['occupancy']} {'waves a SIMD' if 'vgpr' in metrics else 'warps a scheduler'}")
    for name, word in (("bytes_per_remote_store", "remote stores"), ("bytes_per_store", "stores")):
        if metrics.get(name):
            parts.append(f"{word} {metrics[name]:g} B a lane")
    return ", ".join(part for part in parts if part)
