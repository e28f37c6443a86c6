"""Which commits of a row compile to the same machine code, ahead of time and without a GPU."""

from __future__ import annotations

import dataclasses
import hashlib
import json

from ci.bisect.axes import CommitAxis
from ci.git.command import GitError
from ci.git.repository import Commit, Repository
from ci.isa.compile import CompileError, TreeCompiler, Wanted
from ci.isa.compiled import CompiledTree, CompileStatus, IsaError


def labelled(axis: CommitAxis, wanted: Wanted, compiler: TreeCompiler) -> CommitAxis:
    """The axis with what is wanted of each commit compiled: equal labels, equal code in equal configurations.

    One commit of each run of equal files is compiled.  What does not compile keeps the label of its files, so that it
    is a class of its own.  How host code launches (a grid, one more copy) is not in the label: the prior keeps a little
    for such a cause (`classes.OTHER_CAUSE`), and trials tell.
    """
    examples: dict[str | None, Commit] = {}
    for label, commit in zip(axis.known, axis.commits, strict=True):
        examples.setdefault(label, commit)
    made = {
        label: label and _label(axis.repository, commit, f"{number}/{len(examples)}", wanted, compiler) or label
        for number, (label, commit) in enumerate(examples.items(), 1)
    }
    return dataclasses.replace(axis, known=[made[label] for label in axis.known])


def _label(repository: Repository, commit: Commit, place: str, wanted: Wanted, compiler: TreeCompiler) -> str:
    """Digest of all code, "" where some of it, or all, is not there."""
    try:
        with repository.borrowed(commit) as tree:
            return digest(compiler.compile(tree, wanted, f"{place} {commit.short}"))
    except (CompileError, IsaError, GitError) as error:
        compiler.console.print(f"{commit.short}: {error}", markup=False)
        return ""


def digest(tree: CompiledTree) -> str:
    """16 hex digits over every configuration and its code; "" unless all that is declared compiles."""
    declared = [one for one in tree.entries if one.status is not CompileStatus.UNSUPPORTED]
    if not declared or tree.failures or any(one.code is None for one in declared):
        return ""
    rows = sorted([e.kernel, e.backend, e.arch, e.label, sorted(e.cases), e.emitted.hash] for e in declared)
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]
