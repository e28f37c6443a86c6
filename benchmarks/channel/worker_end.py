"""The measuring process's end of the channel: what it uses is its own before foreign code can change any of it.

The descriptors are high and are not inherited, JSON is written and read by copies of the standard modules that nobody
else has, and the system's functions are bound when this module is loaded.
"""

from __future__ import annotations

import fcntl
import importlib.util
import os
import random
import resource
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from . import frames

LOWEST, ROOM = 128, 64
"""The lowest descriptor of ours, above those that a program closes or writes to by habit, and how many are tried."""

_write, _sealed = os.write, frames.sealed


def _own_copy(name: str) -> ModuleType:
    """A module of the standard library that is in nobody's sys.modules."""
    spec = importlib.util.find_spec(name)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_encode = _own_copy("json.encoder").JSONEncoder().encode
_decode = _own_copy("json.decoder").JSONDecoder().decode


class WorkerEnd:
    """Reads requests and writes sealed answers.  requests, answers: descriptors of pipes, which it closes."""

    def __init__(self, requests: int, answers: int) -> None:
        self._lines = os.fdopen(_moved(requests), "rb")
        self._answers = _moved(answers)
        self._seal = ""

    def requests(self) -> Iterator[dict[str, Any]]:
        """Every request, until the coordinator is gone."""
        while line := self._lines.readline():
            request: dict[str, Any] = _decode(line.decode())
            self._seal = request["seal"]
            yield request

    def exchange(self, answer: dict[str, Any]) -> dict[str, Any]:
        """Answer the request that is being done, and wait for the next; EOFError when the coordinator is gone."""
        self.answer(answer)
        for request in self.requests():
            return request
        raise EOFError("the coordinator is gone")

    def answer(self, value: dict[str, Any]) -> None:
        """Answer the last request.  TypeError, ValueError or RecursionError for what JSON has not: nothing is sent."""
        left = memoryview(_sealed(_encode(value).encode(), self._seal))
        while left:
            left = left[_write(self._answers, left) :]


def _moved(descriptor: int) -> int:
    """The same pipe at a high place that differs from process to process; not inherited by what a kernel starts."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    lowest = min(LOWEST + random.SystemRandom().randrange(ROOM), most - ROOM)
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    os.close(descriptor)
    return high
