"""The `ridgeline` command: each verb is a few lines that call the part that does the work.

Exit codes of judging verbs: 0 pass, 1 regression, 2 no verdict, 3 usage or infrastructure error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from ci.commands import run as measuring
from ci.commands.submit import submit
from ci.harness import MeasurePlan as Plan

PASS, REGRESSION, NO_VERDICT, USAGE = 0, 1, 2, 3


LATER = {"isa": "ci.commands.isa"}
"""Verbs in modules that need more than a node has which only measures."""


class Verbs(click.Group):
    """Usage errors leave with 3: 1 and 2 are verdicts here.  A verb of LATER is imported when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), *LATER])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in LATER:
            found: click.Command = getattr(importlib.import_module(LATER[cmd_name]), cmd_name)
            return found
        return super().get_command(ctx, cmd_name)

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        try:
            sys.exit(super().main(*args, **kwargs) or PASS)
        except click.exceptions.Abort:
            sys.exit(130)
        except click.ClickException as error:
            error.show()
            sys.exit(USAGE)
        except Exception as error:
            if not (isinstance(error, OSError) or type(error).__module__.startswith("ci.")):
                raise  # what is not an error of our own making is a bug and shows its traceback
            click.echo(f"Error: {error}", err=True)
            sys.exit(USAGE)


def _example(text: str) -> str:
    return "\b\nExample:\n  " + text


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Run `ridgeline VERB --help` for an example of each.",
)
@click.version_option(package_name="ridgeline")
def main() -> None:
    """Find performance regressions of GPU kernels and collectives: paired, exact, on every commit."""


def _options(*options: Any) -> Callable[[Any], Any]:
    def apply(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return apply


RESULTS = click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results"),
    show_default=True,
    help="Folder of asv records.",
)
JSON = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
DRY_RUN = click.option("--dry-run", is_flag=True, help="Say what would be done and do nothing.")
OUT = click.option("--out", type=click.Path(path_type=Path, dir_okay=False), help="Trial file to append to.")
CHOICE: Callable[[Any], Any] = _options(
    click.option(
        "--tier",
        type=click.Choice(["pr", "nightly", "sweep"]),
        default="pr",
        show_default=True,
        help="Which cases: pr takes minutes, nightly is all.",
    ),
    click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Only this kernel (repeatable)."),
    click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only cases that match (repeatable)."),
    click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend (repeatable)."),
    click.option("--seed", type=int, default=0, show_default=True, help="Seed of the inputs."),
    click.option(
        "--deadline",
        type=click.FloatRange(min=0.1),
        metavar="SECONDS",
        help="A step that takes longer is a hang and is killed.",
    ),
    click.option("--set", "knobs", multiple=True, metavar="KEY=VALUE", help="Override a backend's knob (repeatable)."),
)
WHAT: Callable[[Any], Any] = _options(
    CHOICE,
    click.option("--rounds", type=click.IntRange(1, 10000), help="Rounds in a trial (default: 40; 20 on a CPU)."),
)
SOURCE: Callable[[Any], Any] = _options(
    click.option("--commit", metavar="HASH", help="The commit this tree is (on a node without git)."),
    click.option("--commit-date", type=int, metavar="MS", help="Its date in ms since 1970 UTC, with --commit."),
    click.option("--tree", type=click.Path(path_type=Path, exists=True, file_okay=False), help="This source tree."),
)


def _plan(trials: int | None, **options: Any) -> Plan:
    return measuring.plan(trials=trials, **options)


@main.command(epilog=_example("ridgeline doctor --json"))
@RESULTS
@JSON
def doctor(as_json: bool, results: Path) -> int:
    """What this machine is, what can be measured on it, what is broken and what to do about it."""
    from ci.commands import jobs

    return jobs.examine(as_json, results)


@main.command(
    epilog=_example(
        "ridgeline run --kernel gemm --case '*m16*'\n  "
        "ridgeline run --commit 0123456789abcdef0123456789abcdef01234567 --out trials.jsonl"
    )
)
@WHAT
@click.option("--trials", type=click.IntRange(1, 1000), default=3, show_default=True, help="Fresh-process trials.")
@SOURCE
@OUT
@RESULTS
@DRY_RUN
def run(
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    out: Path | None,
    results: Path,
    dry_run: bool,
    trials: int,
    **what: Any,
) -> int:
    """Measure this commit and record it as asv results; with --out only write the trial file."""
    return measuring.run(
        _plan(trials, **what),
        commit=commit,
        commit_date=commit_date,
        tree=tree,
        out=out,
        results=results,
        dry_run=dry_run,
    )


@main.command(epilog=_example("ridgeline verify --tier nightly --kernel gemm"))
@CHOICE
@SOURCE
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File of checks to append to; what it "
    "knows of the same kernels on this machine is not tried again (default: .ridgeline/checks.jsonl).",
)
@JSON
@DRY_RUN
def verify(
    commit: str | None,
    commit_date: int | None,
    tree: Path | None,
    out: Path | None,
    as_json: bool,
    dry_run: bool,
    **what: Any,
) -> int:
    """Is every backend right in every case on this machine?  Calls each and compares; times nothing."""
    return measuring.verify(
        measuring.plan(**what),
        commit=commit,
        commit_date=commit_date,
        tree=tree,
        out=out,
        as_json=as_json,
        dry_run=dry_run,
    )


@main.command(epilog=_example("ridgeline record trials.jsonl"))
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--push", "push_to", metavar="BRANCH", help="Commit the records and push them to this branch.")
@RESULTS
@JSON
@DRY_RUN
def record(files: tuple[Path, ...], push_to: str | None, results: Path, as_json: bool, dry_run: bool) -> int:
    """Turn trial files, measured anywhere, into asv records and notes; twice is the same as once."""
    from ci.commands import jobs

    return jobs.record(files, results, as_json=as_json, dry_run=dry_run, push_to=push_to)


