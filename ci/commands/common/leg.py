"""What `ridgeline gate --trials` knows of a leg from sources that the measured code cannot write."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.reach.operators import Reach
from ci.git.command import GitError, git_or_none, succeeds
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.isa import check as isa_check
from ci.isa import compiled
from ci.isa.compiled import CompiledTree, IsaError
from ci.judging import claims, reach
from ci.judging.claims import Expected, MeasuringJob, TrustedOutcome, decided
from ci.judging.policy import Policy
from ci.judging.types import Judgement, Verdict
from ci.options import FILE, option, together
from ci.pools import file as pools_file
from ci.pools.types import NO_GPU, Pool
from ci.records.ledger import Explanation
from ci.report.model import Report, ReportWarning, Side, report_of
from ci.trials import file
from ci.trials.file import TrialFile
from ci.trials.trial import Declaration, Trial
from ci.why.experiments import CommitSides
from ci.why.explain import NOT_EXAMINED, explain_handed
from kernels.project import ProjectError

WHERE = together(
    option("--pool NAME", "The pool that measured; hosted: GitHub's own CPUs."),
    option("--gpus N", "GPUs it was given (default: any of its sizes).", click.IntRange(0)),
    option("--run", "The platform's list of the run's jobs, as JSON.", FILE),
    option("--job NAME", "Which of them measured (default: the only one).", default=""),
)
"""Where trials were measured, in the platform's and our own words."""

HOSTED = Pool("hosted", NO_GPU, (0,))
"""GitHub's own machines, where a pull request's tests and its `ridgeline check` run: CPUs."""


class LegError(Exception):
    """What was said of the leg cannot be; the text names the value and what is allowed."""


@dataclasses.dataclass(frozen=True)
class HandedLeg:
    """The part of a run that one pool measured.  head, base: 40 hex digits; base "": where head left our branch.

    gpus: how many the job was given, None: any size that the pool offers.  run, job: the platform's word on it.
    declared: what base declares (`python -m benchmarks list --json`), written by a job of our own.
    code: folder with what the run says it compiled both sides to (ci.isa.check.SIDES).
    """

    head: str
    base: str
    pool: str
    gpus: int | None = None
    tier: str = "pr"
    run: Path | None = None
    job: str = ""
    declared: Path | None = None
    code: Path | None = None


def judged(files: Sequence[Path], leg: HandedLeg, repository: Repository, policy: Policy) -> Report:
    """Judge what a leg handed over; a leg that handed over nothing is CANNOT TELL with its reason."""
    job = claims.read(leg.run, leg.job) if leg.run else None
    # Bring the objects of a commit that is not here, such as one of a fork; nothing of it is checked out or run.
    if git_or_none(repository.root, "cat-file", "-e", f"{leg.head}^{{commit}}") is None:
        succeeds(repository.root, "fetch", "--quiet", "--no-tags", "origin", leg.head)
    base = leg.base or _merge_base(repository, leg.head)
    expected = _expected(leg, base, job, repository)
    handed = handed_over(files)
    if handed or not expected.reached:
        outcome = decided(handed, expected, policy, leg.tier)
    else:
        why = job.why_nothing(leg.pool) if job else f"nothing was measured: pool {leg.pool} handed over no trial file"
        outcome = TrustedOutcome(Judgement(Verdict.CANNOT_TELL, why), ())
    if leg.code:
        outcome = dataclasses.replace(outcome, judgement=_with_code(outcome.judgement, leg.code))
    made = _report(outcome, expected, leg, repository)
    explanations = _explanations(outcome, expected, repository, policy)
    told = (ReportWarning(TOLD_CODE),) if any(one.code for one in explanations) else ()
    return dataclasses.replace(made, explanations=explanations, warnings=(*made.warnings, *told))


TOLD_CODE = "the machine code beside a cause is what the measuring host says that both sides compile to"


def _explanations(
    outcome: TrustedOutcome, expected: Expected, repository: Repository, policy: Policy
) -> tuple[Explanation, ...]:
    """Why cases are slower, from the experiments that the leg handed over; a verdict stands without them."""
    sides = CommitSides(repository.root, expected.base, expected.head)
    try:
        return explain_handed(sides, outcome.judgement, outcome.trials, outcome.experiments, policy)
    except (GitError, ProjectError) as error:
        slow = tuple(case.case for case in outcome.judgement.of(Verdict.SLOWER))
        return (Explanation(slow, slow[0], NOT_EXAMINED, f"not examined: {error}"),)


CLAIMED_CODE = "the machine code is what the run of the pull request says it compiled to; it is judged here"


def _with_code(judgement: Judgement, folder: Path) -> Judgement:
    """What the run says it compiled can make a verdict worse, never better."""
    if not folder.is_dir():
        return judgement  # the kernels are the same files, or nothing got so far
    try:
        found, said = isa_check.joined(judgement, isa_check.of_files(folder, _compiled)), CLAIMED_CODE
    except IsaError as error:
        found, said = judgement, f"the machine code could not be compared: {error}"
    return dataclasses.replace(found, warnings=(*found.warnings, said))


def _compiled(path: Path) -> CompiledTree:
    """A result of compiling, from a file that is not trusted."""
    try:
        found = file.content(path)
    except OSError as error:
        raise IsaError(f"{path.name} cannot be read: {error.strerror or error}") from None
    if isinstance(found, str):
        raise IsaError(f"{path.name} {found}")
    return compiled.parse(found.decode("utf-8", "replace"), path.name)


MOST_FILES = 20
"""Files of a folder that are read: one leg hands over one."""


