"""How a program of ours is called from a command line: `python -m ci VERB` in a clone, `python -m ridgeline VERB` where
a wheel brought us (ci.installed).  Standard library only."""

from __future__ import annotations

from pathlib import Path

INSTALLED = Path(__file__).resolve().parents[1].name == "house"
"""Whether this is the copy in a wheel, whose rooms nobody else can import."""

VERBS = ("-m", "ridgeline" if INSTALLED else "ci")
"""Options of Python before a verb."""


def program(module: str) -> tuple[str, ...]:
    """Options of Python that run a module of ours, such as ci.executors.shard."""
    return ("-m", "ridgeline.program", module) if INSTALLED else ("-m", module)
