"""Source trees under test: where they lie, which commit they are, and what they declare."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator.kernel_identity import files_of
from benchmarks.coordinator.ranks import Pool, PoolDied, StepFailed
from benchmarks.coordinator.signals import held
from kernels import registry, spec

ROLES = ("head", "base")
"""What a tree can be in a run; a plain run has only "head"."""

BROKEN_LIMIT = 20
"""Modules that may end the describing process one after the other before we give up."""


START_S = 180.0
"""How long a process may take to import torch and list its devices."""


class TreeError(Exception):
    """A tree cannot be measured; the text names it and says the next step."""


@dataclasses.dataclass(frozen=True)
class Tree:
    """A checked-out source tree and the Python that runs it.  date_ms: committer date, ms since 1970 UTC."""

    role: str
    path: Path
    commit: str | None = None
    date_ms: int | None = None
    dirty: bool | None = None
    python: str = sys.executable

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise TreeError(f"tree {self.role}: {self.path} is not a folder")


@dataclasses.dataclass(frozen=True)
class Description:
    """What a tree declares and what its Python sees; all JSON values."""

    kernels: Mapping[str, dict[str, Any]]
    modules: Mapping[str, str]
    broken: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    environment: dict[str, Any]


class Describer:
    """Asks a tree what it declares, in a process of its own.

    begin() starts the process, so that several trees start at once; end() waits for the answer.
    """

    def __init__(self, tree: Tree, directory: Path, protocol: Mapping[str, Any], limit_s: float) -> None:
        self._tree, self._directory, self._protocol, self._limit_s = tree, directory, dict(protocol), limit_s
        self._crumb = directory / f"importing.{tree.role}"
        self._refuse: dict[str, str] = {}
        self.pool: Pool | None = None

    def begin(self) -> None:
        """Start the process and ask it for its devices."""
        try:
            with held():
                self.pool = Pool(f"describe.{self._tree.role}", self._tree.python, self._tree.path, 1, self._directory)
        except OSError as error:
            raise TreeError(
                f"tree {self._tree.role}: cannot start its Python: {error}; name an executable that exists"
            ) from error
        self.pool.post("probe", START_S, "probe")

    def end(self) -> Description:
        """The answer.  A module that ends or hangs the process is refused, and the process started again."""
        try:
            while True:
                seen = self._probed()
                try:
                    return self._declared(seen)
                except PoolDied as died:
                    self._refuse_module(died)
                    self.begin()
        finally:
            self.kill()

    def kill(self) -> None:
        """End the process."""
        if self.pool:
            self.pool.kill()

    def _probed(self) -> dict[str, Any]:
        assert self.pool
        try:
            return self.pool.collect()[0]
        except (StepFailed, PoolDied) as error:
            raise TreeError(
                f"tree {self._tree.role} ({self._tree.path}): {self._tree.python} cannot run the measuring "
                f"process: {error.failure.why}\n{error.failure.detail}"
            ) from error

    def _declared(self, seen: dict[str, Any]) -> Description:
        assert self.pool
        first = (seen["devices"] or [{"arch": "cpu", "compute_units": None}])[0]
        place = {
            "device": "cuda:0" if seen["devices"] else "cpu",
            "arch": first["arch"],
            "compute_units": first["compute_units"],
        }
        try:
            found = self.pool.ask(
                "import",
                self._limit_s,
                "declare",
                crumb=str(self._crumb),
                refuse=self._refuse,
                place=place,
                protocol=self._protocol,
            )[0]
        except StepFailed as error:
            raise TreeError(
                f"tree {self._tree.role} ({self._tree.path}): {error.failure.why}\n{error.failure.detail}"
            ) from error
        environment = dict(seen["environment"])
        if self._tree.python != sys.executable:
            environment["executable"] = self._tree.python
        return Description(found["kernels"], found["modules"], found["broken"], seen["devices"], environment)

    def _refuse_module(self, died: PoolDied) -> None:
        module = self._crumb.read_text() if self._crumb.exists() else ""
        if not module or module in self._refuse or len(self._refuse) >= BROKEN_LIMIT:
            raise TreeError(f"tree {self._tree.role} ({self._tree.path}): {died.failure.why}\n{died.failure.detail}")
        what = "hung" if died.failure.status == "hang" else "ended the process"
        self._refuse[module] = f"importing it {what}: {died.failure.why}"


def listed_packages(tree: Tree) -> list[str]:
    """The packages with kernels that the tree lists; TreeError if its pyproject.toml is wrong."""
    try:
        return registry.listed_packages(tree.path)
    except (spec.DeclarationError, ValueError) as error:
        raise TreeError(f"tree {tree.role}: {error}") from error


def kernels_digest(tree: Tree) -> str:
    """16 hex digits over every file of the listed kernel packages: names and contents."""
    digest = hashlib.sha256()
    for package in sorted(listed_packages(tree)):
        for path in files_of(tree.path.joinpath(*package.split("."))):
            digest.update(f"{path.relative_to(tree.path).as_posix()}\0".encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()[:16]


def with_git_facts(tree: Tree) -> Tree:
    """Fill in commit, date and dirty from git where the caller did not say; without git they stay unknown."""
    if tree.commit is not None and tree.date_ms is not None and tree.dirty is not None:
        return tree
    head = _git(tree.path, "rev-parse", "HEAD")
    if head is None or (tree.commit is not None and tree.commit != head):
        return tree
    date = _git(tree.path, "show", "-s", "--format=%ct", head)
    status = _git(tree.path, "status", "--porcelain", "--", ".", ":!results")
    return dataclasses.replace(
        tree,
        commit=head,
        date_ms=tree.date_ms if tree.date_ms is not None else int(date or 0) * 1000 or None,
        dirty=tree.dirty if tree.dirty is not None else (bool(status) if status is not None else None),
    )


def _git(folder: Path, *arguments: str) -> str | None:
    environment = {k: v for k, v in os.environ.items() if k not in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
