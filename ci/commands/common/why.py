"""The part of `ab` and `check` that says why: experiments after a SLOWER, with what is done now on a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from benchmarks import trial_file
from benchmarks.trial_file import OutputError
from ci.bars import Bars
from ci.commands.common.measuring import two_checkouts
from ci.git.command import GitError
from ci.git.repository import LocalCheckout, Repository
from ci.harness import MeasureError, MeasurePlan, machine_kind
from ci.judging import live
from ci.judging.policy import Policy
from ci.judging.types import Verdict
from ci.options import RARE, option, together
from ci.records.ledger import CAUSES, Explanation, RecordedCause, folder_of, record_causes
from ci.report.words import plain
from ci.trials.file import Followed
from ci.trials.trial import Trial
from ci.why.explain import DEFAULT_S, explain, explain_pair
from ci.why.suspects import CodeDifference

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
    root: Path,
    console: Console,
    seconds: float,
) -> tuple[Explanation, ...]:
    """The causes of what is SLOWER; () where nothing is, where there is no base, or with 0 seconds for it.

    The verdict stands without them: Ctrl-C ends the experiments only, and what breaks them off is said.
    """
    if not seconds or len(checkouts) < 2 or not outcome.judgement.of(Verdict.SLOWER):
        return ()
    asked = (checkouts, outcome.judgement, outcome.file.trials, plan, rules, _folder(file))
    code = CodeDifference(checkouts[0].path, checkouts[1].path, root / CACHE, plan.pythons).sentences
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Bars(console, *columns) as bar:
        task = bar.add_task("why: what differs", total=None)

        def say(said: str) -> None:
            bar.update(task, description=plain(f"why: putting back {said}", 100))

        with _apart(console):
            causes = explain(*asked, seconds=seconds, code=code, say=say)
            hand_over(causes, checkouts, outcome.file.trials, file)
            return causes
    return ()


@contextlib.contextmanager
def _apart(console: Console) -> Iterator[None]:
    """What ends the experiments ends nothing else: it is said."""
    try:
        yield
    except (live.Interrupted, KeyboardInterrupt):
        console.print("why: interrupted; the verdict stands without it", style="yellow")
    except (GitError, MeasureError, OutputError, OSError) as error:
        console.print(f"why: broken off: {error}", style="yellow", markup=False)


def explained_commit(
    repository: Repository,
    good: str,
    bad: str,
    plan: MeasurePlan,
    rules: Policy,
    file: Path,
    console: Console,
    seconds: float,
    results: Path | None,
) -> tuple[Explanation, ...]:
    """Two commits that a search has found next to each other, compared afresh, and what made the second one slower.

    It is recorded in `results`, None for nowhere.
    """
    with _apart(console):
        sides = two_checkouts(repository, good, bad)
        code = CodeDifference(sides[0].path, sides[1].path, repository.root / CACHE, plan.pythons).sentences
        asked = (sides, dataclasses.replace(plan, trials=0), rules, machine_kind(), _folder(file), console)
        found, made = explain_pair(*asked, seconds=seconds, code=code)
        if made and results:
            keep_causes(made, sides, plan, found.file.trials, results)
        return made
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


CACHE = Path(".ridgeline/isa")
"""Below the root of a repository: what was compiled."""


def _folder(file: Path) -> Path:
    """Where experiments lie beside the trials that they explain."""
    return file.with_name(f"{file.name}.why").resolve()
