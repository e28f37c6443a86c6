"""What is measured here, how, and why the rest is not.  Pure: JSON values in, a plan out."""

from __future__ import annotations

import dataclasses
import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence

from benchmarks.points import Knobs, label
from benchmarks.shapes import Json, JsonObject
from kernels import hardware
from kernels.spec import TIERS, Cost

SHORT_S = 50e-6
"""A case whose roofline time is below this is timed in a graph: an event pair resolves about 1 us."""

GRAPH_CALLS = 20
"""Calls in a graph, which rotate through the sets of buffers."""

COLD_BYTES = 512 << 20
"""What is moved between two calls on the same buffers: twice the largest cache there is, MI300X's 256 MiB."""

PLACES = 4
"""Sets of buffers of a call that is bound by memory and timed alone: its time depends on where they lie.  Weights of
470 MB: 113 to 116 us by process, and two sides with equal code 0.9 % apart from trial to trial, where a sample itself
is good to 0.1 % (GEMM n8192_k28672_m64, H200, 2026-11-29)."""

CPU_FLOPS, CPU_BYTES = 2e9, 4e7
"""Largest case that a CPU is asked for: tens of milliseconds of plain torch on two cores (2026-11)."""

NOMINAL = {"flops": 1e15, "hbm": 4e12, "link": 4e11}
"""FLOP/s and bytes/s assumed for a device that is not in the table; used only to choose the method."""

HEAP_SLACK_BYTES = 64 << 20
"""Part of a symmetric heap that is reserved for signals and alignment."""

HEAP_SHARE = 0.5
"""Share of the memory that symmetric heaps may take.  The largest case is an all-gather of 4 GB for two checkouts: each
has the outputs of six backends on its heap (26 GB), and inputs, reference and libraries' outputs outside it (14 GB)."""

MEMORY_SHARE = 0.8
"""Share of the device's memory that all checkouts together may take."""

FLUSH_FACTOR = 2.5
"""A flush reads this many times L2 + last-level cache: more than twice, so that nothing of the last call stays."""

MANY = 8
"""GPUs of a node on which eight ranks are the normal case (MI300X, MI325X, MI355X; H200 in HGX)."""

HEAPS = ("auto", "torch", "ipc")
"""Homes of the symmetric heap that a run can ask for (kernels.symmetric_heap.CHOICES, which needs torch)."""

HEAP_VARIABLE = "RIDGELINE_HEAP"
"""Tells the measuring processes which (kernels.symmetric_heap.VARIABLE); the default of --heap where it is set."""


