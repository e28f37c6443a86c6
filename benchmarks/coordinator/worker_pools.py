"""The processes of a session: those that compile ahead, and the worker pools of all checkouts for one kernel and one
world size, started together and restarted when one dies."""

from __future__ import annotations

import dataclasses
import os
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.coordinator import starting
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.lanes import Quiet, SecondsLedger, Stopped
from benchmarks.coordinator.ranks import VARIABLES, Failed, Failure, WorkerPool
from benchmarks.plan import HEAP_VARIABLE, PlannedCase
from benchmarks.shapes import Json, JsonObject
from benchmarks.trial_file import Status

# Compiling what the launches of a session will need, beside its trials, so that few of them wait for a compiler.
#
# Processes whose device is untouched fill Triton's cache, from the first second of measuring on, in the order in which
# the trials will ask.  A trial waits before it sets a case up until that case is compiled: the compiler would only
# start again in its own process, where one launch follows the other.  What cannot be compiled here is left to its
# launch, which says why.


MOST_PROCESSES = 12
"""Each imports an operator (a second) and compiles one launch after the other (0.3 to 7 s each: 140 s for all of
`run --tier pr`, H200, 2026-11); more of them keep the trials from starting."""

CORES_OF_A_COMPILER = 2
"""The compiler is busy with one core, the assembler that it starts with another for part of the time; the trials have
theirs beside them."""

COMPILED_LOOK_S = 0.25

FILLER = "benchmarks.isa.worker.Filler"

FILL_S = 180.0
"""How long a process may take to compile what one arm launches; the longest of ours takes 7 s (2026-11)."""


def processes(kind: str, free_cores: float) -> int:
    """How many processes compile on a machine of kind "gpu" or "cpu": none where the cores are needed for measuring."""
    return 0 if kind == "cpu" else min(MOST_PROCESSES, int(free_cores / CORES_OF_A_COMPILER) - 1)


