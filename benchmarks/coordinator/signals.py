"""Signals that end a command, deferred over the few lines that must not be interrupted."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler that cancels the job, a terminal that is closed."""


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Let a signal of ENDING that arrives inside take effect at the end of the block instead.

    Between the start of a process and the line that stores it, an exception would lose the process.  Python runs
    handlers in the main thread only, so other threads need not defer anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    received: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, frame: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not Python's
        if received:
            signal.raise_signal(received[0])