def handed_over(files: Sequence[Path]) -> list[TrialFile]:
    """The trial files that are there, and those in folders, read as hostile."""
    inside = [sorted(path.glob("*.jsonl"))[:MOST_FILES] if path.is_dir() else [path] for path in files]
    return [file.read_hostile(path) for paths in inside for path in paths if path.exists() or path.is_symlink()]


def expected_alone(leg: HandedLeg, repository: Repository) -> Expected:
    """What is expected of a run that measured one commit, without a base."""
    job = claims.read(leg.run, leg.job) if leg.run else None
    return dataclasses.replace(_expected(leg, leg.head, job, repository), same_kernels=True)


def _expected(leg: HandedLeg, base: str, job: MeasuringJob | None, repository: Repository) -> Expected:
    if not leg.pool:
        raise LegError("--pool NAME is missing: it says which GPU the trials must be of")
    pool = HOSTED if leg.pool == HOSTED.name else pools_file.load().pool(leg.pool)
    counts = pool.gpus if leg.gpus is None else (pool.size(leg.gpus),)
    declared, python = _declared(leg.declared) if leg.declared and leg.declared.exists() else (None, "")
    found = _reach(repository, base, leg.head)
    return Expected(
        leg.head,
        base,
        None if pool.gpu == NO_GPU else pool.gpu,
        counts,
        job.started_ms if job else None,
        job.ended_ms if job else None,
        found.nothing,
        () if found.nothing else found.same,
        not (found.nothing and found.same),
        declared,
        python,
    )


def _declared(path: Path) -> tuple[dict[str, Declaration], str]:
    """Declarations by operator, and the Python that made them."""
    try:
        data = json.loads(path.read_bytes())
        return {one["kernel"]: Declaration.of(one) for one in data["kernels"]}, str(data.get("python", ""))
    except OSError as error:
        raise LegError(f"--declared {path} cannot be read: {error.strerror or error}") from error
    except (ValueError, KeyError, TypeError) as error:
        made = "`python -m benchmarks list --json` prints one"
        raise LegError(
            f"--declared {path} is no list of declarations ({type(error).__name__}: {error}); {made}"
        ) from None


# ---- what git knows --------------------------------------------------------------------------------------------------


def _merge_base(repository: Repository, head: str) -> str:
    found = repository.merge_base("HEAD", head)
    if not found:
        raise LegError(f"where {head[:8]} left this branch is not known here; --base names the commit (40 hex digits)")
    return found


def _reach(repository: Repository, base: str, head: str) -> Reach:
    """What can differ, by the commits as git has them."""
    try:
        return reach.of_commits(repository.root, base, head)
    except (GitError, ProjectError) as error:
        return Reach(unknown=str(error))


def _trusted(repository: Repository, commit: str) -> bool:
    """Whether a commit is in the history of the branch that judges."""
    return succeeds(repository.root, "merge-base", "--is-ancestor", commit, "HEAD")


# ---- the report ------------------------------------------------------------------------------------------------------


UNCHECKED = "the benchmark definition is what the measuring host says: no declarations of our own were at hand"


def _report(outcome: TrustedOutcome, expected: Expected, leg: HandedLeg, repository: Repository) -> Report:
    where = leg.pool if leg.gpus is None else f"{leg.pool}, {leg.gpus} GPU{'s' * (leg.gpus != 1)}"
    checkouts = [
        LocalCheckout(role, repository.root, Commit(c, 0, ""))
        for role, c in (("base", expected.base), ("head", leg.head))
    ]
    made = report_of(outcome.judgement, outcome.trials, checkouts, title=f"pull request on {where}")
    base, head = (
        dataclasses.replace(side, commit=one.commit.hash, dirty=False)
        for side, one in zip((made.base, made.head), checkouts, strict=True)
    )
    first = () if _trusted(repository, leg.head) or not outcome.trials else (_untrusted(head, outcome),)
    more = () if expected.declared or not outcome.trials else (ReportWarning(UNCHECKED),)
    moved = moved_configurations(outcome.trials)
    return dataclasses.replace(
        made, base=base, head=head, warnings=(*first, *more, *made.warnings), configurations=moved
    )


def _untrusted(head: Side, outcome: TrustedOutcome) -> ReportWarning:
    count = len(outcome.trials)
    return ReportWarning(
        f"{count} trial{'s' * (count != 1)} judged here; {claims.UNTRUSTED.format(head=head.commit[:8])}"
    )


# Best configurations that moved, for the report of a pull request: from the lines of sweeps among its trials.


if TYPE_CHECKING:
    from ci.history.configurations import SweptCase


def moved_configurations(trials: Sequence[Trial]) -> tuple[str, ...]:
    """A sentence on each backend and case whose knobs in use lost to others that were measured beside them."""
    if not any(trial.sweep for trial in trials):
        return ()
    from ci.history.configurations import swept_in  # pandas takes 0.3 s to import, and most reports have none
    from ci.sweeps.measured import gathered

    swept = [one for found in gathered(trials) for one in swept_in(found)]
    return tuple(filter(None, map(_sentence, swept)))


def _sentence(swept: SweptCase) -> str:
    from ci.history.configurations import better_knobs, loss_of

    loss = loss_of(swept)
    if loss is None:
        return ""
    key, size = swept.key, f"{loss.ratio:.3f} ({loss.low:.3f} to {loss.high:.3f})"
    knobs = better_knobs(swept.chosen, loss.better)
    return f"{key.kernel}/{key.backend}/{key.case}: the knobs in use take {size} of the time of {knobs}"
