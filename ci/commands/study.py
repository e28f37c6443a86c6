"""`ridgeline study`: declared experiments, from their points to their figures."""

from __future__ import annotations

import json

import click

from ci.commands.measuring import one_checkout
from ci.commands.sweep import ARCH, BUDGET
from ci.options import (
    CASE,
    DRY_RUN,
    JSON,
    NO_VERDICT,
    PASS,
    RESULTS,
    SOURCE,
    THERE,
    Given,
    err_console,
    flag,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report.document import Sheet, markdown
from ci.studies import run
from ci.studies.declared import studies, study_named
from ci.studies.frame import Study
from kernels import project

EXAMPLES = """ridgeline study --list
  ridgeline study m_sweep --case 'n4096_k4096_*' --dry-run --arch gfx942
  ridgeline study roofline --from results/studies/roofline/h200x1-537ca5d2 --results /tmp/studies"""

WORKING = ".ridgeline/studies"
"""Below the root of the project: where the lines of a study go while it is measured."""


@verb(EXAMPLES)
@click.argument("name", required=False)
@flag("--list -> listing", "The studies that are declared.")
@CASE
@several(
    "--from FILE -> sources", "Measure nothing: trial files, or the folder of a recorded study (repeatable).", THERE
)
@BUDGET
@ARCH
@SOURCE
@RESULTS
@JSON
@DRY_RUN
def study(given: Given) -> int:
    """Run a declared experiment: its points, its record, its table and its figures.

    The record, table and figures go to results/studies/NAME/MACHINE.  The same command goes on where it was
    interrupted.  Parts that need more GPUs than there are say what they wait for.  Exit code 2: not all is measured.
    """
    if given.listing or not given.name:
        return _list(given.as_json)
    if given.arch and not given.dry_run:
        raise click.UsageError("--arch is for --dry-run; a study is measured on this machine")
    declared, left = study_named(str(given.name)), list[str]()
    sources = list(given.sources)
    if not sources:
        if not given.dry_run:
            wait_for_turn()
        checkout, console = one_checkout(given), err_console()
        parts = run.ready(declared, checkout.path, console, given.cases, given.arch)
        if given.dry_run:
            plan = run.planned(parts)
            if given.as_json:
                print_json({declared.name: plan})
            else:
                cells = tuple(tuple(str(value).strip("[]{}") for value in part.values()) for part in plan)
                click.echo(markdown(Sheet(declared.name, tuple(plan[0]), cells, 3)), nl=False)
            return PASS
        sources = [project.place(f"{WORKING}/{declared.name}.jsonl")]
        left = run.measured(declared, parts, checkout, sources[0], given.budget, console)
    for rows in run.read(declared, sources):
        place = run.folder_of(given.results, declared.name, rows.machine)
        if rows.lines:
            run.keep(place, rows.lines)
            [rows] = run.read(declared, [place])
        _show(declared, run.render(declared, rows, place, left), given.as_json)
    return NO_VERDICT if left else PASS


def _list(as_json: bool) -> int:
    names = ("name", "title", "question", "source", "operators", "trials", "rounds", "halving")
    rows = [{name: getattr(declared, name) for name in names} for declared in studies().values()]
    if as_json:
        print_json(rows)
        return PASS
    for declared in studies().values():
        ranks = sorted({world for part in declared.parts for world in part.ranks})
        click.echo(f"{declared.name}: {declared.question}")
        click.echo(f"  {', '.join(declared.operators)} on {', '.join(map(str, ranks))} ranks")
    return PASS


def _show(declared: Study, made: run.Rendered, as_json: bool) -> None:
    """Where everything is, the rules and what is missing; the table is in table.md and table.csv."""
    if as_json:
        rows = json.loads(made.table.to_json(orient="records", double_precision=12))
        where = {"study": declared.name, "folder": str(made.folder), "figures": made.figures}
        print_json({**where, "waits": made.waits, "guidance": made.findings, "rows": rows})
        return
    made_there = f"{len(made.table)} rows in {made.folder / 'table.md'}, figures: {', '.join(made.figures) or 'none'}"
    click.echo(f"{declared.title}\n{made_there}")
    for line in (*made.findings, *(f"not there: {words}" for words in made.waits)):
        click.echo(f"- {line}")
