"""What a process does that executes: it lists the small cases of one source tree, and executes them one by one."""

from __future__ import annotations

import functools
import gc
import operator
import platform
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from .. import naming
from ..channel import error_answer, first_cause
from ..shapes import JsonObject
from ..worker.declare import discovered, installed
from . import hazards
from .cases import SmallCase, WrongOutput, counted_cases, execute, small_cases, why_nothing
from .code_object import NotExecutable
from .counts import Counts, bound
from .launch import Execution
from .operands import Unknown
from .waves import Fault

DECIDES = ("torch", "triton", "numpy", "tinygrad", "msgpack", "llvmlite")
"""Distributions that decide what is executed, or what it gives."""

NOT_EXECUTED = "not executed, because "
"""What a reason begins with that is the emulator's, not the operator's."""

OF_A_GPU = "torch/cuda/"
"""Where torch raises when it is asked for a GPU that is not there."""

LIMITS = {"memory": ("memory",), "compute": ("MFMA issue", "LDS")}
"""What a case can be bound by, and the units that are then asked how long they are busy at least."""

YOUNG_OBJECTS = 100_000
"""After so many new ones Python looks for cycles: what translates a kernel makes many that stay, and each look after
Python's own 700 passes over them."""


class SmallCases:
    """The small cases of a tree, in a fixed order."""

    def __init__(self, tree: Path) -> None:
        self._kernels: dict[str, Any] = {}
        self._cases: list[SmallCase] = []
        sys.modules["torch"].set_num_threads(1)
        gc.set_threshold(YOUNG_OBJECTS)

    def listing(
        self, kernels: list[str], backends: list[str], arches: list[str], counted: bool, modules: list[str]
    ) -> JsonObject:
        """{"cases": [...], "not_counted": see counted_cases, "kernels": {name: {module, baselines}} of those asked for,
        "known": all names, "without": why nothing is executed, by operator, "broken": [{module, reason}],
        "environment": versions}.

        counted: the cases that are counted, not those that are checked.  modules: that are imported.
        """
        found = discovered(modules)
        self._kernels = dict(found.kernels)
        chosen = {name: one for name, one in self._kernels.items() if not kernels or name in kernels}
        cases, others = counted_cases(chosen, arches) if counted else (small_cases(chosen, arches), [])
        self._cases = [one for one in cases if not backends or one.backend in backends]
        there = {one.operator for one in self._cases}
        return {
            "cases": [self._described(one) for one in self._cases],
            "not_counted": [one for one in others if not backends or one["backend"] in backends],
            "kernels": {
                name: {"module": _home(one), "baselines": sorted(one.baselines)} for name, one in chosen.items()
            },
            "known": sorted(self._kernels),
            "broken": [{"module": one.module, "reason": one.reason} for one in found.broken],
            "without": {
                name: why_nothing(one) for name, one in sorted(chosen.items()) if one.compilations and name not in there
            },
            "environment": installed(DECIDES)
            | {"python": platform.python_version(), "hazards": str(hazards.checked())},
        }

    def _described(self, small: SmallCase) -> JsonObject:
        """at: the name of its shape.  declared: the case that it stands for, in its own shape bound by `limit`."""
        case, declared, least = small.case, small.declared, self._least(small, small.declared)
        return {
            "kernel": small.operator,
            "backend": small.backend,
            "case": small.name,
            "arch": small.arch,
            "tier": case.tier,
            "world": case.world,
            "dtype": case.dtype,
            "at": case.name,
            "declared": declared.name,
            "declared_tier": declared.tier,
            "limit": max(("memory", "compute"), key=lambda limit: least[limit]),
            "flops": self._kernels[small.operator].function("cost")(case).flops,
        }

    def _least(self, small: SmallCase, case: Any) -> dict[str, float]:
        """Seconds of the roofline on the first product of the target: of its FLOP, and of its bytes through HBM."""
        cost, device = self._kernels[small.operator].function("cost")(case), _device(small.arch)
        return {"compute": cost.flops / device.peak(case.dtype), "memory": cost.hbm_bytes / device.hbm_bandwidth}

    def answer(self, index: int) -> JsonObject:
        """The arm of a case, as in a line of checks, with the instructions executed and CPU seconds; of one that is
        right also its counts, and what they bound, {percent, unit} or None, for each limit of the case it stands for,
        if it is of one rank.

        The shape that is executed has less to compute per byte than that case, so the case's own limit says which.
        """
        small = self._cases[index]
        done: list[Execution] = []
        start, found = time.process_time(), {}
        arm: JsonObject = {"status": "ok", "why": "", "knobs": dict(small.knobs)}
        try:
            found = execute(self._kernels[small.operator], small, done.append)
            arm["error"] = {"norm": found["norm"], "peak": found["peak"]}
        except Exception as error:
            told = error_answer(error)
            arm |= {"status": told["status"], "why": told["why"]}
            if told["status"] == "error" and is_gap(error):
                arm |= {"status": "unsupported", "why": f"{NOT_EXECUTED}{told['why']}"}
            if isinstance(error, WrongOutput):
                arm["detail"] = "\n".join(error.lines)
        counts = functools.reduce(operator.add, (one.counts for one in done), Counts())
        arm["instructions"] = found.get("instructions", counts.total)
        arm["cpu_s"] = round(time.process_time() - start, 3)
        if arm["status"] != "ok" or small.case.world > 1:
            return arm
        least, device = self._least(small, small.case), _device(small.arch)
        bounds = {limit: bound(counts, device, least[limit], units) for limit, units in LIMITS.items()}
        return {**arm, "counts": counts.as_json(), "bounds": bounds}


def is_gap(error: BaseException) -> bool:
    """Whether the emulator cannot execute what was asked for, rather than the operator fail: an instruction or a
    function of a driver that it does not have, or a GPU that is asked for by name."""
    if isinstance(error, Fault):
        return False
    if isinstance(error, (NotExecutable, Unknown)):
        return True
    frames = traceback.extract_tb(first_cause(error).__traceback__)
    file = Path(frames[-1].filename) if frames else Path()
    return OF_A_GPU in file.as_posix() or file.parent == Path(__file__).parent


def _device(arch: str) -> Any:
    return next(one for one in naming.our("kernels.hardware").DEVICES if one.arch == arch)


def _home(kernel: Any) -> str:
    """The outermost module that holds an operator: what it imports is the operator's code."""
    held = (name for name, module in sys.modules.items() if vars(module).get(kernel.name) is kernel)
    return min(held, key=lambda name: (name.count("."), name), default="")
