"""`ridgeline tune`: tables of tuned knobs, written from a sweep, and verified again."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from ci import harness
from ci.commands.common.checkouts import one_checkout
from ci.git.repository import LocalCheckout
from ci.options import (
    DRY_RUN,
    JSON,
    NO_VERDICT,
    PASS,
    REGRESSION,
    SOURCE,
    NewFile,
    err_console,
    example,
    out_console,
    together,
)
from ci.sweeps import catalogue as catalogues
from ci.sweeps.measured import Measured, SweepError, read_all
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import measure
from ci.sweeps.tuned import declared, report, tables, tuning, verifying
from ci.sweeps.tuned.cases import TunedCase
from ci.sweeps.tuned.choose import Action, EntryDecision
from ci.sweeps.tuned.measuring import Bench
from ci.sweeps.tuned.verifying import Due, Rivals
from ci.whole_files import replace

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune gemm --verify --arch sm_90 --dry-run"""

ASKED = together(
    click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only cases that match (repeatable)."),
    click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend (repeatable)."),
    click.option(
        "--from",
        "files",
        multiple=True,
        type=click.Path(path_type=Path, exists=True, dir_okay=False),
        metavar="FILE",
        help="Trial files of a sweep: nothing is measured (repeatable).",
    ),
    click.option("--verify", is_flag=True, help="Only the entries that are there, and only if their code has changed."),
    click.option(
        "--budget",
        type=click.FloatRange(0, min_open=True),
        metavar="MIN",
        help="GPU minutes to spend; with --verify on the entries that were confirmed longest ago.",
    ),
    click.option("--out", type=NewFile(), metavar="FILE", help="Trial file (default: one in .ridgeline/sweeps)."),
    click.option("--arch", metavar="NAME", help="With --dry-run: for this architecture instead of this machine's."),
)
"""Which entries, and from what."""


@dataclasses.dataclass(frozen=True, eq=False)
class Asked:
    """What was asked for, and where: the bench, the cases and whether anything is written."""

    bench: Bench
    cases: tuple[TunedCase, ...]
    out: Path | None
    budget_min: float | None
    dry_run: bool
    as_json: bool


