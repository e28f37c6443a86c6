"""`ridgeline ci command`: what somebody asks for with `/ridgeline ...` on a pull request."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import click

from ci.github import orders
from ci.github.client import of_environment
from ci.github.orders import OrderOutcome, read_event
from ci.options import ANY, DRY_RUN, JSON, PASS, option, verb


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
