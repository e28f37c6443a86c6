"""The one way to start a program of ours as a child process: judging never imports a GPU library.

`follow` runs one to its end and shows its progress; `measure`, `produce` and `query` say what must come of it.  A
child reports progress as JSON lines on stderr; its other lines are for people.  It leads a process group of its own,
so that an interruption reaches everything it started, and ends when this process does, were it by SIGKILL.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rich.console import Console

from benchmarks import lifetime
from ci import inherited_paths
from ci.bars import ProgressBars, is_progress, json_object, printable
from ci.git.repository import LocalCheckout

HARNESS = Path(__file__).resolve().parent.parent
"""The checkout whose `benchmarks` measures: always the one that started the run."""

TIERS = ("pr", "nightly", "sweep")
"""Which cases: each tier includes the quicker ones (kernels.spec.TIERS)."""

HEAPS = ("auto", "torch", "ipc")
"""Homes of the symmetric heap (benchmarks.plan.HEAPS)."""

MEASURED, FAULTS, NOTHING, USAGE, INTERRUPTED = 0, 1, 2, 3, 130
"""Exit codes of `python -m benchmarks run`; the last two are those of every program of ours."""

GRACE_S = 30.0
"""Seconds between SIGINT and SIGKILL: a child ends its workers and writes its last line in this time."""


class MeasureError(Exception):
    """A program of ours could not start, or broke off; the text says why."""


@dataclasses.dataclass(frozen=True)
class MeasurePlan:
    """What to measure: filters, and how long.  trials = 0: the policy's budget; rounds = 0: by kind of machine.

    first_trial: the number of the first trial.  burst_s: seconds, where the regime is sustained; 0: by kind of machine.
    """

    tier: str = "pr"
    kernels: Sequence[str] = ()
    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    trials: int = 0
    first_trial: int = 0
    rounds: int = 0
    seed: int = 0
    deadline_s: float | None = None
    cache: str = ""
    heap: str = ""
    regime: str = "spaced"
    burst_s: float = 0.0
    knobs: Sequence[str] = ()
    pythons: Mapping[str, str] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class ChildExit:
    """How a child ended: its exit code (negative: the signal that killed it), and the lines that are not progress.

    late: it was interrupted because its time was over.
    """

    code: int
    said: tuple[str, ...] = ()
    late: bool = False

    @property
    def how(self) -> str:
        """For a message: "exit code 1", "killed by SIGSEGV"."""
        return f"exit code {self.code}" if self.code >= 0 else f"killed by {signal.Signals(-self.code).name}"

    @property
    def last(self) -> str:
        """The last line, which names the reason of a failure."""
        return self.said[-1].removeprefix("Error: ").removeprefix("error: ") if self.said else "it printed nothing"

    @property
    def reason(self) -> str:
        """Of a failure: the last line; of a crash how it ended, too."""
        return self.last if self.code > 0 else f"{self.how}; last it said: {self.last}"


# ---- what must come of it ----------------------------------------------------------------------------------------


def measure(
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    out: Path,
    console: Console,
    verb: str = "run",
    *flags: str,
    told: Callable[[], str] | None = None,
) -> int:
    """Run the measuring program with a progress bar; returns its exit code (see the constants above).

    A crash of the program is printed and returned as USAGE.  Ctrl-C is passed on and returned as INTERRUPTED; finished
    trials (checks) stay in `out` in either case.  told: the answer whenever the program asks (see `follow`).
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        ended = follow([*command(checkouts, plan, out, verb), *flags], console, told=told)
    except KeyboardInterrupt:
        return INTERRUPTED
    if ended.code in (MEASURED, FAULTS, NOTHING, USAGE):
        return ended.code
    console.print(f"the measuring program broke off: {ended.how}", style="bold red")
    return USAGE


def produce(argv: Sequence[str], out: Path, console: Console, title: str) -> None:
    """Run a program that must write the file `out`; its lines are shown only if it fails, as a MeasureError."""
    ended = follow(argv, console, title, echo=False)
    if ended.code < 0 or ended.code == USAGE or not out.exists():
        raise MeasureError(ended.reason)


