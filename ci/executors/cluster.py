"""Jobs on a Slurm cluster: a folder that all nodes see, an array of shards, and a job that gathers what they published.

    ROOT/jobs/<id>/    job.json script.sh batch.sh gather.sh slurm.json cancel output-<shard> trials.jsonl result.json
    ROOT/jobs/<id>/shards/<k>/    see ci.executors.attempt

How a job ended is what its result files say.  Slurm is asked only what is still waiting or running, and a row counts
only if it carries the job's token: Slurm gives the id of a job that it lost to another one.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ci.calling import INSTALLED, program
from ci.executors import gather, job
from ci.executors.job import Result
from ci.executors.scheduler import ExecutorError, JobSpec, JobStatus, State, executor_of, new_id, stored
from ci.pools import drained
from ci.pools import file as pools_file
from ci.pools.command import wrapped
from ci.pools.types import NO_GPU, Container, Isolation, Pool, Pools, PoolsError, Site
from ci.slurm import NOT_BEGUN, Allocation, QueueRow, Slurm, SlurmError, batch, minutes, new_token, requeueing, seconds
from ci.whole_files import WriteError

EXECUTOR = "slurm"

START_S = 300.0
"""Seconds that a node may need before the command starts, beyond its own time: a container's image is pulled."""

GATHER_TIME = "30"
"""Minutes for the job that gathers: it reads files and records them; the first of a clone makes an environment."""

ASK_S = 2.0
"""Seconds for which the queue's answer is used again: sites ask their users not to poll squeue all the time."""


@dataclasses.dataclass(frozen=True)
class Submitted:
    """What slurm.json holds: our token and the ids that sbatch printed, "" before it did.  shards: those submitted."""

    token: str
    array: str = ""
    gather: str = ""
    shards: tuple[int, ...] = ()

    @property
    def gather_token(self) -> str:
        """The token of the job that gathers."""
        return f"{self.token}-end"

    @classmethod
    def of(cls, folder: Path) -> Submitted:
        """As written.  A file that is damaged makes one job unknown to Slurm, and hides no other job."""
        try:
            value = json.loads((folder / "slurm.json").read_text())
            return cls(value["token"], value["array"], value["gather"], tuple(value["shards"]))
        except (OSError, ValueError, KeyError, TypeError):
            return cls("")


@dataclasses.dataclass(frozen=True)
class Scripts:
    """The two batch scripts of a job, as they are submitted."""

    shards: str
    gather: str


def scripts(spec: JobSpec, folder: Path, shards: Sequence[int] = ()) -> Scripts:
    """The batch scripts of a job (of some of its shards).  ExecutorError for what the pool does not offer."""
    pools, pool, site = _found(spec)
    size = _size(pool, spec)
    tasks = tuple(shards) or tuple(range(spec.sharding.shards))
    # A job that is requeued must not come to another kind of machine.
    if "," in pool.partition:
        raise ExecutorError(f"partition {pool.partition!r} is several; a job is measured in one: make a pool of each")
    place = {"output": f"{folder}/output-%a.txt", "chdir": spec.cwd}
    common = Allocation.of_pool(pools, pool, size, time=_time(pool, spec), shards=tasks, **place)
    end = dataclasses.replace(
        common,
        time=GATHER_TIME,
        output=f"{folder}/output-end.txt",
        gres="",
        exclusive=False,
        requeue=False,  # two copies at once would append twice
        shards=(),
    )

    def inside(pool: Pool, module: str, gpus: int, preflight: bool) -> str:
        argv, contained = ["python", *program(module), str(folder)], pool.container is not Container.NONE
        mounts = [f"{one}:{one}" for one in _needed(folder, site)] if contained else []
        return wrapped(pool, argv, gpus, workspace=spec.cwd, mounts=mounts, setup=contained, preflight=preflight)

    return Scripts(
        batch(common, requeueing(folder / "shards", inside(pool, "ci.executors.shard", size, preflight=True))),
        batch(end, inside(_without_gpus(pool), "ci.executors.gather", 0, preflight=False)),
    )


