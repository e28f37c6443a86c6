"""A declaration under the names that it has in head: what base called otherwise is compared, and not new and gone.

The harness asks for the new names; the project's own functions see the case as base declares it, under its old name,
for a table of tuned knobs may be looked up by it.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from typing import Any

from ..naming import our

ANY = "-"
"""Stands for a backend or a case of which nothing is said: no declaration has this name."""


def under_current_names(kernel: Any, renamed: Mapping[str, str]) -> dict[str, str]:
    """Give a kernel and its backends their current names (kernels.project), and have `case` find cases by theirs.

    Returns the current names of the cases by the old ones.  What was deleted keeps its name, and so does what belongs
    to another kernel now.  A kernel that was given its names already stays as it is.
    """
    if vars(kernel).get("old_cases") is not None:
        return dict(kernel.old_cases)
    project = our("kernels.project")
    name_now = project.current_kernel(kernel.name, renamed)

    def current(backend: str, case: str) -> list[str]:
        parts: list[str] = project.current_name(f"{kernel.name}/{backend}/{case}", renamed).split("/")
        return parts if parts[0] == name_now else [name_now, backend, case]

    cases = {case.name: current(ANY, case.name)[2] for case in kernel.cases}
    backends = {backend: current(backend, ANY)[1] for backend in kernel.backends}
    old, find = {new: name for name, new in cases.items()}, kernel.case
    kernel.backends = {
        backends[name]: dataclasses.replace(one, name=backends[name]) for name, one in kernel.backends.items()
    }
    kernel.compilations = {backends[name]: declare for name, declare in kernel.compilations.items()}
    kernel.case = lambda name: find(old.get(name, name))
    kernel.name, kernel.old_cases = name_now, cases
    return cases


def under_name(case: Any, name: str) -> Any:
    """The case under another name."""
    if case.name == name:
        return case
    made = copy.copy(case)
    object.__setattr__(made, "name", name)
    return made
