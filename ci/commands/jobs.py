"""What the verbs of `ridgeline` do, each from its options to its exit code."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
from rich.console import Console

from ci import doctor
from ci.commands.run import err_console, out_console, scratch, with_rounds
from ci.git import push
from ci.git.command import GitError as TreeError
from ci.git.repository import LocalCheckout as Tree
from ci.git.repository import Repository
from ci.github import comment as github
from ci.github.comment import GitHub, GitHubError, post_report
from ci.harness import HARNESS, INTERRUPTED, USAGE, MeasureError, machine_kind, measure
from ci.harness import MeasurePlan as Plan
from ci.isa import check as isa_check
from ci.isa import text as isa_text
from ci.judging import live as comparing
from ci.judging import policy
from ci.judging import recorded as gate
from ci.judging.judge import EXIT_CODES, judge, to_json
from ci.records import store as records
from ci.report import build as assemble
from ci.report import jsonout, markdown, terminal
from ci.report.model import Report
from ci.stats.types import Judgement, Verdict
from ci.trials import replay
from ci.trials.file import read_trials

WORST = (Verdict.BROKEN, Verdict.SLOWER, Verdict.YARDSTICK_CHANGED, Verdict.CANNOT_TELL, Verdict.FASTER, Verdict.SAME)

# ---- measuring ---------------------------------------------------------------------------------------------------


def record(files: Sequence[Path], results: Path, *, as_json: bool, dry_run: bool, push_to: str | None) -> int:
    """Record trial files; 0 if every trial is in, 3 if something was left out."""
    done = records.record(files, results, dry_run=dry_run)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "added": done.added,
                    "known": done.known,
                    "paths": [str(p) for p in done.paths],
                    "problems": [dataclasses.asdict(p) for p in done.problems],
                },
                indent=1,
            )
        )
    else:
        print_recorded(done, dry_run)
    if push_to and not dry_run:
        click.echo(push.pushed(results, push_to, "Record measurements"))
    return USAGE if done.problems else 0


def ab(
    base: str | None,
    head: str | None,
    plan: Plan,
    policy_file: Path | None,
    *,
    out: Path | None,
    results: Path,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Compare two commits in lock-step and record both."""
    rules = policy.load(policy_file)
    repository = Repository(Path.cwd())
    trees = _two_trees(repository, base, head)
    file = out or scratch("ab", trees[1])
    plan = with_rounds(plan)
    if dry_run:
        click.echo(f"would compare {trees[1].label} with {trees[0].label} ({plan.tier} tier) into {file}")
        return 0
    outcome = _compared(repository, trees, plan, rules, file, err_console())
    return _finish(outcome, file, trees, results, as_json=as_json)


def check(
    base: str | None, plan: Plan, *, site: Path, report: Path, results: Path, as_json: bool, dry_run: bool
) -> int:
    """The main job: correctness, times and code of HEAD against its base, verdict, report, records, page."""
    console = err_console()
    rules = policy.load(None)
    repository = Repository(Path.cwd())
    if not repository.has_history():
        raise TreeError(f"{repository.root} has no commit yet; commit first, then check")
    head = repository.working_tree()
    found = repository.resolve(base) if base else repository.default_base()
    if dry_run:
        click.echo(
            f"would check {head.label} against {found.short if found else 'nothing (no base in this clone)'}, "
            f"write {report}.md and {report}.json, and build {site}"
        )
        return 0
    plan = with_rounds(plan)
    file = scratch("check", head)
    if found is None:
        outcome = _without_base(head, plan, file, repository.is_shallow(), console)
        trees: tuple[Tree, ...] = (head,)
    else:
        console.print(f"{head.label} against {found.short} ({found.subject})")
        trees = (repository.checkout(found.hash, "base"), head)
        outcome = _compared(repository, trees, plan, rules, file, console)
        if not repository.same_kernels(*trees):
            code_says = isa_check.judged(trees, plan, repository.root, console)
            console.print(isa_text.terminal(code_says))
            outcome = dataclasses.replace(outcome, judgement=isa_check.joined(outcome.judgement, code_says))
    code = _finish(outcome, file, trees, results, as_json=as_json, report=report)
    _build_site(site, results)
    click.echo(f"report: {report}.md\npage:   {site / 'index.html'}", err=as_json)
    return code


