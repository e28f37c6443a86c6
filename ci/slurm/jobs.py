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
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks import lifetime
from benchmarks.shapes import Unfit, built
from ci import INSTALLED, program
from ci.git.command import git_or_none
from ci.pools import file as pools_file
from ci.pools.command import wrapped
from ci.pools.file import NO_GPU, Container, Isolation, Pool, Pools
from ci.slurm.client import Slurm, SlurmError, batch_script, ranges
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

    @property
    def is_final(self) -> bool:
        """True for a state that only `resume` can leave."""
        return self not in (State.PENDING, State.RUNNING)


@dataclasses.dataclass(frozen=True)
class JobSpec:
    """A command and what it needs.  argv: for Python, such as ("-m", "ci", "run"), run in `cwd`.

    pool, runners: of ci/runners.toml or the file `runners`.  gpus: None for the pool's most.  time: Slurm's limit of a
    task, "" for the pool's.  commit: what HEAD of `cwd` must be when a task starts, "": anything.
    tasks: number of tasks.  publishes: the command appends lines to the file of --out, the last one that is given.
    resumes: it knows --resume.
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
    resumes: bool = False
    first_trial: int | None = None
    trials: int = 0
    out: str = ""
    finish: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w.+-]{1,60}", self.name):
            raise JobError(f"job name {self.name!r}: use 1 to 60 letters, digits, or . _ + -")
        if not 1 <= self.tasks <= MOST_TASKS:
            raise JobError(f"{self.tasks} tasks; ask for 1 to {MOST_TASKS}")

    def task_argv(self, task: int, out: Path) -> list[str]:
        """The command of one task, whose lines go to `out`."""
        argv = [*self.argv, *(["--out", str(out)] if self.publishes else []), *(["--resume"] if self.resumes else [])]
        if self.first_trial is not None:
            argv += ["--first-trial", str(self.first_trial + task * self.trials)]
        return argv


@dataclasses.dataclass(frozen=True)
class JobStatus:
    """Where a job is.  reason: why it waits, or what is missing and what to do.  where: its nodes."""

    id: str
    name: str
    state: State
    exit_code: int | None = None
    reason: str = ""
    where: str = ""
    ended_tasks: int = 0
    tasks: int = 1
    log: str = ""


# ---- the folder of a job ---------------------------------------------------------------------------------------------


def default_jobs() -> Path:
    """Where jobs live by default: below the root of the project that the current folder is in."""
    return project.place(".ridgeline/jobs")


def job_ids(jobs: Path) -> list[str]:
    """The ids of all jobs, oldest first."""
    return sorted(path.parent.name for path in jobs.glob("*/job.json"))


def read_spec(folder: Path) -> JobSpec:
    """What the job in a folder was submitted with.  JobError where there is none."""
    path = folder / "job.json"
    try:
        return built(JobSpec, json.loads(path.read_text()))
    except FileNotFoundError:
        raise JobError(f"no job {folder.name!r} under {folder.parent}; `ridgeline jobs list` lists them") from None
    except (ValueError, Unfit) as error:
        raise JobError(f"{path} is damaged: {error}; remove its folder to forget the job") from error


def ended_code(folder: Path, task: int) -> int | None:
    """The exit code of a task that came to its end, None for one that did not."""
    path = folder / f"ended-{task}"
    return int(path.read_text()) if path.exists() else None


def missing_tasks(folder: Path, spec: JobSpec) -> list[int]:
    """The tasks that did not come to their end."""
    return [task for task in range(spec.tasks) if ended_code(folder, task) is None]


def attempt_lines(folder: Path, task: int) -> list[bytes]:
    """The whole lines that all attempts at a task have written, each once, without newlines."""
    files = sorted(folder.glob(f"{task}-*.jsonl"), key=lambda path: path.stat().st_mtime)
    return list(dict.fromkeys(line for path in files for line in path.read_bytes().split(b"\n")[:-1]))


def resume_command(folder: Path) -> str:
    """The command that submits what is missing of a job; to be pasted."""
    jobs = "" if folder.parent.resolve() == default_jobs().resolve() else f"--queue {shlex.quote(str(folder.parent))} "
    return f"ridgeline jobs submit {jobs}--resume {folder.name}"


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


def pools_of(spec: JobSpec) -> Pools:
    """The pools that a job chooses from.  PoolsError."""
    return pools_file.load(Path(spec.runners) if spec.runners else None)


def scripts(spec: JobSpec, folder: Path, pools: Pools, tasks: Sequence[int] = ()) -> dict[str, str]:
    """The three scripts of a job (of some of its tasks), by file.  PoolsError, JobError if its pool offers no such."""
    pool, site = pools.on_slurm(spec.pool)
    if "," in pool.partition:  # a task that is requeued must not come to another kind of machine
        raise JobError(f"partition {pool.partition!r} is several; a job is measured in one: make a pool of each")
    size = pool.size(spec.gpus)
    # A job writes to its own folder beside its workspace.
    contained = pool.container is not Container.NONE
    mounts = [f"{folder}:{folder}"] if contained else []

    def inside(pool: Pool, program_of: str, gpus: int, preflight: bool) -> str:
        argv = ["python", *program("ci.slurm.jobs"), program_of, str(folder)]
        return wrapped(pool, argv, gpus, workspace=spec.cwd, mounts=mounts, setup=contained, preflight=preflight)

    name, array = PREFIX + folder.name, tasks or range(spec.tasks)
    no_gpu = dataclasses.replace(pool, gpu=NO_GPU, gpus=(0,), isolation=Isolation.WHOLE, exclusive=False)
    last = LAST.format(folder=shlex.quote(str(folder)), resume=resume_command(folder), incomplete=INCOMPLETE)
    batch = functools.partial(batch_script, site, name=name, chdir=spec.cwd)
    measuring, limit = inside(pool, "task", size, preflight=True), spec.time or pool.time_limit
    return {
        "tasks.sh": batch(pool, size, measuring, time=limit, output=f"{folder}/output-%a.txt", tasks=array),
        "last.sh": batch(no_gpu, 0, last, time=LAST_MINUTES, output=f"{folder}/output-last.txt"),
        "union.sh": inside(no_gpu, "last", 0, preflight=False),
    }


# ---- submit, follow, cancel, resume ----------------------------------------------------------------------------------


def submit(spec: JobSpec, jobs: Path, slurm: Slurm) -> str:
    """Submit a job; returns its id.  PoolsError, JobError; SlurmError if Slurm refuses it, and then nothing is left."""
    began = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%f")
    folder = jobs.resolve() / f"{began}-{spec.name}-{secrets.token_hex(2)}"
    pools = pools_of(spec)
    texts = scripts(spec, folder, pools)
    pool, site = pools.on_slurm(spec.pool)
    # Slurm cannot even write the output of a job whose folder the node does not see.
    if site.shared and not any(folder.is_relative_to(seen) for seen in (site.shared, Path.home())):
        raise JobError(f"the nodes of site {site.name!r} see {site.shared}, not {jobs}; clone and submit there")
    # Without a container the environment is the clone's own, which all tasks would make at once.
    if pool.container is Container.NONE and not pool.venv and not (Path(spec.cwd) / ".venv/bin/python").exists():
        step = "make it, with Ridgeline in it, or give the pool `venv`" if INSTALLED else "`make setup` first"
        raise JobError(f"{spec.cwd}/.venv is not there, and pool {pool.name!r} has no `venv`: {step}")
    try:
        folder.mkdir(parents=True)
        replace(folder / "job.json", json.dumps(dataclasses.asdict(spec), indent=1) + "\n")
    except OSError as error:
        raise JobError(f"cannot submit job {spec.name!r} from {jobs}: {error}") from error
    try:
        _sbatch(folder, texts, slurm)
    except SlurmError:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
        raise
    return folder.name


def _sbatch(folder: Path, texts: dict[str, str], slurm: Slurm, with_tasks: bool = True) -> None:
    """Submit the array, unless no task is missing, and the last job; both or none."""
    for name, text in texts.items():
        replace(folder / name, text)
    name, after = PREFIX + folder.name, []
    try:
        if with_tasks:
            after = [f"--dependency=afterany:{slurm.sbatch(folder / 'tasks.sh', name)}"]
        slurm.sbatch(folder / "last.sh", name, after)
    except SlurmError:  # the controller may have it all the same
        slurm.scancel(name)
        raise


def status(folder: Path, slurm: Slurm) -> JobStatus:
    """Where a job is.  JobError where there is none; SlurmError while Slurm does not answer and it has no result."""
    spec = read_spec(folder)
    ended = spec.tasks - len(missing_tasks(folder, spec))
    outputs = sorted(folder.glob("output-*.txt"))
    place = JobStatus(folder.name, spec.name, State.LOST, ended_tasks=ended, tasks=spec.tasks)
    place = dataclasses.replace(place, log=str(outputs[0]) if outputs else "")
    if ended_place := _ended(place, folder):
        return ended_place
    rows = [row for row in slurm.rows(PREFIX + folder.name) if not row.has_ended]
    if running := [row for row in rows if not row.is_waiting]:
        nodes = ",".join(sorted({row.nodes for row in running if row.nodes}))
        return dataclasses.replace(place, state=State.RUNNING, where=nodes)
    if rows:
        state, reason = State.RUNNING if ended else State.PENDING, rows[0].reason
        return dataclasses.replace(place, state=state, reason=f"Slurm: {reason}" if reason else "")
    if ended_place := _ended(place, folder):  # between the two questions
        return ended_place
    reason = f"Slurm does not know it; `{resume_command(folder)}` does what is missing"
    return dataclasses.replace(place, exit_code=INCOMPLETE, reason=reason)


def _ended(place: JobStatus, folder: Path) -> JobStatus | None:
    """The status with what the last job wrote, None before it did."""
    path = folder / "result.json"
    if not path.exists():
        return None
    result = json.loads(path.read_text())
    return dataclasses.replace(place, **result | {"state": State(result["state"])})


def write_result(folder: Path, state: State, exit_code: int, reason: str = "") -> None:
    """How a job ended."""
    replace(folder / "result.json", json.dumps({"state": state, "exit_code": exit_code, "reason": reason}) + "\n")


def cancel(folder: Path, slurm: Slurm) -> None:
    """End a job with everything it started and record what there is.  A job that has ended stays as it is."""
    spec = read_spec(folder)
    if (folder / "result.json").exists():
        return
    (folder / "cancel").touch()
    slurm.scancel(PREFIX + folder.name)  # the last job, too: its dependency may never be met
    _sbatch(folder, scripts(spec, folder, pools_of(spec)), slurm, with_tasks=False)


def resume(folder: Path, slurm: Slurm) -> None:
    """Submit what is missing of a job that has ended, under the same id.  JobError where nothing is to be done."""
    place = status(folder, slurm)
    if not place.state.is_final or place.state is State.DONE:
        raise JobError(f"job {folder.name} is {place.state}; only a job of which something is missing can be resumed")
    spec = read_spec(folder)
    missing = missing_tasks(folder, spec)
    texts = scripts(spec, folder, pools_of(spec), missing)
    for name in ("result.json", "cancel", "round"):
        (folder / name).unlink(missing_ok=True)
    _sbatch(folder, texts, slurm, with_tasks=bool(missing))


# ---- on the nodes ----------------------------------------------------------------------------------------------------


def run_task(folder: Path, task: int) -> int:
    """Run the task's command; its exit code, which is written down where the command came to its end."""
    spec = read_spec(folder)
    if moved := moved_commit(spec):
        print(moved, file=sys.stderr)
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


