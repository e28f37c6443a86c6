"""`ridgeline ci canary`: the gate is asked about known changes, and its answers are recorded as its quality."""

from __future__ import annotations

import dataclasses
import datetime
import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ci import canary as asking
from ci.git.repository import Repository
from ci.harness import MeasureError, machine_kind
from ci.history import kept
from ci.history.kept import CanaryOutcome, CanaryRun, GateQuality
from ci.judging import policy
from ci.options import (
    BUDGET,
    DRY_RUN,
    FOLDER,
    JSON,
    NO_VERDICT,
    PASS,
    POLICY,
    REGRESSION,
    RESULTS,
    err_console,
    flag,
    out_console,
    plan,
    print_json,
    several,
    verb,
    wait_for_turn,
    with_rounds,
)
from ci.report.words import plain

ADVICE = "end the other work on this machine and run it again (`ridgeline doctor`)"


@verb("ridgeline ci canary --dry-run\n  ridgeline ci canary --show")
@several(
    "--planted SHARE",
    "Plant this share of additional work, 0 for A/A (repeatable; default: 0, 0.01, and what the policy promises).",
    click.FloatRange(0, 1),
)
@flag("--show", "Only show what is recorded.")
@several("--add DIR -> added", "Only add the runs recorded in another results folder (repeatable).", FOLDER)
@BUDGET
@POLICY
@RESULTS
@JSON
@DRY_RUN
def canary(
    planted: tuple[float, ...],
    show: bool,
    added: tuple[Path, ...],
    trials: int | None,
    policy_file: Path | None,
    results: Path,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Test the gate with known changes on this machine: none, and 1 % more work.  Its verdicts are recorded.

    Exit code 1 if it raised a false alarm or missed what it promises to find, 2 if it could not tell.  A run that was
    interrupted goes on where it stopped, on the same day.
    """
    if show or added:
        return _shown(results, added, as_json, dry_run)
    rules = policy.load(policy_file)
    kind = machine_kind()
    wanted = planted or asking.shares(rules.settings(machine_kind=kind))
    if dry_run:
        shares = ", ".join(f"{share:.1%}" for share in wanted)
        click.echo(f"would plant {shares} on this machine ({kind}) and record the gate's answers in {results}/canary")
        return PASS
    wait_for_turn()
    done = _asked(wanted, rules, kind, trials, err_console())
    kept.add(results, done)
    _print(done, [], as_json)
    return exit_code(done)


def _asked(
    shares: Sequence[float], rules: policy.Policy, kind: str, trials: int | None, console: Console
) -> list[CanaryRun]:
    repository = Repository(Path.cwd())
    commit = repository.resolve("HEAD")
    folder = repository.root / ".ridgeline" / "canary" / datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")
    planned = with_rounds(plan(trials=trials, cases=(f"*_{kind}",)))
    done = []
    for number, share in enumerate(shares, 1):
        console.print(f"{number} of {len(shares)}: {f'{share:.1%} planted' if share else 'nothing planted (A/A)'}")
        done.append(asking.run(share, commit, rules, kind, planned, folder, console))
        if not done[-1].cases:
            raise MeasureError(f"the canary's cases cannot be measured here; {ADVICE}")
    return done


def _shown(results: Path, added: Sequence[Path], as_json: bool, dry_run: bool) -> int:
    """What is recorded, with the runs of other folders added."""
    for folder in added:
        if not (folder / kept.CANARY).is_dir():
            click.echo(f"{folder} has no folder {kept.CANARY!r}: no run was recorded there", err=True)
    found = [kept.canary_runs(folder) for folder in (results, *added)]
    runs = {run.id: run for those, _ in found for run in those}
    if added and not dry_run:
        kept.add(results, runs.values())
    _print(list(runs.values()), [problem for _, problems in found for problem in problems], as_json)
    return PASS


def _print(runs: Sequence[CanaryRun], problems: Sequence[str], as_json: bool) -> None:
    for problem in problems:
        click.echo(plain(problem, 2000), err=True)
    counted = kept.quality(runs)
    if as_json:
        document = {
            "runs": [dataclasses.asdict(run) for run in runs],
            "quality": [
                {**dataclasses.asdict(one), "worst": None if math.isnan(one.worst) else one.worst} for one in counted
            ],
        }
        print_json(document)
    elif counted:
        out_console().print(_table(counted))
    else:
        click.echo("no run of the canary is recorded; `ridgeline ci canary` makes one")


def _table(counted: Sequence[GateQuality]) -> Table:
    table = Table("machine", "planted", "runs", *(str(one) for one in CanaryOutcome), "measured off by", box=None)
    for one in counted:
        counts = (str(one.counts.get(outcome, 0)) for outcome in CanaryOutcome)
        off = "" if math.isnan(one.worst) else f"{one.worst:.2%}"
        table.add_row(one.machine, f"{one.planted:.1%}" if one.planted else "A/A", str(one.runs), *counts, off)
    return table


def exit_code(runs: Sequence[CanaryRun]) -> int:
    """1: a false alarm, or a change missed that the policy promises to find; 2: undecided; 0: the gate is sound."""
    said = {run.outcome(case) for run in runs for case in run.cases}
    if said & {CanaryOutcome.FALSE, CanaryOutcome.MISSED}:
        return REGRESSION
    return NO_VERDICT if CanaryOutcome.UNDECIDED in said else PASS
