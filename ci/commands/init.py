"""`ridgeline init`: set Ridgeline up in the repository around this folder: settings, asv's file, workflows, an example.

A file that is there is never written again, whatever it holds; .gitignore gets the lines that it lacks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

import click
import jinja2

from ci import origin
from ci.git.command import git_or_none
from ci.git.repository import Repository
from ci.options import DRY_RUN, PASS, Given, Parsed, option, verb
from ci.whole_files import replace
from kernels import project

TEMPLATES = Path(__file__).parents[1] / "newcomer/templates"

IGNORED = ("__pycache__/", "/.ridgeline/", "/.asv/", "/site/", "/results*/**/*.lock", "/results*/.cache/")
"""What commands write and nobody commits: compiled modules, checkouts, trials, asv's work, the built site, locks and
caches of records."""

ACTION = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100})@(?P<commit>[0-9a-f]{40})")
WORKFLOWS = ".github/workflows"
CALLS = ("ridgeline.yml", "ridgeline_comment.yml", "ridgeline_gpu.yml", "ridgeline_nightly.yml")
"""What is written there: each is a call of a workflow of ours, pinned by its full commit hash."""

SOURCE = re.compile(
    r"git\+(?:https://|ssh://git@|git@)github\.com[/:](?P<name>[^/]+/[^/]+?)(?:\.git)?/?@(?P<commit>[0-9a-f]{40})"
)
"""A package that pip took from GitHub (ci.origin)."""


class InitError(Exception):
    """A project cannot be set up; the text names the value, what is allowed and the next step."""


def asked_action(text: str | None) -> str:
    """Whose workflows are called: as asked, else where this Ridgeline was installed from; "" where nobody knows.

    Raises InitError.
    """
    if text is None:
        match = SOURCE.fullmatch(origin())
        action = f"{match['name']}@{match['commit']}" if match else ""
        return action if ACTION.fullmatch(action) else ""
    if not ACTION.fullmatch(text):
        raise InitError(
            f"--action {text!r} is not OWNER/NAME@COMMIT with all 40 digits of a commit; "
            "`git ls-remote URL HEAD` prints those of Ridgeline's repository"
        )
    return text


def planned(root: Path, branch: str, package: str, action: str) -> dict[str, str]:
    """Every file of the set-up by its path from the root, settings and machines first.

    package: of the example, where no settings name one.  action: "OWNER/NAME@COMMIT" of Ridgeline's repository, ""
    where it is not known: then no workflow is written.  Raises project.ProjectError where the settings that are there
    cannot be used.
    """
    now = project.around(root)
    package = now.kernels[0] if now.file else package
    folder, results = package.replace(".", "/"), now.results.relative_to(now.root).as_posix()
    runners = now.runners.relative_to(now.root).as_posix() if now.runners else f"{folder}/runners.toml"
    name, _, commit = action.partition("@")
    values = {"package": package, "folder": folder, "project": root.name, "branch": branch}
    values |= {"results": results, "runners": runners, "commit": commit or "COMMIT"}
    values |= {"workflows": f"{name or 'OWNER/NAME'}/.github/workflows", "pin": f"{commit} # Ridgeline {_version()}"}
    templates = {now.file.name if now.file else "ridgeline.toml": "ridgeline.toml", runners: "runners.toml"}
    templates |= {"asv.conf.json": "asv.conf.json"}
    templates |= {f"{WORKFLOWS}/{file}": file for file in CALLS if action or (root / WORKFLOWS / file).exists()}
    files = {path: _rendered(template, **values) for path, template in templates.items()}
    parts = folder.split("/")
    files |= {"/".join((*parts[:depth], "__init__.py")): "" for depth in range(1, len(parts) + 1)}
    return files | {f"{folder}/rms_norm.py": _rendered("example.py")}


def lacking(root: Path) -> list[str]:
    """The lines that .gitignore lacks."""
    file = root / ".gitignore"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [line for line in IGNORED if line not in lines]


def write(root: Path, files: Mapping[str, str], ignored: Sequence[str]) -> None:
    """Write what is not there.  Raises WriteError."""
    for path, text in files.items():
        if not (root / path).exists():
            replace(root / path, text)
    if ignored:
        file = root / ".gitignore"
        before = file.read_text(encoding="utf-8") if file.is_file() else ""
        gap = "" if not before or before.endswith("\n") else "\n"
        replace(file, before + gap + "".join(f"{line}\n" for line in ignored))


def _version() -> str:
    try:
        return metadata.version("ridgeline")
    except metadata.PackageNotFoundError:
        return "of an unknown version"


def _rendered(name: str, **values: str) -> str:
    loader = jinja2.FileSystemLoader(TEMPLATES)
    made = jinja2.Environment(loader=loader, keep_trailing_newline=True, undefined=jinja2.StrictUndefined)
    return made.get_template(f"{name}.j2").render(**values)


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
    names = (
        git_or_none(root, "symbolic-ref", "--quiet", "--short", ref) for ref in ("refs/remotes/origin/HEAD", "HEAD")
    )
    branch = next((name.removeprefix("origin/") for name in names if name), "main")
    files, ignored = planned(root, branch, given.package, asked_action(given.action)), lacking(root)
    new, named = [path for path in files if not (root / path).exists()], project.around(root)
    if not dry_run:
        write(root, files, ignored)
    would = "would be " if dry_run else ""
    for path in files:
        click.echo(f"{path}: {f'{would}written' if path in new else 'is there, left as it is'}")
    click.echo(f".gitignore: {would}given {' '.join(ignored)}" if ignored else ".gitignore: has all lines")
    if named.file and not named.runners:
        runners = list(files)[1]
        click.echo(
            f'{named.file.name} names no machines: add runners = "{runners}", or GPU and nightly use Ridgeline\'s own'
        )
    if f"{WORKFLOWS}/{CALLS[0]}" not in files:
        click.echo("no workflows: which Ridgeline should they run?  --action OWNER/NAME@COMMIT names its repository")
    if not dry_run:
        if paths := new + [".gitignore"] * bool(ignored):
            click.echo(f"\nCommit it:\n  git add {' '.join(paths)}\n  git commit -m 'Measure our kernels'")
        click.echo(NEXT)
    return PASS
