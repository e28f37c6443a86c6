"""The contract between an operator and everything that measures it.

An operator is one file or folder that declares a :class:`Kernel` and registers functions with it; no other file needs a
change.  This module uses the standard library only, so that a declaration can be listed without torch.

The functions of a declaration (`case` is always *placed*, see :class:`Place`):

=============  =============================================  ====================================
decorator      signature                                      returns
=============  =============================================  ====================================
inputs         (case, seed)                                   dict of tensors, on ``case.place.device``
cost           (case)                                         :class:`Cost`, per rank
reference      (case, inputs)                                 expected output: plain torch, slow, the truth
baseline(n)    (case, inputs)                                 zero-argument callable returning its output
backend(n)     (case, inputs, **knobs)                        the same; knobs come from ``config(case, arch)``
isa(n)         (case, arch)                                   list of :class:`Compilation`
small          (case, backend, knobs)                         :class:`Small` cases to execute in an emulator; optional
=============  =============================================  ====================================

Everything that a backend does before it returns the callable is untimed: allocation, compilation, tuning.  The callable
must write the same output buffer at every call and return it (a tensor or a tuple of them): the harness poisons that
buffer, calls, and compares.  A library call that cannot be given an output is marked with :func:`functional`, and one
that chooses by times does so when told to, where nothing else is at work (TUNES).
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import hashlib
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

SPEC_VERSION = 1
"""Version of this contract.  A harness names and refuses declarations of a version that it does not know."""

TIERS = ("pr", "nightly", "sweep")
"""How often a case is measured: on every pull request (minutes), every night (all), on demand."""

DTYPE_BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "mxfp4": 0.53125}
"""Bytes per element.  mxfp4 is half a byte plus one e8m0 scale per 32 elements (OCP MX v1.0)."""


TUNES = "tune"
"""Attribute of a backend's callable that chooses by times: () -> None, called once while nothing else is at work."""


class Unsupported(Exception):
    """A backend cannot do this case here.  The text says why and what would be needed."""


class DeclarationError(Exception):
    """A declaration breaks the contract of this module; the text says what to change."""


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call must at least do, **per rank**: FLOP, and bytes through HBM and over the links.

    ``link_bytes`` are the bytes a rank sends by the nccl-tests bus convention, so that
    ``busbw = link_bytes / time``; ``payload_bytes`` is the S of nccl-tests (the total output of an
    all-gather), so that ``algbw = payload_bytes / time`` (nccl-tests doc/PERFORMANCE.md).
    """

    flops: int = 0
    hbm_bytes: int = 0
    link_bytes: int = 0
    payload_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Tolerance:
    """How far an output may be from the reference; both bounds must hold and NaN never passes.

    norm: bound on ``||out - ref|| / ||ref||`` (Frobenius).
    peak: bound on ``max|out - ref| / rms(ref)``; it sees one wrong tile that the norm would dilute.
    Zero and zero ask for equality, element by element.
    """

    norm: float = 0.0
    peak: float = 0.0


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a case runs: one rank of `world` on a device; arch as in kernels.hardware.

    device: "cuda:0", ...; "cpu" on a machine without a GPU; "cpu:0" where launches for `arch` are executed on a CPU.

    heap: the symmetric heap shared by the ranks (kernels.symmetric_heap), None for a single rank.
    compute_units: CUs or SMs the device reports, None on a CPU.
    """

    rank: int = 0
    world: int = 1
    device: str = "cpu"
    arch: str = "cpu"
    compute_units: int | None = None
    heap: Any = None


