"""Processes that measure: one per (checkout, rank), started together, driven in lock-step, killed as a group.

The coordinator sends every rank of a pool the same request, one JSON line on a pipe, and collects one answer from each.
A rank that dies or does not answer in time takes its pool down: the others would wait for it forever.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import channel, lifetime
from benchmarks.channel import LONGEST_ANSWER, BrokenChannel, new_seal, opened
from benchmarks.coordinator import starting
from benchmarks.coordinator.lanes import Quiet, SecondsLedger
from benchmarks.lifetime import deferred
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import Status

VARIABLES = {
    "TRITON_DISABLE_LINE_INFO": "1",  # code must not differ by the path of its source
    "PYTHONFAULTHANDLER": "1",  # a log to read after a crash
    "PYTHONUNBUFFERED": "1",
}
"""Set in every measuring process."""

QUIT_S = 10.0
"""How long a pool may take to clean up."""

GRACE_S = 15.0
"""How long the other ranks may take once one has reported an error: most are then waiting for it in a collective."""

KILL_S = 60.0
"""A killed process must have ended by then; tearing down a GPU context takes seconds."""

LOOK_S = 0.25
"""How often a pool that is waited for is looked after."""

MOST_PRINTED = 64 << 20
"""Bytes that a process may print; a verbose compiler prints some MB."""

LOG_TAIL_BYTES = 6000
"""How much of a worker's output is quoted when it dies."""

MOST_PROCESSES = 1000
"""Below one pool.  A library that compiles itself starts one or two for each of up to 256 cores (ninja, 2026-11)."""


@dataclasses.dataclass(frozen=True)
class Failure:
    """How a step failed: a status of the trial file, one sentence, and the traceback or the tail of the log.

    orphaned: it ended because its server did, as every process of that server.
    everywhere: every rank gave the same status, so that all of them stopped at the same place.
    spoiled: the buffers that the other arms share were overwritten.
    """

    status: Status
    why: str
    detail: str = ""
    everywhere: bool = False
    spoiled: bool = False
    orphaned: bool = False


class Failed(Exception):
    """A request failed; `failure` says how."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.why)
        self.failure = failure


class StepFailed(Failed):
    """A step failed on some rank; the processes live on."""


class PoolDied(Failed):
    """A rank died or hung, or its device is unusable; all processes of the pool have been killed."""


class Unkillable(Exception):
    """A killed process does not end; the text says what to do."""


class RankProcess:
    """One measuring process, the leader of a session of its own, with two pipes, a log file and a working folder."""

    def __init__(
        self,
        python: str,
        checkout: Path,
        rank: int,
        log: Path,
        variables: Mapping[str, str],
        inherited: Mapping[str, str] | None,
    ) -> None:
        self.rank = rank
        self._buffer = bytearray()
        self._seal = ""
        self._folder = log.with_suffix("")
        self._folder.mkdir(parents=True)  # a kernel may have removed everything above it
        self.log = log.open("w+b")
        requests, self._write = os.pipe()
        self._read, answers = os.pipe()
        pipes = requests, answers
        try:
            where = pipes, self.log.fileno(), self._folder
            self.process = starting.start(python, checkout, *where, variables, inherited)
        except OSError:
            self._release()
            raise
        finally:
            os.close(requests)
            os.close(answers)
        os.set_blocking(self._read, False)

    def fileno(self) -> int:
        """The pipe with the answers, for a selector."""
        return self._read

    def send(self, request: Json) -> None:
        """Write one request; a dead reader is noticed when its answer is collected."""
        self._seal = new_seal()
        view = memoryview(json.dumps({**request, "seal": self._seal}).encode() + b"\n")
        with contextlib.suppress(BrokenPipeError):
            while view:
                view = view[os.write(self._write, view) :]

    def receive(self) -> JsonObject | None:
        """The answer, None if it is not there yet; EOFError when the process is gone, BrokenChannel for other bytes."""
        try:
            data = os.read(self._read, 1 << 20)
        except BlockingIOError:
            return None
        if not data:
            raise EOFError
        self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n") if b"\n" in data else (self._buffer, b"", b"")
        if newline:
            seal, self._seal, self._buffer = self._seal, "", bytearray(rest)
            return json.loads(opened(bytes(line), seal))
        if len(line) > LONGEST_ANSWER:
            raise BrokenChannel(f"more than {LONGEST_ANSWER:,} bytes without an end came through its channel")
        return None

    def ending(self, patience_s: float = 5.0) -> str:
        """How the process ended, in words."""
        until = time.monotonic() + patience_s
        while time.monotonic() < until:
            code = self.process.poll()
            if self.process.orphaned:
                return "ended because its parent was killed or stopped, which only a kernel does,"
            if code is not None:
                return ending_in_words(code)
            time.sleep(0.01)
        return "closed its channel"

    def kill(self) -> None:
        """Kill the process and everything it started, and wait until it has ended."""
        self.process.kill()
        try:
            self.process.wait(KILL_S)
        except subprocess.TimeoutExpired:
            raise Unkillable(
                f"process {self.process.pid} (rank {self.rank}) still runs {KILL_S:g} s after it was killed: its "
                "device driver holds it; reset the device or restart the machine, until then no time can be trusted"
            ) from None
        finally:
            self._release()

    def printed(self) -> int:
        """Bytes of its output so far."""
        return os.fstat(self.log.fileno()).st_size

    def tail(self) -> str:
        """The end of what the process printed, fit to be shown."""
        start = max(0, self.printed() - LOG_TAIL_BYTES)
        return channel.lines(os.pread(self.log.fileno(), LOG_TAIL_BYTES, start).decode(errors="replace")).strip()

    def _release(self) -> None:
        for descriptor in (self._write, self._read):
            if descriptor >= 0:
                os.close(descriptor)
        self._write = self._read = -1
        self.log.close()
        shutil.rmtree(self._folder, ignore_errors=True)


def ending_in_words(code: int) -> str:
    """An exit code as subprocess has it, as a clause."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in iter(signal.Signals) else f"signal {-code}"
    hint = " (often the out-of-memory killer; the kernel's log says so)" if -code == signal.SIGKILL else ""
    return f"was killed by {name}{hint}"


