"""`ridgeline gate`: one recorded commit against another, or the trials that a leg of a run handed over."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from benchmarks.reach import Reach
from benchmarks.trial_file import Status
from ci import programs
from ci.commands.outcome import write_report
from ci.git.command import GitError, git_or_none, succeeds
from ci.git.repository import Commit, LocalCheckout, Repository, on_main
from ci.isa import compiled
from ci.isa import text as isa_text
from ci.isa.compiled import CompiledTree, IsaError
from ci.judging import policy, reach, recorded
from ci.judging.policy import Policy
from ci.judging.recorded import Expected, GateError, TrustedOutcome, decided, few, rejected
from ci.judging.types import Judgement, Verdict, to_json
from ci.options import (
    ANY,
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
    together,
    verb,
)
from ci.pools import file as pools_file
from ci.pools.file import NO_GPU, Pool
from ci.records.ledger import CAUSES, Explanation, causes_in, causes_of
from ci.report import terminal
from ci.report.model import Report, ReportWarning, report_of
from ci.report.words import plain, plural
from ci.trials import file
from ci.trials.file import TrialFile
from ci.trials.trial import Trial
from ci.whole_files import replace
from ci.why.explain import NOT_EXAMINED
from kernels.project import ProjectError

WHERE = together(
    option("--pool NAME", "The pool that measured; hosted: GitHub's own CPUs."),
    option("--gpus N", "GPUs it was given (default: any of its sizes).", click.IntRange(0)),
)
"""Where trials were measured."""

HOSTED = Pool("hosted", NO_GPU, (0,))
"""GitHub's own machines, where a pull request's tests and its `ridgeline check` run: CPUs."""


class LegError(Exception):
    """What was said of the leg cannot be; the text names the value and what is allowed."""


def judged_leg(given: Given, repository: Repository, policy: Policy) -> Report:
    """Judge what a leg handed over; a leg that handed over nothing is CANNOT TELL with its reason.

    given: of `gate`; its `code`: folder with what the run says it compiled both sides to (ci.isa.text.SIDES).
    """
    head: str = given.head_commit
    # Bring the objects of a commit that is not here, such as one of a fork; nothing of it is checked out or run.
    if git_or_none(repository.root, "cat-file", "-e", f"{head}^{{commit}}") is None:
        succeeds(repository.root, "fetch", "--quiet", "--no-tags", "origin", head)
    base = given.base_commit or repository.merge_base("HEAD", head)
    if not base:
        raise LegError(f"where {head[:8]} left this branch is not known here; --base names the commit (40 hex digits)")
    expected = _expected(given, base, repository)
    with contextlib.suppress(GitError, ProjectError):  # what differs is not known either then, which is said
        policy = dataclasses.replace(policy, renamed=reach.renamed_in(repository.root, head))
    handed = handed_over(given.files)
    if handed or expected.nothing:
        outcome = decided(handed, expected, policy, "pr")
    else:
        no_file = f"pool {given.pool} handed over no trial file"
        why = f"nothing was measured: {no_file}; the page of the run says how its job ended"
        outcome = TrustedOutcome(Judgement(Verdict.CANNOT_TELL, why))
    if given.code and given.code.is_dir():  # else the kernels are the same files, or nothing got so far
        outcome = dataclasses.replace(outcome, judgement=_with_code(outcome.judgement, given.code, policy.renamed))
    explanations = _explanations(handed, outcome, expected) if outcome.trials else ()
    return _report(outcome, expected, given, repository, explanations)


CAUSES_OF_HOST = "why cases are slower is what the measuring host says of its own experiments; no verdict rests on it"


def _explanations(handed: Sequence[TrialFile], outcome: TrustedOutcome, expected: Expected) -> tuple[Explanation, ...]:
    """Why slower cases are slower, as the host says it of these commits and the machine of these trials."""
    slower = [case.case for case in outcome.judgement.of(Verdict.SLOWER)]
    explanations: dict[str, Explanation] = {}
    for line in (line for trial_file in handed for line in trial_file.causes):
        with contextlib.suppress(ValueError):  # a line that is not a cause explains nothing
            for cause in CAUSES.parsed(line):
                of_run = (cause.base, cause.head) == (expected.base, expected.head)
                of_machine = cause.machine == outcome.trials[0].machine.name
                if of_run and of_machine and {*cause.explanation.cases} <= {*slower}:
                    explanations[cause.explanation.measured] = cause.explanation
    explained = {case for explanation in explanations.values() for case in explanation.cases}
    others = tuple(case for case in slower if case not in explained)
    if explanations and others:
        reason = "not examined: the host says nothing of it"
        return (*explanations.values(), Explanation(others, others[0], NOT_EXAMINED, reason))
    return tuple(explanations.values())


CLAIMED_CODE = "the machine code is what the run of the pull request says it compiled to; it is judged here"


def _with_code(judgement: Judgement, folder: Path, renamed: Mapping[str, str]) -> Judgement:
    """What the run says it compiled can make a verdict worse, never better."""
    try:
        judgement, warning = isa_text.joined(judgement, isa_text.of_files(folder, renamed, _compiled)), CLAIMED_CODE
    except IsaError as error:
        warning = f"the machine code could not be compared: {error}"
    return dataclasses.replace(judgement, warnings=(*judgement.warnings, warning))


def _compiled(path: Path) -> CompiledTree:
    """A result of compiling, from a file that is not trusted."""
    try:
        text = file.content(path)
    except OSError as error:
        raise IsaError(f"{path.name} cannot be read: {error.strerror or error}") from None
    if isinstance(text, str):
        raise IsaError(f"{path.name} {text}")
    return compiled.parse(text.decode("utf-8", "replace"), path.name)


MOST_FILES = 20
"""Files of a folder that are read: one leg hands over one."""


def handed_over(files: Sequence[Path]) -> list[TrialFile]:
    """The trial files that are there, and those in folders, read as hostile."""
    inside = [sorted(path.glob("*.jsonl"))[:MOST_FILES] if path.is_dir() else [path] for path in files]
    return [file.read_hostile(path) for paths in inside for path in paths if path.exists() or path.is_symlink()]


def _expected(given: Given, base: str, repository: Repository) -> Expected:
    if not given.pool:
        raise LegError("--pool NAME is missing: it says which GPU the trials must be of")
    pool = HOSTED if given.pool == HOSTED.name else pools_file.load().pool(given.pool)
    counts = pool.gpus if given.gpus is None else (pool.size(given.gpus),)
    try:  # what can differ, by the commits as git has them
        differing = reach.of_commits(repository.root, base, given.head_commit)
    except (GitError, ProjectError) as error:
        differing = Reach(unknown=str(error))
    reached = programs.reached(repository.root, base, given.head_commit, on_gpu=pool.gpu != NO_GPU)
    product = None if pool.gpu == NO_GPU else pool.gpu
    return Expected(given.head_commit, base, product, counts, differing, tuple(reached))


def _report(
    outcome: TrustedOutcome,
    expected: Expected,
    given: Given,
    repository: Repository,
    explanations: tuple[Explanation, ...],
) -> Report:
    gpus = "" if given.gpus is None else f", {given.gpus} GPU{'s' * (given.gpus != 1)}"
    sides = {"base": expected.base, "head": expected.head}
    checkouts = [LocalCheckout(role, repository.root, Commit(commit, 0, "")) for role, commit in sides.items()]
    report = report_of(outcome.judgement, outcome.trials, checkouts, title=f"pull request on {given.pool}{gpus}")
    warnings = [*report.warnings, *[ReportWarning(CAUSES_OF_HOST)] * bool(explanations)]
    if outcome.trials and not succeeds(repository.root, "merge-base", "--is-ancestor", expected.head, "HEAD"):
        untrusted = recorded.UNTRUSTED.format(head=expected.head[:8])
        warnings.insert(0, ReportWarning(f"{plural(len(outcome.trials), 'trial')} judged here; {untrusted}"))
    return dataclasses.replace(report, warnings=tuple(warnings), explanations=explanations)


@verb(
    "ridgeline gate HEAD^ HEAD --machine h200x2-1a2b3c4d\n"
    "  ridgeline gate --trials trials.jsonl --pool mi300x --head 4a229383d6c3f21b184aaf5a18cfba897cb8b61b"
)
@click.argument("base", required=False)
@click.argument("head", required=False)
@several("--trials -> files", "Judge this file, or folder; it is not trusted.", ANY)
@option("--head SHA -> head_commit", "The commit that was measured.", callback=full_hash)
@option("--base SHA -> base_commit", "Its base (default: where it left HEAD).", callback=full_hash)
@option("--code", "Folder with the compiled code of both sides, as `check` leaves it.", ANY)
@WHERE
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
        report = judged_leg(given, repository, rules)
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
@WHERE
@option("--out", "File for the trials that fit.", NewFile(), required=True)
def sift(given: Given) -> int:
    """Keep the trials that fit their run: commit and pool; say which do not.  Exit code 3 if any was left out.

    FILES are trial files, or folders of them, from a machine that is not trusted.
    """
    handed = handed_over(given.files)
    repository = Repository(Path.cwd())
    past = frozenset(on_main(repository.root) or ())
    expected = dataclasses.replace(_expected(given, given.head_commit, repository), reach=Reach(), past=past)
    fitting, refused = recorded.sift([trial for file in handed for trial in file.trials], expected)
    replace(given.out, "".join(f"{trial.text}\n" for trial in fitting))
    left_out = [*few(rejected(handed)), *refused]
    for sentence in left_out:
        click.echo(f"left out: {plain(sentence, 2000)}", err=True)
    click.echo(f"{len(fitting)} trials fit the run, {len(refused)} do not")
    return USAGE if left_out or not fitting else PASS
