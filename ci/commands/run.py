"""`ridgeline run`: measure this commit and record it.

It runs on a node that has Python, torch, Triton, click and rich only: nothing that is imported before there is
something to record needs asv, git, pandas or a network.
"""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import click

from ci import harness
from ci.commands.measuring import VerbClock, measure_missing, one_checkout, scratch
from ci.git.command import GitError
from ci.git.repository import LocalCheckout
from ci.harness import MEASURED, MeasurePlan, again, options, query
from ci.options import (
    DRY_RUN,
    OUT,
    RARE,
    RESULTS,
    SOURCE,
    TIMED,
    Finite,
    Given,
    err_console,
    flag,
    option,
    out_console,
    plan,
    verb,
    wait_for_turn,
    with_rounds,
)
from ci.programs import declared_program, refuse_choices
from ci.report import run_summary
from ci.report.words import plain
from ci.trials.file import Followed, measured_operators
from kernels import project

RANGE = "Of a range A..B"


@verb(
    "ridgeline run --kernel gemm --case '*m16*'\n  "
    "ridgeline run --commit 0123456789abcdef0123456789abcdef01234567 --out trials.jsonl\n  "
    "ridgeline run ..HEAD --steps 40 --minutes 60 --trials 1"
)
@click.argument("span", required=False, metavar="[A..B]")
@TIMED
@option("--trials", "Fresh-process trials.", click.IntRange(1, 1000), default=3)
@option("--first-trial", "Number of the first trial.", click.IntRange(0, 1_000_000), default=0, heading=RARE)
@flag("--resume", "Measure only the trials of this commit that --out lacks.")
@option("--program NAME", "A benchmark program of ridgeline.toml in place of operators.", heading=RARE)
@SOURCE
@OUT
@RESULTS
@DRY_RUN
@option("--steps", "Most commits to measure, evenly.", click.IntRange(1), heading=RANGE)
@option("--newest", "Only the newest N commits.", click.IntRange(1), heading=RANGE)
@option("--minutes", "Begin no further commit after M minutes.", Finite(0.1, 10_000), heading=RANGE)
def run(given: Given) -> int:
    """Measure this commit and record it as asv results; with --out only write the trial file.

    With A..B (..B: from the first one) the commits after A up to B that change an operator's code: each code once, the
    newest first.  The same command goes on where it was interrupted.
    """
    out, results = given.out, given.results
    if given.program:
        refuse_choices(vars(given))
    if given.span:
        from ci.commands import run_range

        return run_range.run(given)
    for name in ("steps", "newest", "minutes"):
        if getattr(given, name):
            raise click.UsageError(f"--{name} is for a range of commits; name one, such as ..HEAD")
    if given.resume and out is None:
        raise click.UsageError("--resume needs the file to go on with: --out FILE")
    if given.knobs and out is None:
        onward = again(out="trials.jsonl")
        raise click.UsageError(f"--set asks for what no commit says, so nothing is recorded: `{onward}` writes a file")
    if not given.dry_run:
        wait_for_turn()
    clock, head = VerbClock(), one_checkout(given)
    if out is None and head.dirty:
        belongs = f"{head.path} has {head.changes}, so its numbers belong to no commit"
        onward = again(out="trials.jsonl")
        raise GitError(f"{belongs}: commit them, or `{onward}` writes a trial file")
    file, planned = out or scratch("run", head), with_rounds(plan(given))
    if given.dry_run:
        effort = f"{planned.tier} tier, {planned.trials} trials of {planned.rounds} rounds"
        recording = "" if out else f" and record it in {results}"
        click.echo(f"would measure {head.label} ({effort}) into {file}{recording}")
        return 0
    log = Followed(file)
    before = len(log.read().trials)
    if given.program:
        code = _run_of_program(given, head, planned, log)
    else:
        code = _resumed(head, planned, log) if given.resume else harness.measure([head], planned, file, err_console())
    measured = log.read()
    new = measured.trials[before:]
    run_summary.show(new, out_console())
    if out is None and new:
        from ci.commands.outcome import print_recorded
        from ci.records.store import record

        print_recorded(record([measured], results))
    else:
        for problem in measured.problems():
            click.echo(f"not used: {plain(problem, 2000)}", err=True)
        if new:
            onward = f"`ridgeline records add {shlex.quote(str(out))}` makes asv records of them"
            click.echo(f"{len(new)} trials in {out}; {onward}")
    clock.say(new)
    return code


def _run_of_program(given: Given, head: LocalCheckout, planned: MeasurePlan, log: Followed) -> int:
    """Trials of a program; with --resume those that the file lacks of this commit."""
    program, held = declared_program(project.around(Path.cwd()), given.program), 0
    if given.resume:
        own = (trial for trial in log.read().trials if trial.operator == program.name)
        held = sum(trial.checkouts["head"].commit == head.commit.hash for trial in own)
    if held >= planned.trials:
        return MEASURED
    asked = dataclasses.replace(planned, rounds=given.rounds or 0, trials=planned.trials - held)
    return program.measure([head], asked, log.path, err_console())


def _resumed(head: LocalCheckout, planned: MeasurePlan, log: Followed) -> int:
    """Measure what the file lacks; the exit code."""
    own = (trial for trial in log.read().trials if trial.regime == planned.regime)
    done = [trial for trial in own if trial.checkouts["head"].commit == head.commit.hash]
    operators = measured_operators(done, planned.first_trial) or (_planned(head, planned) if done else ())
    return measure_missing(head, planned, log.path, done, operators)


def _planned(head: LocalCheckout, planned: MeasurePlan) -> tuple[str, ...]:
    """The operators of a plan."""
    declared = query("list", *options(tree=head.path))["kernels"] if not planned.kernels else ()
    return (*planned.kernels, *(one["kernel"] for one in declared))