def draw(console: Console, title: str, module: str, *arguments: str, **named: object) -> None:
    """Run a program that draws a figure; MeasureError where it drew none.  named: its options."""
    ended = follow([*program(module, *arguments), *options(**named)], console, title, echo=False, stdout=False)
    if ended.code:
        raise MeasureError(ended.reason)


def query(*arguments: str, limit_s: float | None = None) -> dict[str, Any]:
    """The JSON object that `python -m benchmarks ARGUMENTS --json` prints; MeasureError if there is none in time."""
    shown = f"`python -m benchmarks {' '.join(arguments)}`"
    child = _start([*program("benchmarks", *arguments), "--json"], stdout=subprocess.PIPE)
    try:
        printed, said = child.communicate(timeout=limit_s)
    except BaseException as error:
        _interrupt(child)
        if isinstance(error, subprocess.TimeoutExpired):
            raise MeasureError(f"{shown} gave no answer within {limit_s:.0f} s: a GPU or its driver may hang") from None
        raise
    answer = json_object(printed[max(0, printed.find("{")) :])  # a library may have printed something first
    if answer is None:
        ended = ChildExit(child.returncode, tuple(map(printable, said.strip().splitlines())))
        raise MeasureError(f"{shown} gave no answer: {ended.reason}")
    return answer


def command(checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, verb: str = "run") -> list[str]:
    """The argument list that measures (or, to `verify`, only checks) checkouts by `plan` into the file `out`."""
    argv = program("benchmarks", verb, "--progress", "json")
    argv += options(out=out.resolve(), tier=plan.tier, seed=plan.seed)  # the program runs in HARNESS, wherever we are
    if verb == "run":
        argv += options(trials=plan.trials, rounds=plan.rounds, first_trial=plan.first_trial or None)
        if plan.regime != "spaced":
            argv += options(regime=plan.regime, burst=plan.burst_s or None)
    argv += [one for side in checkouts for one in of_checkout(side, plan.pythons)]
    argv += options(kernel=plan.kernels, case=plan.cases, backend=plan.backends, set=plan.knobs)
    return argv + options(cache=plan.cache or None, deadline=plan.deadline_s, heap=plan.heap or None)


def of_checkout(side: LocalCheckout, pythons: Mapping[str, str] = MappingProxyType({})) -> list[str]:
    """The option that names a checkout, its commit, whether it has other changes, and the Python that runs it."""
    told = {"path": str(side.path), "commit": side.commit.hash, "date_ms": side.commit.date_ms, "dirty": side.dirty}
    told |= {"python": pythons[side.role]} if side.role in pythons else {}
    return options(tree=f"{side.role}={json.dumps(told)}")


def program(module: str, *arguments: str) -> list[str]:
    """The argument list that runs a module by this Python, in a process that ends with this one."""
    return [sys.executable, "-m", lifetime.__name__, module, *arguments]


def run_here(
    module: str, *arguments: str, limit_s: float | None = None, **streams: Any
) -> subprocess.CompletedProcess[str]:
    """Run a module that is not ours to its end, in our process group: Ctrl-C is its too.  subprocess.TimeoutExpired."""
    return subprocess.run(
        program(module, *arguments), cwd=HARNESS, env=lifetime.told(os.environ), stdin=subprocess.DEVNULL,
        timeout=limit_s, check=False, **streams,
    )  # fmt: skip


def options(**values: object) -> list[str]:
    """Options by name (date_ms is --date-ms): None is left out, each entry of a list or tuple is an option."""
    argv = []
    for name, value in values.items():
        entries = value if isinstance(value, list | tuple) else () if value is None else (value,)
        for entry in entries:
            argv += [f"--{name.replace('_', '-')}", str(entry)]
    return argv


def again(**changed: object) -> str:
    """The command line that started us, to be typed again with these options, by name; None: without it."""
    words = sys.argv[1:]
    cut = words.index("--") if "--" in words else len(words)
    flags = {f"--{name.replace('_', '-')}" for name in changed}
    pairs = zip(["", *words], words[:cut], strict=False)
    kept = [word for before, word in pairs if flags.isdisjoint([before, word.partition("=")[0]])]
    return shlex.join(["ridgeline", *kept, *options(**changed), *words[cut:]])


