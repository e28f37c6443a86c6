"""A job on a Slurm cluster: an array of tasks, and a last job that makes a union of what they measured.

    JOBS/<id>/    job.json   tasks.sh   last.sh   union.sh   output-<task>.txt   output-last.txt
                  <task>-<random>.jsonl: what one attempt at a task wrote
                  ended-<task>: the exit code of its command     round: how often tasks were submitted again
                  trials.jsonl: the union     cancel: somebody asked for the end     result.json: how it ended

A task appends whole lines to a file of its own attempt, and goes on where earlier attempts of it ended: whatever
becomes of its node, no line is lost, and a line that is there twice counts once.  The last job runs when all tasks are
over.  It submits those again that left no verdict, at most ROUNDS times, and then records the union.  Slurm is asked
where a job is, by its name; how it ended is in its folder.

``python -m ci.slurm.jobs task|last JOB`` is what the scripts run on the nodes.  task: one attempt at the task that
SLURM_ARRAY_TASK_ID names, in a file of its own: an older copy of it may still run on a node that Slurm has lost sight
of, and two writers of one file would tear each other's lines.  last: after the tasks, however they ended; running it
again changes nothing.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import functools
import gzip
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import lifetime
from benchmarks.shapes import Unfit, built
from ci import program
from ci.git.command import git_or_none
from ci.pools import file as pools_file
from ci.pools.command import wrapped
from ci.pools.file import NO_GPU, Container, Isolation, Pool, Site
from ci.slurm.client import Slurm, SlurmError, batch_script
from ci.whole_files import replace
from kernels import project

MOST_TASKS = 1000
"""Slurm's MaxArraySize is 1001 unless a site sets it (slurm.conf(5), 26.05): task ids go up to 1000."""
ROUNDS = 3
"""How often tasks that are missing are submitted again."""
VERDICTS = (0, 1, 2)
"""Exit codes of a command that came to its end; any other one is an error that another node may not have."""
INCOMPLETE = 3
"""Exit code of a job of which something is missing."""
LAST_MINUTES = "30"
"""For the last job: it reads files and records them; the first of a clone makes an environment."""
PREFIX = "rl-"
"""Of the names of our jobs in Slurm."""


class JobError(Exception):
    """A job cannot be submitted or found; the text says what to do."""


class State(enum.StrEnum):
    """Where a job is.  INCOMPLETE: something is missing.  LOST: Slurm does not know it, and it left no result."""

    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """A command and what it needs.  argv: for Python, such as ("-m", "ci", "run"), run in `cwd`.

    pool, runners: of ci/runners.toml or the file `runners`.  gpus: None for the pool's most.  time: Slurm's limit of a
    task, "" for the pool's.  commit: what HEAD of `cwd` must be when a task starts, "": anything.
    tasks: number of tasks.  publishes: the command appends lines to the file of --out, the last one that is given.
    first_trial, trials: task k measures `trials` of them from number first_trial + k * trials; None where they have no
    numbers.  out: a file that gets the lines in the end, "" for none.  finish: a command for Python that is run with
    the file of the union as its last argument, () for none.
    """

    name: str
    argv: tuple[str, ...]
    cwd: str
    pool: str
    runners: str = ""
    gpus: int | None = None
    time: str = ""
    commit: str = ""
    tasks: int = 1
    publishes: bool = False
    first_trial: int | None = None
    trials: int = 0
    out: str = ""
    finish: tuple[str, ...] = ()

    def task_argv(self, task: int, out: Path) -> list[str]:
        """The command of one task, whose lines go to `out`."""
        argv = [*self.argv, *(["--out", str(out)] if self.publishes else [])]
        if self.first_trial is not None:
            argv += ["--first-trial", str(self.first_trial + task * self.trials)]
        return argv


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """Where a job is.  reason: why it waits, or what is missing and what to do.  where: its nodes."""

    id: str
    state: State
    exit_code: int | None = None
    reason: str = ""
    where: str = ""
    ended_tasks: int = 0
    tasks: int = 1
    log: str = ""

    @property
    def is_final(self) -> bool:
        """True for a state that only `resume` can leave."""
        return self.state not in (State.PENDING, State.RUNNING)


