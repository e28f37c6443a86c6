"""`ridgeline tune`: tables of tuned knobs, written from a sweep, and verified again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import click

from benchmarks.points import Point
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
from ci.sweeps import catalogue, tables, tuning
from ci.sweeps.catalogue import BackendOffer
from ci.sweeps.choose import Action, EntryDecision
from ci.sweeps.measured import Measured, SweepError, read_all
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import measure
from ci.sweeps.tuning import Bench, CodeObjects, Rivals
from ci.whole_files import replace

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune all --verify --budget 20 --out verified.jsonl
  ridgeline tune gemm --verify --arch sm_90 --dry-run"""


@verb(EXAMPLES)
@click.argument("operators", metavar="OPERATOR...", nargs=-1, required=True)
@CASE
@BACKEND
@several("--from FILE -> files", "Trial files of a sweep: nothing is measured (repeatable).", FILE)
@flag("--verify", "Only the entries that are there, and only if their code has changed.")
@option("--budget MIN", "GPU minutes to spend; with --verify on the entries that were confirmed longest ago.", MINUTES)
@option("--out FILE", "Also add the lines to this trial file; what was compiled goes beside it.", NewFile())
@option("--code FILE", "With --from: what was compiled where it was measured (default: the file beside FILE).", FILE)
@ARCH
@SOURCE
@JSON
@DRY_RUN
def tune(given: Given) -> int:
    """Write tuned tables: an entry where a winner beats the rule beyond doubt, none where it does not.

    An entry is for all cases that share it, so all of them are measured; it says what confirmed it.  OPERATOR: one or
    more, `all` for every one that has a table.  Exit code 1: with --verify, an entry is no longer the best; 2:
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
    sweeps = read_all(given.files) if given.files else []
    names = list(dict.fromkeys(given.operators))
    if "all" in names:  # with --from, those of them that the files have
        swept = {str(name) for one in sweeps for name in one.frame["operator"].unique()}
        names = [name for name in catalogue.tuned_operators(checkout.path) if not sweeps or name in swept]
    if given.files:
        made = [one for name in names for one in _of_files(name, given, sweeps, checkout)]
    else:
        made = _measured_ones(names, given, checkout)
    if given.as_json:
        print_json(tuning.document(made))
    elif made:
        tuning.show(made, out_console())
    actions = {one.action for one in made}
    if given.verify and actions & {Action.MOVED, Action.REMOVED}:
        return REGRESSION
    return NO_VERDICT if Action.OPEN in actions else PASS


# ---- of one operator ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class TuneTask:
    """An operator's entries on a device.  budget: GPU minutes, None for any."""

    bench: Bench
    cases: tuple[BackendOffer, ...]
    given: Given
    budget: float | None = None

    @classmethod
    def of(cls, operator: str, given: Given, checkout: LocalCheckout, device: Device, budget: float | None) -> TuneTask:
        """Of the cases and backends that are asked for."""
        bench = Bench(catalogue.ask(operator, checkout.path, (), *device), checkout, err_console())
        return cls(bench, tuple(catalogue.to_tune(bench.catalogue, given.cases, given.backends)), given, budget)

    @property
    def operator(self) -> str:
        """Its name."""
        return self.bench.catalogue.operator


Device = tuple[str | None, int | None]
"""Architecture and number of CUs, None for those of this machine."""


def _of_files(operator: str, given: Given, sweeps: Sequence[Measured], checkout: LocalCheckout) -> list[EntryDecision]:
    """Decide by what others have measured: for the device that the files name."""
    mine = [one for one in sweeps if operator in set(one.frame["operator"])]
    if len(mine) != 1:
        named, what = ", ".join(map(str, given.files)), "; ".join(str(one.origin) for one in mine) or "none"
        raise SweepError(f"{named}: {len(mine)} sweeps of {operator} ({what}); give the files of exactly one")
    machine = mine[0].machine
    task = TuneTask.of(operator, given, checkout, (machine.arch or "cpu", machine.compute_units), None)
    code = tuning.read([given.code] if given.code else map(tuning.beside, given.files), operator)
    return _written(task, mine[0], None, code)


