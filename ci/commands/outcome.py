"""What every comparing verb does at its end: say why a case is SLOWER, print, record, write the report, exit code."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import trial_file
from benchmarks.reach import Reach
from benchmarks.trial_file import OutputError
from ci.bars import Bars
from ci.commands.measuring import VerbClock, with_changed_rows
from ci.git.command import GitError
from ci.git.repository import LocalCheckout
from ci.harness import MeasureError, MeasurePlan, again, machine_kind
from ci.judging import live, policy, reach
from ci.judging.policy import Policy
from ci.judging.types import Judgement, Verdict, to_json
from ci.options import RARE, Given, err_console, option, out_console, print_json, together
from ci.records import store
from ci.records.ledger import CAUSES, Explanation, RecordedCause, folder_of, record_causes
from ci.report import json_report, markdown, terminal
from ci.report.model import Report, report_of
from ci.report.run_summary import to_decide
from ci.report.words import plain, plural
from ci.trials.file import Followed, Rejected
from ci.trials.trial import Trial
from ci.whole_files import replace
from ci.why.explain import DEFAULT_S, explain
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
    reach.refuse_unknown(plan, found, rules.renamed)
    if all_cases or plan.pythons or plan.knobs:
        outcome = live.compare(checkouts, plan, rules, machine_kind(), file, console)
        unsure = reach.doubts(dataclasses.replace(plan, kernels=()), found, checkouts, outcome.file.trials)
        return dataclasses.replace(outcome, judgement=reach.doubted(outcome.judgement, unsure))
    pins = reach.pins_not_installed(*(checkout.path for checkout in checkouts))
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
    given: Given,
    clock: VerbClock,
    report: Path | None = None,
) -> int:
    """Say why, record what belongs to commits, print the report, write it; the exit code of the verdict."""
    trials = outcome.file.trials
    wanted_s = given.why_seconds if given.why else 0.0
    # A program has no knobs or files that could be put back.
    programs = {trial.operator for trial in trials if trial.by_program}
    cases = tuple(case for case in outcome.judgement.cases if case.kernel not in programs)
    explicable = dataclasses.replace(outcome, judgement=dataclasses.replace(outcome.judgement, cases=cases))
    causes = explained(explicable, checkouts, plan, rules, file, err_console(), wanted_s)
    if given.record:
        keep_causes(causes, checkouts, plan, trials, given.results)
    made = report_of(outcome.judgement, trials, checkouts)
    made = dataclasses.replace(made, explanations=causes, again=again(out=None) if made.programs else "")
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
        made = report_of(judgement, trials, checkouts, title)
        terminal.show(dataclasses.replace(made, again=again(out=None) if checkouts else ""), out_console())
    return judgement.verdict.exit_code


def write_report(report: Report, stem: Path) -> None:
    """STEM.md for the comment, STEM.html for people and STEM.json for machines, each whole or not at all."""
    replace(stem.with_suffix(".md"), markdown.render(report))
    replace(stem.with_suffix(".html"), markdown.html_page(report))
    replace(stem.with_suffix(".json"), json_report.dumps(report))


def with_rejected(document: dict[str, object], rejected: Sequence[Rejected]) -> dict[str, object]:
    """A judgement's JSON with the lines of the trial file that were not used."""
    lines = [{"line": line.number, "reason": line.why} for line in rejected]
    return {**document, "rejected": lines}


MOST_PROBLEMS = 10
"""Lines left out that are printed one by one: of a file that is no trial file, every line is one."""


def print_recorded(done: store.Recorded, dry_run: bool = False, to_stderr: bool = False) -> None:
    """How many trials are in which files now, and what was left out."""
    verb = "would record" if dry_run else "recorded"
    where = ", ".join(str(path) for path in done.paths) or "no file"
    click.echo(f"{verb} {plural(done.added, 'new trial')} ({done.known} known already) in {where}", err=to_stderr)
    for problem in done.problems[:MOST_PROBLEMS]:
        click.echo(f"left out: {plain(problem, 2000)}", err=True)
    if len(done.problems) > MOST_PROBLEMS:
        click.echo(f"left out: {len(done.problems) - MOST_PROBLEMS} more; --json lists all", err=True)


# ---- why: experiments after a SLOWER, with what is done now on a terminal -------------------------------------------


WHY = together(
    option(
        "--why/--no-why",
        "After a SLOWER: put knobs, files, compiler of base back one by one, until the cause is shown.",
        default=True,
    ),
    option(
        "--why-seconds SECONDS",
        "Start no further experiment after this long.",
        click.FloatRange(1, 86_400),
        default=DEFAULT_S,
        heading=RARE,
    ),
)
"""Whether the cause of a SLOWER is looked for, and for how long."""


def explained(
    outcome: live.Outcome,
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    rules: Policy,
    file: Path,
    console: Console,
    seconds: float,
) -> tuple[Explanation, ...]:
    """The causes of what is SLOWER; () where nothing is, where there is no base, or with 0 seconds for it.

    The verdict stands without them: Ctrl-C ends the experiments only, and what breaks them off is said.
    """
    if not seconds or len(checkouts) < 2 or not outcome.judgement.of(Verdict.SLOWER):
        return ()
    asked = (checkouts, outcome.judgement, outcome.file.trials, plan, rules, _folder(file))
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bars(console, *columns) as bar:
        task = bar.add_task("why: what differs", total=None)

        def report(suspects: str) -> None:
            bar.update(task, description=plain(f"why: putting back {suspects}", 100))

        try:
            causes = explain(*asked, seconds=seconds, report=report)
            hand_over(causes, checkouts, outcome.file.trials, file)
            return causes
        except (live.Interrupted, KeyboardInterrupt):
            console.print("why: interrupted; the verdict stands without it", style="yellow")
        except (GitError, MeasureError, OutputError, OSError) as error:
            console.print(f"why: broken off: {error}", style="yellow", markup=False)
    return ()


def causes_of_commits(
    explanations: Sequence[Explanation], checkouts: Sequence[LocalCheckout], trials: Sequence[Trial]
) -> list[RecordedCause]:
    """The explanations as they are kept: of two commits on the machine of the trials."""
    base, head = (side.commit.hash for side in checkouts)
    return [RecordedCause(trials[-1].machine.name, base, head, one) for one in explanations]


def hand_over(
    explanations: Sequence[Explanation], checkouts: Sequence[LocalCheckout], trials: Sequence[Trial], file: Path
) -> None:
    """Add why cases are slower to the file of their trials, for `gate --trials`, unless it says so already."""
    known = list(map(json.loads, Followed(file).read().causes))
    lines = [json.loads(CAUSES.line(one)) for one in causes_of_commits(explanations, checkouts, trials)]
    for line in (line for line in lines if line not in known):
        trial_file.append(file, line)


def keep_causes(
    explanations: Sequence[Explanation],
    checkouts: Sequence[LocalCheckout],
    plan: MeasurePlan,
    trials: Sequence[Trial],
    results: Path,
) -> None:
    """Record why one commit is slower than another, beside the records of their trials.

    Not where something else than the commits differed: uncommitted changes, knobs, environments.
    """
    ends = {side.commit.hash for side in checkouts}
    if explanations and len(ends) == 2 and not (plan.knobs or plan.pythons or any(s.dirty for s in checkouts)):
        record_causes(folder_of(results, trials[-1].regime), causes_of_commits(explanations, checkouts, trials))


def _folder(file: Path) -> Path:
    """Where experiments lie beside the trials that they explain."""
    return file.with_name(f"{file.name}.why").resolve()
