"""What every comparing verb does at its end: say why, print, write the report, record, and the exit code."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from benchmarks.reach.operators import Reach
from ci.commands.common.measuring import VerbClock
from ci.commands.common.tuned import with_changed_rows
from ci.commands.common.why import explained, keep_causes
from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan, again, machine_kind
from ci.judging import live, policy, reach
from ci.judging.pins import pins_not_installed
from ci.judging.types import Judgement, Verdict, to_json
from ci.options import Given, err_console, out_console, print_json
from ci.records import store
from ci.report import json_report, markdown, page, terminal
from ci.report.model import Report, report_of
from ci.report.run_summary import to_decide
from ci.report.words import plain
from ci.trials.file import Followed, Rejected
from ci.trials.trial import Trial
from ci.whole_files import replace
from kernels import project

NOTHING_DIFFERS = Judgement(Verdict.SAME, "nothing differs")


def compared(
    checkouts: Sequence[LocalCheckout], plan: MeasurePlan, rules: policy.Policy, file: Path, all_cases: bool
) -> live.Outcome:
    """Trials in lock-step of what can differ: none where the kernels are the same files and run in the same Python.

    all_cases: of everything that the plan names, whatever the files say.
    """
    console = err_console()
    rules = dataclasses.replace(rules, renamed=project.layout(checkouts[-1].path).renamed)
    found = reach.of_checkouts(*checkouts)
    reach.refuse_unknown(plan, found)
    if all_cases or plan.pythons or plan.knobs:
        outcome = live.compare(checkouts, plan, rules, machine_kind(), file, console)
        unsure = reach.doubts(dataclasses.replace(plan, kernels=()), found, checkouts, outcome.file.trials)
        return dataclasses.replace(outcome, judgement=reach.doubted(outcome.judgement, unsure))
    pins = pins_not_installed(*(checkout.path for checkout in checkouts))
    outcome = _of_differing(checkouts, plan, rules, file, found)
    return dataclasses.replace(outcome, judgement=reach.doubted(outcome.judgement, pins))


def _of_differing(
    checkouts: Sequence[LocalCheckout], plan: MeasurePlan, rules: policy.Policy, file: Path, found: Reach
) -> live.Outcome:
    """Trials of the operators that differ, and what makes their judgement less sure."""
    console = err_console()
    if found.nothing and not any(checkout.dirty for checkout in checkouts):
        return live.identical(checkouts, plan, rules, file, console)
    unreached, part = reach.left_out(plan, found), reach.narrowed(plan, found)
    console.print(reach.sentence(plan, found), markup=False)
    if unreached and not part.kernels:
        return live.Outcome(reach.with_left_out(NOTHING_DIFFERS, unreached), Followed(file).read())
    part = with_changed_rows(part, found, checkouts, console)
    outcome = live.compare(checkouts, part, rules, machine_kind(), file, console)
    judgement = reach.doubted(outcome.judgement, reach.doubts(part, found, checkouts, outcome.file.trials))
    return dataclasses.replace(outcome, judgement=reach.with_left_out(judgement, unreached))


def finish(
    outcome: live.Outcome,
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    rules: policy.Policy,
    file: Path,
    root: Path,
    given: Given,
    clock: VerbClock,
    report: Path | None = None,
) -> int:
    """Say why, record what belongs to commits, print the report, write it; the exit code of the verdict."""
    trials = outcome.file.trials
    wanted_s = given.why_seconds if given.why else 0.0
    causes = explained(outcome, checkouts, plan, rules, file, root, err_console(), wanted_s)
    if given.record:
        keep_causes(causes, checkouts, plan, trials, given.results)
    made = dataclasses.replace(report_of(outcome.judgement, trials, checkouts), explanations=causes)
    if given.as_json:
        spent = clock.spent(trials)
        document = with_rejected(to_json(outcome.judgement), outcome.file.rejected)
        document |= {"explanations": [dataclasses.asdict(one) for one in causes]}
        print_json({**document, "seconds": spent.as_json() if spent else None})
    else:
        terminal.show(made, out_console())
        for sentence in to_decide(outcome.judgement, trials, functools.partial(again, out=outcome.file.path)):
            click.echo(sentence)
    if report:
        write_report(made, report)
    if given.record and trials:
        print_recorded(store.record([outcome.file], given.results), to_stderr=given.as_json)
    elif trials:
        click.echo(f"trials: {_from_here(outcome.file.path)}", err=given.as_json)
    return outcome.judgement.verdict.exit_code


def check_recordable(given: Given, checkouts: Sequence[LocalCheckout], plan: MeasurePlan) -> None:
    """UsageError where --record is asked of times that are those of no commit."""
    changes = next((checkout.changes for checkout in checkouts if checkout.dirty), "")
    other = "--set" if plan.knobs else "--env-base and --env-head" if plan.pythons else ""
    if given.record and (changes or other):
        why = f"{other} asks for what no commit says" if other else f"the checkout has {plain(changes)}"
        raise click.UsageError(f"--record: {why}, so its times belong to no commit; commit it, or leave --record out")


def _from_here(path: Path) -> Path:
    """A path as it is typed in the current folder."""
    here = Path.cwd()
    return path.relative_to(here) if path.is_relative_to(here) else path


def shown(
    judgement: Judgement,
    trials: Sequence[Trial],
    rejected: Sequence[Rejected],
    as_json: bool,
    checkouts: Iterable[LocalCheckout] = (),
    title: str = "",
) -> int:
    """Print a judgement that is not recorded; the exit code of its verdict."""
    if as_json:
        print_json(with_rejected(to_json(judgement), rejected))
    else:
        terminal.show(report_of(judgement, trials, checkouts, title), out_console())
    return judgement.verdict.exit_code


def write_report(report: Report, stem: Path) -> None:
    """STEM.md for the comment, STEM.html for people and STEM.json for machines, each whole or not at all."""
    replace(stem.with_suffix(".md"), markdown.render(report))
    replace(stem.with_suffix(".html"), page.render(report))
    replace(stem.with_suffix(".json"), json_report.dumps(report))


def with_rejected(document: dict[str, object], rejected: Sequence[Rejected]) -> dict[str, object]:
    """A judgement's JSON with the lines of the trial file that were not used."""
    lines = [{"line": one.number, "fault": str(one.fault), "reason": one.why} for one in rejected]
    return {**document, "rejected": lines}


MOST_PROBLEMS = 10
"""Lines left out that are printed one by one: of a file that is no trial file, every line is one."""


def print_recorded(done: store.Recorded, dry_run: bool = False, to_stderr: bool = False) -> None:
    """How many trials are in which files now, and what was left out."""
    verb = "would record" if dry_run else "recorded"
    where = ", ".join(str(path) for path in done.paths) or "no file"
    click.echo(f"{verb} {done.added} new trials ({done.known} known already) in {where}", err=to_stderr)
    for problem in done.problems[:MOST_PROBLEMS]:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    if len(done.problems) > MOST_PROBLEMS:
        click.echo(f"left out: {len(done.problems) - MOST_PROBLEMS} more; --json lists all", err=True)
