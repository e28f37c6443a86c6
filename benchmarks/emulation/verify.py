"""Is every backend right on MI300X and MI355X, as far as an emulator on a CPU can say?  No GPU, and no times.

The code that a launch compiles to is executed in small cases (cases.py) by two processes, and compared as `ridgeline
verify` does on a GPU.  What came of a case is kept as there, by the digests of its code and of ours.
"""

from __future__ import annotations

import datetime
import os
import queue
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatch
from importlib.util import find_spec
from pathlib import Path

from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.orders import Report, of_format
from benchmarks.emulation.code_object import TARGETS
from benchmarks.isa.compile import environment
from benchmarks.isa.pool import CompileProcess, CompileSetting, Ended, Limits
from benchmarks.plan import UsageError, unknown_kernel
from benchmarks.reach.code import of_harness
from benchmarks.shapes import Json, JsonObject, clean
from benchmarks.trial_file import Status
from benchmarks.verify import FORMAT, VERSION, settled

PROCESSES = 2
"""Executing ones: each imports torch, Triton and the decoder (3 s of CPU), and takes 0.6 GB."""

CASE_S, LIST_S, MEMORY_MB = 300.0, 120.0, 6000
"""Limits of one case, of listing all, and of a process."""

NEEDED = ("tinygrad", "msgpack")
"""Modules of the extra `emulate` without which nothing is executed."""

MODULE = "benchmarks.emulation.worker"


class ExecutingProcess(CompileProcess):
    """One executing process."""

    what = "executing"


def missing() -> str:
    """What to install before anything can be executed, "" if all is there."""
    absent = [name for name in NEEDED if find_spec(name) is None]
    return f"{', '.join(absent)} not installed: pip install 'ridgeline[emulate]'" if absent else ""


def verify(
    kernels: Sequence[str],
    checkout: Checkout,
    out: Path,
    arches: Sequence[str],
    cases: Sequence[str] = (),
    backends: Sequence[str] = (),
    on_progress: Report | None = None,
) -> Iterator[tuple[JsonObject, bool]]:
    """(line of a case, whether it is new): what `out` knows already, then what is left, for the caller to append.

    Lines as of benchmarks.verify, with `emulated` (the target) beside them and, in each arm, `instructions` that waves
    executed and CPU `seconds`.  cases: patterns.  Raises UsageError or CheckoutError before anything is executed.
    """
    if why := missing():
        raise UsageError(why)
    if unknown := [arch for arch in arches if arch not in TARGETS.values()]:
        raise UsageError(f"--arch {unknown[0]}: executed are {', '.join(TARGETS.values())}")
    with tempfile.TemporaryDirectory(prefix="ridgeline-emulation-") as folder:
        pool = _Pool(checkout, Path(folder), (list(kernels), list(backends), list(arches)))
        yield from pool.lines(out, cases, on_progress or (lambda event: None))


