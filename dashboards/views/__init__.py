"""Pages of the site beside the overview and the kernels' own: each is a `View`, listed in `dashboards.build`.

To add one: a module here with a `VIEW`, its template in templates/views/, its script in static/views/, and its name in
the list.  `dashboards.build` writes the page NAME.html and the data files that the view yields; the page's script reads
them with `Ridgeline.load(path)`.
"""

from __future__ import annotations

import csv
import dataclasses
import functools
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ci.history.kept import CaseCheck, case_checks
from ci.trials.trial import Arm, Checkout, Declaration, Trial
from dashboards.lanes import together
from dashboards.overview import Declared, overview_data
from dashboards.sources import Lane, SiteHistory
from dashboards.values import told

NotesOf = Callable[[str, str, str], Sequence[Trial]]
"""(machine, commit, env) -> the trials of that record, oldest first (`ci.records.store.notes`)."""


@dataclasses.dataclass(frozen=True, eq=False)
class SiteInput:
    """What every view draws from.

    results: the folder of records, which need not be there.  past: the history, which is perhaps still being made.
    notes_of: (machine, commit, env) -> trials of a record.  reports: of a pull request
    (`dashboards.views.pull_request.read`).  lanes: what is measured; the folder of a lane's data files is its `slug`.
    frame: the tidy rows of all lanes (`dashboards.lanes.tidy`), all of them or those that last
    (`dashboards.sources.lasting`); it has its columns where there is no row, too.
    """

    results: Path
    past: Callable[[], SiteHistory] = SiteHistory
    notes_of: NotesOf = lambda machine, commit, env: ()
    reports: tuple[dict[str, Any], ...] = ()
    lanes: Sequence[Lane] = ()
    frame: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)

    @property
    def history(self) -> SiteHistory:
        """Events, steps and all else that was found in the history."""
        return self.past()

    @functools.cached_property
    def overviews(self) -> dict[str, dict[str, Any]]:
        """By the slug of a lane, the data of its overview."""
        return {lane.slug: overview_data(lane.series, lane.cpu, self._declared(lane.machine)) for lane in self.lanes}

    def _declared(self, machine: str) -> Declared:
        """A kernel as its newest trial at a commit of a machine declares it."""

        def declaration(kernel: str, commit: str, env: str) -> Declaration | None:
            trials = [one for one in self.notes_of(machine, commit, env) if one.operator == kernel]
            sides = [side for one in reversed(trials) for side in one.checkouts.values() if side.recordable == commit]
            return next((side.declaration for side in sides if side.declaration), None)

        return declaration

    def arms_at(self, rows: pd.DataFrame) -> Iterator[tuple[str, str, Arm]]:
        """(case, backend, arm) in the records that rows of one operator are of, the newest last."""
        places = rows[["machine", "commit", "env", "kernel"]].drop_duplicates().itertuples(index=False)
        trials = [one for *place, kernel in places for one in self.notes_of(*place) if one.operator == kernel]
        for trial in sorted(trials, key=lambda trial: trial.order):
            yield from ((case, backend, arm) for case, _, backend, arm in trial.arms())

    @functools.cached_property
    def checks(self) -> tuple[list[CaseCheck], list[str]]:
        """What was verified, in time, and a sentence on each line or file that says nothing of it."""
        return case_checks(self.results)

    @functools.cached_property
    def newest(self) -> dict[str, pd.DataFrame]:
        """By the slug of a lane, the newest rows that stand together (`dashboards.lanes.together`)."""
        return {lane.slug: together(lane.frame) for lane in self.lanes}


Made = Iterator[tuple[str, Any]]
"""(path, value) of the files of a page."""


@dataclasses.dataclass(frozen=True)
class View:
    """A page.  name: of its file, NAME.html; title: in the navigation; template: below templates/.

    make: yields the files of the page.  A value that JSON knows, or with arrays of numbers (NaN is null), is a data
    file, which a script loads with `Ridgeline.load(path)`; paths are unique over the site: "<lane slug>/<view
    name>..." or "views/<view name>...".  Bytes are a file for people and other programs (JSON, CSV, a feed), its
    path from the root.
    scripts, styles: below static/, after those of every page.  shown: whether a site has this page at all.
    reads: patterns of the paths of data files of others that its scripts load.
    of_history: whether it shows the history, which is made beside the other views.
    of_folder: whether it reads the folder of records and nothing else, so that it can be made beside the rest.
    """

    name: str
    title: str
    make: Callable[[SiteInput], Made] = lambda _: iter(())
    template: str = "views/view.html"
    scripts: tuple[str, ...] = ()
    styles: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    shown: Callable[[SiteInput], bool] = lambda _: True
    of_history: bool = False
    of_folder: bool = False


