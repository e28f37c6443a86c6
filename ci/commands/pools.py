"""`ridgeline ci pools`: the machines behind a label or a partition, and what runs on them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click
from rich.table import Table

from ci.calling import VERBS
from ci.options import JSON, PASS, POOLS_FILE, Given, option, out_console, print_json, verb
from ci.pools import file
from ci.pools.command import wrapped
from ci.pools.file import Pool, Pools

COMMAND = ("python", *VERBS, "run", "--out", "trials.jsonl")
"""What is shown where no command is given."""


@verb("ridgeline ci pools --show mi300x --gpus 8 -- python -m ci run --out trials.jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option("--show NAME -> shown", "Print what a job of this pool runs.")
@option("--gpus", "With --show: only jobs of this many GPUs.", click.IntRange(min=0))
@POOLS_FILE
@JSON
def pools(given: Given) -> int:
    """The pools of ci/runners.toml: what they are, and what their jobs run (--show).

    COMMAND, after --, is what --show puts into the job; `python3 -m ci.pools --matrix` prints the legs of a workflow.
    """
    described, command = file.load(given.path), given.command or COMMAND
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
    if as_json:
        print_json({"pools": [dataclasses.asdict(pool) for pool in described.pools.values()]})
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
