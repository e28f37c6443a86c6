"""A shard of a job on a cluster: its attempts, of which only the newest publishes, and each line is published once.

A scheduler may start a job again while its first copy still runs: Slurm does when it has lost sight of a node.

    SHARD/attempts/<n>/    attempt.json, and what the attempt writes: log, started.json, out.jsonl, result.json
    SHARD/lines/<m>.json   line m of the shard, counted from 0, by whichever attempt published it
    SHARD/not_begun        a line for each start that came to no attempt, see ci.slurm

The result of the newest attempt is the shard's.

An attempt begins by making its folder under the next number: from then on every older one is fenced.  It looks for a
newer one before it publishes.  What makes a second copy of a line impossible, however late one node sees what another
wrote, is link(2) to a name that must be new: the file server decides (open(2), O_EXCL, on NFS).  The draft lies in the
same folder, for some parallel file systems have links only there.

``python -m ci.executors.shard JOB`` is one attempt, on the node.  It ends what an older copy of the shard left on this
node, gives the command the lines that are published already, publishes each new line as soon as it is whole, and writes
how it ended.  SIGTERM (scancel, pre-emption, a time limit) ends the command; what it has published stays.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.executors import job
from ci.executors.job import ExecutorError, JobSpec, Result, Run, State, stored
from ci.git.command import git_or_none
from ci.slurm import NOT_BEGUN, START

LOOK_S = 0.5
"""Seconds between two looks at the shared folder: for new lines, a newer attempt, a request to cancel."""

HANDOVER_S = 10.0
"""Seconds that a new attempt waits for an older one on another node to end: many looks of it, and its grace."""

TOLD = "ended by SIGTERM: cancelled, pre-empted, or out of time"


class Fenced(Exception):
    """A newer attempt has begun; this one must end."""


class AnotherMachine(Exception):
    """The shard began on a machine with another fingerprint."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Who begins an attempt.  job: the name of the shard's job, which no other job has; restart: how often it was
    requeued; mark: of this start, for its batch script."""

    job: str
    restart: int
    host: str
    at: str
    mark: str = ""

    @classmethod
    def of(cls, environ: Mapping[str, str], shard: int) -> Start:
        """The job's name says which job it is: Slurm gives the id of a job that it lost to another one."""
        name, restart = environ.get("SLURM_JOB_NAME", ""), int(environ.get("SLURM_RESTART_COUNT") or 0)
        host = environ.get("SLURMD_NODENAME") or socket.gethostname()
        return cls(f"{name}_{shard}", restart, host, job.now(), environ.get(START, ""))


@dataclasses.dataclass(frozen=True)
class Shard:
    """One shard of a job, in its folder."""

    folder: Path

    # ---- beginning ----

    def begin(self, start: Start) -> Attempt:
        """The next attempt.  Raises Fenced for a copy of the job that is older than one that has begun already."""
        attempts = self.folder / "attempts"
        attempts.mkdir(parents=True, exist_ok=True)
        draft = self.folder / f".attempt-{secrets.token_hex(8)}"
        draft.mkdir()
        (draft / "attempt.json").write_text(json.dumps(dataclasses.asdict(start)))
        try:
            while True:
                self._refuse_older(start)
                number = self.newest() + 1
                try:
                    draft.rename(attempts / str(number))
                    return Attempt(self, number)
                except OSError as error:  # somebody else took the number: it is a folder with a file in it
                    if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                        raise
        finally:
            if draft.exists():
                (draft / "attempt.json").unlink(missing_ok=True)
                draft.rmdir()

    def _refuse_older(self, start: Start) -> None:
        for number in self.numbers():
            other = Attempt(self, number).start
            if other.job == start.job and other.restart > start.restart:
                raise Fenced(f"restart {other.restart} of {start.job} has begun on {other.host}; this is an older copy")

    def numbers(self) -> list[int]:
        """Numbers of the attempts so far."""
        found = (path.name for path in (self.folder / "attempts").glob("[0-9]*"))
        return sorted(int(name) for name in found if name.isdigit())

    def newest(self) -> int:
        """The number of the newest attempt, -1 before the first."""
        return max(self.numbers(), default=-1)

    def result(self) -> Result | None:
        """How the newest attempt ended, None while it has not."""
        return Result.read(Attempt(self, self.newest()).folder)

    def not_begun(self) -> list[str]:
        """When, where and why a start came to no attempt, one sentence each."""
        path = self.folder / NOT_BEGUN
        return path.read_text(errors="replace").splitlines() if path.exists() else []

    # ---- what is published ----

    @property
    def lines(self) -> Path:
        """The folder of the lines."""
        return self.folder / "lines"

    def published(self) -> list[bytes]:
        """The lines that are published, without newlines, in their order."""
        return [path.read_bytes() for path in sorted(self.lines.glob("[0-9]*.json"))]


