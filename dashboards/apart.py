"""A value that is made in a process of its own while this one goes on: of a build's two halves neither waits."""

from __future__ import annotations

import functools
import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import TypeVar

from benchmarks.lifetime import end_with

T = TypeVar("T")


def apart(make: Callable[[], T]) -> Callable[[], T]:
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
