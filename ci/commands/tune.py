"""`ridgeline tune`: tables of tuned knobs, written from a sweep, and verified again."""

from __future__ import annotations

import difflib

import click

from ci.commands.common.measuring import one_checkout
from ci.commands.sweep import BUDGET
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
    SOURCE,
    Given,
    err_console,
    flag,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.report.document import Sheet, markdown
from ci.sweeps import catalogue, run, show, tuning
from ci.sweeps.measured import Measured, SweepError, read
from ci.sweeps.pruning import PointCompiler
from ci.sweeps.tuning import Action
from ci.whole_files import replace

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune gemm --verify"""


@verb(EXAMPLES)
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
            raise click.BadParameter(f"{str(path)!r} is no file; `ridgeline sweep --help` says how to measure one")
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
        for case in (case for case in cases if case.entry and case.world > gpus):
            click.echo(f"{case.place}: {case.case} waits for {case.world} GPUs; there are {gpus}", err=True)
        waiting = {case.place for case in cases if case.world > gpus}
        cases = [case for case in cases if case.entry and case.place not in waiting]
        if not cases:
            click.echo(f"{operator}: no entry to verify on {offered.arch}", err=True)
            return PASS
    if recorded is None:
        plan = tuning.tuning_sweep(
            offered, cases, checkout, PointCompiler(checkout.path, err_console()), given.budget, given.verify
        )
        if given.dry_run:
            minutes = run.expected_minutes(plan.pruned.count, plan.rungs, plan.world)
            entries = len({case.place for case in cases})
            click.echo(f"{operator}: {entries} entries on {offered.arch}, for {len(cases)} cases and backends")
            for reason, count in plan.pruned.reasons().items():
                click.echo(f"  {count} points are not measured: {reason}")
            click.echo(f"would measure {plan.pruned.count} points, about {minutes:.1f} GPU minutes")
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
