"""Which nightly tests a change reaches: what a pull request runs of them.  Unknown means all.

    pytest -m nightly --since main

A test reaches the rooms that its file imports, directly or through others, and what these start as a process.  Of the
operators it reaches those in its name, all of them without one; which operators a change reaches says benchmarks.reach.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import subprocess
from pathlib import PurePath

from benchmarks.reach import Reach
from ci.git.command import GitError
from ci.judging.reach import of_commits
from tests.modules import PACKAGES, ROOT, everything, imports, syntax

STARTED = {
    "ci.__main__": ("ci.commands",),
    "ci.harness": ("benchmarks",),
    "benchmarks.coordinator": ("benchmarks.worker",),
    "kernels.registry": ("kernels",),
}
"""What a room imports by a name that it is given, or runs in a process of its own."""

DOCUMENTS = (".github", "README.md", "CHANGELOG.md", "LICENSE")
"""Read by the tests in whose files these names stand, and by no room."""


def room(module):
    """The folder of a package that a module lies in, the module itself where it lies beside these folders."""
    return ".".join(module.split(".")[:2])


@functools.cache
def below(names):
    """Rooms and modules of the tests that some of these reach, with themselves."""
    reached, left = set[str](), [name if name.startswith("tests.") else room(name) for name in names]
    while left:
        name = left.pop()
        if name in reached:
            continue
        reached.add(name)
        modules = [name] if name.startswith("tests.") else [one for one in everything() if room(one) == name]
        ours = {one for module in modules for one in (*imports(module), *_run_by(module)) if one in everything()}
        left += [one if one.startswith("tests.") else room(one) for one in ours]
        starts = STARTED.get(name, ())
        left += [room(one) for one in everything() if any(f"{one}.".startswith(f"{start}.") for start in starts)]
    return reached


def _run_by(module):
    """Modules whose dotted names stand in strings of a module of the tests: they are started as programs."""
    nodes = ast.walk(syntax(module)) if module.startswith("tests.") else ()
    words = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    programs = {f"{word}.__main__" for word in words if word in PACKAGES}
    return (words | programs) & everything().keys()


@dataclasses.dataclass(frozen=True)
class Change:
    """Paths that differ from a commit, and the operators that they reach."""

    paths: tuple[str, ...]
    operators: Reach

    def reaches(self, file, name):
        """Whether a test can end otherwise.  file: its path; name: that of the test, with its parameters."""
        module, folders = ".".join(PurePath(file).with_suffix("").parts), PurePath(file).parts
        beside = [".".join((*folders[:depth], "conftest")) for depth in range(2, len(folders))]
        rooms = below((module, *(one for one in beside if one in everything())))
        return any(self._counts(path, module, name, rooms) for path in self.paths)

    def _counts(self, path, module, name, rooms):
        first, *inner = PurePath(path).parts
        changed = ".".join(PurePath(path).with_suffix("").parts).removesuffix(".__init__")
        if first in DOCUMENTS:
            return first in everything()[module].read_text()
        if first == "kernels" and "kernels.registry" in rooms:
            differing = self.operators.differing.keys()
            named = {one for one in (*self.operators.same, *differing) if one in name}
            return bool(self.operators.unknown or differing & (named or differing))
        if first == "tests" and path.endswith(".py") and changed in everything() and changed != "tests.conftest":
            return changed in rooms
        if first in PACKAGES and inner:
            return room(changed) in rooms
        return True


def since(commit):
    """What differs between the last commit that HEAD shares with another one and HEAD; None where git cannot say."""
    git = ["git", "-C", str(ROOT)]
    base = subprocess.run([*git, "merge-base", commit, "HEAD"], capture_output=True, text=True).stdout.strip()
    listed = subprocess.run([*git, "diff", "--name-only", base, "HEAD"], capture_output=True, text=True)
    if not base or listed.returncode:
        return None
    try:
        return Change(tuple(listed.stdout.splitlines()), of_commits(ROOT, base, "HEAD"))
    except GitError:
        return None


def left(items, commit):
    """The tests that a change reaches, all of them where that is not known."""
    change = since(commit)
    if change is None:
        return items
    return [item for item in items if change.reaches(item.path.relative_to(ROOT).as_posix(), item.name)]
