"""Options of `ridgeline tune`."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

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
    NewFile,
    err_console,
    flag,
    option,
    out_console,
    several,
    together,
    verb,
    wait_for_turn,
)
from ci.sweeps import catalogue
from ci.sweeps.catalogue import TunedCase
from ci.sweeps.measured import Measured, SweepError, read_all
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import measure
from ci.sweeps.tuned import tables, tuning
from ci.sweeps.tuned.choose import Action, EntryDecision
from ci.sweeps.tuned.tuning import Bench, CodeObjects, Due, Rivals
from ci.whole_files import replace

EXAMPLES = """ridgeline tune gemm --case 'n4096_k4096_*' --budget 10
  ridgeline tune gemm --from sweep.jsonl --dry-run
  ridgeline tune all --verify --budget 20 --out verified.jsonl
  ridgeline tune gemm --verify --arch sm_90 --dry-run"""

ASKED = together(
    CASE,
    BACKEND,
    several("--from FILE -> files", "Trial files of a sweep: nothing is measured (repeatable).", FILE),
    flag("--verify", "Only the entries that are there, and only if their code has changed."),
    option(
        "--budget MIN", "GPU minutes to spend; with --verify on the entries that were confirmed longest ago.", MINUTES
    ),
    option("--out FILE", "Also add the lines to this trial file; what was compiled goes beside it.", NewFile()),
    option(
        "--code FILE", "With --from: what was compiled where it was measured (default: the file beside FILE).", FILE
    ),
    option(
        "--propose NAME",
        "Open a pull request with the new tables, from the branch ridgeline/tuned/NAME; needs GITHUB_TOKEN.",
        default="",
    ),
    ARCH,
)
"""Which entries, and from what."""


@dataclasses.dataclass(frozen=True)
class TuneWish:
    """What was asked for.  budget: GPU minutes."""

    cases: Sequence[str] = ()
    backends: Sequence[str] = ()
    files: Sequence[Path] = ()
    verify: bool = False
    budget: float | None = None
    out: Path | None = None
    code: Path | None = None
    propose: str = ""
    arch: str | None = None
    dry_run: bool = False


# `ridgeline tune`: tables of tuned knobs, written from a sweep, and verified again.


@verb(EXAMPLES)
@click.argument("operators", metavar="OPERATOR...", nargs=-1, required=True)
@ASKED
@SOURCE
@JSON
@DRY_RUN
def tune(
    operators: Sequence[str],
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    as_json: bool,
    dry_run: bool,
    **given: object,
) -> int:
    """Write tuned tables: an entry where a winner beats the rule beyond doubt, none where it does not.

    An entry is for all cases that share it, so all of them are measured; it says what confirmed it.  OPERATOR: one or
    more, `all` for every one that has a table.  Exit code 1: with --verify, an entry is no longer the best; 2:
    something could not be decided, and stays as it was.
    """
    wish = TuneWish(dry_run=dry_run, **given)  # type: ignore[arg-type]
    if wish.arch and not dry_run:
        raise click.UsageError("--arch is for --dry-run; tables are measured on this machine, or read with --from")
    if not (dry_run or wish.files):
        wait_for_turn()
    checkout = one_checkout(commit, commit_date, tree, wish.out)
    for path in wish.files:
        if not path.is_file():
            raise click.BadParameter(f"{str(path)!r} is no file; `ridgeline sweep --help` says how to measure one")
    sweeps = read_all(wish.files) if wish.files else []
    names = _named(operators, checkout, sweeps)
    outcomes = [_of_files(name, wish, sweeps, checkout) if wish.files else None for name in names]
    if not wish.files:
        outcomes = list(_measured_ones(names, wish, checkout))
    made = [one for outcome in outcomes if outcome for one in outcome]
    if as_json:
        click.echo(json.dumps(tuning.document(made), indent=1))
    elif made:
        tuning.show(made, out_console())
    if wish.propose and not dry_run:
        _proposed(made, wish.propose, checkout.path)
    return _code(made, wish.verify)


def _proposed(made: Sequence[EntryDecision], name: str, tree: Path) -> None:
    """A pull request with every table that decisions are about, if one of them has changed."""
    from ci.github.client import of_environment  # a node that measures has no httpx
    from ci.github.orders import Proposal, propose

    files = {path.relative_to(tree.resolve()).as_posix(): path for path in {one.place.file for one in made}}
    changed = any(one.action not in (Action.BY_RULE, Action.OPEN) for one in made)
    if not changed:
        click.echo("no table has changed: nothing to propose")
        return
    texts = {path: file.read_text(encoding="utf-8") for path, file in files.items()}
    title = f"Tuned tables: {tuning.counted(made)} on {name}"
    click.echo(propose(of_environment(), Proposal(f"tuned/{name}", title, tuning.markdown(made), texts)))


def _named(operators: Sequence[str], checkout: LocalCheckout, sweeps: Sequence[Measured]) -> list[str]:
    """The operators that are asked for; with --from those of them that the files have."""
    if "all" not in operators:
        return list(dict.fromkeys(operators))
    known = catalogue.tuned_operators(checkout.path)
    swept = {str(name) for one in sweeps for name in one.frame["operator"].unique()}
    return [name for name in known if not sweeps or name in swept]


# ---- of one operator ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, eq=False)
class TuneTask:
    """An operator's entries on a device.  out: the trial file to add to, None for one of its own."""

    bench: Bench
    cases: tuple[TunedCase, ...]
    wish: TuneWish

    @property
    def operator(self) -> str:
        """Its name."""
        return self.bench.catalogue.operator


