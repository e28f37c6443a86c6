"""What to try: values of knobs from the command line, and the points that they and the candidates come to."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.points import Knobs, Point, knob_value
from ci.sweeps.catalogue import BackendOffer, Catalogue, some
from ci.sweeps.measured import SweepError

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

    Backends without any of the knobs are plain points, to be timed as they are.  SweepError for an unknown knob, a
    value of a wrong type, no points or too many, before one of them is made.
    """
    _refuse_unknown(catalogue, values)
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


def _refuse_unknown(catalogue: Catalogue, values: KnobValues) -> None:
    known = {name: knob for offer in catalogue.offers for name, knob in offer.knobs.items()}
    for name, own in values.items():
        if name not in known:
            among = f"; there are {some(known, name, 30)}" if known else ""
            raise SweepError(f"--knob: none of {', '.join(catalogue.backends)} has a knob {name!r}{among}")
        for why in filter(None, map(known[name].refusal, own)):
            raise SweepError(f"--knob: {why}")


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
