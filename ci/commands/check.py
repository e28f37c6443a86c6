"""`ridgeline check`: the pull-request job."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ci.commands.common.checkouts import scratch
from ci.commands.common.clock import TIMINGS, VerbClock
from ci.commands.common.outcome import compared, finish
from ci.commands.common.why import WHY, explained, keep_causes
from ci.commands.site import build_site
from ci.git.command import GitError
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import MeasurePlan, measure
from ci.isa import check as isa_check
from ci.isa import text as isa_text
from ci.judging import live, policy, reach
from ci.judging.types import Judgement, Verdict
from ci.options import ALL_CASES, BUDGET, DRY_RUN, JSON, RESULTS, TIMED, err_console, example, folder, plan, with_rounds
from ci.report.words import plain
from ci.trials.file import Followed
from ci.whole_files import check_writable


@click.command(epilog=example("ridgeline check"))
@TIMED
@click.option("--base", metavar="REV", help="Compare with this (default: where HEAD left the main branch, or HEAD^).")
@BUDGET
@ALL_CASES
@TIMINGS
@folder("--site", "site", "Page to build.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=Path(".ridgeline/report"),
    show_default=True,
    help="Report to write: REPORT.md for the comment, REPORT.json for machines.",
)
@RESULTS
@JSON
@WHY
@DRY_RUN
def check(
    base: str | None,
    site: Path,
    report: Path,
    results: Path,
    all_cases: bool,
    timings: bool,
    as_json: bool,
    why: bool,
    why_seconds: float,
    dry_run: bool,
    **what: Any,
) -> int:
    """The pull-request job: is HEAD still right, is it slower than its base, by how much, on which shapes."""
    clock, rules, planned = VerbClock(), policy.load(None), with_rounds(plan(**what))
    check_writable(report.with_suffix(".json"))
    repository = Repository(Path.cwd())
    if not repository.has_history():
        raise GitError(f"{repository.root} has no commit yet; commit first, then check")
    head = repository.working_tree()
    found = repository.resolve(base) if base else repository.default_base()
    if dry_run:
        against = found.short if found else "nothing (no base in this clone)"
        click.echo(f"would check {head.label} against {against}, write {report}.md and {report}.json, and build {site}")
        return 0
    if found:
        checkouts, outcome = _against(found, head, repository, planned, rules, err_console(), all_cases)
    else:
        checkouts, outcome = (head,), _alone(head, planned, repository.is_shallow(), err_console())
    wanted = why_seconds if why else 0.0
    causes = explained(outcome, checkouts, planned, rules, outcome.file.path, repository.root, err_console(), wanted)
    keep_causes(causes, checkouts, planned, outcome.file.trials, results)
    code = finish(outcome, checkouts, results, as_json=as_json, clock=clock, report=report, explanations=causes)
    build_site(site, results)
    click.echo(f"report: {report}.md\npage:   {site / 'index.html'}", err=as_json)
    clock.say(outcome.file.trials, timings, to_stderr=as_json)
    return code


def _against(
    base: Commit,
    head: LocalCheckout,
    repository: Repository,
    plan: MeasurePlan,
    rules: policy.Policy,
    console: Console,
    all_cases: bool,
) -> tuple[tuple[LocalCheckout, ...], live.Outcome]:
    """Times of both sides and, where their kernels differ, the code they compile to."""
    console.print(f"{head.label} against {base.short} ({plain(base.subject)})", markup=False)
    checkouts = (repository.checkout(base.hash, "base"), head)
    outcome = compared(repository, checkouts, plan, rules, scratch("check", head), console, all_cases)
    part = reach.narrowed(plan, reach.of_checkouts(*checkouts)) if outcome.judgement.unreached else plan
    if not repository.same_kernels(*checkouts) and (part is plan or part.kernels):
        by_code = isa_check.judged(checkouts, part, repository.root, console)
        console.print(isa_text.terminal(by_code))
        outcome = dataclasses.replace(outcome, judgement=isa_check.joined(outcome.judgement, by_code))
    return checkouts, outcome


def _alone(head: LocalCheckout, plan: MeasurePlan, shallow: bool, console: Console) -> live.Outcome:
    """Measure HEAD alone: there is nothing to compare it with."""
    why = "HEAD is the first commit: there is no base to compare with"
    if shallow:
        why = "this clone is shallow and holds no base to compare with; `git fetch --unshallow` brings it"
    console.print(f"{why}; measuring {head.label} alone", style="yellow", markup=False)
    file = scratch("check", head)
    live.measured(measure([head], dataclasses.replace(plan, trials=plan.trials or 3), file, console), file)
    return live.Outcome(Judgement(Verdict.CANNOT_TELL, why), Followed(file).read())
