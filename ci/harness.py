"""Start the measuring program as a process and follow it: judging never imports a GPU library."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ci.git.repository import Tree

HARNESS = Path(__file__).resolve().parent.parent
"""The tree whose `benchmarks` measures: always the one that started the run."""

MEASURED, FAULTS, NOTHING, USAGE, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes of `python -m benchmarks run`."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """What to measure: filters, and how long.  trials = 0: the policy's budget; rounds = 0: by kind of machine."""

    tier: str = "pr"
    kernels: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    trials: int = 0
    rounds: int = 0
    seed: int = 0
    deadline_s: float | None = None
    cache: str = ""
    knobs: Sequence[str] = ()
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)


class MeasureError(Exception):
    """Measuring could not start or broke off; the text says why."""


def command(trees: Sequence[Tree], plan: Plan, out: Path, verb: str = "run") -> list[str]:
    """The argument list that measures (or, to `verify`, only checks) `trees` by `plan` into the file `out`."""
    argv = [
        sys.executable,
        "-m",
        "benchmarks",
        verb,
        "--progress",
        "json",
        "--out",
        str(out.resolve()),  # the program runs in HARNESS, wherever we are
        "--tier",
        plan.tier,
        "--seed",
        str(plan.seed),
    ]
    if verb == "run":
        argv += ["--trials", str(plan.trials), "--rounds", str(plan.rounds)]
    for tree in trees:
        argv += ["--tree", f"{tree.role}={tree.path}"]
        if tree.commit:
            argv += ["--commit", f"{tree.role}={tree.commit.hash}", "--date-ms", f"{tree.role}={tree.commit.date_ms}"]
        if tree.dirty:
            argv += ["--dirty", tree.role]
    for flag, values in (
        ("--kernel", plan.kernels),
        ("--case", plan.cases),
        ("--backend", plan.backends),
        ("--set", plan.knobs),
        ("--env", [f"{r}={p}" for r, p in plan.pythons.items()]),
    ):
        for value in values:
            argv += [flag, value]
    if plan.cache:
        argv += ["--cache", plan.cache]
    if plan.deadline_s is not None:
        argv += ["--deadline", str(plan.deadline_s)]
    return argv


def measure(trees: Sequence[Tree], plan: Plan, out: Path, console: Console, verb: str = "run", *flags: str) -> int:
    """Run the measuring program with a progress bar; returns its exit code (see the constants above).

    Ctrl-C is passed on: finished trials (checks) stay in `out`.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    process = subprocess.Popen(
        [*command(trees, plan, out, verb), *flags],
        cwd=HARNESS,
        stderr=subprocess.PIPE,
        text=True,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(HARNESS)},
    )
    assert process.stderr is not None
    try:
        with _bar(console) as bar:
            task = bar.add_task("starting", total=None)
            for event in _events(process.stderr, console):
                bar.update(task, completed=event["done"], total=event["total"], description=event["what"])
        return process.wait()
    except KeyboardInterrupt:
        return _interrupt(process)


def query(*arguments: str) -> dict[str, object]:
    """The JSON answer of `python -m benchmarks ARGUMENTS --json`."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments, "--json"],
        cwd=HARNESS,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HARNESS)},
    )
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        raise MeasureError(
            f"`python -m benchmarks {' '.join(arguments)}` gave no answer (exit code {done.returncode}): "
            f"{(done.stderr.strip().splitlines() or ['it printed nothing'])[-1]}"
        ) from None
    if not isinstance(answer, dict):
        raise MeasureError(
            f"`python -m benchmarks {' '.join(arguments)}` answered {type(answer).__name__}, not an object"
        )
    return answer


def machine_kind() -> str:
    """ "gpu" if this machine has a GPU's device file, else "cpu"; the trial file has the final word."""
    found = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("kfd")]
    return "gpu" if found else "cpu"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _events(stream: IO[str], console: Console) -> Iterator[dict[str, Any]]:
    for line in stream:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            event = None
        if isinstance(event, dict) and "what" in event:
            yield event
        elif line.strip():
            console.print(line.rstrip(), markup=False, highlight=False)


def _interrupt(process: subprocess.Popen[str]) -> int:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return INTERRUPTED
