"""`ridgeline jobs`: the same work as a job on this machine, one at a time on each GPU, or on a Slurm cluster.

The command inside a job is checked before it is queued: a job that waits for hours must not die of a typing error.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ci import executors
from ci.calling import VERBS
from ci.commands.common.measuring import here
from ci.executors import JobSpec, JobStatus, Sharding, State, cluster
from ci.git.command import GitError
from ci.options import (
    DRY_RUN,
    FOLDER,
    JSON,
    PASS,
    THERE,
    USAGE,
    Finite,
    Given,
    err_console,
    flag,
    option,
    print_json,
    several,
    verb,
)
from ci.pools import file as pools_file
from ci.pools.command import leg as leg_of
from ci.report.words import plain

ALIASES: Mapping[str, tuple[str, ...]] = {"nightly": ("run", "--tier", "nightly")}
"""What may stand for a verb."""

NO_JOBS = {"jobs", "submit", "cancel", "runner"}
"""Verbs that deal with jobs and are none."""


@dataclasses.dataclass(frozen=True)
class InnerCommand:
    """A command of ours: the last word of its verb, all arguments with the verb first, and what they were parsed to.

    options: the names of the options it has.
    """

    verb: str
    arguments: tuple[str, ...]
    values: Mapping[str, Any]
    options: frozenset[str]

    @property
    def out(self) -> str:
        """The file of --out, "" where none was given."""
        return str(self.values.get("out") or "")

    @property
    def without_out(self) -> tuple[str, ...]:
        """The arguments without --out."""
        kept: list[str] = []
        given = iter(self.arguments)
        for one in given:
            if one == "--out":
                next(given)
            elif not one.startswith("--out="):
                kept.append(one)
        return tuple(kept)


def parsed(arguments: Sequence[str]) -> InnerCommand:
    """The command, parsed as it will be when it runs.  Raises the usage error that it would end with."""
    context = click.get_current_context().find_root()
    given = [*ALIASES.get(arguments[0], arguments[:1]), *arguments[1:]]
    group = context.command
    assert isinstance(group, click.Group)
    try:
        verb, command, rest = group.resolve_command(context, given)
    except click.UsageError:
        verb, command, rest = given[0], None, []
    if not (command and verb) or isinstance(command, click.Group) or NO_JOBS & {*verb.split()}:
        known = ", ".join(sorted({*group.list_commands(context), *ALIASES} - NO_JOBS))
        raise click.UsageError(f"{verb!r} is not a verb that can be a job; after -- comes one of {known}")
    with command.make_context(verb, list(rest), parent=click.Context(group, info_name="ridgeline")) as inner:
        values = dict(inner.params)
    options = frozenset(str(parameter.name) for parameter in command.params)
    return InnerCommand(verb.split()[-1], (*verb.split(), *rest), values, options)


def sharding(command: InnerCommand, shards: int) -> Sharding:
    """How the command is run on a cluster: what it appends to --out is kept line by line, and it is resumed.

    `run` without --out is recorded in the end, as it would be here; shards of `ab` are judged together, and those of a
    sweep are shown together.
    """
    numbered, dealt = "first_trial" in command.options, "shard" in command.options
    if shards > 1 and not (numbered or dealt or command.verb == "ab"):
        raise click.UsageError(f"--array {shards}: {command.verb!r} cannot be split; `run`, `ab` and `sweep` can")
    if "out" not in command.options:
        return Sharding(shards)
    return Sharding(
        shards=shards,
        publishes=True,
        resumes="resume" in command.options,
        first_trial=command.values["first_trial"] if numbered else None,
        trials=command.values["trials"] if numbered else 0,
        dealt=dealt,
        out=command.out,
        finish=_finish(command, shards),
    )


def _finish(command: InnerCommand, shards: int) -> tuple[str, ...]:
    if command.verb == "ab" and shards > 1:
        return (*VERBS, "ab", "--replay")
    if "shard" in command.options and shards > 1:
        return (*VERBS, *command.without_out, "--show", "--from")
    if command.verb == "run" and not command.out:
        return (*VERBS, "records", "add", "--results", str(command.values["results"]))
    return ()


def commit(command: InnerCommand) -> str:
    """The commit that a job will measure, "" where that is not this clone's HEAD.

    GitError if its numbers would belong to no commit, and it is to be recorded.
    """
    if command.verb not in ("run", "sweep") or command.values["commit"] or command.values["tree"]:
        return ""
    head = here()
    if command.verb == "run" and not command.out and head.dirty:
        said = f"{head.path} has {head.changes}, so its numbers belong to no commit"
        raise GitError(f"{said}: commit them, or keep a trial file with --out FILE")
    return head.commit.hash


# ---- list ------------------------------------------------------------------------------------------------------------


QUEUE = option("--queue", "Folder of the jobs (default: .ridgeline/jobs of the repository).", FOLDER)

VERDICTS = (0, 1, 2, 3, 130)
"""Exit codes of our commands; any other code of a job is that of a crash."""


@verb("ridgeline jobs list\n  ridgeline jobs list --json 20261122T143118.803013392-e716")
@click.argument("ids", nargs=-1)
@JSON
@QUEUE
def jobs(given: Given) -> int:
    """The jobs that were submitted from here (all, or those named): where they are, and how they ended."""
    known = executors.all_jobs(given.queue)
    for one in given.ids:
        if one not in known:
            raise executors.ExecutorError(f"no job {one!r} here; `ridgeline jobs` without an id lists all of them")
    if not known:
        click.echo(f"no job was submitted from here: {given.queue or executors.default_root()} has none", err=True)
    return show(executors.status(given.ids, root=given.queue), given)


def show(found: Sequence[JobStatus], given: Given) -> int:
    """Print jobs, one a line; exit code 3 if one of them is lost: something is missing until it is taken up again."""
    if given.as_json:
        print_json([dataclasses.asdict(job) for job in found])
    for job in () if given.as_json else found:
        where = f"on {job.where}" if job.where else ""
        log = f"log: {job.log}" if job.log else ""
        state = f"{job.state}, exit code {job.exit_code}" if job.exit_code else str(job.state)
        click.echo("  ".join(filter(None, (job.id, job.name, state, where, plain(job.why, 500), log))))
    return USAGE if any(job.state is State.LOST for job in found) else PASS


def code_of(job: JobStatus) -> int:
    """The exit code of waiting for a job: the command's, if it came to its end; else 3."""
    code = job.exit_code or 0
    if job.state is State.DONE or job.state is State.FAILED and code:
        return code if code in VERDICTS else USAGE
    return USAGE


