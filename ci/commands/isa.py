"""`ridgeline isa`: what the compiler emits, compared over commits, over versions of Triton, or over the history."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from ci.git.command import GitError
from ci.git.push import pushed
from ci.git.repository import LocalCheckout, Repository
from ci.harness import HARNESS
from ci.history import exact
from ci.isa import series, versions
from ci.isa import text as isa_text
from ci.isa.compiled import CompiledTree, CompileError, TreeCompiler, Wanted, parse
from ci.isa.judge import CodeVerdict, IsaJudgement, as_json, compare
from ci.isa.rules import load_policy
from ci.isa.text import side_by_side
from ci.options import (
    CASES,
    DRY_RUN,
    JSON,
    POLICY,
    Finite,
    NewFile,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    project_folder,
    several,
)
from ci.report.words import plain, plural
from ci.whole_files import replace

EXAMPLES = """\b
Examples:
  ridgeline isa                                  the code of the working tree
  ridgeline isa main my-branch --show            what changed, judged
  ridgeline isa --triton 3.7.1,3.8.0 --arch gfx942
  ridgeline isa --range v1.0..HEAD               record the history (..HEAD: all of it); goes on where it stopped
  ridgeline isa --history --kernel gemm          what changed in it, commit by commit
  asv --config asv.isa.json compare -f 1 A B     the same counts by asv
