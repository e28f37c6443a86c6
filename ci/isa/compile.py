"""Start `python -m benchmarks.isa` as a process and follow it; what it wrote is read back as a result file."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ci.isa import compiled
from ci.isa.compiled import CompiledTree

HARNESS = Path(__file__).resolve().parents[2]
"""The checkout whose `benchmarks` compiles and reads metrics: always the one that started the run."""

USAGE = 3


class CompileError(Exception):
    """Compiling could not start or broke off; the text says why."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to compile; empty means all (arches: the AMD ones).  Limits are for one compilation, None: the default.

    packages: folder put before the Python's own packages, with another Triton in it.
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

    def options(self) -> Iterator[str]:
        """As options of `python -m benchmarks.isa`."""
        yield from ("--tier", self.tier)
        repeated = {"arch": self.arches, "kernel": self.kernels, "case": self.cases, "backend": self.backends}
        for name, values in repeated.items():
            for value in values:
                yield from (f"--{name}", value)
        for name, one in (("timeout", self.timeout_s), ("memory", self.memory_mb), ("packages", self.packages)):
            if one is not None:
                yield from (f"--{name}", str(one))
        if self.lenient:
            yield "--lenient"


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
            folders = ["--tree", str(tree.resolve()), "--cache", str(self.cache.resolve()), "--out", str(out)]
            argv = [sys.executable, "-m", "benchmarks.isa", verb, *folders, *wanted.options(), *more]
            _run([*argv, "--progress", "json"], out, self.console, what)
            return out.read_text(encoding="utf-8")


# ---- the process ---------------------------------------------------------------------------------------------------


class _Event(NamedTuple):
    """How far the compilations for one architecture are."""

    arch: str
    done: int
    total: int


def _run(argv: Sequence[str], out: Path, console: Console, what: str) -> None:
    """Run to the end with progress; the file `out` is then there.  Ctrl-C ends the process too."""
    process = subprocess.Popen(
        argv,
        cwd=HARNESS,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(HARNESS)},
    )
    try:
        said = _follow(process, console, what)
    except BaseException:
        os.killpg(process.pid, signal.SIGINT)
        process.wait()
        raise
    code = process.wait()
    if code == USAGE or not out.exists():
        silent = f"`{' '.join(argv[1:4])}` ended with exit code {code} and wrote nothing"
        raise CompileError(said[-1].removeprefix("Error: ") if said else silent)


def _follow(process: subprocess.Popen[str], console: Console, what: str) -> list[str]:
    """Show progress until the process closes its stderr; returns the lines that are not progress."""
    said: list[str] = []
    assert process.stderr is not None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, TaskID] = {}
        for line in process.stderr:
            event = _event(line)
            if event is None:
                said += [line.rstrip()] if line.strip() else []
                continue
            if event.arch not in tasks:
                tasks[event.arch] = bar.add_task(f"{what} {event.arch}")
            bar.update(tasks[event.arch], completed=event.done, total=event.total)
    return said


def _event(line: str) -> _Event | None:
    try:
        return _Event(**json.loads(line))
    except (ValueError, TypeError):
        return None
