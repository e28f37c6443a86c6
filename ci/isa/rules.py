"""The rules that judge a change of machine code, and the words for it.

A rule compares the metrics of both sides (see benchmarks.isa.__main__ for their meaning) and says what it found.  Which
findings count as a regression is policy: section [isa] of policy.toml.
"""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from benchmarks.shapes import Unfit, built, that, whole
from ci.isa.compiled import CompiledCode, CompiledEntry, Counts, Executed, ExecutedLaunch, HotLoop, Metrics, Widths
from ci.judging.policy import DATED, Dated, PolicyError, default_file, document

# Section [isa] of policy.toml: from when on a change of machine code counts as a regression.


class Rule(enum.StrEnum):
    """The rules by name, in the order in which their findings are shown: causes before what they bring about."""

    LOAD = "load"
    REMOTE_STORE_WIDTH = "remote_store_width"
    STORE_WIDTH = "store_width"
    LOAD_WIDTH = "load_width"
    LOADED_BYTES = "loaded_bytes"
    MATRIX_KIND = "matrix_kind"
    DRAINS = "drains"
    HEAP_BASES = "heap_bases"
    SPILLS = "spills"
    OCCUPANCY = "occupancy"
    MEMORY_REQUESTS = "memory_requests"
    MATRIX_CYCLES = "matrix_cycles"
    LDS_CYCLES = "lds_cycles"
    OTHER = "other"


Count = Annotated[int, whole(1)]
Share = Annotated[float, that(lambda v: type(v) in (int, float) and v > 0, "a positive number")]


@dataclasses.dataclass(frozen=True)
class IsaPolicy:
    """From when on a change counts as a regression.

    spills: more spilled vector registers.  scratch_ops_in_loops: more scratch instructions in loops.
    store_width, load_width: mean bytes per lane, head / base, at or below which stores (local or remote) and loads have
    collapsed.  loaded_bytes: head / base of the bytes that are loaded for each one stored, in code without loops and
    matrix instructions, from which memory is read again; judged where no counts of executing it are there.
    heap_base_loads: head / base of heap-base loads per byte stored remotely, from which they are reloaded.
    drains: more waits for remote stores inside a block of them (benchmarks/isa/amd.py).
    occupancy_step: fewer resident waves per SIMD.  matrix_kind: a faster kind of matrix instruction is gone.
    lds_limit: the kernel no longer loads on the chip.  executed: head / base of what a launch executes on the unit that
    is busy longest (requests to memory, cycles of matrix units or of the LDS), from which it is expected to be slower.
    """

    spills: Count = 1
    scratch_ops_in_loops: Count = 1
    store_width: Share = 0.5
    load_width: Share = 0.25
    loaded_bytes: Share = 1.25
    heap_base_loads: Share = 1.25
    drains: Count = 1
    occupancy_step: Count = 1
    matrix_kind: bool = True
    lds_limit: bool = True
    executed: Share = 1.05


@dataclasses.dataclass(frozen=True)
class Section(IsaPolicy, Dated):
    """Section [isa] of a policy file."""


def load_policy(path: Path | None = None) -> IsaPolicy:
    """Section [isa] of a policy file (default: ci/policy.toml); without one the defaults.  Raises PolicyError."""
    path = path or default_file()
    return parse_policy(document(path).get("isa", {}), f"{path}: [isa]")


def parse_policy(section: Mapping[str, Any], where: str = "[isa]") -> IsaPolicy:
    """The checked section.  Raises PolicyError naming the key, its value and what is allowed."""
    try:
        if section:
            built(Section, section, where, closed=True)
    except Unfit as error:
        raise PolicyError(str(error)) from None
    return IsaPolicy(**{key: value for key, value in section.items() if key not in DATED})


@dataclasses.dataclass(frozen=True)
class CodeFinding:
    """One change in a kernel engineer's words.  judged: by policy it makes the configuration SLOWER.

    follows: it is brought about by a judged finding before it, as the registers that narrow stores need; it is shown,
    and is not an alarm of its own.
    """

    rule: str
    sentence: str
    judged: bool
    follows: bool = False


