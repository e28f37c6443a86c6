"""`ridgeline gate`: one recorded commit against another, or the trials that a leg of a run handed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from benchmarks.trial_file import Status
from ci.commands.common import leg
from ci.commands.common.outcome import write_report
from ci.git.repository import LocalCheckout, Repository
from ci.judging import policy, reach, recorded
from ci.judging.recorded import GateError, few, rejected
from ci.judging.types import Judgement, Verdict, to_json
from ci.options import (
    ANY,
    FILE,
    JSON,
    NO_VERDICT,
    PASS,
    POLICY,
    RESULTS,
    USAGE,
    Given,
    NewFile,
    full_hash,
    option,
    out_console,
    print_json,
    several,
    verb,
)
from ci.records.ledger import causes_in, causes_of
from ci.report import terminal
from ci.report.model import Report, report_of
from ci.report.words import plain
from ci.trials.trial import Trial
from ci.whole_files import replace


@verb(
    "ridgeline gate HEAD^ HEAD --machine h200x2-1a2b3c4d\n"
    "  ridgeline gate --trials trials.jsonl --pool mi300x --head 4a229383d6c3f21b184aaf5a18cfba897cb8b61b"
)
@click.argument("base", required=False)
@click.argument("head", required=False)
@several("--trials -> files", "Judge this file, or folder; it is not trusted.", ANY)
@option("--head SHA -> head_commit", "The commit that was measured.", callback=full_hash)
@option("--base SHA -> base_commit", "Its base (default: where it left HEAD).", callback=full_hash)
@option("--declared", "What base declares (`python -m benchmarks list --json`).", FILE)
@option("--code", "Folder with the compiled code of both sides, as `check` leaves it.", ANY)
@leg.WHERE
@option("--machine NAME", "Machine of the records (default: every machine that has both).")
@POLICY
@option("--report", "Also write REPORT.md, REPORT.html and REPORT.json.", NewFile())
@RESULTS
@JSON
def gate(given: Given) -> int:
    """Judge one recorded commit against another, or trials from a host that is not trusted; measures nothing.

    With --trials every trial is held against the run that should have produced it, and judged with the code and the
    policy of this checkout.  What does not fit is refused by name, and a file with refused lines is never a pass.
    """
    repository, rules = Repository(Path.cwd()), policy.load(given.policy_file)
    if given.files:
        if given.base or not given.head_commit or not given.pool:
            raise click.UsageError("--trials needs --head SHA and --pool NAME, and takes no BASE HEAD")
        report = leg.judged(given, repository, rules)
        return _show([report], [to_json(report.judgement)], given)
    if not given.base or not given.head:
        raise click.UsageError("BASE and HEAD are missing: `ridgeline gate HEAD^ HEAD` judges two recorded commits")
    ends = base, head = repository.resolve(given.base), repository.resolve(given.head)
    checkouts = [LocalCheckout(role, repository.root, end) for role, end in zip(("base", "head"), ends, strict=True)]
    rules = dataclasses.replace(rules, renamed=reach.renamed_in(repository.root, head.hash))
    changed = reach.of_commits(repository.root, base.hash, head.hash)
    unread = recorded.unread(given.results, base.hash, head.hash, given.machine)
    for problem in unread:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    try:
        judged = recorded.gate(given.results, base.hash, head.hash, rules, given.machine)
    except GateError:
        if not unread and changed.nothing:
            same = Judgement(Verdict.SAME, "the same kernel files on both sides")  # as `ab` says, whatever is recorded
            return _show([report_of(same, (), checkouts, title="recorded commits")], [to_json(same)], given)
        if not unread:
            raise
        click.echo("what was left out may be what both commits have in common: no verdict", err=True)
        return NO_VERDICT
    causes, _ = causes_in(given.results)
    reports, documents = [], []
    for place in judged:
        # One report per machine and environment that recorded both, with what experiments have shown on that machine.
        title = f"recorded commits on {place.machine} ({place.env}){'' if place.paired else ', recorded apart'}"
        right_of_head = {trial.operator for trial in place.trials if _is_right(trial, head.hash)}
        unrecorded = reach.not_recorded(changed, place.judgement, right_of_head, rules.renamed)
        judgement = reach.doubted(place.judgement, list(unrecorded))
        report = report_of(judgement, place.trials, checkouts, title=title)
        slow = {case.case for case in judgement.of(Verdict.SLOWER)}
        known = causes_of(causes, report.base.commit, report.head.commit, place.machine)
        why = tuple(cause for cause in known if slow.intersection(cause.cases))
        reports.append(dataclasses.replace(report, explanations=why))
        where = {"machine": place.machine, "env": place.env, "paired": place.paired}
        documents.append({**where, **to_json(judgement)})
    code = _show(reports, documents, given)
    return NO_VERDICT if unread and code == PASS else code


def _is_right(trial: Trial, commit: str) -> bool:
    """Whether every arm of a commit that was tried in a trial is right, and one was."""
    roles = {role for role, side in trial.checkouts.items() if side.commit == commit}
    ended = [arm.status for _, role, _, arm in trial.arms() if role in roles]
    return Status.OK in ended and not any(status.failed for status in ended)


def _show(reports: Sequence[Report], documents: Sequence[dict[str, object]], given: Given) -> int:
    """Print all, write the worst; the exit code of its verdict."""
    if given.as_json:
        print_json(documents)
    else:
        for report in reports:
            terminal.show(report, out_console())
    verdict = Verdict.worst(report.verdict for report in reports)
    if given.report:
        write_report(next(report for report in reports if report.verdict is verdict), given.report)
    return verdict.exit_code


# ---- ci sift ---------------------------------------------------------------------------------------------------------


HEAD = "344de583" + "0" * 32


@verb(f"ridgeline ci sift incoming --head {HEAD} --pool mi300x --out trials.jsonl")
@click.argument("files", nargs=-1, required=True, type=ANY)
@option("--head SHA -> head_commit", "The commit that was measured.", callback=full_hash, required=True)
@leg.WHERE
@option("--out", "File for the trials that fit.", NewFile(), required=True)
def sift(given: Given) -> int:
    """Keep the trials that fit their run: commit and pool; say which do not.  Exit code 3 if any was left out.

    FILES are trial files, or folders of them, from a machine that is not trusted.
    """
    handed = leg.handed_over(given.files)
    expected = leg.expected_alone(given, Repository(Path.cwd()))
    fitting, refused = recorded.sift([trial for file in handed for trial in file.trials], expected)
    replace(given.out, "".join(f"{trial.text}\n" for trial in fitting))
    left_out = [*few(rejected(handed)), *refused]
    for sentence in left_out:
        click.echo(f"left out: {plain(sentence, 2000)}", err=True)
    click.echo(f"{len(fitting)} trials fit the run, {len(refused)} do not")
    return USAGE if left_out or not fitting else PASS