def homes(
    kernel: str, modules: Mapping[str, Mapping[str, str]], digests: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """By role, the module that declares a kernel; one role of those in whose checkouts it has the same files."""
    same = {digests.get(role, {}).get(kernel, role): role for role in modules if kernel in modules[role]}
    return {role: modules[role][kernel] for role in same.values()}


class CompiledAhead:
    """The compilations of a session, by so many processes at a time, which end where there is nothing to compile.

    A process compiles for one operator: up to Triton 3.6 the key of a kernel depends on which kernels of the process
    that share functions with it came before, and launches look for it under the key that it has alone.

    start: a process of a checkout, by role, with its device untouched.  about: what every request tells of the device,
    by role.
    """

    def __init__(self, start: Callable[[str, Quiet], WorkerPool], about: Mapping[str, Json], count: int) -> None:
        self._start, self._about, self._stop = start, about, Quiet()
        self._executor = ThreadPoolExecutor(count, thread_name_prefix="compiles") if count > 0 else None
        self._change = threading.Condition()
        self._left = Counter[tuple[str, str]]()
        self._known: set[str] = set()
        self._idle: list[tuple[tuple[str, str], WorkerPool]] = []

    def add(self, kernel: str, modules: Mapping[str, str], cases: Sequence[PlannedCase]) -> None:
        """Compile what arms of these cases launch, unless it was added before.  modules: where each role declares it.

        Roles that are not in `modules` are left out.
        """
        if self._executor is None or kernel in self._known:
            return
        self._known.add(kernel)
        for role, module in modules.items():
            asked = [
                {"case": case.name, "backend": arm.backend, "knobs": dict(arm.overrides)}
                for case in cases
                for arm in case.arms
                if arm.role == role and not case.skip
            ]
            if asked:
                self._submit(role, {one["case"] for one in asked}, module=module, kernel=kernel, asked=asked)

    def wait(self, kernel: str, case: str, quiet: Quiet) -> None:
        """Until nothing of a case is left to compile; others of the session are timed meanwhile."""
        if self._left[kernel, case]:
            with quiet.resting(), self._change:
                while self._left[kernel, case]:
                    self._change.wait(COMPILED_LOOK_S)
                    quiet.refuse()

    def close(self) -> None:
        """End every process."""
        with self._change:
            self._stop.stop()
        if self._executor:
            self._executor.shutdown(cancel_futures=True)
        self._end_idle()

    def _submit(self, role: str, cases: Iterable[str], **fields: Any) -> None:
        """Have it done, unless the session ends: then Stopped.  cases: those that wait for it."""
        keys = [(fields["kernel"], case) for case in cases]
        with self._change:
            self._stop.refuse()
            self._left.update(keys)
            if self._executor:
                self._executor.submit(self._compile, role, keys, fields)

    def _compile(self, role: str, keys: Sequence[tuple[str, str]], fields: JsonObject) -> None:
        """List the launches of some arms, or compile one; what is listed is queued before nobody waits for this."""
        try:
            for launch in self._answer(role, "launches" if "asked" in fields else "fill", fields):
                home = {name: fields[name] for name in ("module", "kernel")}
                self._submit(role, [launch["case"]], **home, **launch)
        except Stopped:
            pass
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            print(f"not compiled ahead, its launch compiles: {why}", file=sys.stderr, flush=True)
        finally:
            with self._change:
                self._left.subtract(keys)
                self._change.notify_all()
                is_over = not self._left.total()
            if is_over:
                self._end_idle()

    def _answer(self, role: str, op: str, fields: JsonObject) -> Any:
        """The launches that a process lists; none of one that it compiled, or that fails: its launch says why."""
        key = role, fields["kernel"]
        process = self._process(key)
        try:
            own = {"by": FILLER, "what": op, "asked": {**fields, **self._about[role]}}
            [answer] = process.ask(f"compiling ahead ({op})", FILL_S, "serve", **own)
        except Failed:
            return ()
        finally:
            with self._change:
                self._idle += [(key, process)] if process.alive else []
        return answer if op == "launches" else ()

    def _process(self, key: tuple[str, str]) -> WorkerPool:
        """An idle process of a role and kernel, or a new one in place of the longest idle."""
        with self._change:
            entry = next((one for one in self._idle if one[0] == key), next(iter(self._idle), None))
            if entry:
                self._idle.remove(entry)
        if entry and entry[0] == key:
            return entry[1]
        if entry:
            entry[1].kill()
        return self._start(key[0], self._stop)

    def _end_idle(self) -> None:
        with self._change:
            idle, self._idle = self._idle, []
        for _, process in idle:
            process.kill()


# The pools of all checkouts.


STARTS = 2
"""Failed starts in a row after which a checkout is given up for this kernel and world size."""

START_S = 180.0
"""How long processes may take to import torch, meet, and make their heap."""


def launch_environment() -> dict[str, str]:
    """The environment of a measuring process with one GPU, as far as it decides where Triton looks for binaries."""
    return starting.environment() | VARIABLES


@dataclasses.dataclass(frozen=True)
class WorkerSetting:
    """What the processes of the pools are told when they join.  modules: where each role declares the kernel.  renamed:
    by role, see Checkout.

    heap: the home of the symmetric heap, "auto" where the ranks have to find out.  ledger: of the wall time.  quiet:
    who may work, where trials are side by side.  ahead: what is being compiled.  cores: of the ranks in turn, on a CPU.
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
    ledger: SecondsLedger = dataclasses.field(default_factory=SecondsLedger)
    quiet: Quiet = dataclasses.field(default_factory=Quiet)
    ahead: CompiledAhead | None = None
    cores: Sequence[int] = ()
    renamed: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)

    def request(self, role: str) -> JsonObject:
        """The request that every rank of a checkout gets.  Its heap lies in memory, where there is a place for it."""
        own = ("kernel", "world", "arch", "compute_units", "threads", "flush_bytes", "heap_bytes")
        self.directory.mkdir(parents=True, exist_ok=True)  # a kernel may have removed it
        memory = self.directory / "shm"
        heaps = tempfile.mkdtemp(prefix="heap-", dir=memory if memory.is_dir() else self.directory)
        return {
            **{name: getattr(self, name) for name in own},
            "module": self.modules[role],
            "renamed": self.renamed.get(role, {}),
            "store": str(self.directory / f"store-{os.urandom(8).hex()}"),
            "heap_directory": heaps,
        }

    def variables(self, heap: str) -> dict[str, str]:
        """The environment variables of every process."""
        if self.gpu:
            return {**VARIABLES, HEAP_VARIABLE: heap}
        return {**VARIABLES, "OMP_NUM_THREADS": str(self.threads), "GLOO_SOCKET_IFNAME": "lo"}


class WorkerPools:
    """Pools by role.  A context manager: on leaving, every process has ended.

    Every pool has its heap in the same home: where that has to be found out, the first pool does so alone.  heaps: what
    is known of it, by role.
    flush_s: seconds of a flush of the caches, the longest of all ranks.  ran: by role, what its processes ran of its
    checkout: digests by path.  strayed: by role, what they must not have run.
    """

    def __init__(self, checkouts: Iterable[Checkout], setting: WorkerSetting) -> None:
        self.checkouts = {checkout.role: checkout for checkout in checkouts}
        self.setting, self.quiet = setting, setting.quiet
        self.pools: dict[str, WorkerPool] = {}
        self.lost: dict[str, Failure] = {}
        self.notes: list[str] = []
        self.heaps: dict[str, JsonObject] = {}
        self.flush_s = 0.0
        self.ran: dict[str, dict[str, str]] = {}
        self.strayed: dict[str, str] = {}
        self._heap = setting.heap
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
            said = "processes that a backend left running were ended"
            self.notes += [f"{role}: {said}: {', '.join(sorted(names))}" for role, names in self._left.items() if names]

    def ready(self, roles: Sequence[str]) -> None:
        """Have a live pool for every role, or its failure in `lost`; all missing ones start at once."""
        while missing := [role for role in roles if role not in self.lost and not self._alive(role)]:
            self.quiet.pause()
            for role in [one for one in (missing[:1] if self._undecided() else missing) if self._begin(one)]:
                self._joined(role)

    def compiled(self, case: str) -> None:
        """Wait until what a case launches is compiled, as far as it is compiled ahead."""
        s = self.setting
        if s.ahead:
            s.ledger.sent(self, "serve", {})
            try:
                s.ahead.wait(s.kernel, case, self.quiet)
            finally:
                s.ledger.answered(self)

    def tops(self, role: str) -> list[str]:
        """See CheckoutCode.tops."""
        return self.checkouts[role].code.tops

    def look_at(self, role: str, answers: Iterable[Json]) -> None:
        """Take what the ranks of a checkout say they have run."""
        code, module = self.checkouts[role].code, self.setting.modules[role]
        for answer in answers:
            found = code.ran(module, answer["files"], answer["foreign"])
            self.ran.setdefault(role, {}).update(found.files)
            if found.fault:
                self.strayed.setdefault(role, found.fault)

    def _undecided(self) -> bool:
        """Whether the next processes have to find out where the heap works."""
        return self.setting.gpu and self.setting.world > 1 and self._heap == "auto"

    def _alive(self, role: str) -> bool:
        return role in self.pools and self.pools[role].lives()

    def _begin(self, role: str) -> bool:
        checkout, s = self.checkouts[role], self.setting
        try:
            with starting.ready(checkout.python):
                self.pools[role] = WorkerPool(
                    *(f"{s.kernel}.{role}", checkout.python, checkout.path, s.world, s.directory),
                    *(s.variables(self._heap), s.ledger, self._left.setdefault(role, []), self.quiet),
                )
        except OSError as error:
            self._start_failed(role, Failure(Status.ERROR, f"cannot start {checkout.python}: {error}"))
            return False
        ranks = [
            {
                "rank": rank,
                "device": f"cuda:{rank}" if s.gpu else "cpu",
                "core": s.cores[rank % len(s.cores)] if s.cores else None,
            }
            for rank in range(s.world)
        ]
        self.pools[role].post("start", START_S, "join", per_rank=ranks, **s.request(role))
        return True

    def _joined(self, role: str) -> None:
        try:
            answers = self.pools[role].collect()
        except Failed as error:
            self.pools[role].kill()
            self._start_failed(role, error.failure)
            return
        self._failed_starts[role] = 0
        self.heaps[role] = answers[0].get("heap") or {}
        self.flush_s = max(self.flush_s, *(answer["flush_s"] for answer in answers))
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
