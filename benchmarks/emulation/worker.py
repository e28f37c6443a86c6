"""The executing process of `verify --arch`: lists the small cases of one source tree, and executes them one by one."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import time
from pathlib import Path
from typing import Any

from .. import naming
from ..shapes import Json, JsonObject
from ..worker import failures
from ..worker.ran import RanFiles
from . import serving
from .cases import SmallCase, WrongOutput, execute, small_cases
from .launch import Execution

DECIDES = ("torch", "triton", "numpy", "tinygrad", "msgpack")
"""Distributions that decide what is executed, or what it gives."""


class Cases:
    """The small cases of a tree, in a fixed order."""

    def __init__(self, tree: Path) -> None:
        self._tree = tree
        self._kernels: dict[str, Any] = {}
        self._cases: list[SmallCase] = []

    def gather(self, kernels: list[str], backends: list[str], arches: list[str]) -> JsonObject:
        """{"cases": [...], "kernels": {name: {module, baselines}} of those asked for, "known": all names, "without":
        operators of which nothing is executed, "broken": [{module, reason}], "environment": versions}."""
        registry = naming.contract("registry")
        found = registry.discover(registry.listed_packages(self._tree))
        self._kernels = dict(found.kernels)
        chosen = {name: one for name, one in self._kernels.items() if not kernels or name in kernels}
        self._cases = [one for one in small_cases(chosen, arches) if not backends or one.backend in backends]
        there = {one.operator for one in self._cases}
        return {
            "cases": [_described(one) for one in self._cases],
            "kernels": {
                name: {"module": serving.home(one), "baselines": _baselines(one)} for name, one in chosen.items()
            },
            "known": sorted(self._kernels),
            "broken": [{"module": one.module, "reason": one.reason} for one in found.broken],
            "without": sorted(name for name, one in chosen.items() if one.compilations and name not in there),
            "environment": {name: importlib.metadata.version(name) for name in DECIDES}
            | {"python": platform.python_version()},
        }

    def execute(self, index: int) -> JsonObject:
        """The arm of a case, as in a line of checks, with the instructions executed and CPU seconds."""
        small = self._cases[index]
        done: list[Execution] = []
        start = time.process_time()
        try:
            found = execute(self._kernels[small.operator], small, done.append)
            arm = {"status": "ok", "why": "", "error": {"norm": found["norm"], "peak": found["peak"]}}
        except Exception as error:
            told = failures.answer(error)
            arm = {"status": told["status"], "why": told["why"]}
            arm |= {"detail": "\n".join(error.lines)} if isinstance(error, WrongOutput) else {}
        counted = {"instructions": sum(one.total for one in done), "cpu_s": round(time.process_time() - start, 3)}
        return {**arm, "knobs": dict(small.knobs), **counted}


def _baselines(kernel: Any) -> list[str]:
    return sorted(name for name, backend in kernel.backends.items() if backend.baseline)


def _described(small: SmallCase) -> JsonObject:
    case = small.case
    about = {"tier": case.tier, "world": case.world, "dtype": case.dtype}
    return {"kernel": small.operator, "backend": small.backend, "case": small.name, "arch": small.arch, **about}


def main() -> None:
    """Entry: TREE MADE LOG; MADE: the folder in which the process keeps what it makes."""
    tree, made = map(Path, sys.argv[1:3])
    answers = serving.begin(tree)
    ran, cases = RanFiles(tree, made), Cases(tree)

    def listed(asked: Json) -> JsonObject:
        return cases.gather(asked["kernels"], asked["backends"], asked["arches"])

    serving.serve(answers, ran, listed, cases.execute, lambda error: str(failures.answer(error)["why"]))
