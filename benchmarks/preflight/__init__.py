"""Is this node fit to measure?  Read before every run, without torch and without a process on a GPU.

`facts` asks the drivers' libraries and the files of the system; `judge` is pure.  What a node does not tell is recorded
as absent.  An "error" fails the node: its times would not be those of a healthy one, so no verdict rests on them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.preflight import gpus, judge, system
from benchmarks.preflight.system import Demand, NodeFacts, Problem

__all__ = ["Demand", "examine", "facts", "in_words", "problems"]


def examine(
    ours: Collection[str] | None = None,
    wanted: Demand | None = None,
    folders: Sequence[Path] = (),
    root: Path = Path("/"),
) -> dict[str, Any]:
    """{"problems": [{kind, level, text, next_step}], "facts": {...}} as a trial line keeps it; see the module.

    ours: PCI addresses of the GPUs that the run uses; None: all that this process may use.
    """
    found = facts(ours, folders, root)
    said = problems(found, wanted or Demand())
    return {"problems": [one.as_json() for one in said], "facts": found.compact()}


def in_words(problems: Sequence[Mapping[str, str]]) -> str:
    """The problems of a report for people."""
    shown = [(one, f" ({one['why']})" if one.get("why") else "") for one in problems]
    lines = [f"{one['level'].upper():9} {one['text']}{why}; {one['next_step']}" for one, why in shown]
    return "\n".join(lines or ["no problem found"])


def facts(ours: Collection[str] | None = None, folders: Sequence[Path] = (), root: Path = Path("/")) -> NodeFacts:
    """Everything that can be read here."""
    found, absent = gpus.gpus(root)
    return NodeFacts(tuple(gpus.chosen(found, ours)), absent, **system.settings(root, folders))


def problems(found: NodeFacts, wanted: Demand) -> list[Problem]:
    """What is wrong with the node, errors first.  Pure."""
    return sorted(judge.problems(found, wanted), key=lambda one: one.level != "error")