def machine_kind() -> str:
    """ "gpu" if this machine has a GPU's device file, else "cpu"; the trial file has the final word."""
    found = [*Path("/dev").glob("nvidia[0-9]*"), *Path("/dev").glob("kfd")]
    return "gpu" if found else "cpu"


# ---- start, follow, interrupt ------------------------------------------------------------------------------------


def follow(
    argv: Sequence[str],
    console: Console,
    title: str = "starting",
    *,
    echo: bool = True,
    stdout: bool = True,
    limit_s: float | None = None,
    told: Callable[[], str] | None = None,
) -> ChildExit:
    """Run a program to its end with progress bars, one for each task that it names; `title` says what it does.

    echo: show its other lines as they come.  stdout: show what it prints there.  limit_s: it is interrupted then, and
    its exit has `late`.  told: called whenever the program prints {"asks": ...}; what it returns is written to the
    program's stdin as a line, what it raises ends the program.  Raises KeyboardInterrupt on Ctrl-C, after the program
    has ended, and where somebody else interrupted it: it has no result.
    """
    child = _start(argv, None if stdout else subprocess.DEVNULL, subprocess.PIPE if told else subprocess.DEVNULL)
    said: list[str] = []
    try:
        with ProgressBars(console, title) as bars, _limited(child, limit_s) as late:
            for line in _lines(child):
                message = json_object(line) or {}
                if is_progress(message):
                    bars.show(message)
                elif told and "asks" in message:
                    _tell(child, told())
                elif line.strip():
                    said.append(printable(line))
                    if echo:
                        console.print(said[-1], markup=False, highlight=False, soft_wrap=True)
            ended = ChildExit(child.wait(), tuple(said), late.is_set())
    except BaseException:
        _interrupt(child)
        raise
    if ended.code in (INTERRUPTED, -signal.SIGINT) and not ended.late:
        raise KeyboardInterrupt
    return ended


@contextlib.contextmanager
def _limited(child: subprocess.Popen[str], limit_s: float | None) -> Iterator[threading.Event]:
    """Interrupt the child when its time is over, and then end it; the event says that this was done."""
    late, ended = threading.Event(), threading.Event()

    def interrupt() -> None:
        if not ended.wait(limit_s):
            late.set()
            _signal(child, signal.SIGINT)
            if not ended.wait(GRACE_S):
                _signal(child, signal.SIGKILL)

    if limit_s:
        threading.Thread(target=interrupt, daemon=True).start()
    try:
        yield late
    finally:
        ended.set()


def _tell(child: subprocess.Popen[str], answer: str) -> None:
    """Write a line to the child's stdin; one that has ended is noticed by its other pipe."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(f"{answer}\n")
        child.stdin.flush()


def _paths_outside() -> list[str]:
    """The folders of PYTHONPATH, but for those in the repository that we stand in: each side imports its checkout."""
    here = Path.cwd().resolve()
    ours = [folder for folder in (here, *here.parents) if (folder / ".git").exists()][:1]
    return [str(one) for one in inherited_paths() if not any(one.is_relative_to(folder) for folder in ours)]


def _start(argv: Sequence[str], stdout: int | None, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    env = lifetime.told({**os.environ, "PYTHONPATH": os.pathsep.join([str(HARNESS), *_paths_outside()])})
    return subprocess.Popen(
        argv, cwd=HARNESS, env=env, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE,
        encoding="utf-8", errors="backslashreplace", start_new_session=True,
    )  # fmt: skip


def _lines(child: subprocess.Popen[str]) -> Iterator[str]:
    """What the child writes to stderr.  A line without an end is cut, so that it cannot fill the memory."""
    assert child.stderr is not None
    while line := child.stderr.readline(1 << 20):
        yield line


def _interrupt(child: subprocess.Popen[str]) -> None:
    """SIGINT to the child's group; SIGKILL if it has not ended after GRACE_S, or on a second Ctrl-C."""
    _signal(child, signal.SIGINT)
    try:
        child.communicate(timeout=GRACE_S)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        _signal(child, signal.SIGKILL)
        child.wait()


def _signal(child: subprocess.Popen[str], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)