@click.command(epilog=example(EXAMPLES))
@click.argument("operator")
@ASKED
@SOURCE
@JSON
@DRY_RUN
def tune(
    operator: str,
    cases: Sequence[str],
    backends: Sequence[str],
    files: Sequence[Path],
    verify: bool,
    budget: float | None,
    out: Path | None,
    arch: str | None,
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Write an operator's tuned tables: a winner where it beats the rule beyond doubt, nothing where it does not.

    An entry is for all cases that share it, so all of them are measured.  It says what confirmed it.  Exit code 1: with
    --verify, an entry is no longer the best; 2: something could not be decided, and is as it was.
    """
    if arch and not dry_run:
        raise click.UsageError("--arch is for --dry-run; tables are measured on this machine, or read with --from")
    checkout = one_checkout(commit, commit_date, tree)
    if files:
        return _from_files(operator, files, (cases, backends), checkout, dry_run, as_json)
    bench, found = _bench(operator, checkout, arch)
    chosen = tuple(declared.chosen(found, operator, cases, backends))
    asked = Asked(bench, chosen, out, budget, dry_run, as_json)
    return _verified(asked) if verify else _searched(asked)


def _bench(
    operator: str, checkout: LocalCheckout, arch: str | None, units: int | None = None
) -> tuple[Bench, list[TunedCase]]:
    """The operator as it is offered for a device, this machine's unless `arch` says another."""
    wanted = harness.options(kernel=operator, tree=checkout.path, arch=arch, compute_units=units)
    found = harness.query("candidates", *wanted)
    return Bench(catalogues.parsed(found, operator), checkout, err_console()), declared.parsed(found, operator)


# ---- from files ---------------------------------------------------------------------------------------------------


def _from_files(
    operator: str,
    files: Sequence[Path],
    patterns: tuple[Sequence[str], Sequence[str]],
    checkout: LocalCheckout,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Decide by what others have measured: for the device that the files name."""
    sweeps = [one for one in read_all(files) if operator in set(one.frame["operator"])]
    named = ", ".join(map(str, files))
    if len(sweeps) != 1:
        what = "; ".join(str(one.origin) for one in sweeps) or "none"
        raise SweepError(f"{named}: {len(sweeps)} sweeps of {operator} ({what}); give the files of exactly one")
    machine = sweeps[0].machine
    bench, found = _bench(operator, checkout, machine.arch or "cpu", machine.compute_units)
    chosen = tuple(declared.chosen(found, operator, *patterns))
    return _written(Asked(bench, chosen, None, None, dry_run, as_json), sweeps[0], None)


# ---- measured -----------------------------------------------------------------------------------------------------


def _searched(asked: Asked) -> int:
    """All candidates of the cases, then the tables."""
    wanted = tuning.search(asked.cases)
    points, anchors = asked.bench.points(wanted)
    pruned, rungs = asked.bench.pruned(points, anchors), asked.bench.rungs(verifying=False)
    minutes = asked.bench.minutes(pruned.kept, rungs)
    if asked.dry_run:
        return report.would_search(asked.cases, pruned, minutes, asked.bench.catalogue.arch)
    measured = _measured(asked, points, anchors, pruned, verifying=False)
    return _written(asked, measured, pruned)


def _measured(asked: Asked, points: Any, anchors: Mapping[str, str], pruned: Pruned, verifying: bool) -> Measured:
    plan = asked.bench.plan(points, anchors, pruned, asked.bench.rungs(verifying), asked.out)
    ended = measure(dataclasses.replace(plan, budget_min=asked.budget_min), err_console())
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    if ended.left:
        click.echo(f"{ended.left.count} points are not measured ({ended.why}); the same command goes on", err=True)
    return ended.measured


def _verified(asked: Asked) -> int:
    """Entries whose code has changed since they were confirmed, oldest first, as many as the budget allows."""
    entries = tables.entries(asked.cases)
    rivals = [verifying.rivals(one) for one in entries]
    known = [one for one in rivals if one.entry.confirmed and one.entry.confirmed.code]
    due = verifying.due(entries, asked.bench.code(tuning.verification(known)))
    rungs = asked.bench.rungs(verifying=True)

    def minutes(some: Sequence[Rivals]) -> float:
        return asked.bench.minutes(asked.bench.points(tuning.verification(some))[0], rungs)

    now, later = verifying.within(due.stale, minutes, asked.budget_min)
    report.say_due(Due(due.unchanged, now), later, minutes(now))
    if asked.dry_run or not now:
        return PASS
    points, anchors = asked.bench.points(tuning.verification(now))
    pruned = asked.bench.pruned(points, anchors)
    chosen = tuple(case for one in now for case in one.entry.cases)
    mine = dataclasses.replace(asked, cases=chosen, budget_min=None)
    return _written(mine, _measured(mine, points, anchors, pruned, verifying=True), pruned, verifying=True)


# ---- written ------------------------------------------------------------------------------------------------------


def _written(asked: Asked, measured: Measured, pruned: Pruned | None, verifying: bool = False) -> int:
    """Decide, say it, and write the tables, or with --dry-run show what would change in them."""
    made = tuning.decisions(asked.cases, measured, pruned)
    if not made:
        raise SweepError("the sweep has no time of a case with a tuned table; `ridgeline tune OPERATOR` measures them")
    confirmed = tuning.confirmations(made, measured, tuning.codes(asked.bench, made))
    texts = tuning.new_texts(asked.cases, made, confirmed)
    if asked.as_json:
        click.echo(json.dumps(report.document(made), indent=1))
    else:
        report.show(made, out_console())
    for file, (before, after) in texts.items():
        if asked.dry_run:
            click.echo(tables.difference(file, before, after), nl=False, err=asked.as_json)
        elif before != after:
            replace(file, after)
            click.echo(f"wrote {file}", err=True)
    return _code(made, verifying)


def _code(made: Sequence[EntryDecision], verifying: bool) -> int:
    if verifying and any(one.action in (Action.MOVED, Action.REMOVED) for one in made):
        return REGRESSION
    return NO_VERDICT if any(one.action is Action.OPEN for one in made) else PASS
