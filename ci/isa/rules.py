"""The rules that judge a change of machine code, and the words for it.

A rule looks at the metrics of both sides (see benchmarks.isa.metrics for their meaning) and says what it found.  Which
findings count as a regression is policy: section [isa] of policy.toml.
"""

from __future__ import annotations

import dataclasses
import datetime
import fnmatch
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ci.judging.policy import DEFAULT_FILE, PolicyError

Metrics = Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class Finding:
    """One change in a kernel engineer's words.  judged: by policy it makes the configuration SLOWER.

    accepted: the reason for which the policy lets it pass, else "".  follows: what a judged finding before it brings
    about, such as the registers that narrow stores need; it is told, and no alarm of its own.
    """

    rule: str
    sentence: str
    judged: bool
    accepted: str = ""
    follows: bool = False


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A finding that a person has accepted for configurations that match, with the reason and since when."""

    kernel: str
    rule: str
    reason: str
    date: datetime.date
    backend: str = "*"
    arch: str = "*"

    def fits(self, entry: Mapping[str, Any], rule: str) -> bool:
        """Whether it speaks of this rule on this configuration."""
        wanted = ((entry["kernel"], self.kernel), (entry["backend"], self.backend), (entry["arch"], self.arch))
        return rule == self.rule and all(fnmatch.fnmatchcase(value, pattern) for value, pattern in wanted)


@dataclasses.dataclass(frozen=True)
class IsaPolicy:
    """From when on a change counts as a regression.

    spills: more spilled vector registers.  scratch_ops_in_loops: more scratch instructions in loops.
    store_width, load_width: mean bytes a lane, head / base, at or below which stores (local or remote) and loads have
    collapsed.  heap_base_loads: head / base of heap-base loads per byte stored remotely, from which they are reloaded.
    occupancy_step: fewer resident waves a SIMD.  matrix_kind: a faster kind of matrix instruction is gone.
    lds_limit: the kernel no longer loads on the chip.
    """

    spills: int = 1
    scratch_ops_in_loops: int = 1
    store_width: float = 0.5
    load_width: float = 0.25
    heap_base_loads: float = 1.25
    occupancy_step: int = 1
    matrix_kind: bool = True
    lds_limit: bool = True
    accept: tuple[Accepted, ...] = ()


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1, "a whole number of at least 1"),
    "float": (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v > 0, "a positive number"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
}


def load_policy(path: Path | None = None) -> IsaPolicy:
    """Section [isa] of a policy file (default: ci/policy.toml); without one the defaults.  Raises PolicyError."""
    path = path or DEFAULT_FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read: {error.strerror or error}; give an existing file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: not TOML: {error}") from None
    return parse_policy(data.get("isa", {}), f"{path}: [isa]")


def parse_policy(section: Mapping[str, Any], where: str = "[isa]") -> IsaPolicy:
    """The checked section.  Raises PolicyError naming the key, its value and what is allowed."""
    fields = {f.name: str(f.type) for f in dataclasses.fields(IsaPolicy) if f.name != "accept"}
    for key, value in section.items():
        if key not in (*fields, "accept", "reason", "date"):
            raise PolicyError(f"{where}: unknown key {key!r}; known: {', '.join(fields)}, accept, reason, date")
        if key in fields and not _KINDS[fields[key]][0](value):
            raise PolicyError(f"{where}: {key} = {value!r}; allowed: {_KINDS[fields[key]][1]}")
    if section:
        _dated(section, where)
    accept = section.get("accept", [])
    if not isinstance(accept, list):
        raise PolicyError(f"{where}: accept is a list of tables, written [[isa.accept]]")
    values = {key: value for key, value in section.items() if key in fields}
    return IsaPolicy(**values, accept=tuple(_accepted(a, f"{where} accept {i}") for i, a in enumerate(accept, 1)))


def _accepted(table: Any, where: str) -> Accepted:
    known = [f.name for f in dataclasses.fields(Accepted)]
    if not isinstance(table, Mapping):
        raise PolicyError(f"{where}: {table!r} is no table; write [[isa.accept]] with keys below")
    for key in table:
        if key not in known:
            raise PolicyError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
    _dated(table, where)
    for key in ("kernel", "rule"):
        if not isinstance(table.get(key), str):
            raise PolicyError(f"{where}: {key} is missing; give a name or a pattern with *")
    if table["rule"] not in RULES:
        raise PolicyError(f"{where}: rule = {table['rule']!r}; known: {', '.join(RULES)}")
    return Accepted(**table)


def _dated(table: Mapping[str, Any], where: str) -> None:
    if not isinstance(table.get("reason"), str) or not table["reason"].strip():
        raise PolicyError(f"{where}: reason is missing; say in one sentence why these values hold")
    if not isinstance(table.get("date"), datetime.date):
        raise PolicyError(f"{where}: date is missing; say since when, such as date = 2026-11-20")


# ---- rules ---------------------------------------------------------------------------------------------------------


def findings(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> tuple[Finding, ...]:
    """Everything that differs between two compiled entries: judged findings, what follows from them, then the rest."""
    found: list[Finding] = []
    for rule, look in RULES.items():
        for sentence, bad in look(base, head, policy):
            reason = next((a.reason for a in policy.accept if a.fits(head, rule)), "") if bad else ""
            follows = bad and rule in EFFECTS and any(finding.judged for finding in found)
            found.append(Finding(rule, sentence, bad and not reason and not follows, reason, follows))
    found.sort(key=lambda finding: (not finding.judged, not finding.follows))
    return tuple(found) or (Finding("code", "the instructions differ, every metric is the same", judged=False),)


Said = Iterator[tuple[str, bool]]


def _load(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    if head["will_not_load"] and not base["will_not_load"]:
        yield f"does not load on {head['arch']}: {head['will_not_load']}", policy.lds_limit
    elif base["will_not_load"] and not head["will_not_load"]:
        yield "loads now; before: " + base["will_not_load"], False


def _spills(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = base["metrics"], head["metrics"]
    spilled = new.get("vgpr_spills", 0) - old.get("vgpr_spills", 0)
    looped = new["scratch_ops_in_loops"] - old["scratch_ops_in_loops"]
    if spilled == looped == 0 and new["scratch_bytes"] == old["scratch_bytes"]:
        return
    parts = []
    if "vgpr_spills" in new:
        parts.append(f"vector registers spilled: {_step(old['vgpr_spills'], new['vgpr_spills'])}")
    parts.append(f"scratch: {_step(old['scratch_bytes'], new['scratch_bytes'])} B a lane")
    parts.append(f"scratch instructions in loops: {_step(old['scratch_ops_in_loops'], new['scratch_ops_in_loops'])}")
    yield ", ".join(parts), spilled >= policy.spills or looped >= policy.scratch_ops_in_loops


def _remote_stores(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = (entry["metrics"].get("remote_store_widths", {}) for entry in (base, head))
    if old != new:
        yield (
            _width_words("stores to remote ranks", old, new, head["metrics"].get("remote_store_names", {})),
            _collapsed(old, new, policy.store_width),
        )


def _local_stores(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = (
        _without(entry["metrics"]["store_widths"], entry["metrics"].get("remote_store_widths", {}))
        for entry in (base, head)
    )
    if old != new:
        names = _without(head["metrics"]["store_names"], head["metrics"].get("remote_store_names", {}))
        yield _width_words("stores", old, new, names), _collapsed(old, new, policy.store_width)


def _loads(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = (entry["metrics"]["load_widths"] for entry in (base, head))
    if old != new:
        yield _width_words("loads", old, new, {}), _collapsed(old, new, policy.load_width)


def _heap_bases(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    """Loads per byte stored remotely: neither unrolling nor another store width changes that, reloading does."""
    old, new = base["metrics"], head["metrics"]
    counts = [(old.get(name, 0), new.get(name, 0)) for name in ("heap_base_loads", "heap_base_loads_in_loops")]
    if all(before == after for before, after in counts):
        return
    before, after = _loads_per_byte(old), _loads_per_byte(new)
    reloaded = bool(before) and after / before >= policy.heap_base_loads
    yield (
        (
            f"heap-base loads: {_step(*counts[0])}, of them in loops: {_step(*counts[1])}"
            + (" (reloaded where they were kept)" if reloaded else "")
        ),
        reloaded,
    )


def _occupancy(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = base["metrics"], head["metrics"]
    if old["occupancy"] == new["occupancy"] or head["will_not_load"] or base["will_not_load"]:
        return
    lost = old["occupancy"] - new["occupancy"]
    limits = [
        f"{_step(old[name], new[name])} {word}"
        for name, word in (("vgpr", "VGPRs"), ("registers", "registers"), ("lds_bytes", "B of LDS"))
        if name in new and old[name] != new[name]
    ]
    why = f" ({', '.join(limits)})" if limits else ""
    unit = "waves a SIMD" if head["arch"].startswith("gfx") else "warps a scheduler"
    yield f"occupancy: {_step(old['occupancy'], new['occupancy'])} {unit}{why}", lost >= policy.occupancy_step


def _matrix(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    old, new = base["metrics"]["matrix"], head["metrics"]["matrix"]
    if old == new:
        return
    fastest = max(map(matrix_rate, new), default=0.0)
    lost = [name for name in old if name not in new and matrix_rate(name) > fastest]
    words = "MFMA" if head["arch"].startswith("gfx") else "tensor-core"
    if lost:
        yield f"{', '.join(lost)} is gone; {words} now: {_counts(new)}", policy.matrix_kind
    else:
        yield f"{words} instructions: {_counts(old)} → {_counts(new)}", False


_TOLD = {
    "vgpr_spills",
    "scratch_bytes",
    "scratch_ops_in_loops",
    "remote_store_widths",
    "remote_store_names",
    "remote_store_bytes",
    "remote_store_bytes_in_loops",
    "store_widths",
    "store_names",
    "load_widths",
    "bytes_per_load",
    "bytes_per_store",
    "bytes_per_remote_store",
    "subdword_remote_stores",
    "heap_base_loads",
    "heap_base_loads_in_loops",
    "matrix",
    "occupancy",
    "occupancy_by_registers",
    "occupancy_by_lds",
    "lds_limit",
    "instructions",
    "loops",
}
"""Metrics that the rules above put into words, or that follow from others."""

_NAMES = {
    "vgpr": "VGPRs",
    "agpr": "AGPRs",
    "sgpr": "SGPRs",
    "sgpr_spills": "scalar registers spilled",
    "scratch_ops": "scratch instructions",
    "agpr_moves_in_loops": "AGPR moves in loops",
    "lds_bytes": "LDS bytes",
    "waves_per_group": "waves a workgroup",
    "code_bytes": "code bytes",
    "loads_to_lds": "loads straight to LDS",
    "lds_read_widths": "LDS reads",
    "lds_write_widths": "LDS writes",
}


def _others(base: Mapping[str, Any], head: Mapping[str, Any], policy: IsaPolicy) -> Said:
    del policy
    for name, new in head["metrics"].items():
        old = base["metrics"].get(name)
        if old == new or name in _TOLD:
            continue
        if name == "loop":
            yield _loop_words(old or {}, new), False
        elif isinstance(new, Mapping):
            words = _widths if name.endswith("_widths") else _counts
            yield f"{_NAMES.get(name, name)}: {words(old or {})} → {words(new)}", False
        else:
            yield f"{_NAMES.get(name, name)}: {_step(old, new)}", False


RULES: dict[str, Callable[[Mapping[str, Any], Mapping[str, Any], IsaPolicy], Said]] = {
    "load": _load,
    "remote_store_width": _remote_stores,
    "store_width": _local_stores,
    "load_width": _loads,
    "matrix_kind": _matrix,
    "heap_bases": _heap_bases,
    "spills": _spills,
    "occupancy": _occupancy,
    "other": _others,
}
"""Every rule by name, in the order in which findings are told: causes before what they bring about."""

EFFECTS = ("spills", "occupancy")
"""Rules about the registers and LDS that code needs.  Where the same configuration has lost its matrix instruction or
the width of its stores, the code that replaced them needs more of both: one regression, not three."""


def matrix_rate(name: str) -> float:
    """Relative speed of a kind of matrix instruction.

    v_mfma_f32_16x16x32_f16: multiply-adds a lane and pass grow with M * K (16x16x32 and 32x32x16 are equally fast).
    SASS: warp-group instructions (HGMMA, ...) outrun warp ones (HMMA, ...); 8-bit kinds double 16-bit ones.
    """
    shape = re.search(r"_(\d+)x\d+x(\d+)(?:_(\d+)b)?", name)
    if shape:
        return float(int(shape[1]) * int(shape[2]) * int(shape[3] or 1))
    family = name.split(".")[0]
    return (2.0 if "G" in family else 1.0) * (2.0 if family.startswith(("Q", "I")) else 1.0)


def _collapsed(old: Mapping[str, int], new: Mapping[str, int], most: float) -> bool:
    before, after = _mean(old), _mean(new)
    return bool(before and after and after / before <= most)


def _mean(widths: Mapping[str, int]) -> float:
    count = sum(widths.values())
    return sum(int(width) * number for width, number in widths.items()) / count if count else 0.0


def _without(every: Mapping[str, int], some: Mapping[str, int]) -> dict[str, int]:
    left = {name: count - some.get(name, 0) for name, count in every.items()}
    return {name: count for name, count in left.items() if count > 0}


def _width_words(what: str, old: Mapping[str, int], new: Mapping[str, int], names: Mapping[str, int]) -> str:
    """stores to remote ranks went from 16 B to 2 B a lane: 128 global_store_short"""
    if not new:
        return f"{what}: none any more; before {_widths(old)}"
    shown = _counts(names) if names else _widths(new)
    if not old:
        return f"{what}: none before; now {shown}"
    before, after = _mean(old), _mean(new)
    if before == after:
        return f"{what}: {sum(old.values())} → {sum(new.values())} of {_number(after)} B a lane"
    return f"{what} went from {_number(before)} B to {_number(after)} B a lane: {shown}"


def _loads_per_byte(metrics: Metrics) -> float:
    """Heap-base loads for each byte a lane stores remotely, in loops if there are such stores, else anywhere."""
    where = "_in_loops" if metrics["remote_store_bytes_in_loops"] else ""
    stored: int = metrics[f"remote_store_bytes{where}"]
    loads: int = metrics[f"heap_base_loads{where}"]
    return loads / stored if stored else 0.0


def _loop_words(old: Metrics, new: Metrics) -> str:
    if not old or not new:
        return "the hot loop is gone" if old else f"a loop of {new['instructions']} instructions is new"
    mix = ", ".join(
        f"{name} {_step(old['mix'].get(name, 0), new['mix'].get(name, 0))}"
        for name in dict.fromkeys([*old["mix"], *new["mix"]])
        if old["mix"].get(name, 0) != new["mix"].get(name, 0)
    )
    share = (
        f", matrix share {100 * old['matrix_share']:.0f} → {100 * new['matrix_share']:.0f} %"
        if old["matrix_share"] or new["matrix_share"]
        else ""
    )
    changed = f" ({mix})" if mix else ""
    return f"hot loop: {_step(old['instructions'], new['instructions'])} instructions{share}{changed}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "none"


def _widths(widths: Mapping[str, int]) -> str:
    return ", ".join(f"{count} of {width} B" for width, count in widths.items()) or "none"


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _step(old: Any, new: Any) -> str:
    return str(new) if old == new else f"{old} → {new}"
