"""One case on one rank: its inputs, the truth about it, and its arms, step by step.

Every step leaves the rank idle, so that the coordinator can synchronise all ranks between two steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib.util
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from . import bursts, clocks, code_hash
from .failures import Refused, first_line


@dataclasses.dataclass
class BuiltArm:
    """One backend, set up once per copy of the inputs.  timed: what a sample launches."""

    name: str
    calls: list[Any]
    timed: clocks.Timed
    outputs: list[Any] = dataclasses.field(default_factory=list)
    starved: int = 0
    captured: bool = False


def harness_numerics() -> ModuleType:
    """kernels/numerics.py of the harness, not of the checkout under test: a commit does not judge itself."""
    path = Path(__file__).resolve().parents[2] / "kernels" / "numerics.py"
    spec = importlib.util.spec_from_file_location("ridgeline_harness_numerics", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be loaded")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def placed(case: Any, seed: int) -> Iterator[None]:
    """New tensors go to the case's device, random numbers start from the seed."""
    torch.manual_seed(seed)
    with torch.device(case.place.device):
        yield


class CaseBench:
    """The arms of one placed case on this rank.  copies: sets of buffers, so that a graph reads nothing cached."""

    def __init__(self, kernel: Any, case: Any, seed: int, copies: int, clock: Any, numerics: ModuleType) -> None:
        self.kernel, self.case, self.seed, self.clock, self.numerics = kernel, case, seed, clock, numerics
        self.tolerance = kernel.tolerance_for(case)
        self.inputs = []
        for _ in range(copies):
            with placed(case, seed):
                self.inputs.append(kernel.function("inputs")(case, seed))
        self._marks = [_marks(inputs) for inputs in self.inputs]
        self.expected: Any = None
        self.arms: dict[str, BuiltArm] = {}

    def make_reference(self) -> None:
        """Compute the truth, once."""
        with placed(self.case, self.seed):
            self.expected = self.kernel.function("reference")(self.case, self.inputs[0])
        self.clock.synchronize()

    def build(self, label: str, backend: str, overrides: dict[str, Any]) -> dict[str, Any]:
        """Set an arm up on every copy of the inputs; returns the knobs.  Everything here is untimed.

        label: by which all other steps name the arm; in a sweep, a backend has several.
        """
        declared = self.kernel.backends[backend]
        knobs = declared.knobs(self.case, self.case.place.arch, overrides)
        calls = []
        for inputs in self.inputs:
            with placed(self.case, self.seed):
                calls.append(declared.build(self.case, inputs, **knobs))
        for call in calls:
            if not callable(call):
                what = f"the set-up of backend {backend!r} returned {type(call).__name__}"
                raise Refused("error", f"{what}; it must return a zero-argument callable")
        self.clock.synchronize()
        self.arms[label] = BuiltArm(backend, calls, clocks.Timed(calls[0]))
        return {key: _plain(value) for key, value in knobs.items()}

    def call(self, label: str) -> dict[str, float]:
        """Call every copy for the first time; seconds of the very first call, and of compiling in it."""
        arm = self.arms[label]
        with code_hash.compiling() as compiled:
            start = time.perf_counter()
            arm.outputs = [arm.calls[0]()]
            self.clock.synchronize()
            seconds = time.perf_counter() - start
        arm.outputs += [call() for call in arm.calls[1:]]
        self.clock.synchronize()
        for output in arm.outputs:
            if not all(isinstance(tensor, torch.Tensor) for tensor in _tensors(output)) or not _tensors(output):
                what = f"backend {arm.name!r} returned {type(output).__name__}"
                raise Refused("error", f"{what}; its callable must return its output, a tensor or a tuple of tensors")
        return {"seconds": seconds, "compile_s": sum(compiled)}

    def poison(self, label: str) -> None:
        """Overwrite the arm's outputs with values that cannot pass."""
        for output in self.arms[label].outputs:
            self.numerics.poison(output)
        self.clock.synchronize()

    def check(self, label: str) -> dict[str, Any]:
        """Launch what is timed and compare every copy's output; Refused("wrong") names the first that fails."""
        arm = self.arms[label]
        start = time.perf_counter()
        outputs = self._launch(arm)
        self.clock.synchronize()
        seconds = time.perf_counter() - start
        self._same_buffers(arm, outputs)
        self._inputs_unchanged()
        results = [self.numerics.compare(output, self.expected, self.tolerance) for output in arm.outputs]
        for index, result in enumerate(results):
            if not result.ok:
                copy = f" (copy {index} of {len(results)})" if index else ""
                raise Refused("wrong", f"{result.why}{copy}")
        error = {"norm": max(r.norm for r in results), "peak": max(r.peak for r in results)}
        return {**error, "seconds": seconds / len(outputs)}

    def trace(self, label: str) -> str | None:
        """Digest of what one call launches; None if it cannot be determined."""
        try:
            with code_hash.traced() as trace:
                self.arms[label].calls[0]()
            self.clock.synchronize()
        except Exception as error:
            print(f"the code of {label} cannot be identified: {type(error).__name__}: {error}", file=sys.stderr)
            return None
        return trace.digest()

    def capture(self, label: str, calls: int) -> str:
        """From now on a sample of the arm is one replay of a graph of that many calls, which rotate through its copies.

        Copies beyond the calls are dropped: what is not in the graph is not timed, and so cannot be checked.
        Returns why the calls cannot be captured, or "".
        """
        arm = self.arms[label]
        arm.calls, arm.outputs = arm.calls[:calls], arm.outputs[:calls]
        try:
            graph, outputs = clocks.capture([arm.calls[i % len(arm.calls)] for i in range(calls)])
            self.clock.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {first_line(error)}"
        self._same_buffers(arm, outputs[: len(arm.calls)])
        arm.timed = clocks.Timed(graph.replay, calls)
        arm.captured = True
        return ""

    def samples(self, order: list[str], warm_up: bool) -> dict[str, Any]:
        """Seconds per call of one sample of each arm in that order, and how long the device worked."""
        taken = self.clock.run([self.arms[name].timed for name in order])
        for name, enqueue_s, starved in zip(order, taken.enqueue_s, taken.starved, strict=True):
            if warm_up:
                self.clock.adapt(self.arms[name].timed, enqueue_s, starved)
            else:
                self.arms[name].starved += starved
        return {
            "seconds": taken.seconds,
            "busy_s": taken.busy_s,
            "starved": {name: self.arms[name].starved for name in set(order)},
        }

    def whole(self, label: str, count: int) -> list[float]:
        """Seconds of so many single calls from the host's side; never of a graph, as a user makes one call."""
        calls = self.arms[label].calls
        return list(self.clock.whole([calls[index % len(calls)] for index in range(count)]))

    def burst(self, label: str, launches: int) -> dict[str, Any]:
        """One burst of an arm: the fields of bursts.Burst."""
        return dataclasses.asdict(bursts.burst(self.clock, self.arms[label].timed, launches))

    def drop(self, label: str) -> None:
        """Forget an arm, if it got as far as being one, and free what it holds."""
        self.arms.pop(label, None)
        gc.collect()

    def forget_arms(self) -> None:
        """Drop every arm; inputs and reference stay."""
        self.arms.clear()
        gc.collect()

    def _inputs_unchanged(self) -> None:
        """Refused unless every input still holds what it held."""
        changed: set[str] = set()
        for before, inputs in zip(self._marks, self.inputs, strict=True):
            now = _marks(inputs)
            changed |= {repr(name) for name in before if before[name] != now[name]}
        if changed:
            what = f"it changes its input {', '.join(sorted(changed))}, which other arms read"
            raise Refused("wrong", f"{what}; outputs and workspaces belong to the set-up", spoiled=True)

    def _launch(self, arm: BuiltArm) -> list[Any]:
        if arm.captured:
            arm.timed.launch()
            return arm.outputs
        return [call() for call in arm.calls]

    def _same_buffers(self, arm: BuiltArm, outputs: list[Any]) -> None:
        """Outputs must stay where they are; a call marked `functional` (kernels.spec) gives what it has just made."""
        if all(getattr(call, "functional", False) for call in arm.calls):
            arm.outputs = outputs
            return
        for before, after in zip(arm.outputs, outputs, strict=True):
            if [t.data_ptr() for t in _tensors(before)] != [t.data_ptr() for t in _tensors(after)]:
                raise Refused(
                    "error",
                    f"backend {arm.name!r} returned another buffer than at its first call; it must allocate its "
                    "output in the set-up and write that buffer at every call",
                )


def _tensors(output: Any) -> tuple[Any, ...]:
    return tuple(output) if isinstance(output, (tuple, list)) else (output,)


def _marks(inputs: Any) -> dict[str, int]:
    """A sum over the bits of every input tensor."""
    if not isinstance(inputs, dict):
        return {}
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums = {
        name: tensor.contiguous().view(kinds[tensor.element_size()]).sum(dtype=torch.int64)
        for name, tensor in inputs.items()
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.element_size() in kinds
    }
    return {name: int(total) for name, total in sums.items()}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