@dataclasses.dataclass(frozen=True)
class CodeChange:
    """Both sides of a configuration whose code differs, as the rules see it."""

    arch: str
    base: CompiledCode
    head: CompiledCode

    @property
    def old(self) -> Metrics:
        """The metrics of the base side."""
        return self.base.metrics

    @property
    def new(self) -> Metrics:
        """The metrics of the head side."""
        return self.head.metrics


Said = Iterator[tuple[str, bool]]
"""What a rule yields: a sentence, and whether the policy judges it."""

Look = Callable[[CodeChange, IsaPolicy], Said]


def findings(
    base: CompiledEntry, head: CompiledEntry, policy: IsaPolicy, counted: bool = False
) -> tuple[CodeFinding, ...]:
    """Everything that differs between two compiled entries: judged findings, what follows from them, then the rest.

    counted: both were executed, and the bytes that they moved are judged there.
    """
    change = CodeChange(head.arch, base.emitted, head.emitted)
    found: list[CodeFinding] = []
    for rule, look in RULES.items():
        for sentence, judged in look(change, policy):
            bad = judged and not (counted and rule is Rule.LOADED_BYTES)
            follows = bad and any(finding.judged and finding.rule in EFFECTS.get(rule, ()) for finding in found)
            found.append(CodeFinding(rule, sentence, bad and not follows, follows))
    found.sort(key=lambda finding: (not finding.judged, not finding.follows))
    return tuple(found) or (CodeFinding("code", "the instructions differ, every metric is the same", judged=False),)


def _load(change: CodeChange, policy: IsaPolicy) -> Said:
    before, now = change.base.will_not_load, change.head.will_not_load
    if now and not before:
        yield f"does not load on {change.arch}: {now}", policy.lds_limit
    elif before and not now:
        yield f"loads now; before: {before}", False


def _spills(change: CodeChange, policy: IsaPolicy) -> Said:
    old, new = change.old, change.new
    spilled = (new.vgpr_spills or 0) - (old.vgpr_spills or 0)
    looped = new.scratch_ops_in_loops - old.scratch_ops_in_loops
    if spilled == looped == 0 and new.scratch_bytes == old.scratch_bytes:
        return
    parts = [
        f"vector registers spilled: {_step(old.vgpr_spills, new.vgpr_spills)}" if new.is_amd else "",
        f"scratch: {_step(old.scratch_bytes, new.scratch_bytes)} B per lane",
        f"scratch instructions in loops: {_step(old.scratch_ops_in_loops, new.scratch_ops_in_loops)}",
    ]
    yield ", ".join(filter(None, parts)), spilled >= policy.spills or looped >= policy.scratch_ops_in_loops


def _accesses(what: str, bound: str, of: Callable[[Metrics], tuple[Widths, Counts]]) -> Look:
    """Of accesses to memory: from which width on they have collapsed is the field `bound` of the policy.

    of: how many there are by bytes per lane, and by name, from the metrics of a side.
    """

    def look(change: CodeChange, policy: IsaPolicy) -> Said:
        (old, _), (new, names) = of(change.old), of(change.new)
        if old != new:
            yield _width_words(what, old, new, names), _collapsed(old, new, getattr(policy, bound))

    return look


def _remote_stores(metrics: Metrics) -> tuple[Widths, Counts]:
    return metrics.remote_store_widths or {}, metrics.remote_store_names or {}


def _local_stores(metrics: Metrics) -> tuple[Widths, Counts]:
    widths, names = _remote_stores(metrics)
    return _without(metrics.store_widths, widths), _without(metrics.store_names, names)


def _loaded_bytes(change: CodeChange, policy: IsaPolicy) -> Said:
    """In straight-line code every instruction is executed once: bytes loaded per byte stored depend on no tile."""
    before, after = (_loaded_per_stored(side) for side in (change.old, change.new))
    if before and after and after > before:
        grown = f"{before:.3g} → {after:.3g} B loaded per byte stored, {100 * (after / before - 1):+.3g} %"
        yield f"{grown}: memory is read again", after >= before * policy.loaded_bytes


def _loaded_per_stored(metrics: Metrics) -> float | None:
    """None where it does not follow from the code: loops, matrix instructions, no stores."""
    stored = _bytes_per_lane(metrics.store_widths)
    return None if metrics.loops or metrics.matrix or not stored else _bytes_per_lane(metrics.load_widths) / stored


