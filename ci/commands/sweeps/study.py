"""`ridgeline study`: declared experiments, from their points to their figures."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.studies import studies
from benchmarks.studies import study as named
from benchmarks.studies.types import REGIMES, Study, StudyError
from ci.commands.common.checkouts import one_checkout
from ci.commands.sweeps.sweep_options import ARCH, BUDGET, COMPUTE_UNITS, NO_COMPILE
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
    NewFile,
    err_console,
    example,
    out_console,
    together,
)
from ci.sweeps.catalogue import Catalogues
from ci.sweeps.run import alone
from ci.sweeps.studies import folder, report, source
from ci.sweeps.studies.across import code
from ci.sweeps.studies.ready import StudyAsked, code_of, ready
from ci.sweeps.studies.run import Left, measured
from ci.trials.trial import Json
from ci.whole_files import replace

EXAMPLES = """ridgeline study --list
  ridgeline study m_sweep --case 'n4096_k4096_*' --dry-run --arch gfx942
  ridgeline study --all --dry-run --arch gfx950
  ridgeline study roofline --from results --results /tmp/studies"""

WORKING = Path(".ridgeline/studies")
"""Where the lines of a study go while it is measured."""

FILES = click.Path(path_type=Path, exists=True)
FROM = "Measure nothing: trial files, or the folder `results` for arms without knobs (repeatable)."
REGIME = "Calls apart, or back to back at settled power (default: the study's)."
OUT = "Only write the trial file; what it has is not measured again."
WHAT = together(
    click.argument("name", required=False),
    click.option("--all", "every", is_flag=True, help="Every study."),
    click.option("--list", "listing", is_flag=True, help="The studies that are declared."),
    CASE,
    click.option("--from", "sources", multiple=True, type=FILES, metavar="FILE", help=FROM),
)  # fmt: skip
HOW = together(
    click.option("--regime", type=click.Choice(REGIMES), help=REGIME),
    click.option("--trials", type=click.IntRange(1, 100), help="Trials of every point (default: the study's)."),
    click.option("--rounds", type=click.IntRange(2, 10_000), help="Rounds in a trial (default: the study's)."),
    BUDGET,
    click.option("--out", type=NewFile(), metavar="FILE", help=OUT),
    ARCH,
    COMPUTE_UNITS,
    NO_COMPILE,
)  # fmt: skip


@click.command(epilog=example(EXAMPLES))
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
        return max(_from(one, given["sources"], given["results"], as_json) for one in chosen)
    checkout = one_checkout(given["commit"], given["commit_date"], given["tree"], given["out"])
    asked = _asked(checkout.path, given)
    if dry_run:
        return _dry(chosen, asked, as_json)
    return max(_measure(one, checkout, asked, given["out"], given["results"], as_json) for one in chosen)


def _asked(tree: Path, given: Json) -> StudyAsked:
    said = {key: given[key] for key in ("cases", "arch", "compute_units", "trials", "rounds")}
    how = {"regime": given["regime"] or "", "compile_ahead": not given["no_compile"], "budget_min": given["budget"]}
    return StudyAsked(tree, **how, **said)


def _list(as_json: bool) -> int:
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(one) for one in studies().values()], indent=1))
        return PASS
    table = Table("study", "question", "operators", "ranks", box=None)
    for one in studies().values():
        table.add_row(one.name, one.question, ", ".join(one.operators), ", ".join(map(str, one.ranks)))
    out_console().print(table)
    return PASS


def _dry(chosen: Sequence[Study], asked: StudyAsked, as_json: bool) -> int:
    """Points, points that need no GPU time by reason, GPU minutes expected."""
    console = err_console()
    with OneProgram() as program:
        known = Catalogues(asked.tree, (name for one in chosen for name in one.operators), program, console)
        made = {one.name: ready(one, asked, known, console) for one in chosen}
    if as_json:
        click.echo(json.dumps({name: report.planned(parts) for name, parts in made.items()}, indent=1))
    else:
        for name, parts in made.items():
            out_console().print(report.plan_table(name, parts))
    return PASS


def _measure(
    one: Study, checkout: LocalCheckout, asked: StudyAsked, out: Path | None, results: Path, as_json: bool
) -> int:
    console = err_console()
    file = out or WORKING / f"{one.name}.jsonl"
    with alone(file), OneProgram() as program:
        known = Catalogues(asked.tree, one.operators, program, console)
        parts = ready(one, asked, known, console)
        left = measured(one, parts, checkout, asked, file, program, console)
        if one.code:
            replace(code.beside(file), code.text_of(code_of(one, parts, asked, known, console)))
    if not file.exists():
        raise StudyError(f"the study {one.name} measured nothing: {report.why_nothing(parts, left)}")
    for found in source.of_files(one, [file]):
        place = file.parent / file.stem if out else folder.folder_of(results, one.name, found.machine, found.regime)
        folder.keep_code(place, [file])
        _rendered(one, found, place, [file.parent], console, as_json, left, keep=out is None)
    return NO_VERDICT if left else PASS


def _from(one: Study, sources: Sequence[Path], results: Path, as_json: bool) -> int:
    console = err_console()
    beside = [path if path.is_dir() else path.parent for path in sources]
    for found in source.read(one, sources):
        place = folder.folder_of(results, one.name, found.machine, found.regime)
        folder.keep_code(place, sources)
        _rendered(one, found, place, beside, console, as_json, (), keep=bool(found.lines))
    return PASS


def _rendered(
    one: Study,
    found: source.StudyRows,
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
        [found] = source.of_files(one, [folder.keep(place, found.lines)])
        folder.keep_checks(place, one.name, beside)
    facts = source.bits(one, dict.fromkeys([*beside, place]), found.machine)
    remarks = [f"{each.operator}: {each.points} points are not measured yet: {each.why}" for each in left]
    made = folder.render(one, found.frame, folder.foot_of(found.frame, found.found), place, console, remarks, facts)
    report.show(one, made, as_json)
