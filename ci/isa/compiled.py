"""What `python -m benchmarks.isa metrics` writes, as types: a compiled source tree, its entries and their metrics.

A result file is parsed once, by :func:`read`; everything behind it works on these values.  Writer and reader lie in
packages that may not import each other: the format carries a version, and tests/ci/isa/test_compiled.py holds the
metrics of both sides together.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ci.report.words import plain

FORMAT, VERSION = "ridgeline-isa", 1

MOST_COUNT = 2**53
"""Counts beyond it are not exact in every reader of JSON (RFC 8259, section 6)."""

MOST_CHARACTERS = 1000
"""Characters of a name or a sentence: a longer name is a mistake, a longer sentence is cut."""

T = TypeVar("T")
Counts = Mapping[str, int]
"""Instructions by name."""

Widths = Mapping[str, int]
"""Instructions by bytes per lane: "16"; of LDS also "2x8", two of 8 bytes in one instruction."""


class IsaError(ValueError):
    """A result file cannot be used; the text names it and says why."""


class CompileStatus(enum.StrEnum):
    """What became of one compilation."""

    OK = "ok"
    FAILED = "failed"
    REFUSED = "refused"
    UNSUPPORTED = "unsupported"


@dataclasses.dataclass(frozen=True)
class HotLoop:
    """The hottest innermost loop: its instructions, by class in `mix`, and the share of matrix instructions."""

    instructions: int
    depth: int
    mix: Counts
    matrix_share: float


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What was counted in one compilation, in the order in which it is shown; benchmarks.isa.metrics has the meanings.

    None: the architecture does not have the metric.  `registers` is NVIDIA's; `vgpr` and all others that may be None
    are AMD's.  A mean (bytes_per_*) is None also where there are no such instructions.
    """

    vgpr: int | None
    agpr: int | None
    sgpr: int | None
    registers: int | None
    vgpr_spills: int | None
    sgpr_spills: int | None
    scratch_bytes: int
    scratch_ops: int
    scratch_ops_in_loops: int
    agpr_moves_in_loops: int | None
    lds_bytes: int
    lds_limit: int
    waves_per_group: int
    occupancy: int
    occupancy_by_registers: int
    occupancy_by_lds: int
    code_bytes: int
    instructions: int
    matrix: Counts
    load_widths: Widths
    store_widths: Widths
    store_names: Counts
    bytes_per_load: float | None
    bytes_per_store: float | None
    loads_to_lds: int
    remote_store_widths: Widths | None
    remote_store_names: Counts | None
    remote_store_bytes: int | None
    remote_store_bytes_in_loops: int | None
    bytes_per_remote_store: float | None
    subdword_remote_stores: int | None
    remote_store_drains: int | None
    remote_store_drains_between: int | None
    heap_base_loads: int | None
    heap_base_loads_in_loops: int | None
    lds_read_widths: Widths
    lds_write_widths: Widths
    barriers: int
    waits: int
    atomics: Counts
    loops: int
    loop: HotLoop | None

    @property
    def lane_registers(self) -> int:
        """Vector registers per lane (AMD) or registers per thread (NVIDIA)."""
        return (self.vgpr if self.vgpr is not None else self.registers) or 0

    @property
    def is_amd(self) -> bool:
        """Whether the code is for an AMD architecture."""
        return self.vgpr is not None


@dataclasses.dataclass(frozen=True)
class CompiledCode:
    """What came out of one compilation: its digest, the name of its text in the cache, metrics, remarks.

    will_not_load: why no GPU of the architecture can launch it, "" if it can.
    """

    hash: str
    asm: str
    metrics: Metrics
    notes: tuple[str, ...]
    will_not_load: str


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledEntry:
    """One compilation and all cases that lead to it; `code` is None, and `why` says why, unless the status is OK."""

    kernel: str
    backend: str
    label: str
    arch: str
    cases: tuple[str, ...]
    status: CompileStatus
    why: str
    code: CompiledCode | None

    @property
    def name(self) -> str:
        """How it is called in tables: kernel/backend, and the label in brackets."""
        return called(self.kernel, self.backend, self.label)

    @property
    def emitted(self) -> CompiledCode:
        """The code of an entry that has some."""
        assert self.code is not None, f"{self.name} was not compiled: {self.why}"
        return self.code


