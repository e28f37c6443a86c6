"""The part of `ab` and `check` that says why: experiments after a SLOWER, with what is done now on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan
from ci.judging import live
from ci.judging.policy import Policy
from ci.judging.types import Verdict
from ci.options import together
from ci.report.model import Explanation
from ci.report.words import plain
from ci.why.code import CodeDifference
from ci.why.explain import DEFAULT_S, explain

WHY = together(
    click.option(
        "--why/--no-why",
        default=True,
        show_default=True,
        help="After a SLOWER: put knobs, files, compiler of base back one by one, until the cause is shown.",
    ),
    click.option(
        "--why-seconds",
        type=click.FloatRange(1, 86_400),
        default=DEFAULT_S,
        show_default=True,
        metavar="SECONDS",
        help="Begin no such experiment after this long.",
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
    """The causes of what is SLOWER; () where nothing is, where there is no base, or with 0 seconds for it."""
    if not seconds or len(checkouts) < 2 or not outcome.judgement.of(Verdict.SLOWER):
        return ()
    code = CodeDifference(checkouts[0].path, checkouts[1].path, root / ".ridgeline" / "isa", plan.pythons)
    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("why: what differs")
        return explain(
            checkouts,
            outcome.judgement,
            outcome.file.trials,
            plan,
            rules,
            file.with_name(f"{file.name}.why").resolve(),
            seconds=seconds,
            code=code.sentences,
            say=lambda said: bar.update(task, description=plain(f"why: putting back {said}", 100)),
        )
