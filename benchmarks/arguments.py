"""Values of the command line, checked before any process is started."""

from __future__ import annotations

import argparse
import ast
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import points
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.plan import HEAPS, Protocol, UsageError
from benchmarks.points import PointsFile
from benchmarks.protocol import BURST_ROUNDS
from benchmarks.trial_file import EARLIEST_MS, LATEST_MS, ROLES

MOST_SEED = 2**63
"""torch.manual_seed takes 64-bit seeds; below this a seed is also a JSON integer of every reader."""

LEAST_DEADLINE_S, MOST_DEADLINE_S = 0.1, 86400.0
"""A step takes milliseconds at least, and a day is no deadline (2026-11)."""

SHORTEST_BURST_S, LONGEST_BURST_S = 0.001, 60.0
"""A shorter burst has no two calls worth the name; a minute is longer than any power control needs (2026-11)."""


def role_value(text: str) -> tuple[str, str]:
    """ROLE=VALUE."""
    role, equals, value = text.partition("=")
    if not equals or role not in ROLES or not value:
        raise argparse.ArgumentTypeError(f"{text!r}: expected ROLE=VALUE with ROLE one of {', '.join(ROLES)}")
    return role, value


def role_date(text: str) -> tuple[str, int]:
    """ROLE=MS, milliseconds since 1970 UTC."""
    role, value = role_value(text)
    if not (value.isascii() and value.isdigit()):
        raise argparse.ArgumentTypeError(f"{value!r} is not a number of milliseconds since 1970")
    if len(value) > len(str(LATEST_MS)) or not EARLIEST_MS <= int(value) <= LATEST_MS:
        raise argparse.ArgumentTypeError(f"{value} ms is not a date between 1970 and 2100")
    return role, int(value)


def knob(text: str) -> tuple[str, Any]:
    """KEY=VALUE or ROLE.KEY=VALUE; a value is a Python literal that JSON can hold, or else a string."""
    key, equals, value = text.partition("=")
    role, dot, name = key.rpartition(".")
    if not equals or not name.isidentifier() or (dot and role not in ROLES):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = value
    try:
        json.dumps(found, allow_nan=False).encode()
        if isinstance(found, str):
            found.encode()
    except (ValueError, TypeError, RecursionError) as error:
        raise argparse.ArgumentTypeError(f"{text!r}: JSON cannot hold this value: {error}") from None
    return key, found


def positive(text: str) -> int:
    """A number of at least 1."""
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 1")
    return int(text)


def seed(text: str) -> int:
    """A number that torch takes as a seed."""
    if not (text.isascii() and text.isdigit() and len(text) < 20) or int(text) >= MOST_SEED:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number from 0 to 2**63 - 1")
    return int(text)


def deadline(text: str) -> float:
    """Seconds that a step may take."""
    return _seconds(text, LEAST_DEADLINE_S, MOST_DEADLINE_S, "{}")


def burst(text: str) -> float:
    """Seconds of a burst."""
    return _seconds(text, SHORTEST_BURST_S, LONGEST_BURST_S, "a burst of {}")


def _seconds(text: str, least: float, most: float, expected: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise argparse.ArgumentTypeError(f"{text!r}: expected {expected.format(f'{least:g} to {most:g} seconds')}")
    return seconds


def heap(text: str) -> str:
    """A home of the symmetric heap; the environment's word is held to the same names."""
    if text not in HEAPS:
        raise argparse.ArgumentTypeError(f"{text!r} is no home of the symmetric heap; known: {', '.join(HEAPS)}")
    return text


def protocol(arguments: argparse.Namespace) -> Protocol:
    """How the options of `run` ask to measure."""
    names = ("trials", "cache", "seed", "schedule_seed", "heap", "regime")
    told = {name: getattr(arguments, name) for name in names}
    told["rounds"] = arguments.rounds or (BURST_ROUNDS if arguments.regime == "sustained" else Protocol().rounds)
    told["burst_s"], told["point_deadline_s"] = arguments.burst, arguments.point_deadline
    return Protocol(**told, deadline_s=arguments.deadline)


NAMED_BY_POINTS = ("kernel", "case", "backend", "set")
"""Options that say what a points file says."""


def points_file(arguments: argparse.Namespace, checkouts: Sequence[Checkout]) -> PointsFile:
    """The points that are asked for.  UsageError for a file that cannot be used, or options that say the same."""
    for option in NAMED_BY_POINTS:
        if getattr(arguments, option):
            raise UsageError(f"--{option} beside --points: the points file names what is measured; leave one out")
    if [checkout.role for checkout in checkouts] != ["head"]:
        raise UsageError("the points of one checkout are measured at a time: --tree head=PATH")
    try:
        return points.read(arguments.points)
    except ValueError as error:
        raise UsageError(str(error)) from None


def checkouts(arguments: argparse.Namespace) -> list[Checkout]:
    """The checkouts that the options describe.  What is said of a role needs a --tree of that role."""
    paths = dict(arguments.tree or [("head", ".")])
    commits, dates, pythons = dict(arguments.commit), dict(arguments.date_ms), dict(arguments.env)
    said = [("commit", commits), ("date_ms", dates), ("python", pythons), ("dirty", dict.fromkeys(arguments.dirty))]
    for option, values in said:
        for role in values:
            if role not in paths:
                raise UsageError(f"there is no --tree {role}=PATH for the {option} of {role!r}")
    found = []
    for role, path in paths.items():
        dirty = True if role in arguments.dirty else (False if role in commits else None)
        python = pythons.get(role, sys.executable)
        found.append(Checkout(role, Path(path).resolve(), commits.get(role), dates.get(role), dirty, python))
    return found
