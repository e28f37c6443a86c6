"""`ridgeline gate`: one recorded commit against another."""

from __future__ import annotations

import json
from pathlib import Path

import click

from ci.commands.common.outcome import write_report
from ci.git.repository import LocalCheckout, Repository
from ci.judging import policy, recorded
from ci.judging.types import Verdict, to_json
from ci.options import JSON, POLICY, RESULTS, NewFile, example, out_console
from ci.report import terminal
from ci.report.build import report_of
from ci.report.model import Report


@click.command(epilog=example("ridgeline gate HEAD^ HEAD --machine h200x2-1a2b3c4d"))
@click.argument("base")
@click.argument("head")
@click.option("--machine", metavar="NAME", help="Machine of the records (default: every machine that has both).")
@POLICY
@click.option("--report", type=NewFile(), help="Also write REPORT.md and REPORT.json.")
@RESULTS
@JSON
def gate(
    base: str,
    head: str,
    machine: str | None,
    policy_file: Path | None,
    report: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """Judge one recorded commit against another; measures nothing."""
    repository = Repository(Path.cwd())
    first, second = repository.resolve(base), repository.resolve(head)
    judged = recorded.gate(results, first.hash, second.hash, policy.load(policy_file), machine)
    checkouts = (LocalCheckout("base", repository.root, first), LocalCheckout("head", repository.root, second))
    reports = [_report(one, checkouts) for one in judged]
    if as_json:
        click.echo(json.dumps([_document(one) for one in judged], indent=1))
    else:
        for made in reports:
            terminal.show(made, out_console())
    verdict = Verdict.worst(made.verdict for made in reports)
    if report:
        write_report(next(made for made in reports if made.verdict is verdict), report)
    return verdict.exit_code


def _report(judged: recorded.Judged, checkouts: tuple[LocalCheckout, ...]) -> Report:
    """One report per machine and environment that recorded both."""
    apart = "" if judged.paired else ", recorded apart"
    title = f"recorded commits on {judged.machine} ({judged.env}){apart}"
    return report_of(judged.judgement, judged.trials, checkouts, title=title)


def _document(judged: recorded.Judged) -> dict[str, object]:
    where = {"machine": judged.machine, "env": judged.env, "paired": judged.paired}
    return {**where, **to_json(judged.judgement)}
