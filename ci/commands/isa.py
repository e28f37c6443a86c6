"""`ridgeline isa`: what the compiler emits, compared over commits, or recorded for a range of them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import click
from rich.text import Text

from ci.git.command import GitError
from ci.git.repository import Repository
from ci.harness import HARNESS
from ci.isa import series
from ci.isa import text as isa_text
from ci.isa.compiled import TARGETS, CompiledTree, TreeCompiler, Wanted, parse
from ci.isa.judge import CodeVerdict, IsaJudgement, as_json, compare
from ci.isa.rules import load_policy
from ci.isa.text import code_diff
from ci.options import (
    CASES,
    DRY_RUN,
    JSON,
    POLICY,
    Given,
    err_console,
    flag,
    option,
    out_console,
    print_json,
    project_folder,
    several,
    verb,
)
from ci.report.words import plural
from kernels import project

EXAMPLES = """\
ridgeline isa                                  the code of the working tree
  ridgeline isa main my-branch --show            what changed, judged
  ridgeline isa main --execute --kernel gemm     and what its launches execute, in an emulator
  ridgeline isa --range v1.0..HEAD               record the history (..HEAD: all of it); goes on where it stopped
  asv --config asv.isa.json compare -f 1 A B     the same counts by asv
"""


@verb(EXAMPLES, title="Examples")
@click.argument("base", required=False)
@click.argument("head", required=False)
@several("--arch ARCH -> arches", "gfx942, gfx950, sm_90 (repeatable; default: all; with --range the AMD ones).")
@CASES
@POLICY
@JSON
@DRY_RUN
@flag("--execute", "Also count what launches execute, in an emulator of gfx942 and gfx950 (extra emulate).")
@flag("--show", "Show the changed instructions as a diff.")
@option("--range A..B -> span", "Record the commits after A up to B that touch kernels.")
@option("--newest N", "With --range: only the newest N of them.", click.IntRange(min=1))
@project_folder("--results", "code", "results_isa", "The recorded series.")
def isa(given: Given) -> int:
    """Compile for MI300X, MI355X and H200 without a GPU: metrics, differences, verdict.

    With BASE, compare it with HEAD (default: the working tree).  Exit codes: 0 the same code, 1 regression, 2 no
    verdict: other code that no rule calls worse, or nothing to compare; 3 usage.
    """
    if given.base and given.span:
        raise click.UsageError("BASE HEAD and --range exclude each other; give one of them")
    if given.execute and given.span:
        raise click.UsageError("--execute counts what two commits execute; with --range leave it out")
    if given.newest and not given.span:
        raise click.UsageError("--newest belongs to --range; give for instance --range ..HEAD")
    job = IsaJob(given)
    if given.span:
        return job.record()
    return job.compare() if given.base else job.describe()


class IsaJob:
    """One call of the command: where it runs, what it compiles, how it prints.  Methods return the exit code."""

    def __init__(self, given: Given) -> None:
        self.given, self.console = given, err_console()
        try:
            self.root = Repository(Path.cwd()).root
        except GitError:  # no git, or no repository: the folder itself
            self.root = Path.cwd() if (Path.cwd() / "kernels").is_dir() else HARNESS
        self.cache = self.root / ".ridgeline" / "isa"
        self.compiler = TreeCompiler(self.cache, self.console)
        arches = given.arches or (() if given.span else TARGETS)
        chosen = arches, given.tier, given.kernels, given.cases, given.backends
        self.wanted = Wanted(*chosen, execute=given.execute)

    def describe(self) -> int:
        """The metrics of the working tree."""
        if self._dry(f"compile {self.root}"):
            return 0
        text = self.compiler.result(self.root, self.wanted, "working tree")
        tree = parse(text, "the result of compiling the working tree")
        if self.given.as_json:
            click.echo(text, nl=False)
        else:
            _print(isa_text.listing(tree))
        if not tree.entries:
            self._tell(f"{self.root} declares nothing that can be compiled ahead: no backend here has an isa()")
        return 0 if any(entry.code for entry in tree.entries) else 2

    def compare(self) -> int:
        """Two commits, or a commit and the working tree."""
        base, head = self.given.base, self.given.head
        policy, repository = load_policy(self.given.policy_file), Repository(self.root)
        if self._dry(f"compile {base} and {head or 'the working tree'}, and compare them"):
            return 0
        old = repository.checkout(base, "base")
        new = repository.checkout(head, "head") if head else repository.head_of_comparison()
        before = self._lenient(old.path, f"base {old.label}")
        after = self._lenient(new.path, f"head {new.label}", lenient=bool(before.entries))
        judgement = compare(before, after, policy, project.layout(new.path).renamed)
        if not self.given.arches:
            self._tell(f"compiled for {', '.join(self.wanted.arches)}, as `check` does")
        if self.given.as_json:
            named = ({"commit": side.commit.hash, "dirty": side.dirty} for side in (old, new))
            print_json(as_json(judgement) | dict(zip(("base", "head"), named, strict=True)))
        else:
            _print(isa_text.terminal(judgement))
            if self.given.show:
                click.echo(changed_code(judgement, self.cache))
        return judgement.exit_code

    def record(self) -> int:
        """Record every commit of a range; one that cannot be compiled is reported, and the others go on."""
        given, repository = self.given, Repository(self.root)
        commits = series.commits_of(repository, given.span)[-(given.newest or 0) :]
        if self._dry(f"compile {plural(len(commits), 'commit')} and record their series under {given.results}"):
            return 0
        asked = series.asked_of(self.wanted, series.installed_triton())
        filled = series.record_range(repository, commits, given.results, asked, self._lenient, self._tell)
        if given.as_json:
            recorded = [str(path) for path in filled.recorded]
            print_json({"recorded": recorded, "known": filled.known, "problems": filled.problems})
        else:
            for problem in filled.problems:
                self._tell(f"Warning: {problem}")
            counts = f"{len(filled.known)} known already, {plural(len(filled.problems), 'problem')}."
            click.echo(f"{plural(len(filled.recorded), 'commit')} recorded in {given.results}, {counts}")
        return 0 if filled.recorded or filled.known else 2

    def _lenient(self, tree: Path, what: str, lenient: bool = True) -> CompiledTree:
        """A source tree, compiled; a kernel, case or backend that it does not have is not an error."""
        return self.compiler.compile(tree, dataclasses.replace(self.wanted, lenient=lenient), what)

    def _tell(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _dry(self, what: str) -> bool:
        if self.given.dry_run:
            click.echo(f"Would {what}.")
        return bool(self.given.dry_run)


def changed_code(judgement: IsaJudgement, cache: Path) -> str:
    """The changed code of every configuration that is worse (or, without such, changed), from the kept code texts."""
    blocks = []
    for difference in judgement.of(CodeVerdict.SLOWER) or judgement.of(CodeVerdict.CHANGED):
        assert difference.base is not None
        assert difference.head is not None
        base, head = ((cache / entry.emitted.asm).read_text() for entry in (difference.base, difference.head))
        blocks.append(f"{difference.name} on {difference.arch}\n{code_diff(base, head)}")
    return "\n".join(blocks)


def _print(text: Text) -> None:
    out_console().print(text, soft_wrap=True, end="")
