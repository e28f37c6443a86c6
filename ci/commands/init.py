"""`ridgeline init`: set Ridgeline up in the repository around this folder."""

from __future__ import annotations

from pathlib import Path

import click

from ci import newcomer
from ci.git.command import git_or_none
from ci.git.repository import Repository
from ci.options import DRY_RUN, PASS, Given, Parsed, option, verb
from kernels import project

NEXT = """
Then:
  ridgeline run                # measure this commit and record it in results/
  ridgeline check              # after your next change: still right, slower, by how much?
  ridgeline site --serve 8000  # the dashboard"""


def _package(said: str) -> str:
    """A dotted name that Python can import."""
    if not all(part.isidentifier() for part in said.split(".")):
        raise ValueError(f"{said!r} is not a dotted name of a package, such as perf or mylib.perf")
    return said


@verb("ridgeline init --dry-run\n  ridgeline init --package mylib.perf")
@option(
    "--package",
    "Package of this repository for declarations; the example goes there.",
    Parsed("package", _package),
    default="perf",
)
@option(
    "--action OWNER/NAME@COMMIT",
    "Whose workflows yours call: Ridgeline's repository (default: where pip took this Ridgeline from).",
)
@DRY_RUN
def init(given: Given) -> int:
    """Set Ridgeline up in this repository: settings, machines, asv's file, four workflows, one example.

    The workflows: a check of each pull request on GitHub's machines, its comment, a GPU run that a maintainer starts
    for a commit that he has read, and a nightly.

    A file that is there is left as it is, so running it again changes nothing.
    """
    root, dry_run = Repository(Path.cwd()).root, given.dry_run
    # The main branch: what the remote says, else the one that is checked out.
    asked = (
        git_or_none(root, "symbolic-ref", "--quiet", "--short", ref) for ref in ("refs/remotes/origin/HEAD", "HEAD")
    )
    branch = next((name.removeprefix("origin/") for name in asked if name), "main")
    wanted = newcomer.SetUp(root, root.name, branch, given.package, newcomer.asked_action(given.action))
    planned, ignored = newcomer.planned(wanted), newcomer.lacking(root)
    if not dry_run:
        newcomer.write(root, planned, ignored)
    would = "would be " if dry_run else ""
    for one in planned:
        click.echo(f"{one.path}: {'is there, left as it is' if one.there else f'{would}written'}")
    click.echo(f".gitignore: {would}given {' '.join(ignored)}" if ignored else ".gitignore: has all lines")
    if planned[0].there and not project.around(root).runners:
        path = planned[1].path
        click.echo(
            f'{planned[0].path} names no machines: add runners = "{path}", or GPU and nightly use Ridgeline\'s own'
        )
    if not any(one.path.name == "ridgeline.yml" for one in planned):
        click.echo("no workflows: which Ridgeline should they run?  --action OWNER/NAME@COMMIT names its repository")
    if not dry_run:
        paths = [str(one.path) for one in planned if not one.there] + [".gitignore"] * bool(ignored)
        if paths:
            click.echo(f"\nCommit it:\n  git add {' '.join(paths)}\n  git commit -m 'Measure our kernels'")
        click.echo(NEXT)
    return PASS
