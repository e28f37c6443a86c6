"""Pick the fastest right way for a case: every other backend, and a few knobs of the Triton kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import torch

from kernels.grouped_gemm import tuning
from kernels.numerics import compare, poison
from kernels.spec import Case, Kernel, Unsupported

TRITON_POINTS = 4
"""Knob settings of `triton` that are tried: the first of `candidates`; each costs a compilation of seconds."""

REPEATS = 7


def best(kernel: Kernel, case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """The fastest callable whose output is right; its attribute `choice` names the backend and its knobs.

    Runs in set-up, so neither trials nor compilations are ever timed.  Unsupported if no backend is right.
    """
    timed = sorted(((_seconds(call, case), name, call) for name, call in _ways(kernel, case, inputs)),
                   key=lambda way: way[0])
    expected = kernel.function("reference")(case, inputs)
    for _, name, call in timed:
        poison(call())
        if compare(call(), expected, kernel.tolerance_for(case)).ok:
            def chosen(call: Callable[[], Any] = call) -> Any:
                return call()
            chosen.choice = name  # type: ignore[attr-defined]
            return chosen
    tried = ", ".join(name for _, name, _ in timed) or "none"
    raise Unsupported(f"no backend computes {case.name} rightly here; tried: {tried}")


def _ways(kernel: Kernel, case: Case, inputs: dict[str, torch.Tensor]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, backend in kernel.backends.items():
        if name == "autotune":
            continue
        product = kernel.name.rsplit("_", 1)[1]
        points = tuning.candidates(case, case.place.arch, product)[:TRITON_POINTS] if name == "triton" else [{}]
        for knobs in points:
            try:
                call = backend.build(case, inputs, **knobs)
                call()
            except (Unsupported, ValueError):
                continue
            yield f"{name}{_differences(knobs, points[0])}", call


def _differences(knobs: dict[str, Any], default: dict[str, Any]) -> str:
    return "".join(f" {key}={value}" for key, value in knobs.items() if value != default[key])


def _seconds(call: Callable[[], Any], case: Case) -> float:
    """Median time of a call in seconds, by events on a GPU and by the host's clock on a CPU."""
    times = []
    for _ in range(REPEATS):
        if case.place.device == "cpu":
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        else:
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            call()
            after.record()
            after.synchronize()
            times.append(before.elapsed_time(after) / 1e3)
    return sorted(times)[REPEATS // 2]