class UsageError(Exception):
    """What was asked for does not exist or cannot be done; the text lists what can."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """Which cases and backends; empty means all.  cases: shell patterns.  knobs: set in every backend that has them."""

    tier: str = "pr"
    cases: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    knobs: Knobs = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PlannedArm:
    """What is timed: a checkout (by role) and a backend, with overridden knobs.

    point: its id, in a sweep.
    libraries: what it calls, with versions.  first_call_s: what set-up and first call may take (kernels.spec.Backend).
    """

    role: str
    backend: str
    overrides: Knobs = dataclasses.field(default_factory=dict, hash=False)
    libraries: str = ""
    first_call_s: float = 0.0
    point: str = ""

    @property
    def key(self) -> str:
        """Its name in the trial file."""
        return f"{self.role}/{self.label}"

    @property
    def label(self) -> str:
        """Its name among the arms of its checkout."""
        return label(self.backend, self.point)


@dataclasses.dataclass(frozen=True)
class PlannedCase:
    """A case and how it is measured.  skip: why it is not.  errors: by arm, why that arm is not.

    copies: sets of buffers: for a graph enough that no call finds its data cached, for samples of one call, which take
    them in turn, PLACES or one; one if the cache is to be hot.
    calls: per sample, rotating through the copies.  memory_bytes: of the device, that all checkouts need.
    rounds: 0 for as many as the protocol says.
    """

    name: str
    world: int
    arms: tuple[PlannedArm, ...]
    method: str = "events"
    copies: int = 1
    calls: int = 1
    heap_bytes: int = 0
    skip: str = ""
    errors: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)
    memory_bytes: int = 0
    rounds: int = 0


def tiers_of(tier: str) -> tuple[str, ...]:
    """The tiers that a run of a tier measures: each includes the quicker ones."""
    if tier not in TIERS:
        raise UsageError(f"tier {tier!r} is not one of {', '.join(TIERS)}")
    return TIERS[: TIERS.index(tier) + 1]


def choose_kernels(asked: Sequence[str], declared: Sequence[Json], broken: Sequence[str]) -> list[str]:
    """Names of the kernels to measure, in order.  declared: by kernel name, one mapping per checkout.

    A name that no checkout declares is a UsageError, unless a broken module may have hidden it.
    """
    known = sorted({name for kernels in declared for name in kernels})
    for name in asked:
        if name not in known and not broken:
            raise unknown_kernel(name, known)
    return list(dict.fromkeys(asked)) if asked else known


def unknown_kernel(name: str, known: Sequence[str]) -> UsageError:
    """The error that names an unknown kernel and lists the known ones."""
    return UsageError(f"no kernel {name!r}; known: {_listed(known)}")


NEAREST = 8
"""Names of cases that are offered for one that is not there."""


def check_selection(selection: Selection, declared: Sequence[Json], kernels: Sequence[str]) -> None:
    """UsageError for a case pattern, backend or knob that fits nothing in the kernels to measure."""
    chosen = [d[name] for d in declared for name in kernels if name in d]
    wanted_tiers = tiers_of(selection.tier)
    if not chosen:
        return
    cases = [(f"{kernel['kernel']}/{case['name']}", case["tier"]) for kernel in chosen for case in kernel["cases"]]
    backends = {name for kernel in chosen for name in kernel["backends"]}
    for pattern in selection.cases:
        tiers = {tier for name, tier in cases if _fits(name, [pattern])}
        if not tiers:
            names = {name for name, _ in cases}
            near = ", ".join(difflib.get_close_matches(pattern, names, NEAREST, 0.0))
            raise UsageError(f"no case fits {pattern!r}; of {len(names)} the nearest are {near} ('*m16*' fits several)")
        if not tiers.intersection(wanted_tiers):
            first = min(tiers, key=TIERS.index)
            raise UsageError(f"no case of tier {selection.tier} fits {pattern!r}; with --tier {first} there is one")
    for name in selection.backends:
        if name not in backends:
            raise UsageError(f"no backend {name!r}; known: {_listed(backends)}")
    asked = selection.backends or backends
    knobs = {knob for kernel in chosen for name in asked for knob in kernel["knobs"].get(name, ())}
    for name in selection.knobs:
        if name.rpartition(".")[2] not in knobs:
            whose = f"backend {', '.join(selection.backends)}" if selection.backends else "backend"
            raise UsageError(f"no {whose} has a knob {name!r}; known: {_listed(knobs)}")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(set(names))) or "none"


def plan_kernel(
    declarations: Mapping[str, Json], machine: Json, selection: Selection, cache: str, regime: str = "spaced"
) -> list[PlannedCase]:
    """The cases of one kernel, declarations by role; a case belongs to every checkout that declares it."""
    tiers = tiers_of(selection.tier)
    kernel = next((d["kernel"] for d in declarations.values()), "")
    cases: dict[str, Json] = {}
    for role in ("head", "base"):
        for case in declarations.get(role, {"cases": []})["cases"]:
            cases.setdefault(case["name"], case)
    wanted = [
        case
        for case in cases.values()
        if case["tier"] in tiers
        and _fits(f"{kernel}/{case['name']}", selection.cases)
        and in_turn(case, machine, selection)
    ]
    return [_plan_case(case, declarations, machine, selection, cache, regime) for case in wanted]


def in_turn(case: Json, machine: Json, selection: Selection) -> bool:
    """Whether tier `pr` measures this case on this machine; a case that is asked for by name is always measured.

    With MANY GPUs: cases of two ranks, where one link works alone, and of eight, as the node is used.  Cases of four
    are left to the nightly run: they take a third of the time (per trial and collective 11 s for w4 on H200, 8 s for
    w2; `ridgeline run --dry-run`).  With fewer GPUs and on a CPU: all but the cases of eight ranks, which need eight.
    """
    if selection.tier != "pr" or selection.cases or case["world"] == 1:
        return True
    many = machine["kind"] == "gpu" and machine["count"] >= MANY
    return bool(case["world"] != (4 if many else MANY))


def _plan_case(
    case: Json, declarations: Mapping[str, Json], machine: Json, selection: Selection, cache: str, regime: str
) -> PlannedCase:
    name, world = case["name"], case["world"]
    arms = tuple(_arms(name, declarations, selection))
    cost = _largest_cost(name, declarations)
    asked = next((d["method"] for d in declarations.values() if d["method"]), None)
    method, rotates = choose_method(cost, case["dtype"], world, machine, asked), True
    if regime == "sustained" and method == "events":  # no gap for the host; large transfers fill no cache twice
        method, rotates = ("graph" if asked is None else method), world == 1
    copies = _copies(cost, case["dtype"], method, world, machine) if cache == "cold" and rotates else 1
    room = 0.5 * MEMORY_SHARE * (machine["memory_bytes"] or 0) / len(declarations)
    if copies > 1 and memory_bytes(cost, copies) > room:
        method, copies = "events" if regime == "spaced" else method, 1
    calls = GRAPH_CALLS if method == "graph" else 1
    heap = heap_bytes(cost, copies, world, arms, machine) if world > 1 else 0
    skip = why_not(cost, case, machine, len(declarations))
    errors = {arm.key: why for arm in arms if (why := _arm_error(case, declarations[arm.role]))}
    needs = len(declarations) * memory_bytes(cost, copies)
    return PlannedCase(name, world, arms, method, copies, calls, heap, skip, errors, needs)


def _largest_cost(case: str, declarations: Mapping[str, Json]) -> Cost:
    """The cost of a case; where the checkouts disagree, the larger one decides what fits."""
    costs = [Cost(**d["costs"][case]) for d in declarations.values() if case in d["costs"]]
    return max(costs, key=lambda cost: (cost.flops, cost.hbm_bytes), default=Cost())


def _arms(case: str, declarations: Mapping[str, Json], selection: Selection) -> list[PlannedArm]:
    arms = []
    for role, declaration in declarations.items():
        if any(known["name"] == case for known in declaration["cases"]):
            for backend in declaration["backends"]:
                if not selection.backends or backend in selection.backends:
                    overrides = _overrides(selection.knobs, role, declaration["knobs"][backend])
                    arms.append(PlannedArm(role, backend, overrides, *_library_facts(declaration, backend)))
    return arms


def _library_facts(declaration: Json, backend: str) -> tuple[str, float]:
    """What a backend calls, in words, and the seconds that its first use may take."""
    called = declaration.get("libraries", {}).get(backend, {})
    words = ", ".join(f"{name} {version}" for name, version in called.items())
    return words, declaration.get("first_call_s", {}).get(backend, 0.0)


def _arm_error(case: Json, declaration: Json) -> str:
    """Why a checkout's arms of a case cannot be measured although it declares the case."""
    own = next(known for known in declaration["cases"] if known["name"] == case["name"])
    if own["world"] != case["world"]:
        return (
            f"this checkout declares {case['name']} for {own['world']} ranks, the other for {case['world']}; "
            "the name of a case is permanent: rename one"
        )
    return declaration["cost_errors"].get(case["name"], "")


