"""`ridgeline ci pools`: the machines behind a label or a partition, what runs on them, and which nodes are drained."""

from __future__ import annotations

import dataclasses
import datetime
import getpass
import os
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from ci.calling import VERBS
from ci.options import DRY_RUN, JSON, PASS, POOLS_FILE, flag, option, out_console, print_json, several, verb
from ci.pools import drained, file, matrix
from ci.pools.__main__ import publish
from ci.pools.command import wrapped
from ci.pools.drained import Drained
from ci.pools.types import Pool, Pools

COMMAND = ("python", *VERBS, "run", "--out", "trials.jsonl")
"""What is shown where no command is given."""


@verb("ridgeline ci pools --show mi300x --gpus 8 -- python -m ci run --out trials.jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option("--show NAME -> shown", "Print what a job of this pool runs.")
@flag("--matrix -> as_matrix", "Print the legs of a workflow as one line of JSON.")
@several("--only NAME", "With --matrix: only this pool (repeatable).")
@option("--gpus", "Only jobs of this many GPUs.", click.IntRange(min=0))
@option("--drain NODE -> to_drain", "Keep our jobs away from a node.")
@option("--reason TEXT", "With --drain: why.", default="")
@option("--resume NODE -> to_resume", "Let our jobs onto a node again.")
@option("--site NAME", "With --drain and --resume: the Slurm site of the node.")
@POOLS_FILE
@JSON
@DRY_RUN
def pools(
    command: tuple[str, ...],
    shown: str | None,
    as_matrix: bool,
    only: tuple[str, ...],
    gpus: int | None,
    to_drain: str | None,
    reason: str,
    to_resume: str | None,
    site: str | None,
    path: Path | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """The pools of ci/runners.toml: what they are, what their jobs run (--show), which nodes are drained.

    COMMAND, after --, is what --show and --matrix put into the job.
    """
    found = file.load(path)
    if to_drain or to_resume:
        return _set_aside(found, to_drain, reason, to_resume, site, dry_run)
    if as_matrix:
        publish(matrix.as_json(matrix.legs(found, command or COMMAND, only, gpus)), os.environ)
    elif shown:
        _show(found, found.pool(shown), gpus, command or COMMAND, as_json)
    else:
        _list(found, as_json)
    return PASS


def _show(found: Pools, pool: Pool, gpus: int | None, command: Sequence[str], as_json: bool) -> None:
    """How a pool is reached and what its jobs run."""
    sizes = pool.gpus if gpus is None else (pool.size(gpus),)
    scripts = {size: wrapped(pool, command, size) for size in sizes}
    if as_json:
        jobs = [{"gpus": size, "runs_on": _runs_on(found, pool, size), "script": scripts[size]} for size in sizes]
        print_json({**dataclasses.asdict(pool), "jobs": jobs})
        return
    for size in sizes:
        reached = f"GitHub: {_runs_on(found, pool, size) or 'no runner'}.  Slurm: {_slurm(pool, size) or 'no site'}."
        click.echo(f"# {reached}\n{scripts[size]}")


def _runs_on(found: Pools, pool: Pool, gpus: int) -> list[str] | dict[str, str | list[str]] | None:
    runner = found.runner_of(pool)
    return runner.sized(gpus).value if runner else None


def _slurm(pool: Pool, gpus: int) -> str:
    if not pool.site:
        return ""
    return f"site {pool.site}, partition {pool.partition}, {pool.gres_of(gpus) or 'no GPU'}, time {pool.time_limit}"


def _list(found: Pools, as_json: bool) -> None:
    aside = _aside(found)
    if as_json:
        listed = [dataclasses.asdict(pool) for pool in found.pools.values()]
        print_json({"pools": listed, "drained": [dataclasses.asdict(one) for one in aside]})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("pool", "GPUs", "container", "isolation", "GitHub", "Slurm"):
        table.add_column(column, overflow="fold")
    for pool in found.pools.values():
        sizes = " or ".join(pool.title(size) for size in pool.gpus)
        labels = ", ".join((*pool.runs_on.labels, *filter(None, (pool.runs_on.group,)))) if pool.runs_on else "-"
        slurm = f"{pool.site}/{pool.partition}" if pool.site else "-"
        table.add_row(pool.name, sizes, str(pool.container), str(pool.isolation), labels, slurm)
    out_console().print(table, markup=False)
    for one in aside:
        click.echo(f"{one.node} is drained from our jobs since {one.since} by {one.who}: {one.reason}")


def _aside(found: Pools) -> list[Drained]:
    """Drained nodes of all sites and of this machine's own list."""
    folders = dict.fromkeys(drained.folder_of(site) for site in (None, *found.sites.values()))
    return [one for folder in folders for one in drained.drained(folder).values()]


def _set_aside(
    found: Pools, to_drain: str | None, reason: str, to_resume: str | None, site: str | None, dry_run: bool
) -> int:
    """Drain and resume nodes."""
    folder = drained.folder_of(found.site(site) if site else None)
    if to_drain:
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        one = Drained(to_drain, reason, now, getpass.getuser())
        drained.drain(one, folder, dry_run)
        click.echo(f"{to_drain} {'would be' if dry_run else 'is'} drained from our jobs, in {folder}")
    if to_resume:
        was = drained.resume(to_resume, folder, dry_run)
        done = ("would take" if dry_run else "takes") + " our jobs again"
        click.echo(f"{to_resume} {done if was else f'was not drained in {folder}'}")
    return PASS
