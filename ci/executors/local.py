"""Jobs on this machine: a queue of folders; a GPU runs one job at a time, first come, first served.

    ROOT/jobs/<id>/    job.json script.sh log started.json result.json cancel alive
    ROOT/queue/<id>    a ticket: the job waits
    LOCKS/<gpu>        held (flock) by the job, or the command, that uses the GPU; "cpu" by one that needs none
                       (ci.executors.locks)
    LOCKS/turn         held by the job that gathers its GPUs: one of the machine at a time

LOCKS is one folder of the machine, whichever clone and user a job is of.

Every job has a supervisor, a process in a session of its own, so jobs outlive whoever submitted them.  A lock dies with
its holder, even by SIGKILL or a crash: a restart needs no cleaning up.  CPU jobs never overlap either, because they
would disturb each other's times.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks import lifetime
from ci.executors import job, locks
from ci.executors.job import Executor, ExecutorError, JobSpec, JobStatus, Result, Run, State

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder that holds the `ci` package this code belongs to: the supervisor runs the same one."""
WAIT_S = 0.2
"""Seconds after which a waiting job looks at the queue again."""


class LocalExecutor(Executor):
    """Jobs of this machine, which may have the GPUs that the submitter sees."""

    poll_s = 0.2

    def submit(self, script: str, spec: JobSpec) -> str:
        """Queue a script.  Raises ExecutorError if it wants more GPUs than there are, or nothing can be written."""
        gpus = locks.gpus()
        if spec.gpus > len(gpus):
            raise ExecutorError(
                f"job {spec.name!r} wants {spec.gpus} GPUs; this machine offers {len(gpus)}"
                f" ({', '.join(gpus) or 'none'})"
            )
        # What the job may be given, and the lock file of each, which is the same for all clones.
        names = locks.identities(gpus) if spec.gpus else {locks.CPU: locks.CPU}
        slots = {name: str(locks.path(locks.folder(), device)) for name, device in names.items()}
        folder = self.folder(job.new_id())
        self._create(folder, script, spec, job={"slots": slots})
        self._supervise(folder)
        return folder.name

    def _supervise(self, folder: Path) -> None:
        """Start the job's supervisor.  On return it holds the folder, so a poll never sees the job as lost.

        Without the token in its environment, a supervisor that is started inside another job does not belong to it.
        """
        ticket = _ticket(folder)
        ticket.parent.mkdir(exist_ok=True)
        ticket.touch()
        env = {key: value for key, value in os.environ.items() if key != job.TOKEN}
        with (folder / "supervisor.log").open("ab") as log:
            started = subprocess.run(
                [sys.executable, "-m", "ci.executors.local", str(folder)],
                cwd=PACKAGE,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if started.returncode:
            raise ExecutorError(f"the supervisor of {folder.name} did not start; see {folder}/supervisor.log")

    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs, from their folders alone."""
        return {name: _status(self.folder(name)) for name in ids}

    def cancel(self, name: str) -> None:
        """Ask the supervisor to end the job; end it here if the supervisor is gone."""
        folder = self.folder(name)
        if (folder / "result.json").exists():
            return
        (folder / "cancel").touch()
        if not _alive(folder):
            _clear(folder)
            _ticket(folder).unlink(missing_ok=True)
            Result(State.CANCELLED, "cancelled on request after its supervisor was lost").write(folder)

    def _queue_again(self, folder: Path) -> None:
        """Keep the job's log.  Whatever is left of the lost one is killed first."""
        _clear(folder)
        for file in ("result.json", "started.json", "cancel"):
            (folder / file).unlink(missing_ok=True)
        self._supervise(folder)


def _ticket(folder: Path) -> Path:
    return folder.parents[1] / "queue" / folder.name


def _status(folder: Path) -> JobStatus:
    """Whether it is alive is asked before its result: a job that ends in between is seen as ended, never as lost."""
    alive = _alive(folder)
    found, started = job.said_of(folder, str(folder / "log")), job.read_json(folder / "started.json")
    found = dataclasses.replace(found, started_at=started.get("at", ""), where=started.get("where", ""))
    if found.state.final:
        return found
    if alive:
        return dataclasses.replace(found, state=State.RUNNING if started else State.PENDING)
    why = f"its supervisor is gone and left no result; `{job.take_up(folder)}` queues it again"
    return dataclasses.replace(found, state=State.LOST, why=why)


def _alive(folder: Path) -> bool:
    """True while a supervisor holds the folder; the operating system releases the lock however it dies."""
    try:
        with (folder / "alive").open("r") as file:
            return not locks.locked(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    """Kill what a job left running when its supervisor was lost."""
    if token := job.read_json(folder / "started.json").get("token"):
        job.kill_marked(str(token))


# ---- the supervisor ----


def detach(folder: Path) -> int:
    """Lock the folder and go on in the background; returns 1 if another supervisor has locked it, else 0.

    The lock belongs to the open file, which the forked child shares: there is no moment without a holder.
    """
    alive = (folder / "alive").open("w")
    deadline = time.monotonic() + 2.0
    while not locks.locked(alive.fileno()):  # a poll holds it for a moment, a supervisor while it lives
        if time.monotonic() > deadline:
            print(f"{folder.name} already has a supervisor", file=sys.stderr)
            return 1
        time.sleep(0.01)
    if os.fork() == 0:
        lifetime.can_be_interrupted()
        try:
            supervise(folder)
        finally:
            _ticket(folder).unlink(missing_ok=True)
    return 0


def supervise(folder: Path) -> None:
    """Wait for the job's turn and its GPUs, run it, write the result."""
    spec = job.stored(folder)
    files = {name: Path(path) for name, path in job.read_json(folder / "job.json")["slots"].items()}
    with contextlib.ExitStack() as held:
        slots = _await_turn(folder, files, max(1, spec.gpus), held)
        _ticket(folder).unlink(missing_ok=True)
        if slots is None:
            Result(State.CANCELLED, "cancelled on request before it started").write(folder)
            return
        env, where = (locks.visible(list(slots)), f"GPU {','.join(slots)}") if spec.gpus else ({}, locks.CPU)
        env |= locks.telling(files[name].name for name in slots)
        run = Run(folder, (folder / "script.sh",), spec, where, env, tuple(slots.values()))
        run.to_its_end(lambda: job.cancelled(folder)).write(folder)
        for fd in slots.values():
            fcntl.flock(fd, fcntl.LOCK_UN)  # a descendant that escaped us may still have the file open


def _await_turn(
    folder: Path, files: Mapping[str, Path], number: int, held: contextlib.ExitStack
) -> dict[str, int] | None:
    """Wait until no earlier job waits and enough slots are free; returns slot -> lock file, None if cancelled.

    Only one job of the machine takes locks at a time, and of each queue the first: small jobs cannot starve one that
    needs all GPUs.
    """
    next_in_line = {"turn": next(iter(files.values())).with_name("turn")}
    with contextlib.ExitStack() as turn:
        ours = False
        while not (folder / "cancel").exists():
            ours = ours or (_first(folder) and bool(_take(next_in_line, 1, turn)))
            if ours and (slots := _take(files, number, held)):
                return slots
            time.sleep(WAIT_S)
    return None


def _first(folder: Path) -> bool:
    """True if every earlier ticket belongs to a supervisor that is gone."""
    earlier = (path for path in _ticket(folder).parent.iterdir() if path.name < folder.name)
    return not any(_alive(folder.parent / path.name) for path in earlier)


def _take(slots: Mapping[str, Path], number: int, held: contextlib.ExitStack) -> dict[str, int]:
    """Lock `number` free ones of some slots, or none.  A lock lives as long as `held` and every heir of the file."""
    with contextlib.ExitStack() as taken:
        found: dict[str, int] = {}
        for name, path in slots.items():
            file = taken.enter_context(locks.opened(path))
            if len(found) < number and locks.locked(file.fileno()):
                found[name] = file.fileno()
        if len(found) < number:
            return {}
        held.push(taken.pop_all())
    return found


if __name__ == "__main__":
    sys.exit(detach(Path(sys.argv[1])))
