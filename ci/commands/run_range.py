"""`ridgeline run A..B`: the commits of a range, measured into records (ci.past)."""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import itertools
from pathlib import Path

import click
from rich.table import Table

from ci import past
from ci.commands.common.measuring import VerbClock
from ci.git.repository import Repository
from ci.harness import INTERRUPTED, NOTHING, OneProgram, machine_kind
from ci.options import Given, err_console, out_console, plan, wait_for_turn, with_rounds
from ci.past import PastCommits, PastRun
from ci.report.words import plain
from ci.trials.file import read
from kernels import project

FOLDER = ".ridgeline/past"
"""Below the root of the project: trial files, named by what is asked: the same command goes on with its own."""

TRIAL_S = {"gpu": 3.6, "cpu": 10.0}
"""Seconds of a trial of one operator with all that is around it: `run --tier pr`, 15 trials, took 54 s on an H200
(2026-11-24); of a CPU an assumption."""


def run(given: Given) -> int:
    """Measure a range and record it; with --out only write the trial file."""
    if given.resume or given.commit or given.tree or given.gpus:
        raise click.UsageError("--resume, --commit, --tree and --gpus are for one commit; leave them out")
    repository, planned = Repository(Path.cwd()), with_rounds(plan(given))
    since_ms = int(given.since.replace(tzinfo=datetime.UTC).timestamp() * 1000) if given.since else None
    span = past.of_range(repository, given.span, given.newest, since_ms, planned.kernels)
    asked = repr((given.span, given.newest, since_ms, dataclasses.astuple(dataclasses.replace(planned, trials=0))))
    file = given.out or project.place(f"{FOLDER}/{hashlib.sha256(asked.encode()).hexdigest()[:12]}.jsonl")
    ranging = PastRun(repository, span, planned, file, err_console(), given.steps, given.minutes, given.results)
    if given.dry_run:
        return _said(span, ranging, given)
    clock, before = VerbClock(), len(ranging.trials)
    code = _measured(ranging, given)
    new = ranging.trials[before:]
    failed = {place: why for (place, _), why in ranging.failed.items()}
    for place, why in failed.items():
        click.echo(f"not measured: {span.commits[place].short}: {plain(why, 500)}", err=True)
    click.echo(_sentence(span, ranging))
    if given.out:
        click.echo(f"{len(new)} new trials in {file}; `ridgeline run {given.span} --replay {file}` records them")
    elif ranging.trials:
        from ci.commands.common.outcome import print_recorded  # a node that only measures has no pandas
        from ci.records import store, unmeasured

        recorded = store.record([read(file)], given.results)
        for machine in {one.machine.name for one in ranging.trials}:
            unmeasured.write(given.results / machine / unmeasured.NAME, ranging.unmeasured())
        print_recorded(recorded)
    clock.say(new, given.timings)
    return code or (0 if ranging.trials else NOTHING)


def _measured(ranging: PastRun, given: Given) -> int:
    """Measure, or take what was; INTERRUPTED on Ctrl-C, after which what is finished is recorded."""
    try:
        if given.replay:
            ranging.take(given.replay)
            return 0
        wait_for_turn()
        with OneProgram() as program:
            program.begin()
            ranging.run(past.measured_here(ranging.out, ranging.console, program))
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


def _sentence(span: PastCommits, ranging: PastRun) -> str:
    commits = len({one.checkouts["head"].commit for one in ranging.trials})
    rows = ranging.unmeasured()
    shared = len({one.commit for one in rows if one.same_as})
    none = len({one.commit for one in rows if one.why})
    return (
        f"of {len(span.commits)} commits {commits} are measured, {shared} have the same files of some operator as one "
        f"of them, {none} cannot be measured"
    )


def _said(span: PastCommits, ranging: PastRun, given: Given) -> int:
    """What would be measured, in its order as long as nothing is known of the code, and how long it takes."""
    known = ranging.known()
    table = Table("operator", "commits", "different files", "measured")
    for name in span.operators:
        there = sum(name in one for one in span.labels)
        done = len(known.get(name, {}))
        table.add_row(name or "all operators", str(there), str(len(span.classes(name))), str(done))
    out_console().print(table)
    order = list(itertools.islice(past.order(span, known), given.steps or len(span.commits)))
    trials = ranging.plan.trials * sum(len(after.operators) for after in order)
    click.echo(f"would measure {len(order)} of {len(span.commits)} commits into {ranging.out}, in this order:")
    for commit in (span.commits[after.place] for after in order):
        click.echo(f"  {commit.short} {plain(commit.subject, 90)}")
    minutes = trials * TRIAL_S[machine_kind()] / 60
    end = f"; ends after {given.minutes:g} min" if given.minutes else ""
    click.echo(f"{trials} trials of an operator at most, about {minutes:.0f} min if every code differs{end}")
    return 0
