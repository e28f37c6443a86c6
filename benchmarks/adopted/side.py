"""One side of a script: its process, and the link on which it tells what it meets and is asked for samples."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator import starting
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.ranks import Failed, Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.coordinator.signals import deferred
from benchmarks.trial_file import Status

START_S = 180.0
"""How long a process may take to start and to meet us on the link."""

RUN_S = 7 * 86400.0
"""How long a script may run in all: what limits it is the time between two timers."""


class ScriptSide:
    """A process that runs the script of one side, from its start to `ended`.

    held: a message that came and has not been dealt with.
    """

    def __init__(self, checkout: Checkout, directory: Path, variables: Mapping[str, str]) -> None:
        self.role = checkout.role
        self.ended: dict[str, Any] | None = None
        self.failure: Failure | None = None
        self.held: dict[str, Any] | None = None
        self._buffer = b""
        self._path = directory / f"{checkout.role}-{os.urandom(4).hex()}.sock"
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(1)
        self._link: socket.socket | None = None
        try:
            starting.prepare(checkout.python)
            with deferred():
                self.pool = WorkerPool(checkout.role, checkout.python, checkout.path, 1, directory, variables)
        except OSError as error:
            self._listener.close()
            raise CheckoutError(f"checkout {checkout.role}: cannot start {checkout.python}: {error}") from error
        self.begin = time.monotonic()

    @property
    def running(self) -> bool:
        """Whether the script has neither ended nor died."""
        return self.ended is None and self.failure is None

    def start(self, **fields: Any) -> None:
        """Have the process run the script."""
        self.pool.post("the script", RUN_S, "script", link=str(self._path), **fields)

    def next(self, limit_s: float) -> dict[str, Any] | None:
        """The next message; None when the script has ended, died, or said nothing for so many seconds."""
        until = time.monotonic() + limit_s
        while self.running:
            if line := self._line():
                return line
            self._wait(until - time.monotonic())
        return self._line()

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> Any:
        """One request to a script that waits at a timer.  Raises StepFailed, or PoolDied if it died or hung."""
        self._send({"op": op, "fields": fields})
        answer = self.next(limit_s)
        if answer is None:
            raise PoolDied(self.failure or Failure(Status.CRASH, f"{step}: the script ended"))
        if not answer["ok"]:
            raise StepFailed(Failure(Status(answer["status"]), f"{step}: {answer['why']}", answer["detail"]))
        return answer["result"]

    def resume(self) -> None:
        """Let the script go on with the samples that it has."""
        self._send({"op": "resume"})

    def printed(self) -> str:
        """The end of what the script printed."""
        return self._printed if not self.pool.alive else self.pool.workers[0].tail()

    def kill(self) -> None:
        """End the process with all it started."""
        self._printed = self.printed() if self.pool.alive else getattr(self, "_printed", "")
        self.pool.kill()
        for one in (self._link, self._listener):
            if one:
                one.close()
        self._link = None
        with contextlib.suppress(OSError):
            self._path.unlink()

    # ---- parts ---------------------------------------------------------------------------------------------------

    _printed = ""

    def _line(self) -> dict[str, Any] | None:
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        message: dict[str, Any] = json.loads(line)
        return message

    def _wait(self, left_s: float) -> None:
        """Take in what has come: a connection, bytes of the link, or the end of the script."""
        worker = self.pool.workers[0]
        with selectors.DefaultSelector() as selector:
            selector.register(worker, selectors.EVENT_READ, "process")
            selector.register(self._link or self._listener, selectors.EVENT_READ, "link")
            ready = {key.data for key, _ in selector.select(max(0.0, left_s))}
        if not ready:
            self._late()
        elif "link" in ready and not self._link:
            self._link, _ = self._listener.accept()
        elif "link" in ready and self._read():
            pass
        elif "process" in ready or self._link is None:
            self._collect()
        else:
            time.sleep(0.001)  # the link is closed: the end of the script follows

    def _read(self) -> bool:
        assert self._link
        with contextlib.suppress(ConnectionResetError):
            data = self._link.recv(1 << 16)
            self._buffer += data
            return bool(data)
        return False

    def _collect(self) -> None:
        self._printed = self.printed()
        try:
            self.ended = self.pool.collect()[0]
        except Failed as error:
            self.failure = error.failure

    def _late(self) -> None:
        self._printed = self.printed()
        self.failure = Failure(
            Status.HANG, "the script did not come to its next timer in time; it was killed", self._printed
        )
        self.kill()

    def _send(self, request: Mapping[str, Any]) -> None:
        if self._link:
            with contextlib.suppress(OSError):
                self._link.sendall(json.dumps(request).encode() + b"\n")
