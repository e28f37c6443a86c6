"""Run one process per rank for a test: a function of a test module, called as function(rank, world, directory).

The processes are forked from one that has imported torch, which takes 2 s each time, and nothing else: Triton decides
as it is imported whether it interprets.
"""

from __future__ import annotations

import importlib
import inspect
import multiprocessing
import os
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[2]
PATH = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))

HANGS_S = 3600.0
"""The longest call takes 155 s on an idle machine, and more than 900 s at a load of 15 on two cores (2026-11-28)."""

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "torch.distributed"])


def run_ranks(module, function, world, directory, timeout_s=HANGS_S, **env):
    """stdout of every rank; an AssertionError with the output of all that failed.

    The ranks share `directory`, which is empty, as their meeting place.
    """
    ranks = [(rank, world, str(directory)) for rank in range(world)]
    return _outputs(module, function, ranks, timeout_s, env)


def run_alone(module, function, *arguments, timeout_s=HANGS_S, **env):
    """stdout of one fresh process that calls a function of a test module with plain values."""
    return _outputs(module, function, [arguments], timeout_s, env)[0]


def _outputs(module, function, calls, timeout_s, env):
    """What each process prints, which makes one of the calls; an AssertionError if one fails or takes too long."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": PATH, **env}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"process {index}" for index in range(len(calls))]
        started = [
            FORKS.Process(target=_call, args=(module, function, arguments, variables, str(file)))
            for arguments, file in zip(calls, files, strict=True)
        ]
        try:
            for process in started:
                process.start()
            for process in started:
                process.join(timeout_s)
            ends = [_end(process, timeout_s) for process in started]
        finally:
            for process in started:
                process.kill()
                process.join()
        failed = [
            f"call {i}: {end}\n{_text(file)}" for i, (end, file) in enumerate(zip(ends, files, strict=True)) if end
        ]
        assert not failed, "\n".join(failed)
        return [Path(f"{file}.out").read_text() for file in files]


def _call(module, function, arguments, variables, file):
    """In the new process: its own environment and output files, then the call."""
    os.environ.clear()
    os.environ.update(variables)
    for number, suffix in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(file + suffix, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    import torch

    torch.set_num_threads(int(variables["OMP_NUM_THREADS"]))
    if variables.get("TRITON_INTERPRET") == "1":
        patch_once()
    getattr(importlib.import_module(module), function)(*arguments)


def _end(process, timeout_s):
    """How a process failed, "" if it did not."""
    if process.exitcode is None:
        return f"not done in {timeout_s:g} s"
    return f"exit code {process.exitcode}" if process.exitcode else ""


def _text(file):
    """All that a process printed."""
    return "".join(path.read_text() for path in (Path(f"{file}.out"), Path(f"{file}.err")) if path.exists())


# Triton's interpreter for tests, without work that it does again and again.
#
# It patches triton.language at the start of a launch, and at every call of a function that is no kernel once more,
# which finds everything patched already: 40 % of the time of a kernel that calls many.  Triton 3.6 to 3.9.


def patch_once():
    """Within a launch, patch each module of the language once.  In a process that interprets."""
    from triton import language
    from triton.runtime import interpreter

    _splat_bools(interpreter)
    patch, launch = interpreter._patch_lang, interpreter.GridExecutor.__call__
    patched = set()

    def patch_new(function):
        found = [value for value in function.__globals__.values() if inspect.ismodule(value)]
        seen = frozenset(one.__name__ for one in found if one in (language, language.core))
        if seen in patched:
            return None  # what a nested call would put back; it never does
        patched.add(seen)
        return patch(function)

    def launch_anew(executor, *arguments, **named):
        patched.clear()
        return launch(executor, *arguments, **named)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = patch_new, launch_anew


def _splat_bools(interpreter):
    """A comparison of two scalars stays a bool as it becomes a block.

    The interpreter calls it an int32, as its operands are, and Triton 3.9 refuses a mask of int32 ("mask has
    unsupported dtype"); compilers know no such type.
    """
    splat = interpreter.InterpreterBuilder.create_splat

    def create_splat(builder, block, scalar):
        handle = splat(builder, block, scalar)
        handle.data = handle.data.astype(bool) if scalar.data.dtype == bool else handle.data
        return handle

    interpreter.InterpreterBuilder.create_splat = create_splat


# All ranks of a world in one process, one after the other: what the interpreter's tests run on.


class FakeRanks:
    """All ranks of a world in one process: `heaps[r]` is what rank r would hold.  Barriers return at once."""

    home = "fake"

    def __init__(self, world, bytes_, device="cpu"):
        from kernels.symmetric_heap import ALIGNMENT, SymmetricHeap  # not before a process knows whether it interprets

        self.device = device
        size = -(-bytes_ // ALIGNMENT) * ALIGNMENT
        self._heaps = [torch.zeros(size, dtype=torch.uint8, device=device) for _ in range(world)]
        self.bases = [heap.data_ptr() for heap in self._heaps]
        self.heaps = [SymmetricHeap(rank, self) for rank in range(world)]

    def view(self, rank):
        return self._heaps[rank]

    def reserve(self, start, size):
        """Nothing to do: the memory is there from the start."""

    def barrier(self):
        """Nothing to wait for: the ranks run one after the other."""

    def close(self):
        self._heaps = []
