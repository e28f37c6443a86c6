"""`ridgeline ab`: two commits in lock-step, or recorded trials, judged."""

from __future__ import annotations

from pathlib import Path

import click

from ci.commands.common.measuring import TIMINGS, VerbClock, scratch, two_checkouts
from ci.commands.common.outcome import check_recordable, compared, finish, shown
from ci.commands.common.why import WHY
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
    option,
    plan,
    pythons,
    verb,
    wait_for_turn,
    with_rounds,
)
from ci.trials import replay


@verb("ridgeline ab main my-branch --kernel gemm\n  ridgeline ab --replay trials.jsonl --json")
@click.argument("base", required=False)
@click.argument("head", required=False)
@TIMED
@BUDGET
@ALL_CASES
@TIMINGS
@option("--replay", "Judge recorded trials; measures nothing.", ANY)
@option("--env-base PYTHON", "Python of the base (another Triton or ROCm).", heading=RARE)
@option("--env-head PYTHON", "Python of the head.", heading=RARE)
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
    """
    rules = policy.load(given.policy_file)
    if given.replay:  # by the same code as live ones
        recording = replay.opened(given.replay)
        judgement = judge(recording.comparisons, rules)
        return shown(judgement, recording.trials, recording.rejected, given.as_json, title="recorded trials")
    if not given.dry_run:
        wait_for_turn()
    clock = VerbClock()
    planned = with_rounds(plan(given, pythons=pythons(given)))
    repository = Repository(Path.cwd())
    checkouts = two_checkouts(repository, given.base, given.head, given.out)
    check_recordable(given, checkouts, planned)
    file = given.out or scratch("ab", checkouts[1])
    if given.dry_run:
        one, two = (checkout.label for checkout in checkouts)
        click.echo(f"would compare {two} with {one} ({planned.tier} tier) into {file}")
        return 0
    outcome = compared(checkouts, planned, rules, file, given.all_cases)
    code = finish(outcome, checkouts, planned, rules, file, repository.root, given, clock)
    clock.say(outcome.file.trials, given.timings, to_stderr=given.as_json)
    return code