"""


@dataclasses.dataclass(frozen=True)
class IsaOptions:
    """What the command line asks for, see the help of each option."""

    base: str | None
    head: str | None
    arches: tuple[str, ...]
    tier: str
    kernels: tuple[str, ...]
    cases: tuple[str, ...]
    backends: tuple[str, ...]
    timeout_s: float | None
    memory_mb: int | None
    show: bool
    explain: bool
    versions: str | None
    span: str | None
    newest: int | None
    push_to: str | None
    every: bool
    again: bool
    history: bool
    page: Path | None
    markdown: Path | None
    policy_file: Path | None
    results: Path
    as_json: bool
    dry_run: bool

    def check(self) -> None:
        """Raise click.UsageError for options that do not go together, or for files that cannot be written."""
        if sum(map(bool, (self.base, self.versions, self.span, self.history))) > 1:
            raise click.UsageError("BASE HEAD, --triton, --range and --history exclude each other; give one of them")
        if not self.span and (self.newest or self.push_to or self.every or self.again):
            options = "--newest, --push, --every and --again"
            raise click.UsageError(f"{options} belong to --range; give for instance --range ..HEAD")
        for file in filter(None, (self.page, self.markdown)):
            folder = file.absolute().parent
            if not os.access(folder, os.W_OK):
                raise click.UsageError(f"{file} cannot be written: {folder} is not a folder that you can write to")

    @property
    def wanted(self) -> Wanted:
        """What to compile."""
        chosen = Wanted(self.arches, self.tier, self.kernels, self.cases, self.backends)
        return dataclasses.replace(chosen, timeout_s=self.timeout_s, memory_mb=self.memory_mb)

    @property
    def asked(self) -> series.Asked:
        """What a recorded commit says of how it was compiled."""
        chosen = (self.arches, self.tier, self.kernels, self.cases, self.backends)
        return series.Asked(*chosen, triton=versions.installed())


@click.command(epilog=EXAMPLES)
@click.argument("base", required=False)
@click.argument("head", required=False)
@several("--arch ARCH -> arches", "gfx942, gfx950, sm_90 (repeatable; default: AMD).")
@CASES
@POLICY
@JSON
@DRY_RUN
@option("--timeout S -> timeout_s", "Time of one compilation.", Finite(min=0.1))
@option("--memory MB -> memory_mb", "Memory of one compilation.", click.IntRange(min=100))
@flag("--show", "Show the changed loop of both sides next to each other.")
@flag("--explain", "What bounds each kernel statically, as Markdown.")
@option("--triton V,V,... -> versions", "The same kernels under these versions of Triton.")
@option("--range A..B -> span", "Record the commits after A up to B that touch kernels.")
@option("--newest N", "With --range: only the newest N of them.", click.IntRange(min=1))
@option("--push BRANCH -> push_to", "With --range: commit the records and push them to it.")
@flag("--every", "With --range: also commits that touch no kernels.")
@flag("--again", "With --range: also commits that are recorded already.")
@flag("--history", "What changed from one recorded commit to the next.")
@option("--page", "With --triton: also write an HTML page.", NewFile())
@option("--markdown", "With BASE: also write the comparison as Markdown.", NewFile())
@project_folder("--results", "code", "results_isa", "The recorded series.")
def isa(**options: Any) -> int:
    """Compile for MI300X, MI355X and H200 without a GPU: metrics, differences, verdict.

    With BASE, compare it with HEAD (default: the working tree).  Exit codes: 0 the same code, 1 regression, 2 no
    verdict: other code that no rule calls worse, or nothing to compare; 3 usage.
    """
    asked = IsaOptions(**options)
    asked.check()
    return IsaJob(asked).run()


class IsaJob:
    """One call of the command: where it runs, what it compiles, how it prints."""

    def __init__(self, options: IsaOptions) -> None:
        self.options = options
        self.console = err_console()
        self.root = _root()
        self.cache = self.root / ".ridgeline" / "isa"
        self.compiler = TreeCompiler(self.cache, self.console)

    def run(self) -> int:
        """Do what was asked for; returns the exit code."""
        if self.options.versions:
            return self.compare_versions(self.options.versions)
        if self.options.span:
            return self.record(self.options.span)
        if self.options.history:
            return self.show_history()
        return self.compare(self.options.base) if self.options.base else self.describe()

    def describe(self) -> int:
        """The working tree: its metrics, or (--explain) what bounds each kernel."""
        if self._dry(f"compile {self.root}"):
            return 0
        if self.options.explain:
            click.echo(self.compiler.explain(self.root, self.options.wanted, self.options.as_json), nl=False)
            return 0
        text = self.compiler.result(self.root, self.options.wanted, "working tree")
        tree = parse(text, "the result of compiling the working tree")
        if self.options.as_json:
            click.echo(text, nl=False)
        else:
            _print(isa_text.listing(tree))
        if not tree.entries:
            self._tell(f"{self.root} declares nothing that can be compiled ahead: no backend here has an isa()")
        return 0 if any(entry.code for entry in tree.entries) else 2

    def compare(self, base: str) -> int:
        """Two commits, or a commit and the working tree."""
        head, policy = self.options.head, load_policy(self.options.policy_file)
        repository = Repository(self.root)
        if self._dry(f"compile {base} and {head or 'the working tree'}, and compare them"):
            return 0
        old = repository.checkout(base, "base")
        new = repository.checkout(head, "head") if head else repository.working_tree()
        before = self._lenient(old.path, f"base {old.label}")
        after = self._lenient(new.path, f"head {new.label}", lenient=bool(before.entries))
        judgement = compare(before, after, policy)
        if self.options.markdown:
            replace(self.options.markdown, isa_text.markdown(judgement))
        if self.options.as_json:
            print_json(as_json(judgement) | {"base": _named(old), "head": _named(new)})
        else:
            _print(isa_text.terminal(judgement))
            if self.options.show:
                click.echo(shown(judgement, self.cache, out_console().width))
        return judgement.exit_code

    def compare_versions(self, asked: str) -> int:
        """The working tree under several versions of Triton; one that cannot be installed is named and left out."""
        policy, names = load_policy(self.options.policy_file), versions.parse_versions(asked)
        folder = self.root / ".ridgeline" / "triton"
        if self._dry(f"install Triton {', '.join(names)} under {folder} and compile"):
            return 0
        trees: dict[str, CompiledTree] = {}
        missing: dict[str, str] = {}
        for name in names:
            try:
                wanted = dataclasses.replace(self.options.wanted, packages=versions.provide(name, folder))
                trees[name] = self.compiler.compile(self.root, wanted, f"Triton {name}")
            except (versions.InstallError, CompileError) as error:
                missing[name] = str(error)
        judged = versions.judge(trees, missing, policy)
        if self.options.page:
            replace(self.options.page, versions.page(judged))
        if self.options.as_json:
            print_json(versions.as_json(judged))
        else:
            console = out_console()
            console.print(versions.table(judged))
            _lines(console, "! ", versions.sentences(judged), "bold red")
            _lines(console, "Warning: ", versions.warnings(judged), "yellow")
        return judged.exit_code

    def record(self, span: str) -> int:
        """Record every commit of a range; one that cannot be compiled is reported, and the others go on."""
        results, repository = self.options.results, Repository(self.root)
        commits = series.commits_of(repository, span, self.options.every)[-(self.options.newest or 0) :]
        if self._dry(f"compile {plural(len(commits), 'commit')} and record their series under {results}"):
            return 0
        recorder = series.Backfill(repository, results, self.options.asked, self._lenient, self._tell)
        filled = dataclasses.replace(recorder, again=self.options.again).fill(commits)
        if self.options.as_json:
            recorded = [str(path) for path in filled.recorded]
            print_json({"recorded": recorded, "known": filled.known, "problems": filled.problems})
        else:
            for problem in filled.problems:
                self._tell(f"Warning: {problem}")
            counts = f"{len(filled.known)} known already, {plural(len(filled.problems), 'problem')}."
            click.echo(f"{plural(len(filled.recorded), 'commit')} recorded in {self.options.results}, {counts}")
        if self.options.push_to and (filled.recorded or filled.known):
            self._tell(pushed(results, self.options.push_to, "Record machine code"))
        return filled.exit_code

    def show_history(self) -> int:
        """What changed from one recorded commit to the next."""
        results = self.options.results
        commits = exact.read(results, series.chosen(self.options.wanted), self.root)
        if not commits:
            raise click.UsageError(f"{results} holds no recorded code; `ridgeline isa --range ..HEAD` records it")
        if self.options.as_json:
            print_json([dataclasses.asdict(one) for one in commits])
        else:
            _print(series.terminal(commits, _subjects(self.root)))
        return 0

    def _lenient(self, tree: Path, what: str, lenient: bool = True) -> CompiledTree:
        """A source tree, compiled; a kernel, case or backend that it does not have is not an error."""
        return self.compiler.compile(tree, dataclasses.replace(self.options.wanted, lenient=lenient), what)

    def _tell(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _dry(self, what: str) -> bool:
        if self.options.dry_run:
            click.echo(f"Would {what}.")
        return self.options.dry_run


def _subjects(root: Path) -> Callable[[str], str]:
    """Commit -> the first line of its message, "" where this clone does not have it."""

    def subject(commit: str) -> str:
        with contextlib.suppress(GitError):
            return plain(Repository(root).resolve(commit).subject)
        return ""

    return subject


def shown(judgement: IsaJudgement, cache: Path, width: int) -> str:
    """The changed loop of every configuration that is worse (or, without such, changed), from the kept code texts."""
    blocks = []
    for difference in judgement.of(CodeVerdict.SLOWER) or judgement.of(CodeVerdict.CHANGED):
        assert difference.base is not None
        assert difference.head is not None
        base, head = ((cache / entry.emitted.asm).read_text() for entry in (difference.base, difference.head))
        blocks.append(f"{difference.name} on {difference.arch}\n{side_by_side(base, head, width)}")
    return "\n".join(blocks)


def _lines(console: Console, mark: str, sentences: Sequence[str], style: str) -> None:
    for sentence in sentences:
        console.print(mark + sentence, style=style, markup=False, highlight=False, soft_wrap=True)


def _print(text: Text) -> None:
    out_console().print(text, soft_wrap=True, end="")


def _named(tree: LocalCheckout) -> dict[str, str | bool | None]:
    return {"commit": tree.commit.hash if tree.commit else None, "dirty": tree.dirty}


def _root() -> Path:
    """The project around this folder: its git root, or the folder itself if there is no git or no repository."""
    try:
        return Repository(Path.cwd()).root
    except GitError:
        return Path.cwd() if (Path.cwd() / "kernels").is_dir() else HARNESS