def _needed(folder: Path, site: Site) -> list[Path]:
    """Folders that a job writes to beside its workspace: its own, and that of drained nodes where all see it."""
    return [folder, drained.folder_of(site)] if site.shared else [folder]


class SlurmExecutor:
    """A :class:`~ci.executors.scheduler.Scheduler` for the pools of ci/runners.toml that name a Slurm site."""

    poll_s = 1.0

    def __init__(self, root: Path, slurm: Slurm | None = None, ask_s: float = ASK_S) -> None:
        self.root, self._ask_s = root.resolve(), ask_s
        self.slurm = slurm or Slurm()
        self._rows: tuple[float, frozenset[str], list[QueueRow]] = (0.0, frozenset(), [])

    # ---- submitting ----

    def submit(self, script: str, spec: JobSpec) -> str:
        """Submit a job; returns its id.  ExecutorError if the pool or Slurm refuses it; its folder then says so."""
        name = new_id()
        folder, submitted = self.root / "jobs" / name, Submitted(new_token(spec.name))
        texts = scripts(spec, folder)
        _, pool, site = _found(spec)
        # Slurm cannot even write the output of a job whose folder the node does not see.
        if site.shared and not any(self.root.is_relative_to(seen) for seen in (site.shared, Path.home())):
            raise ExecutorError(
                f"the nodes of site {site.name!r} see {site.shared}, not {self.root}; clone and submit there"
            )
        # Without a container the environment is the clone's own, which all shards would make at once.
        if pool.container is Container.NONE and not pool.venv and not (Path(spec.cwd) / ".venv/bin/python").exists():
            step = "make it, with Ridgeline in it, or give the pool `venv`" if INSTALLED else "`make setup` first"
            raise ExecutorError(f"{spec.cwd}/.venv is not there, and pool {pool.name!r} has no `venv`: {step}")
        if site.shared:
            drained.folder_of(site).mkdir(parents=True, exist_ok=True)  # it is mounted into containers
        self._write(folder, script, spec, submitted)
        try:
            self._sbatch(folder, texts, submitted, tuple(range(spec.sharding.shards)))
        except ExecutorError as error:
            job.write_result(folder, State.FAILED, f"it was not submitted: {error}", None)
            raise
        return name

    def _write(self, folder: Path, script: str, spec: JobSpec, submitted: Submitted) -> None:
        """Write the whole folder under another name first, so that a job is there completely or not at all."""
        draft = self.root / "drafts" / folder.name
        try:
            draft.mkdir(parents=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            (draft / "script.sh").write_text(script)
            facts = {"id": folder.name, "executor": EXECUTOR, "submitted_at": job.now()}
            job.write_json(draft / "job.json", {**dataclasses.asdict(spec), **facts})
            job.write_json(draft / "slurm.json", dataclasses.asdict(submitted))
            draft.rename(folder)
        except (OSError, WriteError) as error:
            raise ExecutorError(f"cannot write job {spec.name!r} under {self.root}: {error}") from error

    def _sbatch(self, folder: Path, texts: Scripts, submitted: Submitted, shards: tuple[int, ...]) -> None:
        """Submit the shards and the job that gathers; both or none.  The folder has each id as soon as it is known.

        Without any shard only the gathering is missing.
        """
        (folder / "batch.sh").write_text(texts.shards)
        (folder / "gather.sh").write_text(texts.gather)
        try:
            array = self.slurm.sbatch(folder / "batch.sh", submitted.token) if shards else ""
        except SlurmError as error:
            raise ExecutorError(str(error)) from error
        known = dataclasses.replace(submitted, array=array, shards=shards)
        job.write_json(folder / "slurm.json", dataclasses.asdict(known))
        try:
            after = [f"--dependency=afterany:{array}"] if array else []
            end = self.slurm.sbatch(folder / "gather.sh", submitted.gather_token, after)
        except SlurmError as error:
            if array:
                self.slurm.scancel(array, submitted.token)
            raise ExecutorError(str(error)) from error
        job.write_json(folder / "slurm.json", dataclasses.asdict(dataclasses.replace(known, gather=end)))

    # ---- following ----

    def jobs(self) -> list[str]:
        """All ids, oldest first."""
        return sorted(path.name for path in (self.root / "jobs").glob("*") if executor_of(path) == EXECUTOR)

    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs.  ExecutorError while Slurm does not answer and a job has no result yet."""
        folders = {name: self.root / "jobs" / name for name in ids}
        open_ = {name: Submitted.of(folder) for name, folder in folders.items() if _unfinished(folder)}
        rows = self._queue(sorted({i for one in open_.values() for i in (one.array, one.gather) if i}))
        return {name: self._status(folder, open_.get(name), rows) for name, folder in folders.items()}

    def _status(self, folder: Path, submitted: Submitted | None, rows: Sequence[QueueRow]) -> JobStatus:
        if not (folder / "job.json").is_file():
            return JobStatus(folder.name, "", State.LOST, why="no such job here")
        spec = stored(folder)
        facts = json.loads((folder / "job.json").read_text())
        found = JobStatus(folder.name, spec.name, State.PENDING, submitted_at=facts["submitted_at"], log=_log(folder))
        if submitted is None:
            return _with(found, _result(folder))
        if not submitted.token:
            return _with(found, Result(State.LOST, f"{folder}/slurm.json is damaged: Slurm cannot be asked"))
        mine = [row for row in rows if row.array_id == submitted.array and row.is_ours(submitted.token)]
        last = [row for row in rows if row.array_id == submitted.gather and row.is_ours(submitted.gather_token)]
        results = {number: shard.result() for number, shard in enumerate(gather.shards(folder, spec))}
        result = judged(results, mine, last, (folder / "cancel").exists(), folder)
        why = "; ".join(filter(None, (result.why, gather.requeued(folder, spec))))
        return _with(found, dataclasses.replace(result, why=why))

    def _queue(self, ids: Sequence[str]) -> list[QueueRow]:
        if not ids:
            return []
        at, of, rows = self._rows
        if time.monotonic() - at > self._ask_s or not of >= set(ids):
            try:
                rows = self.slurm.squeue(ids)
            except SlurmError as error:
                raise ExecutorError(str(error)) from error
            self._rows = (time.monotonic(), frozenset(ids), rows)
        return rows

    # ---- ending and taking up again ----

    def cancel(self, name: str) -> None:
        """Ask the shards to end, by Slurm and by the folder that they look at, and gather what there is."""
        folder = self._known(name)
        if not _unfinished(folder):
            return
        (folder / "cancel").touch()
        submitted = Submitted.of(folder)
        try:
            if submitted.array:
                self.slurm.scancel(submitted.array, submitted.token)
        except SlurmError as error:
            raise ExecutorError(f"{error}; the shards that run end by themselves, try again for the others") from error

    def resume(self, name: str) -> None:
        """Submit the shards again that did not end well, and gather anew.  What they published stays."""
        folder = self._known(name)
        status = self.poll([name])[name]
        if not status.state.final or status.state is State.DONE:
            raise ExecutorError(f"job {name} is {status.state}; only a job that was lost or failed can be resumed")
        spec = stored(folder)
        again = tuple(
            number
            for number, shard in enumerate(gather.shards(folder, spec))
            if (result := shard.result()) is None or result.state is not State.DONE
        )
        texts = scripts(spec, folder, again)
        for file in ("result.json", "cancel"):
            (folder / file).unlink(missing_ok=True)
        for number in again:
            (folder / f"shards/{number}" / NOT_BEGUN).unlink(missing_ok=True)
        self._rows = (0.0, frozenset(), [])
        self._sbatch(folder, texts, Submitted(new_token(spec.name)), again)

    def _known(self, name: str) -> Path:
        folder = self.root / "jobs" / name
        if executor_of(folder) != EXECUTOR:
            raise ExecutorError(f"no job {name!r} under {self.root}; `ridgeline jobs` lists them")
        return folder


def judged(
    results: Mapping[int, Result | None],
    shards: Sequence[QueueRow],
    last: Sequence[QueueRow],
    cancelled: bool,
    folder: Path,
) -> Result:
    """Where the job in `folder` is that has not been gathered: by its shards' results and its rows in the queue.

    A shard whose row has not ended will have another result, whatever it has now: it was requeued.
    """
    ended = sum(result is not None for result in results.values())
    said = f"{ended} of {len(results)} shards have ended" if len(results) > 1 else ""
    if any(not row.ended and not row.waiting for row in shards):
        return Result(State.RUNNING, said, where=",".join(sorted({row.nodes for row in shards if row.nodes})))
    if any(not row.ended for row in shards):
        reason = next(row.reason for row in shards if not row.ended)
        why = _stuck(shards) or said or (f"Slurm: {reason}" if reason else "")
        return Result(State.RUNNING if ended else State.PENDING, why)
    if any(not row.ended for row in last):
        return Result(State.RUNNING, "all shards have ended; their lines are gathered")
    found, why = gather.ending(results, cancelled, folder), "its lines were not put together"
    if found.state is State.DONE:
        return gather.lost(folder, why)
    return dataclasses.replace(found, why=f"{found.why}; {why}")


def _stuck(rows: Sequence[QueueRow]) -> str:
    """Why a shard waits for ever, "" if none does."""
    reason = next((row.reason for row in rows if row.hopeless), "")
    return (
        f"Slurm: {reason}, which no waiting mends; cancel it and correct its pool in ci/runners.toml" if reason else ""
    )


def pools_of(spec: JobSpec) -> Pools:
    """The pools that a job was submitted with.  PoolsError."""
    return pools_file.load(Path(spec.runners) if spec.runners else None)


def _found(spec: JobSpec) -> tuple[Pools, Pool, Site]:
    try:
        pools = pools_of(spec)
        return (pools, *pools.on_slurm(spec.pool))
    except PoolsError as error:
        raise ExecutorError(str(error)) from error


def _size(pool: Pool, spec: JobSpec) -> int:
    try:
        return pool.size(spec.gpus or None)
    except PoolsError as error:
        raise ExecutorError(str(error)) from error


def _unfinished(folder: Path) -> bool:
    return (folder / "job.json").is_file() and not (folder / "result.json").exists()


def _result(folder: Path) -> Result:
    try:
        return Result.of(json.loads((folder / "result.json").read_text()))
    except (ValueError, KeyError) as error:
        raise ExecutorError(f"{folder}/result.json is damaged: {error}; remove it, and gather again") from error


def _with(status: JobStatus, result: Result) -> JobStatus:
    values = {field.name: getattr(result, field.name) for field in dataclasses.fields(Result)}
    return dataclasses.replace(status, **values)


def _log(folder: Path) -> str:
    """The output of the command: of the newest attempt at the first shard that has one."""
    logs = [gather.newest_log(path) for path in sorted((folder / "shards").glob("[0-9]*"))]
    return next((str(log) for log in logs if log), str(folder / "output-end.txt"))


def _time(pool: Pool, spec: JobSpec) -> str:
    """Slurm's limit: the command's own and what comes before and after it, within that of the pool."""
    wanted, limit = spec.timeout_s + spec.grace_s + START_S, seconds(pool.time_limit)
    if spec.timeout_s + spec.grace_s > limit:
        offered = f"pool {pool.name!r} allows ({pool.time_limit})"
        raise ExecutorError(f"{spec.timeout_s:g} s are more than {offered}; give a shorter --timeout")
    return minutes(min(wanted, limit))


def _without_gpus(pool: Pool) -> Pool:
    """The same environment for a job that needs no GPU."""
    return dataclasses.replace(pool, gpu=NO_GPU, gpus=(0,), isolation=Isolation.WHOLE)


def with_time_of_pool(spec: JobSpec) -> JobSpec:
    """The same job with all the time that its pool has, less that of the start and the end."""
    limit = seconds(_found(spec)[1].time_limit)
    return dataclasses.replace(spec, timeout_s=max(limit / 2, limit - START_S - spec.grace_s))