class _Pool:
    """The processes, and what they listed."""

    def __init__(self, checkout: Checkout, scratch: Path, choice: tuple[list[str], list[str], list[str]]) -> None:
        self._checkout, self._scratch = checkout, scratch
        self._asked = dict(zip(("kernels", "backends", "arches"), choice, strict=True))
        self._listing: JsonObject = {}
        self._processes: list[ExecutingProcess] = []

    def lines(self, out: Path, patterns: Sequence[str], report: Report) -> Iterator[tuple[JsonObject, bool]]:
        """See verify."""
        report({"done": 0, "total": 0, "what": "listing small cases"})
        first = self._ready()
        try:
            for name in self._asked["kernels"]:
                if name not in self._listing["known"] and not self._listing["broken"]:
                    raise unknown_kernel(name, self._listing["known"])
            chosen = [
                (index, case)
                for index, case in enumerate(self._listing["cases"])
                if not patterns or any(fnmatch(case["case"], pattern) for pattern in patterns)
            ]
            if self._listing["without"]:
                names = ", ".join(self._listing["without"])
                print(f"not executed: {names}: of several ranks, or without a small case", file=sys.stderr)
            about = {(case["kernel"], case["arch"]): self._about(case["kernel"], case["arch"]) for _, case in chosen}
            left = []
            known = {arch: self._known(out, about, arch) for arch in {arch for _, arch in about}}
            for index, case in chosen:
                line = known[case["arch"]].get((case["kernel"], case["case"]), {"arms": {}})
                if case["backend"] in line["arms"]:
                    yield {**line, "arms": {case["backend"]: line["arms"][case["backend"]]}}, False
                else:
                    left.append((index, case))
            for case, arm in self._executed(first, left, report):
                yield self._line(case, arm, about[case["kernel"], case["arch"]]), True
        finally:
            first.kill()

    @staticmethod
    def _known(out: Path, about: dict[tuple[str, str], JsonObject], arch: str) -> dict[tuple[str, str], JsonObject]:
        holds_for = {kernel: facts["holds_for"] for (kernel, other), facts in about.items() if other == arch}
        return settled(of_format(out, FORMAT, VERSION), holds_for)

    def _executed(
        self, first: ExecutingProcess, left: Sequence[tuple[int, JsonObject]], report: Report
    ) -> Iterator[tuple[JsonObject, JsonObject]]:
        """(case, its arm) as they are done, in any order."""
        waiting, done = deque(left), queue.SimpleQueue[tuple[JsonObject, JsonObject]]()
        count = min(PROCESSES, len(left), os.cpu_count() or 1)
        threads = [
            threading.Thread(target=self._work, args=(waiting, done.put, process), daemon=True)
            for process in (first, *[None] * (count - 1))[:count]
        ]
        for thread in threads:
            thread.start()
        try:
            for number in range(len(left)):
                case, arm = done.get()
                what = f"{case['kernel']}/{case['backend']} on {case['arch']}"
                report({"done": number + 1, "total": len(left), "what": what})
                yield case, arm
        finally:
            waiting.clear()
            for process in self._processes:
                process.kill()
            for thread in threads:
                thread.join()

    def _work(
        self,
        waiting: deque[tuple[int, JsonObject]],
        tell: Callable[[tuple[JsonObject, JsonObject]], None],
        process: ExecutingProcess | None,
    ) -> None:
        """Execute what is left; a process that died is replaced."""
        own = process
        while waiting:
            try:
                index, case = waiting.popleft()
            except IndexError:  # another one was quicker
                break
            try:
                own = own or self._ready()
                arm = own.ask({"op": "execute", "index": index}, Limits(CASE_S, MEMORY_MB))
                ok = arm.pop("ok")
                tell((case, arm if ok else {"status": Status.ERROR, "why": arm["why"]}))
            except (Ended, CheckoutError) as end:
                if own:
                    own.kill()
                own = None
                tell((case, {"status": Status.HANG if "longer than" in str(end) else Status.CRASH, "why": str(end)}))
        if own and own is not process:
            own.kill()

    def _ready(self) -> ExecutingProcess:
        """A process that has listed the cases.  CheckoutError if it cannot."""
        tree = self._checkout.path
        setting = CompileSetting(tree, self._scratch, self._checkout.python, variables=self._variables())
        process = ExecutingProcess((MODULE, str(tree), str(self._scratch)), setting, self._checkout.code, self._scratch)
        self._processes.append(process)
        try:
            listing = process.ask({"op": "list", **self._asked}, Limits(LIST_S, MEMORY_MB))
            if not listing.pop("ok"):
                raise Ended(listing["why"])
        except Ended as end:
            process.kill()
            raise CheckoutError(f"the small cases of {tree} could not be listed: {end}") from None
        self._listing = self._listing or listing
        return process

    def _variables(self) -> dict[str, str]:
        """A clean environment, with lines of the source in the code and a cache of Triton that is thrown away."""
        kept = {name: value for name, value in environment(os.environ).items() if name != "TRITON_DISABLE_LINE_INFO"}
        return {**kept, "TRITON_CACHE_DIR": str(self._scratch / "triton"), "OMP_NUM_THREADS": "1"}

    def _about(self, kernel: str, arch: str) -> JsonObject:
        code = self._checkout.code
        module = self._listing["kernels"][kernel]["module"]
        holds_for = {
            "kernel_digest": code.digest(module),
            "looks_at": code.environment(module),
            "ridgeline": of_harness(),
            "broken": self._listing["broken"],
            "environment": self._listing["environment"],
            "machine": f"emulated-{arch}",
            "seed": 0,
            "knobs": {},
        }
        known = {"commit": self._checkout.commit, "dirty": self._checkout.dirty, "broken": self._listing["broken"]}
        return {**known, "device": f"an emulator of {arch} on a CPU", "holds_for": clean(holds_for)}

    def _line(self, case: Json, arm: Json, about: Json) -> JsonObject:
        line = {
            "format": FORMAT,
            "version": VERSION,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{key: case[key] for key in ("kernel", "tier", "world", "dtype", "case")},
            "baselines": self._listing["kernels"][case["kernel"]]["baselines"],
            "arms": {case["backend"]: dict(arm)},
            "emulated": case["arch"],
            **about,
        }
        return clean(line)