# ---- the folder of a job ---------------------------------------------------------------------------------------------


def default_jobs() -> Path:
    """Where jobs live by default: below the root of the project that the current folder is in."""
    return project.place(".ridgeline/jobs")


def job_ids(jobs: Path) -> list[str]:
    """The ids of all jobs, oldest first."""
    return sorted(path.parent.name for path in jobs.glob("*/job.json"))


def read_spec(folder: Path) -> JobSpec:
    """What the job in a folder was submitted with."""
    path = folder / "job.json"
    try:
        return built(JobSpec, json.loads(path.read_text()))
    except (ValueError, Unfit) as error:
        raise JobError(f"{path} is damaged: {error}; remove its folder to forget the job") from error


def ended_code(folder: Path, task: int) -> int | None:
    """The exit code of a task that came to its end, None for one that did not."""
    path = folder / f"ended-{task}"
    return int(path.read_text()) if path.exists() else None


def missing_tasks(folder: Path, spec: JobSpec) -> list[int]:
    """The tasks that did not come to their end."""
    return [task for task in range(spec.tasks) if ended_code(folder, task) is None]


def task_list(tasks: Sequence[int]) -> str:
    """Tasks as --array takes them."""
    return ",".join(map(str, tasks))


def attempt_lines(folder: Path, task: int) -> list[bytes]:
    """The whole lines that all attempts at a task have written, each once, without newlines."""
    files = sorted(folder.glob(f"{task}-*.jsonl"), key=lambda path: path.stat().st_mtime)
    return list(dict.fromkeys(line for path in files for line in path.read_bytes().split(b"\n")[:-1]))


def resume_command(folder: Path) -> str:
    """The command that submits what is missing of a job; to be pasted."""
    return f"ridgeline jobs submit --queue {shlex.quote(str(folder.parent))} --resume {folder.name}"


# ---- scripts ---------------------------------------------------------------------------------------------------------

LAST = """\
job={folder}
rm -f "$job/again"
bash "$job/union.sh"
code=$?
[ -s "$job/again" ] || exit "$code"
# The controller may be away; a job that is submitted twice does no harm.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  tasks=$(sbatch --parsable --array="$(cat "$job/again")" "$job/tasks.sh") &&
    sbatch --dependency="afterany:${{tasks%%;*}}" "$job/last.sh" && exit 0
  sleep 10
done
echo "ridgeline: Slurm did not take what is missing; '{resume}' submits it" >&2
exit {incomplete}
"""
"""The body of the last job, outside of any container: Slurm's commands are there."""


def pool_of(spec: JobSpec) -> tuple[Pool, Site]:
    """Where a job is to run.  PoolsError."""
    return pools_file.load(Path(spec.runners) if spec.runners else None).on_slurm(spec.pool)


def scripts(spec: JobSpec, folder: Path) -> dict[str, str]:
    """The three scripts of a job, by file.  PoolsError."""
    pool, site = pool_of(spec)
    size = pool.size(spec.gpus)

    def inside(pool: Pool, program_of: str, gpus: int, preflight: bool) -> str:
        return wrapped(
            pool,
            ["python", *program("ci.slurm.jobs"), program_of, str(folder)],
            gpus,
            workspace=spec.cwd,
            mounts=[f"{folder}:{folder}"],  # a job writes to its own folder beside its workspace
            setup=pool.container is not Container.NONE,
            preflight=preflight,
        )

    no_gpu = dataclasses.replace(pool, gpu=NO_GPU, gpus=(0,), isolation=Isolation.WHOLE, exclusive=False)
    last = LAST.format(folder=shlex.quote(str(folder)), resume=resume_command(folder), incomplete=INCOMPLETE)
    batch = functools.partial(batch_script, site, name=PREFIX + folder.name, chdir=spec.cwd)
    measuring, limit = inside(pool, "task", size, preflight=True), spec.time or pool.time_limit
    array = f"0-{spec.tasks - 1}"
    return {
        "tasks.sh": batch(pool, size, measuring, time=limit, output=f"{folder}/output-%a.txt", array=array),
        "last.sh": batch(no_gpu, 0, last, time=LAST_MINUTES, output=f"{folder}/output-last.txt"),
        "union.sh": inside(no_gpu, "last", 0, preflight=False),
    }


