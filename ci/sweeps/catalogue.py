"""What could be swept and tuned, as the declaration of an operator has it, and the points that are asked for.

`python -m benchmarks candidates` prints it; nothing of torch or Triton is imported here.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import functools
import itertools
import json
import math
from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.points import Knobs, Point, knob_value
from benchmarks.shapes import some_of
from ci.harness import TIERS, options, query
from ci.sweeps.measured import SweepError
from ci.trials.trial import Json

Value = str | int | float | bool
"""Of a knob."""

Identity = str
"""What says whether two sets of knobs are the same entry: canonical JSON of all knobs, counted as in an entry."""


@dataclasses.dataclass(frozen=True, order=True)
class TablePlace:
    """Where an entry lies.  table: the tables around it, the last one is the architecture; key: its name there."""

    file: Path
    table: tuple[str, ...]
    key: str

    def __str__(self) -> str:
        return ".".join((*self.table, self.key))


NO_TABLE = TablePlace(Path(), ("",), "")
"""Of a backend without a tuned table."""


@dataclasses.dataclass(frozen=True, eq=False)
class BackendOffer:
    """A backend in a case of an operator (`python -m benchmarks candidates`).

    knobs: their names.  config: those in use here, {} where it has none.  candidates: what a sweep tries, every knob
    given, the present choice first.  why_not: why it has no configuration here.

    Of a backend with a tuned table: place: where its entry is or would be.  entry: the knobs of the table, {} where it
    has none.  rule: the knobs without it.  scale: by knob, what the value of a launch is multiplied by in an entry.
    """

    operator: str
    case: str
    backend: str
    world: int = 1
    tier: str = "pr"
    knobs: Collection[str] = ()
    defaults: Knobs = dataclasses.field(default_factory=dict)
    config: Knobs = dataclasses.field(default_factory=dict)
    candidates: Sequence[Knobs] = ()
    baseline: bool = False
    why_not: str = ""
    place: TablePlace = NO_TABLE
    entry: Knobs = dataclasses.field(default_factory=dict)
    rule: Knobs = dataclasses.field(default_factory=dict)
    scale: Mapping[str, float] = dataclasses.field(default_factory=dict)

    def whole(self, overrides: Knobs) -> Knobs:
        """All knobs of a launch with these overrides."""
        return {**self.defaults, **self.config, **overrides}

    def overrides(self, knobs: Knobs) -> Knobs:
        """What a full set of knobs changes of the configuration in use."""
        there, wanted = self.whole({}), {**self.defaults, **knobs}
        return {name: value for name, value in wanted.items() if there.get(name) != value}

    def point(self, knobs: Knobs) -> Point:
        """The point of a full set of knobs."""
        return Point(self.case, self.backend, self.overrides(knobs))

    # ---- as an entry of a tuned table

    @property
    def by_rule(self) -> Knobs:
        """The knobs of a launch without the table."""
        return {**self.defaults, **self.rule}

    def identity(self, knobs: Knobs) -> Identity:
        """The identity of the knobs of a launch; those that are not given have their defaults."""
        written = self._as_written({**self.defaults, **knobs})
        return json.dumps(written, sort_keys=True, separators=(",", ":"))

    def as_entry(self, knobs: Knobs) -> dict[str, Value]:
        """The knobs of a launch as an entry: those that the rule or the present entry has, or that are no default."""
        known = {**self.rule, **self.defaults, **knobs}
        kept = {
            name: known[name]
            for name in (*self.rule, *self.entry, *knobs)
            if name in self.rule or name in self.entry or known[name] != self.defaults.get(name)
        }
        return self._as_written(kept)

    def _as_written(self, knobs: Knobs) -> dict[str, Value]:
        counted = {name: int(float(knobs[name]) * by) for name, by in self.scale.items() if name in knobs}
        return {**knobs, **counted}


@dataclasses.dataclass(frozen=True)
class Catalogue:
    """An operator's offers.  arch, compute_units: what they are made for; devices: GPUs here, if that is known."""

    operator: str
    arch: str
    compute_units: int | None
    offers: tuple[BackendOffer, ...]
    devices: int | None = None

    @property
    def backends(self) -> list[str]:
        """Every backend once."""
        return list(dict.fromkeys(offer.backend for offer in self.offers))

    @property
    def cases(self) -> list[str]:
        """Every case once."""
        return list(dict.fromkeys(offer.case for offer in self.offers))

    @property
    def kind(self) -> str:
        """Of machine: "gpu" or "cpu"."""
        return "cpu" if self.arch == "cpu" else "gpu"

    def world(self, cases: Container[str]) -> int:
        """The most ranks of some cases."""
        return max((offer.world for offer in self.offers if offer.case in cases), default=1)

    @functools.cached_property
    def _by_name(self) -> dict[tuple[str, str], BackendOffer]:
        return {(offer.case, offer.backend): offer for offer in self.offers}

    def of(self, case: str, backend: str) -> BackendOffer | None:
        """The offer of a backend in a case."""
        return self._by_name.get((case, backend))

    def chosen(self, cases: Sequence[str], backends: Sequence[str], tiers: Sequence[str]) -> Catalogue:
        """Those that are asked for: by name or pattern, else by tier.  SweepError names what fits nothing."""
        for pattern in cases:
            if not fnmatch.filter(self.cases, pattern):
                raise SweepError(f"no case of {self.operator} fits {pattern!r}; it has {some_of(self.cases, 8)}")
        for name in backends:
            if name not in self.backends:
                raise SweepError(f"{self.operator} has no backend {name!r}; it has {', '.join(self.backends)}")
        chosen = (
            offer
            for offer in self.offers
            if (not backends or offer.backend in backends)
            and (any(fnmatch.fnmatchcase(offer.case, p) for p in cases) if cases else offer.tier in tiers)
        )
        return dataclasses.replace(self, offers=tuple(chosen))


