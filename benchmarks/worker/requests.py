"""What a measuring process can be asked to do; every `do_` method is one request and returns JSON values."""

from __future__ import annotations

import gc
import importlib
import os
import sys
from pathlib import Path
from typing import Any

SPEC_VERSIONS = (1,)
"""Versions of kernels/spec.py whose declarations this harness can measure."""


class MissingHeap:
    """Stands where the symmetric heap would be; whoever needs it learns why there is none."""

    def __init__(self, why: str) -> None:
        self._why = why

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no symmetric heap here: {self._why}")


class Service:
    """The state of one measuring process."""

    def __init__(self, tree: str) -> None:
        self._tree = Path(tree)
        self._bench: Any = None
        self._heap: Any = None

    # ---- describing a tree ---------------------------------------------------------------------------------------

    def do_probe(self) -> dict[str, Any]:
        """Devices and versions of this Python; torch may be absent."""
        from benchmarks.worker import probe

        return {"devices": probe.devices(), "environment": probe.environment()}

    def do_declare(
        self, crumb: str, refuse: dict[str, str], place: dict[str, Any], protocol: dict[str, Any]
    ) -> dict[str, Any]:
        """Every kernel of the tree, as JSON; see benchmarks/declare.py."""
        from benchmarks.worker import declare

        self._refuse_other_contracts()
        return declare.declarations(self._tree, Path(crumb), refuse, place, protocol)

    # ---- getting ready -------------------------------------------------------------------------------------------

    def do_join(
        self,
        module: str,
        kernel: str,
        rank: int,
        world: int,
        device: str,
        arch: str,
        compute_units: int | None,
        threads: int,
        sweep_bytes: int,
        store: str,
        heap_bytes: int,
        heap_directory: str,
    ) -> dict[str, Any]:
        """Take a place among the ranks and import the kernel's module."""
        self._refuse_other_contracts()
        import torch

        from benchmarks.worker import arms as bench
        from benchmarks.worker import clocks

        torch.set_num_threads(threads)
        gpu = device != "cpu"
        if gpu:
            torch.cuda.set_device(torch.device(device))
        if world > 1:
            _meet(rank, world, device, store)
        why = self._make_heap(rank, world, device, heap_bytes, heap_directory) if world > 1 else ""
        barrier = self._barrier(device) if world > 1 else None
        self._clock = (
            clocks.DeviceClock(torch.device(device), sweep_bytes, barrier)
            if gpu
            else clocks.HostClock(sweep_bytes, barrier)
        )
        spec = importlib.import_module("kernels.spec")
        self._place = spec.Place(rank, world, device, arch, compute_units, MissingHeap(why) if why else self._heap)
        self._numerics = bench.harness_numerics()
        if gpu:
            _wake_libraries(device)
        self._kernel = _kernel(importlib.import_module(module), kernel, spec.Kernel)
        gc.collect()
        gc.freeze()  # the modules stay: later collections need not look at them
        return {"no_heap": why, "threads": torch.get_num_threads()}

    # ---- one case ------------------------------------------------------------------------------------------------

    def do_case(self, case: str, seed: int, copies: int) -> None:
        """Forget the case before, make the inputs and the reference of this one."""
        from benchmarks.worker import arms as bench

        self.do_close()
        self._bench = bench.Bench(
            self._kernel, self._kernel.case(case).at(self._place), seed, copies, self._clock, self._numerics
        )
        self._bench.make_reference()

    def do_close(self) -> None:
        """Forget the case and free its memory."""
        import torch

        self._bench = None
        gc.collect()
        if self._heap is not None:
            self._heap.reset()
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()

    def do_build(self, backend: str, overrides: dict[str, Any]) -> dict[str, Any]:
        """Set up an arm; returns its knobs."""
        return self._bench.build(backend, overrides)

    def do_call(self, backend: str) -> dict[str, float]:
        """First call of an arm."""
        return self._bench.call(backend)

    def do_poison(self, backend: str) -> None:
        """Spoil an arm's outputs."""
        self._bench.poison(backend)

    def do_check(self, backend: str) -> dict[str, Any]:
        """Launch and compare with the reference."""
        return self._bench.check(backend)

    def do_trace(self, backend: str) -> str | None:
        """Digest of the code an arm launches."""
        return self._bench.trace(backend)

    def do_capture(self, backend: str, calls: int) -> str:
        """Capture an arm in a graph; returns why it cannot be, or ""."""
        from benchmarks.worker import arms as bench

        try:
            self._bench.capture(backend, calls)
        except bench.CaptureFailed as error:
            return str(error)
        return ""

    def do_samples(self, order: list[str], warm_up: bool) -> dict[str, Any]:
        """Take one sample of each, in that order."""
        return self._bench.samples(order, warm_up)

    def do_drop(self, backend: str) -> None:
        """Forget an arm, if it got as far as being one."""
        if self._bench is not None:
            self._bench.drop(backend)
        gc.collect()

    def do_quit(self) -> None:
        """Give back what others share."""
        self._bench = None
        gc.collect()
        if self._heap is not None:
            self._heap.close()

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _refuse_other_contracts(self) -> None:
        from benchmarks.worker.failures import Refused

        spec = importlib.import_module("kernels.spec")
        version = getattr(spec, "SPEC_VERSION", None)
        if version not in SPEC_VERSIONS:
            raise Refused(
                "error",
                f"{spec.__file__} has contract version {version!r}; this harness measures "
                f"{', '.join(map(str, SPEC_VERSIONS))}: start the run from a tree that knows it",
            )

    def _make_heap(self, rank: int, world: int, device: str, size: int, directory: str) -> str:
        """Make the symmetric heap on all ranks or on none; returns why there is none."""
        import torch
        import torch.distributed as dist

        why = ""
        try:
            module = importlib.import_module("kernels.symmetric_heap")
            self._heap = module.create(rank, world, device, size, directory=directory)
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
        made = torch.tensor([0 if why else 1], device=device)
        dist.all_reduce(made, op=dist.ReduceOp.MIN)
        if int(made.item()) == 0:
            self._heap = None
            return why or "another rank could not make it"
        return ""

    def _barrier(self, device: str) -> Any:
        """What lets the ranks meet before a sample: on a GPU enqueued, never waited for by the host."""
        import torch
        import torch.distributed as dist

        if self._heap is not None:
            return self._heap.barrier
        if device == "cpu":
            return dist.barrier
        token = torch.zeros(1, device=device)
        return lambda: dist.all_reduce(token)


