"""`ridgeline ci pools`: the machines behind a label or a partition, what runs on them, and which nodes are drained."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click
from rich.table import Table

from ci.calling import VERBS
from ci.options import DRY_RUN, JSON, PASS, POOLS_FILE, Given, option, out_console, print_json, verb
from ci.pools import drained, file
from ci.pools.command import wrapped
from ci.pools.file import Pool, Pools
from ci.report.words import plain

COMMAND = ("python", *VERBS, "run", "--out", "trials.jsonl")
"""What is shown where no command is given."""


@verb("ridgeline ci pools --show mi300x --gpus 8 -- python -m ci run --out trials.jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option("--show NAME -> shown", "Print what a job of this pool runs.")
@option("--gpus", "With --show: only jobs of this many GPUs.", click.IntRange(min=0))
@option("--drain NODE -> to_drain", "Keep our jobs away from a node.")
@option("--reason TEXT", "With --drain: why.", default="")
@option("--resume NODE -> to_resume", "Let our jobs onto a node again.")
@option("--site NAME", "With --drain and --resume: the Slurm site of the node.")
@POOLS_FILE
@JSON
@DRY_RUN
def pools(given: Given) -> int:
    """The pools of ci/runners.toml: what they are, what their jobs run (--show), which nodes are drained.

    COMMAND, after --, is what --show puts into the job; `python3 -m ci.pools --matrix` prints the legs of a workflow.
    """
    described, command = file.load(given.path), given.command or COMMAND
    if given.to_drain or given.to_resume:
        return _set_aside(described, given)
    if given.shown:
        _show(described, described.pool(given.shown), given.gpus, command, given.as_json)
    else:
        _list(described, given.as_json)
    return PASS


def _show(described: Pools, pool: Pool, gpus: int | None, command: Sequence[str], as_json: bool) -> None:
    """How a pool is reached and what its jobs run."""
    runner, sizes = described.runner_of(pool), pool.gpus if gpus is None else (pool.size(gpus),)
    labels = {size: runner.sized(size).value if runner else None for size in sizes}
    scripts = {size: wrapped(pool, command, size) for size in sizes}
    if as_json:
        jobs = [{"gpus": size, "runs_on": labels[size], "script": scripts[size]} for size in sizes]
        print_json({**dataclasses.asdict(pool), "jobs": jobs})
        return
    for size in sizes:
        gres = pool.gres_of(size) or "no GPU"
        slurm = f"site {pool.site}, partition {pool.partition}, {gres}, time {pool.time_limit}"
        reached = f"GitHub: {labels[size] or 'no runner'}.  Slurm: {slurm if pool.site else 'no site'}."
        click.echo(f"# {reached}\n{scripts[size]}")


def _list(described: Pools, as_json: bool) -> None:
    # Drained nodes of all sites and of this machine's own list.
    folders = dict.fromkeys(drained.folder_of(site) for site in (None, *described.sites.values()))
    reasons = [drained.drain_reason(node, folder) for folder in folders for node in drained.drained_nodes(folder)]
    if as_json:
        print_json({"pools": [dataclasses.asdict(pool) for pool in described.pools.values()], "drained": reasons})
        return
    table = Table(box=None, pad_edge=False)
    for column in ("pool", "GPUs", "container", "isolation", "GitHub", "Slurm"):
        table.add_column(column, overflow="fold")
    for pool in described.pools.values():
        sizes = " or ".join(pool.title(size) for size in pool.gpus)
        labels = ", ".join((*pool.runs_on.labels, *filter(None, (pool.runs_on.group,)))) if pool.runs_on else "-"
        slurm = f"{pool.site}/{pool.partition}" if pool.site else "-"
        table.add_row(pool.name, sizes, str(pool.container), str(pool.isolation), labels, slurm)
    out_console().print(table, markup=False)
    for reason in reasons:
        click.echo(plain(reason, 1500))


def _set_aside(described: Pools, given: Given) -> int:
    """Drain and resume nodes."""
    folder = drained.folder_of(described.site(given.site) if given.site else None)
    if given.to_drain:
        drained.drain(given.to_drain, given.reason, folder, given.dry_run)
        click.echo(f"{given.to_drain} {'would be' if given.dry_run else 'is'} drained from our jobs, in {folder}")
    if given.to_resume:
        was = drained.resume(given.to_resume, folder, given.dry_run)
        done = ("would take" if given.dry_run else "takes") + " our jobs again"
        click.echo(f"{given.to_resume} {done if was else f'was not drained in {folder}'}")
    return PASS