def to_tune(catalogue: Catalogue, patterns: Sequence[str] = (), backends: Sequence[str] = ()) -> list[BackendOffer]:
    """Named cases with a tuned table (default: all), and those that share an entry with them.  SweepError."""
    tabled = dataclasses.replace(
        catalogue, offers=tuple(offer for offer in catalogue.offers if offer.place is not NO_TABLE)
    )
    if not tabled.offers:
        raise SweepError(
            f"no backend of {catalogue.operator} has a tuned table and knobs on this machine; `tuned=` of "
            "kernel.backend() names one (kernels/spec.py)"
        )
    places = {offer.place for offer in tabled.chosen(patterns, backends, TIERS).offers}
    return [offer for offer in tabled.offers if offer.place in places]


def ask(
    operator: str, tree: Path, cases: Sequence[str] = (), arch: str | None = None, compute_units: int | None = None
) -> Catalogue:
    """What the declaration of a tree offers; SweepError or MeasureError if it cannot say.

    arch, compute_units: those of another device than this machine's.
    """
    wanted = options(kernel=operator, case=cases, tree=tree, arch=arch, compute_units=compute_units)
    return parsed(query("candidates", *wanted), operator)


def parsed(answer: Json, operator: str) -> Catalogue:
    """The catalogue of an operator in what `python -m benchmarks candidates` printed."""
    offers = tuple(_offer(entry, operator) for entry in answer["entries"])
    return Catalogue(operator, answer.get("arch") or "cpu", answer.get("compute_units"), offers, answer.get("devices"))


def _offer(entry: Json, operator: str) -> BackendOffer:
    tuned: dict[str, Any] = {"defaults": {name: fact["default"] for name, fact in entry["knobs"].items()}}
    if table := entry.get("table"):
        tuned = {name: table[name] for name in ("entry", "rule", "defaults", "scale")}
        tuned["place"] = TablePlace(Path(table["file"]), tuple(table["table"]), table["key"])
    named = ("case", "backend", "world", "tier", "config", "baseline", "candidates")
    known = {name: entry[name] for name in named if entry.get(name) is not None}
    return BackendOffer(operator, **known, **tuned, knobs=tuple(entry["knobs"]), why_not=entry.get("why") or "")


# ---- what to try: values of knobs from the command line, and the points that they and the candidates come to ---------

