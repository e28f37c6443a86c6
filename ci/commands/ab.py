"""`ridgeline ab` and, as the pull-request job, `ridgeline check`: two commits in lock-step."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from pathlib import Path

import click

from ci import programs
from ci.commands.measuring import VerbClock, compared_revisions, has_packages, scratch, two_checkouts, with_changed_rows
from ci.commands.outcome import WHY, check_recordable, compared, finish, shown
from ci.git.repository import LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan, machine_kind
from ci.isa import text as isa_text
from ci.isa.text import executed
from ci.judging import live, policy, reach
from ci.judging.judge import judge
from ci.judging.types import Judgement, Verdict
from ci.options import (
    ALL_CASES,
    ANY,
    BUDGET,
    DRY_RUN,
    JSON,
    OUT,
    POLICY,
    RARE,
    RECORD,
    RESULTS,
    TIMED,
    Given,
    WordsCommand,
    err_console,
    option,
    plan,
    pythons,
    verb,
    wait_for_turn,
    with_rounds,
    words_behind,
)
from ci.programs import ProgramRequest
from ci.report.words import plain
from ci.trials.comparisons import read_recording
from ci.trials.file import Followed
from ci.whole_files import check_writable
from kernels import project

PROGRAM = "Of a benchmark program"
EXAMPLES = """ridgeline ab main my-branch --kernel gemm
  ridgeline ab --replay trials.jsonl --json
  ridgeline ab main my-branch --program hipblaslt
  ridgeline ab HEAD~1 HEAD --reads google-benchmark -- ./bench --benchmark_format=json"""


@verb(EXAMPLES, cls=WordsCommand)
@click.argument("base", required=False)
@click.argument("head", required=False)
@TIMED
@BUDGET
@ALL_CASES
@option("--replay", "Judge recorded trials; measures nothing.", ANY)
@option("--env-base PYTHON", "Python of the base (another Triton or ROCm).", heading=RARE)
@option("--env-head PYTHON", "Python of the head.", heading=RARE)
@option("--program NAME", "A benchmark program of ridgeline.toml, built and run on both sides.", heading=PROGRAM)
@option("--reads NAME", "Reader of what the command behind -- prints (default: told from it).", heading=PROGRAM)
@WHY
@POLICY
@OUT
@RECORD
@RESULTS
@JSON
@DRY_RUN
def ab(given: Given) -> int:
    """Compare two commits in lock-step: trials until every case has a verdict or the budget is spent.

    Without HEAD the working tree is compared; without BASE too, it is compared with where it left the main branch.
    An --out file that exists is resumed.  Nothing outside of .ridgeline/ is written, unless --record asks for it.

    With --program, or a command behind --, a benchmark program of any language is built once a commit (its `build`),
    run in turn on both sides, and each row that it prints is a case.
    """
    rules = policy.load(given.policy_file)
    if given.replay:  # by the same code as live ones
        recording = read_recording(given.replay)
        judgement = judge(recording.comparisons, rules)
        return shown(judgement, recording.trials, recording.rejected, given.as_json, title="recorded trials")
    request = _program(given)
    repository = Repository(Path.cwd())
    base, head = compared_revisions(repository, given.base, given.head)
    if not given.dry_run:
        wait_for_turn()
    clock = VerbClock()
    planned = with_rounds(plan(given, pythons=pythons(given)))
    checkouts = two_checkouts(repository, base, head, given.out)
    check_recordable(given, checkouts, planned)
    file = given.out or scratch("ab", checkouts[1])
    if given.dry_run:
        base_label, head_label = (checkout.label for checkout in checkouts)
        how = f"by {request.name}" if request else f"{planned.tier} tier"
        click.echo(f"would compare {head_label} with {base_label} ({how}) into {file}")
        return 0
    if request:
        asked = dataclasses.replace(planned, rounds=given.rounds or 0)
        outcome = programs.compared_by(request, checkouts, asked, rules, file, err_console(), given.all_cases)
    else:
        outcome = compared(checkouts, planned, rules, file, given.all_cases)
    code = finish(outcome, checkouts, planned, rules, file, given, clock)
    clock.say(outcome.file.trials, to_stderr=given.as_json)
    return code


def _program(given: Given) -> ProgramRequest | None:
    """The benchmark program that is asked for, None for operators.  UsageError for options that do not go together."""
    words = words_behind()
    if given.program and words:
        raise click.UsageError(f"--program {given.program} has a command of its own; leave out what stands behind --")
    if given.reads and not words:
        raise click.UsageError("--reads is for a command behind --; a [[program]] names its reader itself: reads = ...")
    if not given.program and not words:
        return None
    programs.refuse_choices(vars(given))
    settings = project.around(Path.cwd())
    if words:
        return programs.program_of_words(settings, words, given.reads or "")
    return programs.declared_program(settings, given.program)


# ---- check: still right, slower, by how much, on which shapes -------------------------------------------------------


REPORT = ".ridgeline/report"

NO_MAIN = (
    "this clone knows no main branch: HEAD is compared with its parent, and earlier commits of the branch are not "
    "looked at; `git fetch origin main` brings one, --base names another"
)


@verb("ridgeline check")
@TIMED
@option("--base REV", "Compare with this (default: where HEAD left the main branch, or HEAD^).")
@BUDGET
@ALL_CASES
@OUT
@option(
    "--report",
    "Report to write: REPORT.md for the comment, REPORT.json for machines.",
    ANY,
    default=lambda: project.place(REPORT),
    show_default=REPORT,
)
@RECORD
@RESULTS
@JSON
@WHY
@DRY_RUN
def check(given: Given) -> int:
    """The pull-request job: is HEAD still right, is it slower than its base, by how much, on which shapes.

    Operators come first, then the programs of ridgeline.toml that the change can reach, built and run on both sides.
    An --out file that exists is resumed.  Trials and report stay in .ridgeline/, unless --record asks for a record.
    """
    rules, planned = policy.load(None), with_rounds(plan(given))
    report = given.report
    check_writable(report.with_suffix(".json"))
    repository = Repository(Path.cwd())
    base = repository.resolve(compared_revisions(repository, given.base, None)[0])
    if not given.dry_run:
        wait_for_turn()
    clock = VerbClock()
    head = repository.head_of_comparison(given.out) if not given.dry_run else repository.working_tree(given.out)
    requests = programs.declared_programs(project.around(Path.cwd()))
    if machine_kind() == "cpu" and (elsewhere := [request.name for request in requests if request.program.gpu]):
        click.echo(f"not run, because they need a GPU: {', '.join(elsewhere)}", err=True)
        requests = [request for request in requests if not request.program.gpu]
    if given.kernels:
        requests = [request for request in requests if request.name in given.kernels]
        names = {request.name for request in requests}
        planned = dataclasses.replace(planned, kernels=tuple(name for name in given.kernels if name not in names))
    if given.dry_run:
        by = f" by operators and {', '.join(request.name for request in requests)}" if requests else ""
        click.echo(f"would check {head.label} against {base.short}{by}, write {report}.html, .md and .json")
        return 0
    check_recordable(given, (head,), planned)
    file = given.out or scratch("check", head)
    err_console().print(f"{head.label} against {base.short} ({plain(base.subject)})", markup=False)
    if not given.base and not repository.has_main_branch():
        err_console().print(NO_MAIN, style="yellow", markup=False)
    checkouts = repository.checkout(base.hash, "base"), head
    outcome = _of_all(given, checkouts, requests, repository.root, planned, rules, file)
    code = finish(outcome, checkouts, planned, rules, outcome.file.path, given, clock, report)
    click.echo(f"report: {report}.html, {report.name}.md, {report.name}.json", err=given.as_json)
    clock.say(outcome.file.trials, to_stderr=given.as_json)
    return code


def _of_all(
    given: Given,
    checkouts: tuple[LocalCheckout, LocalCheckout],
    requests: Sequence[ProgramRequest],
    root: Path,
    plan: MeasurePlan,
    rules: policy.Policy,
    file: Path,
) -> live.Outcome:
    """The outcome of operators, then of programs, with the trials of all in one file."""
    outcomes = []
    declares = any(has_packages(side.path) for side in checkouts) or not requests
    if declares and (plan.kernels or not given.kernels):
        outcomes.append(_against(checkouts, root, plan, rules, file, given.all_cases))
    of_programs = dataclasses.replace(plan, rounds=given.rounds or 0)
    for request in requests:
        try:
            outcome = programs.compared_by(request, checkouts, of_programs, rules, file, err_console(), given.all_cases)
        except MeasureError as error:  # neither side can be run: the other programs are judged all the same
            outcome = live.Outcome(Judgement(Verdict.CANNOT_TELL, f"{request.name}: {error}"), Followed(file).read())
        outcomes.append(outcome)
    judgement = functools.reduce(live.joined, [outcome.judgement for outcome in outcomes])
    return live.Outcome(judgement, outcomes[-1].file)


def _against(
    checkouts: tuple[LocalCheckout, ...],
    root: Path,
    plan: MeasurePlan,
    rules: policy.Policy,
    file: Path,
    all_cases: bool,
) -> live.Outcome:
    """Times of both sides and, where their kernels differ, the code they compile to."""
    changed = reach.of_checkouts(*checkouts)
    reach.refuse_unknown(plan, changed, project.layout(checkouts[-1].path).renamed)
    part = reach.narrowed(plan, changed) if reach.left_out(plan, changed) and not all_cases else plan
    if not (all_cases or changed.nothing or changed.unknown):
        rows = with_changed_rows(reach.narrowed(plan, changed), changed, checkouts, err_console())
        plan, part = (rows, rows) if rows.cases != plan.cases else (plan, part)
    on_cpu, by_code = machine_kind() == "cpu", None
    if not changed.nothing and (part is plan or part.kernels):
        by_code = isa_text.judged(checkouts, part, root, err_console())
    outcome = compared(checkouts, plan, rules, file, all_cases)
    judgement = isa_text.joined(outcome.judgement, by_code) if by_code else outcome.judgement
    if on_cpu:
        judgement = isa_text.decided(judgement, by_code, outcome.file.trials)
    if by_code:
        changed_operators = isa_text.declaring_code(by_code).difference(changed.same)
        judgement = executed(judgement, checkouts[0], checkouts[-1], sorted(changed_operators), err_console())
    return dataclasses.replace(outcome, judgement=judgement)
