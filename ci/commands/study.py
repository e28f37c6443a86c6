"""`ridgeline study`: declared experiments, from their points to their figures."""

from __future__ import annotations

import dataclasses

import click
from rich.table import Table

from benchmarks.studies import studies
from benchmarks.studies import study as named
from benchmarks.studies.types import REGIMES
from ci.commands.common.measuring import one_checkout
from ci.commands.sweep import ARCH, BUDGET, COMPUTE_UNITS, NO_COMPILE
from ci.harness import OneProgram
from ci.options import (
    CASE,
    DRY_RUN,
    JSON,
    PASS,
    RESULTS,
    SOURCE,
    THERE,
    Given,
    NewFile,
    flag,
    option,
    out_console,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.sweeps.alone import alone
from kernels import project

EXAMPLES = """ridgeline study --list
  ridgeline study m_sweep --case 'n4096_k4096_*' --dry-run --arch gfx942
  ridgeline study --all --dry-run --arch gfx950
  ridgeline study roofline --from results --results /tmp/studies"""

WORKING = ".ridgeline/studies"
"""Below the root of the project: where the lines of a study go while it is measured."""


@verb(EXAMPLES)
@click.argument("name", required=False)
@flag("--all -> every", "Every study.")
@flag("--list -> listing", "The studies that are declared.")
@CASE
@several(
    "--from FILE -> sources",
    "Measure nothing: trial files, or the folder `results` for arms without knobs (repeatable).",
    THERE,
)
@option("--regime", "Calls apart, or back to back at settled power (default: the study's).", click.Choice(REGIMES))
@option("--trials", "Trials of every point (default: the study's).", click.IntRange(1, 100))
@option("--rounds", "Rounds in a trial (default: the study's).", click.IntRange(2, 10_000))
@BUDGET
@option("--out FILE", "Only write the trial file; what it has is not measured again.", NewFile())
@ARCH
@COMPUTE_UNITS
@NO_COMPILE
@SOURCE
@RESULTS
@JSON
@DRY_RUN
def study(given: Given) -> int:
    """Run a declared experiment: its points, its record, its table and its figures.

    The record, table and figures go to results/studies/NAME/MACHINE.  The same command goes on where it was
    interrupted.  Parts that need more GPUs than there are say what they wait for.  Exit code 2: not all is measured.
    """
    if given.listing or not (given.name or given.every):
        return _list(given.as_json)
    if (given.arch or given.compute_units) and not given.dry_run:
        raise click.UsageError("--arch and --compute-units are for --dry-run; a study is measured on this machine")
    chosen = list(studies().values()) if given.every else [named(str(given.name))]
    if given.sources:
        from ci.commands import study_steps

        return max(study_steps.of_files(one, given) for one in chosen)
    if not given.dry_run:
        wait_for_turn()
    checkout, code = one_checkout(given), PASS
    # The program imports torch while the steps are imported: pandas takes half as long.
    if given.dry_run:
        with OneProgram() as program:
            program.begin()
            from ci.commands import study_steps

            return study_steps.plan(chosen, checkout, given, program)
    for one in chosen:
        file = given.out or project.place(f"{WORKING}/{one.name}.jsonl")
        with alone(file), OneProgram() as program:
            program.begin()
            from ci.commands import study_steps

            left = study_steps.measure(one, checkout, given, file, program)
        code = max(code, study_steps.record(one, file, left, given))
    return code


def _list(as_json: bool) -> int:
    known = studies().values()
    if as_json:
        told = [dataclasses.asdict(dataclasses.replace(one, columns={})) for one in known]
        for one in told:
            del one["columns"]  # they are code
        print_json(told)
        return PASS
    table = Table("study", "question", "operators", "ranks", box=None)
    for study in known:
        table.add_row(study.name, study.question, ", ".join(study.operators), ", ".join(map(str, study.ranks)))
    out_console().print(table)
    return PASS
