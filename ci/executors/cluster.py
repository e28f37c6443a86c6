"""Jobs on a Slurm cluster: a folder that all nodes see, an array of shards, and a job that gathers what they published.

    ROOT/jobs/<id>/    job.json script.sh batch.sh gather.sh slurm.json cancel output-<shard> trials.jsonl result.json
    ROOT/jobs/<id>/shards/<k>/    see ci.executors.shard

How a job ended is what its result files say.  Slurm is asked only what is still waiting or running, and a row counts
only if it carries the job's token: Slurm gives the id of a job that it lost to another one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.shapes import Unfit, built
from ci.calling import INSTALLED, program
from ci.executors import gather, job
from ci.executors.job import Executor, ExecutorError, JobSpec, JobStatus, Result, State, stored
from ci.executors.shard import Attempt, Shard, shards_of
from ci.pools import drained
from ci.pools import file as pools_file
from ci.pools.command import wrapped
from ci.pools.file import NO_GPU, Container, Isolation, Pool, Pools, Site
from ci.slurm import NOT_BEGUN, Allocation, QueueRow, Slurm, SlurmError, batch, minutes, new_token, requeueing, seconds

START_S = 300.0
"""Seconds that a node may need before the command starts, beyond its own time: a container's image is pulled."""

GATHER_TIME = "30"
"""Minutes for the job that gathers: it reads files and records them; the first of a clone makes an environment."""


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
            return built(cls, job.read_json(folder / "slurm.json"))
        except (ExecutorError, OSError, Unfit):
            return cls("")

    def write(self, folder: Path) -> None:
        """Into the folder of its job."""
        job.write_json(folder / "slurm.json", dataclasses.asdict(self))


@dataclasses.dataclass(frozen=True)
class Scripts:
    """The two batch scripts of a job, as they are submitted."""

    shards: str
    gather: str


def scripts(spec: JobSpec, folder: Path, shards: Sequence[int] = ()) -> Scripts:
    """The batch scripts of a job (of some of its shards).  PoolsError, ExecutorError if the pool does not offer it."""
    pools, pool, site = _found(spec)
    size = pool.size(spec.gpus or None)
    # A job that is requeued must not come to another kind of machine.
    if "," in pool.partition:
        raise ExecutorError(f"partition {pool.partition!r} is several; a job is measured in one: make a pool of each")
    place = {"output": f"{folder}/output-%a.txt", "chdir": spec.cwd}
    tasks = tuple(shards) or tuple(range(spec.sharding.shards))
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
    # What a job writes to beside its workspace: its own folder, and that of drained nodes where all see it.
    needed = [folder, drained.folder_of(site)] if site.shared else [folder]

    def inside(pool: Pool, module: str, gpus: int, preflight: bool) -> str:
        argv, contained = ["python", *program(module), str(folder)], pool.container is not Container.NONE
        mounts = [f"{one}:{one}" for one in needed] if contained else []
        return wrapped(pool, argv, gpus, workspace=spec.cwd, mounts=mounts, setup=contained, preflight=preflight)

    no_gpu = dataclasses.replace(pool, gpu=NO_GPU, gpus=(0,), isolation=Isolation.WHOLE)
    return Scripts(
        batch(common, requeueing(folder / "shards", inside(pool, "ci.executors.shard", size, preflight=True))),
        batch(end, inside(no_gpu, "ci.executors.gather", 0, preflight=False)),
    )


