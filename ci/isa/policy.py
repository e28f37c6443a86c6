"""Section [isa] of policy.toml: from when on a change of machine code counts as a regression, and what is accepted."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import fnmatch
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ci.isa.compiled import CompiledEntry
from ci.judging.policy import PolicyError, default_file, document


class Rule(enum.StrEnum):
    """The rules by name, in the order in which their findings are shown: causes before what they bring about."""

    LOAD = "load"
    REMOTE_STORE_WIDTH = "remote_store_width"
    STORE_WIDTH = "store_width"
    LOAD_WIDTH = "load_width"
    MATRIX_KIND = "matrix_kind"
    DRAINS = "drains"
    HEAP_BASES = "heap_bases"
    SPILLS = "spills"
    OCCUPANCY = "occupancy"
    OTHER = "other"


@dataclasses.dataclass(frozen=True)
class Accepted:
    """A finding that a person has accepted for the configurations that match, with the reason and since when."""

    kernel: str
    rule: str
    reason: str
    date: datetime.date
    backend: str = "*"
    arch: str = "*"

    def fits(self, entry: CompiledEntry, rule: Rule) -> bool:
        """Whether it is about this rule on this configuration."""
        wanted = ((entry.kernel, self.kernel), (entry.backend, self.backend), (entry.arch, self.arch))
        return rule == self.rule and all(fnmatch.fnmatchcase(value, pattern) for value, pattern in wanted)


@dataclasses.dataclass(frozen=True)
class IsaPolicy:
    """From when on a change counts as a regression.

    spills: more spilled vector registers.  scratch_ops_in_loops: more scratch instructions in loops.
    store_width, load_width: mean bytes per lane, head / base, at or below which stores (local or remote) and loads have
    collapsed.  heap_base_loads: head / base of heap-base loads per byte stored remotely, from which they are reloaded.
    drains: more waits for remote stores inside a block of them (benchmarks/isa/readers/drains.py).
    occupancy_step: fewer resident waves per SIMD.  matrix_kind: a faster kind of matrix instruction is gone.
    lds_limit: the kernel no longer loads on the chip.
    """

    spills: int = 1
    scratch_ops_in_loops: int = 1
    store_width: float = 0.5
    load_width: float = 0.25
    heap_base_loads: float = 1.25
    drains: int = 1
    occupancy_step: int = 1
    matrix_kind: bool = True
    lds_limit: bool = True
    accept: tuple[Accepted, ...] = ()

    def reason_to_accept(self, entry: CompiledEntry, rule: Rule) -> str:
        """Why a finding of this rule on this configuration passes, "" if nobody has accepted it."""
        return next((one.reason for one in self.accept if one.fits(entry, rule)), "")


_KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "int": (lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= 1, "a whole number of at least 1"),
    "float": (lambda v: isinstance(v, int | float) and not isinstance(v, bool) and v > 0, "a positive number"),
    "bool": (lambda v: isinstance(v, bool), "true or false"),
}


def load_policy(path: Path | None = None) -> IsaPolicy:
    """Section [isa] of a policy file (default: ci/policy.toml); without one the defaults.  Raises PolicyError."""
    path = path or default_file()
    return parse_policy(document(path).get("isa", {}), f"{path}: [isa]")


def parse_policy(section: Mapping[str, Any], where: str = "[isa]") -> IsaPolicy:
    """The checked section.  Raises PolicyError naming the key, its value and what is allowed."""
    fields = {f.name: str(f.type) for f in dataclasses.fields(IsaPolicy) if f.name != "accept"}
    for key, value in section.items():
        if key not in (*fields, "accept", "reason", "date"):
            raise PolicyError(f"{where}: unknown key {key!r}; known: {', '.join(fields)}, accept, reason, date")
        if key in fields and not _KINDS[fields[key]][0](value):
            raise PolicyError(f"{where}: {key} = {value!r}; allowed: {_KINDS[fields[key]][1]}")
    if section:
        _check_dated(section, where)
    accept = section.get("accept", [])
    if not isinstance(accept, list):
        raise PolicyError(f"{where}: accept is a list of tables, written [[isa.accept]]")
    values = {key: value for key, value in section.items() if key in fields}
    return IsaPolicy(**values, accept=tuple(_accepted(a, f"{where} accept {i}") for i, a in enumerate(accept, 1)))


def _accepted(table: Any, where: str) -> Accepted:
    known = [f.name for f in dataclasses.fields(Accepted)]
    if not isinstance(table, Mapping):
        raise PolicyError(f"{where}: {table!r} is not a table; write [[isa.accept]] with keys below")
    for key in table:
        if key not in known:
            raise PolicyError(f"{where}: unknown key {key!r}; known: {', '.join(known)}")
    _check_dated(table, where)
    for key in ("kernel", "rule"):
        if not isinstance(table.get(key), str):
            raise PolicyError(f"{where}: {key} is missing; give a name or a pattern with *")
    if table["rule"] not in set(Rule):
        raise PolicyError(f"{where}: rule = {table['rule']!r}; known: {', '.join(Rule)}")
    for key in ("backend", "arch"):
        if not isinstance(table.get(key, "*"), str):
            raise PolicyError(f"{where}: {key} = {table[key]!r}; give a name or a pattern with *")
    return Accepted(**table)


def _check_dated(table: Mapping[str, Any], where: str) -> None:
    if not isinstance(table.get("reason"), str) or not table["reason"].strip():
        raise PolicyError(f"{where}: reason is missing; say in one sentence why these values hold")
    if not isinstance(table.get("date"), datetime.date):
        raise PolicyError(f"{where}: date is missing; say since when, such as date = 2026-11-20")
