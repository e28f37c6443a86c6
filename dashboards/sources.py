"""Where the rows of a lane come from, and what is carried on of them from one build to the next.

What the pages show beside their charts is decided by a few of a lane's rows.  Newest numbers, sparklines, marks,
trails, definitions: each looks at the last rows of a series, or at those where something changed.  `lasting` finds
rows from which every one of them comes out as from all rows; with newer rows added it does so again.  The history
reads all rows, but a third of their columns.  So a history that only grows need not be read again: what is kept of its
full blocks lies in one file for each lane, and one for each machine's history, beside the records' cache.  They save
time (the Parquet parts of 3 million rows take seconds to unpack) and are safe to delete.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.api.types import union_categoricals
from pyarrow import feather

from benchmarks.lifetime import end_with
from ci.history import exact, reading, triage
from ci.history import health as apart
from ci.history.types import HistoryEvent, Moved, SeriesKey
from ci.records import rates
from dashboards.lanes import BLOCK, KEY, MONTH, days, definitions, lane_slug, latest, newest_places, numbers, timed
from dashboards.overview import SPARK_POINTS, LaneSeries
from dashboards.values import NO_DATE, Ints, milliseconds
from kernels import project

Counts = Mapping[str, tuple[int, int]]
"""How many rows each commit of a lane has with status ok, and of these with a time; oldest first."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lane:
    """A machine, or one environment of a machine that measures commits under several.

    frame: its tidy rows, all of them or those that `lasting` keeps; counts: of all rows.
    """

    machine: str
    env: str | None
    frame: pd.DataFrame
    counts: Counts

    @property
    def slug(self) -> str:
        """Folder of its data files."""
        return lane_slug(self.machine, self.env)

    @property
    def cpu(self) -> bool:
        """Whether it is a machine without a GPU: what its backends are compared with is no vendor's library."""
        return "kind" in self.frame and str(self.frame["kind"].iloc[-1]) == "cpu"

    @functools.cached_property
    def kernels(self) -> list[str]:
        """What was measured in it."""
        return sorted(map(str, self.frame["kernel"].unique()))

    @functools.cached_property
    def series(self) -> LaneSeries:
        """The same rows, every series in one piece."""
        return LaneSeries.of(self.frame)


def counts_of(rows: pd.DataFrame) -> Counts:
    """Of tidy rows of a lane."""
    place, names = pd.factorize(rows["commit"])
    wanted = ((rows["status"] == "ok").to_numpy(), timed(rows))
    found = [np.bincount(place[some], minlength=len(names)).tolist() for some in wanted]
    return dict(zip(map(str, names), zip(*found, strict=True), strict=True))


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, order=True)
class RecordPlace:
    """Rows of a commit in an environment.  date_ms: the latest of its rows, ms since 1970."""

    date_ms: int
    commit: str
    env: str


@dataclasses.dataclass(frozen=True, eq=False)
class HeldRows:
    """Tidy rows of a machine."""

    machine: str
    held: pd.DataFrame

    @functools.cached_property
    def at(self) -> dict[RecordPlace, Ints]:
        """The rows of each place; commits without a date come last."""
        found = self.held.groupby(["commit", "env"], observed=True).indices
        date = milliseconds(self.held["date"])
        return {
            RecordPlace(int(date[rows].max()), str(commit), str(env)): rows for (commit, env), rows in found.items()
        }

    @property
    def places(self) -> Sequence[RecordPlace]:
        """Its commits and environments that have rows, oldest first."""
        return sorted(self.at)

    def made_of(self, places: Iterable[RecordPlace]) -> str:
        """Digest of all that pages can show of the rows of some places."""
        return hashlib.sha256(pd.util.hash_pandas_object(self.rows(places), index=False).to_numpy()).hexdigest()

    def rows(self, places: Iterable[RecordPlace]) -> pd.DataFrame:
        """Rows of some places."""
        return self.held.iloc[np.sort(np.concatenate([self.at[place] for place in places]))]


RowSource = HeldRows


def held(frame: pd.DataFrame) -> list[HeldRows]:
    """One for each machine of a tidy frame."""
    return [HeldRows(str(name), rows) for name, rows in frame.groupby("machine", sort=True, observed=True)]


