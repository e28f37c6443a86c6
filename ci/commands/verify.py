"""`ridgeline verify`: is every backend right in every case on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ci.commands.common.checkouts import one_checkout
from ci.harness import measure
from ci.options import CHOICE, DRY_RUN, JSON, SOURCE, NewFile, err_console, option, plan, verb, wait_for_turn
from kernels import project

KEPT = ".ridgeline/checks.jsonl"


@verb("ridgeline verify --tier nightly --kernel gemm")
@CHOICE
@SOURCE
@option(
    "--out",
    "File of checks to append to; what it knows of the same kernels on this machine is not tried again "
    f"(default: {KEPT}).",
    NewFile(),
)
@JSON
@DRY_RUN
def verify(
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    out: Path | None,
    as_json: bool,
    dry_run: bool,
    **what: Any,
) -> int:
    """Is every backend right in every case on this machine?  Calls each and compares; times nothing."""
    if not dry_run:
        wait_for_turn()
    head, file, planned = one_checkout(commit, commit_date, tree, out), out or project.place(KEPT), plan(**what)
    if dry_run:
        click.echo(f"would check {head.label} ({planned.tier} tier) and append what comes of it to {file}")
        return 0
    return measure([head], planned, file, err_console(), "verify", *(["--json"] if as_json else []))
