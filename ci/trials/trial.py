"""A trial as types: parsed once, checked on the way in, and then only asked.

`Trial.of` is the door.  It takes what a line of a trial file holds and raises `benchmarks.shapes.Unfit` for anything
that the shared description of the format (`benchmarks.trial_file`) does not allow.  Times are seconds.  All values are
frozen; a trial that is wanted in another role, beside another one, or as the twin of itself is made by a method.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import marshal
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from benchmarks import trial_file
from benchmarks.shapes import built
from benchmarks.trial_file import Status
from ci.stats import Clocks, FloatArray

# One batch of a sweep, as a trial line has it: points of one case, timed in turn with an anchor.


Json = Mapping[str, Any]
"""An object of a checked line."""

SPACED = "spaced"
"""The regime of lines that name none."""


@dataclasses.dataclass(frozen=True)
class SweptPoint:
    """A point as a line names it.  knobs: what it overrides of config(case, arch)."""

    backend: str
    knobs: Mapping[str, Any]


@dataclasses.dataclass(frozen=True)
class SweepBatch:
    """The part of a trial line that is about its sweep.

    anchor: the backend whose plain arm is timed in turn with the points.  points: by id.  rounds, regime: asked for.
    """

    id: str
    rung: int
    number: int
    anchor: str
    points: Mapping[str, SweptPoint]
    rounds: int = 0
    regime: str = SPACED

    @classmethod
    def of(cls, line: Json) -> SweepBatch | None:
        """From a checked trial line; None for a line that is of no sweep."""
        batch, protocol = line.get("sweep"), line.get("protocol") or {}
        if not batch:
            return None
        points = {id_: built(SweptPoint, point) for id_, point in batch["points"].items()}
        how = protocol.get("rounds") or 0, protocol.get("regime") or SPACED
        return cls(batch["id"], batch["rung"], batch["batch"], batch["anchor"], points, *how)


# What a trial says was wrong with its node before the run.  Standard library only: nodes that measure read it.


@dataclasses.dataclass(frozen=True)
class NodeFault:
    """What was wrong with the node before the run, a row of a line's `preflight`."""

    kind: str
    level: str
    text: str
    next_step: str = ""

    @property
    def fatal(self) -> bool:
        """Whether its times are not those of a healthy node."""
        return self.level == "error"

    @property
    def sentence(self) -> str:
        """What is wrong, and what to do."""
        return f"{self.text}; {self.next_step}" if self.next_step else self.text


def faults_of(preflight: Json) -> tuple[NodeFault, ...]:
    """The problems that a preflight found."""
    return tuple(built(NodeFault, row) for row in preflight.get("problems") or ())


def unfit(faults: Iterable[NodeFault]) -> str:
    """Why no verdict can rest on a trial: what failed its node before the run; "" for a node that was fit."""
    return "; ".join(fault.sentence for fault in faults if fault.fatal)


# What a case asks of the machine.


@dataclasses.dataclass(frozen=True)
class Cost:
    """What one call of a case must do, per rank (see kernels.spec.Cost); None where the declaration does not say.

    flops: FLOP.  hbm_bytes, link_bytes, payload_bytes: bytes; link_bytes by the bus convention of nccl-tests.
    """

    flops: int | None = None
    hbm_bytes: int | None = None
    link_bytes: int | None = None
    payload_bytes: int | None = None


COSTS = tuple(field.name for field in dataclasses.fields(Cost))


# What a trial says of the machine it ran on beyond its fingerprint.


@dataclasses.dataclass(frozen=True)
class Reading(Clocks):
    """What the devices reported at one moment: the first one, and the others of the machine in their order.

    role: the checkout that was at work, None where the file does not say so.
    """

    role: str | None = None
    others: tuple[Clocks, ...] | None = None


@dataclasses.dataclass(frozen=True)
class DeviceState:
    """Readings before, during and after a trial."""

    before: Reading | None = None
    after: Reading | None = None
    during: tuple[Reading, ...] = ()


Scalar = str | int | float | bool | None


_NOT_SHAPE = ("name", "tier", "dtype", "world", "distribution")
"""What a declaration says of a case beside its dimensions."""


@dataclasses.dataclass(frozen=True)
class DeclaredCase:
    """A case as a declaration lists it.  definition: digest of its benchmark definition, None where it is not known.

    shape: its dimensions, and whatever else the declaration says of it: {"M": 64, "N": 4096, "routing": "balanced"}.
    """

    name: str
    tier: str = ""
    dtype: str = ""
    world: int = 1
    cost: Cost = Cost()
    definition: str | None = None
    shape: Mapping[str, str | float] = dataclasses.field(default_factory=dict)

    @functools.cached_property
    def shape_json(self) -> str:
        """The shape as a JSON object, "" where it is not known."""
        return json.dumps(dict(self.shape)) if self.shape else ""


