"""`ridgeline ci start`: one commit on the GPU pools, through GitHub; `ridgeline ci wait`: for one of its machines."""

from __future__ import annotations

import os

import click

from ci.github import orders
from ci.github.client import of_environment
from ci.options import DRY_RUN, NO_VERDICT, PASS, Finite, full_hash, option, verb

EXAMPLE_SHA = "344de583" + "0" * 32


@verb(f"ridgeline ci start {EXAMPLE_SHA} --pool mi300x --dry-run")
@click.argument("sha", callback=full_hash)
@option("--pool NAME", "Only this pool (default: all).", default="")
@option("--gpus N", "Only legs of N GPUs (default: all).", default="")
@DRY_RUN
def start(sha: str, pool: str, gpus: str, dry_run: bool) -> int:
    """Start the GPU workflow for exactly this commit, with the default branch's workflow files.

    Needs GITHUB_TOKEN (actions and contents: write) and GITHUB_REPOSITORY.
    """
    where = " ".join(filter(None, (pool or "every pool", gpus and f"with {gpus} GPUs")))
    if dry_run:
        click.echo(f"would move the ref {orders.REF} to the default branch and start {orders.WORKFLOW} there: {where}")
        return PASS
    trusted = orders.start(of_environment(), sha, {"pool": pool, "gpus": gpus})
    click.echo(f"started {orders.WORKFLOW} of {trusted[:8]} for {sha[:8]}: {where}")
    return PASS


@verb('ridgeline ci wait --run 1 --job "mi300x-8 / Measure" --minutes 30')
@option("--run ID", "The run (default: the one this is a step of).", click.IntRange(1))
@option("--job NAME", "The job of that run.", required=True)
@option("--minutes", "How long at most.", Finite(0, 1440), default=30.0)
def wait(run: int | None, job: str, minutes: float) -> int:
    """Wait until a machine takes a job; exit code 2 if none comes in time.

    Needs GITHUB_TOKEN (actions: read) and GITHUB_REPOSITORY.
    """
    asked = run or orders.of_run(os.environ)
    if orders.taken(of_environment(), asked, job, minutes):
        click.echo(f"a machine took {job!r}")
        return PASS
    click.echo(f"absent: no machine took {job!r} within {minutes:g} minutes")
    return NO_VERDICT
