"""What every executor can do, and the terms for it.

A job is a *script* (text for bash) and a :class:`JobSpec`.  Only the result file that the job itself writes decides
whether it succeeded: schedulers forget jobs, reuse ids and report a vanished job as finished.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import re
import secrets
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from kernels import project

MOST_SHARDS = 1000
"""Slurm's MaxArraySize is 1001 unless a site sets it (slurm.conf(5), 26.05): task ids go up to 1000."""


INCOMPLETE = 3
"""The exit code of a job of which something is missing: as that of any error that is none of what was measured."""


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


class Scheduler(Protocol):
    """An executor.  Every method raises ExecutorError where the executor cannot answer.

    poll_s: seconds between two polls while waiting.
    """

    poll_s: float

    def submit(self, script: str, spec: JobSpec) -> str:
        """Queue a script; returns the job's id.  It outlives the caller."""

    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs; an id that is not known is LOST."""

    def jobs(self) -> list[str]:
        """All ids that it remembers, oldest first."""

    def cancel(self, job: str) -> None:
        """Ask for the end of the job and its descendants.  Does nothing to a job that has ended."""

    def resume(self, job: str) -> None:
        """Queue a LOST, CANCELLED, FAILED or TIMEOUT job again under the same id; ExecutorError for any other state."""


def new_id() -> str:
    """An id that sorts by time."""
    seconds, nanoseconds = divmod(time.time_ns(), 10**9)
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(seconds))}.{nanoseconds:09d}-{secrets.token_hex(2)}"


def stored(folder: Path) -> JobSpec:
    """What the job in a folder needs, as `submit` wrote it to job.json."""
    value = json.loads((folder / "job.json").read_text())
    known = {field.name: value[field.name] for field in dataclasses.fields(JobSpec) if field.name in value}
    sharding = value.get("sharding") or {}
    return JobSpec(**{**known, "sharding": Sharding(**{**sharding, "finish": tuple(sharding.get("finish", ()))})})


def executor_of(folder: Path) -> str:
    """The executor of the job in a folder, "" where there is none."""
    try:
        return str(json.loads((folder / "job.json").read_text()).get("executor", "local"))
    except (OSError, ValueError):
        return ""


def wait(
    executor: Scheduler,
    ids: Sequence[str],
    timeout_s: float = float("inf"),
    report: Callable[[JobStatus], None] = lambda status: None,
) -> dict[str, JobStatus]:
    """Poll until all have ended or `timeout_s` seconds are over; returns the last status of each.

    report: called with every status that is seen.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        found = executor.poll(ids)
        for status in found.values():
            report(status)
        if all(status.state.final for status in found.values()) or time.monotonic() >= deadline:
            return found
        time.sleep(min(executor.poll_s, max(0.0, deadline - time.monotonic())))


def script(argv: Sequence[str], spec: JobSpec) -> str:
    """The text of a job that runs one command: the same every time, so that a change shows in a diff."""
    if not argv:
        raise ExecutorError("there is no command to run; write it after --")
    lines = ["#!/bin/bash", "# Written by ridgeline; the job's folder holds its specification and result.", "set -u"]
    lines += [f"export {key}={shlex.quote(value)}" for key, value in sorted(spec.env.items())]
    lines += [f"cd {shlex.quote(spec.cwd)} || exit 3"] if spec.cwd else []
    more = ' "$@"' if spec.sharding.publishes else ""
    return "\n".join([*lines, f"exec {shlex.join(argv)}{more}"]) + "\n"


def take_up(folder: Path) -> str:
    """The command that queues the job in a folder again, which does what is missing of it; to be pasted."""
    root = folder.parents[1].resolve()
    queue = "" if root == default_root().resolve() else f"--queue {shlex.quote(str(root))} "
    return f"ridgeline jobs submit {queue}--resume {folder.name}"


def default_root() -> Path:
    """Where jobs live by default: below the root of the project that the current folder is in."""
    return project.place(".ridgeline/jobs")