@contextlib.contextmanager
def following() -> Iterator[Callable[[JobStatus], None]]:
    """Say where a job is that is waited for: on a terminal all the time, in a log whenever that changes."""
    console, last = err_console(), dict[str, str]()

    def report(job: JobStatus) -> None:
        said = _place(job)
        if last.get(job.id) != said and not job.state.final:
            last[job.id] = said
            click.echo(said, err=True)

    if not console.is_terminal:
        yield report
        return
    with console.status("") as status:
        yield lambda job: status.update(_place(job))


def _place(job: JobStatus) -> str:
    return plain(" ".join(filter(None, (job.id, str(job.state), job.where, job.why))), 300)


# ---- submit ----------------------------------------------------------------------------------------------------------


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
def submit(given: Given) -> int:
    """Run a `ridgeline` command as a job: queued, contained, with a log and a result that survive this terminal.

    On Slurm its trials are kept one by one as they are measured, whatever becomes of the node, and are put together and
    recorded in the end.  Exit code 3: the job did not finish; otherwise, with --wait, it is the command's.
    """
    if given.resume:
        if given.dry_run:
            click.echo(f"would queue {', '.join(given.resume)} again")
            return PASS
        executors.resume(given.resume, root=given.queue)
        again = executors.status(given.resume, root=given.queue)
        return _waited(given.resume, given) if given.wait else show(again, given)
    if not given.arguments:
        raise click.UsageError(
            "say what to run after --, for example: `ridgeline jobs submit -- run --out trials.jsonl`"
        )
    command = parsed(given.arguments)
    if given.executor == "local":
        if given.pool or given.shards > 1:
            raise click.UsageError("--on and --array are of clusters: add --executor slurm")
        argv = [sys.executable, *VERBS, *command.arguments]
        timeout_s = given.timeout or LOCAL_TIMEOUT_S
        spec = JobSpec(given.name or command.verb, given.gpus or 0, timeout_s, GRACE_S, str(Path.cwd()))
    elif given.dry_run and (leg := _leg_without_slurm(command, given)):
        click.echo(leg, nl=False)
        return PASS
    else:
        argv, spec = _on_cluster(command, given)
    if given.dry_run:
        return _shown(argv, spec, given)
    job = executors.submit(argv, spec, given.executor, given.queue)
    if given.wait:
        return _waited([job], given)
    click.echo(json.dumps({"id": job}) if given.as_json else job)
    return PASS