def _task(
    operator: str, wish: TuneWish, checkout: LocalCheckout, arch: str | None, units: int | None = None
) -> TuneTask:
    bench = Bench(catalogue.ask(operator, checkout.path, (), arch, units), checkout, err_console())
    return TuneTask(bench, tuple(catalogue.to_tune(bench.catalogue, wish.cases, wish.backends)), wish)


def _of_files(
    operator: str, wish: TuneWish, sweeps: Sequence[Measured], checkout: LocalCheckout
) -> list[EntryDecision] | None:
    """Decide by what others have measured: for the device that the files name."""
    mine = [one for one in sweeps if operator in set(one.frame["operator"])]
    if len(mine) != 1:
        named, what = ", ".join(map(str, wish.files)), "; ".join(str(one.origin) for one in mine) or "none"
        raise SweepError(f"{named}: {len(mine)} sweeps of {operator} ({what}); give the files of exactly one")
    machine = mine[0].machine
    task = _task(operator, wish, checkout, machine.arch or "cpu", machine.compute_units)
    return _written(
        task, mine[0], None, tuning.read([wish.code] if wish.code else map(tuning.beside, wish.files), operator)
    )


def _measured_ones(names: Sequence[str], wish: TuneWish, checkout: LocalCheckout) -> list[list[EntryDecision] | None]:
    """Operator by operator; a budget is for all of them, and what one leaves of it is the next one's."""
    left, found = wish.budget, list[list[EntryDecision] | None]()
    for number, name in enumerate(names):
        share = None if left is None else left / (len(names) - number)
        task = _task(name, dataclasses.replace(wish, budget=share), checkout, wish.arch)
        made, spent = _verified(task) if wish.verify else _searched(task)
        left = None if left is None else max(left - spent, 0.01)
        found.append(made)
    return found


Made = tuple[list[EntryDecision] | None, float]
"""Decisions, None where nothing was decided, and the GPU minutes that they took."""


def _searched(task: TuneTask) -> Made:
    """All candidates of the cases, then the tables."""
    points, anchors = task.bench.points(tuning.search(task.cases))
    pruned, rungs = task.bench.pruned(points, anchors), task.bench.rungs(False, task.cases)
    if task.wish.dry_run:
        minutes = task.bench.minutes(pruned.kept, rungs)
        tuning.would_search(task.cases, pruned, minutes, task.bench.catalogue.arch)
        return None, 0.0
    measured = _measured(task, points, anchors, pruned)
    return _written(task, measured, pruned, None), measured.gpu_s / 60


def _verified(task: TuneTask) -> Made:
    """Entries whose code has changed since they were confirmed, oldest first, as many as the budget allows."""
    entries = tables.entries(task.cases)
    rivals = [tuning.rivals(one) for one in entries]
    known = [one for one in rivals if one.entry.confirmed and one.entry.confirmed.code]
    due = tuning.due(entries, task.bench.code(tuning.verification(known)))
    rungs = task.bench.rungs(verifying=True)

    def minutes(some: Sequence[Rivals]) -> float:
        return task.bench.minutes(task.bench.points(tuning.verification(some))[0], rungs)

    now, later = tuning.within(due.stale, minutes, task.wish.budget)
    tuning.say_due(task.operator, Due(due.unchanged, now), later, minutes(now))
    if task.wish.dry_run or not now:
        return None, 0.0
    points, anchors = task.bench.points(tuning.verification(now))
    pruned = task.bench.pruned(points, anchors)
    chosen = tuple(case for one in now for case in one.entry.cases)
    mine = dataclasses.replace(task, cases=chosen, wish=dataclasses.replace(task.wish, budget=None))
    measured = _measured(mine, points, anchors, pruned)
    return _written(mine, measured, pruned, None), measured.gpu_s / 60


def _measured(
    task: TuneTask, points: Mapping[str, Sequence[Point]], anchors: Mapping[str, str], pruned: Pruned
) -> Measured:
    plan = task.bench.plan(points, anchors, pruned, task.bench.rungs(task.wish.verify, task.cases))
    ended = measure(dataclasses.replace(plan, budget_min=task.wish.budget), err_console())
    if task.wish.out:
        tuning.added(plan.out, task.wish.out)
    if ended.measured is None:
        raise SweepError(f"nothing was measured: {ended.why or 'no point is left; --dry-run says why'}")
    if ended.left:
        click.echo(f"{ended.left.count} points are not measured ({ended.why}); `{again()}` goes on", err=True)
    return ended.measured


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
    if code is None and task.wish.out:
        tuning.write(task.wish.out, task.operator, known)
    texts = tuning.new_texts(task.cases, made, tuning.confirmations(made, measured, known))
    for file, (before, after) in texts.items():
        if task.wish.dry_run:
            click.echo(tables.difference(file, before, after), nl=False, err=True)
        elif before != after:
            replace(file, after)
            click.echo(f"wrote {file}", err=True)
    return made


def _code(made: Sequence[EntryDecision], verifying: bool) -> int:
    if verifying and any(one.action in (Action.MOVED, Action.REMOVED) for one in made):
        return REGRESSION
    return NO_VERDICT if any(one.action is Action.OPEN for one in made) else PASS
