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
import tempfile
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.shapes import Check, Unfit, anything, form, items, maybe, number, one_of, record, table, that, whole
from ci import harness
from ci.report.words import plain
from ci.trials.trial import Scalar

FORMAT, VERSION = "ridgeline-isa", 1

MOST_COUNT = 2**53
"""Counts beyond it are not exact in every reader of JSON (RFC 8259, section 6)."""

MOST_CHARACTERS = 1000
"""Characters of a name or a sentence: a longer name is a mistake, a longer sentence is cut."""

Json = Mapping[str, Any]
"""An object of a result file, checked."""

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
    mix: Counts | None
    matrix_share: float


@dataclasses.dataclass(frozen=True)
class Metrics:
    """What was counted in one compilation, in the order in which it is shown; benchmarks.isa.metrics has the meanings.

    None: the architecture does not have the metric.  `registers` is NVIDIA's; `vgpr` and all others that may be None
    are AMD's.  A mean (bytes_per_*) is None also where there are no such instructions, `mix` in results made before
    2026-11-24.
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
    mix: Counts
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
class Executed:
    """What all waves of a launch executed, not what its code contains; benchmarks.emulation.counts has the meanings."""

    classes: Counts
    matrix: Counts
    matrix_cycles: int
    bytes: Counts
    touched: Counts
    requests: Counts
    lines: Counts
    lds_passes: int
    lds_cycles: int
    conflicts: Counts
    branches: int
    taken: int
    divergent: int
    vector: int
    idle: int

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


@dataclasses.dataclass(frozen=True, eq=False)
class ExecutedLaunch:
    """A launch that was executed in an emulator, in the small shape `at` that stands for its cases.

    counts: None where it could not be executed, which `why` says.  bound: the unit that is busy longest by the counts,
    and the most of the roofline in percent that this allows; None where nothing is to be done.
    """

    kernel: str
    backend: str
    arch: str
    at: str
    cases: tuple[str, ...]
    why: str
    counts: Executed | None
    bound: tuple[str, float] | None


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
        raise IsaError(f"{where} is not written by `python -m benchmarks.isa metrics`")
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
        {one["module"]: _prose(one["why"]) for one in found["broken"]},
        {one["arch"]: _prose(one["why"]) for one in found["failures"]},
        tuple(_launch(one, f"{where}: executed {number}") for number, one in enumerate(found.get("executed", ()), 1)),
    )


def _launch(found: Any, where: str) -> ExecutedLaunch:
    LAUNCH(found, where)
    kernel, backend, arch, at = (found[name] for name in ("kernel", "backend", "arch", "at"))
    cases, ok = tuple(found["cases"]), found["status"] == CompileStatus.OK
    if not ok:
        FAILED(found, where)
        return ExecutedLaunch(kernel, backend, arch, at, cases, _prose(found["why"]), None, None)
    COUNTED(found, where)
    counts, bound = found["counts"], found["bound"]
    known = Executed(**{field.name: counts[field.name] for field in dataclasses.fields(Executed)})
    return ExecutedLaunch(kernel, backend, arch, at, cases, "", known, bound and (bound["unit"], bound["percent"]))


def _entry(found: Any, where: str) -> CompiledEntry:
    ENTRY(found, where)
    kernel, backend, label, arch = (found[name] for name in ("kernel", "backend", "label", "arch"))
    where = f"{where} ({called(kernel, backend, label)} on {arch})"
    cases, status = tuple(found["cases"]), CompileStatus(found["status"])
    if status is not CompileStatus.OK:
        FAILED(found, where)
        return CompiledEntry(kernel, backend, label, arch, cases, status, _prose(found["why"]), None)
    CODE(found, where)
    notes, unloadable = map(_prose, found.get("notes", ())), _prose(found["will_not_load"] or "")
    code = CompiledCode(
        found["hash"], found["asm"], _metrics(found["metrics"], f"{where}.metrics"), tuple(notes), unloadable
    )
    return CompiledEntry(kernel, backend, label, arch, cases, status, "", code)


def _metrics(found: Json, where: str) -> Metrics:
    there = METRICS_OF["amd" if "vgpr" in found else "nvidia"]
    there(found, where)
    loop = found["loop"]
    if loop:
        LOOP(loop, f"{where}.loop")
    lacking = NVIDIA_ONLY if "vgpr" in found else AMD_ONLY
    values: Json = {name: None if name in lacking else found.get(name) for name in _ANNOTATIONS}
    hottest = HotLoop(**{field.name: loop[field.name] for field in dataclasses.fields(HotLoop)}) if loop else None
    return Metrics(**values, loop=hottest)


def _prose(text: str) -> str:
    """A sentence, perhaps with words of a compiler or a foreign package: one line without control characters."""
    return plain(text, MOST_CHARACTERS)


# ---- what a file may hold ------------------------------------------------------------------------------------------

NVIDIA_ONLY = ("registers",)
MEANS = ("bytes_per_load", "bytes_per_store", "bytes_per_remote_store")
_ANNOTATIONS = {field.name: str(field.type) for field in dataclasses.fields(Metrics) if field.name != "loop"}
_EVERYWHERE = (*NVIDIA_ONLY, "mix", "bytes_per_load", "bytes_per_store")
AMD_ONLY = tuple(name for name, kind in _ANNOTATIONS.items() if kind.endswith("None") and name not in _EVERYWHERE)
"""Metrics that the other vendor's code does not have; MEANS may be null in a file."""

