"""Pick the fastest correct call for a case: from every other backend, and from a few knobs of the Triton kernel."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from kernels.grouped_gemm import config
from kernels.numerics import compare, poison
from kernels.spec import Backend, Case, Kernel, Tolerance, Unsupported

TRITON_POINTS = 5
"""Knob settings of `triton` that are tried: the first of `candidates`; each costs seconds of compilation."""

ROUNDS, FIRST_ROUNDS = 15, 5
"""Every call is timed once per round, in random order, so that a clock that falls under load favours none of them;
after the first rounds only those that may still be the fastest."""

CLOSE = 1.15
"""A call stays within this ratio to the fastest: of 1,728 medians of 5 samples 99 % were within 8 % of that of 40, and
the farthest was 13 % away (this operator, H200, 2026-11)."""

FLUSH_BYTES = 1 << 28
"""Read before each timed call: more than the caches hold."""

FLUSHES = 8
"""Reads of so much take 0.5 ms or more: the host enqueues any call meanwhile, 32 products of a loop included, so that
no launch is waited for.  With one flush a library call of one launch won over a loop that is 12 % faster (H100,
2026-11: wgrad gptoss20b_down_b4_m2048_extreme)."""


def best(kernel: Kernel, case: Case, inputs: dict[str, torch.Tensor]) -> Callable[[], Any]:
    """A callable that is the fastest correct one once it is tuned: told to (kernels.spec.TUNES), or at its first call.

    Its attribute `choice` then names the backend and its knobs.  Neither trials nor compilations are ever timed.
    Unsupported if no backend is correct.
    """
    calls = list(_calls(kernel, case, inputs))
    expected, tolerance = kernel.function("reference")(case, inputs), kernel.tolerance_for(case)
    right = [(name, call) for name, call in calls if _is_right(call, expected, tolerance)]
    if not right:
        tried = ", ".join(name for name, _ in calls) or "none"
        raise Unsupported(f"no backend computes {case.name} correctly here; tried: {tried}")
    return Fastest(right, case)


class Fastest:
    """One of some calls, by name: the fastest, once it is tuned."""

    def __init__(self, calls: Sequence[tuple[str, Callable[[], Any]]], case: Case) -> None:
        self._calls, self._case = list(calls), case
        self._chosen: Callable[[], Any] | None = None
        self.choice = ""

    def tune(self) -> None:
        """Choose; the others are forgotten."""
        self.choice, self._chosen = self._calls[_fastest([call for _, call in self._calls], self._case)]
        self.functional = getattr(self._chosen, "functional", False)
        self._calls.clear()

    def __call__(self) -> Any:
        if self._chosen is None:
            self.tune()
        return self._chosen()  # type: ignore[misc]


def _is_right(call: Callable[[], Any], expected: Any, tolerance: Tolerance) -> bool:
    poison(call())
    return compare(call(), expected, tolerance).ok


def tried(product: str, case: Case, arch: str) -> list[tuple[str, dict[str, Any]]]:
    """The knobs of `triton` that are tried for a case of a product: forward, dgrad or wgrad."""
    return [("triton", knobs) for knobs in config.candidates(case, arch, product)[:TRITON_POINTS]]


def _calls(kernel: Kernel, case: Case, inputs: dict[str, torch.Tensor]) -> Iterator[tuple[str, Callable[[], Any]]]:
    for name, backend in kernel.backends.items():
        if name == "autotune":
            continue
        product = kernel.name.rsplit("_", 1)[1]
        points = [knobs for _, knobs in tried(product, case, case.place.arch)] if name == "triton" else [{}]
        for knobs in points:
            try:
                call = backend.build(case, inputs, **knobs)
                call()
            except _refusals(backend):
                continue
            yield f"{name}{_differences(knobs, points[0])}", call


def _refusals(backend: Backend) -> tuple[type[Exception], ...]:
    """What a candidate may raise and is then left out: of a library anything, of ours what it says on purpose."""
    return (Exception,) if backend.baseline else (Unsupported, ValueError)


def _differences(knobs: dict[str, Any], default: dict[str, Any]) -> str:
    return "".join(f" {key}={value}" for key, value in knobs.items() if value != default[key])


def _fastest(calls: Sequence[Callable[[], Any]], case: Case) -> int:
    """Index of the call with the least median of its rounds, among those that stayed to the end."""
    seconds = _on_host if case.place.device == "cpu" else _on_gpu(case.place.device)
    times: list[list[float]] = [[] for _ in calls]

    def median(index: int) -> float:
        return statistics.median(times[index])

    def timed(indices: Sequence[int], rounds: int) -> list[int]:
        for number in range(rounds):
            for index in random.Random(number).sample(indices, len(indices)):
                times[index].append(seconds(calls[index]))
        return sorted(indices, key=median)

    first = timed(range(len(calls)), FIRST_ROUNDS)
    close = [index for index in first if median(index) <= CLOSE * median(first[0])]
    return timed(close, ROUNDS - FIRST_ROUNDS)[0]


def _on_host(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _on_gpu(device: str) -> Callable[[Callable[[], Any]], float]:
    """A timer in seconds, by events behind flushes of the caches."""
    flush = torch.zeros(FLUSH_BYTES // 4, device=device)
    total = torch.empty((), device=device)

    def seconds(call: Callable[[], Any]) -> float:
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(FLUSHES):
            torch.sum(flush, dim=0, out=total)
        before.record()
        call()
        after.record()
        after.synchronize()
        return float(before.elapsed_time(after)) / 1e3

    return seconds