def _meet(rank: int, world: int, device: str, store: str) -> None:
    """The default process group, over a store of its own."""
    import torch
    import torch.distributed as dist

    os.environ.setdefault("LOCAL_RANK", str(rank))
    backend = "gloo" if device == "cpu" else "nccl"
    dist.init_process_group(
        backend,
        store=dist.FileStore(store, world),
        rank=rank,
        world_size=world,
        device_id=None if device == "cpu" else torch.device(device),
    )
    token = torch.zeros(1, device=device)
    dist.all_reduce(token)  # connect now, not in the first sample


def _wake_libraries(device: str) -> None:
    """Let the BLAS library and Triton make their handles now: it is nobody's first-call work."""
    import torch

    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        square = torch.ones(64, 64, dtype=dtype, device=device)
        torch.mm(square, square)
    try:
        driver = importlib.import_module("triton.runtime").driver
        driver.active.get_current_target()
    except Exception as error:  # without Triton its backends say so themselves
        print(f"Triton is not ready: {type(error).__name__}: {error}", file=sys.stderr)
    torch.cuda.synchronize(device)


def _kernel(module: Any, name: str, kind: type) -> Any:
    for value in vars(module).values():
        if isinstance(value, kind) and value.name == name:
            return value
    raise RuntimeError(f"module {module.__name__} declares no kernel {name!r} any more")
