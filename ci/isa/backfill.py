"""The machine code of a range of commits: each is compiled in a worktree and recorded as series for asv."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from ci.git.command import GitError
from ci.git.repository import Commit, Repository, listed_packages
from ci.isa import series
from ci.isa.compile import CompileError
from ci.isa.compiled import CompiledTree, CompileStatus, IsaError
from ci.report.words import plural

Compile = Callable[[Path, str], CompiledTree]
"""(source tree, its name in the progress bar) -> what it compiles to; raises CompileError or IsaError."""


class RangeError(ValueError):
    """A range of commits is not written A..B; the text says how."""


@dataclasses.dataclass
class Filled:
    """What became of a range: files written, commits that had one already, and problems in a sentence each."""

    recorded: list[Path] = dataclasses.field(default_factory=list)
    known: list[str] = dataclasses.field(default_factory=list)
    problems: list[str] = dataclasses.field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 if the range has records now, 2 if nothing in it could be recorded."""
        return 0 if self.recorded or self.known else 2


def commits_of(repository: Repository, span: str, every: bool = False) -> list[Commit]:
    """The commits after A up to B of "A..B" ("..B": from the first one), oldest first, along first parents.

    Those that change no package with kernels compile to what their parent does and are left out, unless `every`.
    RangeError for another form, GitError for ends that do not exist.
    """
    start, dots, end = span.partition("..")
    if not dots or end.startswith("."):
        raise RangeError(f"--range {span!r} is not a range; give for instance v1.0..HEAD, or ..HEAD for all commits")
    paths = [] if every else [name.replace(".", "/") for name in listed_packages(repository.root)]
    return repository.commits(start, end or "HEAD", paths)


@dataclasses.dataclass(frozen=True)
class Backfill:
    """How a range is recorded: where, as what was asked for, by which compiler, and who hears of each commit.

    again: also commits that are recorded as `asked` already.  Without it a range that broke off goes on where it was.
    """

    repository: Repository
    results: Path
    asked: series.Asked
    compile: Compile
    tell: Callable[[str], None]
    again: bool = False

    def fill(self, commits: Sequence[Commit]) -> Filled:
        """Compile and record commits; one that cannot be compiled is reported, and the others go on."""
        filled = Filled()
        for number, commit in enumerate(commits, 1):
            place = f"{number}/{len(commits)} {commit.short}"
            self.tell(f"{place} {commit.subject}: {self._one(commit, place, filled)}")
        return filled

    def _one(self, commit: Commit, place: str, filled: Filled) -> str:
        """Compile and record one commit; returns what became of it."""
        if not self.again and series.is_recorded(self.results, commit, self.asked):
            filled.known.append(commit.short)
            return "recorded already"
        try:
            with self.repository.borrowed(commit) as tree:
                compiled = self.compile(tree, place)
        except (CompileError, IsaError, GitError) as error:
            filled.problems.append(f"{commit.short}: {error}")
            return str(error)
        return self._keep(compiled, commit, filled)

    def _keep(self, tree: CompiledTree, commit: Commit, filled: Filled) -> str:
        """Record one compiled tree; returns what became of it.  A commit without kernels is recorded as nothing."""
        failures = [f"{commit.short}: {failure.why}" for failure in tree.failures]
        broken = [f"{commit.short}: module {b.module} cannot be imported: {b.why}" for b in tree.broken]
        filled.problems += failures + broken
        if failures and not tree.entries:
            return failures[0]
        filled.recorded.append(series.record(tree, commit, self.results, None if failures else self.asked))
        if not tree.entries:
            return "declares nothing to compile"
        failed = sum(entry.status in (CompileStatus.FAILED, CompileStatus.REFUSED) for entry in tree.entries)
        doubt = f", {failed} of them {'does' if failed == 1 else 'do'} not compile" if failed else ""
        return plural(len(tree.entries), "configuration") + doubt