# ---- submit, follow, cancel, resume ----------------------------------------------------------------------------------


def submit(spec: JobSpec, jobs: Path, slurm: Slurm) -> str:
    """Submit a job; returns its id.  PoolsError, JobError; SlurmError if Slurm refuses it, and then nothing is left."""
    began = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    folder = jobs.resolve() / f"{began}-{spec.name}-{secrets.token_hex(2)}"
    pool, site = pool_of(spec)
    # Slurm cannot even write the output of a job whose folder the node does not see.
    if site.shared and not any(folder.is_relative_to(seen) for seen in (site.shared, Path.home())):
        raise JobError(f"the nodes of site {site.name!r} see {site.shared}, not {jobs}; clone and submit there")
    # Without a container the environment is the clone's own, which all tasks would make at once.
    if pool.container is Container.NONE and not pool.venv and not (Path(spec.cwd) / ".venv/bin/python").exists():
        raise JobError(
            f"{spec.cwd}/.venv is not there, and pool {pool.name!r} has no `venv`: make it, with Ridgeline in it "
            "(in a clone of Ridgeline: `make setup`), or give the pool `venv`"
        )
    folder.mkdir(parents=True)
    try:
        replace(folder / "job.json", json.dumps(dataclasses.asdict(spec), indent=1) + "\n")
        _sbatch(folder, spec, range(spec.tasks), slurm)
    except Exception:
        shutil.rmtree(folder)
        raise
    return folder.name


def _sbatch(folder: Path, spec: JobSpec, tasks: Sequence[int], slurm: Slurm) -> None:
    """Submit an array of these tasks, if any, and the last job; both or none."""
    for file, text in scripts(spec, folder).items():
        replace(folder / file, text)
    name, after = PREFIX + folder.name, []
    try:
        if tasks:
            array = slurm.sbatch(folder / "tasks.sh", name, [f"--array={task_list(tasks)}"])
            after = [f"--dependency=afterany:{array}"]
        slurm.sbatch(folder / "last.sh", name, after)
    except SlurmError:  # the controller may have it all the same
        slurm.scancel(name)
        raise


def status(folder: Path, slurm: Slurm) -> JobStatus:
    """Where a job is.  JobError where there is none; SlurmError while Slurm does not answer and it has no result."""
    spec = read_spec(folder)
    ended = spec.tasks - len(missing_tasks(folder, spec))
    log = next(map(str, sorted(folder.glob("output-*.txt"))), "")
    known = functools.partial(JobStatus, folder.name, ended_tasks=ended, tasks=spec.tasks, log=log)
    if result := read_result(folder):
        return known(**result)
    if rows := [row for row in slurm.rows(PREFIX + folder.name) if not row.has_ended]:
        running = [row for row in rows if not row.is_waiting]
        state = State.RUNNING if running or ended else State.PENDING
        reason = "" if running or not rows[0].reason else f"Slurm: {rows[0].reason}"
        return known(state, reason=reason, where=",".join(sorted({row.nodes for row in running})))
    if result := read_result(folder):  # it came between the two questions
        return known(**result)
    reason = f"Slurm does not know it; `{resume_command(folder)}` does what is missing"
    return known(State.LOST, INCOMPLETE, reason)


def read_result(folder: Path) -> dict[str, Any]:
    """How a job ended, as fields of its status; {} before its last job wrote that."""
    path = folder / "result.json"
    fields = json.loads(path.read_text()) if path.exists() else {}
    return fields | {"state": State(fields["state"])} if fields else {}


def cancel(folder: Path, slurm: Slurm) -> None:
    """End a job with everything it started and record what there is.  A job that has ended stays as it is."""
    spec = read_spec(folder)
    if not read_result(folder):
        (folder / "cancel").touch()
        slurm.scancel(PREFIX + folder.name)  # the last job, too: its dependency may never be met
        _sbatch(folder, spec, (), slurm)


