"""What `python -m benchmarks.isa` writes, as types: a compiled source tree, its entries and their metrics.

A result file is parsed once, by :func:`read`; everything behind it works on these values.  Writer and reader lie in
packages that may not import each other: the format carries a version, and tests/ci/isa/test_compiled.py holds the
metrics of both sides together.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from benchmarks.shapes import Into, Unfit, anything, built, form, items, maybe, number, record, that, whole
from ci import harness
from ci.report.words import plain

FORMAT, VERSION = "ridgeline-isa", 1

MOST_COUNT = 2**53
"""Counts beyond it are not exact in every reader of JSON (RFC 8259, section 6)."""

MOST_CHARACTERS = 1000
"""Characters of a name or a sentence: a longer name is a mistake, a longer sentence is cut."""

Json = Mapping[str, Any]
"""An object of a result file, checked."""

_NAME = that(
    lambda v: isinstance(v, str) and v.isprintable() and len(v) <= MOST_CHARACTERS,
    f"printable text of at most {MOST_CHARACTERS} characters",
)
_PROSE = that(lambda v: isinstance(v, str), "text")
Name = Annotated[str, _NAME]
Prose = Annotated[str, maybe(_PROSE), Into(lambda text: plain(text or "", MOST_CHARACTERS))]
"""A sentence, perhaps with words of a compiler or a foreign package: one line without control characters."""

Count = Annotated[int, whole(0, MOST_COUNT)]
Mean = Annotated[float | None, maybe(number(0, MOST_COUNT))]
Counts = Mapping[Name, Count]
"""Instructions by name."""

Widths = Mapping[
    Annotated[str, form(re.compile(r"(2x)?[1-9]\d{0,5}", re.ASCII), "bytes per lane, such as 16 or 2x8")], Count
]
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

    instructions: Count
    depth: Count
    mix: Counts | None
    matrix_share: Annotated[float, number(0, 1)]


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What was counted in one compilation, in the order in which it is shown; benchmarks.isa.__main__ has the meanings.

    None: the architecture does not have the metric.  `registers` is NVIDIA's; `vgpr` and all others that may be None
    are AMD's.  A mean (bytes_per_*) is None also where there are no such instructions, `mix` in results made before
    2026-11-24.
    """

    vgpr: Count | None
    agpr: Count | None
    sgpr: Count | None
    registers: Count | None
    vgpr_spills: Count | None
    sgpr_spills: Count | None
    scratch_bytes: Count
    scratch_ops: Count
    scratch_ops_in_loops: Count
    agpr_moves_in_loops: Count | None
    lds_bytes: Count
    lds_limit: Count
    waves_per_group: Count
    occupancy: Count
    occupancy_by_registers: Count
    occupancy_by_lds: Count
    code_bytes: Count
    instructions: Count
    mix: Counts | None
    matrix: Counts
    load_widths: Widths
    store_widths: Widths
    store_names: Counts
    bytes_per_load: Mean
    bytes_per_store: Mean
    loads_to_lds: Count
    remote_store_widths: Widths | None
    remote_store_names: Counts | None
    remote_store_bytes: Count | None
    remote_store_bytes_in_loops: Count | None
    bytes_per_remote_store: Mean | None
    subdword_remote_stores: Count | None
    remote_store_drains: Count | None
    remote_store_drains_between: Count | None
    heap_base_loads: Count | None
    heap_base_loads_in_loops: Count | None
    lds_read_widths: Widths
    lds_write_widths: Widths
    barriers: Count
    waits: Count
    atomics: Counts
    loops: Count
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

    hash: Name
    asm: Annotated[
        str, form(re.compile(r"\w+\.s", re.ASCII), "the name of a file in the cache, such as 7ae9e227924116e8.s")
    ]
    metrics: Metrics
    will_not_load: Prose
    notes: tuple[Prose, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class CompiledEntry:
    """One compilation and all cases that lead to it; `code` is None, and `why` says why, unless the status is OK."""

    kernel: Name
    backend: Name
    label: Name
    arch: Name
    cases: tuple[Name, ...]
    status: CompileStatus
    why: Prose = ""
    code: CompiledCode | None = None

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
class Executed:
    """What all waves of a launch executed, not what its code contains; benchmarks.emulation.counts has the meanings."""

    classes: Counts
    matrix: Counts
    matrix_cycles: Count
    bytes: Counts
    touched: Counts
    requests: Counts
    lines: Counts
    lds_passes: Count
    lds_cycles: Count
    conflicts: Counts
    branches: Count
    taken: Count
    divergent: Count
    vector: Count
    idle: Count

    @property
    def total(self) -> int:
        """Instructions."""
        return sum(self.classes.values())

    @property
    def bank_conflicts(self) -> int:
        """Cycles that bank conflicts add to accesses to the LDS."""
        return self.lds_cycles - self.lds_passes

    @property
    def all_requests(self) -> int:
        """Requests of 64 bytes to memory."""
        return sum(self.requests.values())

    @property
    def used(self) -> float | None:
        """Bytes that are used / bytes that are requested from memory; None without a request."""
        return sum(self.touched.values()) / (64 * self.all_requests) if self.all_requests else None


@dataclasses.dataclass(frozen=True)
class Bound:
    """The unit that is busy longest by the counts, and the most of the roofline in percent that this allows."""

    unit: Name
    percent: Annotated[float, number(0, 100)]


@dataclasses.dataclass(frozen=True, eq=False)
class ExecutedLaunch:
    """A launch that was executed in an emulator, in the small shape `at` that stands for its cases.

    counts: None where it could not be executed, which `why` says; where that is the emulator's doing or a case is too
    large for it, the status is UNSUPPORTED and `at` may be "".  bound: None where nothing is to be done.
    """

    kernel: Name
    backend: Name
    arch: Name
    at: Name
    cases: tuple[Name, ...]
    status: CompileStatus
    why: Prose = ""
    counts: Executed | None = None
    bound: Bound | None = None

    @property
    def label(self) -> str:
        """What it is called beside its kernel and backend."""
        return f"executed, {self.at}" if self.at else ""


@dataclasses.dataclass(frozen=True)
class CompiledTree:
    """A source tree as compiled; triton: the version that compiled it, None if nothing was listed.

    broken: why a module with kernels cannot be imported, by module.  failures: why nothing could be listed or compiled,
    by architecture.  executed: what its launches execute, where that was asked for.
    """

    triton: str | None
    arches: tuple[str, ...]
    entries: tuple[CompiledEntry, ...]
    broken: Mapping[str, str] = dataclasses.field(default_factory=dict)
    failures: Mapping[str, str] = dataclasses.field(default_factory=dict)
    executed: tuple[ExecutedLaunch, ...] = ()


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
        raise IsaError(f"{where} is not written by `python -m benchmarks.isa`")
    if found.get("version") != VERSION:
        raise IsaError(f"{where} has version {found.get('version')!r} of its format; this tree reads version {VERSION}")
    try:
        return _tree(found, where)
    except Unfit as error:
        raise IsaError(str(error)) from None


def _tree(found: Json, where: str) -> CompiledTree:
    HEAD(found, where)
    return CompiledTree(
        found["triton"],
        tuple(found["arches"]),
        tuple(_entry(one, f"{where}: entry {number}") for number, one in enumerate(found["entries"], 1)),
        {one["module"]: plain(one["why"], MOST_CHARACTERS) for one in found["broken"]},
        {one["arch"]: plain(one["why"], MOST_CHARACTERS) for one in found["failures"]},
        tuple(_launch(one, f"{where}: executed {number}") for number, one in enumerate(found.get("executed", ()), 1)),
    )


_LOST = {"why": _PROSE}
HEAD = record(
    {
        "triton": maybe(_NAME),
        "arches": items(_NAME),
        "entries": items(anything),
        "broken": items(record({"module": _NAME, **_LOST}, {})),
        "failures": items(record({"arch": _NAME, **_LOST}, {})),
    },
    {"executed": items(anything)},
)
FAILED = record(_LOST, {})
COUNTED = record(dict.fromkeys(("counts", "bound"), anything), {})


def _launch(found: Any, where: str) -> ExecutedLaunch:
    made = built(ExecutedLaunch, found, where)
    (COUNTED if found.get("status") == CompileStatus.OK else FAILED)(found, where)
    return made


def _entry(found: Any, where: str) -> CompiledEntry:
    made = built(CompiledEntry, found, where)
    where = f"{where} ({made.name} on {made.arch})"
    if made.status is not CompileStatus.OK:
        FAILED(found, where)
        return made
    raw = found.get("metrics")
    if isinstance(raw, dict):  # what the other vendor's code has is none; results made before 2026-11-24 have no mix
        lacking = dict.fromkeys(NVIDIA_ONLY if "vgpr" in raw else AMD_ONLY)
        found = found | {"metrics": {"mix": None, **raw, **lacking, "loop": raw.get("loop") or None}}
    return dataclasses.replace(made, code=built(CompiledCode, found, where))


NVIDIA_ONLY = ("registers",)
AMD_ONLY = tuple(
    field.name
    for field in dataclasses.fields(Metrics)
    if str(field.type).endswith("None") and field.name not in (*NVIDIA_ONLY, "mix", "loop")
)
"""Metrics that the other vendor's code does not have."""

# Start `python -m benchmarks.isa` as a process and follow it; what it wrote is read back as a result file.


class CompileError(Exception):
    """Compiling could not start or broke off; the text says why."""


TARGETS = ("gfx942", "gfx950", "sm_90")
"""What commits are compared for unless asked otherwise, by every verb: MI300X and MI325X, MI355X, H200."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to compile; empty means all (arches: the AMD ones).

    lenient: a kernel, case or backend that the tree does not have is not an error, as in an older commit.
    execute: also count what the launches execute in an emulator.
    """

    arches: Sequence[str] = ()
    tier: str = "pr"
    kernels: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    lenient: bool = False
    execute: bool = False

    def options(self) -> list[str]:
        """As options of `python -m benchmarks.isa`."""
        chosen = harness.options(tier=self.tier, arch=self.arches, kernel=self.kernels, case=self.cases)
        chosen += harness.options(backend=self.backends)
        return [*chosen, *["--lenient"] * self.lenient, *["--execute"] * self.execute]


@dataclasses.dataclass(frozen=True)
class TreeCompiler:
    """Compiles source trees; the cache keeps what is compiled, the console shows progress."""

    cache: Path
    console: Console

    def compile(self, tree: Path, wanted: Wanted, what: str = "") -> CompiledTree:
        """A tree, compiled with a progress bar called `what`; CompileError or IsaError if there is no result."""
        return parse(self.result(tree, wanted, what), f"the result of compiling {tree}")

    def result(self, tree: Path, wanted: Wanted, what: str = "") -> str:
        """The text of a tree's result file."""
        with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as folder:
            out = Path(folder) / "written"
            argv = harness.program("benchmarks.isa", *wanted.options())
            argv += harness.options(tree=tree.resolve(), cache=self.cache.resolve(), out=out, progress="json")
            try:
                harness.produce(argv, out, self.console, what or str(tree))
            except harness.MeasureError as error:
                raise CompileError(str(error)) from None
            return out.read_text(encoding="utf-8")