class WorkerPool:
    """The ranks of one checkout.  After PoolDied, `alive` is False and a new pool must be started.

    left: gets the names of what they left running, once they are killed; it was ended.  quiet: raises Stopped out of
    collect(), where the session ends in another thread.  inherited: see starting.start.  most_mb: of memory that a rank
    may take with all it starts; 0 for any.

    Create and store it in one block of `starting.ready`: an interrupt in between would lose its processes.
    """

    def __init__(
        self,
        label: str,
        python: str,
        checkout: Path,
        world: int,
        directory: Path,
        variables: Mapping[str, str] | None = None,
        ledger: SecondsLedger | None = None,
        left: list[str] | None = None,
        quiet: Quiet | None = None,
        inherited: Mapping[str, str] | None = None,
        most_mb: int = 0,
    ) -> None:
        self.label, self._quiet, self._most_mb = label, quiet or Quiet(), most_mb
        self.ledger = ledger or SecondsLedger()
        self.left: list[str] = [] if left is None else left
        self.workers: list[RankProcess] = []
        self.step = "start"
        self._crowd = processes_and_threads()
        self._limit_s = 0.0
        try:
            for rank in range(world):
                log = directory / f"{label}.{rank}.{os.urandom(4).hex()}.log"
                self.workers.append(RankProcess(python, checkout, rank, log, variables or {}, inherited))
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """Whether its processes run."""
        return bool(self.workers)

    def lives(self) -> bool:
        """Whether its processes run now; what is left of a pool of which one has ended meanwhile is killed."""
        if any(worker.process.poll() is not None for worker in self.workers):
            self.kill()
        return self.alive

    def post(self, step: str, limit_s: float, op: str, per_rank: Sequence[Json] = (), **fields: Any) -> None:
        """Send every rank a request; `step` names it in messages.  collect() must follow."""
        self.step, self._limit_s = step, limit_s
        self.ledger.sent(self, op, fields)
        for worker in self.workers:
            own = per_rank[worker.rank] if per_rank else {}
            worker.send({"op": op, "limit_s": limit_s, "fields": {**fields, **own}})

    def collect(self, limit_s: float | None = None) -> list[Any]:
        """The result of every rank, in rank order.  limit_s: from now, in place of post()'s.

        Raises StepFailed or PoolDied.
        """
        self._limit_s = self._limit_s if limit_s is None else limit_s
        try:
            return self._collected()
        finally:
            self.ledger.answered(self)

    def _collected(self) -> list[Any]:
        answers: dict[int, JsonObject] = {}
        until = time.monotonic() + self._limit_s
        with selectors.DefaultSelector() as selector:
            for worker in self.workers:
                selector.register(worker, selectors.EVENT_READ, worker)
            while len(answers) < len(self.workers) and (left := until - time.monotonic()) > 0:
                self._look_after()
                ready = selector.select(min(left, LOOK_S))
                for worker in self.workers if not ready else ():
                    if not lifetime.lives(worker.process.pid):
                        for one in self.workers:  # a driver may hold it until they end, whose kernels wait for it
                            one.process.kill()
                        raise self._died(worker, Status.CRASH, worker.ending(KILL_S))
                for key, _ in ready:
                    answer = self._receive(key.data)
                    if answer is None:
                        continue
                    answers[key.data.rank] = answer
                    if self._hurries(answer):
                        until = min(until, time.monotonic() + GRACE_S)
        return self._results(answers)

    def ask(self, step: str, limit_s: float, op: str, **fields: Any) -> list[Any]:
        """post and collect."""
        self.post(step, limit_s, op, **fields)
        return self.collect()

    def kill(self) -> None:
        """Kill every rank with all it started."""
        with deferred():
            self.ledger.answered(self)
            workers, self.workers = self.workers, []
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.kill()
                self.left += worker.process.left

    def quit(self) -> None:
        """Ask the ranks to clean up and end; close() must follow."""
        if self.alive:
            self.post("quit", QUIT_S, "quit")

    def close(self) -> None:
        """Wait until the ranks have cleaned up, then make sure that they have ended."""
        if self.alive:
            try:
                with contextlib.suppress(StepFailed, PoolDied):  # what they could not clean up dies with them
                    self.collect()
            finally:
                self.kill()

    def _hurries(self, answer: Json) -> bool:
        """Whether others have little time left after such an answer."""
        return not answer["ok"]

    def _receive(self, worker: RankProcess) -> JsonObject | None:
        try:
            return worker.receive()
        except EOFError:
            raise self._died(worker, Status.CRASH, worker.ending()) from None
        except (BrokenChannel, ValueError) as error:
            what = f"was killed: {error}, as when a kernel writes to descriptors that are not its own,"
            raise self._died(worker, Status.ERROR, what) from None

    def _look_after(self) -> None:
        """PoolDied if a process fills the disk with what it prints, or the machine with what it starts; or Stopped."""
        self._quiet.refuse()
        crowded = processes_and_threads() > self._crowd + MOST_PROCESSES
        for worker in self.workers:
            if worker.printed() > MOST_PRINTED:
                excess = f"printed more than {MOST_PRINTED >> 20} MiB"
            elif self._most_mb and resident_mb(worker.process.pid) > self._most_mb:
                excess = f"took more than {self._most_mb} MB of memory"
            elif crowded and (count := below(worker.process.pid)) > MOST_PROCESSES:
                excess = f"started {count} processes, more than {MOST_PROCESSES},"
            else:
                continue
            raise self._died(worker, Status.CRASH, f"was killed: it {excess}")

    def _died(self, worker: RankProcess, status: Status, how: str) -> PoolDied:
        why = f"{self._who([worker.rank])} {how} in step: {self.step}"
        tail, orphaned = worker.tail(), worker.process.orphaned
        self.kill()
        return PoolDied(Failure(status, why, tail, orphaned=orphaned))

    def _results(self, answers: Mapping[int, JsonObject]) -> list[Any]:
        """What the ranks returned; an exception if one of them failed or did not answer."""
        waiting = [worker for worker in self.workers if worker.rank not in answers]
        failed = sorted((a for a in answers.values() if not a["ok"]), key=lambda a: a["failed_at"])
        if failed:
            first = failed[0]  # the earliest speaks for all: the others often fail because of it
            everywhere = len(failed) == len(self.workers) and len({answer["status"] for answer in failed}) == 1
            spoiled = any(answer["spoiled"] for answer in failed)
            failure = Failure(Status(first["status"]), first["why"], first["detail"], everywhere, spoiled)
            if waiting or any(answer["fatal"] for answer in failed):
                self.kill()
                raise PoolDied(failure)
            raise StepFailed(failure)
        if waiting:
            detail = "\n".join(f"rank {worker.rank}: {worker.tail()}" for worker in waiting)
            who = self._who([worker.rank for worker in waiting])
            self.kill()
            why = f"{who} gave no answer within {self._limit_s:g} s in step: {self.step}; killed"
            raise PoolDied(Failure(Status.HANG, why, detail))
        return [answers[rank]["result"] for rank in sorted(answers)]

    def _who(self, ranks: list[int]) -> str:
        if len(self.workers) == 1:
            return "the process"
        return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))} of {len(self.workers)}"