def _overrides(knobs: Json, role: str, known: Sequence[str]) -> JsonObject:
    """The knobs that are meant for this checkout (all, or ROLE.NAME) and that the backend has."""
    own = {name: value for name, value in knobs.items() if "." not in name or name.startswith(f"{role}.")}
    named = {name.removeprefix(f"{role}."): value for name, value in own.items()}
    return {name: value for name, value in named.items() if name in known}


def choose_method(cost: Cost, dtype: str, world: int, machine: Json, asked: str | None = None) -> str:
    """clock on a CPU; else what the kernel asks for; else graph below SHORT_S of roofline time.

    Declared cost and table decide, never a measured time: a benchmark definition must not change with faster code.
    """
    if machine["kind"] == "cpu":
        return "clock"
    if asked in ("graph", "events"):
        return asked
    return "graph" if roofline_seconds(cost, dtype, world, machine) < SHORT_S else "events"


def known_hardware(machine: Json) -> hardware.Hardware | None:
    """The entry of the table kernels/hardware.py, None for a CPU or a device that is not in it."""
    if machine["kind"] == "cpu":
        return None
    reported = (machine[key] for key in ("device", "arch", "compute_units", "chip_id", "memory_bytes"))
    try:
        return hardware.lookup(*reported)
    except hardware.UnknownHardware:
        return None


