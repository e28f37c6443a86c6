"""A commit in a folder of its own: its files, its submodules, its large files, and what its project prepares.

All of it comes from the clone: nothing is fetched.  What the clone does not have is left out, and `missing_files` names
it with the next command.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ci.git.command import HOOK_VARIABLES, GitError, git, git_or_none, succeeds

NO_HOOKS = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": "/dev/null"}
"""For git: the hooks of a repository are for its people, and one that fails would fail the checkout (githooks(5),
post-checkout); a kernel can leave one, too.  git 2.31 and newer read this."""

PREPARE_S = 3600.0
"""Seconds that `[checkout] prepare` may take: a build of a large extension takes minutes."""
SHOWN_OUTPUT = 1000
"""Characters of its output, from the end, that an error quotes."""


def check_out(clone: Path, folder: Path, commit: str, *, in_place: bool = False) -> None:
    """Make `folder` a checkout of exactly `commit` (full hash); one that is there and unchanged is used as it is.

    What `[checkout] prepare` makes is kept with it, and made again when that line changes.
    in_place: a worktree of another commit is switched and cleaned, of ignored files too, instead of made again.
    A lock beside the folder keeps two processes from doing so at once.  Raises GitError, and ProjectError.
    """
    from filelock import FileLock  # not needed to measure on a node without git

    from kernels import project  # imported here: only a checkout needs the settings

    command = project.around(clone).prepare
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if in_place and is_worktree(folder):
            _switch(folder, commit)
        elif is_clean(folder, commit) and _made_with(folder).get("prepare", "") == command:
            return
        else:
            shutil.rmtree(folder, ignore_errors=True)
            git(clone, "worktree", "prune")
            _add_worktree(clone, folder, commit)
        _state(folder).unlink(missing_ok=True)
        _add_submodules(clone, folder)
        _add_large_files(clone, folder)
        if command:
            _prepare(folder, commit, command)
        if command or git(folder, "status", "--porcelain"):
            _state(folder).write_text(json.dumps({"prepare": command, "status": git(folder, "status", "--porcelain")}))


def keep_built(folder: Path) -> None:
    """Have a checkout count as unchanged with what was built in it, though the project's git does not ignore that."""
    if is_worktree(folder):
        made = {**_made_with(folder), "status": git(folder, "status", "--porcelain")}
        _state(folder).write_text(json.dumps(made))


def _add_worktree(clone: Path, folder: Path, commit: str) -> None:
    git(clone, "worktree", "add", "--force", "--detach", "--quiet", str(folder), commit, env=NO_HOOKS)


def _switch(worktree: Path, commit: str) -> None:
    """Make a worktree that of another commit, without anything that git did not put there."""
    git(worktree, "checkout", "--quiet", "--force", "--detach", commit, env=NO_HOOKS)
    git(worktree, "clean", "-ffdxq")


def is_worktree(folder: Path) -> bool:
    """Whether the folder itself, and not one above it, is a worktree that git knows."""
    return (folder / ".git").is_file() and succeeds(folder, "rev-parse", "--git-dir")


def is_clean(folder: Path, commit: str) -> bool:
    """Whether the folder is a worktree at that commit, without other changes than it was made with."""
    return (
        is_worktree(folder)
        and git_or_none(folder, "rev-parse", "HEAD") == commit
        and git_or_none(folder, "status", "--porcelain") == _made_with(folder).get("status", "")
    )


def remove(clone: Path, folder: Path) -> None:
    """Remove a checkout; one that git cannot remove is only reused later."""
    git_or_none(clone, "worktree", "remove", "--force", str(folder))
    _state(folder).unlink(missing_ok=True)


def missing_files(folder: Path) -> dict[str, str]:
    """What a checkout lacks of its commit, by path ("speed/" of a submodule): a sentence with the next command."""
    lacking = {}
    for path, commit in _submodules(folder):
        if not (folder / path / ".git").exists():
            fetched = f"`git submodule update --init --recursive`, or `git -C {path} fetch origin {commit}`"
            lacking[f"{path}/"] = f"the submodule {path} at {commit[:8]} is not in this clone: {fetched}"
        else:
            lacking |= {f"{path}/{name}": why for name, why in missing_files(folder / path).items()}
    for path, _ in _pointers(folder):
        lacking[path] = f"{path} is a pointer of Git LFS, not the file: `git lfs install && git lfs pull`"
    return lacking


