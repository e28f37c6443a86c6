"""What `ridgeline study` does: points, what measuring them gave, records and figures."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console

from benchmarks.studies.types import Study, StudyError
from ci.commands.sweep import Given
from ci.git.repository import LocalCheckout
from ci.harness import OneProgram
from ci.options import NO_VERDICT, PASS, err_console, out_console
from ci.sweeps.catalogue import Catalogues
from ci.sweeps.studies import changes, folder, run
from ci.sweeps.studies.run import Left, StudyAsked, code_of, measured, ready
from ci.whole_files import replace


def asked_of(tree: Path, given: Given) -> StudyAsked:
    """What the options of the command line ask for."""
    said = {key: given[key] for key in ("cases", "arch", "compute_units", "trials", "rounds")}
    how = {"regime": given["regime"] or "", "compile_ahead": not given["no_compile"], "budget_min": given["budget"]}
    return StudyAsked(tree, **how, **said)


def plan(chosen: Sequence[Study], asked: StudyAsked, program: OneProgram, as_json: bool) -> int:
    """Points, points that need no GPU time by reason, GPU minutes expected."""
    console = err_console()
    known = Catalogues(asked.tree, (name for one in chosen for name in one.operators), program, console)
    made = {one.name: ready(one, asked, known, console) for one in chosen}
    if as_json:
        click.echo(json.dumps({name: run.planned(parts) for name, parts in made.items()}, indent=1))
        return PASS
    for table in [run.plan_table(name, parts) for name, parts in made.items()]:
        out_console().print(table)
    return PASS


def measure(one: Study, checkout: LocalCheckout, asked: StudyAsked, file: Path, program: OneProgram) -> list[Left]:
    """Measure what the file lacks; what is left then.  StudyError if the file has nothing at all."""
    console = err_console()
    known = Catalogues(asked.tree, one.operators, program, console)
    parts = ready(one, asked, known, console)
    left = measured(one, parts, checkout, asked, file, program, console)
    if one.code:
        replace(changes.beside(file), changes.text_of(code_of(one, parts, asked, known, console)))
    if not file.exists():
        raise StudyError(f"the study {one.name} measured nothing: {run.why_nothing(parts, left)}")
    return left


def record(one: Study, file: Path, out: Path | None, results: Path, left: Sequence[Left], as_json: bool) -> int:
    """Record, table and figures of what was measured."""
    console = err_console()
    for found in folder.of_files(one, [file]):
        place = file.parent / file.stem if out else folder.folder_of(results, one.name, found.machine, found.regime)
        folder.keep_code(place, [file])
        _rendered(one, found, place, [file.parent], console, as_json, left, keep=out is None)
    return NO_VERDICT if left else PASS


def of_files(one: Study, sources: Sequence[Path], results: Path, as_json: bool) -> int:
    """Table and figures of files; nothing is measured."""
    console = err_console()
    beside = [path if path.is_dir() else path.parent for path in sources]
    for found in folder.read(one, sources):
        place = folder.folder_of(results, one.name, found.machine, found.regime)
        folder.keep_code(place, sources)
        _rendered(one, found, place, beside, console, as_json, (), keep=bool(found.lines))
    return PASS


def _rendered(
    one: Study,
    found: folder.StudyRows,
    place: Path,
    beside: Sequence[Path],
    console: Console,
    as_json: bool,
    left: Sequence[Left],
    keep: bool,
) -> None:
    """Keep the lines, write table and figures, and print them."""
    place.mkdir(parents=True, exist_ok=True)
    if keep:
        [found] = folder.of_files(one, [folder.keep(place, found.lines)])
        folder.keep_checks(place, one.name, beside)
    facts = folder.bits(one, dict.fromkeys([*beside, place]), found.machine)
    remarks = [f"{each.operator}: {each.points} points are not measured yet: {each.why}" for each in left]
    made = folder.render(one, found.frame, folder.foot_of(found.frame, found.found), place, console, remarks, facts)
    run.show(one, made, as_json)
