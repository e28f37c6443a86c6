"""`ridgeline gate`: one recorded commit against another, or the trials that a leg of a run handed over."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import click

from ci.commands.common import leg
from ci.commands.common.leg import HandedLeg
from ci.commands.common.outcome import write_report
from ci.git.repository import LocalCheckout, Repository
from ci.judging import claims, policy, recorded
from ci.judging.claims import rejected
from ci.judging.types import Verdict, to_json
from ci.options import (
    ANY,
    FILE,
    JSON,
    PASS,
    POLICY,
    RESULTS,
    USAGE,
    NewFile,
    full_hash,
    option,
    out_console,
    print_json,
    several,
    together,
    verb,
)
from ci.records.ledger import RecordedCause, causes_in, causes_of
from ci.report import terminal
from ci.report.model import Report, report_of
from ci.report.words import plain
from ci.whole_files import replace

OF_A_LEG = together(
    several("--trials -> files", "Judge this file, or folder; it is not trusted.", ANY),
    option("--head SHA -> head_commit", "The commit that was measured.", callback=full_hash),
    option("--base SHA -> base_commit", "Its base (default: where it left HEAD).", callback=full_hash),
    option("--declared", "What base declares (`python -m benchmarks list --json`).", FILE),
    option("--code", "Folder with the compiled code of both sides, as `check` leaves it.", ANY),
)


@verb(
    "ridgeline gate HEAD^ HEAD --machine h200x2-1a2b3c4d\n"
    "  ridgeline gate --trials trials.jsonl --pool mi300x --head 4a229383d6c3f21b184aaf5a18cfba897cb8b61b"
)
@click.argument("base", required=False)
@click.argument("head", required=False)
@OF_A_LEG
@leg.WHERE
@option("--machine NAME", "Machine of the records (default: every machine that has both).")
@POLICY
@option("--report", "Also write REPORT.md and REPORT.json.", NewFile())
@RESULTS
@JSON
def gate(
    base: str | None,
    head: str | None,
    files: tuple[Path, ...],
    head_commit: str | None,
    base_commit: str | None,
    pool: str | None,
    gpus: int | None,
    run: Path | None,
    job: str,
    declared: Path | None,
    code: Path | None,
    machine: str | None,
    policy_file: Path | None,
    report: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """Judge one recorded commit against another, or trials from a host that is not trusted; measures nothing.

    With --trials every trial is held against the run that should have produced it, and judged with the code and the
    policy of this checkout.  What does not fit is refused by name, and a file with refused lines is never a pass.
    """
    repository, rules = Repository(Path.cwd()), policy.load(policy_file)
    if files:
        if base or not head_commit or not pool:
            raise click.UsageError("--trials needs --head SHA and --pool NAME, and takes no BASE HEAD")
        asked = HandedLeg(head_commit, base_commit or "", pool, gpus, "pr", run, job, declared, code)
        made = leg.judged(files, asked, repository, rules)
        return _told([made], [to_json(made.judgement)], report, as_json)
    if not base or not head:
        raise click.UsageError("BASE and HEAD are missing: `ridgeline gate HEAD^ HEAD` judges two recorded commits")
    first, second = repository.resolve(base), repository.resolve(head)
    judged = recorded.gate(results, first.hash, second.hash, rules, machine)
    checkouts = (LocalCheckout("base", repository.root, first), LocalCheckout("head", repository.root, second))
    causes, _ = causes_in(results)
    reports = [_with_causes(_report(one, checkouts), one, causes) for one in judged]
    return _told(reports, list(map(_document, judged)), report, as_json)


def _told(reports: Sequence[Report], documents: Sequence[dict[str, object]], stem: Path | None, as_json: bool) -> int:
    """Print all, write the worst; the exit code of its verdict."""
    if as_json:
        print_json(documents)
    else:
        for made in reports:
            terminal.show(made, out_console())
    verdict = Verdict.worst(made.verdict for made in reports)
    if stem:
        write_report(next(made for made in reports if made.verdict is verdict), stem)
    return verdict.exit_code


def _report(judged: recorded.Judged, checkouts: tuple[LocalCheckout, ...]) -> Report:
    """One report per machine and environment that recorded both."""
    apart = "" if judged.paired else ", recorded apart"
    title = f"recorded commits on {judged.machine} ({judged.env}){apart}"
    return report_of(judged.judgement, judged.trials, checkouts, title=title)


def _with_causes(report: Report, judged: recorded.Judged, causes: Sequence[RecordedCause]) -> Report:
    """With what experiments have shown on that machine about what is slower."""
    slow = {case.case for case in judged.judgement.of(Verdict.SLOWER)}
    found = causes_of(causes, report.base.commit, report.head.commit, judged.machine)
    return dataclasses.replace(report, explanations=tuple(one for one in found if slow.intersection(one.cases)))


def _document(judged: recorded.Judged) -> dict[str, object]:
    where = {"machine": judged.machine, "env": judged.env, "paired": judged.paired}
    return {**where, **to_json(judged.judgement)}


# ---- ci sift ---------------------------------------------------------------------------------------------------------


HEAD = "344de583" + "0" * 32


@verb(f"ridgeline ci sift incoming --head {HEAD} --pool mi300x --out trials.jsonl")
@click.argument("files", nargs=-1, required=True, type=ANY)
@option("--head SHA", "The commit that was measured.", callback=full_hash, required=True)
@leg.WHERE
@option("--out", "File for the trials that fit.", NewFile(), required=True)
def sift(files: Sequence[Path], head: str, pool: str, gpus: int | None, run: Path | None, job: str, out: Path) -> int:
    """Keep the trials that fit their run: commit, pool, moment; say which do not.  Exit code 3 if any was left out.

    FILES are trial files, or folders of them, from a machine that is not trusted.
    """
    asked = HandedLeg(head, head, pool, gpus, "pr", run, job)
    handed = leg.handed_over(files)
    expected = leg.expected_alone(asked, Repository(Path.cwd()))
    found = claims.sift([trial for file in handed for trial in file.trials], expected)
    replace(out, "".join(f"{trial.text}\n" for trial in found.trials))
    left_out = [*rejected(handed), *map(str, found.refused), *found.gaps]
    for sentence in left_out:
        click.echo(f"left out: {plain(sentence, 2000)}", err=True)
    click.echo(f"{len(found.trials)} trials fit the run, {len(found.refused)} do not")
    return USAGE if left_out or not found.trials else PASS
