"""`ridgeline ab`: two commits in lock-step, or recorded trials, judged."""

from __future__ import annotations

from pathlib import Path

import click

from ci import programs
from ci.commands.common.measuring import TIMINGS, VerbClock, scratch, two_checkouts
from ci.commands.common.outcome import WHY, check_recordable, compared, finish, shown
from ci.git.command import git_or_none
from ci.git.repository import LocalCheckout, Repository
from ci.harness import machine_kind
from ci.judging import live, policy
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
from ci.trials import replay
from kernels import project

PROGRAM = "Of a benchmark program"
OF_OPERATORS = ("cases", "backends", "knobs", "env_base", "env_head")
"""Options that choose within what a checkout declares."""


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
@TIMINGS
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
        recording = replay.opened(given.replay)
        judgement = judge(recording.comparisons, rules)
        return shown(judgement, recording.trials, recording.rejected, given.as_json, title="recorded trials")
    if program := _program(given):
        rules = programs.rules_for(rules, program.name)
        given.rounds = given.rounds or programs.ROUNDS
        given.why = False  # its experiments put knobs, files and compilers of operators back
    if not given.dry_run:
        wait_for_turn()
    clock = VerbClock()
    planned = with_rounds(plan(given, pythons=pythons(given)))
    repository = Repository(Path.cwd())
    checkouts = two_checkouts(repository, given.base, given.head, given.out)
    check_recordable(given, checkouts, planned)
    if program and not given.all_cases and _same_files(repository, checkouts):
        click.echo("both commits have the same files: nothing can have changed (--all-cases runs both)", err=True)
        return shown(Judgement(Verdict.SAME, "the same files on both sides"), (), (), given.as_json, checkouts)
    file = given.out or scratch("ab", checkouts[1])
    if given.dry_run:
        one, two = (checkout.label for checkout in checkouts)
        if program:
            click.echo(f"would build and run {program.name} on {one} and {two}, into {file}")
        else:
            click.echo(f"would compare {two} with {one} ({planned.tier} tier) into {file}")
        return 0
    if program:
        outcome = live.compare(checkouts, planned, rules, machine_kind(), file, err_console(), program.measure)
    else:
        outcome = compared(checkouts, planned, rules, file, given.all_cases)
    code = finish(outcome, checkouts, planned, rules, file, repository.root, given, clock)
    clock.say(outcome.file.trials, given.timings, to_stderr=given.as_json)
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
    settings = project.around(Path.cwd())
    if words:
        program = programs.program_of_words(settings, words, given.reads or "")
    else:
        program = programs.declared_program(settings, given.program)
    if any(getattr(given, name, None) for name in OF_OPERATORS) or set(given.kernels) - {program.name}:
        raise click.UsageError("a program runs whole: --kernel, --case, --backend, --set and --env-* are of operators")
    return program


def _same_files(repository: Repository, checkouts: tuple[LocalCheckout, LocalCheckout]) -> bool:
    """Whether two commits have the same tree, submodules too."""
    trees = {git_or_none(repository.root, "rev-parse", f"{one.commit.hash}^{{tree}}") for one in checkouts}
    return not any(one.dirty for one in checkouts) and len(trees) == 1 and None not in trees
