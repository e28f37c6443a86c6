"""`ridgeline jobs`: the jobs that were submitted from here, on every executor; and how jobs are printed."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click

from ci import executors
from ci.executors import JobStatus, State
from ci.options import FOLDER, JSON, PASS, USAGE, err_console, option, print_json, verb
from ci.report.words import plain

QUEUE = option("--queue", "Folder of the jobs (default: .ridgeline/jobs of the repository).", FOLDER)

VERDICTS = (0, 1, 2, 3, 130)
"""Exit codes of our commands; any other code of a job is that of a crash."""


@verb("ridgeline jobs list\n  ridgeline jobs list --json 20261122T143118.803013392-e716")
@click.argument("ids", nargs=-1)
@JSON
@QUEUE
def jobs(ids: tuple[str, ...], as_json: bool, queue: Path | None) -> int:
    """The jobs that were submitted from here (all, or those named): where they are, and how they ended."""
    known = set(executors.all_jobs(queue))
    for one in ids:
        if one not in known:
            raise executors.ExecutorError(f"no job {one!r} here; `ridgeline jobs` without an id lists all of them")
    if not known:
        click.echo(f"no job was submitted from here: {queue or executors.default_root()} has none", err=True)
    return show(executors.status(ids, root=queue), as_json)


def show(found: Sequence[JobStatus], as_json: bool) -> int:
    """Print jobs, one a line; exit code 3 if one of them is lost: something is missing until it is taken up again."""
    code = USAGE if any(job.state is State.LOST for job in found) else PASS
    if as_json:
        print_json([dataclasses.asdict(job) for job in found])
        return code
    for job in found:
        where = f"on {job.where}" if job.where else ""
        log = f"log: {job.log}" if job.log else ""
        state = f"{job.state}, exit code {job.exit_code}" if job.exit_code else str(job.state)
        click.echo("  ".join(filter(None, (job.id, job.name, state, where, plain(job.why, 500), log))))
    return code


def code_of(job: JobStatus) -> int:
    """The exit code of waiting for a job: the command's, if it came to its end; else 3."""
    if job.state in (State.DONE, State.FAILED):
        code = job.exit_code or 0
        return code if code in VERDICTS and (code or job.state is State.DONE) else USAGE
    return USAGE


@contextlib.contextmanager
def following() -> Iterator[Callable[[JobStatus], None]]:
    """Say where a job is that is waited for: on a terminal all the time, in a log whenever that changes."""
    console = err_console()
    if not console.is_terminal:
        yield _changes()
        return
    with console.status("") as status:
        yield lambda job: status.update(_place(job))


def _place(job: JobStatus) -> str:
    return plain(" ".join(filter(None, (job.id, str(job.state), job.where, job.why))), 300)


def _changes() -> Callable[[JobStatus], None]:
    """Prints a job's place if it is not what was printed last."""
    last = dict[str, str]()

    def report(job: JobStatus) -> None:
        if last.get(job.id) != _place(job) and not job.state.final:
            last[job.id] = _place(job)
            click.echo(last[job.id], err=True)

    return report
