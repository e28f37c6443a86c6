"""`ridgeline ci pools`, `runner`, `leg`, `night`: the machines behind a label or a partition, what serves their
queue, and what they do for a pull request and in a night."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from benchmarks import lifetime
from ci import VERBS
from ci.git.repository import Commit, Repository
from ci.github.client import of_environment
from ci.harness import TIERS, machine_kind
from ci.options import (
    DRY_RUN,
    FILE,
    JSON,
    PASS,
    POOLS_FILE,
    USAGE,
    Finite,
    Given,
    NewFile,
    flag,
    option,
    print_json,
    verb,
)
from ci.pools import file
from ci.pools.command import wrapped
from ci.pools.file import Pool, Pools
from ci.programs import declared_programs
from ci.report.model import Sheet, markdown
from ci.report.words import plain
from ci.slurm.client import Slurm
from ci.slurm.runner import RunnerService, offers_of
from kernels import project

COMMAND = ("python", *VERBS, "run", "--out", "trials.jsonl")
"""What is shown where no command is given."""


@verb("ridgeline ci pools --show mi300x --gpus 8 -- python -m ci run --out trials.jsonl")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@option("--show NAME -> shown", "Print what a job of this pool runs.")
@option("--gpus", "With --show: only jobs of this many GPUs.", click.IntRange(min=0))
@POOLS_FILE
@JSON
def pools(given: Given) -> int:
    """The pools of ci/runners.toml: what they are, and what their jobs run (--show).

    COMMAND, after --, is what --show puts into the job; `python3 -m ci.pools --matrix` prints the legs of a workflow.
    """
    described, command = file.load(given.path), given.command or COMMAND
    if given.shown:
        _show(described.pool(given.shown), given.gpus, command, given.as_json)
    else:
        _list(described, given.as_json)
    return PASS


def _show(pool: Pool, gpus: int | None, command: Sequence[str], as_json: bool) -> None:
    """How a pool is reached and what its jobs run."""
    runner, sizes = pool.runs_on, pool.gpus if gpus is None else (pool.size(gpus),)
    labels = {size: runner.sized(size).value if runner else None for size in sizes}
    scripts = {size: wrapped(pool, command, size) for size in sizes}
    if as_json:
        jobs = [{"gpus": size, "runs_on": labels[size], "script": scripts[size]} for size in sizes]
        print_json({**dataclasses.asdict(pool), "jobs": jobs})
        return
    for size in sizes:
        gres = pool.gres_of(size) or "no GPU"
        slurm = f"site {pool.site}, partition {pool.partition}, {gres}, time {pool.time_limit}"
        reached = f"GitHub: {labels[size] or 'no runner'}.  Slurm: {slurm if pool.site else 'no site'}."
        click.echo(f"# {reached}\n{scripts[size]}")


def _list(described: Pools, as_json: bool) -> None:
    if as_json:
        print_json({"pools": [dataclasses.asdict(pool) for pool in described.pools.values()]})
        return
    rows = []
    for pool in described.pools.values():
        sizes = " or ".join(pool.title(size) for size in pool.gpus)
        labels = ", ".join((*pool.runs_on.labels, *filter(None, (pool.runs_on.group,)))) if pool.runs_on else "-"
        slurm = f"{pool.site}/{pool.partition}" if pool.site else "-"
        rows.append((pool.name, sizes, str(pool.container), str(pool.isolation), labels, slurm))
    head = ("pool", "GPUs", "container", "isolation", "GitHub", "Slurm")
    click.echo(markdown(Sheet("", head, tuple(rows), len(head))), nl=False)


# `ridgeline ci runner`: serves GitHub's queue from Slurm, with one short-lived runner for each job.  A round is 4 calls
# and one for each run at work, and GitHub allows 5,000 an hour.


@verb("ridgeline ci runner --once --dry-run")
@option("--site NAME", "The Slurm site (default: the one with a table [site.NAME.runner]).")
@flag("--once", "Look once, do what follows, and leave.")
@option("--interval SECONDS", "Time between two rounds.", Finite(0.05, 3600), default=30.0)
@option("--token-file", "GitHub's token, read again in every round (default: the variable GITHUB_TOKEN).", FILE)
@POOLS_FILE
@DRY_RUN
def runner(given: Given) -> int:
    """Serve GitHub's queue from Slurm: one Slurm job, with a runner for one job, for each queued job of ours.

    It holds nothing: killed at any moment, it goes on by looking.  What it writes lies in `runner` of the site's shared
    folder.  The token needs "administration: write" and "actions: read" of the repository.  --dry-run looks once and
    says what it would do.
    """
    pools, logged = file.load(given.path), list[str]()
    served = [(site, site.runner) for site in pools.sites.values() if site.runner and given.site in (None, site.name)]
    if len(served) != 1:
        known = ", ".join(pools.sites) or "none"
        raise click.UsageError(
            f"--site {given.site or 'not given'}; allowed: one with a table [site.NAME.runner], of {known}"
        )
    ((site, settings),) = served
    folder = Path(site.shared or Path.home() / ".ridgeline") / "runner"
    environ = {**os.environ, "GITHUB_REPOSITORY": settings.repository}
    while True:
        if given.token_file:
            environ["GITHUB_TOKEN"] = given.token_file.read_text("utf-8").strip()
        github = of_environment(environ)
        service = RunnerService(site, settings, offers_of(pools, site.name), folder, github, Slurm(patience_s=0))
        lines, failed = service.do_round(given.dry_run)
        for line in lines:
            if line not in logged:  # what has not changed since the last round is not repeated
                now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
                click.echo(f"{now} {plain(line, 500)}")  # names in it are other people's words
        if given.once or given.dry_run:
            return USAGE if failed else PASS
        logged = lines
        time.sleep(given.interval)


# ---- what a pool does: for a pull request, compare; in a night, look and measure -------------------------------------

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
