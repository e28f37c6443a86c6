"""Small cases of every operator that compiles for a target, and how one of them is executed and compared.

An operator's declared cases say which knobs its launches have: those of tuned.toml, or by rule.  They are executed in
two kinds of small cases, which cannot be the same:

- to be checked, each set of knobs in the cases that `@kernel.small` declares: shapes with a tail in every dimension and
  without.  A tail is one of a tile, so the shapes depend on the knobs; and the device has so few compute units that
  persistent programs take several tiles;
- to be counted, every declared case in a shape that depends on no knob, or the two sides of a change would be counted
  in different ones, on a device with all its units, as it is launched.

Declared cases that are small enough are executed as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from .. import naming
from ..channel import Refused
from ..points import Point, label
from ..shapes import JsonObject
from ..worker import guards
from ..worker.arms import CaseBench
from .collective import Schedules, Unsound, world
from .launch import Execution
from .schedule import Hazard
from .triton_driver import EmulatedDriver, emulated
from .watching import LastWrite, Trace, Watching

FEW_UNITS = 2
"""Compute units of a device on which a persistent program has several tiles of a small case."""

MAX_FLOPS, MAX_BYTES = 50_000_000, 4_000_000
"""Of a declared case that is small enough to be executed as it is: about 5 s of a core (2026-11)."""

RANKS = 2
"""Of a world that is executed."""

SEEDS = range(1, 5)
"""Of its schedules.  Of 953 faults of memory order that were planted in our operators the last was found by seed 2."""

SEED = 1

DEVICE = "cpu:0"
"""Of a case whose launches are executed here: torch takes it for the CPU, and no declaration for a machine without a
GPU."""


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


def small_cases(kernels: Mapping[str, Any], arches: Sequence[str], ranks: int = RANKS) -> list[SmallCase]:
    """What is checked: every backend that declares what it compiles, for every target, once with each set of knobs and
    each dtype (what backends share, in one of them); kernels: by name.

    ranks: of operators of several ranks.
    """
    launches: dict[Any, SmallCase] = {}
    for launch in _launches(kernels, arches, (1, ranks)):
        kernel = kernels[launch.operator]
        is_small = not _reason_not_as_declared(kernel, launch.case)
        if is_small or _small_hook(kernel):
            knobs = tuple(sorted(launch.knobs.items()))
            shared = (launch.operator, launch.backend, launch.arch, launch.case.world, launch.case.dtype, knobs)
            launches.setdefault((*shared, is_small), launch)
    cases = [small for launch in launches.values() for small in _checked(kernels[launch.operator], launch)]
    return list({(small.operator, small.backend, small.arch, small.name): small for small in cases}.values())


def counted_cases(kernels: Mapping[str, Any], arches: Sequence[str]) -> tuple[list[SmallCase], list[JsonObject]]:
    """What is counted: every declared case of the same operators and backends, cut to the dimensions of `small`; and
    the others, each with the reason: {kernel, backend, arch, declared, declared_tier, why}."""
    counted, others = [], []
    for launch in _launches(kernels, arches):
        kernel = kernels[launch.operator]
        limits = getattr(kernel, "counted_dims", {})
        small = cut(launch.case, limits)
        if why := "" if limits and small.world == 1 else _reason_not_as_declared(kernel, small):
            about = {"kernel": launch.operator, "backend": launch.backend, "arch": launch.arch, "why": why}
            others.append({**about, "declared": launch.case.name, "declared_tier": launch.case.tier})
        else:
            counted.append(dataclasses.replace(launch, case=small))
    return counted, others


def _small_hook(kernel: Any) -> Any:
    """What `@kernel.small` declares; a declaration before 2026-12 has none."""
    return getattr(kernel, "small_cases", None)


def _launches(kernels: Mapping[str, Any], arches: Sequence[str], worlds: Sequence[int] = ()) -> Iterator[SmallCase]:
    """Every declared case (of these numbers of ranks) with the knobs that config() chooses, where a backend compiles
    for the target."""
    spec = naming.contract("spec")
    for name, kernel in sorted(kernels.items()):
        for arch in arches:
            for backend in sorted(kernel.compilations):
                for case in (case for case in kernel.cases if not worlds or case.world in worlds):
                    placed = case.at(spec.Place(world=case.world, device="meta", arch=arch))
                    try:
                        knobs = dict(kernel.backends[backend].knobs(placed, arch))
                    except spec.Unsupported:
                        continue
                    yield SmallCase(name, backend, arch, case, case, knobs)


def why_nothing(kernel: Any) -> str:
    """Why none of its cases is checked."""
    if _small_hook(kernel):
        return f"@{kernel.name}.small declares no case for what config() launches"
    reasons = dict.fromkeys(_reason_not_as_declared(kernel, case) for case in kernel.cases)
    return "; ".join(filter(None, reasons)) or "no backend that compiles supports its cases"


def _reason_not_as_declared(kernel: Any, case: Any) -> str:
    """Why a declared case is not executed as it is; "" if it is small."""
    if case.world > 1:
        return f"an emulator takes cases of several ranks only where @{kernel.name}.small declares them"
    cost = kernel.function("cost")(case)
    if cost.flops <= MAX_FLOPS and cost.hbm_bytes <= MAX_BYTES:
        return ""
    return (
        f"an emulator takes at most {MAX_FLOPS:,} FLOP and {MAX_BYTES:,} bytes: declare a smaller case, "
        f"or to which dimensions cases are cut (@{kernel.name}.small)"
    )


def _checked(kernel: Any, launch: SmallCase) -> Iterator[SmallCase]:
    if not _reason_not_as_declared(kernel, launch.declared):
        yield dataclasses.replace(launch, knobs={}, units=FEW_UNITS)
        return
    for small in kernel.small_cases(launch.declared, launch.backend, launch.knobs):
        knobs = launch.knobs if small.knobs is None else small.knobs
        yield dataclasses.replace(launch, case=_reshaped(launch.declared, small.dims), knobs=knobs, units=FEW_UNITS)


def cut(case: Any, most: Mapping[str, int]) -> Any:
    """The case with each of these dimensions cut to its limit; the case itself where none is larger."""
    dims = {name: min(size, most[name]) for name, size in dict(case.dims).items() if name in most}
    return case if dims.items() <= dict(case.dims).items() else _reshaped(case, dims)


def _reshaped(declared: Any, dims: Mapping[str, Any]) -> Any:
    """A case like the declared one, of another shape, which its name tells."""
    shape = {**dict(declared.dims), **dims}
    ranks = [f"w{declared.world}"] if declared.world > 1 else []
    name = "_".join([*ranks, *(f"{key.lower()}{value}" for key, value in shape.items()), declared.dtype])
    same = {"world": declared.world, "dtype": declared.dtype, "distribution": declared.distribution}
    return type(declared)(name, tier="sweep", **same, **shape)


# Execution.


def execute(kernel: Any, small: SmallCase, told: Callable[[Execution], None] = lambda one: None) -> JsonObject:
    """Call a backend twice, the second time into poisoned outputs, and compare: {"norm", "peak", "seconds"}.

    The steps and the tolerance are those of `ridgeline verify` on a GPU; a case of several ranks: see _under_orders.
    told: what each launch of the second call did.  Raises channel.Refused for a wrong output, NotExecutable,
    Unsupported, or what the operator raises.
    """
    if small.case.world > 1:
        return _under_orders(kernel, small)
    spec = naming.contract("spec")
    case = small.case.at(spec.Place(device=DEVICE, arch=small.arch, compute_units=small.units))
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
    """All ranks under the schedules of SEEDS: {"norm", "peak"} against the reference, "instructions" executed.

    Raises channel.Refused for a wrong word, a hazard or a deadlock.
    """
    try:
        schedules = Schedules(world(kernel, small.backend, small.case, small.arch, dict(small.knobs)))
        count = sum(schedules.run(seed).executed for seed in SEEDS)
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
