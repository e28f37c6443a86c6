"""`ridgeline ab`: two commits in lock-step, or recorded trials, judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ci.commands.common.measuring import TIMINGS, VerbClock, scratch, two_checkouts
from ci.commands.common.outcome import compared, finish, with_rejected
from ci.commands.common.why import WHY, explained, keep_causes
from ci.git.repository import Repository
from ci.judging import policy
from ci.judging.judge import judge
from ci.judging.types import to_json
from ci.options import (
    ALL_CASES,
    ANY,
    BUDGET,
    DRY_RUN,
    JSON,
    OUT,
    POLICY,
    RESULTS,
    TIMED,
    err_console,
    option,
    out_console,
    plan,
    print_json,
    verb,
    wait_for_turn,
    with_rounds,
)
from ci.records import samples
from ci.report import terminal
from ci.report.model import report_of
from ci.trials import replay as recorded


@verb("ridgeline ab main my-branch --kernel gemm\n  ridgeline ab --replay trials.jsonl --json")
@click.argument("base", required=False)
@click.argument("head", required=False)
@TIMED
@BUDGET
@ALL_CASES
@TIMINGS
@option("--replay", "Judge recorded trials; measures nothing.", ANY)
@option("--env-base PYTHON", "Python of the base (another Triton or ROCm).")
@option("--env-head PYTHON", "Python of the head.")
@WHY
@POLICY
@OUT
@RESULTS
@JSON
@DRY_RUN
def ab(
    base: str | None,
    head: str | None,
    replay: Path | None,
    env_base: str | None,
    env_head: str | None,
    policy_file: Path | None,
    out: Path | None,
    results: Path,
    all_cases: bool,
    timings: bool,
    as_json: bool,
    dry_run: bool,
    why: bool,
    why_seconds: float,
    **what: Any,
) -> int:
    """Compare two commits in lock-step: trials until every case has a verdict or the budget is spent.

    Without HEAD the working tree is compared; without BASE too, it is compared with where it left the main branch.
    An --out file that exists is resumed.
    """
    rules = policy.load(policy_file)
    if replay:
        return _replayed(replay, rules, as_json)
    if not dry_run:
        wait_for_turn()
    clock = VerbClock()
    pythons = {role: path for role, path in (("base", env_base), ("head", env_head)) if path}
    planned = with_rounds(plan(pythons=pythons, **what))
    repository = Repository(Path.cwd())
    checkouts = two_checkouts(repository, base, head, out)
    file = out or scratch("ab", checkouts[1])
    if dry_run:
        one, two = (checkout.label for checkout in checkouts)
        click.echo(f"would compare {two} with {one} ({planned.tier} tier) into {file}")
        return 0
    outcome = compared(repository, checkouts, planned, rules, file, err_console(), all_cases)
    wanted = why_seconds if why else 0.0
    causes = explained(outcome, checkouts, planned, rules, file, repository.root, err_console(), wanted)
    keep_causes(causes, checkouts, planned, outcome.file.trials, results)
    code = finish(outcome, checkouts, results, as_json=as_json, clock=clock, explanations=causes)
    clock.say(outcome.file.trials, timings, to_stderr=as_json)
    return code


def _replayed(file: Path, rules: policy.Policy, as_json: bool) -> int:
    """Judge recorded trials by the same code as live ones."""
    recording = recorded.opened(file, lambda trials: samples.whole_in(trials, file.parent))
    judgement = judge(recording.comparisons, rules)
    if as_json:
        print_json(with_rejected(to_json(judgement), recording.rejected))
    else:
        terminal.show(report_of(judgement, recording.trials, title="recorded trials"), out_console())
    return judgement.verdict.exit_code
