"""What each link carried and what each compute die (XCD) ran, by arm: the view of `ridgeline run --links`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from rich.table import Table
from rich.text import Text

from ci.records import rates
from ci.report.words import plain
from ci.trials.trial import Arm, Trial


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """An arm's use of links and dies.

    to_peer_gbs: GB/s (1e9 bytes) that a rank sent to each peer, by the bus convention of nccl-tests.  probed_gbs: what
    the heap's probe wrote over the slowest link, None where there was no probe.  xcds: programs on each XCD, () where
    the number of programs or the dispatch is not known.  dealt: whether `xcds` counts on programs being dealt out in
    turn, and the machine was seen not to do so.
    """

    name: str
    backend: str
    to_peer_gbs: float | None = None
    probed_gbs: float | None = None
    xcds: tuple[int, ...] = ()
    dealt: bool = True

    @property
    def share(self) -> float | None:
        """Share of the probed rate."""
        return self.to_peer_gbs / self.probed_gbs if self.to_peer_gbs and self.probed_gbs else None


def uses(trials: Iterable[Trial]) -> list[LinkUse]:
    """One entry for each arm of which something is known, by the fastest of its trials' medians."""
    best: dict[tuple[str, str], LinkUse] = {}
    for trial in trials:
        for use in _of(trial):
            key = (use.name, use.backend)
            if key not in best or (use.to_peer_gbs or 0.0) > (best[key].to_peer_gbs or 0.0):
                best[key] = use
    return list(best.values())


def table(found: Sequence[LinkUse]) -> Table:
    """A row for each arm."""
    shown = Table(box=None, pad_edge=False, header_style="bold", title="links and compute dies")
    for column in ("kernel / case", "backend", "GB/s to a peer", "of the probe", "programs by XCD"):
        names = column in ("kernel / case", "backend")
        shown.add_column(column, justify="left" if names else "right", overflow="fold")
    for use in found:
        rate = f"{use.to_peer_gbs:.1f}" if use.to_peer_gbs else ""
        share = f"{100 * use.share:.0f} % of {use.probed_gbs:.0f}" if use.share else ""
        shown.add_row(Text(plain(use.name)), Text(plain(use.backend)), rate, share, _in_words(use))
    return shown


def _in_words(use: LinkUse) -> str:
    """ "8 x 8", or the numbers where they differ; a question mark where the programs are not dealt out in turn."""
    if not use.xcds:
        return ""
    first = use.xcds[0]
    even = f"{len(use.xcds)} x {first}" if set(use.xcds) == {first} else ",".join(map(str, use.xcds))
    return even if use.dealt else f"{even} ?"


def _of(trial: Trial) -> Iterator[LinkUse]:
    declared = trial.declaration()
    for name, _, backend, arm in trial.arms():
        if not arm.ok or declared is None or name not in declared.cases:
            continue
        case = declared.cases[name]
        use = LinkUse(f"{trial.operator}/{name}", backend)
        if case.world > 1 and case.cost.link_bytes:
            seconds = float(np.median(arm.seconds))
            rate = rates.gb_per_s(case.cost.link_bytes / (case.world - 1), seconds)
            home = trial.heaps.get(case.world)
            use = dataclasses.replace(use, to_peer_gbs=rate, probed_gbs=home.slowest_link if home else None)
        use = _with_dies(use, trial, arm)
        if use.to_peer_gbs or use.xcds:
            yield use


def _with_dies(use: LinkUse, trial: Trial, arm: Arm) -> LinkUse:
    programs = arm.knobs.get("programs")
    if trial.dispatch is None or not isinstance(programs, int) or programs < 1:
        return use
    return dataclasses.replace(use, xcds=trial.dispatch.in_turn(programs), dealt=trial.dispatch.round_robin)
