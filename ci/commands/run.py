"""`ridgeline run`, and what every verb that measures shares.  It runs on a node that has Python, torch and triton only:
nothing here, or imported from here before there is something to record, needs asv, git, pandas or a network.
"""

from __future__ import annotations

import dataclasses
import datetime
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ci.git.command import GitError as TreeError
from ci.git.repository import Commit, Repository
from ci.git.repository import LocalCheckout as Tree
from ci.harness import MeasurePlan as Plan
from ci.harness import machine_kind, measure
from ci.report import run_summary as summary
from ci.trials.file import TrialLine, read_trials

CPU_ROUNDS, GPU_ROUNDS = 20, 40
"""Rounds in a trial unless asked otherwise: 40 repeat a GPU's median to 0.1 %; a CPU's calls take milliseconds each."""


def out_console() -> Console:
    """Where results go."""
    return Console(highlight=False)


def err_console() -> Console:
    """Where progress and remarks go."""
    return Console(stderr=True, highlight=False)


def run(
    plan: Plan,
    *,
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    out: Path | None,
    results: Path,
    dry_run: bool,
) -> int:
    """Measure one tree; record it unless --out asks for the trial file only."""
    head = _one_tree(commit, commit_date, tree)
    if out is None and (head.dirty or head.commit is None):
        raise TreeError(
            f"{head.path} has uncommitted changes, so its numbers belong to no commit: commit them, or write "
            "a trial file with --out FILE"
        )
    file = out or scratch("run", head)
    plan = with_rounds(plan)
    if dry_run:
        click.echo(
            f"would measure {head.label} ({plan.tier} tier, {plan.trials} trials of {plan.rounds} rounds) into "
            f"{file}" + ("" if out else f" and record it in {results}")
        )
        return 0
    before = len(read_trials(file)[0]) if file.exists() else 0
    code = measure([head], plan, file, err_console())
    lines = read_trials(file)[0][before:] if file.exists() else []
    summary.show(lines, out_console())
    _say_busy(lines)
    if not out and lines:
        from ci.commands.jobs import print_recorded
        from ci.records.store import record

        print_recorded(record([file], results))
    elif lines:
        click.echo(f"{len(lines)} trials in {file}; `ridgeline record {file}` makes asv records of them")
    return code


def verify(
    plan: Plan,
    *,
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    out: Path | None,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Check every backend of one tree, time nothing; the measuring program prints what came of it."""
    head = _one_tree(commit, commit_date, tree)
    file = out or Path(".ridgeline/checks.jsonl")
    if dry_run:
        click.echo(f"would check {head.label} ({plan.tier} tier) and append what comes of it to {file}")
        return 0
    return measure([head], plan, file, err_console(), "verify", *(["--json"] if as_json else []))


def plan(**options: Any) -> Plan:
    """A plan from the options of a verb; what was not asked for keeps its default."""
    given = {key: value for key, value in options.items() if value is not None}
    given["deadline_s"] = given.pop("deadline", None)
    return Plan(**given)


def with_rounds(plan: Plan) -> Plan:
    """Rounds and state of the caches by the kind of machine, unless asked for.

    A CPU's last level is shared with other tenants and can be hundreds of MB: to sweep it takes longer than a call.
    """
    cpu = machine_kind() == "cpu"
    return dataclasses.replace(
        plan, rounds=plan.rounds or (CPU_ROUNDS if cpu else GPU_ROUNDS), cache=plan.cache or ("hot" if cpu else "cold")
    )


def scratch(verb: str, tree: Tree) -> Path:
    """A new trial file under .ridgeline/trials, named by time and commit."""
    stamp = datetime.datetime.now(datetime.UTC).strftime("%Y%m%d-%H%M%S")
    return (
        Path(".ridgeline/trials") / f"{stamp}-{verb}-{tree.commit.short if tree.commit else 'tree'}-{os.getpid()}.jsonl"
    )


def _one_tree(commit: str | None, date_ms: int | None, path: Path | None) -> Tree:
    """The tree of `run`: named by the caller on a node without git, else the working tree of the repository."""
    if commit is None:
        repository = Repository(path or Path.cwd())
        return repository.working_tree()
    if not re.fullmatch(r"[0-9a-f]{40}", commit):
        raise TreeError(
            f"--commit {commit!r} is not a full commit hash; `git rev-parse HEAD` prints one (40 hex digits)"
        )
    if date_ms is None:
        try:
            date_ms = Repository(path or Path.cwd()).resolve(commit).date_ms
        except TreeError:
            date_ms = int(datetime.datetime.now(datetime.UTC).timestamp() * 1000)
            click.echo("the commit's date is not known here: today's is recorded; --commit-date gives it", err=True)
    return Tree("head", (path or Path.cwd()).resolve(), Commit(commit, date_ms, ""))


def _say_busy(lines: Sequence[TrialLine]) -> None:
    shares = [line.data["busy_share"] for line in lines if line.data.get("busy_share")]
    if shares and lines[0].data["machine"].get("kind") == "gpu":
        loops, all_s = (sum(line.data.get(key) or 0.0 for line in lines) for key in ("measuring_s", "duration_s"))
        click.echo(
            f"the GPU was busy for {100 * sum(shares) / len(shares):.0f} % of the measuring loops, "
            f"which took {loops:.1f} of {all_s:.1f} s; the rest is starting processes, compiling and checking"
        )