MOST_POINTS = 20_000
"""At 0.25 s each they are 80 GPU minutes in their first rung (H200, 2026-11-22), and a grid with a knob too many has a
million."""

KnobValues = Mapping[str, Sequence[Any]]
"""By knob, the values of which every combination is tried."""


def of_options(knobs: Sequence[str]) -> dict[str, list[Any]]:
    """The values of NAME=V,V options.  SweepError names what is wrong."""
    values: dict[str, list[Any]] = {}
    for knob in knobs:
        name, equals, texts = knob.partition("=")
        if not (equals and name.isidentifier() and texts):
            raise SweepError(f"--knob {knob!r}: expected NAME=VALUE,VALUE such as num_warps=4,8")
        if name in values:
            raise SweepError(f"--knob {name} is given twice; give all of its values in one: {name}=V,V")
        distinct = {(type(value), value): value for value in map(knob_value, texts.split(","))}  # 1 and true are two
        values[name] = list(distinct.values())
    return values


def points(catalogue: Catalogue, values: KnobValues, candidates: bool) -> dict[str, list[Point]]:
    """By case, every point once: combinations of the values, and the candidates of the declaration too.

    Backends without any of the knobs are plain points, to be timed as they are.  SweepError for an unknown knob,
    no points or too many, before one of them is made.
    """
    known = dict.fromkeys(name for offer in catalogue.offers for name in offer.knobs)
    if unknown := [name for name in values if name not in known]:
        has = f"have no knob {unknown[0]!r}; there are {', '.join(known) or 'none'}"
        raise SweepError(f"--knob: the backends {', '.join(catalogue.backends)} {has}")
    count = sum(
        (math.prod(map(len, _own(offer, values).values())) if values else 0) + candidates * len(offer.candidates)
        for offer in catalogue.offers
    )
    if count > MOST_POINTS:
        raise SweepError(
            f"{count:,} points in {len(catalogue.cases)} cases, and {MOST_POINTS:,} are allowed: name fewer values, "
            "or cases (--case GLOB, --backend NAME)"
        )
    by_case: dict[str, dict[str, Point]] = {}
    for offer in catalogue.offers:
        for overrides in _overrides(offer, values, candidates):
            point = Point(offer.case, offer.backend, overrides)
            by_case.setdefault(offer.case, {}).setdefault(point.label, point)
    swept = {case: list(own.values()) for case, own in by_case.items() if any(point.knobs for point in own.values())}
    if not swept:
        what = f"{catalogue.operator} with {', '.join(catalogue.backends) or 'no backend'}"
        raise SweepError(f"nothing to sweep: {what} has no such candidates or knobs; name knobs with --knob NAME=V,V")
    return swept


def _own(offer: BackendOffer, values: KnobValues) -> dict[str, Sequence[Any]]:
    return {name: own for name, own in values.items() if name in offer.knobs}


def _overrides(offer: BackendOffer, values: KnobValues, candidates: bool) -> Iterator[Knobs]:
    """What each point of a backend in a case overrides; first nothing, if the backend cannot be swept."""
    if not offer.knobs or offer.baseline:
        yield {}
    if candidates:
        yield from map(offer.overrides, offer.candidates)
    if own := _own(offer, values):
        yield from (dict(zip(own, chosen, strict=True)) for chosen in itertools.product(*own.values()))


def swept(chosen: Catalogue, values: KnobValues, candidates: bool) -> Catalogue:
    """The backends that have something to sweep: one of the knobs, or candidates; all where none has."""
    offers = [offer for offer in chosen.offers if _own(offer, values) or (candidates and offer.candidates)]
    return dataclasses.replace(chosen, offers=tuple(offers or chosen.offers))


def anchors_of(points: Mapping[str, Sequence[Point]], baselines: Sequence[str]) -> dict[str, str]:
    """The backend whose default is the anchor, by case: the first one that is swept, a baseline only if alone."""
    anchors = {}
    for case, own in points.items():
        names = list(dict.fromkeys(point.backend for point in own if point.knobs))
        anchors[case] = next((name for name in names if name not in baselines), names[0])
    return anchors
