"""Signals that end a command, held back over the few lines that must not be left half done."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a scheduler that cancels the job, a terminal that is closed."""


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Let a signal of ENDING that comes inside take effect at the end of the block instead.

    Between the start of a process and the line that writes it down, an exception would lose it.  Python runs handlers
    in the main thread only, so in another one nothing is to be held.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in ENDING}
    for number in ENDING:
        signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)  # None: not Python's
        if came:
            signal.raise_signal(came[0])
