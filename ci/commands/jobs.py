"""`ridgeline jobs`: commands of ours on a Slurm cluster.

The command inside a job is checked before it is submitted: a job that waits for hours must not die of a typing error.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ci import VERBS
from ci.commands.measuring import here
from ci.git.command import GitError
from ci.options import DRY_RUN, FOLDER, JSON, PASS, THERE, USAGE, Given, flag, option, print_json, verb
from ci.report.words import plain
from ci.slurm import jobs as slurm_jobs
from ci.slurm.client import Slurm
from ci.slurm.jobs import JobSpec, JobStatus, State

NO_JOBS = {"jobs", "submit", "cancel", "runner"}
"""Verbs that deal with jobs and are none."""

POLL_S = 2.0
"""Seconds between two looks while waiting: sites ask their users not to poll squeue all the time."""


@dataclasses.dataclass(frozen=True)
class InnerCommand:
    """A command of ours: the last word of its verb, all arguments with the verb first, the values of its options."""

    verb: str
    arguments: tuple[str, ...]
    values: Mapping[str, Any]


def parsed(arguments: Sequence[str]) -> InnerCommand:
    """The command, parsed as it will be when it runs.  Raises the usage error that it would end with."""
    context = click.get_current_context().find_root()
    group = context.command
    assert isinstance(group, click.Group)
    name, command, rest = group.resolve_command(context, [*arguments])
    if not (command and name) or isinstance(command, click.Group) or NO_JOBS & {*name.split()}:
        raise click.UsageError(f"{name!r} is not a verb that can be a job; after -- comes one such as run or ab")
    with command.make_context(name, list(rest), parent=click.Context(group, info_name="ridgeline")) as inner:
        return InnerCommand(name.split()[-1], (*name.split(), *rest), dict(inner.params))


def job_spec(command: InnerCommand, given: Given) -> JobSpec:
    """What the command needs as a job of `given.tasks` tasks.

    `run` without --out is recorded in the end, as it would be here; tasks of `ab` are judged together.
    """
    values, tasks = command.values, given.tasks
    if tasks > 1 and command.verb not in ("run", "ab"):
        raise click.UsageError(f"--array {tasks}: {command.verb!r} cannot be split; `run` and `ab` can")
    return JobSpec(
        name=command.verb,
        argv=(*VERBS, *command.arguments, *(["--resume"] if "resume" in values else [])),
        cwd=str(Path.cwd()),
        pool=given.pool,
        runners=str(given.runners.resolve()) if given.runners else "",
        gpus=given.gpus,
        time=given.time,
        commit=measured_commit(command),
        tasks=tasks,
        publishes="out" in values,
        first_trial=values.get("first_trial"),
        trials=values.get("trials") or 0,
        out=str(values.get("out") or ""),
        finish=finish_command(command, tasks),
    )


def finish_command(command: InnerCommand, tasks: int) -> tuple[str, ...]:
    """What is run with the union of all lines in the end, () for nothing."""
    if command.verb == "ab" and tasks > 1:
        return (*VERBS, "ab", "--replay")
    if command.verb == "run" and not command.values["out"]:
        return (*VERBS, "records", "add", "--results", str(command.values["results"]))
    return ()


def measured_commit(command: InnerCommand) -> str:
    """The commit that a job will measure, "" where that is not this clone's HEAD.

    GitError if its numbers would belong to no commit, and it is to be recorded.
    """
    if command.verb not in ("run", "sweep") or command.values["commit"] or command.values["tree"]:
        return ""
    head = here()
    if command.verb == "run" and not command.values["out"] and head.dirty:
        belongs = f"{head.path} has {head.changes}, so its numbers belong to no commit"
        raise GitError(f"{belongs}: commit them, or keep a trial file with --out FILE")
    return head.commit.hash


# ---- list ------------------------------------------------------------------------------------------------------------


QUEUE = option("--queue", "Folder of the jobs (default: .ridgeline/jobs of the repository).", FOLDER)


@verb("ridgeline jobs list\n  ridgeline jobs list --json 20261122T143118.803013-run-e716")
@click.argument("ids", nargs=-1)
@JSON
@QUEUE
def jobs(given: Given) -> int:
    """The jobs that were submitted from here (all, or those named): where they are, and how they ended."""
    folder = jobs_folder(given)
    ids = given.ids or slurm_jobs.job_ids(folder)
    if not ids:
        click.echo(f"no job was submitted from here: {folder} has none", err=True)
    return show([slurm_jobs.status(job_folder(given, name), Slurm()) for name in ids], given.as_json)


def jobs_folder(given: Given) -> Path:
    """Where the jobs are."""
    return given.queue or slurm_jobs.default_jobs()


def job_folder(given: Given, job: str) -> Path:
    """The folder of a job.  JobError for what is no id of one."""
    if job not in slurm_jobs.job_ids(jobs_folder(given)):
        raise slurm_jobs.JobError(f"no job {job!r} here; `ridgeline jobs list` lists all of them")
    return jobs_folder(given) / job


def show(statuses: Sequence[JobStatus], as_json: bool) -> int:
    """Print jobs, one a line; exit code 3 if something is missing of one until it is resumed."""
    if as_json:
        print_json([dataclasses.asdict(job) for job in statuses])
    for job in () if as_json else statuses:
        click.echo(status_line(job))
    return USAGE if any(job.state in (State.LOST, State.INCOMPLETE) for job in statuses) else PASS


def status_line(job: JobStatus) -> str:
    """A job on one line."""
    state = f"{job.state}, exit code {job.exit_code}" if job.exit_code else str(job.state)
    tasks = f"{job.ended_tasks} of {job.tasks} tasks have ended" if job.tasks > 1 else ""
    parts = (job.id, state, f"on {job.where}" if job.where else "", tasks, plain(job.reason, 500))
    return "  ".join(filter(None, (*parts, f"log: {job.log}" if job.log else "")))


# ---- submit ----------------------------------------------------------------------------------------------------------


@verb(
    "ridgeline jobs submit --on mi300x --gpus 1 --dry-run -- run --kernel gemm --out gemm.jsonl\n  "
    "ridgeline jobs submit --on mi300x --gpus 8 --array 8 --dry-run -- run --tier nightly --trials 3",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@option("--on POOL -> pool", "A pool of ci/runners.toml (`ridgeline ci pools`).")
@option("--gpus", "GPUs of a task (default: the pool's most).", click.IntRange(min=0))
@option("--array -> tasks", "Number of tasks.", click.IntRange(1, slurm_jobs.MOST_TASKS), default=1)
@option("--time", "Slurm's limit of a task, as sbatch takes it (default: the pool's).", default="")
@flag("--wait", "Wait for the end; leave with the job's exit code.")
@option("--resume ID", "Submit what is missing of this job, instead of a new one.")
@option("--runners", "Pools (default: ci/runners.toml).", THERE)
@JSON
@DRY_RUN
@QUEUE
def submit(given: Given) -> int:
    """Run a `ridgeline` command on a Slurm cluster, as an array of tasks.

    Each trial is kept as it is measured, whatever becomes of its node; a last job submits again what is missing, three
    times at most, and records the rest.  Exit code 3: something is missing; else, with --wait, it is the command's.
    """
    if given.resume:
        folder = job_folder(given, given.resume)
        if given.dry_run:
            click.echo(f"would submit what is missing of {folder.name}")
            return PASS
        slurm_jobs.resume(folder, Slurm())
        return waited(folder, given) if given.wait else PASS
    if not given.arguments or given.pool is None:
        raise click.UsageError("say where, and what to run after --, such as `--on mi300x -- run --out t.jsonl`")
    spec = job_spec(parsed(given.arguments), given)
    if given.dry_run:
        folder = jobs_folder(given).resolve() / "ID"
        for name, text in slurm_jobs.scripts(spec, folder).items():
            click.echo(f"==> {folder / name}\n{text}")
        click.echo(f"==> task 0\n{shlex.join(['python', *spec.task_argv(0, folder / '0-NEW.jsonl')])}")
        if spec.finish:
            click.echo(f"==> in the end\n{shlex.join(['python', *spec.finish, str(folder / 'trials.jsonl')])}")
        return PASS
    job = slurm_jobs.submit(spec, jobs_folder(given), Slurm())
    if given.wait:
        return waited(job_folder(given, job), given)
    click.echo(json.dumps({"id": job}) if given.as_json else job)
    return PASS


def waited(folder: Path, given: Given) -> int:
    """Wait for a job and print a line whenever it has moved; its exit code."""
    printed = ""
    while not (job := slurm_jobs.status(folder, Slurm())).is_final:
        if status_line(job) != printed:
            printed = status_line(job)
            click.echo(printed, err=True)
        time.sleep(POLL_S)
    show([job], given.as_json)
    return job.exit_code or PASS


# ---- cancel ----------------------------------------------------------------------------------------------------------


@verb("ridgeline jobs cancel --dry-run 20261122T143118.803013-run-e716")
@click.argument("ids", nargs=-1, required=True)
@JSON
@DRY_RUN
@QUEUE
def cancel(given: Given) -> int:
    """End jobs with everything they started; what they have measured stays.  A job that has ended is left as it is."""
    if given.dry_run:
        click.echo(f"would cancel {', '.join(given.ids)}")
        return PASS
    for name in given.ids:
        slurm_jobs.cancel(job_folder(given, name), Slurm())
    show([slurm_jobs.status(job_folder(given, name), Slurm()) for name in given.ids], given.as_json)
    return PASS