def _on_cluster(command: InnerCommand, given: Given) -> tuple[list[str], JobSpec]:
    """The command and what its job needs."""
    if given.pool is None:
        raise click.UsageError("--executor slurm needs --on POOL; `ridgeline ci pools` lists them")
    shared = sharding(command, given.shards)
    spec = JobSpec(
        name=given.name or command.verb,
        gpus=given.gpus or 0,
        timeout_s=given.timeout or 1.0,
        grace_s=GRACE_S,
        cwd=str(Path.cwd()),
        pool=given.pool,
        runners=str(given.runners.resolve()) if given.runners else "",
        commit=commit(command),
        sharding=shared,
    )
    argv = ["python", *VERBS, *(command.without_out if shared.publishes else command.arguments)]
    return argv, spec if given.timeout else cluster.with_time_of_pool(spec)


def _leg_without_slurm(command: InnerCommand, given: Given) -> str:
    """What GitHub's runner would run in a pool that no Slurm leads to, "" for another pool."""
    if given.pool is None:
        return ""
    found = pools_file.load(given.runners)
    one = found.pool(given.pool)
    if one.site or found.runner_of(one) is None:
        return ""
    leg = leg_of(found, one, one.size(given.gpus), ["python", *VERBS, *command.arguments])
    labels = json.dumps(leg.runs_on)
    return f"==> pool {one.name} has no `site`, so no Slurm leads to it; GitHub's runner {labels} runs:\n{leg.script}"


def _shown(argv: Sequence[str], spec: JobSpec, given: Given) -> int:
    """Print what would be submitted."""
    script = executors.script(argv, spec)
    if given.executor != "slurm":
        click.echo(script, nl=False)
        return PASS
    folder = (given.queue or executors.default_root()).resolve() / "jobs" / "ID"
    scripts = cluster.scripts(spec, folder)
    for name, text in (("script.sh", script), ("batch.sh", scripts.shards), ("gather.sh", scripts.gather)):
        click.echo(f"==> {folder / name}\n{text}")
    click.echo("==> commands")
    token = f"rl-{spec.name}-TOKEN"
    for name, more, file in ((token, [], "batch.sh"), (f"{token}-end", ["--dependency=afterany:ARRAY"], "gather.sh")):
        named = (f"--job-name={name}", f"--comment={name}")
        click.echo(shlex.join(["sbatch", "--parsable", *named, *more, str(folder / file)]))
    return PASS


def _waited(ids: Sequence[str], given: Given) -> int:
    """Wait, print how the jobs ended and the end of their logs; the worst exit code."""
    with following() as report:
        ended = executors.wait(ids, root=given.queue, report=report)
    show(ended, given)
    for job in ended:
        click.echo(executors.tail(job), err=True)
    return max(code_of(job) for job in ended)


# ---- cancel ----------------------------------------------------------------------------------------------------------


@verb("ridgeline jobs cancel --dry-run 20261122T143118.803013392-e716")
@click.argument("ids", nargs=-1, required=True)
@JSON
@DRY_RUN
@QUEUE
def cancel(given: Given) -> int:
    """End jobs with everything they started; what they have measured stays.  A job that has ended is left as it is."""
    if given.dry_run:
        click.echo(f"would cancel {', '.join(given.ids)}")
        return PASS
    executors.cancel(given.ids, root=given.queue)
    return show(executors.status(given.ids, root=given.queue), given)