def _without_base(head: Tree, plan: Plan, file: Path, shallow: bool, console: Console) -> comparing.Outcome:
    """Measure HEAD alone: there is nothing to compare it with."""
    why = (
        "this clone is shallow and holds no base to compare with; `git fetch --unshallow` brings it"
        if shallow
        else "HEAD is the first commit: there is no base to compare with"
    )
    console.print(f"{why}; measuring {head.label} alone", style="yellow")
    code = measure([head], dataclasses.replace(plan, trials=plan.trials or 3), file, console)
    if code == INTERRUPTED:
        raise comparing.Interrupted(f"interrupted; the finished trials are in {file}")
    lines = tuple(read_trials(file)[0]) if file.exists() else ()
    return comparing.Outcome(Judgement(Verdict.CANNOT_TELL, why), lines)


# ---- judging files -----------------------------------------------------------------------------------------------


def judge_file(file: Path, policy_file: Path | None, *, as_json: bool) -> int:
    """`ab --replay`: judge recorded trials by the same code as live ones."""
    judgement = judge(replay.read(file), policy.load(policy_file))
    lines = read_trials(file)[0] if as_trials(file) else []
    if as_json:
        click.echo(json.dumps(to_json(judgement), indent=1))
    else:
        terminal.show(assemble.report_of(judgement, lines, title="recorded trials"), out_console())
    return EXIT_CODES[judgement.verdict]


def as_trials(file: Path) -> bool:
    """Whether a file holds whole trials (with machine and versions), not only a replay's times."""
    return any(True for _ in read_trials(file)[0][:1])


def judge_records(
    base: str,
    head: str,
    machine: str | None,
    policy_file: Path | None,
    *,
    report: Path | None,
    results: Path,
    as_json: bool,
) -> int:
    """`gate`: one report per machine and environment that recorded both; the worst verdict is the exit code."""
    repository = Repository(Path.cwd())
    first, second = repository.resolve(base), repository.resolve(head)
    rules = policy.load(policy_file)
    judged = gate.gate(results, first.hash, second.hash, rules, machine)
    trees = (Tree("base", repository.root, first), Tree("head", repository.root, second))
    reports = [
        assemble.report_of(
            j.judgement,
            j.lines,
            trees,
            title=f"recorded commits on {j.machine} ({j.env})" + ("" if j.paired else ", recorded apart"),
        )
        for j in judged
    ]
    if as_json:
        click.echo(
            json.dumps(
                [{"machine": j.machine, "env": j.env, "paired": j.paired, **to_json(j.judgement)} for j in judged],
                indent=1,
            )
        )
    else:
        for one in reports:
            terminal.show(one, out_console())
    worst = min(reports, key=lambda r: WORST.index(r.verdict))
    if report:
        _write_report(worst, report)
    return EXIT_CODES[worst.verdict]


def render(file: Path, style: str, post: str | None, topic: str | None, links: Mapping[str, str], dry_run: bool) -> int:
    """`report`: render a report file, or put it on the pull request whose head is `post`."""
    if post:
        done = post_report(file, post, _github(), links, topic or "", dry_run=dry_run)
        click.echo(
            f"{done.action}"
            + (f" on pull request #{done.pull_request}" if done.pull_request else ": no open pull request")
        )
        return 0
    report = jsonout.read(file)
    if style == "markdown":
        click.echo(markdown.render(report), nl=False)
    elif style == "json":
        click.echo(jsonout.dumps(report), nl=False)
    else:
        terminal.show(report, out_console())
    return EXIT_CODES[report.verdict]


# ---- showing -----------------------------------------------------------------------------------------------------


def examine(as_json: bool, results: Path) -> int:
    """`doctor`: 0 unless something is broken."""
    diagnosis = doctor.diagnose(Path.cwd(), results)
    if as_json:
        click.echo(json.dumps(diagnosis.document(), indent=1))
    else:
        doctor.show(diagnosis, out_console())
    return USAGE if any(finding.level == "error" for finding in diagnosis.findings) else 0