def resume(folder: Path, slurm: Slurm) -> None:
    """Submit what is missing of a job that has ended, under the same id.  JobError where nothing is to be done."""
    job = status(folder, slurm)
    if not job.is_final or job.state == State.DONE:
        raise JobError(f"job {folder.name} is {job.state}; only a job of which something is missing can be resumed")
    for name in ("result.json", "cancel", "round"):
        (folder / name).unlink(missing_ok=True)
    spec = read_spec(folder)
    _sbatch(folder, spec, missing_tasks(folder, spec), slurm)


# ---- on the nodes ----------------------------------------------------------------------------------------------------


def run_task(folder: Path, task: int) -> int:
    """Run the task's command; its exit code, which is written down where the command came to its end."""
    spec = read_spec(folder)
    if (folder / "cancel").exists():  # its submission and scancel crossed each other
        return INCOMPLETE
    head = git_or_none(Path(spec.cwd), "rev-parse", "HEAD")
    if spec.commit and head not in (None, spec.commit):
        moved = f"{spec.cwd} is at {head}, and the job was submitted at {spec.commit}"
        print(f"{moved}; submit it again, from a worktree that stays as it is", file=sys.stderr)
        return INCOMPLETE
    known = b"".join(line + b"\n" for line in attempt_lines(folder, task))
    handle, out = tempfile.mkstemp(prefix=f"{task}-", suffix=".jsonl", dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(known)
    code = _run(spec, spec.task_argv(task, Path(out)))
    if code in VERDICTS:
        replace(folder / f"ended-{task}", f"{code}\n")
    return code


def _run(spec: JobSpec, words: Sequence[str]) -> int:
    """The exit code of a command for Python, in the job's clone."""
    return subprocess.run([sys.executable, *words], cwd=spec.cwd, env=lifetime.told(os.environ), check=False).returncode


def end_job(folder: Path) -> int:
    """See `last` of the module; returns the job's exit code, 0 where tasks are submitted again."""
    spec, is_cancelled = read_spec(folder), (folder / "cancel").exists()
    missing = missing_tasks(folder, spec)
    rounds = int((folder / "round").read_text()) if (folder / "round").exists() else 0
    if missing and not is_cancelled and rounds < ROUNDS:
        replace(folder / "round", f"{rounds + 1}\n")
        replace(folder / "again", task_list(missing))
        print(f"tasks {task_list(missing)} are missing and are submitted again ({rounds + 1} of {ROUNDS} times)")
        return 0
    lines = list(dict.fromkeys(line for task in range(spec.tasks) for line in attempt_lines(folder, task)))
    replace(folder / "trials.jsonl", b"".join(line + b"\n" for line in lines))
    if spec.out and lines:
        append_new_lines(Path(spec.cwd) / spec.out, lines)
    code = max(ended_code(folder, task) or 0 for task in range(spec.tasks))
    if spec.finish and lines:
        finish_code = _run(spec, [*spec.finish, str(folder / "trials.jsonl")])
        code = finish_code if "--replay" in spec.finish else finish_code or code  # a verdict on all trials
    state, reason = State.DONE, ""
    if missing:
        state, code = State.CANCELLED if is_cancelled else State.INCOMPLETE, INCOMPLETE
        reason = f"{len(missing)} of {spec.tasks} tasks are missing: `{resume_command(folder)}` measures them"
    replace(folder / "result.json", json.dumps({"state": state, "exit_code": code, "reason": reason}) + "\n")
    return code


def append_new_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append the lines that a trial file (`.jsonl`, `.jsonl.gz`) does not hold yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content, is_packed = path.read_bytes() if path.exists() else b"", path.suffix == ".gz"
    known = set((gzip.decompress(content) if is_packed else content).split(b"\n"))
    new = b"".join(line + b"\n" for line in lines if line not in known)
    with path.open("ab") as file:
        file.write(gzip.compress(new) if is_packed else new)


if __name__ == "__main__":
    _job = Path(sys.argv[2])
    sys.exit(end_job(_job) if sys.argv[1] == "last" else run_task(_job, int(os.environ["SLURM_ARRAY_TASK_ID"])))
