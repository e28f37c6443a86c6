"""`ridgeline ci canary`: the gate is asked about known changes, and its answers are recorded as its quality."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import math
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import HARNESS, MeasureError, MeasurePlan, machine_kind
from ci.history import kept
from ci.history.kept import CanaryCase, CanaryOutcome, CanaryRun, GateQuality
from ci.judging import policy
from ci.judging.live import Measure, compare, in_session
from ci.judging.policy import Policy, Settings
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
    Given,
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
def canary(given: Given) -> int:
    """Test the gate with known changes on this machine: none, and 1 % more work.  Its verdicts are recorded.

    Exit code 1 if it raised a false alarm or missed what it promises to find, 2 if it could not tell.  A run that was
    interrupted goes on where it stopped, on the same day.
    """
    if given.show or given.added:
        return _shown(given)
    rules, kind = policy.load(given.policy_file), machine_kind()
    wanted = given.planted or shares(rules.settings(machine_kind=kind))
    if given.dry_run:
        said, place = ", ".join(f"{share:.1%}" for share in wanted), f"{given.results}/canary"
        click.echo(f"would plant {said} on this machine ({kind}) and record the gate's answers in {place}")
        return PASS
    wait_for_turn()
    repository, console = Repository(Path.cwd()), err_console()
    commit = repository.resolve("HEAD")
    folder = repository.root / ".ridgeline" / "canary" / datetime.datetime.now(datetime.UTC).strftime("%Y%m%d")
    planned = with_rounds(plan(given, cases=(f"*_{kind}",)))
    done = []
    for number, share in enumerate(wanted, 1):
        console.print(f"{number} of {len(wanted)}: {f'{share:.1%} planted' if share else 'nothing planted (A/A)'}")
        done.append(run(share, commit, rules, kind, planned, folder, console))
        if not done[-1].cases:
            raise MeasureError(f"the canary's cases cannot be measured here; {ADVICE}")
    kept.add(given.results, done)
    _print(done, given.as_json)
    return exit_code(done)


def _shown(given: Given) -> int:
    """What is recorded, with the runs of other folders added."""
    for folder in given.added:
        if not (folder / kept.CANARY.folder).is_dir():
            click.echo(f"{folder} has no folder {kept.CANARY.folder!r}: no run was recorded there", err=True)
    found = [kept.canary_runs(folder) for folder in (given.results, *given.added)]
    runs = {run.id: run for those, _ in found for run in those}
    if given.added and not given.dry_run:
        kept.add(given.results, runs.values())
    for problem in (problem for _, problems in found for problem in problems):
        click.echo(plain(problem, 2000), err=True)
    _print(list(runs.values()), given.as_json)
    return PASS


def _print(runs: Sequence[CanaryRun], as_json: bool) -> None:
    counted = kept.quality(runs)
    if as_json:
        quality = [
            {**dataclasses.asdict(one), "worst": None if math.isnan(one.worst) else one.worst} for one in counted
        ]
        print_json({"runs": [dataclasses.asdict(run) for run in runs], "quality": quality})
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


# The canary: the gate is asked about changes that are known, by the same way on which it judges a pull request.
#
# Two source trees are made of `benchmarks/canary.py`.  They are compared as two commits are: own processes, lock-step,
# looks, policy, confirmation.  Head's tree does a planted share more of the same work; for A/A it differs in a comment.


PLANTED = 0.01
"""Share of additional work: three times what the policy calls a change on a GPU (0.3 %, 2026-11)."""

CLEAR = 2.0
"""Where PLANTED is less than this multiple of what the policy looks for, as on a CPU, a change of this size is planted
too: a gate that cannot be asked for 1 % is asked for what it promises."""

TREE = '[tool.ridgeline]\nkernels = ["canary"]\n'


def shares(settings: Settings) -> tuple[float, ...]:
    """What is planted on a kind of machine: nothing, PLANTED, and more where the policy promises less."""
    clear = CLEAR * settings.smallest_effect
    return (0.0, PLANTED) if clear <= PLANTED else (0.0, PLANTED, clear)


def trees(folder: Path, share: float, commit: Commit) -> tuple[LocalCheckout, LocalCheckout]:
    """Base and head in `folder`, made anew: the same module, and the one line in which they differ."""
    source = (HARNESS / "benchmarks" / "canary.py").read_text()
    lines = {"base": "SHARE = 0.0  # base\n", "head": f"SHARE = {share!r}  # head\n"}
    for role, line in lines.items():
        (folder / role).mkdir(parents=True, exist_ok=True)
        (folder / role / "canary.py").write_text(source.replace("SHARE = 0.0\n", line))
        (folder / role / "pyproject.toml").write_text(TREE)
    base, head = (LocalCheckout(role, folder / role, commit) for role in lines)
    return base, head


def run(
    share: float,
    commit: Commit,
    policy: Policy,
    kind: str,
    plan: MeasurePlan,
    folder: Path,
    console: Console,
    measuring: Measure = in_session,
) -> CanaryRun:
    """Compare the trees of one share; trials that `folder` has already count.  Raises as `live.compare`."""
    name = f"{commit.short}-{share:g}"
    checkouts = trees(folder / name, share, commit)
    outcome = compare(checkouts, plan, policy, kind, folder / f"{name}.jsonl", console, measuring)
    trials, floor = outcome.file.trials, policy.settings(machine_kind=kind).smallest_effect
    first = min(trials, key=lambda trial: trial.order)
    digest = hashlib.sha256("".join(sorted(trial.id for trial in trials)).encode()).hexdigest()[:16]
    product = f"{first.machine.count} × {first.machine.device or first.machine.name}"
    cases = tuple(
        CanaryCase(one.case.rsplit("/", 1)[-1], str(one.verdict), one.ratio, one.ci_low, one.ci_high, one.trials)
        for one in outcome.judgement.cases
    )
    return CanaryRun(digest, first.started_at, first.machine.name, product, commit.hash, share, floor, cases)
