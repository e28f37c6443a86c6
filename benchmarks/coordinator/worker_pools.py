"""The pools of all trees for one kernel and one world size: started together, restarted when one dies."""

from __future__ import annotations

import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Tree
from benchmarks.coordinator.ranks import Failure, Pool, PoolDied, StepFailed
from benchmarks.coordinator.signals import held

STARTS = 2
"""Failed starts in a row after which a tree is given up for this kernel and world size."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What the processes of a crew are told when they join.  modules: where each role declares the kernel."""

    kernel: str
    world: int
    modules: Mapping[str, str]
    gpu: bool
    arch: str
    compute_units: int | None
    threads: int
    sweep_bytes: int
    heap_bytes: int
    directory: Path


START_S = 180.0
"""How long processes may take to import torch, meet, and make their heap."""


class Crew:
    """Pools by role.  A context manager: on leaving, every process is gone."""

    def __init__(self, trees: Iterable[Tree], setting: Setting) -> None:
        self.trees = {tree.role: tree for tree in trees}
        self.setting = setting
        self.pools: dict[str, Pool] = {}
        self.lost: dict[str, Failure] = {}
        self.notes: list[str] = []
        self._failed_starts = dict.fromkeys(self.trees, 0)

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                for pool in self.pools.values():
                    pool.quit()
                for pool in self.pools.values():
                    pool.close()
        finally:
            for pool in self.pools.values():
                pool.kill()

    def ready(self, roles: Iterable[str]) -> None:
        """Have a live pool for every role, or its failure in `lost`; all that are missing start at once."""
        missing = [role for role in roles if role not in self.lost and not self._alive(role)]
        while missing:
            begun = [role for role in missing if self._begin(role)]
            for role in begun:
                self._joined(role)
            missing = [role for role in missing if role not in self.lost and not self._alive(role)]

    def _alive(self, role: str) -> bool:
        return role in self.pools and self.pools[role].alive

    def _begin(self, role: str) -> bool:
        tree, s = self.trees[role], self.setting
        variables = {
            "TRITON_DISABLE_LINE_INFO": "1",  # code must not differ by the path of its source
            "PYTHONFAULTHANDLER": "1",
            "PYTHONUNBUFFERED": "1",
        }  # a log to read after a crash
        if not s.gpu:
            variables.update(OMP_NUM_THREADS=str(s.threads), GLOO_SOCKET_IFNAME="lo")
        try:
            with held():
                pool = self.pools[role] = Pool(
                    f"{s.kernel}.{role}", tree.python, tree.path, s.world, s.directory, variables
                )
        except OSError as error:
            self._start_failed(role, Failure("error", f"cannot start {tree.python}: {error}"))
            return False
        pool.post(
            "start",
            START_S,
            "join",
            per_rank=[{"rank": rank, "device": f"cuda:{rank}" if s.gpu else "cpu"} for rank in range(s.world)],
            module=s.modules[role],
            kernel=s.kernel,
            world=s.world,
            arch=s.arch,
            compute_units=s.compute_units,
            threads=s.threads,
            sweep_bytes=s.sweep_bytes,
            heap_bytes=s.heap_bytes,
            store=str(s.directory / f"store-{os.urandom(8).hex()}"),
            heap_directory=str(_heap_directory(s)),
        )
        return True

    def _joined(self, role: str) -> None:
        try:
            answers = self.pools[role].collect()
        except (StepFailed, PoolDied) as error:
            self.pools[role].kill()
            self._start_failed(role, error.failure)
            return
        self._failed_starts[role] = 0
        for rank, answer in enumerate(answers):
            note = f"{role}, rank {rank}: no symmetric heap: {answer['no_heap']}"
            if answer["no_heap"] and note not in self.notes:
                self.notes.append(note)

    def _start_failed(self, role: str, failure: Failure) -> None:
        self._failed_starts[role] += 1
        if self._failed_starts[role] >= STARTS or failure.status != "crash":
            self.lost[role] = dataclasses.replace(failure, why=f"its processes could not start: {failure.why}")


def _heap_directory(setting: Setting) -> Path:
    """An empty directory in memory, where there is one, else with the logs."""
    parent = setting.directory / "shm"
    return Path(tempfile.mkdtemp(prefix="heap-", dir=parent if parent.is_dir() else setting.directory))


def make_directories() -> Path:
    """A directory for logs and stores, with `shm` in it pointing to memory."""
    directory = Path(tempfile.mkdtemp(prefix="ridgeline-"))
    try:
        (directory / "shm").symlink_to(tempfile.mkdtemp(prefix="ridgeline-", dir="/dev/shm"))
    except OSError:
        return directory
    return directory


def remove_directories(directory: Path) -> None:
    """Remove both."""
    link = directory / "shm"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