def _drains(change: CodeChange, policy: IsaPolicy) -> Said:
    """Only those inside a block are judged: one between two is what waiting for the next block's values costs."""
    old, new = change.old, change.new
    inside = (old.remote_store_drains or 0, new.remote_store_drains or 0)
    between = (old.remote_store_drains_between or 0, new.remote_store_drains_between or 0)
    if inside[0] == inside[1] and between[0] == between[1]:
        return
    more = inside[1] - inside[0]
    rest = f", between two blocks: {_step(*between)}" if between[0] != between[1] else ""
    cost = f"; {more} more times a wave waits for an answer over the link before it stores on" if more > 0 else ""
    yield f"drains of remote stores in a block: {_step(*inside)}{rest}{cost}", more >= policy.drains


def _heap_bases(change: CodeChange, policy: IsaPolicy) -> Said:
    """Loads per byte stored remotely: neither unrolling nor another store width changes that, reloading does."""
    old, new = change.old, change.new
    everywhere = (old.heap_base_loads or 0, new.heap_base_loads or 0)
    in_loops = (old.heap_base_loads_in_loops or 0, new.heap_base_loads_in_loops or 0)
    if everywhere[0] == everywhere[1] and in_loops[0] == in_loops[1]:
        return
    before, after = _loads_per_byte(old), _loads_per_byte(new)
    kept = before == 0 and old.remote_store_bytes_in_loops
    reloaded = after > 0 if kept else bool(before) and after / before >= policy.heap_base_loads
    why = " (reloaded, no longer kept)" if reloaded else ""
    yield f"heap-base loads: {_step(*everywhere)}, in loops: {_step(*in_loops)}{why}", reloaded


def _occupancy(change: CodeChange, policy: IsaPolicy) -> Said:
    old, new = change.old, change.new
    if old.occupancy == new.occupancy or change.head.will_not_load or change.base.will_not_load:
        return
    sides = (
        (old.lane_registers, new.lane_registers, "VGPRs" if new.is_amd else "registers"),
        (old.lds_bytes, new.lds_bytes, "B of LDS"),
    )
    limits = [f"{_step(before, after)} {word}" for before, after, word in sides if before != after]
    why = f" ({', '.join(limits)})" if limits else ""
    unit = "waves per SIMD" if new.is_amd else "warps per scheduler"
    lost = old.occupancy - new.occupancy
    yield f"occupancy: {_step(old.occupancy, new.occupancy)} {unit}{why}", lost >= policy.occupancy_step


def _matrix(change: CodeChange, policy: IsaPolicy) -> Said:
    old, new = change.old.matrix, change.new.matrix
    if old == new:
        return
    fastest = max(map(matrix_rate, new), default=0.0)
    lost = [name for name in old if name not in new and matrix_rate(name) > fastest]
    words = "MFMA" if change.new.is_amd else "tensor-core"
    if lost:
        yield f"{', '.join(lost)} is gone; {words} now: {_counts(new)}", policy.matrix_kind
    else:
        yield f"{words} instructions: {_counts(old)} → {_counts(new)}", False


_OTHER_METRICS = {
    "vgpr": "VGPRs",
    "agpr": "AGPRs",
    "sgpr": "SGPRs",
    "registers": "registers",
    "sgpr_spills": "scalar registers spilled",
    "scratch_ops": "scratch instructions",
    "agpr_moves_in_loops": "AGPR moves in loops",
    "lds_bytes": "LDS bytes",
    "waves_per_group": "waves per workgroup",
    "code_bytes": "code bytes",
    "loads_to_lds": "loads straight to LDS",
    "lds_read_widths": "LDS reads",
    "lds_write_widths": "LDS writes",
    "barriers": "barriers",
    "waits": "waits",
    "atomics": "atomics",
}
"""Metrics that are shown as they are, with their names.  The rules above put the others into words, or they follow."""