def shards_of(folder: Path, spec: JobSpec) -> dict[int, Shard]:
    """The shards of a job by number."""
    return {number: Shard(folder / "shards" / str(number)) for number in range(spec.sharding.shards)}


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at a shard."""

    shard: Shard
    number: int

    @property
    def folder(self) -> Path:
        """What this attempt writes."""
        return self.shard.folder / "attempts" / str(self.number)

    @property
    def start(self) -> Start:
        """Who began it."""
        return Start(**json.loads((self.folder / "attempt.json").read_text()))

    def check(self) -> None:
        """Raises Fenced if a newer attempt has begun."""
        newest = self.shard.newest()
        if newest > self.number:
            raise Fenced(f"attempt {newest} has taken over from attempt {self.number}")

    def publish(self, index: int, line: bytes) -> bool:
        """Publish line `index` of the shard; False if it is published already.  Raises Fenced, publishing nothing."""
        self.check()
        self.shard.lines.mkdir(exist_ok=True)
        draft = self.shard.lines / f".{index:06d}-{self.number}-{secrets.token_hex(4)}"
        try:
            with draft.open("xb") as file:
                file.write(line)
                file.flush()
                os.fsync(file.fileno())
            return _linked(draft, self.shard.lines / f"{index:06d}.json")
        finally:
            draft.unlink(missing_ok=True)

    def take_over(self) -> None:
        """End older copies on this node; wait for those elsewhere, which end when they see that they are fenced.

        A node that is dead cannot say so: then the wait is over after HANDOVER_S.
        """
        deadline = time.monotonic() + HANDOVER_S
        for older in (Attempt(self.shard, number) for number in self.shard.numbers() if number < self.number):
            if older.start.host == self.start.host:
                if token := job.read_json(older.folder / "started.json").get("token"):
                    job.kill_marked(str(token))
                continue
            while not (older.folder / "result.json").exists() and time.monotonic() < deadline:
                time.sleep(LOOK_S)


def _linked(draft: Path, target: Path) -> bool:
    """Give a draft its name, which must be new; whether it was.

    A file server whose answer got lost is asked again and then says that the name exists: the count of links tells.
    """
    try:
        os.link(draft, target)
    except FileExistsError:
        return draft.stat().st_nlink == 2
    except OSError as error:
        need = "the folder of the jobs must be on a file system with hard links"
        raise ExecutorError(f"no line can be published in {target.parent}: {error.strerror}; {need}") from error
    return True


# ---- one attempt, on the node ----


class Publisher:
    """Publishes the lines that the command of an attempt appends to `out`, of which the first ones were published.

    A command that publishes nothing writes no such file.
    """

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


def machine_of(line: bytes) -> str:
    """The fingerprint's name in a line, "" in a line that is not a trial."""
    try:
        return str(json.loads(line)["machine"]["name"])
    except (ValueError, KeyError, TypeError):
        return ""


@dataclasses.dataclass
class Overseer:
    """Says when the command must end before it does so by itself.

    folder: of the job.  publisher: set before the command starts.  told: by a signal.  said: what it said last.
    """

    folder: Path
    publisher: Publisher = dataclasses.field(init=False)
    told: bool = False
    said: Result | None = None
    next_look: float = 0.0

    def __call__(self) -> Result | None:
        """Asked several times a second; looks at the shared folder less often."""
        if self.told:
            self.said = Result(State.CANCELLED, TOLD)
        elif time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_S
            self.said = self.look()
        return self.said

    def look(self) -> Result | None:
        """Publish, and see whether somebody wants the end."""
        try:
            self.publisher.look()
        except Fenced as error:
            return Result(State.CANCELLED, str(error))
        except AnotherMachine as error:
            return Result(State.FAILED, str(error))
        except (ExecutorError, OSError) as error:
            return Result(State.FAILED, f"its lines cannot be published: {error}")
        return job.cancelled(self.folder)

    def last_look(self, ended: Result) -> Result:
        """Publish what was written last; a reason that is found only now counts if the command came to its end.

        Slurm signals every process of a job: the command may have ended of it before we asked it to.
        """
        found = self.look()
        if ended.state is State.FAILED and not self.said and (self.told or ended.exit_code == -signal.SIGTERM):
            found = Result(State.CANCELLED, TOLD)
        elif ended.state is not State.DONE or not found:
            return ended
        return dataclasses.replace(ended, state=found.state, why=found.why)

    def listen(self) -> None:
        """Remember signals that ask for the end."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._told)

    def _told(self, number: int, frame: Any) -> None:
        self.told = True


def run(folder: Path, environ: Mapping[str, str]) -> Result:
    """Run the shard that the environment names, of the job in `folder`; returns how this attempt ended."""
    spec = stored(folder)
    number = int(environ.get("SLURM_ARRAY_TASK_ID") or 0)
    start = Start.of(environ, number)
    attempt = shards_of(folder, spec)[number].begin(start)
    overseer = Overseer(folder)
    overseer.listen()
    attempt.take_over()
    out = attempt.folder / "out.jsonl"
    overseer.publisher = Publisher(attempt, out)
    if moved := another_commit(spec):
        result = Result(State.FAILED, moved, 3, job.now(), where=start.host)
    else:
        command: tuple[str | Path, ...] = (folder / "script.sh", *spec.sharding.arguments(number, out))
        result = overseer.last_look(Run(attempt.folder, command, spec, start.host).to_its_end(overseer))
    result.write(attempt.folder)
    return result


def another_commit(spec: JobSpec) -> str:
    """A sentence if the clone is at another commit than when the job was submitted; "" where git cannot say."""
    found = git_or_none(Path(spec.cwd), "rev-parse", "HEAD") if spec.commit else None
    if not found or found == spec.commit:
        return ""
    was = f"{spec.cwd} is at {found[:8]}, and the job was submitted at {spec.commit[:8]}"
    return f"{was}; submit it again, from a worktree that stays as it is"


def main(folder: Path) -> int:
    """Exit code 0 for an end that is written down, whatever it was: the scheduler must not start it again for that."""
    try:
        result = run(folder, os.environ)
    except Fenced as error:
        print(error, file=sys.stderr)
        return 0
    print(f"{result.where}: {result.state}", file=sys.stderr)
    return 0 if result.state is State.DONE else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
