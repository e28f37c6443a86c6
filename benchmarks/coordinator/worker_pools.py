"""The worker pools of all checkouts for one kernel and one world size: started together, restarted when one dies."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coordinator import starting
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.ranks import HARNESS, Failure, PoolDied, StepFailed, WorkerPool
from benchmarks.coordinator.referee import TRUTH, Referee, truth_of
from benchmarks.coordinator.session.ahead import CompiledAhead
from benchmarks.coordinator.session.ledger import SecondsLedger
from benchmarks.coordinator.session.quiet import Quiet
from benchmarks.plan import HEAP_VARIABLE
from benchmarks.trial_file import Status

STARTS = 2
"""Failed starts in a row after which a checkout is given up for this kernel and world size."""

START_S = 180.0
"""How long processes may take to import torch, meet, and make their heap."""

FILL_S = 180.0
"""How long a process may take to compile what one arm launches; the longest of ours takes 7 s (2026-11)."""

VARIABLES = {
    "TRITON_DISABLE_LINE_INFO": "1",  # code must not differ by the path of its source
    "PYTHONFAULTHANDLER": "1",  # a log to read after a crash
    "PYTHONUNBUFFERED": "1",
}
"""Set in every measuring process."""


def launch_environment() -> dict[str, str]:
    """The environment of a measuring process with one GPU, as far as it decides where Triton looks for binaries."""
    return starting.environment() | VARIABLES


@dataclasses.dataclass(frozen=True)
class WorkerSetting:
    """What the processes of the pools are told when they join.  modules: where each role declares the kernel.

    heap: the home of the symmetric heap, "auto" where the ranks have to find out.  referee: None where an arm's process
    compares its outputs itself.  ledger: of the wall time.  quiet: who may work, where trials are side by side.  ahead:
    what is being compiled.  cores: of the ranks, in turn, on a CPU.
    """

    kernel: str
    world: int
    modules: Mapping[str, str]
    gpu: bool
    arch: str
    compute_units: int | None
    threads: int
    flush_bytes: int
    heap_bytes: int
    directory: Path
    heap: str = "auto"
    referee: Referee | None = None
    ledger: SecondsLedger = dataclasses.field(default_factory=SecondsLedger)
    quiet: Quiet = dataclasses.field(default_factory=Quiet)
    ahead: CompiledAhead | None = None
    cores: Sequence[int] = ()

    def request(self, role: str) -> dict[str, Any]:
        """The request that every rank of a checkout gets."""
        own = ("kernel", "world", "arch", "compute_units", "threads", "flush_bytes", "heap_bytes")
        return {
            **{name: getattr(self, name) for name in own},
            "module": self.modules[role.removesuffix(TRUTH)],
            "store": str(self.directory / f"store-{os.urandom(8).hex()}"),
            "heap_directory": str(self._heap_directory()),
            **({"flush_bytes": 0} if role.endswith(TRUTH) else {}),
        }

    def variables(self, heap: str) -> dict[str, str]:
        """The environment variables of every process."""
        if self.gpu:
            return {**VARIABLES, HEAP_VARIABLE: heap}
        return {**VARIABLES, "OMP_NUM_THREADS": str(self.threads), "GLOO_SOCKET_IFNAME": "lo"}

    def _heap_directory(self) -> Path:
        """An empty directory in memory, where there is one, else with the logs."""
        self.directory.mkdir(parents=True, exist_ok=True)  # a kernel may have removed it
        parent = self.directory / "shm"
        return Path(tempfile.mkdtemp(prefix="heap-", dir=parent if parent.is_dir() else self.directory))


class WorkerPools:
    """Pools by role.  A context manager: on leaving, every process has ended.

    Every pool has its heap in the same home: where that has to be found out, the first pool does so alone, on quiet
    links.  heaps: what is known of it, by role.  dispatch: which XCD runs how many programs, on chips that have some.
    made_apart: processes of their own make the references.  tuning: by role, backends whose set-up chooses by times.
    flush_s: seconds of a flush of the caches, the longest of all ranks.  ran: by role, what its processes ran of its
    checkout: digests by path.  strayed: by role, what they must not have run.
    """

    def __init__(self, checkouts: Iterable[Checkout], setting: WorkerSetting) -> None:
        self.checkouts = {checkout.role: checkout for checkout in checkouts}
        self.checkouts |= {truth_of(role): one for role, one in self.checkouts.items()}
        self.setting, self.quiet = setting, setting.quiet
        self.pools: dict[str, WorkerPool] = {}
        self.lost: dict[str, Failure] = {}
        self.notes: list[str] = []
        self.heaps: dict[str, dict[str, Any]] = {}
        self.dispatch: dict[str, Any] | None = None
        self.tuning: dict[str, list[str]] = {}
        self.flush_s = 0.0
        self.ran: dict[str, dict[str, str]] = {}
        self.strayed: dict[str, str] = {}
        self._heap = setting.heap
        self.referee, self.made_apart = setting.referee, bool(setting.referee) and not setting.gpu
        self._failed_starts = dict.fromkeys(self.checkouts, 0)
        self._left: dict[str, list[str]] = {}

    def __enter__(self) -> WorkerPools:
        return self

    def __exit__(self, kind: Any, *_: object) -> None:
        try:
            if kind is None:
                self.quiet.pause()
                for pool in self.pools.values():
                    pool.quit()
                for pool in self.pools.values():
                    pool.close()
        finally:
            for pool in self.pools.values():
                pool.kill()
            self.notes += [_ended(role, names) for role, names in self._left.items() if names]

    def ready(self, roles: Iterable[str]) -> None:
        """Have a live pool for every role, or its failure in `lost`; all missing ones start at once."""
        missing = [role for role in roles if role not in self.lost and not self._alive(role)]
        while missing:
            self.quiet.pause()
            begun = [role for role in (missing[:1] if self._undecided() else missing) if self._begin(role)]
            for role in begun:
                self._joined(role)
            missing = [role for role in missing if role not in self.lost and not self._alive(role)]

    def compiled(self, case: str) -> None:
        """Wait until what a case launches is compiled, as far as it is compiled ahead."""
        s = self.setting
        if s.ahead:
            s.ledger.sent(self, "fill", {})
            try:
                s.ahead.wait(s.kernel, case, self.quiet)
            finally:
                s.ledger.answered(self)

    def tops(self, role: str) -> list[str]:
        """See CheckoutCode.tops."""
        return self.checkouts[role].code.tops

    def look_at(self, role: str, answers: Iterable[Mapping[str, Any]]) -> None:
        """Take what the ranks of a checkout say they have run."""
        code, module = self.checkouts[role].code, self.setting.modules[role]
        for answer in answers:
            found = code.ran(module, answer["files"], answer["foreign"])
            self.ran.setdefault(role, {}).update(found.files)
            if found.fault:
                self.strayed.setdefault(role, found.fault)

    def _undecided(self) -> bool:
        """Whether the next processes have to find out where the heap is best."""
        return self.setting.gpu and self.setting.world > 1 and self._heap == "auto"

    def _alive(self, role: str) -> bool:
        return role in self.pools and self.pools[role].lives()

    def _begin(self, role: str) -> bool:
        checkout, s = self.checkouts[role], self.setting
        python, label = checkout.python, f"{s.kernel}.{role.replace(' ', '.')}"
        try:
            with starting.ready(python):
                variables, left = s.variables(self._heap), self._left.setdefault(role, [])
                of_session = s.ledger, left, self.quiet
                pool = WorkerPool(label, python, checkout.path, s.world, s.directory, variables, *of_session)
                self.pools[role] = pool
        except OSError as error:
            self._start_failed(role, Failure(Status.ERROR, f"cannot start {python}: {error}"))
            return False
        cores = s.cores if role in s.modules else ()  # what makes references is not timed
        ranks = [
            {
                "rank": rank,
                "device": f"cuda:{rank}" if s.gpu else "cpu",
                "core": cores[rank % len(cores)] if cores else None,
            }
            for rank in range(s.world)
        ]
        pool.post("start", START_S, "join", per_rank=ranks, **s.request(role))
        return True

    def _joined(self, role: str) -> None:
        try:
            answers = self.pools[role].collect()
        except (StepFailed, PoolDied) as error:
            self.pools[role].kill()
            self._start_failed(role, error.failure)
            return
        self._failed_starts[role] = 0
        self.heaps[role], self.tuning[role] = answers[0].get("heap") or {}, answers[0].get("tuning", [])
        self.flush_s = max(self.flush_s, *(answer["flush_s"] for answer in answers))
        self.dispatch = answers[0].get("dispatch") or self.dispatch
        self._heap = self.heaps[role].get("home", self._heap) if self._undecided() else self._heap
        for rank, answer in enumerate(answers):
            note = f"{role}, rank {rank}: no symmetric heap: {answer['no_heap']}"
            if answer["no_heap"] and note not in self.notes:
                self.notes.append(note)

    def _start_failed(self, role: str, failure: Failure) -> None:
        self._failed_starts[role] += 1
        if failure.status == Status.CRASH and self._undecided():
            self._heap = "ipc"  # torch's home comes first, and on some ROCm builds a fault in it ends the process
            self.notes.append(f"{role}: while the homes of the heap were tried, {failure.why}; now with --heap ipc")
        if self._failed_starts[role] >= STARTS or failure.status != Status.CRASH:
            self.lost[role] = dataclasses.replace(failure, why=f"its processes could not start: {failure.why}")


class FillingProcess:
    """A process of a checkout that compiles, with its device untouched (session.ahead.LaunchCompiler).

    device: what every request tells of it.
    """

    def __init__(self, checkout: Checkout, directory: Path, device: Mapping[str, Any], quiet: Quiet) -> None:
        self._checkout, self._directory, self._device, self._quiet = checkout, directory, device, quiet
        self._pool: WorkerPool | None = None
        self._failures = 0

    def ask(self, op: str, **fields: Any) -> Any:
        """The answer; None where there is none.  A process that ended is started again, STARTS times."""
        if self._failures > STARTS:
            return None
        try:
            pool = self._started()
            return pool.ask(f"compiling ahead ({op})", FILL_S, op, **fields, **self._device)[0]
        except StepFailed:
            return None
        except (PoolDied, OSError):
            self._failures, self._pool = self._failures + 1, None
            return None

    def _started(self) -> WorkerPool:
        if self._pool is None:
            where, label = self._checkout.path, f"compiling.{os.urandom(4).hex()}"
            rest = VARIABLES, None, None, self._quiet
            self._pool = WorkerPool(label, self._checkout.python, where, 1, self._directory, *rest)
        return self._pool

    def close(self) -> None:
        """End it."""
        if self._pool:
            self._pool.kill()


@contextlib.contextmanager
def started(
    label: str, python: str, checkout: Path, world: int, directory: Path, variables: Mapping[str, str] | None = None
) -> Iterator[WorkerPool]:
    """Processes that are asked something, and have ended on leaving.  OSError if there is no such Python."""
    pool: WorkerPool | None = None
    try:
        with starting.ready(python):
            pool = WorkerPool(label, python, checkout, world, directory, variables)
        yield pool
    finally:
        if pool:
            pool.kill()


def referee_process(python: str, directory: Path, ledger: SecondsLedger) -> WorkerPool:
    """A process that imports the harness alone."""
    with starting.ready(python):
        return WorkerPool("referee", python, HARNESS, 1, directory, VARIABLES, ledger)


def _ended(role: str, names: Sequence[str]) -> str:
    """What is said about processes that outlived those that started them."""
    return f"{role}: processes that a backend left running were ended: {', '.join(sorted(names))}"


def make_directories() -> Path:
    """A directory for logs and stores, with a link `shm` to a directory in memory."""
    directory = Path(tempfile.mkdtemp(prefix="ridgeline-"))
    try:
        (directory / "shm").symlink_to(tempfile.mkdtemp(prefix="ridgeline-", dir="/dev/shm"))
    except OSError:
        return directory
    return directory


def remove_directories(directory: Path) -> None:
    """Remove both directories."""
    link = directory / "shm"
    if link.is_symlink():
        shutil.rmtree(link.resolve(), ignore_errors=True)
    shutil.rmtree(directory, ignore_errors=True)
