"""`ridgeline init`: set Ridgeline up in the repository around this folder: settings, asv's file, workflows, an example.

A file that is there is never written again, whatever it holds; .gitignore gets the lines that it lacks.
"""

from __future__ import annotations

import dataclasses
import re
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path, PurePosixPath

import click
import jinja2

from ci import origin
from ci.git.command import git_or_none
from ci.git.repository import Repository
from ci.harness import HARNESS
from ci.options import DRY_RUN, PASS, Given, Parsed, option, verb
from ci.whole_files import replace
from kernels import project

TEMPLATES = Path(__file__).parents[1] / "newcomer/templates"

IGNORED = ("__pycache__/", "/.ridgeline/", "/.asv/", "/site/", "/results*/**/*.lock", "/results*/.cache/")
"""What commands write and nobody commits: compiled modules, checkouts, trials, asv's work, the built site, locks and
caches of records."""

ACTION = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100})@(?P<commit>[0-9a-f]{40})")
WORKFLOWS = ("ridgeline.yml", "ridgeline_comment.yml", "ridgeline_gpu.yml", "ridgeline_nightly.yml")
"""What is written below .github/workflows: each is a call of a workflow of ours, pinned by its full commit hash."""

SOURCE = re.compile(
    r"git\+(?:https://|ssh://git@|git@)github\.com[/:](?P<name>[^/]+/[^/]+?)(?:\.git)?/?@(?P<commit>[0-9a-f]{40})"
)
"""A package that pip took from GitHub (ci.origin)."""


class InitError(Exception):
    """A project cannot be set up; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class SetUp:
    """A project to be: folder, name, main branch, package of the example, and whose workflows it calls.

    action: "OWNER/NAME@COMMIT" of Ridgeline's repository, "" where it is not known: then no workflow is written.
    """

    root: Path
    name: str
    branch: str
    package: str
    action: str = ""

    @property
    def folder(self) -> str:
        """The package's folder, from the root."""
        return self.package.replace(".", "/")


@dataclasses.dataclass(frozen=True)
class NewText:
    """A file of a project: its path from the root, its text, and whether it is there already."""

    path: PurePosixPath
    text: str
    there: bool


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


def planned(wanted: SetUp) -> tuple[NewText, ...]:
    """Every file of the set-up.  Raises project.ProjectError where the settings that are there cannot be used."""
    project_now = project.around(wanted.root)
    known = project_now.file is not None and project_now.root == wanted.root.resolve()
    package = project_now.kernels[0] if known else wanted.package
    wanted = dataclasses.replace(wanted, package=package)
    results = project_now.results.relative_to(project_now.root).as_posix() if known else "results"
    runners = ""
    if known and project_now.runners:
        runners = project_now.runners.relative_to(project_now.root).as_posix()
    settings = project_now.file.name if known and project_now.file else "ridgeline.toml"
    return tuple(_files(wanted, results, runners or f"{wanted.folder}/runners.toml", settings))


def _files(wanted: SetUp, results: str, runners: str, settings: str) -> Iterator[NewText]:
    def new(path: str, text: str) -> NewText:
        return NewText(PurePosixPath(path), text, (wanted.root / path).exists())

    name, _, commit = wanted.action.partition("@")
    values = {"package": wanted.package, "folder": wanted.folder, "project": wanted.name, "branch": wanted.branch}
    values |= {"results": results, "runners": runners, "commit": commit or "COMMIT"}
    values |= {"workflows": f"{name or 'OWNER/NAME'}/.github/workflows", "pin": f"{commit} # Ridgeline {_version()}"}
    yield new(settings, _rendered("ridgeline.toml", **values))
    yield new(runners, _rendered("runners.toml", **values))
    yield new("asv.conf.json", _rendered("asv.conf.json", **values))
    for file in WORKFLOWS:
        workflow = new(f".github/workflows/{file}", _rendered(file, **values))
        if wanted.action or workflow.there:
            yield workflow
    parts = PurePosixPath(wanted.folder).parts
    for depth in range(1, len(parts) + 1):
        yield new("/".join((*parts[:depth], "__init__.py")), "")
    yield new(f"{wanted.folder}/rms_norm.py", _rendered("example.py"))


def lacking(root: Path) -> tuple[str, ...]:
    """The lines that .gitignore lacks."""
    file = root / ".gitignore"
    there = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return tuple(line for line in IGNORED if line not in there)


def write(root: Path, files: tuple[NewText, ...], ignored: tuple[str, ...]) -> None:
    """Write what is not there.  Raises WriteError."""
    for file_to_be in files:
        if not file_to_be.there:
            replace(root / file_to_be.path, file_to_be.text)
    if ignored:
        file = root / ".gitignore"
        before = file.read_text(encoding="utf-8") if file.is_file() else ""
        gap = "" if not before or before.endswith("\n") else "\n"
        replace(file, before + gap + "".join(f"{line}\n" for line in ignored))


def _version() -> str:
    try:
        return metadata.version("ridgeline")
    except metadata.PackageNotFoundError:
        said = subprocess.run(["git", "-C", str(HARNESS), "describe", "--always"], capture_output=True, text=True)
        return said.stdout.strip() or "of an unknown version"


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
    asked = (
        git_or_none(root, "symbolic-ref", "--quiet", "--short", ref) for ref in ("refs/remotes/origin/HEAD", "HEAD")
    )
    branch = next((name.removeprefix("origin/") for name in asked if name), "main")
    wanted = SetUp(root, root.name, branch, given.package, asked_action(given.action))
    files, ignored = planned(wanted), lacking(root)
    if not dry_run:
        write(root, files, ignored)
    would = "would be " if dry_run else ""
    for file in files:
        click.echo(f"{file.path}: {'is there, left as it is' if file.there else f'{would}written'}")
    click.echo(f".gitignore: {would}given {' '.join(ignored)}" if ignored else ".gitignore: has all lines")
    if files[0].there and not project.around(root).runners:
        path = files[1].path
        click.echo(
            f'{files[0].path} names no machines: add runners = "{path}", or GPU and nightly use Ridgeline\'s own'
        )
    if not any(file.path.name == "ridgeline.yml" for file in files):
        click.echo("no workflows: which Ridgeline should they run?  --action OWNER/NAME@COMMIT names its repository")
    if not dry_run:
        paths = [str(file.path) for file in files if not file.there] + [".gitignore"] * bool(ignored)
        if paths:
            click.echo(f"\nCommit it:\n  git add {' '.join(paths)}\n  git commit -m 'Measure our kernels'")
        click.echo(NEXT)
    return PASS