def _shape(case: Json) -> dict[str, str | float]:
    return {key: one for key, one in case.items() if key not in _NOT_SHAPE and isinstance(one, (str, int, float))}


@dataclasses.dataclass(frozen=True)
class Declaration:
    """An operator as one checkout declares it.  definition: digest of the operator's benchmark definition.

    terms: what the definition consists of, by name, as a value or a digest of code; {} in files of older trials.
    stand_ins: backends whose times on a CPU are shown and not judged.
    """

    operator: str
    backends: tuple[str, ...]
    baselines: tuple[str, ...]
    cases: Mapping[str, DeclaredCase]
    definition: str
    terms: Mapping[str, str] = dataclasses.field(default_factory=dict)
    stand_ins: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Json) -> Declaration:
        """From its JSON: the declaration of a trial line, or of `python -m benchmarks list --json`."""
        return _declaration(trial_file.packed(data))


@functools.lru_cache(maxsize=64)
def _declaration(packed: bytes) -> Declaration:
    """Hundreds of lines of a record hold the same one."""
    data = marshal.loads(packed)
    costs, definitions = data.get("costs") or {}, data.get("case_yardsticks") or {}
    cases = {
        name: DeclaredCase(
            *(name, case.get("tier", ""), case.get("dtype", ""), case.get("world", 1)),
            *(Cost(*map(costs.get(name, {}).get, COSTS)), definitions.get(name), _shape(case)),
        )
        for name, case in ((case["name"], case) for case in data["cases"])
    }
    backends, baselines = tuple(data["backends"]), tuple(data.get("baselines", ()))
    terms, stand_ins = data.get("terms") or {}, tuple(data.get("stand_ins", ()))
    return Declaration(data["kernel"], backends, baselines, cases, data["yardstick"], terms, stand_ins)


@dataclasses.dataclass(frozen=True)
class Environment:
    """Versions of a checkout's Python and libraries, and the variables that can change a time."""

    versions: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    variables: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, data: Json) -> Environment:
        """From its JSON."""
        return cls({name: value for name, value in data.items() if name != "variables"}, data.get("variables", {}))

    @property
    def name(self) -> str:
        """ "py3.12-torch2.11.0-triton3.6.0"; local version parts ("+cu130") are dropped."""
        parts = [f"py{self.python}", *(f"{package}{version}" for package, version in self.requirements.items())]
        return re.sub(r"[^A-Za-z0-9._-]", "_", "-".join(parts))

    @property
    def python(self) -> str:
        """Major and minor version of Python, "3.12"."""
        return ".".join(str(self.versions.get("python") or "").split(".")[:2])

    @property
    def requirements(self) -> dict[str, str]:
        """Versions that tell environments apart: torch and triton, those that are there."""
        found = {name: self.versions.get(name) for name in ("torch", "triton")}
        return {name: str(version).split("+")[0] for name, version in found.items() if version}

    def same_as(self, other: Environment) -> bool:
        """Whether both would run the same code alike; the path of the Python does not count."""
        mine, theirs = ({k: v for k, v in e.versions.items() if k != "executable"} for e in (self, other))
        return mine == theirs and self.variables == other.variables