def _others(change: CodeChange, policy: IsaPolicy) -> Said:
    del policy
    old, new = change.old, change.new
    if (old.instructions, old.mix) != (new.instructions, new.mix):
        yield f"instructions: {_step(old.instructions, new.instructions)}{_mix(old.mix, new.mix)}", False
    for name, words in _OTHER_METRICS.items():
        before, now = getattr(old, name), getattr(new, name)
        if before == now or now is None:
            continue
        if isinstance(now, Mapping):
            each = _widths if name.endswith("_widths") else _counts
            yield f"{words}: {each(before)} → {each(now)}", False
        else:
            yield f"{words}: {_step(before, now)}", False
    if old.loop != new.loop:
        yield _loop_words(old.loop, new.loop), False


RULES: dict[Rule, Look] = {
    Rule.LOAD: _load,
    Rule.REMOTE_STORE_WIDTH: _accesses("stores to remote ranks", "store_width", _remote_stores),
    Rule.STORE_WIDTH: _accesses("stores", "store_width", _local_stores),
    Rule.LOAD_WIDTH: _accesses("loads", "load_width", lambda metrics: (metrics.load_widths, {})),
    Rule.LOADED_BYTES: _loaded_bytes,
    Rule.MATRIX_KIND: _matrix,
    Rule.DRAINS: _drains,
    Rule.HEAP_BASES: _heap_bases,
    Rule.SPILLS: _spills,
    Rule.OCCUPANCY: _occupancy,
    Rule.OTHER: _others,
}

EFFECTS = {Rule.HEAP_BASES: (Rule.DRAINS,), Rule.SPILLS: tuple(RULES), Rule.OCCUPANCY: tuple(RULES)}
"""Rules and what may have brought about their findings: then both are one regression, not two.  Bases that are loaded
where they were kept show as drains.  Where the same configuration has lost its matrix instruction or the width of its
stores, the code that replaced them needs more registers and LDS."""


def matrix_rate(name: str) -> float:
    """Relative speed of a kind of matrix instruction.

    v_mfma_f32_16x16x32_f16: multiply-adds per lane and pass grow with M * K (16x16x32 and 32x32x16 are equally fast).
    SASS: warp-group instructions (HGMMA, ...) outrun warp ones (HMMA, ...); 8-bit kinds double 16-bit ones.
    """
    shape = re.search(r"_(\d+)x\d+x(\d+)(?:_(\d+)b)?", name)
    if shape:
        return float(int(shape[1]) * int(shape[2]) * int(shape[3] or 1))
    family = name.split(".")[0]
    return (2.0 if "G" in family else 1.0) * (2.0 if family.startswith(("Q", "I")) else 1.0)


# What launches execute, counted in an emulator.

BUSY: dict[Rule, tuple[str, str, Callable[[Executed], int], str]] = {
    Rule.MEMORY_REQUESTS: ("memory", "bytes moved", lambda one: 64 * one.all_requests, "of a memory-bound case"),
    Rule.MATRIX_CYCLES: (
        "MFMA issue",
        "cycles of matrix units",
        lambda one: one.matrix_cycles,
        "where matrix units are busy longest",
    ),
    Rule.LDS_CYCLES: ("LDS", "cycles of the LDS", lambda one: one.lds_cycles, "where the LDS is busy longest"),
}
"""The unit that a rule is about, as in ExecutedLaunch.bound, and what is counted of it.  More of it costs time where
the unit is busy longest, and may hide behind another's work elsewhere: only the former is judged."""


def executed_findings(base: ExecutedLaunch, head: ExecutedLaunch, policy: IsaPolicy) -> tuple[CodeFinding, ...]:
    """Everything that differs in what two launches execute, judged findings first; () where nothing does."""
    old, new = base.counts, head.counts
    assert old is not None
    assert new is not None
    if old == new:
        return ()
    found = []
    for rule, (unit, words, of, because) in BUSY.items():
        before, now = of(old), of(new)
        if before == now:
            continue
        busiest = head.bound is not None and head.bound.unit == unit
        bad = busiest and now >= before * policy.executed
        case = f": SLOWER is expected {because}" if bad else ""
        found.append(CodeFinding(rule, f"{words} {_grown(before, now)}{case}", bad))
    told = [*_executed_words(old, new)]
    if base.bound != head.bound:
        told.append(f"by its counts at most {_bound(base)} → {_bound(head)} of the roofline: a bound, no time")
    found += [CodeFinding(Rule.OTHER, sentence, judged=False) for sentence in told]
    found.sort(key=lambda finding: not finding.judged)
    return tuple(found)


