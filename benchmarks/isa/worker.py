"""What a measuring process does that compiles: lists and compiles the units of one source tree for one architecture."""

from __future__ import annotations

import fnmatch
import inspect
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import naming
from ..shapes import Json, JsonObject
from ..worker.declare import discovered, import_kernel
from .compile import ARCHES, Compiler, first_cause

TAKE_KNOBS = "declare it as (case, arch, **knobs) and put them over config()"
UNDECLARED = "the backend has no isa() declaration: nothing of it can be compiled ahead"


class Units:
    """Everything a tree declares for one architecture, in a fixed order."""

    def __init__(self, arch: str, compute_units: int) -> None:
        self._arch, self._compute_units = arch, compute_units
        self.declared: list[Any] = []

    def gather(self, choose: JsonObject, modules: Sequence[str]) -> JsonObject:
        """{"units": [{kernel, backend, case, label, status?, why?}], "broken": [{module, why}], ...}, as declared.

        modules: that are imported.  "known", "backends" and "cases": the names there are to choose from, of all and of
        the chosen kernels.
        """
        found = discovered(modules)
        chosen = [k for k in found.kernels.values() if not choose["kernels"] or k.name in choose["kernels"]]
        units_of = self._of_points if choose["points"] else self._of_kernel
        broken = [{"module": b.module, "why": b.reason} for b in found.broken]
        return {
            "units": [unit for kernel in chosen for unit in units_of(kernel, choose)],
            "broken": broken,
            "known": sorted(found.kernels),
            "backends": sorted({backend for kernel in chosen for backend in kernel.compilations}),
            "cases": [case.name for kernel in chosen for case in kernel.cases if case.tier in choose["tiers"]],
        }

    def of_arm(self, kernel: Any, backend: str, case: Any, knobs: JsonObject) -> list[Any]:
        """The compilations that a backend declares for a case with these knobs over config(); none if it refuses."""
        before = len(self.declared)
        self._of_case(kernel, backend, case.name, knobs)
        return [one for one in self.declared[before:] if one is not None]

    def _of_kernel(self, kernel: Any, choose: JsonObject) -> list[JsonObject]:
        units, patterns = [], choose["cases"] or ["*"]
        for backend in sorted(kernel.compilations):
            for case in kernel.cases if not choose["backends"] or backend in choose["backends"] else ():
                if case.tier in choose["tiers"] and any(fnmatch.fnmatch(case.name, one) for one in patterns):
                    units += self._of_case(kernel, backend, case.name, {})
        return units

    def _of_points(self, kernel: Any, choose: JsonObject) -> list[JsonObject]:
        """The units of points of a sweep, by their place in the list."""
        return [
            unit | {"point": index}
            for index, point in enumerate(choose["points"])
            for unit in self._of_case(kernel, point["backend"], point["case"], point["knobs"])
        ]

    def _of_case(self, kernel: Any, backend: str, case_name: str, knobs: JsonObject) -> list[JsonObject]:
        spec, declare = naming.contract("spec"), kernel.compilations.get(backend)
        case = next((case for case in kernel.cases if case.name == case_name), None)
        name = {"kernel": kernel.name, "backend": backend, "case": case_name}

        def without(status: str, why: str) -> list[JsonObject]:
            return [self._unit(name | {"label": "", "status": status, "why": why}, None)]

        if case is None:
            return without("refused", f"no case {case_name!r}")
        if declare is None:
            return without("undeclared", UNDECLARED)
        if not _takes(declare, knobs):
            return without("refused", f"its isa() declaration does not take the knobs {', '.join(knobs)}; {TAKE_KNOBS}")
        place = spec.Place(world=case.world, device="meta", arch=self._arch, compute_units=self._compute_units)
        try:
            declared = list(declare(case.at(place), self._arch, **knobs))
        except spec.Unsupported as error:
            return without("unsupported", str(error))
        except Exception as error:
            return without("failed", f"its isa() declaration failed: {first_cause(error)}")
        # Without the case's name in its label, a compilation can be that of several cases.
        labels = (str(one.label).removeprefix(case.name).strip() for one in declared)
        units = (name | {"label": label, "launch": launch_of(one)} for label, one in zip(labels, declared, strict=True))
        return [self._unit(unit, one) for unit, one in zip(units, declared, strict=True)]

    def _unit(self, described: JsonObject, compilation: Any) -> JsonObject:
        self.declared.append(compilation)
        return described


