"""`ridgeline ci leg`: what a pool does for a pull request: compare two commits, then verify what the change tunes."""

from __future__ import annotations

from pathlib import Path

import click

from ci.commands.night import run, through
from ci.git.repository import Commit, Repository
from ci.options import DRY_RUN, PASS, NewFile, option, verb

VERIFY_MIN = 5
"""GPU minutes for tuned entries: 20 of one GPU by the model of `ci.sweeps.effort` (2.0 minutes for eight of gemm).  A
change of one operator reaches fewer; what is left over is the night's (2026-11-22)."""

WHY_S = 180
"""Seconds in which experiments on a SLOWER begin.  The median cause takes nine trials (tests/study/causes), two minutes
at 10 to 15 s a trial of one case on a GPU (2026-11)."""


@verb("ridgeline ci leg HEAD...my-branch my-branch --out trials.jsonl --dry-run")
@click.argument("base")
@click.argument("head")
@option("--out", "Trial file to append to, with the sweep lines of entries.", NewFile(), required=True)
@DRY_RUN
def leg(base: str, head: str, out: Path, dry_run: bool) -> int:
    """Compare HEAD with BASE, then verify the tuned entries whose code HEAD has changed.

    The exit code is that of the comparison: an entry that is no longer the best is named in the report, and is no
    regression by itself.
    """
    repository = Repository(Path.cwd())
    commit = repository.resolve(head)
    if dry_run:
        for words in steps(base, commit, "WORKTREE", out):
            click.echo(f"would run: ridgeline {' '.join(words)}")
        return PASS
    return through(steps(base, commit, str(repository.checkout(commit.hash, "head").path), out), run)


def steps(base: str, head: Commit, tree: str, out: Path) -> tuple[tuple[str, ...], ...]:
    """The commands of a leg, each as arguments.  tree: a worktree of head, whose tables may be rewritten.

    The report is rendered elsewhere, from the trials and from what was measured to find out why a case is slower: both
    are in the file.
    """
    source = (f"--tree={tree}", f"--commit={head.hash}", f"--commit-date={head.date_ms}")
    verify = ("tune", "all", "--verify", f"--budget={VERIFY_MIN}", f"--out={out}", *source)
    return (("ab", base, head.hash, f"--out={out}", f"--why-seconds={WHY_S}"), verify)
