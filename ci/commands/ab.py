"""`ridgeline ab`: two commits in lock-step, or recorded trials, judged."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click

from ci import programs
from ci.commands.measuring import VerbClock, compared_revisions, scratch, two_checkouts
from ci.commands.outcome import WHY, check_recordable, compared, finish, shown
from ci.git.repository import Repository
from ci.judging import policy
from ci.judging.judge import judge
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
from ci.trials.comparisons import read_recording
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
        if request:
            click.echo(f"would build and run {request.name} on {base_label} and {head_label}, into {file}")
        else:
            click.echo(f"would compare {head_label} with {base_label} ({planned.tier} tier) into {file}")
        return 0
    if request:
        asked = dataclasses.replace(planned, rounds=given.rounds or 0)
        outcome = programs.compared_by(request, checkouts, asked, rules, file, err_console(), given.all_cases)
    else:
        outcome = compared(checkouts, planned, rules, file, given.all_cases)
    code = finish(outcome, checkouts, planned, rules, file, given, clock)
    clock.say(outcome.file.trials, to_stderr=given.as_json)
    return code


def _program(given: Given) -> programs.ProgramRequest | None:
    """The benchmark program that is asked for, None for operators.  UsageError for options that do not go together."""
    words = words_behind()
    if given.program and words:
        raise click.UsageError(f"--program {given.program} has a command of its own; leave out what stands behind --")
    if given.reads and not words:
        raise click.UsageError("--reads is for a command behind --; a [[program]] names its reader itself: reads = ...")
    if not given.program and not words:
        return None
    if set(given.kernels) - {given.program}:
        raise click.UsageError(f"--kernel {given.kernels[0]} is an operator; a program runs whole")
    programs.refuse_choices(vars(given))
    settings = project.around(Path.cwd())
    if words:
        return programs.program_of_words(settings, words, given.reads or "")
    return programs.declared_program(settings, given.program)