@dataclasses.dataclass(frozen=True, eq=False)
class LaneSource:
    """A machine, or one environment of a machine that measures commits under several, and where its rows stand."""

    rows: RowSource
    env: str | None
    places: Sequence[RecordPlace]

    @property
    def machine(self) -> str:
        """Its name."""
        return self.rows.machine

    @property
    def blocks(self) -> list[list[RecordPlace]]:
        """The places of BLOCK commits at a time, oldest first; the last block may have fewer."""
        last: dict[str, int] = {}
        for place in self.places:
            last[place.commit] = max(place.date_ms, last.get(place.commit, place.date_ms))
        ordered = sorted(last, key=lambda commit: (last[commit], commit))
        number = {commit: n // BLOCK for n, commit in enumerate(ordered)}
        found: list[list[RecordPlace]] = [[] for _ in range(-(-len(ordered) // BLOCK))]
        for place in self.places:
            found[number[place.commit]].append(place)
        return found


def lane_sources(sources: Iterable[RowSource]) -> list[LaneSource]:
    """The lanes of some machines, the one with the longest history first (then by newest commit, then by name)."""

    def order(lane: LaneSource) -> tuple[int, int, str, str]:
        newest = max((place.date_ms for place in lane.places if place.date_ms != NO_DATE), default=-NO_DATE)
        return -len({place.commit for place in lane.places}), -newest, lane.machine, lane.env or ""

    found = []
    for source in sources:
        if len({place.commit for place in source.places}) == len(source.places):
            found.append(LaneSource(source, None, source.places))
        else:  # commits have several environments
            envs = sorted({place.env for place in source.places})
            found += [LaneSource(source, env, [one for one in source.places if one.env == env]) for env in envs]
    return sorted(found, key=order)


# ---- what is carried on ---------------------------------------------------------------------------------------------

Rows = Callable[[], pd.DataFrame]


def carried(
    source: LaneSource,
    read: Callable[[Sequence[RecordPlace]], pd.DataFrame],
    code: str,
    file: Path | None,
    keep: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
    each: Callable[[int, str, Rows], None] = lambda *_: None,
) -> tuple[pd.DataFrame, Counts, str]:
    """What is kept of a lane's full blocks and all rows of its newest one; counts of all rows; a digest of all of it.

    code: digest of the code that reads.  file: where what is kept lies, None to keep nothing.  keep: what of the full
    blocks, without it all.  each: told of every block its number, its digest and how its rows are read.
    """
    blocks = source.blocks
    made_of = [source.rows.made_of(block) for block in blocks]
    chain = [digest_of(code, "")]
    for one in made_of:
        chain.append(digest_of(chain[-1], one))
    full = sum(len({place.commit for place in block}) == BLOCK for block in blocks)  # only new commits join a history
    count, past, counts = load(file, chain[: full + 1])
    frames = [] if past is None else [past]
    for n, places in enumerate(blocks):
        rows = functools.cache(functools.partial(read, places))
        each(n, made_of[n], rows)
        if n < count:
            continue
        frames.append(rows())
        counts = {**counts, **counts_of(rows())}
        if keep and n < full:
            frames = [keep(stacked(frames))]
        if n + 1 == full:
            frames = [stacked(frames)]
            save(file, chain[full], frames[0], counts)
    return stacked(frames), counts, chain[-1]


def digest_of(before: str, more: str) -> str:
    """Digest of two."""
    return hashlib.sha256(f"{before} {more}".encode(errors="surrogatepass")).hexdigest()[:32]


def stacked(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Frames one below the other; texts that are categories stay so, in alphabetical order."""
    found = [frame for frame in frames if len(frame)] or list(frames[:1])
    if len(found) < 2:
        return found[0]

    def column(columns: Sequence[pd.Series]) -> object:
        if all(isinstance(one.dtype, pd.CategoricalDtype) for one in columns):
            return union_categoricals([one.array for one in columns], sort_categories=True)
        return pd.concat(columns, ignore_index=True).array

    names = dict.fromkeys(name for frame in found for name in frame)
    return pd.DataFrame({name: column([one[name] for one in found if name in one]) for name in names}, copy=False)


def lasting(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows of a lane (tidy, of all its commits or of what lasted and newer ones) that say all that its pages show."""
    arm, place = numbers(rows, KEY), numbers(rows, ["commit", "env"])
    ok, good = (rows["status"] == "ok").to_numpy(bool), timed(rows)
    stated = (rows[list(rates.AMOUNT.values())].fillna(0) != 0).any(axis=1).to_numpy()
    found = newest_places(rows)
    found[definitions(rows)[0]] = True
    for group, wanted in ((arm, None), (arm, ok), (arm, stated), (place, None), (place, ok)):
        found |= latest(group, 1, wanted)
    first = latest(arm[::-1], 1, good[::-1])[::-1]
    day = days(rows["date"])  # of a series the last time on each day of the last month, and the last one before
    since = np.maximum(day - (day.max(initial=0) - MONTH), 0)
    trail = latest(arm * (MONTH + 1) + since, 1, good & (day >= 0))
    return rows[found | latest(arm, SPARK_POINTS, good) | first | trail].reset_index(drop=True)


# ---- the file -------------------------------------------------------------------------------------------------------

_TOLD = b"ridgeline-past"


def load(file: Path | None, chain: Sequence[str]) -> tuple[int, pd.DataFrame | None, Counts]:
    """(number of blocks, what is kept of them, their counts), else (0, None, {}).

    chain: digests of the first 0, 1, ... blocks.
    """
    with contextlib.suppress(OSError, pa.ArrowException, ValueError, TypeError, KeyError):
        table = feather.read_table(file, memory_map=True) if file else None
        told = json.loads(table.schema.metadata[_TOLD]) if table is not None else {}
        if told.get("made_of") in chain[1:]:
            plain = table.replace_schema_metadata({b"pandas": table.schema.metadata[b"pandas"]})
            rows = plain.to_pandas(split_blocks=True)  # columns of numbers are the file's own memory
            return chain.index(told["made_of"]), rows, {commit: (ok, good) for commit, ok, good in told["counts"]}
    return 0, None, {}


def save(file: Path | None, made_of: str, rows: pd.DataFrame, counts: Counts) -> None:
    """Where it cannot be written, the next build takes its time."""
    if file is None:
        return
    draft = file.with_suffix(f".{os.getpid()}")
    with contextlib.suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        said = {"made_of": made_of, "counts": [[commit, *both] for commit, both in counts.items()]}
        table = pa.Table.from_pandas(rows, preserve_index=False)
        for at, field in enumerate(table.schema):
            if pa.types.is_floating(field.type):  # NaN stays a number: a column with nulls would be copied to be read
                values = rows[field.name].to_numpy(field.type.to_pandas_dtype())
                table = table.set_column(at, field, pa.array(values, from_pandas=False))
        table = table.replace_schema_metadata({**table.schema.metadata, _TOLD: json.dumps(said).encode()})
        whole = max(len(table), 1)  # in one piece, or it would have to be put together to be read
        feather.write_feather(table, draft, "uncompressed", chunksize=whole)
        os.replace(draft, file)


# The history that the pages show: records, recorded machine code, git's commits and what people decided, together.


CODE_FOLDER = "results_isa"
"""Folder of the recorded machine code, beside that of the results (asv.isa.json)."""


@dataclasses.dataclass(frozen=True)
class SiteHistory:
    """Events, the steps of each series, and the values of the recorded machine code, oldest commit first.

    notes: sentences on what was left out.  peers: rows of baselines on machines of one product
    (`ci.history.health.peers`).
    """

    events: tuple[HistoryEvent, ...] = ()
    steps: Mapping[SeriesKey, tuple[Moved, ...]] = dataclasses.field(default_factory=dict)
    code: Sequence[exact.CodeRecord] = ()
    peers: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
    notes: tuple[str, ...] = ()


def read_history(frame: pd.DataFrame, results_dir: Path) -> SiteHistory:
    """The history of a derived frame whose records lie in `results_dir`.

    Git and the file of decisions are those of the folder around the results; without git a commit is only its hash.
    """
    around = results_dir.resolve().parent
    code_dir, decided = around / CODE_FOLDER, triage.load(project.around(around).events)
    found = reading.of_frame(frame, results_dir, code_dir, decided)
    return SiteHistory(found.events, found.steps, exact.records(code_dir, around), apart.peers(frame), found.notes)


# A value that is made in a process of its own while this one goes on: of a build's two halves neither waits.


T = TypeVar("T")


def made_apart(make: Callable[[], T]) -> Callable[[], T]:
    """Begin to make a value; the function returned waits for it, and raises what making it raised.

    The process is a fork, which has all that was read so far: for a program without threads of its own.  Where there
    is one core or no safe fork (macOS), or the process is killed, the value is made here when it is asked for.
    """
    if not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2:
        return functools.cache(make)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(there, make, os.getpid()), daemon=True)
    process.start()
    there.close()
    return functools.cache(functools.partial(_told, here, process.join, make))


def _tell(there: Connection, make: Callable[[], T], starter: int) -> None:
    end_with(starter)
    try:
        said: tuple[T | None, Exception | None] = make(), None
    except Exception as error:  # whatever it is, it is raised where the value is wanted
        said = None, error
    there.send(said)


def _told(here: Connection, join: Callable[[], None], make: Callable[[], T]) -> T:
    try:
        value, error = here.recv()
    except EOFError:
        return make()
    finally:
        join()
    if error is not None:
        raise error
    return value