@dataclasses.dataclass(frozen=True)
class Case:
    """One shape, dtype, world size and input distribution, under a permanent name.

    Dimensions are given as keywords and read as attributes: ``Case("m64", M=64, dtype="fp16").M``.
    """

    name: str
    tier: str
    world: int
    dtype: str
    distribution: str
    dims: tuple[tuple[str, Any], ...]
    place: Place | None = dataclasses.field(default=None, compare=False, repr=False)

    def __init__(
        self,
        name: str,
        *,
        tier: str = "nightly",
        world: int = 1,
        dtype: str = "fp16",
        distribution: str = "normal",
        place: Place | None = None,
        **dims: Any,
    ) -> None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.+-]*", name):
            raise DeclarationError(
                f"case name {name!r}: use letters, digits and _ . + - only; it becomes a file name, a column and a URL"
            )
        if tier not in TIERS:
            raise DeclarationError(f"case {name!r}: tier {tier!r} is not one of {', '.join(TIERS)}")
        if dtype not in DTYPE_BYTES:
            raise DeclarationError(f"case {name!r}: dtype {dtype!r} is not one of {', '.join(DTYPE_BYTES)}")
        if world < 1:
            raise DeclarationError(f"case {name!r}: world is {world}, it must be at least 1")
        fields = {
            "name": name,
            "tier": tier,
            "world": world,
            "dtype": dtype,
            "distribution": distribution,
            "dims": tuple(dims.items()),
            "place": place,
        }
        for key, value in fields.items():
            object.__setattr__(self, key, value)

    def __getattr__(self, key: str) -> Any:
        for name, value in self.__dict__.get("dims", ()):
            if name == key:
                return value
        known = ", ".join(name for name, _ in self.__dict__.get("dims", ()))
        raise AttributeError(f"case {self.__dict__.get('name')!r} has no dimension {key!r}; it has: {known or 'none'}")

    def at(self, place: Place) -> Case:
        """The same case, placed on a device: what the functions of a declaration receive."""
        own = {"tier": self.tier, "world": self.world, "dtype": self.dtype, "distribution": self.distribution}
        return Case(self.name, place=place, **own, **dict(self.dims))

    @property
    def itemsize(self) -> float:
        """Bytes per element of the case's dtype."""
        return DTYPE_BYTES[self.dtype]

    def describe(self) -> dict[str, Any]:
        """The identity of the case as JSON values; the tier is not part of it."""
        return {
            "name": self.name,
            "world": self.world,
            "dtype": self.dtype,
            "distribution": self.distribution,
            **dict(self.dims),
        }


def functional(call: Callable[[], Any]) -> Callable[[], Any]:
    """Mark a callable that makes a new output at every call, because its library has no way to write a given one."""
    call.functional = True  # type: ignore[attr-defined]
    return call


@dataclasses.dataclass(frozen=True)
class Compilation:
    """One ahead-of-time compilation: a jit function and what its launch would pass.

    arguments: by parameter name, in signature order; a tensor is ``("*fp16", shape)``, a scalar is its value.
    constants and options (num_warps, num_stages, ...) come from the same config() as the launch.  grid: its programs.
    """

    label: str
    function: Any
    arguments: Mapping[str, Any]
    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    grid: tuple[int, ...] | None = None


@dataclasses.dataclass(frozen=True)
class Small:
    """A case that is small enough for an emulator, in place of a declared one.

    dims: over those of the declared case.  knobs: over config() of the small case; None: those of the declared case.
    """

    dims: Mapping[str, Any]
    knobs: Mapping[str, Any] | None = None


SmallCases = Callable[[Case, str, Mapping[str, Any]], Iterable[Small]]


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The tuned knobs of a backend: where they lie, and what is launched without them.

    section: of the file, "" for all.  key: an entry's name, which cases may share.  rule: the knobs without an entry.
    elements: knobs counted in elements; an entry has them for 2 bytes each.
    """

    file: str
    key: Callable[[Case], str]
    rule: Callable[[Case, str], dict[str, Any]]
    section: str = ""
    elements: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Backend:
    """One way to compute a kernel.  `baseline` marks what a user would call otherwise: a vendor's library.

    libraries: the distributions (names of `pip list`) it calls; their versions are recorded, and named when it fails.
    first_call_s: seconds for set-up, and for the first call, of a library that compiles itself.  candidates: to sweep.
    tries: (case, arch) -> [(backend, knobs)] among which it chooses by times (TUNES).
    stand_in: on a CPU it only stands in for a GPU: it must be right there, its times are shown and not judged.
    """

    name: str
    build: Callable[..., Callable[[], Any]]
    config: Callable[[Case, str], dict[str, Any]] | None = None
    baseline: bool = False
    libraries: tuple[str, ...] = ()
    first_call_s: float = 0.0
    candidates: Callable[[Case, str], list[dict[str, Any]]] | None = None
    tuned: Tuned | None = None
    tries: Callable[[Case, str], list[tuple[str, dict[str, Any]]]] | None = None
    stand_in: bool = False

    def knobs(self, case: Case, arch: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The knobs of a launch: ``config(case, arch)``, then overrides; an unknown override is an error."""
        chosen = dict(self.config(case, arch)) if self.config else {}
        known = [p.name for p in inspect.signature(self.build).parameters.values()][2:]
        for key, value in (overrides or {}).items():
            if key not in known:
                its = f"its knobs are: {', '.join(known) or 'none'}"
                raise DeclarationError(f"backend {self.name!r} has no knob {key!r}; {its}")
            chosen[key] = value
        return chosen