def _takes(declare: Any, knobs: JsonObject) -> bool:
    """Whether a declaration has these knobs as keyword parameters."""
    parameters = inspect.signature(declare).parameters
    return any(p.kind is p.VAR_KEYWORD for p in parameters.values()) or all(name in parameters for name in knobs)


def launch_of(compilation: Any) -> JsonObject:
    """What a launch passes beside the code, as JSON: the grid (null: unknown), and scalars and descriptors by name."""
    grid = getattr(compilation, "grid", None)  # a tree before 2026-12 does not tell it
    scalars = {name: _passed(value) for name, value in compilation.arguments.items() if not isinstance(value, tuple)}
    return {"grid": None if grid is None else list(grid), "scalars": scalars}


def _passed(value: Any) -> Any:
    if hasattr(value, "block_shape"):
        return [list(value.shape), list(value.strides), list(value.block_shape)]
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)


class Log:
    """What this process wrote to stderr, which is a file (coordinator.ranks), since it was last asked."""

    def __init__(self) -> None:
        self._read = 0

    def __call__(self) -> str:
        """The new text."""
        sys.stderr.flush()
        new = os.pread(2, os.fstat(2).st_size - self._read, self._read)
        self._read += len(new)
        return new.decode(errors="replace")


class UnitCompiler:
    """Compiles the units of a tree, by their number (asked for by benchmarks.isa.pool)."""

    def __init__(self, tree: Path) -> None:
        self._written = Log()

    def listing(
        self, arch: str, cache: str, compute_units: int, choose: JsonObject, modules: Sequence[str]
    ) -> JsonObject:
        """The version of Triton, and the units; see Units.gather."""
        self._compiler, self._units = Compiler(arch, Path(cache), self._written), Units(arch, compute_units)
        return {"triton": self._compiler.version} | self._units.gather(choose, modules)

    def answer(self, index: int) -> JsonObject:
        """The record of a unit; see Compiler.record."""
        return self._compiler.record(self._units.declared[index])


# With the device untouched: what arms of a trial launch, compiled into the cache that launches look in.


NICE = 10
"""A process that measures goes first where cores are scarce."""


class Filler:
    """Compiles what arms of an operator launch, for one architecture, which a process keeps (see compile)."""

    def __init__(self, tree: Path) -> None:
        os.nice(NICE)
        self._units: Units | None = None

    def launches(self, asked: Sequence[Json], **about: Any) -> list[JsonObject]:
        """What is to be filled for arms {case, backend, knobs}, each once: theirs, and what their set-ups try."""
        kernel, found = self._kernel(**about), list[JsonObject]()
        for arm in asked if about["arch"] in ARCHES else ():
            for one in (dict(arm), *self._tried(kernel, arm["case"], arm["backend"], about)):
                if one["backend"] in kernel.compilations and one not in found:
                    found.append(one)
        return found

    def fill(self, case: str, backend: str, knobs: Json, **about: Any) -> int:
        """How many compilations of one of these are in the cache now."""
        kernel, arch = self._kernel(**about), about["arch"]
        if self._units is None:
            self._units = Units(arch, about["compute_units"])
            self._compiler = Compiler(arch, Path(about["folder"]))
        units = self._units.of_arm(kernel, backend, kernel.case(case), dict(knobs))
        return sum(self._compiler.fill(unit)["status"] == "ok" for unit in units)

    def _kernel(self, module: str, kernel: str, renamed: Mapping[str, str], **_: Any) -> Any:
        return import_kernel(module, kernel, renamed)

    def _tried(self, kernel: Any, case: str, backend: str, about: Json) -> Iterator[JsonObject]:
        tries = getattr(kernel.backends[backend], "tries", None)  # a declaration before 2026-12 names none
        where = {name: about[name] for name in ("arch", "compute_units")}
        place = naming.contract("spec").Place(world=kernel.case(case).world, device="meta", **where)
        for name, knobs in tries(kernel.case(case).at(place), about["arch"]) if tries else ():
            yield {"case": case, "backend": name, "knobs": dict(knobs)}
