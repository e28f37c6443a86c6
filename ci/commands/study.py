"""`ridgeline study`: declared experiments, from their points to their figures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

import click
from rich.table import Table

from benchmarks.studies import studies
from benchmarks.studies import study as named
from benchmarks.studies.types import REGIMES, Study
from ci.commands.common.measuring import one_checkout
from ci.commands.sweep import ARCH, BUDGET, COMPUTE_UNITS, NO_COMPILE, Given
from ci.git.repository import LocalCheckout
from ci.harness import OneProgram
from ci.options import (
    CASE,
    DRY_RUN,
    JSON,
    PASS,
    RESULTS,
    SOURCE,
    THERE,
    NewFile,
    flag,
    option,
    out_console,
    several,
    together,
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

FROM = "Measure nothing: trial files, or the folder `results` for arms without knobs (repeatable)."
REGIME = "Calls apart, or back to back at settled power (default: the study's)."
OUT = "Only write the trial file; what it has is not measured again."
WHAT = together(
    click.argument("name", required=False),
    flag("--all -> every", "Every study."),
    flag("--list -> listing", "The studies that are declared."),
    CASE,
    several("--from FILE -> sources", FROM, THERE),
)  # fmt: skip
HOW = together(
    option("--regime", REGIME, click.Choice(REGIMES)),
    option("--trials", "Trials of every point (default: the study's).", click.IntRange(1, 100)),
    option("--rounds", "Rounds in a trial (default: the study's).", click.IntRange(2, 10_000)),
    BUDGET,
    option("--out FILE", OUT, NewFile()),
    ARCH,
    COMPUTE_UNITS,
    NO_COMPILE,
)  # fmt: skip


@verb(EXAMPLES)
@WHAT
@HOW
@SOURCE
@RESULTS
@JSON
@DRY_RUN
def study(name: str | None, every: bool, listing: bool, as_json: bool, dry_run: bool, **given: Any) -> int:
    """Run a declared experiment: its points, its record, its table and its figures.

    The record, table and figures go to results/studies/NAME/MACHINE.  The same command goes on where it was
    interrupted.  Parts that need more GPUs than there are say what they wait for.  Exit code 2: not all is measured.
    """
    if listing or not (name or every):
        return _list(as_json)
    if (given["arch"] or given["compute_units"]) and not dry_run:
        raise click.UsageError("--arch and --compute-units are for --dry-run; a study is measured on this machine")
    chosen = list(studies().values()) if every else [named(str(name))]
    if given["sources"]:
        from ci.commands import study_steps

        return max(study_steps.of_files(one, given["sources"], given["results"], as_json) for one in chosen)
    if not dry_run:
        wait_for_turn()
    checkout = one_checkout(given["commit"], given["commit_date"], given["tree"], given["out"])
    return (_planned if dry_run else _measured)(chosen, checkout, given, as_json)


# The program imports torch while the steps are imported: pandas takes half as long.


def _planned(chosen: Sequence[Study], checkout: LocalCheckout, given: Given, as_json: bool) -> int:
    with OneProgram() as program:
        program.begin()
        from ci.commands import study_steps

        return study_steps.plan(chosen, study_steps.asked_of(checkout.path, given), program, as_json)


def _measured(chosen: Sequence[Study], checkout: LocalCheckout, given: Given, as_json: bool) -> int:
    code = PASS
    for one in chosen:
        file = given["out"] or project.place(f"{WORKING}/{one.name}.jsonl")
        with alone(file), OneProgram() as program:
            program.begin()
            from ci.commands import study_steps

            left = study_steps.measure(one, checkout, study_steps.asked_of(checkout.path, given), file, program)
        code = max(code, study_steps.record(one, file, given["out"], given["results"], left, as_json))
    return code


def _list(as_json: bool) -> int:
    if as_json:
        plain = [dataclasses.asdict(dataclasses.replace(one, columns={})) for one in studies().values()]
        told = [{key: value for key, value in one.items() if key != "columns"} for one in plain]  # its columns are code
        click.echo(json.dumps(told, indent=1))
        return PASS
    table = Table("study", "question", "operators", "ranks", box=None)
    for one in studies().values():
        table.add_row(one.name, one.question, ", ".join(one.operators), ", ".join(map(str, one.ranks)))
    out_console().print(table)
    return PASS
