"""`ridgeline study`: declared experiments, from their points to their figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click
from rich.table import Table

from ci.commands.common.measuring import one_checkout
from ci.commands.sweep import ARCH, BUDGET, COMPUTE_UNITS, NO_COMPILE
from ci.git.repository import LocalCheckout
from ci.harness import OneProgram
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
from ci.studies import changes, folder, run
from ci.studies.declared import studies, study_named
from ci.studies.run import Left, StudyRequest, code_of, measured, ready
from ci.studies.types import REGIMES, Study, StudyError
from ci.sweeps.catalogue import Catalogues
from ci.sweeps.run import lone_writer
from ci.whole_files import replace
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
    chosen = list(studies().values()) if given.every else [study_named(str(given.name))]
    if given.sources:
        for declared in chosen:
            _render(declared, given.sources, given)
        return PASS
    if not given.dry_run:
        wait_for_turn()
    checkout, code = one_checkout(given), PASS
    if given.dry_run:
        with OneProgram() as program:
            program.begin()
            return _plan(chosen, checkout, given, program)
    for declared in chosen:
        file = given.out or project.place(f"{WORKING}/{declared.name}.jsonl")
        with lone_writer(file), OneProgram() as program:
            program.begin()
            left = _measure(declared, checkout, given, file, program)
        _render(declared, [file], given, left)
        code = NO_VERDICT if left else code
    return code


def _list(as_json: bool) -> int:
    if as_json:
        declared = ("name", "title", "question", "source", "regime", "trials", "rounds", "halving")
        print_json(
            [
                {name: getattr(study, name) for name in declared}
                | {"parts": list(map(dataclasses.asdict, study.parts))}
                for study in studies().values()
            ]
        )
        return PASS
    table = Table("study", "question", "operators", "ranks", box=None)
    for study in studies().values():
        table.add_row(study.name, study.question, ", ".join(study.operators), ", ".join(map(str, study.ranks)))
    out_console().print(table)
    return PASS


def _requested(checkout: LocalCheckout, given: Given) -> StudyRequest:
    """What the options of the command line ask for."""
    device, repeats = (given.arch, given.compute_units), (given.trials, given.rounds)
    regime: str = given.regime or ""
    return StudyRequest(checkout.path, given.cases, *device, regime, *repeats, not given.no_compile, given.budget)


def _plan(chosen: Sequence[Study], checkout: LocalCheckout, given: Given, program: OneProgram) -> int:
    """Points, points that need no GPU time by reason, GPU minutes expected."""
    console, request = err_console(), _requested(checkout, given)
    known = Catalogues(request.tree, (name for declared in chosen for name in declared.operators), program, console)
    made = {declared.name: run.planned(ready(declared, request, known, console)) for declared in chosen}
    if given.as_json:
        print_json(made)
    for name, parts in () if given.as_json else made.items():
        out_console().print(run.plan_table(name, parts))
    return PASS


def _measure(declared: Study, checkout: LocalCheckout, given: Given, file: Path, program: OneProgram) -> list[Left]:
    """Measure what the file lacks; what is left then.  StudyError if the file has nothing at all."""
    console, request = err_console(), _requested(checkout, given)
    known = Catalogues(request.tree, declared.operators, program, console)
    parts = ready(declared, request, known, console)
    left = measured(declared, parts, checkout, request, file, program, console)
    if declared.code:
        replace(changes.code_file(file), changes.as_text(code_of(declared, parts, request, known, console)))
    if not file.exists():
        raise StudyError(f"the study {declared.name} measured nothing: {run.why_nothing(parts, left)}")
    return left


def _render(declared: Study, sources: Sequence[Path], given: Given, left: Sequence[Left] = ()) -> None:
    """Table and figures of trial files or of the folder of records, and their record unless they go to --out.

    left: what is not measured yet.
    """
    folders = [path if path.is_dir() else path.parent for path in sources]
    remarks = [f"{one.operator}: {one.points} points are not measured yet: {one.why}" for one in left]
    for rows in folder.read(declared, sources):
        place = folder.folder_of(given.results, declared.name, rows.machine, rows.regime)
        place = given.out.parent / given.out.stem if given.out else place
        place.mkdir(parents=True, exist_ok=True)
        folder.keep_code(place, sources)
        if rows.lines and not given.out:
            [rows] = folder.of_files(declared, [folder.keep(place, rows.lines)])
            folder.keep_checks(place, declared.name, folders)
        checked = folder.bits(declared, dict.fromkeys([*folders, place]), rows.machine)
        foot = folder.foot_of(rows.frame, rows.found)
        run.show(declared, folder.render(declared, rows.frame, foot, place, remarks, checked), given.as_json)
