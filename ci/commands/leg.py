"""What a pool does: for a pull request, compare; in a night, look and measure."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from benchmarks import lifetime
from ci.calling import VERBS
from ci.git.repository import Commit, Repository
from ci.harness import TIERS, machine_kind
from ci.options import DRY_RUN, PASS, Given, NewFile, option, verb
from ci.programs import declared_programs
from kernels import project

WHY_S = 180
"""Seconds in which experiments on a SLOWER begin.  The median cause takes nine trials (tests/study/causes.md), two
minutes at 10 to 15 s a trial of one case on a GPU (2026-11)."""


@verb("ridgeline ci leg HEAD...my-branch my-branch --out trials.jsonl --dry-run")
@click.argument("base")
@click.argument("head")
@option("--out", "Trial file to append to.", NewFile(), required=True)
@DRY_RUN
def leg(given: Given) -> int:
    """Compare HEAD with BASE, and find out why a case is slower; then by each program of the settings.

    The exit code is that of the worst comparison.
    """
    commit = Repository(Path.cwd()).resolve(given.head)
    operators = comparison(given.base, commit, given.out)
    steps = [operators, *((*operators[:4], f"--program={name}") for name in _programs())]
    return max(_all([step], given.dry_run) for step in steps)


def _programs() -> list[str]:
    """The names of the benchmark programs that run on this machine."""
    return [one.name for one in declared_programs(project.around(Path.cwd()), on_gpu=machine_kind() == "gpu")]


def _all(planned: Sequence[Sequence[str]], dry_run: bool) -> int:
    """Run the steps, or say what they are."""
    if not dry_run:
        return through(planned, run)
    for words in planned:
        click.echo(f"would run: ridgeline {' '.join(words)}")
    return PASS


def comparison(base: str, head: Commit, out: Path) -> tuple[str, ...]:
    """The arguments of a leg's comparison.

    The report is rendered elsewhere, from the trials and from what was measured to find out why a case is slower: both
    are in the file.
    """
    return ("ab", base, head.hash, f"--out={out}", f"--why-seconds={WHY_S}")


# ---- a night ---------------------------------------------------------------------------------------------------------


MISSED, MISSED_MIN = 40, 20
"""Newest commits among which a night looks for those that no record has, and its GPU minutes for them: a commit of this
repository takes 45 s of an H100 (pr tier, 2026-11-25)."""

MEASURING = ("run", "ab")
"""Verbs whose exit code is that of all steps."""

Run = Callable[[Sequence[str]], int]
"""Runs `ridgeline` with these arguments; its exit code."""


@verb("ridgeline ci night --tier nightly --out trials.jsonl --dry-run")
@option("--tier", "Which cases.", click.Choice(TIERS), default="nightly")
@option("--kernels NAMES", "Only these operators, separated by spaces.", default="")
@option("--out", "Trial file to append to.", NewFile(), required=True)
@DRY_RUN
def night(given: Given) -> int:
    """Say what this machine is, measure, also what was missed.

    The exit code is that of measuring; a machine in bad shape is measured all the same, and its notes say so.
    """
    return _all(night_steps(given.tier, given.kernels.split(), given.out, _programs()), given.dry_run)


def night_steps(
    tier: str, kernels: Sequence[str], out: Path, programs: Sequence[str] = ()
) -> tuple[tuple[str, ...], ...]:
    """The commands of a night, each as arguments.

    Programs, and commits that earlier nights missed, are measured on full nights, not after a look at a few operators.
    """
    measure = ("run", f"--tier={tier}", *(f"--kernel={name}" for name in kernels), f"--out={out}")
    if tier != "nightly" or kernels:
        return (("doctor",), measure)
    missed = ("run", "..HEAD", f"--newest={MISSED}", f"--minutes={MISSED_MIN}", f"--out={out}")
    by_program = [("run", f"--program={name}", f"--out={out}") for name in programs]
    return (("doctor",), measure, *by_program, missed)


def through(planned: Sequence[Sequence[str]], run: Run) -> int:
    """Run all of them; the exit code of the first one that measures."""
    codes = [(words[0], run(words)) for words in planned]
    return next(code for verb, code in codes if verb in MEASURING)


def run(words: Sequence[str]) -> int:
    """Run one verb, said on stderr before."""
    click.echo(f"ridgeline {' '.join(words)}", err=True)
    return subprocess.run([sys.executable, *VERBS, *words], env=lifetime.told(os.environ), check=False).returncode