@contextlib.contextmanager
def started(
    label: str, python: str, checkout: Path, world: int, directory: Path, variables: Mapping[str, str] | None = None
) -> Iterator[WorkerPool]:
    """Processes that are asked something, and have ended on leaving.  OSError if there is no such Python."""
    pool: WorkerPool | None = None
    try:
        with starting.ready(python):
            pool = WorkerPool(label, python, checkout, world, directory, variables)
        yield pool
    finally:
        if pool:
            pool.kill()


def make_directories() -> Path:
    """A directory for logs and stores, with a link `shm` to a directory in memory."""
    directory = Path(tempfile.mkdtemp(prefix="ridgeline-"))
    with contextlib.suppress(OSError):
        (directory / "shm").symlink_to(tempfile.mkdtemp(prefix="ridgeline-", dir="/dev/shm"))
    return directory


def remove_directories(directory: Path) -> None:
    """Remove both directories."""
    link = directory / "shm"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)


# ---- what the system says of processes; proc(5) ----------------------------------------------------------------------


def processes_and_threads() -> int:
    """Of the machine, by one small file; 0 where nothing says so."""
    try:
        return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return 0


def below(root: int) -> int:
    """Processes whose ancestor is this one."""
    children, left, count = lifetime.by_parent(), [root], 0
    while left:
        found = [child.process for child in children.pop(left.pop(), ())]
        count, left = count + len(found), left + found
    return count


def resident_mb(process: int) -> float:
    """Resident memory of a process and all its descendants, in MB; 0 where /proc does not say."""
    try:
        pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (OSError, IndexError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6 + sum(resident_mb(int(child)) for child in children)