@dataclasses.dataclass(frozen=True)
class LostModule:
    """A module with kernels that cannot be imported."""

    module: str
    why: str


@dataclasses.dataclass(frozen=True)
class LostArch:
    """An architecture for which nothing could be listed or compiled."""

    arch: str
    why: str


@dataclasses.dataclass(frozen=True)
class CompiledTree:
    """A source tree as compiled; triton: the version that compiled it, None if nothing was listed."""

    triton: str | None
    arches: tuple[str, ...]
    entries: tuple[CompiledEntry, ...]
    broken: tuple[LostModule, ...] = ()
    failures: tuple[LostArch, ...] = ()


def called(kernel: str, backend: str, label: str) -> str:
    """kernel/backend [label]"""
    return f"{kernel}/{backend}" + (f" [{label}]" if label else "")


# ---- reading -------------------------------------------------------------------------------------------------------


def read(path: Path) -> CompiledTree:
    """A result file; IsaError if it is not one."""
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise IsaError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise IsaError(f"{path} is not JSON: {error}") from None


def parse(text: str, where: str) -> CompiledTree:
    """The text of a result file; IsaError names `where`, the entry, the field, its value and what is expected."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise IsaError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise IsaError(f"{where} is not written by `python -m benchmarks.isa metrics`")
    if found.get("version") != VERSION:
        raise IsaError(f"{where} has version {found.get('version')!r} of its format; this tree reads version {VERSION}")
    return _tree(_Object(found, where))


class _Unfit(Exception):
    """A value is of the wrong kind; the text says what is expected."""


class _Object:
    """The fields of a JSON object; IsaError names the object, the field, its value and what is expected."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise IsaError(f"{where} is {_shown(value)}; an object is expected")
        self._fields, self._where = value, where

    def get(self, name: str, kind: Callable[[object], T]) -> T:
        """A field that must be there."""
        if name not in self._fields:
            raise IsaError(f"{self._where}: {name} is missing")
        try:
            return kind(self._fields[name])
        except _Unfit as expected:
            raise IsaError(f"{self._where}: {name} is {_shown(self._fields[name])}; expected: {expected}") from None

    def maybe(self, name: str, kind: Callable[[object], T]) -> T | None:
        """A field that may be missing."""
        return self.get(name, kind) if name in self._fields else None

    def inner(self, name: str) -> _Object:
        """A field that is an object itself."""
        return _Object(self.get(name, lambda value: value), f"{self._where}: {name}")

    def each(self, name: str, item: str) -> list[_Object]:
        """The objects of a list; item: what one of them is called in an error."""
        return [_Object(one, f"{self._where}: {item} {n}") for n, one in enumerate(self.get(name, _list), 1)]

    def is_empty(self) -> bool:
        """Whether it has no fields."""
        return not self._fields

    def called(self, name: str) -> _Object:
        """The same object with its name in the errors about its other fields."""
        return _Object(self._fields, f"{self._where} ({name})")


def _tree(fields: _Object) -> CompiledTree:
    return CompiledTree(
        fields.get("triton", _or_null(_name)),
        fields.get("arches", _each(_name)),
        tuple(_entry(one) for one in fields.each("entries", "entry")),
        tuple(LostModule(one.get("module", _name), one.get("why", _prose)) for one in fields.each("broken", "module")),
        tuple(LostArch(one.get("arch", _name), one.get("why", _prose)) for one in fields.each("failures", "failure")),
    )


def _entry(fields: _Object) -> CompiledEntry:
    kernel, backend, label, arch = (fields.get(name, _name) for name in ("kernel", "backend", "label", "arch"))
    fields = fields.called(f"{called(kernel, backend, label)} on {arch}")
    cases, status = fields.get("cases", _each(_name)), fields.get("status", _status)
    if status is not CompileStatus.OK:
        return CompiledEntry(kernel, backend, label, arch, cases, status, fields.get("why", _prose), None)
    code = CompiledCode(
        fields.get("hash", _name),
        fields.get("asm", _file_name),
        _metrics(fields.inner("metrics")),
        fields.maybe("notes", _each(_prose)) or (),
        fields.get("will_not_load", _or_null(_prose)) or "",
    )
    return CompiledEntry(kernel, backend, label, arch, cases, status, "", code)


