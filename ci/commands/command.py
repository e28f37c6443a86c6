"""What goes through GitHub: `/ridgeline ...` on a pull request, one commit on the GPU pools, a wait for a machine."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from ci.github import orders
from ci.github.client import of_environment
from ci.github.orders import OrderOutcome, read_event
from ci.options import ANY, DRY_RUN, JSON, NO_VERDICT, PASS, Finite, full_hash, option, verb


@verb('ridgeline ci command --event "$GITHUB_EVENT_PATH" --json')
@option("--event", "The event of a new comment (`issue_comment`), as GITHUB_EVENT_PATH names it.", ANY, required=True)
@JSON
@DRY_RUN
def command(event: Path, as_json: bool, dry_run: bool) -> int:
    """Answer `/ridgeline gpu SHA [POOL]`, `rerun` and `accept CASE REASON` from people with write access.

    Needs GITHUB_TOKEN and GITHUB_REPOSITORY.  What is to be done is printed, and set as the step's outputs `action`,
    `sha`, `pool` and `pull_request`; `action` is "refused" or "nothing" where nothing is.
    """
    asked, github = read_event(event), of_environment()
    outcome = orders.decide(asked, github)
    if asked and outcome.action != "nothing" and not dry_run:
        orders.carry_out(outcome, github)
        orders.reply(outcome, asked, github)
    click.echo(json.dumps(dataclasses.asdict(outcome)) if as_json else _sentence(outcome, dry_run))
    # For later steps; words, hex digits and numbers only, so that no line can bring another.
    path = "" if dry_run else os.environ.get("GITHUB_OUTPUT", "")
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(f"action={outcome.action}\nsha={outcome.sha}\npool={outcome.pool}\n")
            file.write(f"pull_request={outcome.pull_request or ''}\n")
    return PASS


def _sentence(outcome: OrderOutcome, dry_run: bool) -> str:
    if outcome.action == "nothing":
        return "nothing: no `/ridgeline` in the first line of a new comment on a pull request"
    return f"{'would do: ' if dry_run else ''}{outcome.action}: {outcome.said}" + (
        f"\n{outcome.lines}" * bool(outcome.lines)
    )


# ---- ci start --------------------------------------------------------------------------------------------------------


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
