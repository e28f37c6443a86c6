"""Small cases of every operator that compiles for a target, and how one of them is executed and compared.

An operator's declared cases say which knobs its launches have: those of tuned.toml, or by rule.  They are executed in
two kinds of small cases, which cannot be the same:

- to be checked, each set of knobs in shapes with a tail in every dimension and without.  A tail is one of a tile, so
  the shapes depend on the knobs; and the device has so few compute units that persistent programs take several tiles;
- to be counted, every declared case in a shape that depends on no knob, or the two sides of a change would be counted
  in different ones, on a device with all its units, as it is launched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import naming
from ..points import Point, label
from ..shapes import JsonObject
from ..worker import guards
from ..worker.arms import CaseBench
from ..worker.failures import Refused
from . import worlds
from .collective import Schedules, Unsound, world
from .launch import Execution
from .schedule import Hazard
from .triton_driver import EmulatedDriver, emulated
from .watching import LastWrite, Trace, Watching

FEW_UNITS = 2
"""Compute units of a device on which a persistent program has several tiles of a small case."""

MOST_FLOPS, MOST_BYTES = 50_000_000, 4_000_000
"""Of a declared case that is small enough to be executed as it is: about 5 s of a core (2026-11)."""

SEED = 1


@dataclasses.dataclass(frozen=True)
class SmallCase:
    """One backend of an operator in one case, to be executed for a target.

    declared: the case that it stands for.  knobs: over those of config().  units: compute units of the device, None:
    those of the product that is assumed.
    """

    operator: str
    backend: str
    arch: str
    declared: Any
    case: Any
    knobs: Mapping[str, Any]
    units: int | None = None

    @property
    def name(self) -> str:
        """The case and its knobs, as an arm of a sweep is called: m21_n88_k1064_fp16@b714574333."""
        return label(self.case.name, Point(self.case.name, self.backend, self.knobs).id)


def small_cases(kernels: Mapping[str, Any], arches: Sequence[str]) -> list[SmallCase]:
    """What is checked: every backend that declares what it compiles, for every target, once with each set of knobs and
    each dtype (what backends share, in one of them); kernels: by name.

    Of an operator without shapes here (SMALL), the declared cases that are small.  Of those of several ranks, what
    worlds.VARIANTS lists.
    """
    launches: dict[Any, SmallCase] = {}
    for one in _launches(kernels, arches):
        if _is_small(kernels[one.operator], one.declared) != (one.operator in SMALL):
            knobs = tuple(sorted(one.knobs.items()))
            launches.setdefault((one.operator, one.backend, one.arch, one.declared.dtype, knobs), one)
    found = [small for one in launches.values() for small in _checked(one)]
    found += _of_several_ranks(kernels, arches)
    return list({(one.operator, one.backend, one.arch, one.name): one for one in found}.values())


def _of_several_ranks(kernels: Mapping[str, Any], arches: Sequence[str]) -> Iterator[SmallCase]:
    for arch in arches:
        for one in worlds.VARIANTS:
            if declared := one.stands_for(kernels, arch):
                yield SmallCase(one.operator, one.backend, arch, declared, one.case, one.knobs)


def counted_cases(kernels: Mapping[str, Any], arches: Sequence[str]) -> list[SmallCase]:
    """What is counted: every declared case of the same operators and backends, if its operator has shapes here."""
    launches = [one for one in _launches(kernels, arches) if one.operator in SMALL]
    return [dataclasses.replace(one, case=cut(one.case, SMALL[one.operator].counted)) for one in launches]


def _launches(kernels: Mapping[str, Any], arches: Sequence[str]) -> Iterator[SmallCase]:
    """Every declared case of one rank with the knobs that config() chooses, where a backend compiles for the target."""
    spec = naming.contract("spec")
    for name, kernel in sorted(kernels.items()):
        for arch in arches:
            for backend in sorted(kernel.compilations):
                for case in (one for one in kernel.cases if one.world == 1):
                    placed = case.at(spec.Place(device="meta", arch=arch))
                    try:
                        knobs = dict(kernel.backends[backend].knobs(placed, arch))
                    except spec.Unsupported:
                        continue
                    yield SmallCase(name, backend, arch, case, case, knobs)


def _is_small(kernel: Any, case: Any) -> bool:
    cost = kernel.function("cost")(case)
    return bool(cost.flops <= MOST_FLOPS and cost.hbm_bytes <= MOST_BYTES)


def _checked(launch: SmallCase) -> Iterator[SmallCase]:
    if launch.operator not in SMALL:
        yield dataclasses.replace(launch, knobs={}, units=FEW_UNITS)
        return
    for dims in SMALL[launch.operator].checked(launch.declared, launch.backend, launch.knobs):
        yield dataclasses.replace(launch, case=_reshaped(launch.declared, dims), units=FEW_UNITS)


def cut(case: Any, most: Mapping[str, int]) -> Any:
    """The case with each of these dimensions cut to its limit; the case itself where none is larger."""
    dims = {name: min(size, most[name]) for name, size in dict(case.dims).items() if name in most}
    return case if dims.items() <= dict(case.dims).items() else _reshaped(case, dims)


def _reshaped(declared: Any, dims: Mapping[str, Any]) -> Any:
    """A case like the declared one, of another shape, which its name tells."""
    shape = {**dict(declared.dims), **dims}
    name = "_".join([*(f"{key.lower()}{value}" for key, value in shape.items()), declared.dtype])
    return type(declared)(name, tier="sweep", dtype=declared.dtype, distribution=declared.distribution, **shape)


# Shapes to be checked, of a declared case, a backend and its knobs.  Where several declared cases have the same knobs,
# of other dtypes or depths, one has the tails and another none: compiling takes longer than executing.

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
    """Whose product is the same code in both backends but for its last lines: tails in one, none in the other.  Blocks
    of few rows, which have more sets of knobs, in one of them: the other one from a depth or a block to the next."""
    few, odd, sums = case.BM <= 32, case.BM in (32, 128), backend == "triton_reduce"
    if few and sums != (odd == (case.K > 256)):
        return
    depth = min(case.K, 2 * knobs["block_k"])
    if sums if few else odd != sums:
        yield {"E": 3, "topk": 2, "M": case.BM + 3, "N": max(knobs["block_n"], 80) + 8, "K": depth - 64}
    else:
        yield {"E": 3, "topk": 2, "M": 7, "N": 2 * knobs["block_n"], "K": depth}


@dataclasses.dataclass(frozen=True)
class Small:
    """Shapes of an operator whose declared cases are too large: to be `checked`, and the largest dimensions `counted`:
    several steps over K and several tiles, 0.1 to 1 s of a core each (2026-11)."""

    checked: Callable[[Any, str, Mapping[str, Any]], Shapes]
    counted: Mapping[str, int]


_GROUPED = Small(_grouped, {"G": 4, "M": 64, "N": 128, "K": 256})
SMALL = {
    "gemm": Small(_gemm, {"M": 256, "N": 256, "K": 1024}),
    "grouped_gemm_forward": _GROUPED,
    "grouped_gemm_dgrad": _GROUPED,
    "grouped_gemm_wgrad": _GROUPED,
    "moe_gemm2_mxfp4": Small(_experts, {"M": 32, "N": 128, "K": 256, "E": 8, "topk": 3}),
}


# Execution.


def execute(kernel: Any, small: SmallCase, told: Callable[[Execution], None] = lambda one: None) -> JsonObject:
    """Call a backend twice, the second time into poisoned outputs, and compare: {"norm", "peak", "seconds"}.

    The steps and the tolerance are those of `ridgeline verify` on a GPU; a case of several ranks: see _under_orders.
    told: what each launch of the second call did.  Raises worker.failures.Refused for a wrong output, NotExecutable,
    Unsupported, or what the operator raises.
    """
    if small.case.world > 1:
        return _under_orders(kernel, small)
    spec = naming.contract("spec")
    case = small.case.at(spec.Place(device="cpu", arch=small.arch, compute_units=small.units))
    still = SimpleNamespace(synchronize=lambda: None)  # calls are complete when they return
    with emulated(small.arch) as driver:
        bench = CaseBench(kernel, case, SEED, 1, still, naming.our("kernels.numerics"))
        bench.make_reference()
        bench.build(small.name, small.backend, dict(small.knobs))
        bench.call(small.name)
        bench.poison(small.name)
        driver.told = lambda launch: told(launch.executed())
        try:
            return bench.check(small.name)
        except Refused as error:
            if error.status != "wrong":
                raise
            sentence, lines = _explained(driver, bench, small.name)
            raise WrongOutput("; ".join(filter(None, [str(error), sentence])), lines) from None


def _under_orders(kernel: Any, small: SmallCase) -> JsonObject:
    """All ranks under the schedules of worlds.SEEDS: {"norm", "peak"} against the reference, "instructions" executed.

    Raises worker.failures.Refused for a wrong word, a hazard or a deadlock.
    """
    try:
        schedules = Schedules(world(kernel, small.backend, small.case, small.arch, dict(small.knobs)))
        count = sum(schedules.run(seed).executed for seed in worlds.SEEDS)
    except (Unsound, Hazard) as error:
        raise Refused("wrong", str(error)) from None
    return {**schedules.error, "instructions": count}


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
    pairs = zip(guards.tensors(bench.arms[name].outputs[0]), guards.tensors(bench.expected[0]), strict=False)
    found = ((out, expected, first_wrong(out, expected, bench.tolerance)) for out, expected in pairs)
    wrong = next((each for each in found if each[2] is not None), None)
    if wrong is None:
        return "", []
    out, expected, place = wrong
    told = f"the first wrong element is {list(place)}: {out[place].item()!r}, expected {expected[place].item()!r}"
    watch = LastWrite(out[place].data_ptr(), out.element_size())
    _called_again(driver, bench, name, watch)
    if watch.found is None:
        return f"{told}; no instruction of the kernel writes it", []
    trace = Trace(watch.found.workgroup, watch.found.wave, LAST, watch.found.launch, watch.found.instruction.at)
    _called_again(driver, bench, name, trace)
    times = f", the last of {watch.times} writes" if watch.times > 1 else ""
    lines = ["registers of the wave, and of the lane:", *watch.found.registers(), "its instructions:", *trace.lines]
    return f"{told}; written by {watch.found.in_words()}{times}", lines


def _called_again(driver: EmulatedDriver, bench: CaseBench, name: str, watch: Watching) -> None:
    from triton import knobs

    driver.watch = watch
    try:
        with knobs.compilation.scope():
            knobs.compilation.disable_line_info = False
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
    worst = bad.int() if bad.any() else error
    if not worst.any():
        return None
    return tuple(int(index) for index in np.unravel_index(int(worst.argmax()), out.shape))