def roofline_seconds(cost: Cost, dtype: str, world: int, machine: Json) -> float:
    """Roofline time of a case on this machine's device, or on a nominal one if the table does not know it."""
    known = known_hardware(machine)
    try:
        if known:
            return hardware.roofline_seconds(cost, dtype, known, world)
    except ValueError:  # the table has no peak for this dtype
        pass
    return max(cost.flops / NOMINAL["flops"], cost.hbm_bytes / NOMINAL["hbm"], cost.link_bytes / NOMINAL["link"])


def why_not(cost: Cost, case: Json, machine: Json, checkouts: int) -> str:
    """One sentence why a case cannot be measured on this machine, "" if it can."""
    world = case["world"]
    if machine["kind"] == "gpu" and world > machine["count"]:
        return f"needs {world} GPUs, this machine has {machine['count']}"
    if machine["kind"] == "cpu" and world > machine["cpu_count"]:
        return f"needs {world} ranks, this machine has {machine['cpu_count']} CPU cores and no GPU"
    if machine["kind"] == "cpu" and world * max(cost.flops / CPU_FLOPS, cost.hbm_bytes / CPU_BYTES) > 1:
        return f"too large for a CPU: over {CPU_FLOPS:.3g} FLOP or {CPU_BYTES:.3g} bytes per call"
    ranks = world if machine["kind"] == "cpu" else 1
    needed, there = checkouts * ranks * memory_bytes(cost, 1), machine["memory_bytes"]
    if there and needed > MEMORY_SHARE * there:
        return f"needs about {needed / 1e9:.1f} GB of memory, this device has {there / 1e9:.1f} GB"
    return ""


def memory_bytes(cost: Cost, copies: int) -> int:
    """Device memory that one checkout needs for a case: its buffers, every arm's outputs, the wider reference."""
    return cost.hbm_bytes * (2 * copies + 4)


def flush_bytes(machine: Json, devices: Sequence[Json], host_cache: int) -> int:
    """Bytes to read between samples so that the caches are cold."""
    if machine["kind"] == "cpu":
        return int(FLUSH_FACTOR * host_cache)
    known = known_hardware(machine)
    candidates = [known] if known else hardware.DEVICES  # an unknown device may have as much cache as the largest
    caches = max(device.l2_bytes + device.llc_bytes for device in candidates)
    return int(FLUSH_FACTOR * max(caches, devices[0].get("l2_bytes") or 0))


