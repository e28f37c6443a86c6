"""How the coordinator and a measuring process speak: requests, sealed answers, errors, foreign text fit to be shown.

Standard library only, and nothing of ours: both sides import it, the measuring process before any foreign code.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import random
import resource
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

# Foreign text made fit to be shown and kept: what a kernel says is limited, and cannot steer a terminal.


LONGEST_SENTENCE = 600
"""Characters of one line; the longest sentence of ours has 300, and four lines of a terminal hold as many (2026-11)."""

LONGEST_DETAIL = 8000
"""Characters of a traceback, or of a log, in the trial file."""


def sentence(text: str, most: int = LONGEST_SENTENCE) -> str:
    """One line: what cannot be printed is escaped, what is too long is cut, with a word on how much is missing."""
    more = len(text) - most
    shown = "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text[:most])
    return f"{shown} ... ({more:,} more characters)" if more > 0 else shown


def lines(text: str, most: int = LONGEST_DETAIL) -> str:
    """The end of a text of several lines, each as a sentence."""
    kept = "\n".join(sentence(line.replace("\t", "    ")) for line in text.splitlines())
    return kept[-most:]


def first_line(error: BaseException) -> str:
    """The first line of an exception's text, fit to be shown; an exception may fail to say anything."""
    try:
        said = str(error).strip()
    except BaseException as other:
        return f"its text cannot be had: {type(other).__name__}"
    return sentence((said.splitlines() or ["no message"])[0])


# How a measuring process reports what went wrong; without torch, so that a missing torch can be reported.


MOST_CAUSES = 100
"""Exceptions of a chain that are followed: a chain can be a circle."""


class Refused(Exception):
    """An arm cannot be measured: its status ("wrong", "error") and one sentence.  spoiled: it changed shared inputs.

    fatal: it changed what the whole process measures with.
    """

    def __init__(self, status: str, why: str, spoiled: bool = False, fatal: bool = False) -> None:
        super().__init__(why)
        self.status = status
        self.spoiled, self.fatal = spoiled, fatal


def error_answer(error: BaseException) -> dict[str, Any]:
    """Status, first cause in one sentence, traceback; `fatal` if the device cannot be used any more."""
    known = {"ok": False, "status": "error", "detail": "", "fatal": False, "spoiled": False, "failed_at": time.time()}
    try:
        return {**known, **_fields_of(error)}
    except BaseException as other:  # an exception is foreign code too
        return {**known, "why": f"{type(error).__name__}, of which nothing can be told: {type(other).__name__}"}


def _fields_of(error: BaseException) -> dict[str, Any]:
    if isinstance(error, Refused):
        told = {"status": error.status, "why": sentence(str(error))}
        return {**told, "spoiled": error.spoiled, "fatal": error.fatal}
    if any(kind.__name__ == "Unsupported" for kind in type(error).__mro__):  # a class of the checkout under test
        return {"status": "unsupported", "why": first_line(error)}
    cause = first_cause(error)
    return {
        "why": f"{type(cause).__name__}: {first_line(cause)}{_line_raised(cause)}",
        "detail": lines("".join(traceback.format_exception(error))),
        "fatal": _device_lost(),
    }


def first_cause(error: BaseException) -> BaseException:
    """The exception that started the chain."""
    for _ in range(MOST_CAUSES):
        earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if earlier is None:
            break
        error = earlier
    return error


def _line_raised(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""


def _device_lost() -> bool:
    """Whether the device refuses work: after an illegal access every later call of the process fails."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return False
    try:
        torch.cuda.synchronize()
    except Exception as error:
        print(f"the device is unusable: {error}", file=sys.stderr, flush=True)
        return True
    return False


# A sealed answer: a line that can only be the answer to one request, whatever else a kernel writes into the pipe.
#
# Every request carries a random seal.  The answer is a keyed digest of its text under that seal, a space, and the text.
# A kernel lives in the process that answers, so it could find the seal; but no stray write, no line that looks like an
# answer, and no answer of an earlier request can be taken for one.


LONGEST_ANSWER = 1 << 28
"""Bytes of an answer: a declaration of 1,000 cases has 1 MB, 2,000 samples have 50 KB (2026-11)."""

_SEAL_BYTES, _DIGEST_BYTES = 16, 16
_digest = hashlib.blake2b


class BrokenChannel(Exception):
    """What came is not the answer that was asked for; the text is a clause that says what came."""


def new_seal() -> str:
    """A seal for one request."""
    return os.urandom(_SEAL_BYTES).hex()


def sealed(text: bytes, seal: str) -> bytes:
    """The line of an answer; text: JSON without line breaks."""
    return b"%s %s\n" % (_mark(text, seal), text)


def opened(line: bytes, seal: str) -> bytes:
    """The text of a line; BrokenChannel if it is not the answer to the request with this seal."""
    mark, _, text = line.partition(b" ")
    if not seal or mark != _mark(text, seal):
        raise BrokenChannel(f"{len(line):,} bytes that are no answer came through its channel")
    return text


def _mark(text: bytes, seal: str) -> bytes:
    return _digest(text, digest_size=_DIGEST_BYTES, key=bytes.fromhex(seal)).hexdigest().encode()


# The measuring process's end of the channel: what it uses is its own before foreign code can change any of it.
#
# The descriptors are high and are not inherited, JSON is written and read by copies of the standard modules that nobody
# else has, and the system's functions are bound when this module is loaded.


LOWEST, ROOM = 128, 64
"""The lowest descriptor of ours, above those that a program closes or writes to by habit, and how many are tried."""

_write, _sealed = os.write, sealed


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


# Where ranks meet.


ADDRESS = "127.0.0.1"
"""All ranks are on one host."""


PORTS = range(20000, 32768)
"""Below those that Linux gives to connections (ip_local_port_range): a rank listens seconds after its port was chosen,
and one of 32768 and more was another program's by then (2 H200, 2026-11-29)."""


def free_port() -> int:
    """A port of this host that nobody listens on.  OSError if there is none."""
    for port in random.SystemRandom().sample(PORTS, 100):  # not by the seed, which the sides of a script share
        with contextlib.suppress(OSError), socket.create_server((ADDRESS, port)):
            return port
    raise OSError(f"{ADDRESS}: none of 100 ports in {PORTS} can be listened on")