_NAME = that(
    lambda v: isinstance(v, str) and v.isprintable() and len(v) <= MOST_CHARACTERS,
    f"printable text of at most {MOST_CHARACTERS} characters",
)
_PROSE = that(lambda v: isinstance(v, str), "text")
_COUNT = whole(0, MOST_COUNT)
_COUNTS = table(_NAME, _COUNT)
_WIDTHS = table(form(re.compile(r"(2x)?[1-9]\d{0,5}", re.ASCII), "bytes per lane, such as 16 or 2x8"), _COUNT)
_KINDS = {"int": _COUNT, "float": number(0, MOST_COUNT), "Counts": _COUNTS, "Widths": _WIDTHS}
"""What a metric may be, by the annotation of its field."""

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
ENTRY = record(
    {
        **dict.fromkeys(("kernel", "backend", "label", "arch"), _NAME),
        "cases": items(_NAME),
        "status": one_of(*CompileStatus),
    },
    {},
)
FAILED = record(_LOST, {})
CODE = record(
    {
        "hash": _NAME,
        "asm": form(re.compile(r"\w+\.s", re.ASCII), "the name of a file in the cache, such as 7ae9e227924116e8.s"),
        "metrics": anything,
        "will_not_load": maybe(_PROSE),
    },
    {"notes": items(_PROSE)},
)
LOOP = record({"instructions": _COUNT, "depth": _COUNT, "mix": _COUNTS, "matrix_share": number(0, 1)}, {})


LAUNCH = record(
    {
        **dict.fromkeys(("kernel", "backend", "arch", "at"), _NAME),
        "cases": items(_NAME),
        "status": one_of(CompileStatus.OK, CompileStatus.FAILED),
    },
    {},
)
COUNTED = record(
    {
        "counts": record({field.name: _KINDS[str(field.type)] for field in dataclasses.fields(Executed)}, {}),
        "bound": maybe(record({"unit": _NAME, "percent": number(0, 100)}, {})),
    },
    {},
)


def _metric(name: str) -> Check:
    check = _KINDS[_ANNOTATIONS[name].removesuffix(" | None")]
    return maybe(check) if name in MEANS else check


def _metrics_without(lacking: Container[str]) -> Check:
    checks = {name: _metric(name) for name in _ANNOTATIONS if name not in lacking}
    mix = {"mix": checks.pop("mix")}  # results made before 2026-11-24 have none
    return record({**checks, "loop": anything}, mix)


METRICS_OF = {"amd": _metrics_without(NVIDIA_ONLY), "nvidia": _metrics_without(AMD_ONLY)}

# Start `python -m benchmarks.isa` as a process and follow it; what it wrote is read back as a result file.


class CompileError(Exception):
    """Compiling could not start or broke off; the text says why."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to compile; empty means all (arches: the AMD ones).  Limits are for one compilation, None: the default.

    packages: folder put before the Python's own packages, with another Triton in it.  python: that compiles.
    knobs: over those that the declaration chooses, in every case.
    lenient: a kernel, case or backend that the tree does not have is not an error, as in an older commit.
    execute: also count what the launches execute in an emulator.
    """

    arches: Sequence[str] = ()
    tier: str = "pr"
    kernels: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    timeout_s: float | None = None
    memory_mb: int | None = None
    packages: Path | None = None
    lenient: bool = False
    python: str | None = None
    knobs: Mapping[str, Scalar] | None = None
    execute: bool = False

    def options(self) -> list[str]:
        """As options of `python -m benchmarks.isa`."""
        chosen = harness.options(tier=self.tier, arch=self.arches, kernel=self.kernels, case=self.cases)
        limits = harness.options(backend=self.backends, timeout=self.timeout_s, memory=self.memory_mb)
        others = harness.options(packages=self.packages, python=self.python)
        return [*chosen, *limits, *others, *["--lenient"] * self.lenient, *["--execute"] * self.execute]


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
        return self._written("metrics", tree, wanted, what or str(tree))

    def explain(self, tree: Path, wanted: Wanted, as_json: bool) -> str:
        """What bounds each kernel of a tree statically, as Markdown or JSON text."""
        return self._written("explain", tree, wanted, str(tree), *["--json"] * as_json)

    def _written(self, verb: str, tree: Path, wanted: Wanted, what: str, *more: str) -> str:
        """The text of the file that `python -m benchmarks.isa VERB` writes."""
        with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as folder:
            out = Path(folder) / "written"
            argv = harness.program("benchmarks.isa", verb, *more, *wanted.options())
            argv += harness.options(tree=tree.resolve(), cache=self.cache.resolve(), out=out, progress="json")
            if wanted.knobs is not None:
                knobs = Path(folder) / "knobs.json"
                knobs.write_text(json.dumps([dict(wanted.knobs)]), encoding="utf-8")
                argv += harness.options(knobs=knobs)
            try:
                harness.produce(argv, out, self.console, what)
            except harness.MeasureError as error:
                raise CompileError(str(error)) from None
            return out.read_text(encoding="utf-8")
