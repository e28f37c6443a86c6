"""`ridgeline ci pools` and `ci runner`: the machines behind a label or a partition, and what serves their queue."""

from __future__ import annotations

import dataclasses
import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path

import click
from filelock import FileLock, Timeout
from rich.table import Table

from ci.calling import VERBS
from ci.github.client import API, GitHub
from ci.options import (
    DRY_RUN,
    FILE,
    FOLDER,
    JSON,
    PASS,
    POOLS_FILE,
    USAGE,
    Finite,
    Given,
    flag,
    option,
    out_console,
    print_json,
    verb,
)
from ci.pools import file
from ci.pools.command import wrapped
from ci.pools.file import Container, Pool, Pools
from ci.report.words import plain
from ci.slurm.client import Slurm
from ci.slurm.runner import RunnerError, RunnerService

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


# `ridgeline ci runner`: serves GitHub's queue from Slurm, with one short-lived runner for each job.


INTERVAL_S = 30.0
"""Seconds between two rounds: a round is 4 calls and one for each run at work, and GitHub allows 5,000 an hour."""
LONGEST_LINE = 500
"""Characters of one line of the log."""


@verb("ridgeline ci runner --once --dry-run")
@option("--site NAME", "The Slurm site (default: the one with a table [site.NAME.runner]).")
@flag("--once", "Look once, do what follows, and leave.")
@option("--interval SECONDS", "Time between two rounds.", Finite(0.05, 3600), default=INTERVAL_S)
@option("--folder", "A folder that every node sees (default: runner in the site's shared folder).", FOLDER)
@option("--token-file", "GitHub's token, read again in every round (default: the variable GITHUB_TOKEN).", FILE)
@POOLS_FILE
@DRY_RUN
def runner(given: Given) -> int:
    """Serve GitHub's queue from Slurm: one Slurm job, with a runner for one job, for each queued job of ours.

    It holds nothing: killed at any moment, it goes on by looking.  The token needs "administration: write" and
    "actions: read" of the repository.  --dry-run looks once and says what it would do.
    """
    pools = file.load(given.path)
    first = service_now(given, pools)
    if given.dry_run:
        lines, failed = first.do_round(dry_run=True)
        click.echo("\n".join(plain(line, LONGEST_LINE) for line in lines) or "nothing to do")
        return USAGE if failed else PASS
    first.folder.mkdir(parents=True, exist_ok=True)
    first.folder.chmod(0o700)
    offers = first.offers
    lines = [f"serving {', '.join(offer.name for offer in offers)} of {first.settings.repository}"]
    for pool in dict.fromkeys(offer.pool.name for offer in offers if offer.pool.container is Container.NONE):
        lines.append(f"pool {pool} has no container: what its jobs run can read this user's files, the service's too")
    try:
        with FileLock(first.folder / "lock", timeout=0):
            logged = set[str]()
            while True:
                now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                new, failed = service_now(given, pools).do_round()
                for line in (*lines, *new):
                    if line not in logged:  # what has not changed since the last round is not repeated
                        click.echo(f"{now} {plain(line, LONGEST_LINE)}")  # names in it are other people's words
                logged, lines = set(new), []
                if given.once:
                    return USAGE if failed else PASS
                time.sleep(given.interval)
    except Timeout:
        where = f"another `ridgeline ci runner` uses {first.folder}"
        raise RunnerError(f"{where}; end it, or give another --folder") from None


def service_now(given: Given, pools: Pools) -> RunnerService:
    """The service with the token as it is now.  RunnerError without a runner of the site, or without a token."""
    served = [site for site in pools.sites.values() if site.runner and given.site in (None, site.name)]
    if len(served) != 1 or not served[0].runner:
        names = ", ".join(site.name for site in pools.sites.values() if site.runner) or "none"
        raise RunnerError(f"--site says which site to serve; sites with a table [site.NAME.runner]: {names}")
    if given.token_file and not given.token_file.is_file():
        raise RunnerError(f"--token-file: there is no file {given.token_file}; the guide of pools says how to write it")
    token = given.token_file.read_text("utf-8").strip() if given.token_file else os.environ.get("GITHUB_TOKEN", "")
    if not token:
        raise RunnerError("there is no token; set GITHUB_TOKEN or give --token-file, and keep it out of the command")
    site, settings = served[0], served[0].runner
    folder = given.folder or Path(site.shared or Path.home() / ".ridgeline") / "runner"
    github = GitHub(settings.repository, token, os.environ.get("GITHUB_API_URL") or API)
    return RunnerService(pools, site.name, settings, folder.absolute(), github, Slurm(patience_s=0))
