"""A job: what it needs, how its script is run to its end, what its folder says of it, and what every executor can do.

A job is a *script* (text for bash) and a :class:`JobSpec`, in a folder ROOT/jobs/<id>/.  Only the result file that the
job itself writes decides whether it succeeded: schedulers forget jobs, reuse ids and report a vanished job as finished.

Descendants of a script are found by a token in their environment: a process that started its own session (as measuring
workers do) has left the script's process group, but still belongs to the job.
"""

from __future__ import annotations

import abc
import contextlib
import dataclasses
import datetime
import enum
import json
import os
import re
import secrets
import shlex
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from benchmarks.shapes import Unfit, built
from ci.whole_files import WriteError, replace
from kernels import project

MOST_SHARDS = 1000
"""Slurm's MaxArraySize is 1001 unless a site sets it (slurm.conf(5), 26.05): task ids go up to 1000."""

INCOMPLETE = 3
"""The exit code of a job of which something is missing: as that of any error that is none of what was measured."""

TOKEN = "RIDGELINE_JOB"
"""The environment variable that marks every process of a job: its folder and a random part."""
POLL_S = 0.1
FORMAT = "ridgeline-job"


class ExecutorError(Exception):
    """A job cannot be submitted, found or run; the text says what to do."""


class State(enum.StrEnum):
    """Where a job is.  LOST: it left neither a result nor a process behind (a reboot, a killed node)."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"
    LOST = "lost"

    @property
    def final(self) -> bool:
        """True for a state that only `resume` can leave."""
        return self not in (State.PENDING, State.RUNNING)


# ---- what a job needs ----


@dataclasses.dataclass(frozen=True)
class Sharding:
    """How one command becomes several jobs, and what they publish.

    shards: number of jobs.  publishes: the command appends lines to the file --out names, and each line is kept from
    the moment it is written; resumes: it knows --resume.  first_trial, trials: shard k measures `trials` of them from
    number first_trial + k * trials; None where trials have no numbers.  dealt: shard k measures the points that
    --shard K/N deals to it.  out: where the lines of all shards go in the
    end ("": nowhere but the job's folder).  finish: the command that is run then, with the file of all lines as its
    last argument; () for none.
    """

    shards: int = 1
    publishes: bool = False
    resumes: bool = False
    first_trial: int | None = None
    trials: int = 0
    dealt: bool = False
    out: str = ""
    finish: tuple[str, ...] = ()

    def arguments(self, shard: int, file: Path) -> list[str]:
        """What is added to the command in one shard, which writes `file`."""
        found = ["--out", str(file)] if self.publishes else []
        found += ["--resume"] if self.resumes else []
        if self.first_trial is not None:
            found += ["--first-trial", str(self.first_trial + shard * self.trials)]
        if self.dealt and self.shards > 1:
            found += ["--shard", f"{shard + 1}/{self.shards}"]
        return found


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """What a job needs.  gpus: number of GPUs (0: none).  timeout_s: seconds of run time; waiting does not count.

    grace_s: seconds between SIGTERM and SIGKILL; the default is enough to write the last line of a trial file.
    pool: where a cluster runs it, a name of ci/runners.toml or of the file `runners`; the local executor has just its
    machine.  commit: what HEAD of `cwd` must be when the job starts; "": anything.
    env: variables to set.  They are written to the job's folder: never put a secret here.
    """

    name: str
    gpus: int = 0
    timeout_s: float = 3600.0
    grace_s: float = 5.0
    cwd: str = ""
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pool: str = ""
    runners: str = ""
    commit: str = ""
    sharding: Sharding = Sharding()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.+-]{1,60}", self.name):
            raise ExecutorError(f"job name {self.name!r}: use 1 to 60 letters, digits, or . _ + -")
        if not 1 <= self.sharding.shards <= MOST_SHARDS:
            raise ExecutorError(f"{self.sharding.shards} shards; ask for 1 to {MOST_SHARDS}")
        if not self.gpus >= 0:
            raise ExecutorError(f"gpus is {self.gpus}; it must be 0 or more")
        if not 0 < self.timeout_s <= 30 * 86400:
            raise ExecutorError(f"timeout_s is {self.timeout_s:g}; it must be above 0 and at most 30 days (2592000)")
        for key in self.env:
            if not re.fullmatch(r"[A-Za-z_]\w*", key):
                raise ExecutorError(f"{key!r} cannot be the name of an environment variable")


def script(argv: Sequence[str], spec: JobSpec) -> str:
    """The text of a job that runs one command: the same every time, so that a change shows in a diff."""
    if not argv:
        raise ExecutorError("there is no command to run; write it after --")
    lines = ["#!/bin/bash", "# Written by ridgeline; the job's folder holds its specification and result.", "set -u"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(spec.env.items())]
    lines += [f"cd {shlex.quote(spec.cwd)} || exit 3"] if spec.cwd else []
    more = ' "$@"' if spec.sharding.publishes else ""
    return "\n".join([*lines, f"exec {shlex.join(argv)}{more}"]) + "\n"


# ---- what its folder says ----


@dataclasses.dataclass(frozen=True)
class Result:
    """How a job, or one attempt at a shard of it, ended.  Times are ISO 8601 UTC."""

    state: State
    why: str = ""
    exit_code: int | None = None
    started_at: str = ""
    ended_at: str = ""
    where: str = ""

    @classmethod
    def read(cls, folder: Path) -> Result | None:
        """From the result file of a folder, None where there is none yet."""
        path = folder / "result.json"
        value = read_json(path)
        try:
            return built(cls, value) if value else None
        except Unfit as error:
            raise _damaged(path, error) from error

    def write(self, folder: Path) -> None:
        """The result file: it alone decides how a job ended."""
        value = {"format": FORMAT, "version": 1, "id": folder.name, **dataclasses.asdict(self), "ended_at": now()}
        write_json(folder / "result.json", value)


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """What is known about a job.  Times are ISO 8601 UTC, "" where unknown; where: GPUs or node; log: its output.

    The exit code of a job that was lost is never 0: it is INCOMPLETE where none is known.
    """

    id: str
    name: str
    state: State
    exit_code: int | None = None
    why: str = ""
    submitted_at: str = ""
    started_at: str = ""
    ended_at: str = ""
    where: str = ""
    log: str = ""

    def __post_init__(self) -> None:
        if self.state is State.LOST and not self.exit_code:
            object.__setattr__(self, "exit_code", INCOMPLETE)

    def having(self, result: Result) -> JobStatus:
        """The same job with this result."""
        return dataclasses.replace(self, **dataclasses.asdict(result))


def said_of(folder: Path, log: str) -> JobStatus:
    """What the files of a job say: PENDING while there is no result, LOST where there is no job."""
    described, result = read_json(folder / "job.json"), Result.read(folder)
    if not described:
        return JobStatus(folder.name, "", State.LOST, why="no such job here")
    found = JobStatus(folder.name, described["name"], State.PENDING, submitted_at=described["submitted_at"], log=log)
    return found.having(result) if result else found


def stored(folder: Path) -> JobSpec:
    """What the job in a folder needs, as `submit` wrote it to job.json."""
    return built(JobSpec, read_json(folder / "job.json"))


def take_up(folder: Path) -> str:
    """The command that queues the job in a folder again, which does what is missing of it; to be pasted."""
    root = folder.parents[1].resolve()
    queue = "" if root == default_root().resolve() else f"--queue {shlex.quote(str(root))} "
    return f"ridgeline jobs submit {queue}--resume {folder.name}"


def default_root() -> Path:
    """Where jobs live by default: below the root of the project that the current folder is in."""
    return project.place(".ridgeline/jobs")


def read_json(path: Path) -> dict[str, Any]:
    """One JSON object of a job's folder, {} where there is no such file."""
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise _damaged(path, error) from error
    if not isinstance(value, dict):
        raise _damaged(path, "not an object")
    return value


def _damaged(path: Path, why: object) -> ExecutorError:
    return ExecutorError(f"{path} is damaged: {why}; remove its folder to forget the job")


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """One JSON value, whole or not at all, even after a crash of the machine.  Raises WriteError."""
    replace(path, json.dumps(value, indent=1) + "\n")


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")


# ---- an executor ----


class Executor(abc.ABC):
    """The jobs of one way to run them.  Every method raises an error with a sentence where it cannot answer.

    poll_s: seconds between two polls while waiting.
    """

    poll_s: float

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()

    @abc.abstractmethod
    def submit(self, script: str, spec: JobSpec) -> str:
        """Queue a script; returns the job's id.  It outlives the caller."""

    @abc.abstractmethod
    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs; an id that is not known is LOST."""

    @abc.abstractmethod
    def cancel(self, job: str) -> None:
        """Ask for the end of the job and its descendants.  Does nothing to a job that has ended."""

    def resume(self, job: str) -> None:
        """Queue a LOST, CANCELLED, FAILED or TIMEOUT job again under the same id; ExecutorError for any other state."""
        state = self.poll([job])[job].state
        if not state.final or state is State.DONE:
            raise ExecutorError(f"job {job} is {state}; only a job that was lost or failed can be resumed")
        self._queue_again(self.folder(job))

    @abc.abstractmethod
    def _queue_again(self, folder: Path) -> None:
        """Start what has ended anew."""

    def folder(self, job: str) -> Path:
        """The folder of a job."""
        return self.root / "jobs" / job

    def _create(self, folder: Path, script: str, spec: JobSpec, **documents: Mapping[str, object]) -> None:
        """Write the whole folder under another name first, so that a job is there completely or not at all.

        documents: further JSON files by name; what `job` has is added to what the job needs.
        """
        draft = self.root / "drafts" / folder.name
        described = {**dataclasses.asdict(spec), "id": folder.name, "submitted_at": now(), **documents.pop("job", {})}
        try:
            draft.mkdir(parents=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            (draft / "script.sh").write_text(script)
            for name, value in {"job": described, **documents}.items():
                write_json(draft / f"{name}.json", value)
            draft.rename(folder)
        except (OSError, WriteError) as error:
            raise ExecutorError(f"cannot queue job {spec.name!r} under {self.root}: {error}") from error


def new_id() -> str:
    """An id that sorts by time."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{nanoseconds:09d}-{secrets.token_hex(2)}"


# ---- running a script ----


Watch = Callable[[], Result | None]
"""Asked several times a second: how a run is to end before it does so by itself, and why; None while it may go on."""


@dataclasses.dataclass(frozen=True)
class Run:
    """One run of a script in a session of its own.  folder: gets `log` and started.json.

    command: the script and its arguments, for bash.  spec: how long it may take.  where: what the result says of the
    place.  env: added to this process's.  pass_fds: lock files that it holds while it lives.
    """

    folder: Path
    command: tuple[str | Path, ...]
    spec: JobSpec
    where: str
    env: Mapping[str, str] = dataclasses.field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()

    def to_its_end(self, watch: Watch) -> Result:
        """Run it, kill it at the timeout or when `watch` says so, and kill everything that it left behind."""
        token, started = f"{self.folder.name}:{secrets.token_hex(8)}", now()
        # Before the process: whoever finds this supervisor dead must be able to find what it started.
        write_json(self.folder / "started.json", {"at": started, "token": token, "where": self.where})
        process = self._start(token)
        ending = self._follow(process, watch)
        if ending.state is not State.DONE:
            self._stop(process, token)
        left = kill_marked(token)
        code = process.wait()
        if ending.state is State.DONE and code:
            why = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
            ending = Result(State.FAILED, why)
        behind = f"{left} process(es) it left behind were killed" if left else ""
        why = "; ".join(filter(None, (ending.why, behind)))
        return Result(ending.state, why, code, started, where=self.where)

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

    def _follow(self, process: subprocess.Popen[bytes], watch: Watch) -> Result:
        """Wait for the end, the timeout or what `watch` says; DONE means the process ended by itself."""
        deadline = time.monotonic() + self.spec.timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=min(POLL_S, max(0.0, deadline - time.monotonic())))
                return Result(State.DONE)
            if told := watch():
                return told
        return Result(State.TIMEOUT, f"still running after {self.spec.timeout_s:g} s")

    def _stop(self, process: subprocess.Popen[bytes], token: str) -> None:
        """SIGTERM to the process group; after the grace, SIGKILL to it and to everything that carries the token."""
        deadline = time.monotonic() + self.spec.grace_s
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        while time.monotonic() < deadline and (process.poll() is None or marked(token)):
            time.sleep(POLL_S / 2)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        kill_marked(token)


def cancelled(folder: Path) -> Result | None:
    """How a job is to end that somebody has cancelled."""
    return Result(State.CANCELLED, "cancelled on request") if (folder / "cancel").exists() else None


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
            pid = int(entry.name)
            if wanted in (entry / "environ").read_bytes().split(b"\0") and lifetime.lives(pid):
                found.append(pid)
    return found
