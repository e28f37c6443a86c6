"""What the programs of this package share: strict options, progress on stderr, and exit codes for what ends them."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TextIO

from benchmarks import lifetime, trial_file
from benchmarks.coordinator.checkouts import CheckoutError
from benchmarks.coordinator.orders import Report
from benchmarks.coordinator.ranks import Unkillable
from benchmarks.lifetime import ENDING
from benchmarks.plan import UsageError

USAGE, INTERRUPTED = 3, 130
"""Exit codes; 3 is also that of a defect, which must never look like a fault of what is measured."""


class StrictParser(argparse.ArgumentParser):
    """Leaves with USAGE: argparse's own 2 means something else here."""

    def error(self, message: str) -> Any:
        """The usage and one sentence."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"error: {message}\n")


def run(command: Callable[[], int], interrupted: str) -> int:
    """The exit code of a command; what ends it becomes a sentence on stderr and a code.  interrupted: what is kept."""
    lifetime.keep_orphans()
    for number in ENDING:
        signal.signal(number, _interrupted)
    try:
        return command()
    except (UsageError, CheckoutError, trial_file.OutputError, Unkillable, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(f"Error: {type(error).__name__}: {error} (this is a defect of Ridgeline)", file=sys.stderr)
        return USAGE


def in_turn(command: Callable[[Sequence[str]], int], commands: Iterable[str]) -> int:
    """Run commands, each a JSON list in a line, until there is none or one is interrupted.

    After each a line {"ended": its exit code} is on stderr.  What they start once, such as a fork server, stays.
    """
    for line in commands:
        code = command(json.loads(line))
        if code == INTERRUPTED:
            return code
        print(json.dumps({"ended": code}), file=sys.stderr, flush=True)
    return 0


def given() -> TextIO:
    """What is written to our stdin, which is empty from now on for everything that we start."""
    source, nothing = os.dup(0), os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return os.fdopen(source, encoding="utf-8")


def _interrupted(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def reporter(kind: str) -> Report:
    """What prints progress on stderr: `json` for a progress bar, `text` for a person, `none`."""
    if kind == "none":
        return lambda event: None
    if kind == "json":
        return lambda event: print(json.dumps(event), file=sys.stderr, flush=True)
    return lambda event: print(f"{event['done']}/{event['total'] or '?'} {event['what']}", file=sys.stderr, flush=True)
