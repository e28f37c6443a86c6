"""Start `python -m benchmarks.isa` as a process and follow it; what it wrote is read back as a result file."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from ci import harness
from ci.isa import compiled
from ci.isa.compiled import CompiledTree
from ci.trials.trial import Scalar


class CompileError(Exception):
    """Compiling could not start or broke off; the text says why."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to compile; empty means all (arches: the AMD ones).  Limits are for one compilation, None: the default.

    packages: folder put before the Python's own packages, with another Triton in it.  python: that compiles.
    knobs: over those that the declaration chooses, in every case.
    lenient: a kernel, case or backend that the tree does not have is not an error, as in an older commit.
    """

    arches: Sequence[str] = ()
    tier: str = "pr"
    kernels: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    timeout_s: float | None = None
    memory_mb: int | None = None
    packages: Path | None = None
    lenient: bool = False
    python: str | None = None
    knobs: Mapping[str, Scalar] | None = None

    def options(self) -> list[str]:
        """As options of `python -m benchmarks.isa`."""
        chosen = harness.options(tier=self.tier, arch=self.arches, kernel=self.kernels, case=self.cases)
        limits = harness.options(backend=self.backends, timeout=self.timeout_s, memory=self.memory_mb)
        others = harness.options(packages=self.packages, python=self.python)
        return [*chosen, *limits, *others, *["--lenient"] * self.lenient]


@dataclasses.dataclass(frozen=True)
class TreeCompiler:
    """Compiles source trees; the cache keeps what is compiled, the console shows progress."""

    cache: Path
    console: Console

    def compile(self, tree: Path, wanted: Wanted, what: str = "") -> CompiledTree:
        """A tree, compiled with a progress bar called `what`; CompileError or IsaError if there is no result."""
        return compiled.parse(self.result(tree, wanted, what), f"the result of compiling {tree}")

    def result(self, tree: Path, wanted: Wanted, what: str = "") -> str:
        """The text of a tree's result file."""
        return self._written("metrics", tree, wanted, what or str(tree))

    def explain(self, tree: Path, wanted: Wanted, as_json: bool) -> str:
        """What bounds each kernel of a tree statically, as Markdown or JSON text."""
        return self._written("explain", tree, wanted, str(tree), *["--json"] * as_json)

    def _written(self, verb: str, tree: Path, wanted: Wanted, what: str, *more: str) -> str:
        """The text of the file that `python -m benchmarks.isa VERB` writes."""
        with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as folder:
            out = Path(folder) / "written"
            argv = harness.program("benchmarks.isa", verb, *more, *wanted.options())
            argv += harness.options(tree=tree.resolve(), cache=self.cache.resolve(), out=out, progress="json")
            if wanted.knobs is not None:
                knobs = Path(folder) / "knobs.json"
                knobs.write_text(json.dumps([dict(wanted.knobs)]), encoding="utf-8")
                argv += harness.options(knobs=knobs)
            try:
                harness.produce(argv, out, self.console, what)
            except harness.MeasureError as error:
                raise CompileError(str(error)) from None
            return out.read_text(encoding="utf-8")