# ---- what a checkout was made with, beside its folder ----------------------------------------------------------------


def _state(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.made")


def _made_with(folder: Path) -> dict[str, str]:
    """The command that prepared a checkout, and git's status after it; {} where nothing but git made it."""
    try:
        kept = json.loads(_state(folder).read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}


# ---- submodules ------------------------------------------------------------------------------------------------------


def _add_submodules(clone: Path, folder: Path) -> None:
    """Check submodules out as worktrees of what the clone has of them, those within them too."""
    names = git_or_none(folder, "config", "--file", ".gitmodules", "--get-regexp", r"^submodule\..*\.path$") or ""
    found = re.finditer(r"^submodule\.(.*)\.path (.*)$", names, re.MULTILINE)
    name_of = {match.group(2): match.group(1) for match in found}
    for path, commit in _submodules(folder):
        source = next(
            filter(None, (_repository_of(place) for place in _places(clone, name_of.get(path, path), path))), None
        )
        if source is None or not succeeds(source, "cat-file", "-e", f"{commit}^{{commit}}"):
            continue
        below = folder / path
        if is_worktree(below):
            _switch(below, commit)
        else:
            _add_worktree(source, below.resolve(), commit)
        _add_submodules(source, below)
        _add_large_files(source, below)


def _submodules(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and commit of every submodule of a checkout."""
    if (folder / ".gitmodules").exists():
        for entry in git(folder, "ls-files", "--stage", "-z").split("\0"):
            if entry.startswith("160000 "):
                facts, _, path = entry.partition("\t")
                yield path, facts.split()[1]


def _places(clone: Path, name: str, path: str) -> Iterator[Path]:
    """Where a clone may keep the repository of a submodule."""
    yield git_folder(clone) / "modules" / name
    yield clone / path / ".git"


def git_folder(clone: Path) -> Path:
    """The folder with the objects of a repository, which its worktrees share."""
    return (clone / git(clone, "rev-parse", "--git-common-dir")).resolve()


def _repository_of(place: Path) -> Path | None:
    return place if (place / "objects").is_dir() else None


# ---- Git LFS ---------------------------------------------------------------------------------------------------------

POINTER = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:.*\n)*?oid sha256:([0-9a-f]{64})\n")
"""https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md; a pointer has less than 1024 bytes."""


def _pointers(folder: Path) -> Iterator[tuple[str, str]]:
    """Path and SHA-256 of the files of Git LFS of which only the pointer is there."""
    for path in filter(None, git(folder, "ls-files", "-z", "--", ":(attr:filter=lfs)").split("\0")):
        try:
            with open(folder / path, "rb") as file:
                pointer = POINTER.match(file.read(1024))
        except OSError:  # deleted in the working tree
            continue
        if pointer:
            yield path, pointer.group(1).decode()


def _add_large_files(clone: Path, folder: Path) -> None:
    """Copy what the clone has of the files of Git LFS; where git-lfs is installed it has done so itself."""
    for path, digest in _pointers(folder):
        source = git_folder(clone) / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
        if source.is_file():
            shutil.copyfile(source, folder / path)


# ---- what a project prepares -----------------------------------------------------------------------------------------


def _prepare(folder: Path, commit: str, command: str) -> None:
    """Run `[checkout] prepare` in the folder, with the Python that runs us first on the path."""
    print(f"preparing {commit[:8]}: {command}", file=sys.stderr, flush=True)
    env = {key: value for key, value in os.environ.items() if key not in HOOK_VARIABLES}
    env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env.get("PATH", os.defpath)])
    what = f"[checkout] prepare = {command!r}"
    try:
        done = subprocess.run(
            command, shell=True, cwd=folder, env=env, timeout=PREPARE_S, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="backslashreplace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise GitError(f"{what} did not end within {PREPARE_S:g} s in {folder}; try it there by hand") from None
    if done.returncode:
        printed = done.stdout.strip()[-SHOWN_OUTPUT:] or "it printed nothing"
        raise GitError(f"{what} ended with exit code {done.returncode} in {folder}; try it there by hand\n{printed}")
