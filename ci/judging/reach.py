"""What a comparison measures: the operators that a changed file can reach, by the source of both sides alone."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.reach import tree
from benchmarks.reach.operators import Reach, compared
from benchmarks.reach.tree import SourceFile, SourceTree
from ci.git.command import GitError, git
from ci.git.repository import LocalCheckout, listed_packages
from ci.harness import MeasurePlan
from ci.judging.types import Judgement, Verdict


def of_checkouts(base: LocalCheckout, head: LocalCheckout) -> Reach:
    """What differs between two checkouts on this disk."""
    return compared(*(tree.of_folder(side.path, listed_packages(side.path)) for side in (base, head)))


def of_commits(root: Path, base: str, head: str) -> Reach:
    """The same of two commits that git has; nothing of them is checked out.  Raises GitError."""
    return compared(*trees_of(root, (base, head)))


def narrowed(plan: MeasurePlan, reach: Reach) -> MeasurePlan:
    """The plan without the operators that cannot differ.  Its kernels are () where there is nothing left."""
    return dataclasses.replace(plan, kernels=tuple(k for k in (plan.kernels or reach.differing) if k not in reach.same))


def left_out(plan: MeasurePlan, reach: Reach) -> tuple[str, ...]:
    """The operators of a plan that are not measured, because nothing that changed can reach them."""
    return tuple(sorted(name for name in reach.same if not plan.kernels or name in plan.kernels))


def sentence(plan: MeasurePlan, reach: Reach) -> str:
    """What is measured, and why."""
    if reach.unknown:
        return f"{reach.unknown}: everything is measured"
    out, kept = left_out(plan, reach), narrowed(plan, reach).kernels
    files = sorted({path for name in kept for path in reach.differing.get(name, ())})
    because = f", which {_few(tuple(files), 'changed files')} can reach" if files else ""
    not_measured = f"; not measured, because no changed file can reach them: {', '.join(out)}" if out else ""
    return f"measuring {', '.join(kept) or 'nothing'}{because}{not_measured}{' (--all-cases does)' if out else ''}"


def with_left_out(judgement: Judgement, names: tuple[str, ...]) -> Judgement:
    """A judgement that says what was not measured."""
    if not names:
        return judgement
    if judgement.verdict is Verdict.SAME and not judgement.cases and not judgement.warnings:
        return Judgement(Verdict.SAME, f"no changed file can reach {_few(names, 'operators')}", unreached=names)
    count = f"{len(names)} operator{'s' * (len(names) != 1)} that no changed file can reach not measured"
    return dataclasses.replace(judgement, why=f"{judgement.why}; {count}", unreached=names)


def _few(names: tuple[str, ...], what: str) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{len(names)} {what}"


# ---- commits ---------------------------------------------------------------------------------------------------------

ENTRY = re.compile(r"\d+ blob ([0-9a-f]+)\t(.*)", re.DOTALL)
"""One entry of `git ls-tree -r -z`: mode, kind, digest, path."""


LAST = "no such object"


def trees_of(root: Path, commits: Sequence[str]) -> list[SourceTree]:
    """The files of each commit, each file read once however many commits have it; nothing is checked out.

    Raises GitError, and kernels.project.ProjectError.
    """
    blobs = [_blobs(root, commit) for commit in commits]
    python = dict.fromkeys(digest for one in blobs for path, digest in one.items() if path.endswith(".py"))
    files = {digest: SourceFile(digest, text) for digest, text in texts(root, list(python))}
    return [
        SourceTree(
            {path: files.get(digest) or SourceFile(digest) for path, digest in sorted(one.items())},
            tuple(_packages(root, commit, "pyproject.toml" in one)),
        )
        for commit, one in zip(commits, blobs, strict=True)
    ]


def _blobs(root: Path, commit: str) -> dict[str, str]:
    """Digest of every file of a commit by its path."""
    entries = git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split("\0")
    found = [match.groups() for entry in entries if (match := ENTRY.fullmatch(entry))]
    return {path: digest for digest, path in found if not any(map(tree.is_hidden, path.split("/")))}


def _packages(root: Path, commit: str, written: bool) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        if written:
            text = git(root, "show", f"{commit}:pyproject.toml")
            Path(folder, "pyproject.toml").write_text(text)
        return listed_packages(Path(folder))


def texts(root: Path, digests: list[str]) -> Iterator[tuple[str, str]]:
    """(digest, content) of files, all in one call of git.  GitError if one is not UTF-8, which Python files are."""
    asked = "".join(f"{digest}\n" for digest in [*digests, LAST])  # its answer ends the output, which is stripped
    output = git(root, "cat-file", "--batch", stdin=asked).encode()
    place = 0
    for digest in digests:
        end = output.find(b"\n", place)
        words = output[place : max(end, place)].split()
        if len(words) != 3 or words[0].decode() != digest:
            raise GitError(f"a file of the commit before blob {digest} is not UTF-8; what differs in it cannot be read")
        begin = end + 1
        place = begin + int(words[2]) + 1
        yield digest, output[begin : place - 1].decode()