@main.command(epilog=_example("ridgeline ab main my-branch --kernel gemm\n  ridgeline ab --replay trials.jsonl --json"))
@click.argument("base", required=False)
@click.argument("head", required=False)
@WHAT
@click.option("--trials", type=click.IntRange(1, 1000), help="Most trials to spend (default: the policy's budget).")
@click.option("--replay", type=click.Path(path_type=Path), help="Judge recorded trials; measures nothing.")
@click.option("--env-base", metavar="PYTHON", help="Python of the base (another Triton or ROCm).")
@click.option("--env-head", metavar="PYTHON", help="Python of the head.")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="Thresholds (default: ci/policy.toml).")
@OUT
@RESULTS
@JSON
@DRY_RUN
def ab(
    base: str | None,
    head: str | None,
    trials: int | None,
    replay: Path | None,
    env_base: str | None,
    env_head: str | None,
    policy_file: Path | None,
    out: Path | None,
    results: Path,
    as_json: bool,
    dry_run: bool,
    **what: Any,
) -> int:
    """Compare two commits in lock-step: trials until every case has a verdict or the budget is spent.

    Without HEAD the working tree is compared; without BASE too, it is compared with where it left the main branch.
    An --out file that exists is resumed.
    """
    from ci.commands import jobs

    if replay:
        return jobs.judge_file(replay, policy_file, as_json=as_json)
    pythons = {role: path for role, path in (("base", env_base), ("head", env_head)) if path}
    return jobs.ab(
        base,
        head,
        _plan(trials, pythons=pythons, **what),
        policy_file,
        out=out,
        results=results,
        as_json=as_json,
        dry_run=dry_run,
    )


@main.command(epilog=_example("ridgeline check"))
@WHAT
@click.option("--base", metavar="REV", help="Compare with this (default: where HEAD left the main branch, or HEAD^).")
@click.option("--trials", type=click.IntRange(1, 1000), help="Most trials to spend (default: the policy's budget).")
@click.option("--site", type=click.Path(path_type=Path), default=Path("site"), show_default=True, help="Page to build.")
@click.option(
    "--report",
    type=click.Path(path_type=Path),
    default=Path(".ridgeline/report"),
    show_default=True,
    help="Report to write: REPORT.md for the comment, REPORT.json for machines.",
)
@RESULTS
@JSON
@DRY_RUN
def check(
    base: str | None,
    trials: int | None,
    site: Path,
    report: Path,
    results: Path,
    as_json: bool,
    dry_run: bool,
    **what: Any,
) -> int:
    """The pull-request job: is HEAD still right, is it slower than its base, by how much, on which shapes."""
    from ci.commands import jobs

    return jobs.check(
        base, _plan(trials, **what), site=site, report=report, results=results, as_json=as_json, dry_run=dry_run
    )


@main.command(epilog=_example("ridgeline gate HEAD^ HEAD --machine h200x2-1a2b3c4d"))
@click.argument("base")
@click.argument("head")
@click.option("--machine", metavar="NAME", help="Machine of the records (default: every machine that has both).")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="Thresholds (default: ci/policy.toml).")
@click.option("--report", type=click.Path(path_type=Path), help="Also write REPORT.md and REPORT.json.")
@RESULTS
@JSON
def gate(
    base: str,
    head: str,
    machine: str | None,
    policy_file: Path | None,
    report: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """Judge one recorded commit against another; measures nothing."""
    from ci.commands import jobs

    return jobs.judge_records(base, head, machine, policy_file, report=report, results=results, as_json=as_json)


@main.command(epilog=_example("ridgeline report .ridgeline/report.json --format markdown"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "style",
    type=click.Choice(["terminal", "markdown", "json"]),
    default="terminal",
    show_default=True,
    help="How to render it.",
)
@click.option(
    "--post",
    metavar="SHA",
    help="Put it on the open pull request whose head is this commit (needs GITHUB_TOKEN and GITHUB_REPOSITORY).",
)
@click.option("--topic", metavar="NAME", help="With --post: one comment for each topic, such as a machine.")
@click.option(
    "--link", "links", multiple=True, metavar="LABEL=URL", help="A link to show under the report (repeatable)."
)
@DRY_RUN
def report(file: Path, style: str, post: str | None, topic: str | None, links: tuple[str, ...], dry_run: bool) -> int:
    """Render a report file that `check` or `gate` wrote, or post it as the pull request's comment."""
    from ci.commands import jobs

    return jobs.render(file, style, post, topic, _pairs("--link", links), dry_run)


@main.command(epilog=_example("ridgeline site --out site"))
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("site"), show_default=True, help="Folder to build."
)
@click.option("--repo-url", metavar="URL", help="Where commits link to (default: the repository of the workflow run).")
@click.option(
    "--serve", type=click.IntRange(1, 65535), metavar="PORT", help="Serve it on this machine's PORT until Ctrl-C."
)
@RESULTS
@DRY_RUN
def site(out: Path, repo_url: str | None, serve: int | None, results: Path, dry_run: bool) -> int:
    """Build the dashboard from the records: a folder that works offline."""
    from ci.commands import jobs

    return jobs.build_site(out, results, repo_url=repo_url, serve=serve, dry_run=dry_run)


main.add_command(submit)


def _pairs(option: str, values: tuple[str, ...]) -> dict[str, str]:
    pairs = {}
    for value in values:
        key, equals, rest = value.partition("=")
        if not (key and equals and rest):
            raise click.BadParameter(f"{value!r}: LABEL=VALUE is expected", param_hint=option)
        pairs[key] = rest
    return pairs


if __name__ == "__main__":
    main()
