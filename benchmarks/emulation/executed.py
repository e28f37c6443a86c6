"""The executing process: what launches of one source tree execute for one target, in shapes that take about a second.

Every case of one GPU stands for itself, with the knobs of its own launch, in a shape that is cut to MOST: a change of
what is launched shows, and its counts are not those of the whole case.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .. import naming
from ..isa.compile import first_cause
from ..worker.ran import RanFiles
from . import serving
from .counts import Counts, bound
from .launch import Execution
from .triton_driver import emulated

GROUPED = {"G": 4, "M": 64, "N": 128, "K": 256}
MOST: dict[str, dict[str, int]] = {
    "gemm": {"M": 256, "N": 256, "K": 1024},
    "grouped_gemm_forward": GROUPED,
    "grouped_gemm_dgrad": GROUPED,
    "grouped_gemm_wgrad": GROUPED,
    "moe_gemm2_mxfp4": {"M": 32, "N": 128, "K": 256, "E": 8, "topk": 3},
}
"""Largest dimensions that are executed, by operator: several steps over K and several tiles, 0.1 to 1 s of a core each
(2026-11).  They depend on no knob, so that both sides of a change are counted in the same shape."""

SEED = 1


def cut(case: Any, most: Mapping[str, int]) -> Any:
    """The case in the shape that is executed, which its name tells; the case itself where it is no larger."""
    dims = {
        name: min(size, most.get(name, size)) if isinstance(size, int) else size
        for name, size in dict(case.dims).items()
    }
    if dims == dict(case.dims):
        return case
    name = "_".join([*(f"{key.lower()}{size}" for key, size in dims.items()), case.dtype])
    return type(case)(name, tier=case.tier, dtype=case.dtype, distribution=case.distribution, **dims)


class Launches:
    """What a tree launches for one target, in a fixed order."""

    def __init__(self, arch: str, tree: Path) -> None:
        self._arch, self._tree = arch, tree
        self._found: list[tuple[Any, str, Any, dict[str, Any], str]] = []
        self._device = next(one for one in naming.our("kernels.hardware").DEVICES if one.arch == arch)

    def gather(self, choose: Mapping[str, Any]) -> dict[str, Any]:
        """{"units": [{kernel, module, backend, case, at, knobs, limit}]}: at: the name of the shape that is executed;
        limit: what the case in its own shape is bound by, "memory" or "compute"."""
        registry = naming.contract("registry")
        found = registry.discover(registry.listed_packages(self._tree))
        units = []
        for name, kernel in sorted(found.kernels.items()):
            if name not in MOST or name not in (choose["kernels"] or [name]):
                continue
            for backend in sorted(kernel.compilations):
                if backend in (choose["backends"] or [backend]):
                    units += [unit for case in kernel.cases if (unit := self._unit(kernel, backend, case, choose))]
        return {"units": units}

    def _unit(self, kernel: Any, backend: str, case: Any, choose: Mapping[str, Any]) -> dict[str, Any] | None:
        patterns = choose["cases"]
        if case.world > 1 or case.tier not in choose["tiers"]:
            return None
        if patterns and not any(fnmatch(case.name, pattern) for pattern in patterns):
            return None
        spec = naming.contract("spec")
        try:
            knobs = dict(
                kernel.backends[backend].config(case.at(spec.Place(device="meta", arch=self._arch)), self._arch)
            )
        except spec.Unsupported:
            return None
        small = cut(case, MOST[kernel.name])
        compute, memory = self._least(kernel, case)
        limit = "memory" if memory >= compute else "compute"
        self._found.append((kernel, backend, small, knobs, limit))
        about = {"kernel": kernel.name, "module": serving.home(kernel), "backend": backend}
        return about | {"case": case.name, "at": small.name, "knobs": knobs, "limit": limit}

    def _least(self, kernel: Any, case: Any) -> tuple[float, float]:
        """Seconds of the roofline on the first product of the target: of its FLOP, and of its bytes through HBM."""
        cost = kernel.function("cost")(case)
        return cost.flops / self._device.peak(case.dtype), cost.hbm_bytes / self._device.hbm_bandwidth

    def counted(self, index: int) -> dict[str, Any]:
        """{"counts": of all launches of a call, "bound": {percent, unit} or None}.

        The shape that is executed has less to compute per byte than the case: so the case's own limit says whether the
        bound is that of memory, or of what computes.
        """
        kernel, backend, case, knobs, limit = self._found[index]
        done = self._executed(kernel, backend, case, knobs)
        found = functools.reduce(operator.add, (one.counts for one in done), Counts())
        compute, memory = self._least(kernel, case)
        units = {"memory": ("memory",), "compute": ("MFMA issue", "LDS")}[limit]
        least = bound(found, self._device, {"memory": memory, "compute": compute}[limit], units)
        return {"counts": found.as_json(), "bound": least and vars(least)}

    def _executed(self, kernel: Any, backend: str, case: Any, knobs: Mapping[str, Any]) -> list[Execution]:
        """What each launch of the second call did: the first may set up what later ones use."""
        done: list[Execution] = []
        placed = case.at(naming.contract("spec").Place(device="cpu", arch=self._arch))
        with emulated(self._arch, done.append):
            call = kernel.backends[backend].build(placed, kernel.function("inputs")(placed, SEED), **knobs)
            call()
            done.clear()
            call()
        return done


def main() -> None:
    """Entry: ARCH TREE CACHE LOG."""
    tree, cache = map(Path, sys.argv[2:4])
    answers = serving.begin(tree)
    ran, launches = RanFiles(tree, cache), Launches(sys.argv[1], tree)
    serving.serve(answers, ran, lambda asked: launches.gather(asked["choose"]), launches.counted, first_cause)