def _measured_ones(names: Sequence[str], given: Given, checkout: LocalCheckout) -> list[EntryDecision]:
    """Operator by operator; a budget is for all of them, and what one leaves of it is the next one's."""
    left, made = given.budget, list[EntryDecision]()
    for number, name in enumerate(names):
        share = None if left is None else left / (len(names) - number)
        task = TuneTask.of(name, given, checkout, (given.arch, None), share)
        own, spent = _verified(task) if given.verify else _searched(task)
        left = None if left is None else max(left - spent, 0.01)
        made += own
    return made


Made = tuple[list[EntryDecision], float]
"""Decisions, and the GPU minutes that they took."""


def _searched(task: TuneTask) -> Made:
    """All candidates of the cases, then the tables."""
    points, anchors = task.bench.points(tuning.search(task.cases))
    pruned = task.bench.pruned(points, anchors)
    if task.given.dry_run:
        minutes = task.bench.minutes(pruned.kept, task.bench.rungs(False, task.cases))
        tuning.would_search(task.cases, pruned, minutes, task.bench.catalogue.arch)
        return [], 0.0
    return _measured(task, points, anchors, pruned)


def _verified(task: TuneTask) -> Made:
    """Entries whose code has changed since they were confirmed, oldest first, as many as the budget allows."""
    entries = tables.entries(task.cases)
    rivals = [tuning.rivals(one) for one in entries]
    known = [one for one in rivals if one.entry.confirmed and one.entry.confirmed.code]
    due = tuning.due(entries, task.bench.code(tuning.verification(known)), task.bench.catalogue.devices)
    rungs = task.bench.rungs(verifying=True)

    def minutes(some: Sequence[Rivals]) -> float:
        return task.bench.minutes(task.bench.points(tuning.verification(some))[0], rungs)

    now, later = tuning.within(due.stale, minutes, task.budget)
    tuning.say_due(task.operator, dataclasses.replace(due, stale=now), later, minutes(now))
    if task.given.dry_run or not now:
        return [], 0.0
    points, anchors = task.bench.points(tuning.verification(now))
    chosen = tuple(case for one in now for case in one.entry.cases)
    mine = dataclasses.replace(task, cases=chosen, budget=None)
    return _measured(mine, points, anchors, task.bench.pruned(points, anchors))


def _measured(
    task: TuneTask, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str], pruned: Pruned
) -> Made:
    plan = task.bench.plan(points, anchors, pruned, task.bench.rungs(task.given.verify, task.cases))
    ended = measure(dataclasses.replace(plan, budget_min=task.budget), err_console())
    if task.given.out:
        tuning.added(plan.out, task.given.out)
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    if ended.left:
        click.echo(f"{ended.left.count} points are not measured ({ended.why}); `{again()}` goes on", err=True)
    return _written(task, ended.measured, pruned, None), ended.measured.gpu_s / 60


# ---- written ------------------------------------------------------------------------------------------------------


def _written(
    task: TuneTask, measured: Measured, pruned: Pruned | None, code: CodeObjects | None
) -> list[EntryDecision]:
    """Decide, and write the tables, or with --dry-run show what would change in them.  code: None to compile it."""
    made = tuning.decisions(task.cases, measured, pruned)
    if not made:
        raise SweepError(
            f"no case of {task.operator} with a tuned table has a time; `ridgeline tune {task.operator}` measures them"
        )
    known = tuning.codes(task.bench, made) if code is None else code
    if code is None and task.given.out:
        tuning.write(task.given.out, task.operator, known)
    texts = tuning.new_texts(task.cases, made, tuning.confirmations(made, measured, known))
    for file, (before, after) in texts.items():
        if task.given.dry_run:
            click.echo(tables.difference(file, before, after), nl=False, err=True)
        elif before != after:
            replace(file, after)
            click.echo(f"wrote {file}", err=True)
    return made
