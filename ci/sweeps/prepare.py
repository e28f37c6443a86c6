"""From what is asked for to the points that are measured: the catalogue, the wish, the anchors, and the pruning."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.points import Point
from ci.harness import TIERS
from ci.sweeps import catalogue as catalogues
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.grid import PointWish, points
from ci.sweeps.measured import SweepError
from ci.sweeps.plan import anchors_of
from ci.sweeps.pruning import CodeLimits, PointCompiler, Pruned, prune


@dataclasses.dataclass(frozen=True)
class SweepChoice:
    """Which cases and backends, on which device.  cases: patterns, "" of them: those of the tier.

    anchor: the backend whose default every point is compared with, "" for the first one that is swept.
    arch, compute_units: None for this machine's.
    """

    operator: str
    tree: Path
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    tier: str = "pr"
    anchor: str = ""
    arch: str | None = None
    compute_units: int | None = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """What will be measured, and why the rest will not."""

    catalogue: Catalogue
    asked: Mapping[str, Sequence[Point]]
    anchors: Mapping[str, str]
    pruned: Pruned


def prepared(
    choice: SweepChoice, wish: PointWish, console: Console, limits: CodeLimits | None = None, compile_ahead: bool = True
) -> Prepared:
    """Ask the declaration, make the points, leave out what needs no GPU time.  SweepError says what cannot be."""
    everything = catalogues.ask(choice.operator, choice.tree, (), choice.arch, choice.compute_units)
    chosen = everything.chosen(choice.cases, choice.backends, TIERS[: TIERS.index(choice.tier) + 1])
    swept = chosen if choice.backends else dataclasses.replace(chosen, offers=tuple(_swept(chosen, wish)))
    asked = points(swept, wish)
    asked = {case: own for case, own in asked.items() if any(point.knobs for point in own)}
    if choice.anchor and choice.anchor not in everything.backends:
        known = ", ".join(everything.backends)
        raise SweepError(f"--anchor {choice.anchor!r} is no backend of {choice.operator}; it has {known}")
    baselines = [offer.backend for offer in everything.offers if offer.baseline]
    anchors = anchors_of(asked, choice.anchor, baselines)
    here = choice.arch is None
    compiler = PointCompiler(choice.tree, console, limits or CodeLimits(), launched=here) if compile_ahead else None
    pruned = prune(everything, asked, anchors, compiler)
    return Prepared(everything, asked, anchors, pruned)


def _swept(chosen: Catalogue, wish: PointWish) -> list[catalogues.BackendOffer]:
    """The backends that have something to sweep: the knobs of a grid, or candidates."""
    names = {name for grid in wish.grids for name in grid.names}
    return [one for one in chosen.offers if names & set(one.knobs) or (wish.candidates and one.candidates)] or list(
        chosen.offers
    )