def moved_commit(spec: JobSpec) -> str:
    """A sentence if the clone is at another commit than when the job was submitted; "" where git cannot say."""
    head = git_or_none(Path(spec.cwd), "rev-parse", "HEAD") if spec.commit else None
    if not head or head == spec.commit:
        return ""
    was = f"{spec.cwd} is at {head[:8]}, and the job was submitted at {spec.commit[:8]}"
    return f"{was}; submit it again, from a worktree that stays as it is"


def end_job(folder: Path) -> int:
    """See `last` of the module; returns the job's exit code, 0 where tasks are submitted again."""
    spec, cancelled = read_spec(folder), (folder / "cancel").exists()
    missing = missing_tasks(folder, spec)
    rounds = int((folder / "round").read_text()) if (folder / "round").exists() else 0
    if missing and not cancelled and rounds < ROUNDS:
        replace(folder / "round", f"{rounds + 1}\n")
        replace(folder / "again", ranges(missing))
        print(f"tasks {ranges(missing)} are missing and are submitted again ({rounds + 1} of {ROUNDS} times)")
        return 0
    lines = list(dict.fromkeys(line for task in range(spec.tasks) for line in attempt_lines(folder, task)))
    replace(folder / "trials.jsonl", b"".join(line + b"\n" for line in lines))
    if spec.out and lines:
        append_new_lines(Path(spec.cwd) / spec.out, lines)
    code = max(ended_code(folder, task) or 0 for task in range(spec.tasks))
    if spec.finish and lines:
        print("+", " ".join(spec.finish), file=sys.stderr, flush=True)
        finish_code = _run(spec, [*spec.finish, str(folder / "trials.jsonl")])
        code = finish_code if "--replay" in spec.finish else finish_code or code  # a verdict on all trials
    if not missing:
        write_result(folder, State.DONE, code)
        return code
    times = "" if cancelled else f" after {rounds + 1} attempts"
    reason = f"tasks {ranges(missing)} of {spec.tasks} are missing{times}: `{resume_command(folder)}` measures them"
    write_result(folder, State.CANCELLED if cancelled else State.INCOMPLETE, INCOMPLETE, reason)
    print(reason, file=sys.stderr)
    return INCOMPLETE


def append_new_lines(path: Path, lines: Sequence[bytes]) -> None:
    """Append the lines that a trial file (`.jsonl`, `.jsonl.gz`) does not hold yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    content = path.read_bytes() if path.exists() else b""
    packed = path.suffix == ".gz"
    known = set((gzip.decompress(content) if packed and content else content).split(b"\n"))
    new = b"".join(line + b"\n" for line in lines if line not in known)
    with path.open("ab") as file:
        file.write(gzip.compress(new) if packed and new else new)


if __name__ == "__main__":
    _job = Path(sys.argv[2])
    _task = int(os.environ.get("SLURM_ARRAY_TASK_ID") or 0)
    sys.exit(end_job(_job) if sys.argv[1] == "last" else run_task(_job, _task))
