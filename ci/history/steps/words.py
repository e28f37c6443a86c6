"""The words that a series' steps are told in; :mod:`ci.history.types` has them and those of events."""

from __future__ import annotations

import dataclasses
import enum
from typing import NamedTuple

from ci.stats.types import Step


class Direction(enum.StrEnum):
    """Which way a step goes: of times, up is slower; of speeds, down is."""

    SLOWER = "slower"
    FASTER = "faster"


class EventKind(enum.StrEnum):
    """What moved."""

    KERNEL = "kernel"
    """Ours, against a baseline that stood still, or alone where there is none."""
    LIBRARY = "library"
    """The vendor's library, while ours stood still."""
    MACHINE = "machine"
    """Ours and the vendor's together: the machine, its driver or its clocks."""
    CODE = "code"
    """What the compiler emits; exact, so every change counts."""
    CONFIGURATION = "configuration"
    """The knobs in use, against others that a sweep measured beside them: they were the best, and are no longer."""


class EventState(enum.StrEnum):
    """Where an event stands.  The first two need somebody."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    ACCEPTED = "accepted"
    """The new level is the one to hold from now on."""
    RECOVERED = "recovered"
    """The old level came back by itself, within few commits."""
    FIXED = "fixed"
    """The old level came back at a later commit."""


class SeriesKey(NamedTuple):
    """One line of the history; across environments, because a new compiler is one cause of a step."""

    machine: str
    kernel: str
    backend: str
    case: str


@dataclasses.dataclass(frozen=True)
class Moved:
    """A series that takes part in an event.

    judged_by: "ratio" to the baseline of the same trial, "seconds", "code", or "peers": other devices at the same time.
    """

    key: SeriesKey
    step: Step
    direction: Direction
    judged_by: str
    first_bad: str
    last_good: str
