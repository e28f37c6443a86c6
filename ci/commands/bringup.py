"""`ridgeline bringup`: first contact with a node."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ci.harness import INTERRUPTED, follow, options, program
from ci.options import DRY_RUN, JSON, PASS, REGRESSION, USAGE, NewFile, err_console, example, out_console
from ci.report import bringup as text

KEPT, REPORT = Path(".ridgeline/bringup.jsonl"), Path(".ridgeline/bringup.json")
"""Finished steps; the report."""

EXAMPLE = "ridgeline bringup\n  ridgeline bringup --only heap --only fences --again"


@click.command(epilog=example(EXAMPLE))
@click.option("--only", multiple=True, metavar="STEP", help="Only this step (repeatable); --dry-run lists them.")
@click.option("--skip", multiple=True, metavar="STEP", help="All but this step (repeatable).")
@click.option("--again", is_flag=True, help="Repeat finished steps too; without it, only what failed or is missing.")
@click.option("--out", type=NewFile(), help=f"The report, a JSON file worth sending to us (default: {REPORT}).")
@click.option("--state", type=NewFile(), default=KEPT, show_default=True, help="File that keeps finished steps.")
@click.option("--tree", type=click.Path(path_type=Path, exists=True, file_okay=False), help="This source tree.")
@JSON
@DRY_RUN
def bringup(
    only: tuple[str, ...],
    skip: tuple[str, ...],
    again: bool,
    out: Path | None,
    state: Path,
    tree: Path | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """First contact with a node: does everything work that Ridgeline relies on, and what is the next step if not?

    Devices, versions, symmetric heap, fences, RCCL, vendor packages, each backend in one case.  Takes minutes, survives
    a crash or a hang of any step, and goes on where it was stopped.
    """
    file, where = (out or REPORT).resolve(), (tree or Path.cwd()).resolve()
    argv = program("benchmarks.bringup", *(["--again"] if again else []), *(["--dry-run"] if dry_run else []))
    argv += options(only=only, skip=skip, out=file, state=state.resolve(), tree=where, progress="json")
    try:
        ended = follow(argv, err_console(), "bringup")
    except KeyboardInterrupt:
        click.echo("interrupted: what is finished is kept, and the same command goes on from there", err=True)
        return INTERRUPTED
    if ended.code not in (PASS, REGRESSION) or dry_run:
        if ended.code not in (PASS, REGRESSION, USAGE):
            err_console().print(f"the measuring program broke off: {ended.how}", style="bold red")
        return PASS if ended.code == PASS else USAGE
    document = json.loads(file.read_text(encoding="utf-8"))
    if as_json:
        click.echo(json.dumps(document, indent=1))
    else:
        text.show(text.read(document), out_console())
        click.echo(f"report: {out or REPORT}; it names no host, user or secret; please send it to us")
    return ended.code
