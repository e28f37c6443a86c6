"""The history that the pages show: records, recorded machine code, git's commits and what people decided, together."""

from __future__ import annotations

import dataclasses
import functools
import multiprocessing
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

import pandas as pd

from benchmarks.lifetime import end_with
from ci.history import exact, reading, triage
from ci.history import health as apart
from ci.history.types import HistoryEvent, Moved, SeriesKey
from kernels import project

CODE_FOLDER = "results_isa"
"""Folder of the recorded machine code, beside that of the results (asv.isa.json)."""


@dataclasses.dataclass(frozen=True)
class SiteHistory:
    """Events, the steps of each series, and the values of the recorded machine code, oldest commit first.

    notes: sentences on what was left out.  peers: see `ci.history.health.peers`.
    """

    events: tuple[HistoryEvent, ...] = ()
    steps: Mapping[SeriesKey, tuple[Moved, ...]] = dataclasses.field(default_factory=dict)
    code: Sequence[exact.CodeRecord] = ()
    peers: pd.DataFrame = dataclasses.field(default_factory=pd.DataFrame)
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, eq=False)
class Awaited:
    """A history that is perhaps still being made: who looks at it waits for it."""

    found: Callable[[], SiteHistory]

    @property
    def events(self) -> tuple[HistoryEvent, ...]:
        """See SiteHistory."""
        return self.found().events

    @property
    def steps(self) -> Mapping[SeriesKey, tuple[Moved, ...]]:
        """See SiteHistory."""
        return self.found().steps

    @property
    def code(self) -> Sequence[exact.CodeRecord]:
        """See SiteHistory."""
        return self.found().code

    @property
    def notes(self) -> tuple[str, ...]:
        """See SiteHistory."""
        return self.found().notes

    def peers(self) -> pd.DataFrame:
        """See SiteHistory."""
        return self.found().peers


def read(frame: pd.DataFrame, results_dir: Path) -> SiteHistory:
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
