"""What a measuring process can be asked to do: `do_` methods of Service and the steps of arms.CaseBench.

Requests and answers are JSON values.
"""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..channel import Refused, first_line
from ..naming import contract, our
from ..shapes import Json, JsonObject

SPEC_VERSIONS = (1,)
"""Versions of kernels/spec.py whose declarations this harness can measure."""


CASE_STEPS = ("build", "tune", "call", "poison", "check", "trace", "capture", "samples", "burst", "whole", "drop")
"""Requests that go to the arms of the current case."""

GUARDED = (*CASE_STEPS, "case")
"""Requests in which an operator's code runs beside that of others."""

COMPARED = ("case", "build", "tune", "call", "check")
"""Of these, those around which the comparison itself is tried on tensors whose difference is known."""


class MissingHeap:
    """Takes the place of the symmetric heap; whoever uses it gets the reason why there is none."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no symmetric heap here: {self._why}")


@dataclasses.dataclass(frozen=True)
class Joining:
    """What a rank is told when it joins.  store: file in which the ranks meet.  core: see probe.settle_on."""

    rank: int
    world: int
    device: str
    arch: str
    compute_units: int | None
    threads: int
    flush_bytes: int
    heap_bytes: int
    store: str
    heap_directory: str
    core: int | None = None

    @property
    def gpu(self) -> bool:
        """Whether the rank has a GPU."""
        return self.device != "cpu"


class Service:
    """The state of one measuring process.  channel: on which a script talks while it runs."""

    def __init__(self, checkout: str, ran: Any, channel: Any = None) -> None:
        self._checkout, self._ran, self._channel = Path(checkout), ran, channel
        self._bench: Any = None
        self._made: tuple[str, int, int] | None = None
        self._heap: Any = None
        self._arms: Any = None
        self._guards: Any = None
        self._known_pair: Any = None
        self._served: Any = None

    def perform(self, op: str, fields: Json) -> Any:
        """Do what a request asks for; returns its result.

        Refused if what an operator did in it changes what all arms of the process are measured and compared with.
        """
        if self._guards is None or op not in GUARDED:
            return self._performed(op, fields)
        before = self._guards.settings_now()
        try:
            return self._performed(op, fields)
        finally:
            found = self._guards.settings_disturbed(before) or self._clock.disturbed()
            if found := found or (op in COMPARED and self._known_pair.disturbed()):
                raise Refused("error", found, fatal=True)

    def _performed(self, op: str, fields: Json) -> Any:
        if op not in CASE_STEPS:
            return getattr(self, f"do_{op}")(**fields)
        if self._bench is None and op == "drop":  # the case failed before there was an arm
            return None
        return getattr(self._bench, op)(**fields)

    # ---- describing a checkout -----------------------------------------------------------------------------------

    def do_probe(self) -> JsonObject:
        """Devices and versions of this Python; torch may be absent."""
        from . import probe

        return {"devices": probe.devices(), "environment": probe.environment()}

    def do_declare(self, **asked: Any) -> JsonObject:
        """Every kernel of a module of the checkout, as JSON; see benchmarks/worker/declare.py."""
        from . import declare

        self._refuse_other_contracts()
        return declare.declarations(**asked)

    def do_candidates(self, **asked: Any) -> list[JsonObject]:
        """What a sweep could try; see benchmarks/worker/declare.py."""
        from . import declare

        self._refuse_other_contracts()
        return declare.listed(**asked)

    def do_bringup(self, probe: str, place: JsonObject) -> list[JsonObject]:
        """The rows of a step of the bring-up; probe: a function of benchmarks.bringup.probes."""
        sys.modules["benchmarks"] = our("benchmarks")  # its probes are ours, and no project's code is imported
        kind = importlib.import_module("benchmarks.bringup").RankPlace
        rows: list[JsonObject] = getattr(importlib.import_module("benchmarks.bringup.probes"), probe)(kind(**place))
        return rows

    def do_script(self, core: int | None, **asked: Any) -> JsonObject:
        """Run a user's script to its end (benchmarks/worker/scripts), which is the answer to the last request.

        At each timer it answers the one before, and takes the next.  core: see probe.settle_on.
        """
        our("benchmarks.worker.probe").settle_on(core)
        found: JsonObject = our("benchmarks.worker.scripts.running").run(**asked, channel=self._channel)
        return found

    def do_serve(self, by: str, what: str, asked: JsonObject) -> Any:
        """What a class of ours answers in its method `what`; there is one of it, for the life of the process.

        by: its full name.  With the device untouched it compiles (benchmarks.isa.worker), without one it executes.
        """
        if self._served is None:
            self._refuse_other_contracts()
            module, _, name = by.rpartition(".")
            self._served = getattr(our(module), name)(self._checkout)
        return getattr(self._served, what)(**asked)

    # ---- getting ready -------------------------------------------------------------------------------------------

    def do_join(self, module: str, kernel: str, renamed: Mapping[str, str], **joining: Any) -> JsonObject:
        """Take a place among the ranks and import the kernel's module.  renamed: see declare.under_current_names."""
        self._refuse_other_contracts()
        arms = self._bound()
        torch = arms.torch
        from . import bound, declare, guards

        self._numerics = arms.harness_numerics()
        bound.WATCH.ours()
        ranks = Joining(**joining)
        our("benchmarks.worker.probe").settle_on(ranks.core)
        torch.set_num_threads(ranks.threads)
        if ranks.gpu:
            torch.cuda.set_device(torch.device(ranks.device))
        if ranks.world > 1:
            _meet(ranks)
        why = self._make_heap(ranks) if ranks.world > 1 else ""
        self._clock = self._make_clock(ranks)
        spec = contract("spec")
        heap = MissingHeap(why) if why else self._heap
        self._place = spec.Place(ranks.rank, ranks.world, ranks.device, ranks.arch, ranks.compute_units, heap)
        if ranks.gpu:
            _initialise_libraries(ranks.device)
        self._known_pair = guards.KnownPair(self._numerics, ranks.device)
        before = guards.settings_now()
        self._kernel = declare.import_kernel(module, kernel, renamed)
        if found := guards.settings_disturbed(before):
            raise Refused("error", f"on the import of {module} {found}")
        self._guards = guards
        self._backends = self._kernel.backends
        gc.collect()
        gc.freeze()  # the modules stay: later collections need not look at them
        facts = getattr(self._heap, "facts", {})
        return {"no_heap": why, "heap": facts, "flush_s": self._clock.flush_s}

    # ---- one case ------------------------------------------------------------------------------------------------

    def do_case(
        self, case: str, seed: int, copies: int, without: Sequence[str] = (), keep: bool = False, secret: int = 0
    ) -> None:
        """Forget the case before, make the inputs and the reference of this one; keep: unless they are there.

        secret: see arms.CaseBench.
        without: backends that ended or hung a process in this case, hidden from one that tries all others itself.
        """
        self._kernel.backends = {name: one for name, one in self._backends.items() if name not in without}
        if keep and self._made == (case, seed, copies):
            self._bench.forget_arms()
            return
        self._forget()
        placed = self._kernel.case(case).at(self._place)
        self._bench = self._bound().CaseBench(self._kernel, placed, seed, copies, self._clock, self._numerics, secret)
        self._bench.make_reference()
        self._made = (case, seed, copies)

    def do_ran(self, tops: Sequence[str]) -> JsonObject:
        """What has been run or read of the repository since this was last asked; see ran.RanFiles."""
        found: JsonObject = self._ran.new(tops)
        return found

    # ---- leaving -------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        """Forget the case and free its memory."""
        self._bench = self._made = None
        gc.collect()
        if self._heap is not None:
            self._heap.reset()
        cuda = self._bound().torch.cuda
        if cuda.is_initialized():
            cuda.empty_cache()

    def do_quit(self) -> None:
        """Release what is shared with others."""
        self._bench = None
        gc.collect()
        if self._heap is not None:
            self._heap.close()

    def _bound(self) -> Any:
        """benchmarks.worker.arms, and by it torch; kept, because foreign code may clear sys.modules."""
        if self._arms is None:
            self._arms = our("benchmarks.worker.arms")
        return self._arms

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _refuse_other_contracts(self) -> None:
        spec = contract("spec")
        version = getattr(spec, "SPEC_VERSION", None)
        if version not in SPEC_VERSIONS:
            raise Refused(
                "error",
                f"{spec.__file__} has contract version {version!r}; this harness measures "
                f"{', '.join(map(str, SPEC_VERSIONS))}: start the run from a checkout that knows it",
            )

    def _make_clock(self, ranks: Joining) -> Any:
        import torch

        from . import clocks

        barrier = self._barrier(ranks.device) if ranks.world > 1 else None
        if ranks.gpu:
            return clocks.DeviceClock(torch.device(ranks.device), ranks.flush_bytes, barrier)
        return clocks.HostClock(ranks.flush_bytes, barrier)

    def _make_heap(self, ranks: Joining) -> str:
        """Make the symmetric heap on all ranks or on none; returns why there is none."""
        import torch
        import torch.distributed as dist

        why = ""
        try:
            module = contract("symmetric_heap")
            self._heap = module.create(
                ranks.rank, ranks.world, ranks.device, ranks.heap_bytes, directory=ranks.heap_directory
            )
        except Exception as error:
            why = f"{type(error).__name__}: {first_line(error)}"
        made = torch.tensor([0 if why else 1], device=ranks.device)
        dist.all_reduce(made, op=dist.ReduceOp.MIN)
        if int(made.item()) == 0:
            self._heap = None
            return why or "another rank could not make it"
        return ""

    def _barrier(self, device: str) -> Any:
        """What synchronises the ranks before a sample: on a GPU it is enqueued, the host never waits for it."""
        import torch
        import torch.distributed as dist

        if self._heap is not None:
            return self._heap.barrier
        if device == "cpu":
            return dist.barrier
        token = torch.zeros(1, device=device)
        return lambda: dist.all_reduce(token)


def _meet(ranks: Joining) -> None:
    """Make the default process group, and connect it."""
    import torch
    import torch.distributed as dist

    from . import probe

    os.environ.setdefault("LOCAL_RANK", str(ranks.rank))
    probe.make_process_group(ranks.rank, ranks.world, ranks.device, ranks.store)
    dist.all_reduce(torch.zeros(1, device=ranks.device))  # connect now, not in the first sample


def _initialise_libraries(device: str) -> None:
    """Let the BLAS library and Triton make their handles now, so that no backend's first call does it."""
    import torch

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        square = torch.ones(64, 64, dtype=dtype, device=device)
        torch.mm(square, square)
    try:
        driver = importlib.import_module("triton.runtime").driver
        driver.active.get_current_target()
    except Exception as error:  # its backends report a missing Triton themselves
        print(f"Triton is not ready: {type(error).__name__}: {error}", file=sys.stderr)
    torch.cuda.synchronize(device)
