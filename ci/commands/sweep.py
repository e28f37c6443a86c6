"""`ridgeline sweep`: which knobs are best, as ratios to the default that was timed in turn with them."""

from __future__ import annotations

import shlex

import click

from ci import harness
from ci.commands.common.measuring import one_checkout
from ci.options import (
    BACKEND,
    CASE,
    DRY_RUN,
    JSON,
    NO_VERDICT,
    PASS,
    SOURCE,
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
from ci.report.document import markdown
from ci.report.words import plain, plural
from ci.sweeps import catalogue, grid, show
from ci.sweeps.measured import MISS, SweepError
from ci.sweeps.pruning import PointCompiler, Rungs, prune
from ci.sweeps.run import FOLDER, SweepPlan, expected_minutes, measure, sweep_id
from ci.whole_files import replace
from kernels import project

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
    values = grid.of_options(given.knobs)
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
        chosen = grid.swept(chosen, values, given.candidates)
    points = grid.points(chosen, values, given.candidates)
    anchors = grid.anchors_of(points, [offer.backend for offer in offered.offers if offer.baseline])
    pruned = prune(offered, points, anchors, PointCompiler(checkout.path, console, launched=given.arch is None))
    rungs = Rungs.of(operator, offered.kind)
    name = sweep_id(operator, checkout, rungs, given.out)
    out = given.out or project.place(f"{FOLDER}/{operator}-{name}.jsonl")
    world = offered.world(pruned.to_measure)
    plan = SweepPlan(name, operator, checkout, pruned, anchors, out, rungs, given.budget, world)
    rounds = ", ".join(map(str, rungs.rounds))
    chances = f"Rungs of {rounds} rounds; the chance that the best point was dropped is at most {100 * MISS:g} %."
    if given.dry_run:
        minutes = expected_minutes(pruned.count, rungs, world)
        if given.as_json:
            to_measure = {case: [point.as_json() for point in own] for case, own in pruned.to_measure.items()}
            dropped = [
                {"case": d.point.case, **d.point.as_json(), "kind": d.kind, "why": d.why} for d in pruned.dropped
            ]
            facts = {"points": to_measure, "pruned": dropped, "reasons": pruned.reasons(), "arch": offered.arch}
            print_json({**facts, "gpu_minutes": round(minutes, 2)})
            return PASS
        count = sum(point.label != anchors[case] for case, own in points.items() for point in own)
        click.echo(f"{count} points of {operator} in {plural(len(points), 'case')} on {offered.arch}")
        for what, number in pruned.reasons().items():
            click.echo(f"  {number} are not measured: {what}")
        for point in pruned.dropped[:3]:
            click.echo(f"    {point.point.case} {show.knob_words(point.point.knobs)}: {plain(point.why, 200)}")
        click.echo(f"would measure {pruned.count} points into {out}, about {minutes:.1f} GPU minutes\n  {chances}")
        return PASS
    ended = measure(plan, console)
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    table = out.with_name(f"{out.name.removesuffix('.gz').removesuffix('.jsonl')}.csv")
    replace(table, show.csv(ended.measured))
    rankings, left = show.rankings(show.point_rows(ended.measured.frame), pruned), ended.left.count if ended.left else 0
    if given.as_json:
        print_json(show.document(ended.measured, rankings, left, ended.why if left else ""))
        return NO_VERDICT if left else PASS
    for ranking in rankings:
        click.echo("\n".join([markdown(show.sheet(ranking)), *show.case_sentences(ranking), ""]))
    click.echo(f"{chances}\n{ended.measured.gpu_s / 60:.1f} GPU minutes; written: {out}, {table.name}")
    if ended.left:
        rung = f"rung {ended.left.rung + 1} of {len(rungs)}"
        click.echo(f"not measured: {left} points of {rung} ({ended.why}); `{harness.again()}` goes on")
        return NO_VERDICT
    click.echo(f"`ridgeline records add {shlex.quote(str(out))}` keeps it in the history of sweeps")
    return PASS
