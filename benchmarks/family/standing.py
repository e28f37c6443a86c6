"""How the system treats a process: cores, priority and limits, which its children inherit.

A process may change them of any other of its user, by its number: sched_setaffinity(2), setpriority(2), prlimit(2).  A
kernel that does so to its parent would change how every later one is measured.  Standard library only.
"""

from __future__ import annotations

import os
import resource
from typing import Any

_LIMITS = tuple(sorted(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")))


class ProcessStanding:
    """What it was when this object was made."""

    def __init__(self) -> None:
        self._was = _now()

    def restore(self) -> bool:
        """Make it so again; whether it is.  A plain user cannot raise a priority or a hard limit."""
        now = _now()
        if now == self._was:
            return True
        for name, value in self._was.items():
            if now[name] != value:
                try:
                    _set(name, value)
                except (OSError, ValueError):
                    return False
        return True


def _now() -> dict[Any, Any]:
    """By what it is: the number of a limit, or a name."""
    found: dict[Any, Any] = {limit: resource.getrlimit(limit) for limit in _LIMITS}
    found["priority"] = os.getpriority(os.PRIO_PROCESS, 0)
    if hasattr(os, "sched_getaffinity"):
        found["policy"] = os.sched_getscheduler(0), os.sched_getparam(0).sched_priority
        found["cores"] = os.sched_getaffinity(0)
    return found


def _set(name: Any, value: Any) -> None:
    if name == "priority":
        os.setpriority(os.PRIO_PROCESS, 0, value)
    elif name == "policy":
        os.sched_setscheduler(0, value[0], os.sched_param(value[1]))
    elif name == "cores":
        os.sched_setaffinity(0, value)
    else:
        resource.setrlimit(name, value)
