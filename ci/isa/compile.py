"""Start `python -m benchmarks.isa` as a process and follow it; what it wrote is read back as a result file."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ci.isa.judge import read

HARNESS = Path(__file__).resolve().parents[2]
"""The tree whose `benchmarks` compiles and reads metrics: always the one that started the run."""

USAGE = 3


class CompileError(Exception):
    """Compiling could not start or broke off; the text says why."""


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What to compile; empty means all (arches: the AMD ones).  Limits are for one compilation, None: the default.

    packages: folder put before the Python's own packages, with another Triton in it.
    lenient: a kernel, case or backend that the tree does not have is no mistake, as in an older commit.
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


def command(tree: Path, wanted: Wanted, cache: Path, out: Path, verb: str = "metrics") -> list[str]:
    """The argument list that compiles `tree` into the file `out`: metrics, or explanations of them."""
    argv = [
        sys.executable,
        "-m",
        "benchmarks.isa",
        verb,
        "--tree",
        str(tree.resolve()),
        "--tier",
        wanted.tier,
        "--cache",
        str(cache.resolve()),
        "--out",
        str(out),
        "--progress",
        "json",
    ]
    for flag, values in (
        ("--arch", wanted.arches),
        ("--kernel", wanted.kernels),
        ("--case", wanted.cases),
        ("--backend", wanted.backends),
    ):
        for value in values:
            argv += [flag, value]
    for flag, single in (
        ("--timeout", wanted.timeout_s),
        ("--memory", wanted.memory_mb),
        ("--packages", wanted.packages),
    ):
        if single is not None:
            argv += [flag, str(single)]
    return argv + ["--lenient"] * wanted.lenient


def compile_tree(tree: Path, wanted: Wanted, cache: Path, console: Console, what: str = "") -> dict[str, Any]:
    """The result file of a tree, compiled with a progress bar called `what`; CompileError if there is none."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as folder:
        out = Path(folder) / "isa.json"
        _run(command(tree, wanted, cache, out), out, console, what or str(tree))
        return read(out)


def explain_tree(tree: Path, wanted: Wanted, cache: Path, as_json: bool, console: Console) -> str:
    """What bounds each kernel of a tree statically, as Markdown or JSON text."""
    with tempfile.TemporaryDirectory(prefix="ridgeline-isa-") as folder:
        out = Path(folder) / "explained"
        _run(command(tree, wanted, cache, out, "explain") + ["--json"] * as_json, out, console, str(tree))
        return out.read_text(encoding="utf-8")


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
        raise CompileError(
            said[-1].removeprefix("Error: ")
            if said
            else f"`{' '.join(argv[1:4])}` left with exit code {code} and said nothing"
        )


def _follow(process: subprocess.Popen[str], console: Console, what: str) -> list[str]:
    """Show progress until the process closes its stderr; returns the lines that are no progress."""
    said: list[str] = []
    assert process.stderr is not None
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        tasks: dict[str, Any] = {}
        for line in process.stderr:
            event = _event(line)
            if event is None:
                said += [line.rstrip()] if line.strip() else []
                continue
            task = tasks.get(event["arch"]) or tasks.setdefault(event["arch"], bar.add_task(f"{what} {event['arch']}"))
            bar.update(task, completed=event["done"], total=event["total"])
    return said


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and {"arch", "done", "total"} <= event.keys() else None
