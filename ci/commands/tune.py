"""`ridgeline tune`: tables of tuned knobs, written from a sweep, and verified again."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import click

from ci.commands.common.measuring import one_checkout
from ci.commands.sweep import ARCH, MINUTES
from ci.git.repository import LocalCheckout
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
    option,
    out_console,
    print_json,
    several,
    verb,
    wait_for_turn,
)
from ci.sweeps import catalogue, run, tuning
from ci.sweeps.catalogue import BackendOffer, by_place
from ci.sweeps.measured import Measured, SweepError, read_all
from ci.sweeps.pruning import PointCompiler, Pruned
from ci.sweeps.tuning import Action, EntryDecision
from ci.whole_files import replace

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune all --verify
  ridgeline tune gemm --verify --arch sm_90 --dry-run"""


@verb(EXAMPLES)
@click.argument("operators", metavar="OPERATOR...", nargs=-1, required=True)
@CASE
@BACKEND
@several("--from FILE -> files", "Trial files of a sweep: nothing is measured (repeatable).", FILE)
@flag("--verify", "Measure only the entries that are there, against the rule; one that does not win is removed.")
@option("--budget MIN", "GPU minutes that each operator may take; the same command goes on.", MINUTES)
@ARCH
@SOURCE
@JSON
@DRY_RUN
def tune(given: Given) -> int:
    """Write tuned tables: an entry where a winner beats the rule beyond doubt, none where it does not.

    An entry is for all cases that share it, so all of them are measured; it says what confirmed it.  OPERATOR: one or
    more, `all` for every one that has a table.  Exit code 1: with --verify, an entry does not win any more; 2:
    something could not be decided, and stays as it was.
    """
    if given.arch and not given.dry_run:
        raise click.UsageError("--arch is for --dry-run; tables are measured on this machine, or read with --from")
    if not (given.dry_run or given.files):
        wait_for_turn()
    checkout = one_checkout(given)
    for path in given.files:
        if not path.is_file():
            raise click.BadParameter(f"{str(path)!r} is no file; `ridgeline sweep --help` says how to measure one")
    sweeps = read_all(given.files)
    names = list(dict.fromkeys(given.operators))
    if "all" in names:  # with --from, those of them that the files have
        swept = {str(name) for sweep in sweeps for name in sweep.frame["operator"].unique()}
        names = [name for name in catalogue.tuned_operators(checkout.path) if not given.files or name in swept]
    decided: list[EntryDecision] = []
    for name in names:
        decided += _from_files(name, given, sweeps, checkout) if given.files else _measured(name, given, checkout)
    if given.as_json:
        print_json(tuning.document(decided))
    elif decided:
        tuning.show(decided, out_console())
    actions = {decision.action for decision in decided}
    if given.verify and actions & {Action.MOVED, Action.REMOVED}:
        return REGRESSION
    return NO_VERDICT if Action.OPEN in actions else PASS


def _from_files(
    operator: str, given: Given, sweeps: Sequence[Measured], checkout: LocalCheckout
) -> list[EntryDecision]:
    """Decide by what others have measured: for the device that the files name."""
    mine = [sweep for sweep in sweeps if operator in set(sweep.frame["operator"])]
    if len(mine) != 1:
        files, origins = ", ".join(map(str, given.files)), "; ".join(str(sweep.origin) for sweep in mine) or "none"
        raise SweepError(f"{files}: {len(mine)} sweeps of {operator} ({origins}); give the files of exactly one")
    machine = mine[0].machine
    offers = catalogue.ask(operator, checkout.path, (), machine.arch or "cpu", machine.compute_units)
    return _write(operator, catalogue.to_tune(offers, given.cases, given.backends), mine[0], None, given)


def _measured(operator: str, given: Given, checkout: LocalCheckout) -> list[EntryDecision]:
    """Measure an operator's candidates, or with --verify its entries, and decide."""
    offers = catalogue.ask(operator, checkout.path, (), given.arch, None)
    cases = catalogue.to_tune(offers, given.cases, given.backends)
    if given.verify:
        cases, waiting = tuning.entries_here(cases, offers.devices)
        for sentence in waiting:
            click.echo(sentence, err=True)
        if not cases:
            click.echo(f"{operator}: no entry to verify on {offers.arch}", err=True)
            return []
    compiler = PointCompiler(checkout.path, err_console())
    plan = tuning.tuning_sweep(offers, cases, checkout, compiler, given.budget, given.verify)
    if given.dry_run:
        minutes = run.expected(offers, plan.pruned.to_measure, plan.rungs).minutes
        click.echo(f"{operator}: {len(by_place(cases))} entries on {offers.arch}, for {len(cases)} cases and backends")
        for reason, count in plan.pruned.reasons().items():
            click.echo(f"  {count} points are not measured: {reason}")
        click.echo(f"would measure {plan.pruned.count} points, about {minutes:.1f} GPU minutes")
        return []
    ended = run.measure(plan, err_console())
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    if ended.left:
        click.echo(f"{ended.left.count} points are not measured ({ended.why}); `{again()}` goes on", err=True)
    return _write(operator, cases, ended.measured, plan.pruned, given)


def _write(
    operator: str, cases: Sequence[BackendOffer], measured: Measured, pruned: Pruned | None, given: Given
) -> list[EntryDecision]:
    """Decide, and write the tables, or with --dry-run show what would change in them."""
    decided = tuning.decisions(cases, measured, pruned)
    if not decided:
        raise SweepError(
            f"no case of {operator} with a tuned table has a time; `ridgeline tune {operator}` measures them"
        )
    for file in dict.fromkeys(decision.place.file for decision in decided):
        before = file.read_text(encoding="utf-8")
        after = tuning.rewritten(before, file, decided, measured)
        if given.dry_run:
            lines = difflib.unified_diff(before.splitlines(True), after.splitlines(True), str(file), str(file))
            click.echo("".join(lines), nl=False, err=True)
        elif before != after:
            replace(file, after)
            click.echo(f"wrote {file}", err=True)
    return decided
