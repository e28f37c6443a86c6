"""Run the script of one job to its end and write its result file, on a laptop as inside a Slurm allocation.

``python -m ci.executors.job FOLDER`` reads FOLDER/job.json, runs FOLDER/script.sh in its own session, kills it at the
timeout or when FOLDER/cancel appears, kills everything it left behind, and writes FOLDER/result.json atomically.

Descendants are found by a token in their environment: a process that started its own session (as measuring workers
do) has left the script's process group, but still belongs to the job.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from ci.executors.scheduler import State
from ci.whole_files import replace

TOKEN = "RIDGELINE_JOB"
"""The environment variable that marks every process of a job: its folder and a random part."""
POLL_S = 0.1
FORMAT = "ridgeline-job"


Ending = tuple[State, str]
"""How a job is to end before it does so by itself, and why."""


def execute(folder: Path, env: Mapping[str, str], pass_fds: Sequence[int] = (), where: str = "") -> State:
    """Run the job in `folder` (see the module); returns how it ended, which result.json records too.

    env: variables added to the job's environment (its GPUs).  pass_fds: lock files that it holds while it lives.
    """
    spec = json.loads((folder / "job.json").read_text())

    def cancelled() -> Ending | None:
        return (State.CANCELLED, "cancelled on request") if (folder / "cancel").exists() else None

    started = now()
    run = Run(folder, (folder / "script.sh",), float(spec["timeout_s"]), float(spec["grace_s"]), env, tuple(pass_fds))
    ending, code = run.to_its_end(cancelled, where)
    write_result(folder, *ending, code, started, where)
    return ending[0]


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a script.  folder: gets `log` and started.json.  command: the script and its arguments, for bash.

    timeout_s, grace_s: see JobSpec.  env: added to this process's.  pass_fds: see `execute`.
    """

    folder: Path
    command: tuple[str | Path, ...]
    timeout_s: float
    grace_s: float
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()

    def to_its_end(self, watch: Callable[[], Ending | None], where: str = "") -> tuple[Ending, int]:
        """Run it; how it ended, and its exit code.  `watch` is asked every POLL_S whether it must end now, and how."""
        token = f"{self.folder.name}:{secrets.token_hex(8)}"
        # Before the process: whoever finds this supervisor dead must be able to find what it started.
        write_json(self.folder / "started.json", {"at": now(), "token": token, "where": where})
        process = self._start(token)
        state, why = self._follow(process, watch)
        if state is not State.DONE:
            stop(process, token, self.grace_s)
        left = kill_marked(token)
        code = process.wait()
        state, why = _judge(state, why, code)
        if left:
            why = f"{why}; " * bool(why) + f"{left} process(es) it left behind were killed"
        return (state, why), code

    def _start(self, token: str) -> subprocess.Popen[bytes]:
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                ["bash", *(os.path.abspath(part) if isinstance(part, Path) else part for part in self.command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=self.pass_fds,
                env=lifetime.told({**os.environ, **self.env, TOKEN: token}),
            )

    def _follow(self, process: subprocess.Popen[bytes], watch: Callable[[], Ending | None]) -> Ending:
        """Wait for the end, the timeout or what `watch` says; DONE means the process ended by itself."""
        deadline = time.monotonic() + self.timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(POLL_S, max(0.0, deadline - time.monotonic())))
                return State.DONE, ""
            if told := watch():
                return told
        return State.TIMEOUT, f"still running after {self.timeout_s:g} s"


def _judge(state: State, why: str, code: int) -> Ending:
    if state is not State.DONE or code == 0:
        return state, why
    if code < 0:
        return State.FAILED, f"killed by {signal.Signals(-code).name}"
    return State.FAILED, f"exit code {code}"


def stop(process: subprocess.Popen[bytes], token: str, grace_s: float) -> None:
    """SIGTERM to the process group; after `grace_s` seconds, SIGKILL to everything that carries the token."""
    _signal_group(process.pid, signal.SIGTERM)
    deadline = time.monotonic() + grace_s
    while time.monotonic() < deadline and (process.poll() is None or marked(token)):
        time.sleep(POLL_S / 2)
    _signal_group(process.pid, signal.SIGKILL)
    kill_marked(token)


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, number)


def kill_marked(token: str, variable: str = TOKEN) -> int:
    """SIGKILL everything that carries the token, until nothing does; returns how many processes that were.

    variable: of the environment, that has the token.
    """
    killed: set[int] = set()
    for _ in range(50):
        found = marked(token, variable)
        if not found:
            break
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        killed.update(found)
        time.sleep(0.02)
    return len(killed)


def marked(token: str, variable: str = TOKEN) -> list[int]:
    """Ids of living processes with the token in the environment they were started with (Linux; none elsewhere)."""
    wanted = f"{variable}={token}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if wanted in (entry / "environ").read_bytes().split(b"\0") and not _zombie(entry):
                found.append(int(entry.name))
    return found


def _zombie(entry: Path) -> bool:
    return (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"


@dataclasses.dataclass(frozen=True)
class Result:
    """How a job, or one attempt at a shard of it, ended."""

    state: State
    why: str = ""
    exit_code: int | None = None
    started_at: str = ""
    ended_at: str = ""
    where: str = ""

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> Result:
        """From a result file."""
        known = {field.name: value[field.name] for field in dataclasses.fields(cls) if field.name in value}
        return cls(**{**known, "state": State(value["state"])})


def write_result(folder: Path, state: State, why: str, code: int | None, started: str = "", where: str = "") -> None:
    """The result file: it alone decides how a job ended."""
    result = dataclasses.asdict(Result(state, why, code, started, now(), where))
    write_json(folder / "result.json", {"format": FORMAT, "version": 1, "id": folder.name, **result})


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """One JSON value, whole or not at all, even after a crash of the machine.  Raises WriteError."""
    replace(path, json.dumps(value, indent=1) + "\n")


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


if __name__ == "__main__":
    sys.exit(0 if execute(Path(sys.argv[1]), {}) is State.DONE else 1)
