"""Attempts at one shard of a job, of which only the newest publishes, and each line of the shard is published once.

A scheduler may start a job again while its first copy still runs: Slurm does when it has lost sight of a node.

    SHARD/attempts/<n>/    attempt.json, and what the attempt writes: log, started.json, out.jsonl, result.json
    SHARD/lines/<m>.json   line m of the shard, counted from 0, by whichever attempt published it
    SHARD/not_begun        a line for each start that came to no attempt, see ci.slurm

The result of the newest attempt is the shard's.

An attempt begins by making its folder under the next number: from then on every older one is fenced.  It looks for a
newer one before it publishes.  What makes a second copy of a line impossible, however late one node sees what another
wrote, is link(2) to a name that must be new: the file server decides (open(2), O_EXCL, on NFS).  The draft lies in the
same folder, for some parallel file systems have links only there.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import secrets
from pathlib import Path

from ci.executors.job import Result
from ci.executors.scheduler import ExecutorError
from ci.slurm import NOT_BEGUN


class Fenced(Exception):
    """A newer attempt has begun; this one must end."""


@dataclasses.dataclass(frozen=True)
class Start:
    """Who begins an attempt.  job: the name of the shard's job, which no other job has; restart: how often it was
    requeued; mark: of this start, for its batch script."""

    job: str
    restart: int
    host: str
    at: str
    mark: str = ""


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
            other = self.start_of(number)
            if other.job == start.job and other.restart > start.restart:
                raise Fenced(f"restart {other.restart} of {start.job} has begun on {other.host}; this is an older copy")

    def numbers(self) -> list[int]:
        """Numbers of the attempts so far."""
        found = (path.name for path in (self.folder / "attempts").glob("[0-9]*"))
        return sorted(int(name) for name in found if name.isdigit())

    def newest(self) -> int:
        """The number of the newest attempt, -1 before the first."""
        return max(self.numbers(), default=-1)

    def start_of(self, number: int) -> Start:
        """Who began an attempt."""
        return Start(**json.loads((self.folder / "attempts" / str(number) / "attempt.json").read_text()))

    def result(self) -> Result | None:
        """How the newest attempt ended, None while it has not."""
        path = self.folder / "attempts" / str(self.newest()) / "result.json"
        try:
            return Result.of(json.loads(path.read_text()))
        except FileNotFoundError:
            return None

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


@dataclasses.dataclass(frozen=True)
class Attempt:
    """One attempt at a shard."""

    shard: Shard
    number: int

    @property
    def folder(self) -> Path:
        """What this attempt writes."""
        return self.shard.folder / "attempts" / str(self.number)

    def older(self) -> list[Path]:
        """Folders of the attempts before this one."""
        return [self.folder.with_name(str(number)) for number in self.shard.numbers() if number < self.number]

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
