"""Small cases of every operator that compiles for a target, and how one of them is executed and compared.

An operator's declared cases say which knobs its launches have: those of tuned.toml, or by rule.  Each set of knobs is
executed on small shapes, with a tail in every dimension and without, on a device of so few compute units that
persistent programs take several tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from .. import naming
from ..points import Point, label
from ..shapes import JsonObject
from ..worker import guards
from ..worker.arms import CaseBench
from ..worker.failures import Refused
from .launch import Execution
from .triton_driver import EmulatedDriver, emulated
from .watching import LastWrite, Trace, Watch

FEW_UNITS = 2
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
    def name(self) -> str:
        """The case and its knobs, as an arm of a sweep is called: m21_n88_k1064_fp16@b714574333."""
        return label(self.case.name, Point(self.case.name, self.backend, self.knobs).id)


def small_cases(kernels: Mapping[str, Any], arches: Sequence[str]) -> Iterator[SmallCase]:
    """Every backend that declares what it compiles, in every small case, for every target; kernels: by name.

    Of an operator without shapes here (SHAPES), the declared cases that are small.  Operators of several ranks: none.
    """
    for name, kernel in kernels.items():
        for arch in arches:
            for backend in sorted(kernel.compilations):
                yield from {one.name: one for one in _of_backend(name, kernel, backend, arch)}.values()


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
            continue
        for dims in shapes(declared, backend, knobs) if shapes else ():
            yield SmallCase(name, backend, arch, _case(declared, dims), knobs, FEW_UNITS)


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


# Shapes: of a declared case, a backend and its knobs, the small shapes to execute.  Where several declared cases have
# the same knobs, of other dtypes or depths, one has the tails and another none: compiling takes longer than executing.

Shapes = Iterator[dict[str, Any]]


def _gemm(case: Any, backend: str, knobs: Mapping[str, Any]) -> Shapes:
    n, k, tails = knobs["block_n"], knobs["block_k"], case.dtype == "bf16"
    if knobs["variant"] == "vector":
        yield {"M": 1, "N": 3 * n + 1, "K": k + 72} if tails else {"M": 1, "N": 4 * n, "K": 2 * k}
        return
    m, slices = knobs["block_m"], knobs["split_k"]
    yield {"M": m + 5, "N": n + 24, "K": k * slices + 40} if tails else {"M": m, "N": n, "K": 2 * k * slices}


def _grouped(case: Any, backend: str, knobs: Mapping[str, Any]) -> Shapes:
    m, n, k = (knobs[name] for name in ("block_m", "block_n", "block_k"))
    yield {"G": 5, "M": 24, "N": n + 16, "K": k + 40, "routing": "extreme"}
    yield {"G": 2, "M": m // 2, "N": 128, "K": 128, "routing": "mild"}


def _experts(case: Any, backend: str, knobs: Mapping[str, Any]) -> Shapes:
    shared = {"E": 3, "topk": 2, "BM": case.BM}
    if (case.K > 256) == (backend == "triton_reduce"):
        yield {**shared, "M": case.BM + 3, "N": 3 * knobs["block_n"] + 48, "K": case.K - 64}
    else:
        yield {**shared, "M": 7, "N": 2 * knobs["block_n"], "K": case.K}


SHAPES: dict[str, Callable[[Any, str, Mapping[str, Any]], Shapes]] = {
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
    with emulated(small.arch, second_call) as driver:
        bench = CaseBench(kernel, case, SEED, 1, StillClock(), naming.our("kernels.numerics"))
        bench.make_reference()
        bench.build(small.name, small.backend, dict(small.knobs))
        bench.call(small.name)
        bench.poison(small.name)
        first = False
        try:
            return bench.check(small.name)
        except Refused as error:
            if error.status != "wrong":
                raise
            sentence, lines = _explained(driver, bench, small.name)
            raise WrongOutput("; ".join(filter(None, [str(error), sentence])), lines) from None


# What a person sees of a wrong output.

LAST = 16
"""Instructions before the wrong write that are shown."""


class WrongOutput(Refused):
    """A wrong output; lines: the registers of the wave that wrote its first wrong element, and what it did before."""

    def __init__(self, why: str, lines: Sequence[str]) -> None:
        super().__init__("wrong", why)
        self.lines = list(lines)


def _explained(driver: EmulatedDriver, bench: CaseBench, name: str) -> tuple[str, list[str]]:
    """Who wrote the first wrong element, in a sentence and in lines; found by calling twice again."""
    arm = bench.arms[name]
    pairs = zip(guards.tensors(arm.outputs[0]), guards.tensors(bench.expected[0]), strict=False)
    wrong = ((out, expected, first_wrong(out, expected, bench.tolerance)) for out, expected in pairs)
    out, expected, place = next(((o, e, p) for o, e, p in wrong if p is not None), (None, None, None))
    if place is None:
        return "", []
    offset = sum(index * step for index, step in zip(place, out.stride(), strict=True))
    watch = LastWrite(out.data_ptr() + offset * out.element_size(), out.element_size())
    _called_again(driver, bench, name, watch)
    told = f"the first wrong element is {list(place)}: {out[place].item()!r}, expected {expected[place].item()!r}"
    if watch.found is None:
        return f"{told}; no instruction of the kernel writes it", []
    trace = Trace(watch.found.workgroup, watch.found.wave, LAST, watch.found.launch, watch.found.instruction.at)
    _called_again(driver, bench, name, trace)
    times = f", the last of {watch.times} writes" if watch.times > 1 else ""
    lines = ["registers of the wave, and of the lane:", *watch.found.registers(), "its instructions:", *trace.lines]
    return f"{told}; written by {watch.found.in_words()}{times}", lines


def _called_again(driver: EmulatedDriver, bench: CaseBench, name: str, watch: Watch) -> None:
    driver.watch = watch
    try:
        bench.poison(name)
        bench.arms[name].calls[0]()
    finally:
        driver.watch = None


def first_wrong(out: Any, expected: Any, tolerance: Any) -> tuple[int, ...] | None:
    """Index of the first element beyond the tolerance's peak or not finite; the worst one where only the norm is
    exceeded; None where the shapes differ or all elements are equal."""
    if out.shape != expected.shape:
        return None
    error = (out.double() - expected.double()).abs()
    bound = tolerance.peak * float(expected.double().square().mean().sqrt())
    bad = ~(error <= bound)
    if not bad.any() and not error.any():
        return None
    flat = int(bad.flatten().int().argmax()) if bad.any() else int(error.flatten().argmax())
    place = []
    for size in reversed(out.shape):
        flat, index = divmod(flat, size)
        place.insert(0, index)
    return tuple(place)