def _metrics(fields: _Object) -> Metrics:
    amd = fields.maybe("vgpr", _count) is not None
    lacking = NVIDIA_ONLY if amd else AMD_ONLY
    values: dict[str, object] = {
        name: None if name in lacking else fields.get(name, _KINDS[kind]) for name, kind in _METRIC_KINDS.items()
    }
    return Metrics(**values, loop=_loop(fields.inner("loop")))  # type: ignore[arg-type]


def _loop(fields: _Object) -> HotLoop | None:
    if fields.is_empty():
        return None
    instructions, depth = fields.get("instructions", _count), fields.get("depth", _count)
    return HotLoop(instructions, depth, fields.get("mix", _counts), fields.get("matrix_share", _share))


# ---- kinds of values: each returns the value, or raises _Unfit with what is expected --------------------------------


def _name(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > MOST_CHARACTERS:
        raise _Unfit(f"printable text of at most {MOST_CHARACTERS} characters")
    return value


def _prose(value: object) -> str:
    """A sentence, perhaps with words of a compiler or a foreign package: one line without control characters."""
    if not isinstance(value, str):
        raise _Unfit("text")
    return plain(value, MOST_CHARACTERS)


def _file_name(value: object) -> str:
    if not isinstance(value, str) or not re.fullmatch(r"\w+\.s", value, re.ASCII):
        raise _Unfit("the name of a file in the cache, such as 7ae9e227924116e8.s")
    return value


def _status(value: object) -> CompileStatus:
    if not isinstance(value, str) or value not in set(CompileStatus):
        raise _Unfit(f"one of {', '.join(CompileStatus)}")
    return CompileStatus(value)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _Unfit("a list")
    return value


def _each(kind: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    return lambda value: tuple(kind(one) for one in _list(value))


def _or_null(kind: Callable[[object], T]) -> Callable[[object], T | None]:
    return lambda value: None if value is None else kind(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_COUNT:
        raise _Unfit("a whole number of at least 0")
    return value


def _number(value: object, most: int = MOST_COUNT) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= most:
        raise _Unfit(f"a number between 0 and {most}")
    return value


def _share(value: object) -> float:
    return _number(value, most=1)


def _counts(value: object) -> Counts:
    if not isinstance(value, dict):
        raise _Unfit("an object of counts")
    return {_name(name): _count(count) for name, count in value.items()}


def _widths(value: object) -> Widths:
    counts = _counts(value)
    if not all(re.fullmatch(r"(2x)?[1-9]\d{0,5}", width, re.ASCII) for width in counts):
        raise _Unfit("counts by bytes per lane, such as 16 or 2x8")
    return counts


def _shown(value: object) -> str:
    """A value in an error message, cut where it is long."""
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."


_KINDS: dict[str, Callable[[object], object]] = {
    "int": _count,
    "float | None": _or_null(_number),
    "Counts": _counts,
    "Widths": _widths,
}
"""How a metric is read, by the annotation of its field."""

NVIDIA_ONLY = ("registers",)
MEANS = ("bytes_per_load", "bytes_per_store", "bytes_per_remote_store")
_ANNOTATIONS = {field.name: str(field.type) for field in dataclasses.fields(Metrics) if field.name != "loop"}
_EVERYWHERE = (*NVIDIA_ONLY, "bytes_per_load", "bytes_per_store")
AMD_ONLY = tuple(name for name, kind in _ANNOTATIONS.items() if kind.endswith("None") and name not in _EVERYWHERE)
"""Metrics that the other vendor's code does not have; MEANS may be null in a file."""

_METRIC_KINDS = {name: kind if name in MEANS else kind.removesuffix(" | None") for name, kind in _ANNOTATIONS.items()}
