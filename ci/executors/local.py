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
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from ci.executors import job, locks
from ci.executors.scheduler import ExecutorError, JobSpec, JobStatus, State, new_id, take_up
from ci.whole_files import WriteError

PACKAGE = Path(__file__).resolve().parents[2]
"""The folder that holds the `ci` package this code belongs to: the supervisor runs the same one."""
WAIT_S = 0.2
"""Seconds after which a waiting job looks at the queue again."""


class LocalExecutor:
    """A :class:`~ci.executors.scheduler.Scheduler` for one machine.  gpus: those it may give to jobs (default: all)."""

    poll_s = 0.2

    def __init__(self, root: Path, gpus: Sequence[str] | None = None) -> None:
        self.root = root.resolve()
        self.gpus = list(locks.gpus() if gpus is None else gpus)

    def submit(self, script: str, spec: JobSpec) -> str:
        """Queue a script.  Raises ExecutorError if it wants more GPUs than there are, or nothing can be written."""
        if spec.gpus > len(self.gpus):
            raise ExecutorError(
                f"job {spec.name!r} wants {spec.gpus} GPUs; this machine offers {len(self.gpus)}"
                f" ({', '.join(self.gpus) or 'none'})"
            )
        name = new_id()
        try:
            folder = self._create(name, script, spec)
        except (OSError, WriteError) as error:
            raise ExecutorError(f"cannot queue job {spec.name!r} under {self.root}: {error}") from error
        self._supervise(folder)
        return name

    def _create(self, name: str, script: str, spec: JobSpec) -> Path:
        """Write the whole folder under another name first, so that a job is there completely or not at all."""
        folder, draft = self._folder(name), self.root / "drafts" / name
        for path in (draft, folder.parent, self.root / "queue"):
            path.mkdir(parents=True, exist_ok=True)
        (draft / "script.sh").write_text(script)
        described = {**dataclasses.asdict(spec), "env": dict(spec.env), "id": name}
        job.write_json(draft / "job.json", {**described, "slots": self._slots(spec), "submitted_at": job.now()})
        draft.rename(folder)
        return folder

    def _slots(self, spec: JobSpec) -> dict[str, str]:
        """What the job may be given, and the lock file of each, which is the same for all clones."""
        names = locks.identities(self.gpus) if spec.gpus else {locks.CPU: locks.CPU}
        return {name: str(locks.path(locks.folder(), device)) for name, device in names.items()}

    def _supervise(self, folder: Path) -> None:
        """Start the job's supervisor.  On return it holds the folder, so a poll never sees the job as lost.

        Without the token in its environment, a supervisor that is started inside another job does not belong to it.
        """
        (self.root / "queue" / folder.name).touch()
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

    def jobs(self) -> list[str]:
        """All ids, oldest first."""
        return sorted(path.name for path in (self.root / "jobs").glob("*"))

    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs, from their folders alone."""
        return {name: _status(self._folder(name)) for name in ids}

    def cancel(self, name: str) -> None:
        """Ask the supervisor to end the job; end it here if the supervisor is gone."""
        folder = self._known(name)
        if (folder / "result.json").exists():
            return
        (folder / "cancel").touch()
        if not _alive(folder):
            _clear(folder)
            (self.root / "queue" / name).unlink(missing_ok=True)
            job.write_result(folder, State.CANCELLED, "cancelled on request after its supervisor was lost", None)

    def resume(self, name: str) -> None:
        """Queue the job again and keep its log.  Whatever is left of the lost one is killed first."""
        folder = self._known(name)
        status = _status(folder)
        if not status.state.final or status.state is State.DONE:
            raise ExecutorError(f"job {name} is {status.state}; only a job that was lost or failed can be resumed")
        _clear(folder)
        for file in ("result.json", "started.json", "cancel"):
            (folder / file).unlink(missing_ok=True)
        self._supervise(folder)

    def _folder(self, name: str) -> Path:
        if name != os.path.basename(name) or name.startswith("."):
            raise ExecutorError(f"{name!r} is not a job id; `ridgeline jobs` lists them")
        return self.root / "jobs" / name

    def _known(self, name: str) -> Path:
        folder = self._folder(name)
        if not (folder / "job.json").is_file():
            raise ExecutorError(f"no job {name!r} under {self.root}; `ridgeline jobs` lists them")
        return folder


def _status(folder: Path) -> JobStatus:
    """Whether it is alive is asked before its result: a job that ends in between is seen as ended, never as lost."""
    alive = _alive(folder)
    spec, started, result = (_read(folder / f"{part}.json") for part in ("job", "started", "result"))
    if not spec:
        return JobStatus(folder.name, "", State.LOST, why="no such job here")
    where, started_at = started.get("where", ""), started.get("at", "")
    submitted_at, log = spec["submitted_at"], str(folder / "log")
    found = JobStatus(folder.name, spec["name"], State.PENDING, None, "", submitted_at, started_at, "", where, log)
    if result:
        ending = {key: result[key] for key in ("exit_code", "why", "ended_at")}
        return dataclasses.replace(found, state=State(result["state"]), **ending)
    if alive:
        return dataclasses.replace(found, state=State.RUNNING if started else State.PENDING)
    why = f"its supervisor is gone and left no result; `{take_up(folder)}` queues it again"
    return dataclasses.replace(found, state=State.LOST, why=why)


def _read(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except ValueError as error:
        raise ExecutorError(f"{path} is damaged: {error}; remove its folder to forget the job") from error
    if not isinstance(value, dict):
        raise ExecutorError(f"{path} is damaged: not an object; remove its folder to forget the job")
    return value


def _alive(folder: Path) -> bool:
    """True while a supervisor holds the folder; the operating system releases the lock however it dies."""
    try:
        with (folder / "alive").open("r") as file:
            return not locks.locked(file.fileno(), fcntl.LOCK_SH)
    except FileNotFoundError:
        return False


def _clear(folder: Path) -> None:
    """Kill what a job left running when its supervisor was lost."""
    token = _read(folder / "started.json").get("token")
    if token:
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
        supervise(folder)
    return 0


def supervise(folder: Path) -> None:
    """Wait for the job's turn and its GPUs, run it, write the result."""
    ticket = folder.parents[1] / "queue" / folder.name
    spec = _read(folder / "job.json")
    try:
        with contextlib.ExitStack() as held:
            slots = _await_turn(folder, spec, held)
            ticket.unlink(missing_ok=True)
            if slots is None:
                job.write_result(folder, State.CANCELLED, "cancelled on request before it started", None)
                return
            env, where = (locks.visible(list(slots)), f"GPU {','.join(slots)}") if spec["gpus"] else ({}, locks.CPU)
            env |= locks.telling(Path(spec["slots"][name]).name for name in slots)
            job.execute(folder, env, tuple(slots.values()), where)
            for fd in slots.values():
                fcntl.flock(fd, fcntl.LOCK_UN)  # a descendant that escaped us may still have the file open
    finally:
        ticket.unlink(missing_ok=True)


def _await_turn(folder: Path, spec: dict[str, Any], held: contextlib.ExitStack) -> dict[str, int] | None:
    """Wait until no earlier job waits and enough slots are free; returns slot -> lock file, None if cancelled.

    Only one job of the machine takes locks at a time, and of each queue the first: small jobs cannot starve one that
    needs all GPUs.
    """
    wanted = {name: Path(path) for name, path in spec["slots"].items()}
    next_in_line = {"turn": next(iter(wanted.values())).with_name("turn")}
    with contextlib.ExitStack() as turn:
        ours = False
        while not (folder / "cancel").exists():
            ours = ours or (_first(folder) and bool(_take(next_in_line, 1, turn)))
            if ours and (slots := _take(wanted, max(1, spec["gpus"]), held)):
                return slots
            time.sleep(WAIT_S)
    return None


def _first(folder: Path) -> bool:
    """True if every earlier ticket belongs to a supervisor that is gone."""
    earlier = (path for path in (folder.parents[1] / "queue").iterdir() if path.name < folder.name)
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
