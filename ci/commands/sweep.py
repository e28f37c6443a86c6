"""`ridgeline sweep`: which knobs are best, as ratios to the default that was timed in turn with them."""

from __future__ import annotations

import shlex

import click

from ci import harness
from ci.commands.common.measuring import one_checkout
from ci.options import (
    ANY,
    CASE,
    DRY_RUN,
    JSON,
    NO_VERDICT,
    PASS,
    SECONDS,
    SOURCE,
    THERE,
    Given,
    NewFile,
    Parsed,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report.words import plain, plural
from ci.sweeps import catalogue, grid, run, show
from ci.sweeps.grid import Prepared, prepared
from ci.sweeps.measured import SweepError, gathered
from ci.sweeps.pruning import PointCompiler
from ci.sweeps.run import BATCH, FOLDER, Progressed, SweepPlan, measure, sweep_id, trials_of
from ci.sweeps.rungs import CPU_ROUNDS, GPU_ROUNDS, Rungs, due, seen_in
from ci.whole_files import replace
from kernels import project

# Options of `tune` and `study` too: for which device, and for how long.

MINUTES = click.FloatRange(0, min_open=True)
BUDGET = option("--budget MIN", "GPU minutes that this call may take.", MINUTES)
ARCH = option("--arch NAME", "With --dry-run: for gfx942, gfx950 or sm_90 instead of this machine.")
COMPUTE_UNITS = option("--compute-units N", "With --arch: of a device with this many CUs.", click.IntRange(1))
NO_COMPILE = flag("--no-compile", "Do not compile ahead: no point is pruned by its code.")


def _shard(text: str) -> tuple[int, int]:
    """K/N: one of N parts of the points."""
    number, _, count = text.partition("/")
    if not (number.isdigit() and count.isdigit() and 1 <= int(number) <= int(count) <= 1000):
        raise ValueError(f"{text!r}: expected K/N such as 3/8, with K from 1 to N")
    return int(number), int(count)


def _rounds(text: str) -> tuple[int, ...]:
    """R,R,...: rounds of each rung."""
    parts = text.split(",")
    if not all(part.isdigit() and 2 <= int(part) <= 10_000 for part in parts):
        raise ValueError(f"{text!r}: expected rounds of each rung such as 8,20,40,40,40, each from 2 to 10000")
    return tuple(map(int, parts))


GPU, CPU = (",".join(map(str, rounds)) for rounds in (GPU_ROUNDS, CPU_ROUNDS))

EXAMPLES = """ridgeline sweep gemm --case '*_m16_*' --knob num_warps=4,8 --knob num_stages=2,3,4
  ridgeline sweep gemm --grid tiles.toml --candidates --arch gfx942 --dry-run
  ridgeline sweep gemm --backend torch --knob threads=1,2 --case n4096_k4096_m1_fp16 --out threads.jsonl"""


@verb(EXAMPLES)
@click.argument("operator")
@several("--grid FILE -> files", "TOML or JSON: values by knob, or points (repeatable).", ANY)
@several("--knob NAME=V,V -> knobs", "Values of a knob; several give every combination.")
@flag("--candidates", "The points that the operator itself proposes.")
@CASE
@option("--tier", "Without --case: which cases.", click.Choice(harness.TIERS), default="pr")
@several("--backend NAME -> backends", "Only this backend; one without knobs is timed as it is (repeatable).")
@option(
    "--anchor NAME", "The backend at whose default the ratios are 1 (default: the first that is swept).", default=""
)
@option("--most", "Refuse more points than this.", click.IntRange(1), default=grid.MOST)
@option("--rounds R,R,...", f"Rounds of each rung (default: {GPU}; on a CPU {CPU}).", Parsed("r,r", _rounds))
@flag("--all -> everything", "Every point in every rung: nothing is dropped.")
@option(
    "--miss",
    "Accepted chance of dropping the best point.",
    click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.05,
)
@option("--batch", "Points that are timed in turn with one anchor.", click.IntRange(1, 500), default=BATCH)
@option(
    "--regime",
    "Calls apart, or back to back at settled power.",
    click.Choice(("spaced", "sustained")),
    default="spaced",
)
@option("--seed", "Seed of the inputs.", click.IntRange(0), default=0)
@option("--deadline SECONDS", "A step of a point that takes longer is a hang.", SECONDS)
@option("--heap", "Home of the symmetric heap on GPUs.", click.Choice(harness.HEAPS))
@NO_COMPILE
@option("--out FILE", "Trial file; what it has is not measured again (default: one in .ridgeline/sweeps).", NewFile())
@flag("--resume", "What every call does anyway: go on with --out.")
@several("--from FILE -> earlier", "Lines of other shards that count as measured (repeatable).", THERE)
@option(
    "--shard K/N",
    "Only this part of the points; the final rungs follow with --from.",
    Parsed("k/n", _shard),
    default=(1, 1),
    show_default=False,
)
@BUDGET
@flag("--show -> only_show", "Measure nothing: the table of what is there.")
@ARCH
@COMPUTE_UNITS
@SOURCE
@JSON
@DRY_RUN
def sweep(given: Given) -> int:
    """Measure points of an operator against its default, and say which is best and how sure that is.

    Every point is a ratio to the anchor, timed in the same rounds.  Points that cannot run, or that compile to the code
    of another, take no GPU time; all others get few rounds, and those that may still be the best get more.  The same
    command goes on where it was interrupted.  Exit code 2: not everything is measured.
    """
    if (given.arch or given.compute_units) and not given.dry_run:
        raise click.UsageError("--arch and --compute-units are for --dry-run; a sweep is measured on this machine")
    if not (given.dry_run or given.only_show):
        wait_for_turn()
    ready, plan = planned(given)
    if given.dry_run:
        return _printed(ready, plan, given.as_json)
    ended = _shown_only(plan) if given.only_show else measure(plan, err_console())
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    ranks = show.rankings(ended.measured, ready.pruned)
    # Beside the lines: a table.
    stem = plan.out.with_suffix("") if plan.out.suffix == ".jsonl" else plan.out
    plan.out.parent.mkdir(parents=True, exist_ok=True)
    csv = stem.with_name(f"{stem.name}.csv")
    replace(csv, show.csv(ended.measured))
    if given.as_json:
        left = ended.left.count if ended.left else 0
        print_json(show.document(ended.measured, ranks, left, ended.why if left else ""))
    else:
        show.terminal(ranks, out_console())
        click.echo(show.chances(plan.rungs))
        click.echo(f"{ended.measured.gpu_s / 60:.1f} GPU minutes; written: {plan.out}, {csv.name}")
        click.echo(_next_step(plan, ended))
    return PASS if given.only_show or not ended.left else NO_VERDICT


def _next_step(plan: SweepPlan, ended: Progressed) -> str:
    """What is left, and what to do about it."""
    if ended.left:
        rung = f"rung {ended.left.rung + 1} of {len(plan.rungs_here)}"
        return f"not measured: {ended.left.count} points of {rung} ({ended.why}); `{harness.again()}` goes on"
    if not plan.finals and len(plan.rungs) > 2:  # every other shard's file is another --from
        command = harness.again(shard=None, out=None, **{"from": [*plan.earlier, plan.out]})
        return f"the final rungs follow when all shards are done: `{command}`, with a --from for each one's file"
    return f"`ridgeline records add {shlex.quote(str(plan.out))}` keeps it in the history of sweeps"


# ---- before -------------------------------------------------------------------------------------------------------


def planned(given: Given) -> tuple[Prepared, SweepPlan]:
    """What would be measured, and how.  SweepError names what is wrong before anything runs."""
    grids = [*(own for file in given.files for own in grid.of_file(file)), *grid.of_options(given.knobs)]
    if not grids and not given.candidates:
        raise click.UsageError("say what to try: --knob NAME=V,V, --grid FILE, or --candidates")
    wish = grid.PointWish(tuple(grids), given.candidates, given.most)
    operator, checkout = given.operator, one_checkout(given)
    everything = catalogue.ask(operator, checkout.path, (), given.arch, given.compute_units)
    chosen = everything.chosen(given.cases, given.backends, harness.TIERS[: harness.TIERS.index(given.tier) + 1])
    compiler = PointCompiler(checkout.path, err_console(), launched=given.arch is None)
    chosen = chosen if given.backends else grid.swept(chosen, wish)
    ready = prepared(everything, chosen, wish, given.anchor, None if given.no_compile else compiler)
    halving = not given.everything
    rungs = Rungs.of(operator, ready.catalogue.kind, given.rounds or (), miss=given.miss, halving=halving)
    name = sweep_id(operator, checkout, rungs, given.regime, given.seed)
    plan = SweepPlan(
        name,
        operator,
        checkout,
        ready.pruned,
        ready.anchors,
        given.out or project.place(f"{FOLDER}/{operator}-{name}.jsonl"),
        rungs,
        given.regime,
        given.seed,
        given.batch,
        given.shard,
        finals=given.shard[1] == 1,
        earlier=given.earlier,
        budget_min=given.budget,
        deadline_s=given.deadline,
        heap=given.heap or "",
        world=ready.catalogue.world(ready.pruned.to_measure),
    )
    return ready, plan


def _printed(ready: Prepared, plan: SweepPlan, as_json: bool) -> int:
    """What would be measured, what not and why, and how long it takes."""
    effort = run.expected(ready.catalogue, plan.dealt, plan.rungs_here)
    reasons = ready.pruned.reasons()
    count = sum(point.label != ready.anchors[case] for case, own in ready.asked.items() for point in own)
    if as_json:
        points = {case: [point.as_json() for point in own] for case, own in plan.dealt.items()}
        pruned = [
            {"case": d.point.case, **d.point.as_json(), "kind": d.kind, "why": d.why} for d in ready.pruned.dropped
        ]
        facts = {"points": points, "pruned": pruned, "reasons": reasons, "asked": count, "arch": ready.catalogue.arch}
        print_json({**facts, "samples": effort.samples, "gpu_minutes": round(effort.minutes, 2)})
        return PASS
    click.echo(f"{count} points of {plan.operator} in {plural(len(ready.asked), 'case')} on {ready.catalogue.arch}")
    for what, count in reasons.items():
        click.echo(f"  {count} are not measured: {what}")
    for point in ready.pruned.dropped[:3]:
        click.echo(f"    {point.point.case} {show.knob_words(dict(point.point.knobs))}: {plain(point.why, 200)}")
    click.echo(f"would measure {effort.points} points into {plan.out}, about {effort.minutes:.1f} GPU minutes")
    click.echo(f"  {show.chances(plan.rungs_here)}")
    return PASS


# ---- after --------------------------------------------------------------------------------------------------------


def _shown_only(plan: SweepPlan) -> Progressed:
    trials = trials_of(plan)
    sweeps = gathered(trials)
    if not sweeps:
        raise SweepError(f"there is nothing to show: {plan.out} and --from have no line of the sweep {plan.id}")
    left = due(plan.dealt, plan.rungs_here, seen_in(trials, plan.operator, plan.regime), plan.anchors)
    return Progressed(sweeps[0], left, "only what is recorded was asked for")