def _executed_words(old: Executed, new: Executed) -> Iterator[str]:
    if old.classes != new.classes:
        yield f"instructions executed: {_step(old.total, new.total)}{_mix(old.classes, new.classes)}"
    if old.matrix != new.matrix:
        yield f"MFMA executed: {_counts(old.matrix)} → {_counts(new.matrix)}"
    if old.used != new.used:
        yield "of the bytes requested from memory are used: " + " → ".join(_percent(one.used) for one in (old, new))
    for words, before, now in (
        ("cycles for bank conflicts of the LDS", old.bank_conflicts, new.bank_conflicts),
        ("branches into code that only some lanes need", old.divergent, new.divergent),
        ("lanes off in vector instructions", old.idle, new.idle),
    ):
        if before != now:
            yield f"{words}: {_step(before, now)}"


def _bound(launch: ExecutedLaunch) -> str:
    return f"{launch.bound.percent:g} % ({launch.bound.unit})" if launch.bound else "all"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _grown(before: int, now: int) -> str:
    """+6.2 % (9472 → 10060)"""
    share = f"{100 * (now / before - 1):+.3g} % " if before else ""
    return f"{share}({before} → {now})"


def _collapsed(old: Widths, new: Widths, most: float) -> bool:
    before, after = _mean(old), _mean(new)
    return bool(before and after and after / before <= most)


def _mean(widths: Widths) -> float:
    count = sum(widths.values())
    return _bytes_per_lane(widths) / count if count else 0.0


def _bytes_per_lane(widths: Widths) -> int:
    return sum(int(width) * number for width, number in widths.items())


def _without(every: Counts, some: Counts) -> dict[str, int]:
    left = {name: count - some.get(name, 0) for name, count in every.items()}
    return {name: count for name, count in left.items() if count > 0}


def _width_words(what: str, old: Widths, new: Widths, names: Counts) -> str:
    """stores to remote ranks went from 16 B to 2 B per lane: 128 global_store_short"""
    before, after = _mean(old), _mean(new)
    if before == after or not (old and new):
        return f"{what}: {_widths(old)} → {_widths(new)}"
    shown = _counts(names) if names else _widths(new)
    return f"{what} went from {_number(before)} B to {_number(after)} B per lane: {shown}"


def _loads_per_byte(metrics: Metrics) -> float:
    """Heap-base loads per byte that a lane stores remotely, in loops if there are such stores, else anywhere."""
    if metrics.remote_store_bytes_in_loops:
        return (metrics.heap_base_loads_in_loops or 0) / metrics.remote_store_bytes_in_loops
    return (metrics.heap_base_loads or 0) / metrics.remote_store_bytes if metrics.remote_store_bytes else 0.0


def _loop_words(old: HotLoop | None, new: HotLoop | None) -> str:
    if new is None:
        return "the hot loop is gone"
    if old is None:
        return f"a loop of {new.instructions} instructions is new"
    shares = f"{100 * old.matrix_share:.0f} → {100 * new.matrix_share:.0f} %"
    share = f", matrix share {shares}" if old.matrix_share or new.matrix_share else ""
    return f"hot loop: {_step(old.instructions, new.instructions)} instructions{share}{_mix(old.mix, new.mix)}"


def _mix(old: Counts | None, new: Counts | None) -> str:
    """What differs by class: " (valu 30 → 62, load 2 → 4)"."""
    if old is None or new is None:
        return ""
    kinds = [(name, old.get(name, 0), new.get(name, 0)) for name in dict.fromkeys([*old, *new])]
    mix = ", ".join(f"{name} {_step(before, after)}" for name, before, after in kinds if before != after)
    return f" ({mix})" if mix else ""


def _counts(counts: Counts) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _widths(widths: Widths) -> str:
    return ", ".join(f"{count} of {width} B" for width, count in widths.items()) or "none"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _step(old: int | None, new: int | None) -> str:
    return str(new) if old == new else f"{old} → {new}"
