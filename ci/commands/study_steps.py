"""What `ridgeline study` does: points, what measuring them gave, records and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.types import Study, StudyError
from ci.git.repository import LocalCheckout
from ci.harness import OneProgram
from ci.options import NO_VERDICT, PASS, Given, err_console, out_console, print_json
from ci.sweeps.catalogue import Catalogues
from ci.sweeps.studies import changes, folder, run
from ci.sweeps.studies.run import Left, StudyAsked, code_of, measured, ready
from ci.whole_files import replace


def _asked(checkout: LocalCheckout, given: Given) -> StudyAsked:
    """What the options of the command line ask for."""
    device, often = (given.arch, given.compute_units), (given.trials, given.rounds)
    regime: str = given.regime or ""
    return StudyAsked(checkout.path, given.cases, *device, regime, *often, not given.no_compile, given.budget)


def plan(chosen: Sequence[Study], checkout: LocalCheckout, given: Given, program: OneProgram) -> int:
    """Points, points that need no GPU time by reason, GPU minutes expected."""
    console, asked = err_console(), _asked(checkout, given)
    known = Catalogues(asked.tree, (name for one in chosen for name in one.operators), program, console)
    made = {one.name: ready(one, asked, known, console) for one in chosen}
    if given.as_json:
        print_json({name: run.planned(parts) for name, parts in made.items()})
        return PASS
    for name, parts in made.items():
        out_console().print(run.plan_table(name, parts))
    return PASS


def measure(one: Study, checkout: LocalCheckout, given: Given, file: Path, program: OneProgram) -> list[Left]:
    """Measure what the file lacks; what is left then.  StudyError if the file has nothing at all."""
    console, asked = err_console(), _asked(checkout, given)
    known = Catalogues(asked.tree, one.operators, program, console)
    parts = ready(one, asked, known, console)
    left = measured(one, parts, checkout, asked, file, program, console)
    if one.code:
        replace(changes.beside(file), changes.text_of(code_of(one, parts, asked, known, console)))
    if not file.exists():
        raise StudyError(f"the study {one.name} measured nothing: {run.why_nothing(parts, left)}")
    return left


def record(one: Study, file: Path, left: Sequence[Left], given: Given) -> int:
    """Record, table and figures of what was measured."""
    for found in folder.of_files(one, [file]):
        place = folder.folder_of(given.results, one.name, found.machine, found.regime)
        place = file.parent / file.stem if given.out else place
        folder.keep_code(place, [file])
        _rendered(one, found, place, [file.parent], given.as_json, left, keep=given.out is None)
    return NO_VERDICT if left else PASS


def of_files(one: Study, given: Given) -> int:
    """Table and figures of files; nothing is measured."""
    beside = [path if path.is_dir() else path.parent for path in given.sources]
    for found in folder.read(one, given.sources):
        place = folder.folder_of(given.results, one.name, found.machine, found.regime)
        folder.keep_code(place, given.sources)
        _rendered(one, found, place, beside, given.as_json, (), keep=bool(found.lines))
    return PASS


def _rendered(
    one: Study,
    found: folder.StudyRows,
    place: Path,
    beside: Sequence[Path],
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
    foot = folder.foot_of(found.frame, found.found)
    run.show(one, folder.render(one, found.frame, foot, place, err_console(), remarks, facts), as_json)
