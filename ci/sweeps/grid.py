"""What to try: grids of knobs from a file or the command line, and the points that they and the candidates come to.

A grid file is TOML or JSON:

    knobs = {block_m = [64, 128], num_warps = [4, 8]}        # every combination, in every case and backend asked for
    points = [{block_m = 256, num_stages = 3}]               # these as they are

    [[grid]]                                                 # the same again, for some cases or one backend only
    case = "*_m16_*"
    backend = "triton"
    knobs = {block_m = [16]}
"""

from __future__ import annotations

import ast
import dataclasses
import fnmatch
import itertools
import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.points import Knobs, Point
from benchmarks.shapes import Unfit, anything, items, record, table, text, that
from ci.sweeps.catalogue import BackendOffer, Catalogue, some
from ci.sweeps.measured import SweepError
from ci.sweeps.pruning import PointCompiler, Pruned, prune
from ci.sweeps.run import anchors_of

MOST = 20_000
"""Points of a sweep unless --most allows more: at 0.25 s each they are 80 GPU minutes in their first rung (H200,
2026-11-22), and a grid with a knob too many has a million."""


@dataclasses.dataclass(frozen=True)
class KnobGrid:
    """Values by knob, of which every combination is tried, and points as they are; in some cases, of some backend.

    source: where it comes from, for messages.
    """

    values: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    points: tuple[Knobs, ...] = ()
    case: str = "*"
    backend: str = ""
    source: str = "--knob"

    @property
    def size(self) -> int:
        """How many points it has in one case."""
        return (math.prod(len(each) for each in self.values.values()) if self.values else 0) + len(self.points)

    @property
    def names(self) -> list[str]:
        """Every knob that it sets."""
        return list(dict.fromkeys([*self.values, *(name for point in self.points for name in point)]))

    def knob_sets(self) -> Iterator[Knobs]:
        """Its points: combinations first, the last knob counting fastest."""
        if self.values:
            yield from (
                dict(zip(self.values, chosen, strict=True)) for chosen in itertools.product(*self.values.values())
            )
        yield from self.points


def of_options(knobs: Sequence[str]) -> list[KnobGrid]:
    """The grid of NAME=V,V options; none without options.  SweepError names what is wrong."""
    values: dict[str, list[Any]] = {}
    for knob in knobs:
        name, equals, texts = knob.partition("=")
        if not (equals and name.isidentifier() and texts):
            raise SweepError(f"--knob {knob!r}: expected NAME=VALUE,VALUE such as num_warps=4,8")
        if name in values:
            raise SweepError(f"--knob {name} is given twice; give all of its values in one: {name}=V,V")
        values[name] = _once([_value(part.strip()) for part in texts.split(",")], f"--knob {name}")
    return [KnobGrid(values)] if values else []


