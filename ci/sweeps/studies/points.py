"""From a declaration to points: which arms each case of a study has on an architecture."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from benchmarks.points import Knobs, Point
from benchmarks.studies.types import StudyError, StudyPart, Tried
from ci.sweeps.catalogue import BackendOffer, Catalogue, some


def points(part: StudyPart, catalogue: Catalogue, cases: Sequence[str] = ()) -> dict[str, list[Point]]:
    """By case, the plain arms of a part and its points, each once; the anchor is the first of the plain arms.

    cases: patterns, only these.  Raises StudyError where nothing matches, or a declared knob does not exist.
    """
    own = [offer for offer in catalogue.offers if part.has(offer.case, offer.world)]
    if not own:
        asked = f"{', '.join(part.cases[:4])} on {ranks_named(part.ranks)}"
        raise StudyError(f"no case of {part.operator} matches {asked}; it has {some(catalogue.cases)}")
    wanted = Tried(cases=tuple(cases))
    by_case: dict[str, dict[str, BackendOffer]] = {}
    for offer in own:
        if wanted.at(offer.case):
            by_case.setdefault(offer.case, {})[offer.backend] = offer
    return {case: list(_points(part, case, offers, catalogue.arch)) for case, offers in by_case.items()}


def _points(part: StudyPart, case: str, offers: Mapping[str, BackendOffer], arch: str) -> Iterator[Point]:
    yield from (Point(case, name) for name in dict.fromkeys((part.anchor, *part.arms)) if name in offers)
    seen: set[str] = set()
    for tried in part.tried:
        offer = offers.get(tried.backend)
        if offer is None or offer.why_not or not (tried.on(arch) and tried.at(case)):
            continue
        for knobs in overrides(tried, offer, part.operator):
            point = Point(case, tried.backend, knobs)
            if knobs and point.label not in seen:
                seen.add(point.label)
                yield point


def overrides(tried: Tried, offer: BackendOffer, operator: str) -> Iterator[Knobs]:
    """Knob sets over config(), as far as they differ from it."""
    for name in dict.fromkeys(name for knobs in (tried.knobs, *tried.points) for name in knobs):
        if name not in offer.knobs:
            has = f"its knobs are: {', '.join(offer.knobs) or 'none'}"
            raise StudyError(f"{operator}: backend {offer.backend} has no knob {name!r}; {has}")
    whole = offer.whole({})
    bases = [*(offer.candidates if tried.candidates else ()), *tried.points] or [{}]
    for base, change in itertools.product(bases, combinations(tried)):
        yield {name: value for name, value in {**base, **change}.items() if whole.get(name) != value}


def combinations(tried: Tried) -> list[Knobs]:
    """Every combination of the values (or, with `each`, every value of every knob alone); one empty set for none."""
    if tried.each:
        return [{name: value} for name, values in tried.knobs.items() for value in values]
    names = list(tried.knobs)
    return [dict(zip(names, values, strict=True)) for values in itertools.product(*tried.knobs.values())]


def ranks_named(ranks: Sequence[int]) -> str:
    """ "1 rank", "2, 4 or 8 ranks"."""
    *first, last = map(str, ranks)
    return f"{', '.join(first)} or {last} ranks" if first else f"{last} rank{'' if last == '1' else 's'}"