def build_site(out: Path, results: Path, *, repo_url: str | None, serve: int | None, dry_run: bool) -> int:
    """`site`: build, and serve on request."""
    if dry_run:
        click.echo(f"would build {out} from {results}")
        return 0
    _build_site(out, results, repo_url)
    click.echo(out / "index.html")
    if serve is not None:
        click.echo(f"http://127.0.0.1:{serve}/ until Ctrl-C", err=True)
        subprocess.run(
            [sys.executable, "-m", "http.server", str(serve), "--bind", "127.0.0.1", "--directory", str(out)],
            check=False,
        )
    return 0


def _build_site(out: Path, results: Path, repo_url: str | None = None) -> None:
    argv = [sys.executable, "-m", "dashboards", "--results", str(results.resolve()), "--out", str(out.resolve())]
    url = repo_url or _repo_url()
    done = subprocess.run(
        [*argv, *(["--repo-url", url] if url else [])],
        cwd=HARNESS,
        text=True,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(HARNESS)},
    )
    if done.stderr.strip():
        click.echo(done.stderr.rstrip(), err=True)
    if done.returncode:
        raise MeasureError(f"the site was not built (exit code {done.returncode}); what was there is as before")


def _repo_url() -> str | None:
    server, name = os.environ.get("GITHUB_SERVER_URL"), os.environ.get("GITHUB_REPOSITORY")
    return f"{server}/{name}" if server and name else None


# ---- parts -------------------------------------------------------------------------------------------------------


def _finish(
    outcome: comparing.Outcome,
    file: Path,
    trees: Sequence[Tree],
    results: Path,
    *,
    as_json: bool,
    report: Path | None = None,
) -> int:
    """Record what belongs to commits, print the report, write it; the exit code of the verdict."""
    made = assemble.report_of(outcome.judgement, outcome.lines, trees)
    if as_json:
        click.echo(json.dumps(to_json(outcome.judgement), indent=1))
    else:
        terminal.show(made, out_console())
    if report:
        _write_report(made, report)
    if outcome.lines and not any(tree.dirty for tree in trees):
        print_recorded(records.record([file], results), to_stderr=as_json)
    elif outcome.lines:
        click.echo("not recorded: the tree has uncommitted changes", err=True)
    return EXIT_CODES[outcome.judgement.verdict]


def _write_report(report: Report, stem: Path) -> None:
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".md").write_text(markdown.render(report), encoding="utf-8")
    stem.with_suffix(".json").write_text(jsonout.dumps(report), encoding="utf-8")


def print_recorded(done: records.Recorded, dry_run: bool = False, to_stderr: bool = False) -> None:
    verb = "would record" if dry_run else "recorded"
    click.echo(
        f"{verb} {done.added} new trials ({done.known} known already) in "
        f"{', '.join(str(path) for path in done.paths) or 'no file'}",
        err=to_stderr,
    )
    for problem in done.problems:
        click.echo(f"left out: {problem}", err=True)


def _github() -> GitHub:
    missing = [name for name in ("GITHUB_REPOSITORY", "GITHUB_TOKEN") if not os.environ.get(name)]
    if missing:
        raise GitHubError(f"{' and '.join(missing)} not set; a workflow's step gives them through `env:`")
    api = os.environ.get("GITHUB_API_URL", github.API)
    return GitHub(os.environ["GITHUB_REPOSITORY"], os.environ["GITHUB_TOKEN"], api)


def _two_trees(repository: Repository, base: str | None, head: str | None) -> tuple[Tree, Tree]:
    if base is None:
        found = repository.default_base()
        if found is None:
            raise TreeError(
                "there is no base to compare with: HEAD is the first commit of this clone; name one: "
                "ridgeline ab BASE"
                + (" (the clone is shallow: `git fetch --unshallow`)" if repository.is_shallow() else "")
            )
        base = found.hash
    first = repository.checkout(base, "base")
    return first, repository.checkout(head, "head") if head else repository.working_tree()


def _compared(
    repository: Repository, trees: tuple[Tree, Tree], plan: Plan, rules: policy.Policy, file: Path, console: Console
) -> comparing.Outcome:
    """Trials in lock-step, or none where the kernels are the same files and run in the same Python."""
    if not plan.pythons and not plan.knobs and repository.same_kernels(*trees):
        return comparing.identical(trees, plan, rules, file, console)
    return comparing.compare(trees, plan, rules, machine_kind(), file, console)