def _copies(cost: Cost, dtype: str, method: str, world: int, machine: Json) -> int:
    """Sets of buffers.  Of a graph enough that one rotation moves COLD_BYTES; at most as many as it has calls."""
    if method == "graph":
        return min(GRAPH_CALLS, max(2, -(-COLD_BYTES // max(cost.hbm_bytes, 1))))
    if method != "events" or world > 1:
        return 1
    memory_s = roofline_seconds(dataclasses.replace(cost, flops=0), dtype, world, machine)
    return PLACES if memory_s == roofline_seconds(cost, dtype, world, machine) else 1


def heap_bytes(cost: Cost, copies: int, world: int, arms: Sequence[PlannedArm], machine: Json) -> int:
    """Symmetric heap of one rank: what a call moves, for every copy, once for the inputs and once for every arm.

    At most HEAP_SHARE of the memory for all heaps in it: those of every checkout, and on a CPU of every rank.
    """
    roles = {arm.role for arm in arms} or {"head"}
    backends = max(sum(1 for arm in arms if arm.role == role) for role in roles)
    wanted = HEAP_SLACK_BYTES + max(cost.hbm_bytes, cost.payload_bytes, cost.link_bytes) * copies * (1 + backends)
    heaps = len(roles) * (world if machine["kind"] == "cpu" else 1)
    return min(wanted, int(HEAP_SHARE * (machine["memory_bytes"] or wanted / HEAP_SHARE)) // heaps)


def _fits(case: str, patterns: Sequence[str]) -> bool:
    """Whether a case, KERNEL/NAME, is asked for by this or by its name alone."""
    texts = (case, case.partition("/")[2])
    return not patterns or any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns for text in texts)


# How samples are taken, and what of it is part of the benchmark definition.  Standard library only.


TIMING_VERSION = 1
"""Raised when the method of taking a sample changes: part of the benchmark definition, so that old and new samples are
never compared."""

BURST_S, BURST_ROUNDS = 0.5, 8
"""Least seconds of a burst, and bursts of an arm in a trial, unless asked otherwise.  An H200 comes to the clock that
its power allows in the first half of 0.5 s (2026-11-22); bursts of 0.2 s run at the clock of their neighbour, and the
ratio of a trial is then up to 3 % off, in place of 1 % (GEMM m1024 and k14336_m4096; 2026-11-29).  8 are the fewest
whose least and greatest enclose their median with 99 % (binomial: 1 - 2 / 2**8; ci.records.pooling.interval), and the
fewest that the policy judges (ci/policy.toml, min_rounds)."""


@dataclasses.dataclass(frozen=True)
class WarmUp:
    """How an arm is called before it is timed: for `seconds`, within fewest and most samples; then untimed rounds."""

    seconds: float = 0.02
    fewest: int = 3
    most: int = 20
    rounds: int = 2


@dataclasses.dataclass(frozen=True)
class Protocol:
    """How samples are taken.  deadline_s: for one step of one arm.  heap: of plan.HEAPS, on GPUs.

    regime: of trial_file.REGIMES.  burst_s: least seconds of a burst; a round has one of every arm, and the caches are
    not flushed between calls (cache "cold": they rotate through copies of the buffers, where the memory has room).
    point_deadline_s: for one step of a point of a sweep, of which some hang.
    whole_calls: calls of every arm that are timed from the host's side, after the rounds.
    """

    rounds: int = 40
    trials: int = 3
    cache: str = "cold"
    seed: int = 0
    schedule_seed: int = 0
    deadline_s: float = 180.0
    heap: str = "auto"
    warm_up: WarmUp = WarmUp()
    point_deadline_s: float = 20.0
    regime: str = "spaced"
    burst_s: float = BURST_S
    whole_calls: int = 0

    @property
    def sustained(self) -> bool:
        """Whether calls follow each other without a gap."""
        return self.regime == "sustained"

    def definition_terms(self) -> JsonObject:
        """The part of the benchmark definition that is not declared: case, inputs, cost, reference, baselines are.

        "spaced" is not in it: digests from before there was another regime stay as they are.
        """
        bursts = {"regime": self.regime, "burst_s": self.burst_s} if self.sustained else {}
        return {"cache": self.cache, "seed": self.seed, "timing": TIMING_VERSION, **bursts}

    def describe(self) -> JsonObject:
        """The `protocol` of a trial line."""
        told = {name: getattr(self, name) for name in ("rounds", "cache", "seed", "schedule_seed", "regime")}
        told |= {"burst_s": self.burst_s} if self.sustained else {}
        return told if self.warm_up == WarmUp() else {**told, "warm_up": dataclasses.asdict(self.warm_up)}