def _value(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
    return value if isinstance(value, str | int | float) else text


_SCALAR = that(
    lambda value: isinstance(value, str | int | float) and (not isinstance(value, float) or math.isfinite(value)),
    "a number, a name, true or false",
)
_POINT = that(lambda one: isinstance(one, dict) and one, "a table of values, such as {num_warps = 4}")
TABLE = record(
    {}, {"knobs": table(anything, anything), "points": items(_POINT), "case": text(), "backend": text()}, closed=True
)
"""One table of a grid file, without the key `grid` of the first."""


def of_file(path: Path) -> list[KnobGrid]:
    """The grids of a file.  SweepError names what is wrong."""
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise SweepError(f"--grid {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        that(lambda value: isinstance(value, dict), "a table with knobs, points, case, backend, grid")(
            document, str(path)
        )
        more = document.pop("grid", [])
        items(anything)(more, f"{path}: grid")
        tables = [(str(path), document)] * bool(document) + [
            (f"{path}: grid {n}", table) for n, table in enumerate(more, 1)
        ]
        grids = [_table(where, table) for where, table in tables]
    except Unfit as error:
        raise SweepError(f"--grid {error}") from None
    if not sum(grid.size for grid in grids):
        raise SweepError(f"--grid {path}: the grid is empty; give knobs = {{NAME = [values]}} or points = [{{...}}]")
    return grids


def _table(where: str, document: Any) -> KnobGrid:
    TABLE(document, where)
    values = {name: value if isinstance(value, list) else [value] for name, value in document.get("knobs", {}).items()}
    for name, own in values.items():
        items(_SCALAR, "at least one value")(own, f"{where}: {name}")
        _once(own, f"--grid {where}: {name}")
    rest = {key: document[key] for key in ("case", "backend") if key in document}
    return KnobGrid(values, tuple(document.get("points", ())), **rest, source=f"--grid {where}")


def _once(values: Sequence[Any], where: str) -> list[Any]:
    """Values of a knob, each once: 1 and true are two values."""
    distinct = {(type(value), value): value for value in values}
    if len(distinct) < len(values):
        raise SweepError(f"{where} has a value twice in {', '.join(map(str, values))}")
    return list(distinct.values())


# ---- points -------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PointWish:
    """What is asked for.  candidates: those of the declaration too.  most: points that are not too many."""

    grids: tuple[KnobGrid, ...] = ()
    candidates: bool = False
    most: int = MOST


def points(catalogue: Catalogue, wish: PointWish) -> dict[str, list[Point]]:
    """By case, every point once; backends without any of the knobs are plain points, to be timed as they are.

    SweepError for an unknown knob, a value of a wrong type, no points or too many, before one of them is made.
    """
    for grid in wish.grids:
        _refuse_unknown(catalogue, grid)
    count = sum(_count(offer, wish) for offer in catalogue.offers)
    if count > wish.most:
        each = ", ".join(f"{grid.source}: {grid.size:,}" for grid in wish.grids if grid.size)
        per_case = f" ({each} per case and backend)" if each else ""
        raise SweepError(
            f"{count:,} points in {len(catalogue.cases)} cases{per_case}, and {wish.most:,} are allowed: name fewer "
            "values or cases (--case GLOB, --backend NAME), or allow more: "
            f"--most {count}"
        )
    by_case: dict[str, dict[str, Point]] = {}
    for offer in catalogue.offers:
        for overrides in _overrides(offer, wish):
            point = Point(offer.case, offer.backend, overrides)
            by_case.setdefault(offer.case, {}).setdefault(point.label, point)
    if not any(point.knobs for own in by_case.values() for point in own.values()):
        raise SweepError(_nothing(catalogue, wish))
    return {case: list(own.values()) for case, own in by_case.items()}


def _fitting(offer: BackendOffer, wish: PointWish) -> Iterator[KnobGrid]:
    """The grids that are about a backend in a case, with those of their knobs that it has."""
    for grid in wish.grids:
        if fnmatch.fnmatchcase(offer.case, grid.case) and grid.backend in ("", offer.backend):
            values = {name: each for name, each in grid.values.items() if name in offer.knobs}
            own = tuple(point for point in grid.points if set(point) <= set(offer.knobs))
            yield dataclasses.replace(grid, values=values, points=own)


def _count(offer: BackendOffer, wish: PointWish) -> int:
    return sum(grid.size for grid in _fitting(offer, wish)) + (len(offer.candidates) if wish.candidates else 0)


def _overrides(offer: BackendOffer, wish: PointWish) -> Iterator[Knobs]:
    """What each point of a backend in a case overrides; first nothing, if the backend cannot be swept."""
    if not offer.knobs or offer.baseline:
        yield {}
    if wish.candidates:
        yield from (offer.overrides(knobs) for knobs in offer.candidates)
    for grid in _fitting(offer, wish):
        yield from grid.knob_sets()


def _refuse_unknown(catalogue: Catalogue, grid: KnobGrid) -> None:
    offers = [offer for offer in catalogue.offers if grid.backend in ("", offer.backend)]
    cases = [offer for offer in offers if fnmatch.fnmatchcase(offer.case, grid.case)]
    if not offers or not cases:
        wanted = f"backend {grid.backend!r}" if not offers else f"case {grid.case!r}"
        raise SweepError(
            f"{grid.source}: {wanted} is none of those that are swept: {some(catalogue.backends + catalogue.cases)}"
        )
    known = {name: knob for offer in cases for name, knob in offer.knobs.items()}
    for name in grid.names:
        if name not in known:
            among = f"; there are {some(known, name, 30)}" if known else ""
            backends = ", ".join(sorted({offer.backend for offer in cases}))
            raise SweepError(f"{grid.source}: none of {backends} has a knob {name!r}{among}")
    pairs = [(name, value) for name, values in grid.values.items() for value in values]
    for name, value in [*pairs, *(pair for point in grid.points for pair in point.items())]:
        if why := known[name].refusal(value):
            raise SweepError(f"{grid.source}: {why}")


def _nothing(catalogue: Catalogue, wish: PointWish) -> str:
    what = f"{catalogue.operator} with {', '.join(catalogue.backends) or 'no backend'} in {len(catalogue.cases)} cases"
    if wish.candidates and not wish.grids:
        return f"nothing to sweep: {what} declares no candidates; name knobs: --knob NAME=V,V or --grid FILE"
    return f"nothing to sweep: {what} gives no point; name knobs with --knob NAME=V,V, --grid FILE, or --candidates"


# From what is asked for to the points that are measured: the catalogue, the wish, the anchors, and the pruning.


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What will be measured, and why the rest will not."""

    catalogue: Catalogue
    asked: Mapping[str, Sequence[Point]]
    anchors: Mapping[str, str]
    pruned: Pruned


def prepared(
    everything: Catalogue, chosen: Catalogue, wish: PointWish, anchor: str, compiler: PointCompiler | None
) -> Prepared:
    """Make the points of the offers that are chosen, leave out what needs no GPU time.  SweepError says what cannot be.

    anchor: the backend whose default every point is compared with, "" for the first one that is swept.
    """
    asked = {case: own for case, own in points(chosen, wish).items() if any(point.knobs for point in own)}
    if anchor and anchor not in everything.backends:
        known = ", ".join(everything.backends)
        raise SweepError(f"--anchor {anchor!r} is no backend of {everything.operator}; it has {known}")
    anchors = anchors_of(asked, anchor, [offer.backend for offer in everything.offers if offer.baseline])
    return Prepared(everything, asked, anchors, prune(everything, asked, anchors, compiler))


def swept(chosen: Catalogue, wish: PointWish) -> Catalogue:
    """The backends that have something to sweep: the knobs of a grid, or candidates; all where none has."""
    names = {name for grid in wish.grids for name in grid.names}
    offers = [offer for offer in chosen.offers if names & set(offer.knobs) or (wish.candidates and offer.candidates)]
    return dataclasses.replace(chosen, offers=tuple(offers or chosen.offers))
