"""One attempt at one shard of a job on a cluster: ``python -m ci.executors.shard JOB`` on the node.

It ends what an older copy of the shard left on this node, gives the command the lines that are published already,
publishes each new line as soon as it is whole, and writes how it ended.  SIGTERM (scancel, pre-emption, a time limit)
ends the command; what it has published stays.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.executors import job
from ci.executors.attempt import Attempt, Fenced, Shard, Start
from ci.executors.scheduler import ExecutorError, JobSpec, State, stored
from ci.git.command import git_or_none
from ci.slurm import START

LOOK_S = 0.5
"""Seconds between two looks at the shared folder: for new lines, a newer attempt, a request to cancel."""

HANDOVER_S = 10.0
"""Seconds that a new attempt waits for an older one on another node to end: many looks of it, and its grace."""


TOLD = "ended by SIGTERM: cancelled, pre-empted, or out of time"


class Publisher:
    """Publishes the lines that the command of an attempt appends to `out`, of which the first ones were published."""

    def __init__(self, attempt: Attempt, out: Path) -> None:
        self.attempt, self.out = attempt, out
        known = attempt.shard.published()
        self._count = len(known)
        self._machine = machine_of(known[0]) if known else ""
        content = b"".join(line + b"\n" for line in known)
        self._offset = len(content)
        if known:
            out.write_bytes(content)

    def look(self) -> None:
        """Publish the lines that are whole.  Raises Fenced, or AnotherMachine."""
        self.attempt.check()
        for line in self._new():
            found = machine_of(line)
            self._machine = self._machine or found
            if found != self._machine:
                raise AnotherMachine(
                    f"this attempt measured on {found}, and the shard's first trials are of {self._machine}: its "
                    "trials are not used; submit to a partition whose nodes are alike"
                )
            self.attempt.publish(self._count, line)
            self._count += 1

    def _new(self) -> list[bytes]:
        if not self.out.exists():
            return []
        with self.out.open("rb") as file:
            file.seek(self._offset)
            content = file.read()
        whole = content[: content.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.splitlines()


class AnotherMachine(Exception):
    """The shard began on a machine with another fingerprint."""


def machine_of(line: bytes) -> str:
    """The fingerprint's name in a line, "" in a line that is not a trial."""
    try:
        return str(json.loads(line)["machine"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""


@dataclasses.dataclass
class Watch:
    """Says when the command must end before it does so by itself.  told: by a signal.  said: what it said last."""

    folder: Path
    publisher: Publisher | None
    attempt: Attempt
    told: bool = False
    said: job.Ending | None = None
    next_look: float = 0.0

    def __call__(self) -> job.Ending | None:
        """Asked several times a second; looks at the shared folder less often."""
        if self.told:
            self.said = State.CANCELLED, TOLD
        elif time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_S
            self.said = self.look()
        return self.said

    def look(self) -> job.Ending | None:
        """Publish, and see whether somebody wants the end."""
        try:
            self.publisher.look() if self.publisher else self.attempt.check()
        except Fenced as error:
            return State.CANCELLED, str(error)
        except AnotherMachine as error:
            return State.FAILED, str(error)
        except (ExecutorError, OSError) as error:
            return State.FAILED, f"its lines cannot be published: {error}"
        return (State.CANCELLED, "cancelled on request") if (self.folder / "cancel").exists() else None

    def listen(self) -> None:
        """Remember signals that ask for the end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told)

    def _told(self, number: int, frame: Any) -> None:
        self.told = True


def run(folder: Path, environ: Mapping[str, str]) -> State:
    """Run the shard that the environment names, of the job in `folder`; returns how this attempt ended."""
    spec = stored(folder)
    number = int(environ.get("SLURM_ARRAY_TASK_ID") or 0)
    attempt = Shard(folder / "shards" / str(number)).begin(_start(environ, number))
    out = attempt.folder / "out.jsonl"
    watch = Watch(folder, None, attempt)
    watch.listen()
    hand_over(attempt, _where(environ))
    watch.publisher = Publisher(attempt, out) if spec.sharding.publishes else None
    started = job.now()
    command: tuple[str | Path, ...] = (folder / "script.sh", *spec.sharding.arguments(number, out))
    moved = another_commit(spec)
    if moved:
        job.write_result(attempt.folder, State.FAILED, moved, 3, started, _where(environ))
        return State.FAILED
    ending, code = job.Run(attempt.folder, command, spec.timeout_s, spec.grace_s).to_its_end(watch, _where(environ))
    ending = _last_look(watch, ending, code)
    job.write_result(attempt.folder, *ending, code, started, _where(environ))
    return ending[0]


def another_commit(spec: JobSpec) -> str:
    """A sentence if the clone is at another commit than when the job was submitted; "" where git cannot say."""
    found = git_or_none(Path(spec.cwd), "rev-parse", "HEAD") if spec.commit else None
    if not found or found == spec.commit:
        return ""
    was = f"{spec.cwd} is at {found[:8]}, and the job was submitted at {spec.commit[:8]}"
    return f"{was}; submit it again, from a worktree that stays as it is"


def _last_look(watch: Watch, ending: job.Ending, code: int) -> job.Ending:
    """Publish what was written last; a reason that is found only now counts if the command came to its end.

    Slurm signals every process of a job: the command may have ended of it before we asked it to.
    """
    found = watch.look()
    if ending[0] is State.FAILED and not watch.said and (watch.told or code == -signal.SIGTERM):
        return State.CANCELLED, TOLD
    return found if found and ending[0] is State.DONE else ending


def _start(environ: Mapping[str, str], shard: int) -> Start:
    """The job's name says which job it is: Slurm gives the id of a job that it lost to another one."""
    name, restart = environ.get("SLURM_JOB_NAME", ""), int(environ.get("SLURM_RESTART_COUNT") or 0)
    return Start(f"{name}_{shard}", restart, _where(environ), job.now(), environ.get(START, ""))


def _where(environ: Mapping[str, str]) -> str:
    return environ.get("SLURMD_NODENAME") or socket.gethostname()


def hand_over(attempt: Attempt, host: str) -> None:
    """End older copies on this node; wait for those elsewhere, which end when they see that they are fenced.

    A node that is dead cannot say so: then the wait is over after HANDOVER_S.
    """
    deadline = time.monotonic() + HANDOVER_S
    for older in attempt.older():
        if attempt.shard.start_of(int(older.name)).host == host:
            with contextlib.suppress(FileNotFoundError):
                job.kill_marked(str(json.loads((older / "started.json").read_text())["token"]))
            continue
        while not (older / "result.json").exists() and time.monotonic() < deadline:
            time.sleep(LOOK_S)


def main(folder: Path) -> int:
    """Exit code 0 for an end that is written down, whatever it was: the scheduler must not start it again for that."""
    try:
        state = run(folder, os.environ)
    except Fenced as error:
        print(error, file=sys.stderr)
        return 0
    print(f"{_where(os.environ)}: {state}", file=sys.stderr)
    return 0 if state is State.DONE else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
