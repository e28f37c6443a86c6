"""`ridgeline isa`: what the compiler emits, compared over commits, over versions of Triton, or over the history."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ci.git.command import GitError as TreeError
from ci.git.push import PushError, pushed
from ci.git.repository import LocalCheckout as Tree
from ci.git.repository import Repository
from ci.isa import history as isa_history
from ci.isa import series as isa_series
from ci.isa import text as isa_text
from ci.isa import versions as isa_triton
from ci.isa.code import side_by_side
from ci.isa.compile import HARNESS, CompileError, Wanted, compile_tree, explain_tree
from ci.isa.judge import IsaError, IsaJudgement, Verdict, as_json, compare
from ci.isa.rules import load_policy
from ci.judging.policy import PolicyError

EXPECTED = (CompileError, IsaError, PolicyError, PushError, TreeError, isa_triton.InstallError, ValueError)
"""Errors that are the user's to mend: told in one sentence, exit code 3."""

EXAMPLES = """\b
Examples:
  ridgeline isa                                  the code of the working tree
  ridgeline isa main my-branch --show            what changed, judged
  ridgeline isa --triton 3.7.1,3.8.0 --arch gfx942
  ridgeline isa --range v1.0..HEAD               record the history (..HEAD: all of it); goes on where it broke off
  ridgeline isa --history --kernel gemm          what changed in it, commit by commit
  asv --config asv.isa.json compare -f 1 A B     the same counts by asv
"""


class Problem(click.ClickException):
    """Usage or infrastructure: exit code 3."""

    exit_code = 3


@click.command(epilog=EXAMPLES)
@click.argument("base", required=False)
@click.argument("head", required=False)
@click.option("--arch", "arches", multiple=True, metavar="ARCH", help="gfx942, gfx950, sm_90 (many; default: AMD).")
@click.option(
    "--tier", type=click.Choice(["pr", "nightly", "sweep"]), default="pr", show_default=True, help="Which cases."
)
@click.option("--kernel", "kernels", multiple=True, metavar="NAME", help="Only this kernel (repeatable).")
@click.option("--case", "cases", multiple=True, metavar="GLOB", help="Only cases that match (repeatable).")
@click.option("--backend", "backends", multiple=True, metavar="NAME", help="Only this backend (repeatable).")
@click.option("--timeout", "timeout_s", type=click.FloatRange(min=0.1), metavar="S", help="For one compilation.")
@click.option("--memory", "memory_mb", type=click.IntRange(min=100), metavar="MB", help="For one compilation.")
@click.option("--show", is_flag=True, help="Show the changed loop of both sides next to each other.")
@click.option("--explain", is_flag=True, help="What bounds each kernel statically, as Markdown.")
@click.option("--triton", "versions", metavar="V,V,...", help="The same kernels under these versions of Triton.")
@click.option(
    "--range", "span", metavar="A..B", help="Record the series of the commits after A up to B that touch kernels."
)
@click.option("--newest", type=click.IntRange(min=1), metavar="N", help="With --range: only its newest N such commits.")
@click.option("--push", "push_to", metavar="BRANCH", help="With --range: commit the records and push them to it.")
@click.option("--every", is_flag=True, help="With --range: also commits that touch no kernels.")
@click.option("--again", is_flag=True, help="With --range: also commits that are recorded already.")
@click.option("--history", is_flag=True, help="What changed from one recorded commit to the next.")
@click.option("--page", type=click.Path(path_type=Path, dir_okay=False), help="With --triton: also write an HTML page.")
@click.option("--markdown", type=click.Path(path_type=Path, dir_okay=False), help="Also write it as Markdown.")
@click.option("--policy", "policy_file", type=click.Path(path_type=Path), help="Thresholds (default: ci/policy.toml).")
@click.option(
    "--results",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("results_isa"),
    show_default=True,
    help="Folder of the recorded series (asv.isa.json).",
)
@click.option("--json", "as_json_", is_flag=True, help="Print the result as JSON.")
@click.option("--dry-run", is_flag=True, help="Say what would be done and do nothing.")
def isa(
    base: str | None, head: str | None, versions: str | None, span: str | None, history: bool, **options: Any
) -> int:
    """Compile for MI300X, MI355X and H200 without a GPU: metrics, differences, verdict.

    With BASE, compare it with HEAD (default: the working tree).  Exit codes: 0 pass, 1 regression, 2 no verdict,
    3 usage.
    """
    job = Job(options)
    if sum(map(bool, (base, versions, span, history))) > 1:
        raise Problem("BASE HEAD, --triton, --range and --history exclude each other; give one of them")
    if not span and (options["newest"] or options["push_to"] or options["every"] or options["again"]):
        raise Problem("--newest, --push, --every and --again belong to --range; give for instance --range ..HEAD")
    try:
        if versions:
            return job.triton(versions)
        if span:
            return job.backfill(span)
        if history:
            return job.history()
        return job.compare(base, head) if base else job.describe()
    except EXPECTED as error:
        raise Problem(str(error)) from None