CHARTS = ("echarts/charts.min.js", "views/pictures.js")
"""Scripts of a view that draws by ECharts."""


# ---- what a machine is, as its newest record describes it ----------------------------------------------------------

FINGERPRINT = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes", "chip_id")
"""Columns of the frame that describe a machine."""

SOFTWARE = {"torch": "torch", "Triton": "triton", "CUDA": "cuda", "HIP": "hip", "NCCL/RCCL": "nccl", "Python": "python"}
"""What the page calls each entry of a trial's `environment`."""


@dataclasses.dataclass(frozen=True)
class MachineFacts:
    """title: for the selector; rows: (name, value) of the fingerprint; broken: modules that did not import."""

    title: str
    rows: list[tuple[str, str]]
    broken: list[dict[str, str]]


def describe(frame: pd.DataFrame, notes_of: NotesOf) -> MachineFacts:
    """Facts of the lane whose tidy rows these are, at its newest commit."""
    newest = frame.iloc[-1]
    notes = notes_of(newest["machine"], newest["commit"], newest["env"])
    trial = notes[-1] if notes else None
    checkout = _checkout(trial, newest["commit"]) if trial else None
    noted = trial.machine.facts if trial else {}
    seen = _from_frame(newest) | {key: value for key, value in noted.items() if value not in (None, "")}
    name = str(seen.get("device") or newest["machine"])
    title = f"{seen['count']} × {name}" if seen.get("count", 1) > 1 else name
    rows = [("device", title), *_hardware(seen), *_software(seen, checkout, newest["env"])]
    return MachineFacts(title, rows, _broken(checkout))


def _checkout(trial: Trial, commit: str) -> Checkout:
    """The checkout of a trial that was at this commit (an A/B trial has two)."""
    checkouts = list(trial.checkouts.values())
    return next((one for one in checkouts if commit in (one.commit, one.named)), checkouts[-1])


def _broken(checkout: Checkout | None) -> list[dict[str, str]]:
    return [{"module": one.module, "why": one.reason} for one in (checkout.broken if checkout else ())]


def _from_frame(row: pd.Series) -> dict[str, Any]:
    return {key: row.get(key) for key in FINGERPRINT if pd.notna(row.get(key)) and row.get(key) != ""}


def _hardware(seen: Mapping[str, Any]) -> list[tuple[str, str]]:
    arch = str(seen.get("arch", ""))
    units = "CUs" if arch.startswith("gfx") else "SMs" if arch.startswith("sm_") else "compute units"
    rows = [
        ("product", seen.get("market_name") if seen.get("market_name") != seen.get("device") else None),
        ("arch", arch),
        (units, _whole(seen.get("compute_units"))),
        ("chip", seen.get("chip_id")),
        ("partition", seen.get("partition")),
        ("memory", _with_unit(seen.get("memory_bytes"), 2**30, "GiB")),
        ("power cap", _with_unit(seen.get("power_cap_w"), 1, "W")),
        ("cores", _whole(seen.get("cpu_count")) if seen.get("kind") == "cpu" else None),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _software(seen: Mapping[str, Any], checkout: Checkout | None, env: str) -> list[tuple[str, str]]:
    versions = checkout.environment.versions if checkout else {}
    rows = [("driver", seen.get("driver")), *((name, versions.get(key)) for name, key in SOFTWARE.items())]
    known = [(name, str(value)) for name, value in rows if value]
    return known if versions else [*known, ("environment", env)]


def _whole(value: Any) -> str | None:
    return None if value is None else str(int(value))


def _with_unit(value: Any, scale: float, unit: str) -> str | None:
    return None if value is None else f"{round(float(value) / scale)} {unit}"


# ---- the numbers of a page as files for other programs, beside the page's own data ---------------------------------


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What makes a spreadsheet run a text as a formula; an apostrophe before it keeps it a text."""


def beside(path: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, bytes]]:
    """data/PATH.json and data/PATH.csv of rows that share their keys; of no rows, nothing."""
    if rows:
        rows, encode = told(rows), json.JSONEncoder(allow_nan=False).encode  # dumps would make one for each row
        lines = ",\n".join(map(encode, rows))
        yield f"data/{path}.json", f"[\n{lines}\n]\n".encode("ascii")
        yield f"data/{path}.csv", as_csv(rows, list(rows[0]))


def as_csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> bytes:
    """A CSV file: a head and a line for each row."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([_cell(row[name]) for name in columns] for row in rows)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA) else value
    return str(value).lower() if isinstance(value, bool) else value
