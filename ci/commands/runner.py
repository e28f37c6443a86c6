"""`ridgeline ci runner`: serves GitHub's queue from Slurm, with one short-lived runner for each job."""

from __future__ import annotations

import datetime
import os
import time
from pathlib import Path

import click
from filelock import FileLock, Timeout

from ci.github.client import API, GitHub
from ci.options import DRY_RUN, FILE, FOLDER, PASS, POOLS_FILE, USAGE, Finite, Given, flag, option, verb
from ci.pools import file
from ci.pools.file import Container, Pools
from ci.report.words import plain
from ci.slurm.client import Slurm
from ci.slurm.runner import RunnerError, RunnerService

INTERVAL_S = 30.0
"""Seconds between two rounds: a round is 4 calls and one for each run at work, and GitHub allows 5,000 an hour."""
LONGEST_LINE = 500
"""Characters of one line of the log."""


@verb("ridgeline ci runner --once --dry-run")
@option("--site NAME", "The Slurm site (default: the one with a table [site.NAME.runner]).")
@flag("--once", "Look once, do what follows, and leave.")
@option("--interval SECONDS", "Time between two rounds.", Finite(0.05, 3600), default=INTERVAL_S)
@option("--folder", "A folder that every node sees (default: runner in the site's shared folder).", FOLDER)
@option("--token-file", "GitHub's token, read again in every round (default: the variable GITHUB_TOKEN).", FILE)
@POOLS_FILE
@DRY_RUN
def runner(given: Given) -> int:
    """Serve GitHub's queue from Slurm: one Slurm job, with a runner for one job, for each queued job of ours.

    It holds nothing: killed at any moment, it goes on by looking.  The token needs "administration: write" and
    "actions: read" of the repository.  --dry-run looks once and says what it would do.
    """
    pools = file.load(given.path)
    first = service_now(given, pools)
    if given.dry_run:
        lines, failed = first.do_round(dry_run=True)
        click.echo("\n".join(plain(line, LONGEST_LINE) for line in lines) or "nothing to do")
        return USAGE if failed else PASS
    first.folder.mkdir(parents=True, exist_ok=True)
    first.folder.chmod(0o700)
    offers = first.offers
    lines = [f"serving {', '.join(offer.name for offer in offers)} of {first.settings.repository}"]
    for pool in dict.fromkeys(offer.pool.name for offer in offers if offer.pool.container is Container.NONE):
        lines.append(f"pool {pool} has no container: what its jobs run can read this user's files, the service's too")
    try:
        with FileLock(first.folder / "lock", timeout=0):
            logged = set[str]()
            while True:
                now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
                new, failed = service_now(given, pools).do_round()
                for line in (*lines, *new):
                    if line not in logged:  # what has not changed since the last round is not repeated
                        click.echo(f"{now} {plain(line, LONGEST_LINE)}")  # names in it are other people's words
                logged, lines = set(new), []
                if given.once:
                    return USAGE if failed else PASS
                time.sleep(given.interval)
    except Timeout:
        where = f"another `ridgeline ci runner` uses {first.folder}"
        raise RunnerError(f"{where}; end it, or give another --folder") from None


def service_now(given: Given, pools: Pools) -> RunnerService:
    """The service with the token as it is now.  RunnerError without a runner of the site, or without a token."""
    served = [site for site in pools.sites.values() if site.runner and given.site in (None, site.name)]
    if len(served) != 1 or not served[0].runner:
        names = ", ".join(site.name for site in pools.sites.values() if site.runner) or "none"
        raise RunnerError(f"--site says which site to serve; sites with a table [site.NAME.runner]: {names}")
    if given.token_file and not given.token_file.is_file():
        raise RunnerError(f"--token-file: there is no file {given.token_file}; the guide of pools says how to write it")
    token = given.token_file.read_text("utf-8").strip() if given.token_file else os.environ.get("GITHUB_TOKEN", "")
    if not token:
        raise RunnerError("there is no token; set GITHUB_TOKEN or give --token-file, and keep it out of the command")
    site, settings = served[0], served[0].runner
    folder = given.folder or Path(site.shared or Path.home() / ".ridgeline") / "runner"
    github = GitHub(settings.repository, token, os.environ.get("GITHUB_API_URL") or API)
    return RunnerService(pools, site.name, settings, folder.absolute(), github, Slurm(patience_s=0))
