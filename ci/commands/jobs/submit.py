"""`ridgeline jobs submit`: the same work as a job on this machine, one at a time on each GPU, or on a Slurm cluster."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from ci import executors
from ci.calling import VERBS
from ci.commands.jobs import inner
from ci.commands.jobs.listing import QUEUE, code_of, following, show
from ci.executors import JobSpec, cluster
from ci.options import DRY_RUN, JSON, PASS, THERE, Finite, flag, option, several, verb
from ci.pools import file as pools_file
from ci.pools import matrix

GRACE_S = 5.0
"""Seconds between SIGTERM and SIGKILL: enough to write the last line of a trial file."""

LOCAL_TIMEOUT_S = 3600.0


@verb(
    "ridgeline jobs submit --gpus 1 --wait -- run --kernel gemm --out gemm.jsonl\n  "
    "ridgeline jobs submit --executor slurm --on mi300x --gpus 8 --array 8 --dry-run -- nightly --trials 3",
    context_settings={"allow_interspersed_args": False},
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@option("--name", "Name of the job (default: the verb).")
@option("--executor", "Where jobs run.", click.Choice(sorted(executors.EXECUTORS)), default="local")
@option("--on POOL -> pool", "With slurm: a pool of ci/runners.toml (`ridgeline ci pools`).")
@option("--gpus", "GPUs the job needs to itself (slurm: the pool's most).", click.IntRange(min=0))
@option("--array -> shards", "With slurm: number of shards.", click.IntRange(1, 1000), default=1)
@option(
    "--timeout SECONDS",
    "The job is ended with all it started after this time (default: 3600; slurm: the pool's time).",
    Finite(min=1),
)
@flag("--wait", "Wait for the end; leave with the job's exit code.")
@several("--resume ID", "Queue this job again, instead of a new one (repeatable).")
@option("--runners", "Pools (default: ci/runners.toml).", THERE)
@JSON
@DRY_RUN
@QUEUE
def submit(
    arguments: tuple[str, ...],
    name: str | None,
    executor: str,
    pool: str | None,
    gpus: int | None,
    shards: int,
    timeout: float | None,
    wait: bool,
    resume: tuple[str, ...],
    runners: Path | None,
    as_json: bool,
    dry_run: bool,
    queue: Path | None,
) -> int:
    """Run a `ridgeline` command as a job: queued, contained, with a log and a result that survive this terminal.

    On Slurm its trials are kept one by one as they are measured, whatever becomes of the node, and are put together and
    recorded in the end.  Exit code 3: the job did not finish; otherwise, with --wait, it is the command's.
    """
    if resume:
        return _resumed(resume, queue, wait, as_json, dry_run)
    if not arguments:
        raise click.UsageError(
            "say what to run after --, for example: `ridgeline jobs submit -- run --out trials.jsonl`"
        )
    command = inner.parsed(arguments)
    if executor == "local":
        if pool or shards > 1:
            raise click.UsageError("--on and --array are of clusters: add --executor slurm")
        argv: Sequence[str] = [sys.executable, *VERBS, *command.arguments]
        cwd = str(Path.cwd())
        spec = JobSpec(name or command.verb, gpus or 0, timeout or LOCAL_TIMEOUT_S, GRACE_S, cwd)
    elif dry_run and (leg := _leg_without_slurm(command, pool, gpus, runners)):
        click.echo(leg, nl=False)
        return PASS
    else:
        argv, spec = _on_cluster(command, name, pool, gpus, shards, timeout, runners)
    if dry_run:
        return _shown(argv, spec, executor, queue)
    job = executors.submit(argv, spec, executor, queue)
    if not wait:
        click.echo(json.dumps({"id": job}) if as_json else job)
        return PASS
    return _waited([job], queue, as_json)


def _on_cluster(
    command: inner.InnerCommand,
    name: str | None,
    pool: str | None,
    gpus: int | None,
    shards: int,
    timeout: float | None,
    runners: Path | None,
) -> tuple[list[str], JobSpec]:
    """The command and what its job needs."""
    if pool is None:
        raise click.UsageError("--executor slurm needs --on POOL; `ridgeline ci pools` lists them")
    sharding = inner.sharding(command, shards)
    spec = JobSpec(
        name=name or command.verb,
        gpus=gpus or 0,
        timeout_s=timeout or 1.0,
        grace_s=GRACE_S,
        cwd=str(Path.cwd()),
        pool=pool,
        runners=str(runners.resolve()) if runners else "",
        commit=inner.commit(command),
        sharding=sharding,
    )
    argv = ["python", *VERBS, *(command.without_out if sharding.publishes else command.arguments)]
    return argv, spec if timeout else cluster.with_time_of_pool(spec)


def _leg_without_slurm(command: inner.InnerCommand, pool: str | None, gpus: int | None, runners: Path | None) -> str:
    """What GitHub's runner would run in a pool that no Slurm leads to, "" for another pool."""
    if pool is None:
        return ""
    found = pools_file.load(runners)
    one = found.pool(pool)
    if one.site or found.runner_of(one) is None:
        return ""
    leg = matrix.leg(found, one, one.size(gpus), ["python", *VERBS, *command.arguments])
    labels = json.dumps(leg.runs_on)
    return f"==> pool {pool} has no `site`, so no Slurm leads to it; GitHub's runner {labels} runs:\n{leg.script}"


def _shown(argv: Sequence[str], spec: JobSpec, executor: str, queue: Path | None) -> int:
    """Print what would be submitted."""
    script = executors.script(argv, spec)
    if executor != "slurm":
        click.echo(script, nl=False)
        return PASS
    folder = (queue or executors.default_root()).resolve() / "jobs" / "ID"
    scripts = cluster.scripts(spec, folder)
    token = f"rl-{spec.name}-TOKEN"
    for name, text in (("script.sh", script), ("batch.sh", scripts.shards), ("gather.sh", scripts.gather)):
        click.echo(f"==> {folder / name}\n{text}")
    click.echo("==> commands")
    first, last = (["sbatch", "--parsable", f"--job-name={one}", f"--comment={one}"] for one in (token, f"{token}-end"))
    click.echo(shlex.join([*first, str(folder / "batch.sh")]))
    click.echo(shlex.join([*last, "--dependency=afterany:ARRAY", str(folder / "gather.sh")]))
    return PASS


def _resumed(ids: Sequence[str], queue: Path | None, wait: bool, as_json: bool, dry_run: bool) -> int:
    if dry_run:
        click.echo(f"would queue {', '.join(ids)} again")
        return PASS
    executors.resume(ids, root=queue)
    return _waited(ids, queue, as_json) if wait else show(executors.status(ids, root=queue), as_json)


def _waited(ids: Sequence[str], queue: Path | None, as_json: bool) -> int:
    """Wait, print how the jobs ended and the end of their logs; the worst exit code."""
    with following() as report:
        ended = executors.wait(ids, root=queue, report=report)
    show(ended, as_json)
    for job in ended:
        click.echo(executors.tail(job), err=True)
    return max(code_of(job) for job in ended)