class Job:
    """One call of the command: where it runs, what it compiles, how it prints."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        names = ("arches", "tier", "kernels", "cases", "backends", "timeout_s", "memory_mb")
        self.wanted = Wanted(**{name: options[name] for name in names})
        self.console = Console(stderr=True)
        self.root = _root()
        self.cache = self.root / ".ridgeline" / "isa"

    def compiled(self, tree: Path, what: str, packages: Path | None = None, lenient: bool = False) -> dict[str, Any]:
        """The result file of a tree."""
        wanted = dataclasses.replace(self.wanted, packages=packages, lenient=lenient)
        return compile_tree(tree, wanted, self.cache, self.console, what)

    def describe(self) -> int:
        """The working tree: its metrics, or (--explain) what bounds each kernel."""
        if self._dry(f"compile {self.root}"):
            return 0
        if self.options["explain"]:
            click.echo(
                explain_tree(self.root, self.wanted, self.cache, self.options["as_json_"], self.console), nl=False
            )
            return 0
        document = self.compiled(self.root, "working tree")
        if self.options["as_json_"]:
            click.echo(json.dumps(document, indent=1))
        else:
            _print(isa_text.listing(document))
        return 0 if any(entry["status"] == "ok" for entry in document["entries"]) else 2

    def compare(self, base: str | None, head: str | None) -> int:
        """Two commits, or a commit and the working tree."""
        assert base is not None
        repository = Repository(self.root)
        policy = load_policy(self.options["policy_file"])
        if self._dry(f"compile {base} and {head or 'the working tree'}, and compare them"):
            return 0
        trees = [
            repository.checkout(base, "base"),
            repository.checkout(head, "head") if head else repository.working_tree(),
        ]
        before = self.compiled(trees[0].path, f"base {trees[0].label}", lenient=True)
        after = self.compiled(trees[1].path, f"head {trees[1].label}", lenient=bool(before["entries"]))
        judgement = compare(before, after, policy)
        if self.options["markdown"]:
            self.options["markdown"].write_text(isa_text.markdown(judgement), encoding="utf-8")
        if self.options["as_json_"]:
            click.echo(json.dumps(as_json(judgement) | {"base": _named(trees[0]), "head": _named(trees[1])}, indent=1))
        else:
            _print(isa_text.terminal(judgement))
            if self.options["show"]:
                click.echo(shown(judgement, self.cache, Console().width))
        return judgement.exit_code

    def triton(self, asked: str) -> int:
        """The working tree under several versions of Triton; what cannot be installed is told and left out."""
        policy = load_policy(self.options["policy_file"])
        versions = isa_triton.parse_versions(asked)
        if self._dry(f"install Triton {', '.join(versions)} under {self.root / '.ridgeline' / 'triton'} and compile"):
            return 0
        documents: dict[str, dict[str, Any]] = {}
        missing: dict[str, str] = {}
        for version in versions:
            try:
                packages = isa_triton.provide(version, self.root / ".ridgeline" / "triton")
                documents[version] = self.compiled(self.root, f"Triton {version}", packages)
            except (isa_triton.InstallError, CompileError) as error:
                missing[version] = str(error)
        judged = isa_triton.judge(documents, missing, policy)
        if self.options["page"]:
            self.options["page"].write_text(isa_triton.page(judged), encoding="utf-8")
        if self.options["as_json_"]:
            click.echo(json.dumps(isa_triton.as_json(judged), indent=1))
        else:
            _tell_versions(judged)
        return judged.exit_code

    def backfill(self, span: str) -> int:
        """Record every commit of a range; a commit that cannot be compiled is told, and the others go on."""
        repository = Repository(self.root)
        commits = isa_history.commits_of(repository, span, self.options["every"])[-(self.options["newest"] or 0) :]
        if self._dry(f"compile {len(commits)} commits and record their series under {self.options['results']}"):
            return 0
        asked = {
            "arches": list(self.wanted.arches),
            "tier": self.wanted.tier,
            "kernels": list(self.wanted.kernels),
            "cases": list(self.wanted.cases),
            "backends": list(self.wanted.backends),
            "triton": isa_triton.installed(),
            "series": isa_series.YARDSTICK,
        }
        filled = isa_history.backfill(
            repository, commits, self.options["results"], asked, self._of_commit, self._tell, self.options["again"]
        )
        if self.options["as_json_"]:
            click.echo(
                json.dumps(
                    {
                        "recorded": [str(path) for path in filled.recorded],
                        "known": filled.known,
                        "problems": filled.problems,
                    },
                    indent=1,
                )
            )
        else:
            for problem in filled.problems:
                self._tell(f"Warning: {problem}")
            click.echo(
                f"{len(filled.recorded)} commits recorded in {self.options['results']}, {len(filled.known)} "
                f"known already, {len(filled.problems)} problems."
            )
        if self.options["push_to"] and (filled.recorded or filled.known):
            self._tell(pushed(self.options["results"], self.options["push_to"], "Record machine code"))
        return filled.exit_code

    def _of_commit(self, tree: Path, what: str) -> dict[str, Any]:
        return self.compiled(tree, what, lenient=True)

    def history(self) -> int:
        """What changed from one recorded commit to the next."""
        stops = isa_history.read(self.options["results"], isa_history.chosen(self.wanted), self.root)
        if not stops:
            raise Problem(f"{self.options['results']} holds no recorded code; record it: ridgeline isa --range ..HEAD")
        if self.options["as_json_"]:
            click.echo(json.dumps([dataclasses.asdict(stop) for stop in stops], indent=1))
        else:
            _print(isa_history.told(stops, _subjects(self.root)))
        return 0

    def _tell(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _dry(self, what: str) -> bool:
        if self.options["dry_run"]:
            click.echo(f"Would {what}.")
        return bool(self.options["dry_run"])


def _subjects(root: Path) -> Callable[[str], str]:
    """Commit -> the first line of its message, "" where this clone does not have it."""

    def subject(commit: str) -> str:
        with contextlib.suppress(TreeError):
            return Repository(root).resolve(commit).subject
        return ""

    return subject


def shown(judgement: IsaJudgement, cache: Path, width: int) -> str:
    """The changed loop of every configuration that is worse (or, without such, changed), from the kept code texts."""
    found = judgement.of(Verdict.SLOWER) or judgement.of(Verdict.CHANGED)
    blocks = []
    for difference in found:
        assert difference.base is not None
        assert difference.head is not None
        texts = [(cache / str(entry["asm"])).read_text() for entry in (difference.base, difference.head)]
        blocks.append(f"{difference.name} on {difference.arch}\n{side_by_side(texts[0], texts[1], width)}")
    return "\n".join(blocks)


def _tell_versions(judged: isa_triton.Versions) -> None:
    console = Console()
    console.print(isa_triton.table(judged))
    for sentence in isa_triton.sentences(judged):
        console.print(f"! {sentence}", style="bold red", markup=False, highlight=False, soft_wrap=True)
    for warning in isa_triton.warnings(judged):
        console.print(f"Warning: {warning}", style="yellow", markup=False, highlight=False, soft_wrap=True)


def _print(text: Text) -> None:
    Console().print(text, soft_wrap=True, end="")


def _named(tree: Tree) -> dict[str, Any]:
    return {"commit": tree.commit.hash if tree.commit else None, "dirty": tree.dirty}


def _root() -> Path:
    """The project around this folder: its git root, or the folder itself if there is no git or no repository."""
    try:
        return Repository(Path.cwd()).root
    except TreeError:
        return Path.cwd() if (Path.cwd() / "kernels").is_dir() else HARNESS
