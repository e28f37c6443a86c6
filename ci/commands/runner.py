"""`ridgeline ci runner`: serves GitHub's queue from Slurm, with one short-lived runner for each job."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from ci.github.client import API
from ci.options import (
    DRY_RUN,
    FOLDER,
    JSON,
    PASS,
    POOLS_FILE,
    USAGE,
    Finite,
    Given,
    flag,
    option,
    print_json,
    several,
    verb,
)
from ci.pools import file
from ci.pools.file import Container, Pools
from ci.report.words import plain
from ci.runner import state as memory
from ci.runner.hub import GitHubQueue
from ci.runner.service import RunnerService, SlurmJobs
from ci.runner.state import Action, RunnerError, Serving, serving
from ci.slurm import Slurm

INTERVAL_S = 15.0
"""Seconds between two looks: GitHub counts 5,000 calls an hour, and a conditional one only if it brings news."""

LINE = 500
"""Characters of one line of the log."""


@verb("ridgeline ci runner --once --dry-run\n  ridgeline ci runner --pool mi300x")
@several("--pool NAME -> only", "Serve only this pool (repeatable).")
@option("--site NAME", "The Slurm site (default: the one with a table [site.NAME.runner]).")
@flag("--once", "Look once, do what follows, and leave.")
@option("--interval SECONDS", "Time between two looks.", Finite(0.05, 3600), default=INTERVAL_S)
@option(
    "--state", "Folder of the service, which every node sees (default: runner in the site's shared folder).", FOLDER
)
@option(
    "--token-file",
    "GitHub's token, read again at every look (default: the variable GITHUB_TOKEN).",
    click.Path(path_type=Path, dir_okay=False, exists=True),
)
@POOLS_FILE
@DRY_RUN
@JSON
def runner(given: Given) -> int:
    """Serve GitHub's queue from Slurm: one Slurm job, with a runner for one job, for each queued job of ours.

    It survives restarts, and GitHub and Slurm being away.  The token needs "administration: write" and "actions:
    write" of the repository.  --dry-run looks once and says what it would do.
    """
    pools = file.load(given.path)
    site = given.site or _only_site(pools)
    served = serving(pools, site, given.only)
    # By default in the folder that every node sees.
    shared = Path(pools.sites[site].shared) if pools.sites[site].shared else Path.home() / ".ridgeline"
    state = (given.state or shared / "runner").absolute()
    hub = GitHubQueue(served, _token(given.token_file), os.environ.get("GITHUB_API_URL") or API)
    jobs = SlurmJobs(served, pools, state, Slurm(patience_s=0))
    service = RunnerService(served, state, hub, jobs, functools.partial(_log, err=given.dry_run))
    if given.dry_run:
        _show(service.plan(), given.as_json)
        return USAGE if service.away else PASS
    with memory.held(state), _stopping() as stopped:
        service.ledger = memory.load(state)
        for line in _greeting(served, pools):
            _log(line)
        service.round()
        while not given.once and not stopped(given.interval):
            service.round()
    return USAGE if given.once and service.away else PASS


def _greeting(served: Serving, pools: Pools) -> Iterator[str]:
    yield f"serving {', '.join(offer.name for offer in served.offers)} of {served.repository}"
    for name in dict.fromkeys(offer.pool for offer in served.offers):
        if pools.pool(name).container is Container.NONE:
            yield f"pool {name} has no container: what its jobs run can read this user's files, the service's too"


def _only_site(pools: Pools) -> str:
    names = [site.name for site in pools.sites.values() if site.runner]
    if len(names) != 1:
        found = ", ".join(names) or "none"
        raise RunnerError(f"--site says which site to serve; sites with a table [site.NAME.runner]: {found}")
    return names[0]


def _token(path: Path | None) -> Callable[[], str]:
    if path is not None:
        return lambda: path.read_text(encoding="utf-8").strip()
    token = os.environ.get("GITHUB_TOKEN", "")
    if not token:
        raise RunnerError("there is no token; set GITHUB_TOKEN or give --token-file, and keep it out of the command")
    return lambda: token


def _show(actions: tuple[Action, ...], as_json: bool) -> None:
    """What would be done, line by line."""
    if as_json:
        documents = [{"action": type(action).__name__.lower(), **dataclasses.asdict(action)} for action in actions]
        print_json(documents)
        return
    for action in actions:
        click.echo(plain(action, LINE))
    if not actions:
        click.echo("nothing to do")


def _log(text: str, err: bool = False) -> None:
    """One line; job names and branches in it are other people's words."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    click.echo(f"{now} {plain(text, LINE)}", err=err)


@contextlib.contextmanager
def _stopping() -> Iterator[Callable[[float], bool]]:
    """SIGTERM ends the service between two looks.  Gives: wait so many seconds, or until SIGTERM; whether it came."""
    asked: list[int] = []

    def within(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not asked and (left := deadline - time.monotonic()) > 0:
            time.sleep(min(left, 0.2))
        return bool(asked)

    before = signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    try:
        yield within
    finally:
        signal.signal(signal.SIGTERM, before)