@dataclasses.dataclass(frozen=True)
class Machine:
    """The fingerprint of a trial's machine; None where nothing was reported."""

    name: str
    kind: str = "gpu"
    arch: str | None = None
    device: str | None = None
    market_name: str | None = None
    count: int = 1
    compute_units: int | None = None
    memory_bytes: int | None = None
    power_cap_w: float | None = None
    chip_id: str | None = None
    partition: str | None = None
    driver: str | None = None
    cpu: str | None = None
    cpu_count: int | None = None
    ram_bytes: int | None = None
    os: str | None = None
    host: str | None = None

    @property
    def facts(self) -> dict[str, Scalar]:
        """Its fields by name."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class BrokenModule:
    """A module with kernels that could not be imported.

    declares: the operators in it, by its source; None where that does not say so for certain.
    """

    module: str
    reason: str
    declares: tuple[str, ...] | None = None

    def may_declare(self, operator: str) -> bool:
        """Whether its import may hide an operator."""
        return self.declares is None or operator in self.declares


@dataclasses.dataclass(frozen=True)
class Checkout:
    """One side under test: its commit, and what it declares of the trial's operator (None: it lacks it).

    named: the commit that somebody recorded it as, whatever its own is.  date_ms: committer date, ms since 1970 UTC.
    kernel_digest: over the files that the operator's code can come from.  ran: those of them that its processes ran,
    digests by path; empty in files of older trials.
    """

    commit: str | None
    date_ms: int | None
    dirty: bool
    environment: Environment
    declaration: Declaration | None
    broken: tuple[BrokenModule, ...] = ()
    kernel_digest: str | None = None
    named: str | None = None
    ran: Mapping[str, str] = dataclasses.field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, data: Json) -> Checkout:
        """From its JSON."""
        return cls(
            data.get("commit"),
            data.get("date_ms"),
            bool(data.get("dirty")),
            Environment.of(data["environment"]),
            Declaration.of(data["declaration"]) if data.get("declaration") else None,
            tuple(built(BrokenModule, module) for module in data.get("broken") or ()),
            data.get("kernel_digest"),
            data.get("recorded_as"),
            data.get("ran") or {},
        )

    @property
    def recordable(self) -> str | None:
        """The commit it may be recorded as: the one it was given by name, else its own unless it has local changes."""
        return self.named or (None if self.dirty else self.commit)


def ran_differently(trials: Iterable[Trial]) -> tuple[str, ...]:
    """The files that a side ran in some of the trials and the other side lacks or has otherwise, in order."""
    sides: dict[str, dict[str, str]] = {"base": {}, "head": {}}
    for trial in trials:
        for role in sides.keys() & trial.checkouts.keys():
            sides[role].update(trial.checkouts[role].ran)
    base, head = sides["base"], sides["head"]
    return tuple(path for path in sorted({*base, *head}) if base.get(path) != head.get(path)) if base and head else ()


@dataclasses.dataclass(frozen=True, eq=False)
class Arm:
    """What became of one backend of one checkout in one case.  seconds: shape (rounds,), empty unless status is ok.

    code_hash: digest of the code objects it launched, None where they are not known.
    whole_s: of single calls, seen from the host.  same_as: of a point of a sweep, the one whose times it has: they run
    the same code, which was timed once.
    """

    status: Status
    seconds: FloatArray
    why: str = ""
    knobs: Mapping[str, Scalar] = dataclasses.field(default_factory=dict)
    code_hash: str | None = None
    whole_s: tuple[float, ...] = ()
    same_as: str = ""

    @classmethod
    def of(cls, data: Json) -> Arm:
        """From its JSON."""
        seconds = np.array(data.get("seconds", ()), dtype=np.float64)
        seconds.flags.writeable = False
        knobs, code = data.get("knobs") or {}, data.get("code_hash")
        whole, same_as = tuple(data.get("whole_s") or ()), data.get("same_as", "").partition("/")[2]
        return cls(Status(data["status"]), seconds, data.get("why", ""), knobs, code, whole, same_as)

    @property
    def ok(self) -> bool:
        """Whether it was right and has times."""
        return self.status is Status.OK

    @property
    def rounds(self) -> int:
        """How many samples it has."""
        return len(self.seconds)

    @property
    def median(self) -> float:
        """Seconds, the median over the rounds; only of an arm that is ok."""
        return float(statistics.median(self.seconds.tolist()))


@dataclasses.dataclass(frozen=True, eq=False)
class CaseResult:
    """One case in one trial.  arms: by (role, backend), in the order of the file.  method: how samples were taken."""

    method: str
    arms: Mapping[tuple[str, str], Arm]
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Json) -> CaseResult:
        """From its JSON."""
        arms = {}
        for key, arm in data.get("arms", {}).items():
            role, _, backend = key.partition("/")
            arms[role, backend] = Arm.of(arm)
        return cls(data.get("method", ""), arms, tuple(data.get("warnings", ())))

    def of_role(self, role: str) -> dict[str, Arm]:
        """The arms of one checkout, by backend."""
        return {backend: arm for (own, backend), arm in self.arms.items() if own == role}


@dataclasses.dataclass(frozen=True, eq=False)
class Trial:
    """One trial of one operator.  line: makes its text.

    checkouts: by role.  number: in its session.  faults: of its node.  regime: of trial_file.REGIMES.  sweep: its
    batch, None if of none.  phases: its wall seconds by name (benchmarks.coordinator.lanes).  ahead_s: seconds of its
    session between the trial before, or the start, and it.
    """

    id: str
    session: str
    number: int
    started_at: str
    operator: str
    machine: Machine
    checkouts: Mapping[str, Checkout]
    cases: Mapping[str, CaseResult]
    state: DeviceState = DeviceState()
    warnings: tuple[str, ...] = ()
    duration_s: float = 0.0
    line: Callable[[], str] = str
    faults: tuple[NodeFault, ...] = ()
    regime: str = trial_file.REGIMES[0]
    sweep: SweepBatch | None = None
    phases: Mapping[str, float] = dataclasses.field(default_factory=dict)
    ahead_s: float = 0.0

    @classmethod
    def of(cls, data: Any, line: Callable[[], str] = str, checked: bool = False) -> Trial:
        """From the JSON value of a line.  line: makes its text.  checked: whether it was before.  Raises Unfit."""
        if not checked:
            trial_file.check(data)
        return cls(
            data["id"],
            data["session"],
            data["trial"],
            data["started_at"],
            data["kernel"],
            built(Machine, data["machine"]),
            {role: Checkout.of(checkout) for role, checkout in data["trees"].items()},
            {name: CaseResult.of(case) for name, case in data["cases"].items()},
            built(DeviceState, {key: value for key, value in (data.get("state") or {}).items() if value}),
            tuple(data.get("warnings", ())),
            float(data.get("duration_s") or 0.0),
            line,
            faults_of(data.get("preflight") or {}),
            regime=(data.get("protocol") or {}).get("regime", trial_file.REGIMES[0]),
            sweep=SweepBatch.of(data),
            phases=data.get("spent_s") or {},
            ahead_s=data.get("ahead_s") or 0.0,
        )

    @property
    def text(self) -> str:
        """The line it was read from, without its newline."""
        return self.line()

    @property
    def order(self) -> tuple[str, str, int, str]:
        """Sort key: by time; the same for whoever sorts."""
        return (self.started_at, self.session, self.number, self.id)

    @property
    def started_ms(self) -> int:
        """When it started, milliseconds since 1970 UTC."""
        return round(datetime.datetime.fromisoformat(self.started_at).timestamp() * 1000)

    @property
    def by_program(self) -> bool:
        """Whether it is of a benchmark program, each of whose runs is a process of its own."""
        return any(case.method == trial_file.PROGRAM for case in self.cases.values())

    @property
    def of_ranks(self) -> bool:
        """Whether it is of a script that several ranks run together."""
        return any(case.method.endswith(trial_file.OF_RANKS) for case in self.cases.values())

    @property
    def paired(self) -> bool:
        """Whether base and head ran in it in lock-step."""
        return self.checkouts.keys() >= set(trial_file.ROLES)

    def arms(self) -> Iterator[tuple[str, str, str, Arm]]:
        """(case, role, backend, arm) of everything in it."""
        for name, case in self.cases.items():
            for (role, backend), arm in case.arms.items():
                yield name, role, backend, arm

    def declaration(self) -> Declaration | None:
        """The operator as head declares it, or as base does where head lacks it."""
        found = (self.checkouts[role].declaration for role in ("head", "base") if role in self.checkouts)
        return next((declared for declared in found if declared), None)

    # ---- other trials made of this one ---------------------------------------------------------------------------

    def mirrored(self, base_commit: str | None) -> Trial:
        """The trial as if a base with the same files had been there and had done what head did."""
        head = self.checkouts["head"]
        return self._with_arms("head", {"base": dataclasses.replace(head, commit=base_commit), "head": head})

    def as_role(self, own: str, role: str) -> Trial:
        """The trial with its checkout `own` alone, which is called `role` from now on."""
        return self._with_arms(own, {role: self.checkouts[own]})

    def _with_arms(self, own: str, checkouts: Mapping[str, Checkout]) -> Trial:
        """The trial of these checkouts, each of which did what `own` did."""
        cases = {
            name: dataclasses.replace(
                case, arms={(role, b): arm for b, arm in case.of_role(own).items() for role in checkouts}
            )
            for name, case in self.cases.items()
        }
        return dataclasses.replace(self, checkouts=checkouts, cases=cases)

    def beside(self, head: Trial, number: int) -> Trial:
        """One trial of two that were measured apart: this one's checkout and the other's, without device readings."""
        both = {**self.cases, **head.cases}
        arms = {name: {**_arms(self, name), **_arms(head, name)} for name in both}
        cases = {name: dataclasses.replace(case, arms=arms[name]) for name, case in both.items()}
        checkouts = {**self.checkouts, **head.checkouts}
        return dataclasses.replace(head, number=number, checkouts=checkouts, cases=cases, state=DeviceState())

    def with_commits(self, commits: Mapping[str, str]) -> Trial:
        """The trial whose checkouts belong to these commits, by role; its text says so too."""
        if not commits.keys() & self.checkouts.keys():
            return self
        data = json.loads(self.text)
        for role in commits.keys() & data["trees"].keys():
            data["trees"][role]["recorded_as"] = commits[role]
        checkouts = {r: dataclasses.replace(c, named=commits.get(r, c.named)) for r, c in self.checkouts.items()}
        return dataclasses.replace(self, checkouts=checkouts, line=functools.partial(json.dumps, data))


def _arms(trial: Trial, case: str) -> Mapping[tuple[str, str], Arm]:
    return found.arms if (found := trial.cases.get(case)) else {}
