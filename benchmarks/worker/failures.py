"""How a measuring process reports what went wrong; without torch, so that a missing torch can be reported."""

from __future__ import annotations

import sys
import time
import traceback
from pathlib import Path

from .. import channel
from ..shapes import JsonObject

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


def answer(error: BaseException) -> JsonObject:
    """Status, first cause in one sentence, traceback; `fatal` if the device cannot be used any more."""
    known = {"ok": False, "status": "error", "detail": "", "fatal": False, "spoiled": False, "failed_at": time.time()}
    try:
        return {**known, **_told(error)}
    except BaseException as other:  # an exception is foreign code too
        return {**known, "why": f"{type(error).__name__}, of which nothing can be told: {type(other).__name__}"}


def _told(error: BaseException) -> JsonObject:
    if isinstance(error, Refused):
        told = {"status": error.status, "why": channel.sentence(str(error))}
        return {**told, "spoiled": error.spoiled, "fatal": error.fatal}
    if any(kind.__name__ == "Unsupported" for kind in type(error).__mro__):  # a class of the checkout under test
        return {"status": "unsupported", "why": first_line(error)}
    cause = first_cause(error)
    return {
        "why": f"{type(cause).__name__}: {first_line(cause)}{_where(cause)}",
        "detail": channel.lines("".join(traceback.format_exception(error))),
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


def first_line(error: BaseException) -> str:
    """The first line of its text, fit to be shown."""
    return channel.of_error(error)


def _where(error: BaseException) -> str:
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
