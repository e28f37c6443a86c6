"""Pages of the site beside the overview and the kernels' own: each is a `View`, listed in `dashboards.views.listed`.

To add one: a module here with a `VIEW`, its template in templates/views/, its script in static/views/, and its name in
the list.  `dashboards.build` writes the page NAME.html and the data files that the view yields; the page's script reads
them with `Ridgeline.load(path)`.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from ci.history.analysis import History
from dashboards.lanes import Lane
from dashboards.machines import NotesOf, no_notes
from dashboards.overview import Declared, overview_data
from dashboards.sources import lanes_of
from dashboards.views.together import together


@dataclasses.dataclass(frozen=True, eq=False)
class SiteInput:
    """What every view draws from.

    frame: tidy rows (`dashboards.lanes.tidy`), may be empty: all of them, or, with `known` lanes, those that last
    (`dashboards.recent`).  notes_of: (machine, commit, env) -> trials of a record.  history, results_dir: None where a
    site is built of a bare frame.  reports: of a pull request (`dashboards.views.pull_request.read`).  peers: rows of
    baselines on machines of one product (`ci.history.health.peers`); None where `frame` has them.
    """

    frame: pd.DataFrame
    history: History | None = None
    notes_of: NotesOf = no_notes
    results_dir: Path | None = None
    reports: tuple[dict[str, Any], ...] = ()
    known: tuple[Lane, ...] | None = None
    peers: Callable[[], pd.DataFrame] | None = None

    @functools.cached_property
    def lanes(self) -> list[Lane]:
        """The lanes of the frame; the folder of a lane's data files is its `slug`."""
        if self.known is not None:
            return list(self.known)
        return lanes_of(self.frame) if len(self.frame) else []

    @functools.cached_property
    def overviews(self) -> dict[str, dict[str, Any]]:
        """By the slug of a lane, the data of its overview."""
        return {lane.slug: overview_data(lane.columns, lane.cpu, self._declared(lane.machine)) for lane in self.lanes}

    def _declared(self, machine: str) -> Declared:
        """The cases of a kernel by its newest trial at a commit of a machine."""

        def cases(kernel: str, commit: str, env: str) -> Collection[str] | None:
            trials = [one for one in self.notes_of(machine, commit, env) if one.operator == kernel]
            sides = [side for one in reversed(trials) for side in one.checkouts.values() if side.recordable == commit]
            return next((side.declaration.cases for side in sides if side.declaration), None)

        return cases

    @functools.cached_property
    def newest(self) -> dict[str, pd.DataFrame]:
        """By the slug of a lane, the newest rows that stand together (`dashboards.views.together.together`)."""
        return {lane.slug: together(lane.frame) for lane in self.lanes}


def nothing(site: SiteInput) -> Iterator[tuple[str, Any]]:
    """For a view that needs no files of its own of this kind."""
    return iter(())


def always(site: SiteInput) -> bool:
    """For a view that every site has."""
    return True


@dataclasses.dataclass(frozen=True)
class View:
    """A page.  name: of its file, NAME.html; title: in the navigation; template: below templates/.

    scripts, styles: below static/, after those of every page.  shown: whether a site has this page at all.
    reads: patterns of the paths of data files of others that its scripts load.
    data: yields (path, value) of its data files; a script loads one with `Ridgeline.load(path)`.  Values are what JSON
    knows, and arrays of numbers; NaN is null.  Paths are unique over the site: "<lane slug>/<view name>..." or
    "views/<view name>...".
    files: yields (path from the root of the site, bytes) of files for people and other programs: JSON, CSV, a feed.
    of_history: whether it shows events, steps or peers, which are made beside the other views.
    """

    name: str
    title: str
    template: str = "views/view.html"
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    shown: Callable[[SiteInput], bool] = always
    data: Callable[[SiteInput], Iterator[tuple[str, Any]]] = nothing
    files: Callable[[SiteInput], Iterator[tuple[str, bytes]]] = nothing
    of_history: bool = False


CHARTS = ("echarts/charts.min.js", "views/plot.js", "views/page.js", "views/pictures.js")
"""Scripts of a view that draws by ECharts and has a table."""