class SlurmExecutor(Executor):
    """Jobs in the pools of ci/runners.toml that name a Slurm site."""

    poll_s = 2.0  # sites ask their users not to poll squeue all the time

    def __init__(self, root: Path, slurm: Slurm | None = None) -> None:
        super().__init__(root)
        self.slurm = slurm or Slurm()

    # ---- submitting ----

    def submit(self, script: str, spec: JobSpec) -> str:
        """Submit a job; returns its id.  PoolsError, or SlurmError if Slurm refuses it; its folder then says so."""
        folder, submitted = self.folder(job.new_id()), Submitted(new_token(spec.name))
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
        self._create(folder, script, spec, job={"executor": "slurm"}, slurm=dataclasses.asdict(submitted))
        try:
            self._sbatch(folder, texts, submitted, tuple(range(spec.sharding.shards)))
        except SlurmError as error:
            Result(State.FAILED, f"it was not submitted: {error}").write(folder)
            raise
        return folder.name

    def _sbatch(self, folder: Path, texts: Scripts, submitted: Submitted, shards: tuple[int, ...]) -> None:
        """Submit the shards and the job that gathers; both or none.  The folder has each id as soon as it is known.

        Without any shard only the gathering is missing.
        """
        (folder / "batch.sh").write_text(texts.shards)
        (folder / "gather.sh").write_text(texts.gather)
        array = self.slurm.sbatch(folder / "batch.sh", submitted.token) if shards else ""
        known = dataclasses.replace(submitted, array=array, shards=shards)
        known.write(folder)
        try:
            after = [f"--dependency=afterany:{array}"] if array else []
            end = self.slurm.sbatch(folder / "gather.sh", submitted.gather_token, after)
        except SlurmError:
            if array:
                self.slurm.scancel(array, submitted.token)
            raise
        dataclasses.replace(known, gather=end).write(folder)

    # ---- following ----

    def poll(self, ids: Sequence[str]) -> dict[str, JobStatus]:
        """The status of these jobs.  SlurmError while Slurm does not answer and a job has no result yet."""
        found = {name: job.said_of(self.folder(name), _log(self.folder(name))) for name in ids}
        open_ = {name: Submitted.of(self.folder(name)) for name, status in found.items() if not status.state.final}
        rows = self.slurm.squeue(sorted({i for one in open_.values() for i in (one.array, one.gather) if i}))
        asked = {name: self._place(self.folder(name), submitted, rows) for name, submitted in open_.items()}
        return found | {name: found[name].having(result) for name, result in asked.items()}

    def _place(self, folder: Path, submitted: Submitted, rows: Sequence[QueueRow]) -> Result:
        """Where a job without a result is."""
        if not submitted.token:
            return Result(State.LOST, f"{folder}/slurm.json is damaged: Slurm cannot be asked")
        spec = stored(folder)
        mine = [row for row in rows if row.array_id == submitted.array and row.is_ours(submitted.token)]
        last = [row for row in rows if row.array_id == submitted.gather and row.is_ours(submitted.gather_token)]
        results = {number: shard.result() for number, shard in shards_of(folder, spec).items()}
        result = judged(results, mine, last, (folder / "cancel").exists(), folder)
        return dataclasses.replace(result, why="; ".join(filter(None, (result.why, gather.requeued(folder, spec)))))

    # ---- ending and taking up again ----

    def cancel(self, name: str) -> None:
        """Ask the shards to end, by Slurm and by the folder that they look at, and gather what there is."""
        folder = self.folder(name)
        if (folder / "result.json").exists():
            return
        (folder / "cancel").touch()
        submitted = Submitted.of(folder)
        try:
            if submitted.array:
                self.slurm.scancel(submitted.array, submitted.token)
        except SlurmError as error:
            raise ExecutorError(f"{error}; the shards that run end by themselves, try again for the others") from error

    def _queue_again(self, folder: Path) -> None:
        """Submit the shards again that did not end well, and gather anew.  What they published stays."""
        spec = stored(folder)
        results = {number: shard.result() for number, shard in shards_of(folder, spec).items()}
        again = tuple(number for number, one in results.items() if one is None or one.state is not State.DONE)
        texts = scripts(spec, folder, again)
        for file in ("result.json", "cancel", *(f"shards/{number}/{NOT_BEGUN}" for number in again)):
            (folder / file).unlink(missing_ok=True)
        self._sbatch(folder, texts, Submitted(new_token(spec.name)), again)


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
    if waiting := [row.reason for row in shards if not row.ended]:
        why = _stuck(shards) or said or (f"Slurm: {waiting[0]}" if waiting[0] else "")
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


def _found(spec: JobSpec) -> tuple[Pools, Pool, Site]:
    """The pools that a job was submitted with, and its own.  PoolsError."""
    pools = pools_file.load(Path(spec.runners) if spec.runners else None)
    return (pools, *pools.on_slurm(spec.pool))


def _log(folder: Path) -> str:
    """The output of the command: of the newest attempt at the first shard that has one."""
    shards = (Shard(path) for path in sorted((folder / "shards").glob("[0-9]*")))
    logs = [str(Attempt(shard, shard.newest()).folder / "log") for shard in shards if shard.numbers()]
    return logs[0] if logs else str(folder / "output-end.txt")


def _time(pool: Pool, spec: JobSpec) -> str:
    """Slurm's limit: the command's own and what comes before and after it, within that of the pool."""
    wanted, limit = spec.timeout_s + spec.grace_s + START_S, seconds(pool.time_limit)
    if spec.timeout_s + spec.grace_s > limit:
        offered = f"pool {pool.name!r} allows ({pool.time_limit})"
        raise ExecutorError(f"{spec.timeout_s:g} s are more than {offered}; give a shorter --timeout")
    return minutes(min(wanted, limit))


def with_time_of_pool(spec: JobSpec) -> JobSpec:
    """The same job with all the time that its pool has, less that of the start and the end."""
    limit = seconds(_found(spec)[1].time_limit)
    return dataclasses.replace(spec, timeout_s=max(limit / 2, limit - START_S - spec.grace_s))
