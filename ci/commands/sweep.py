"""`ridgeline sweep`: which knobs are best, as ratios to the default that was timed in turn with them; `ridgeline tune`:
tables of tuned knobs, written from a sweep and verified again; `ridgeline study`: declared experiments, from their
points to their figures."""

from __future__ import annotations

import collections
import difflib
import json
import shlex
from typing import TYPE_CHECKING

import click

from ci import harness
from ci.commands.measuring import one_checkout
from ci.harness import again
from ci.options import (
    BACKEND,
    CASE,
    DRY_RUN,
    FILE,
    JSON,
    NO_VERDICT,
    PASS,
    REGRESSION,
    RESULTS,
    SOURCE,
    THERE,
    Given,
    NewFile,
    err_console,
    flag,
    option,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report.model import Sheet, markdown
from ci.report.words import plain, plural
from ci.sweeps import catalogue, run, show, tuning
from ci.sweeps.measured import MISS, Measured, SweepError, read
from ci.sweeps.pruning import PointCompiler, Pruned, Rungs, prune
from ci.sweeps.run import FOLDER, SweepPlan, measure, sweep_id
from ci.sweeps.tuning import Action
from ci.whole_files import replace
from kernels import project

if TYPE_CHECKING:
    from ci.studies.frame import Study
    from ci.studies.run import Rendered

# Options of `tune` and `study` too: for which device, and for how long.

BUDGET = option("--budget MIN", "GPU minutes that this call may take.", click.FloatRange(0, min_open=True))
ARCH = option("--arch NAME", "With --dry-run: for gfx942, gfx950 or sm_90 instead of this machine.")

EXAMPLES = """ridgeline sweep gemm --case '*_m16_*' --knob num_warps=4,8 --knob num_stages=2,3,4
  ridgeline sweep gemm --candidates --arch gfx942 --dry-run
  ridgeline sweep gemm --backend torch --knob threads=1,2 --case n4096_k4096_m1_fp16 --out threads.jsonl"""


@verb(EXAMPLES)
@click.argument("operator")
@several("--knob NAME=V,V -> knobs", "Values of a knob; several give every combination.")
@flag("--candidates", "The points that the operator itself proposes.")
@CASE
@option("--tier", "Without --case: which cases.", click.Choice(harness.TIERS), default="pr")
@BACKEND
@option("--out FILE", "Trial file; what it has is not measured again (default: one in .ridgeline/sweeps).", NewFile())
@BUDGET
@ARCH
@SOURCE
@JSON
@DRY_RUN
def sweep(given: Given) -> int:
    """Measure points of an operator against its default, and say which is best and how sure that is.

    Every point is a ratio to the anchor, the default of the first backend that is swept, timed in the same rounds.
    Points that cannot run, or that compile to the code of another, take no GPU time; all others get few rounds, and
    those that may still be the best get more.  The same command goes on where it was interrupted.  Exit code 2: not
    everything is measured.
    """
    values = catalogue.of_options(given.knobs)
    if not values and not given.candidates:
        raise click.UsageError("say what to try: --knob NAME=V,V or --candidates")
    if given.arch and not given.dry_run:
        raise click.UsageError("--arch is for --dry-run; a sweep is measured on this machine")
    if not given.dry_run:
        wait_for_turn()
    operator, checkout, console = given.operator, one_checkout(given), err_console()
    offered = catalogue.ask(operator, checkout.path, arch=given.arch)
    chosen = offered.chosen(given.cases, given.backends, harness.TIERS[: harness.TIERS.index(given.tier) + 1])
    if not given.backends:
        chosen = catalogue.swept(chosen, values, given.candidates)
    points = catalogue.points(chosen, values, given.candidates)
    anchors = catalogue.anchors_of(points, [offer.backend for offer in offered.offers if offer.baseline])
    pruned = prune(offered, points, anchors, PointCompiler(checkout.path, console, launched=given.arch is None))
    rungs = Rungs.of(operator, offered.kind)
    name = sweep_id(operator, checkout, rungs, given.out)
    out = given.out or project.place(f"{FOLDER}/{operator}-{name}.jsonl")
    world = offered.world(pruned.to_measure)
    plan = SweepPlan(name, operator, checkout, pruned, anchors, out, rungs, given.budget, world)
    rounds = ", ".join(map(str, rungs.rounds))
    chances = f"Rungs of {rounds} rounds; the chance that the best point was dropped is at most {100 * MISS:g} %."
    if given.dry_run:
        if given.as_json:
            to_measure = {case: [point.as_json() for point in own] for case, own in pruned.to_measure.items()}
            dropped = [
                {"case": d.point.case, **d.point.as_json(), "kind": d.kind, "why": d.why} for d in pruned.dropped
            ]
            print_json({"points": to_measure, "pruned": dropped, "reasons": pruned.reasons(), "arch": offered.arch})
            return PASS
        click.echo(f"{pruned.point_count} points of {operator} in {plural(len(points), 'case')} on {offered.arch}")
        _show_pruned(pruned)
        click.echo(f"into {out}\n{chances}")
        return PASS
    ended = measure(plan, console)
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    rankings, left = show.rankings(show.point_rows(ended.measured.frame), pruned), ended.left.count if ended.left else 0
    if given.as_json:
        print_json(show.document(ended.measured, rankings, left, ended.why if left else ""))
        return NO_VERDICT if left else PASS
    for ranking in rankings:
        click.echo("\n".join([markdown(show.sheet(ranking)), *show.case_sentences(ranking), ""]))
    click.echo(f"{chances}\n{ended.measured.gpu_s / 60:.1f} GPU minutes; written: {out}")
    if ended.left:
        rung = f"rung {ended.left.rung + 1} of {len(rungs)}"
        click.echo(f"not measured: {left} points of {rung} ({ended.why}); `{harness.again()}` goes on")
        return NO_VERDICT
    click.echo(f"`ridgeline records add {shlex.quote(str(out))}` keeps it in the history of sweeps")
    return PASS


def _show_pruned(pruned: Pruned) -> None:
    """For a dry run: what is not measured and why, with the first examples, and what would be."""
    for reason, count in pruned.reasons().items():
        click.echo(f"  {count} points are not measured: {reason}")
    for dropped in pruned.dropped[:3]:
        click.echo(f"    {dropped.point.case} {show.knob_words(dropped.point.knobs)}: {plain(dropped.why, 200)}")
    click.echo(f"would measure {pruned.count} points")


# ---- ridgeline tune --------------------------------------------------------------------------------------------------

TUNE_EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune gemm --verify"""


@verb(TUNE_EXAMPLES)
@click.argument("operator")
@CASE
@BACKEND
@several("--from FILE -> files", "Trial files of a sweep: nothing is measured (repeatable).", FILE)
@flag("--verify", "Measure only the entries that are there, against the rule; one that does not win is removed.")
@BUDGET
@SOURCE
@JSON
@DRY_RUN
def tune(given: Given) -> int:
    """Write tuned tables: an entry where a winner beats the rule beyond doubt, none where it does not.

    An entry is for all cases that share it, so all of them are measured; it says what confirmed it.  Exit code 1: with
    --verify, an entry does not win any more; 2: something could not be decided, and stays as it was.
    """
    for path in given.files:
        if not path.is_file():
            raise click.BadParameter(f"{str(path)!r} is not a file; `ridgeline sweep --help` says how to measure one")
    if not (given.dry_run or given.files):
        wait_for_turn()
    operator, checkout = given.operator, one_checkout(given)
    recorded = read(given.files) if given.files else None
    machine = recorded.machine if recorded else None
    device = (machine.arch or "cpu", machine.compute_units) if machine else (None, None)
    offered = catalogue.ask(operator, checkout.path, (), *device)
    cases = catalogue.to_tune(offered, given.cases, given.backends)
    if given.verify:
        gpus = offered.devices or max(case.world for case in cases)
        waiting = {case.place: case.world for case in cases if case.entry and case.world > gpus}
        for world, count in sorted(collections.Counter(waiting.values()).items()):
            click.echo(f"{count} entries wait for {world} GPUs; there are {gpus}", err=True)
        cases = [case for case in cases if case.entry and case.place not in waiting]
        if not cases:
            click.echo(f"{operator}: no entry to verify on {offered.arch}", err=True)
            return PASS
    if recorded is None:
        plan = tuning.tuning_sweep(
            offered, cases, checkout, PointCompiler(checkout.path, err_console()), given.budget, given.verify
        )
        if given.dry_run:
            entries = len({case.place for case in cases})
            click.echo(f"{operator}: {entries} entries on {offered.arch}, for {len(cases)} cases and backends")
            _show_pruned(plan.pruned)
            return PASS
        ended = run.measure(plan, err_console())
        if ended.measured is None:
            raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
        if ended.left:
            click.echo(f"{ended.left.count} points are not measured ({ended.why}); `{again()}` goes on", err=True)
        recorded = ended.measured
    return _write(cases, recorded, given)


def _write(cases: list[catalogue.BackendOffer], measured: Measured, given: Given) -> int:
    """Decide, and write the tables, or with --dry-run show what would change in them; the exit code."""
    decided = tuning.decisions(cases, measured)
    if not decided:
        raise SweepError(f"no case of {given.operator} with a tuned table has a time in this sweep; tune measures them")
    for file in dict.fromkeys(decision.place.file for decision in decided):
        before = file.read_text(encoding="utf-8")
        after = tuning.rewritten(before, file, decided, measured)
        if given.dry_run:
            lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
            click.echo("".join(lines), nl=False, err=True)
        elif before != after:
            replace(file, after)
            click.echo(f"wrote {file}", err=True)
    document, actions = tuning.document(decided), {decision.action for decision in decided}
    if given.as_json:
        print_json({"entries": document})
    else:
        head = ("entry", "action", "knobs", "why")
        rows = [(row["entry"], row["action"], show.knob_words(row["knobs"] or {}), row["why"]) for row in document]
        click.echo(markdown(Sheet(given.operator, head, tuple(rows), len(head))), nl=False)
    if given.verify and actions & {Action.MOVED, Action.REMOVED}:
        return REGRESSION
    return NO_VERDICT if Action.OPEN in actions else PASS


# ---- ridgeline study -------------------------------------------------------------------------------------------------


STUDY_EXAMPLES = """ridgeline study --list
  ridgeline study m_sweep --case 'n4096_k4096_*' --dry-run --arch gfx942
  ridgeline study roofline --from results/studies/roofline/h200x1-537ca5d2 --results /tmp/studies"""

WORKING = ".ridgeline/studies"
"""Below the root of the project: where the lines of a study go while it is measured."""


@verb(STUDY_EXAMPLES)
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
        return _list_studies(given.as_json)
    if given.arch and not given.dry_run:
        raise click.UsageError("--arch is for --dry-run; a study is measured on this machine")
    from ci.studies import run as studying  # matplotlib takes 0.4 s, which `sweep` and `tune` do without
    from ci.studies.declared import study_named

    declared, left = study_named(str(given.name)), list[str]()
    sources = list(given.sources)
    if not sources:
        if not given.dry_run:
            wait_for_turn()
        checkout, console = one_checkout(given), err_console()
        sources = [project.place(f"{WORKING}/{declared.name}.jsonl")]
        plans = studying.plans(declared, checkout, sources[0], console, given.cases, given.arch)
        if given.dry_run:
            rows = list(map(studying.planned, plans))
            if given.as_json:
                print_json({declared.name: rows})
            else:
                cells = tuple(tuple(str(value).strip("{}") for value in row.values()) for row in rows)
                click.echo(markdown(Sheet(declared.name, tuple(rows[0]), cells, 1)), nl=False)
            return PASS
        left = studying.measured(plans, given.budget, console)
    for folder in studying.keep(declared, sources, given.results):
        _show_study(declared, studying.render(declared, folder, left), given.as_json)
    return NO_VERDICT if left else PASS


def _list_studies(as_json: bool) -> int:
    from ci.studies.declared import studies

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


def _show_study(declared: Study, made: Rendered, as_json: bool) -> None:
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
