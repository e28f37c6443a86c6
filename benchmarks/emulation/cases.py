"""Small cases of every operator that compiles for a target, and how one of them is executed and compared.

An operator's declared cases say which knobs its launches have: those of tuned.toml, or by rule.  Each set of knobs is
executed on two shapes of its own: one with a tail in every dimension, on a device of so few compute units that
persistent programs take several tiles, and one without, on the device that is assumed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import naming
from ..points import Point
from ..shapes import JsonObject
from ..worker.arms import CaseBench
from .launch import Execution
from .triton_driver import emulated

FEW_UNITS = 3
"""Compute units of a device on which a persistent program has several tiles of a small case."""

MOST_FLOPS, MOST_BYTES = 50_000_000, 4_000_000
"""Of a declared case that is small enough to be executed as it is: about 5 s of a core (2026-11)."""

SEED = 1


@dataclasses.dataclass(frozen=True)
class SmallCase:
    """One backend of an operator in one case, to be executed for a target.

    knobs: over those of config().  units: compute units of the device, None: those of the product that is assumed.
    """

    operator: str
    backend: str
    arch: str
    case: Any
    knobs: Mapping[str, Any]
    units: int | None = None

    @property
    def label(self) -> str:
        """The backend and its knobs, as an arm of a sweep is called."""
        return Point(self.case.name, self.backend, self.knobs).label

    @property
    def name(self) -> str:
        """For people: gemm/triton m21_n80_k264_bf16 on gfx942."""
        return f"{self.operator}/{self.label} {self.case.name} on {self.arch}"


def small_cases(kernels: Mapping[str, Any], arches: Sequence[str]) -> Iterator[SmallCase]:
    """Every backend that declares what it compiles, in every small case, for every target; kernels: by name.

    Of an operator without shapes here (SHAPES), the declared cases that are small.  Operators of several ranks: none.
    """
    for name, kernel in kernels.items():
        for arch in arches:
            for backend in sorted(kernel.compilations):
                found: dict[tuple[str, str], SmallCase] = {}
                for one in _of_backend(name, kernel, backend, arch):
                    found.setdefault((one.case.name, one.label), one)
                yield from found.values()


def _of_backend(name: str, kernel: Any, backend: str, arch: str) -> Iterator[SmallCase]:
    shapes = SHAPES.get(name)
    for declared in kernel.cases:
        if declared.world > 1:
            continue
        knobs = _knobs(kernel, backend, declared, arch)
        if knobs is None:
            continue
        if _is_small(kernel, declared):
            yield SmallCase(name, backend, arch, declared, {}, FEW_UNITS)
        for dims, units in shapes(declared, knobs) if shapes else ():
            yield SmallCase(name, backend, arch, _case(declared, dims), knobs, units)


def _knobs(kernel: Any, backend: str, case: Any, arch: str) -> dict[str, Any] | None:
    """What config() chooses for a declared case; None where the backend has nothing for the target."""
    spec = naming.contract("spec")
    try:
        return dict(kernel.backends[backend].knobs(case.at(spec.Place(device="meta", arch=arch)), arch))
    except spec.Unsupported:
        return None


def _is_small(kernel: Any, case: Any) -> bool:
    cost = kernel.function("cost")(case)
    return bool(cost.flops <= MOST_FLOPS and cost.hbm_bytes <= MOST_BYTES)


def _case(declared: Any, dims: Mapping[str, Any]) -> Any:
    """A case like the declared one, of another shape, which its name tells."""
    shape = {**dict(declared.dims), **dims}
    name = "_".join([*(f"{key.lower()}{value}" for key, value in shape.items()), declared.dtype])
    return type(declared)(name, tier="sweep", dtype=declared.dtype, distribution=declared.distribution, **shape)


# Shapes: of a declared case and its knobs, the small shapes to execute, each with the compute units of the device.

Shapes = Iterator[tuple[dict[str, Any], int | None]]


def _gemm(case: Any, knobs: Mapping[str, Any]) -> Shapes:
    if knobs["variant"] == "vector":
        n, k = knobs["block_n"], knobs["block_k"]
        yield {"M": 1, "N": 3 * n + 1, "K": k + 72}, FEW_UNITS
        yield {"M": 1, "N": 4 * n, "K": 2 * k}, None
        return
    m, n, k, slices = (knobs[name] for name in ("block_m", "block_n", "block_k", "split_k"))
    rows = case.M if m > case.M else m
    yield {"M": rows + 5 if m > rows else m + 5, "N": n + 24, "K": k * slices + 40}, FEW_UNITS
    yield {"M": m, "N": n, "K": 2 * k * slices}, None


def _grouped(case: Any, knobs: Mapping[str, Any]) -> Shapes:
    m, n, k = (knobs[name] for name in ("block_m", "block_n", "block_k"))
    yield {"G": 5, "M": 24, "N": n + 16, "K": k + 40, "routing": case.routing}, FEW_UNITS
    yield {"G": 2, "M": m // 2, "N": 128, "K": 128, "routing": case.routing}, None


def _experts(case: Any, knobs: Mapping[str, Any]) -> Shapes:
    shared = {"E": 4, "topk": 3, "BM": case.BM}
    yield {**shared, "M": 2 * case.BM + 3, "N": knobs["block_n"] + 48, "K": case.K - 64}, FEW_UNITS
    yield {**shared, "M": 7, "N": knobs["block_n"], "K": case.K}, None


SHAPES: dict[str, Callable[[Any, Mapping[str, Any]], Shapes]] = {
    "gemm": _gemm,
    "grouped_gemm_forward": _grouped,
    "grouped_gemm_dgrad": _grouped,
    "grouped_gemm_wgrad": _grouped,
    "moe_gemm2_mxfp4": _experts,
}
"""Of the operators whose declared cases are too large to be executed."""


# Execution.


class StillClock:
    """A clock for calls that are complete when they return."""

    def synchronize(self) -> None:
        """Nothing to wait for."""


def execute(kernel: Any, small: SmallCase, told: Callable[[Execution], None] = lambda one: None) -> JsonObject:
    """Call a backend twice, the second time into poisoned outputs, and compare: {"norm", "peak", "seconds"}.

    The steps and the tolerance are those of `ridgeline verify` on a GPU.  told: what each launch of the second call
    did.  Raises worker.failures.Refused for a wrong output, NotExecutable, Unsupported, or what the operator raises.
    """
    first = True

    def second_call(done: Execution) -> None:
        if not first:
            told(done)

    spec = naming.contract("spec")
    case = small.case.at(spec.Place(device="cpu", arch=small.arch, compute_units=small.units))
    with emulated(small.arch, second_call):
        bench = CaseBench(kernel, case, SEED, 1, StillClock(), naming.our("kernels.numerics"))
        bench.make_reference()
        bench.build(small.label, small.backend, dict(small.knobs))
        bench.call(small.label)
        bench.poison(small.label)
        first = False
        return bench.check(small.label)
