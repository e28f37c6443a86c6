"""`ridgeline submit`: the same work as a job on this machine, one at a time on each GPU, or on a cluster."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ci import executors
from ci.executors import JobStatus, State
from ci.options import DRY_RUN, JSON

EXECUTOR = click.option(
    "--executor",
    type=click.Choice(sorted(executors.EXECUTORS)),
    default="local",
    show_default=True,
    help="Where jobs run.",
)
QUEUE = click.option(
    "--queue",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder of the queue (default: one for each user).",
)


@click.command(
    context_settings={"ignore_unknown_options": True},
    epilog="\b\nExample:\n  "
    "ridgeline submit --gpus 1 --wait -- run --kernel gemm --out gemm.jsonl\n  ridgeline submit --status",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--name", help="Name of the job (default: the verb).")
@click.option("--gpus", type=click.IntRange(min=0), default=0, show_default=True, help="GPUs the job needs to itself.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=1),
    default=3600.0,
    show_default=True,
    metavar="SECONDS",
    help="The job is ended with all it started after this time.",
)
@click.option("--wait", is_flag=True, help="Wait for the end; leave with the job's exit code.")
@click.option("--status", "show", is_flag=True, help="List the jobs (all, or the ids given).")
@click.option("--cancel", is_flag=True, help="End the jobs whose ids are given.")
@click.option("--resume", is_flag=True, help="Queue the jobs whose ids are given again.")
@JSON
@DRY_RUN
@EXECUTOR
@QUEUE
def submit(
    arguments: tuple[str, ...],
    name: str | None,
    gpus: int,
    timeout: float,
    wait: bool,
    show: bool,
    cancel: bool,
    resume: bool,
    as_json: bool,
    dry_run: bool,
    executor: str,
    queue: Path | None,
) -> int:
    """Run a `ridgeline` command as a job: queued, contained, with a log and a result that survive this terminal."""
    if cancel or resume:
        if not arguments:
            raise click.UsageError("name the jobs by id; `ridgeline submit --status` lists them")
        (executors.cancel if cancel else executors.resume)(arguments, executor=executor, root=queue)
    if show or cancel or resume:
        return _print(executors.status(arguments, executor=executor, root=queue), as_json)
    if not arguments:
        raise click.UsageError("say what to run after --, for example: ridgeline submit -- run --out FILE")
    argv = [sys.executable, "-m", "ci", *arguments]
    if dry_run:
        spec = executors.JobSpec(name or arguments[0], gpus, timeout, 5.0, str(Path.cwd()), {})
        click.echo(executors.script(argv, spec), nl=False)
        return 0
    job = executors.submit(argv, name=name or arguments[0], gpus=gpus, timeout_s=timeout, executor=executor, root=queue)
    if not wait:
        click.echo(json.dumps({"id": job}) if as_json else job)
        return 0
    ended = executors.wait([job], executor=executor, root=queue)
    _print(ended, as_json)
    click.echo(executors.tail(ended[0]), err=True, nl=False)
    return _code(ended[0])


def _code(job: JobStatus) -> int:
    if job.state is State.DONE:
        return 0
    return job.exit_code if job.exit_code else 3


def _print(jobs: Sequence[JobStatus], as_json: bool) -> int:
    if as_json:
        click.echo(
            json.dumps(
                [
                    {"id": j.id, "state": str(j.state), "exit_code": j.exit_code, "why": j.why, "log": j.log}
                    for j in jobs
                ],
                indent=1,
            )
        )
        return 0
    for job in jobs:
        click.echo(
            f"{job.id}  {job.state}" + (f"  {job.why}" if job.why else "") + (f"  log: {job.log}" if job.log else "")
        )
    return 0