class Kernel:
    """One operation with a mathematical definition, its cases, and every way to compute it.

    live: inputs whose values may change between two calls: no set-up of a backend copies, reorders or looks at them.
    """

    def __init__(
        self,
        name: str,
        *,
        cases: Sequence[Case],
        tolerance: Tolerance | Mapping[str, Tolerance],
        spec_version: int = SPEC_VERSION,
        live: Sequence[str] = (),
    ) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
            raise DeclarationError(f"kernel name {name!r}: use lower-case letters, digits and _ only")
        if not cases:
            raise DeclarationError(f"kernel {name!r} has no case; declare at least one")
        names = [case.name for case in cases]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise DeclarationError(
                f"kernel {name!r} declares the case name {twice[0]!r} twice; names are permanent and unique"
            )
        self.name = name
        self.cases = tuple(cases)
        self.tolerance = tolerance
        self.live = tuple(live)
        self.spec_version = spec_version
        self.doc = ""
        self.backends: dict[str, Backend] = {}
        self.compilations: dict[str, Callable[[Case, str], list[Compilation]]] = {}
        self.small_cases: SmallCases | None = None
        self.counted_dims: dict[str, int] = {}
        self._functions: dict[str, Callable[..., Any]] = {}

    def inputs(self, function: Callable[[Case, int], Any]) -> Callable[[Case, int], Any]:
        """Register (case, seed) -> dict of tensors."""
        return self._define("inputs", function)

    def cost(self, function: Callable[[Case], Cost]) -> Callable[[Case], Cost]:
        """Register (case) -> Cost per rank; its docstring states the convention."""
        return self._define("cost", function)

    def reference(self, function: Callable[[Case, Any], Any]) -> Callable[[Case, Any], Any]:
        """Register (case, inputs) -> expected output."""
        return self._define("reference", function)

    def backend(
        self, name: str, *, config: Callable[[Case, str], dict[str, Any]] | None = None, **facts: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register (case, inputs, **knobs) -> zero-argument callable; facts: the fields of Backend, by name."""
        return self._add_backend(name, config, baseline=False, **facts)

    def baseline(
        self, name: str, *, config: Callable[[Case, str], dict[str, Any]] | None = None, **facts: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register a baseline: what a user would call otherwise; timed, never trusted as truth."""
        return self._add_backend(name, config, baseline=True, **facts)

    def isa(self, backend: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Register (case, arch) -> list of Compilation for a backend declared before."""
        if backend not in self.backends:
            known = ", ".join(self.backends) or "none"
            raise DeclarationError(f"kernel {self.name!r}: isa({backend!r}) names no backend; declared: {known}")

        def register(function: Callable[[Case, str], list[Compilation]]) -> Callable[..., Any]:
            self.compilations[backend] = function
            return function

        return register

    def small(self, **counted: int) -> Callable[[SmallCases], SmallCases]:
        """Register (case, backend, knobs) -> Small cases that check a launch of a larger case with these knobs.

        Declared cases that are small enough for an emulator are executed as they are.  counted: the largest dimensions
        in which a declared case is counted; they depend on no knob, so both sides of a change are counted alike.
        """

        def register(function: SmallCases) -> SmallCases:
            self.small_cases, self.counted_dims = function, counted
            return function

        return register

    def _define(self, role: str, function: Callable[..., Any]) -> Callable[..., Any]:
        if role in self._functions:
            raise DeclarationError(f"kernel {self.name!r} declares {role} twice")
        self._functions[role] = function
        return function

    def _add_backend(self, name: str, config: Any, **facts: Any) -> Callable[..., Any]:
        if name in self.backends:
            raise DeclarationError(f"kernel {self.name!r} declares the backend {name!r} twice")

        def register(function: Callable[..., Any]) -> Callable[..., Any]:
            self.backends[name] = Backend(name, function, config, **facts)
            return function

        return register

    def function(self, role: str) -> Callable[..., Any]:
        """The declared inputs, cost or reference."""
        if role not in self._functions:
            raise DeclarationError(f"kernel {self.name!r} declares no {role}; add @{self.name}.{role}")
        return self._functions[role]

    def check(self) -> None:
        """Raise DeclarationError unless the declaration is complete."""
        for role in ("inputs", "cost", "reference"):
            self.function(role)
        if not self.backends:
            raise DeclarationError(f"kernel {self.name!r} declares no backend")

    def case(self, name: str) -> Case:
        """The case of that name; an unknown name raises KeyError and lists the known ones."""
        for case in self.cases:
            if case.name == name:
                return case
        raise KeyError(f"kernel {self.name!r} has no case {name!r}; it has: {', '.join(c.name for c in self.cases)}")

    def tolerance_for(self, case: Case) -> Tolerance:
        """The tolerance of the case's dtype."""
        if isinstance(self.tolerance, Tolerance):
            return self.tolerance
        if case.dtype not in self.tolerance:
            raise DeclarationError(f"kernel {self.name!r} has no tolerance for dtype {case.dtype!r}")
        return self.tolerance[case.dtype]

    @property
    def baselines(self) -> tuple[str, ...]:
        """Names of the baselines."""
        return tuple(name for name, backend in self.backends.items() if backend.baseline)

    def definition_digest(self, protocol: Mapping[str, Any] | None = None, case: Case | None = None) -> str:
        """Digest of the benchmark definition: all that defines a number but the backends' code; the asv `version`.

        It covers inputs, cost, reference, baselines, tolerance and the protocol; with a case, its identity too.
        Docstrings, comments, blank lines and formatting do not count.
        """
        parts: dict[str, Any] = {role: _code(f) for role, f in sorted(self._functions.items())}
        parts["baselines"] = {name: _code(self.backends[name].build) for name in self.baselines}
        parts["tolerance"] = repr(self.tolerance if case is None else self.tolerance_for(case))
        parts["protocol"] = dict(protocol or {})
        parts["case"] = case.describe() if case else None
        return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]

    def definition_terms(self) -> dict[str, str]:
        """What the benchmark definition consists of, by name, to say what changed: values, and digests of code."""
        code = {f"code of {role}": f for role, f in sorted(self._functions.items())}
        code |= {f"code of baseline {name}": self.backends[name].build for name in self.baselines}
        digests = {name: hashlib.sha256(_code(f).encode()).hexdigest()[:8] for name, f in code.items()}
        by_dtype = {"": self.tolerance} if isinstance(self.tolerance, Tolerance) else self.tolerance
        bounds = (f"{dtype} norm {one.norm:g}, peak {one.peak:g}".strip() for dtype, one in by_dtype.items())
        return {"tolerance": "; ".join(bounds), **digests}

    yardstick = definition_digest
    """The name under which harnesses up to 2026-11 ask for it."""

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, {len(self.cases)} cases, backends: {', '.join(self.backends)})"


@functools.cache
def _code(function: Callable[..., Any]) -> str:
    """The function's source as a syntax tree without docstring: stable against formatting and comments; kept."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    declared = tree.body[0]
    if isinstance(declared, ast.FunctionDef):
        declared.decorator_list = []
        if ast.get_docstring(declared) is not None:
            declared.body = declared.body[1:]
    return ast.dump(tree)
