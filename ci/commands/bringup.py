"""`ridgeline bringup`: first contact with a node."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ci import harness
from ci.harness import INTERRUPTED, follow, options, program
from ci.options import (
    DRY_RUN,
    FOLDER_THERE,
    JSON,
    PASS,
    REGRESSION,
    USAGE,
    NewFile,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report import bringup as text
from kernels import project

KEPT, REPORT = ".ridgeline/bringup.jsonl", ".ridgeline/bringup.json"
"""Finished steps; the report."""

EXAMPLE = "ridgeline bringup\n  ridgeline bringup --only heap --only fences --again"


@verb(EXAMPLE)
@several("--only STEP", "Only this step (repeatable); --dry-run lists them.")
@several("--skip STEP", "All but this step (repeatable).")
@flag("--again", "Repeat finished steps too; without it, only what failed or is missing.")
@option("--out", f"The report, a JSON file worth sending to us (default: {REPORT}).", NewFile())
@option("--state", f"File that keeps finished steps (default: {KEPT}).", NewFile())
@option("--tree", "This source tree.", FOLDER_THERE)
@JSON
@DRY_RUN
def bringup(
    only: tuple[str, ...],
    skip: tuple[str, ...],
    again: bool,
    out: Path | None,
    state: Path | None,
    tree: Path | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """First contact with a node: does everything work that Ridgeline relies on, and what is the next step if not?

    Devices, versions, symmetric heap, fences, RCCL, vendor packages, each backend in one case.  Takes minutes, survives
    a crash or a hang of any step, and goes on where it was stopped.
    """
    if not dry_run:
        wait_for_turn()
    file, state = out or project.place(REPORT), state or project.place(KEPT)
    where = tree or project.around(Path.cwd()).root
    argv = program("benchmarks.bringup", *(["--again"] if again else []), *(["--dry-run"] if dry_run else []))
    argv += options(
        only=only, skip=skip, out=file.resolve(), state=state.resolve(), tree=where.resolve(), progress="json"
    )
    try:
        ended = follow(argv, err_console(), "bringup")
    except KeyboardInterrupt:
        click.echo(f"interrupted: what is finished is kept; `{harness.again()}` goes on from there", err=True)
        return INTERRUPTED
    if ended.code not in (PASS, REGRESSION) or dry_run:
        if ended.code not in (PASS, REGRESSION, USAGE):
            err_console().print(f"the measuring program broke off: {ended.how}", style="bold red")
        return PASS if ended.code == PASS else USAGE
    document = json.loads(file.read_text(encoding="utf-8"))
    if as_json:
        print_json(document)
    else:
        text.show(text.read(document), out_console())
        click.echo(f"report: {file}; it names no host, user or secret; please send it to us")
    return ended.code
