"""One case on one rank: its inputs, the truth about it, and its arms, step by step.

Every step leaves the rank idle, so that the coordinator can synchronise all ranks between two steps.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from ..channel import Refused, first_line
from ..naming import our
from ..shapes import JsonObject
from . import bound, clocks, code_hash, guards
from .guards import LiveInputs

TUNES = "tune"
"""kernels.spec.TUNES."""


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
    return our("kernels.numerics")


@contextlib.contextmanager
def placed(case: Any, seed: int) -> Iterator[None]:
    """New tensors go to the case's device, random numbers start from the seed."""
    bound.manual_seed(seed)
    with torch.device(case.place.device):
        yield


class CaseBench:
    """The arms of one placed case on this rank.  copies: sets of buffers, so that a graph reads nothing cached.

    secret: a seed that no declaration knows, equal on all ranks, for a second set of values (guards.LiveInputs).
    expected: the truth about either set.
    """

    def __init__(
        self, kernel: Any, case: Any, seed: int, copies: int, clock: Any, numerics: ModuleType, secret: int = 0
    ) -> None:
        self.kernel, self.case, self.seed, self.clock, self.numerics = kernel, case, seed, clock, numerics
        self.tolerance = kernel.tolerance_for(case)
        first = self._drawn(seed)
        self.inputs = [first, *(_copied(first) or self._drawn(seed) for _ in range(copies - 1))]
        live = getattr(kernel, "live", ())  # a declaration before 2026-12 names none
        self.values = LiveInputs(live if secret else (), self.inputs, self._drawn, secret)
        self._marks = _marks(self.inputs)
        self.expected: list[Any] = []
        self.arms: dict[str, BuiltArm] = {}

    def make_reference(self) -> None:
        """Compute the truth about the inputs, once, and about the second set of their values."""
        self.expected = [self._reference()]
        if self.values:
            self.values.hold(0, 1)
            self.expected.append(self._reference())
            self.values.hold(0, 0)
        self.clock.synchronize()

    def _drawn(self, seed: int) -> Any:
        with placed(self.case, seed):
            return self.kernel.function("inputs")(self.case, seed)

    def _reference(self) -> Any:
        with placed(self.case, self.seed):
            return self.kernel.function("reference")(self.case, self.inputs[0])

    def build(self, label: str, backend: str, overrides: JsonObject) -> JsonObject:
        """Set an arm up on every copy of the inputs; its knobs, and whether it has yet to tune.  All of it is untimed.

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
        self.arms[label] = BuiltArm(backend, calls, clocks.Timed(_in_turn(calls)))
        tunes = any(hasattr(call, TUNES) for call in calls)
        return {"knobs": {key: _plain(value) for key, value in knobs.items()}, "tunes": tunes}

    def tune(self, label: str) -> None:
        """Let the calls of an arm choose by times."""
        for call in self.arms[label].calls:
            with placed(self.case, self.seed):
                getattr(call, TUNES)()
        self.clock.synchronize()

    def call(self, label: str, again: int = 0) -> dict[str, float]:
        """Call every copy for the first time; seconds of the very first call, and of compiling in it.

        again: then every copy so many times more, the shortest time `again_s` seconds each.
        """
        arm = self.arms[label]
        with code_hash.compiling() as compiled:
            start = bound.perf_counter()
            arm.outputs = [arm.calls[0]()]
            self.clock.synchronize()
            seconds = bound.perf_counter() - start
        arm.outputs += [call() for call in arm.calls[1:]]
        self.clock.synchronize()
        self._of_their_own(label)
        shortest = {"again_s": self._shortest(arm, again)} if again else {}
        return {"seconds": seconds, "compile_s": sum(compiled), **shortest}

    def _shortest(self, arm: BuiltArm, times: int) -> float:
        """Seconds of a call, the shortest of so many times all copies; the host waits once."""
        stamps = self.clock.stamps()
        stamps.mark()
        for _ in range(times):
            self._launch(arm)
            stamps.mark()
        seconds = stamps.seconds()
        return float(min(end - start for start, end in zip(seconds, seconds[1:], strict=False)) / len(arm.calls))

    def poison(self, label: str) -> None:
        """Overwrite the arm's outputs with values that cannot pass; ranks wait until all of them have."""
        for output in self.arms[label].outputs:
            self.numerics.poison(output)
        if self.case.place.world > 1:
            self.clock.synchronize()

    def check(self, label: str) -> JsonObject:
        """Launch what is timed and compare every copy's output; Refused("wrong") names the first that fails."""
        arm = self.arms[label]
        start = bound.perf_counter()
        outputs = self._launch(arm)
        self.clock.synchronize()
        seconds = bound.perf_counter() - start
        self._same_buffers(arm, outputs)
        self._inputs_unchanged()
        found = self._compared(dict(enumerate(arm.outputs)))
        if found["why"]:
            raise Refused("wrong", found["why"])
        return {"norm": found["norm"], "peak": found["peak"], "seconds": seconds / len(outputs)}

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

    def samples(self, order: list[str], warm_up: bool, spot: JsonObject | None = None) -> JsonObject:
        """Seconds per call of one sample of each arm in that order.

        spot: the last sample is a spot check: its `kind` and `secret`; or what it found.
        """
        timed = [self.arms[name].timed for name in order]
        check = self._spot_check(order[-1], **spot) if spot else None
        taken = self.clock.run([*timed[:-1], check.timed] if check else timed)
        kept = len(order) - 1 if check else len(order)
        for name, enqueue_s, starved in zip(order[:kept], taken.enqueue_s, taken.starved, strict=False):
            if warm_up:
                self.clock.adapt(self.arms[name].timed, enqueue_s, starved)
            else:
                self.arms[name].starved += starved
        return {
            "seconds": taken.seconds,
            "starved": {name: self.arms[name].starved for name in set(order)},
            "spot": self._found(check, self.arms[order[-1]]) if check else None,
        }

    def whole(self, label: str, count: int) -> list[float]:
        """Seconds of so many single calls from the host's side; never of a graph, as a user makes one call."""
        calls = self.arms[label].calls
        return list(self.clock.whole([calls[index % len(calls)] for index in range(count)]))

    def burst(self, label: str, launches: int, spot: JsonObject | None = None) -> JsonObject:
        """One burst of an arm: the fields of clocks.Burst, and `spot` as in samples."""
        check = self._spot_check(label, **spot) if spot else None
        timed = check.timed if check else self.arms[label].timed
        taken = dataclasses.asdict(clocks.burst(self.clock, timed, launches))
        return {**taken, "spot": self._found(check, self.arms[label]) if check else None}

    def drop(self, label: str) -> None:
        """Forget an arm, if it got as far as being one, and free what it holds."""
        self.arms.pop(label, None)
        gc.collect()

    def forget_arms(self) -> None:
        """Drop every arm; inputs and reference stay."""
        self.arms.clear()
        gc.collect()

    def _of_their_own(self, label: str) -> None:
        """Refused unless the outputs of an arm are plain tensors in memory that nobody else uses."""
        arm = self.arms[label]
        held = {f"backend {other!r}": one.outputs for other, one in self.arms.items() if other != label}
        others = {what: [one for output in outputs for one in guards.tensors(output)] for what, outputs in held.items()}
        others["the reference"] = [one for output in self.expected for one in guards.tensors(output)]
        others["the inputs"] = [one for given in self.inputs if isinstance(given, dict) for one in given.values()]
        for index, output in enumerate(arm.outputs):
            copies = [one for before in arm.outputs[:index] for one in guards.tensors(before)]
            found = guards.misshapen(output) or guards.unsuitable(output, self.case)
            if found := found or guards.shared(output, {**others, "its output for another copy of the inputs": copies}):
                raise Refused("error", f"backend {arm.name!r} {found}", spoiled=bool(self._changed()))

    def _compared(self, by_copy: Mapping[int, Any]) -> JsonObject:
        """The largest errors of outputs, by the copy of the inputs that they are for; why: "", or what is wrong first.

        stale: where something is wrong, all are right for the other set of values.
        """
        sets, outputs, numerics = [self.values.held[copy] for copy in by_copy], by_copy.values(), self.numerics
        truths = [self.expected[one] for one in sets]
        results = numerics.compare_all(list(zip(outputs, truths, strict=True)), self.tolerance)
        wrong = [(index, result.why) for index, result in enumerate(results) if not result.ok]
        copy = f" (copy {wrong[0][0]} of {len(results)})" if wrong and wrong[0][0] else ""
        others = zip(outputs, sets, strict=True) if wrong and len(self.expected) > 1 else ()
        stale = [numerics.compare(out, self.expected[1 - one], self.tolerance).ok for out, one in others]
        return {
            "norm": max(one.norm for one in results),
            "peak": max(one.peak for one in results),
            "why": f"{wrong[0][1]}{copy}" if wrong else "",
            "stale": bool(stale) and all(stale),
        }

    def _spot_check(self, label: str, kind: str, secret: int) -> guards.SpotCheck:
        """Of all calls of a graph, or of a call with one copy of the inputs, chosen by the secret."""
        arm = self.arms[label]
        fixed = arm.captured or not getattr(arm.calls[0], "functional", False)
        timed, held = arm.timed, dict(enumerate(arm.outputs))
        if not arm.captured:
            copy = random.Random(f"copy {secret}").randrange(len(arm.calls))
            timed, held = dataclasses.replace(timed, launch=arm.calls[copy]), {copy: arm.outputs[copy]}
        chosen = kind if kind == "outputs" or self.values else "outputs"
        return guards.SpotCheck(timed, held, fixed, chosen, secret, self.values, self.numerics.poison)

    def _found(self, check: guards.SpotCheck, arm: BuiltArm) -> JsonObject:
        """What a spot check found; the outputs compared.  What changes until they are was late, too."""
        self.clock.synchronize()
        compared: JsonObject = {}
        try:
            if not check.misshapen:
                by_copy = dict(zip(check.held, check.outputs, strict=True))
                for copy, output in by_copy.items():
                    arm.outputs[copy] = output  # a right one again, where a call makes its own
                compared = self._compared(by_copy)
            report = {"kind": check.kind, "misshapen": check.misshapen, "late": check.late, "left": check.left}
            return report | compared
        finally:
            check.restore()
            self.clock.synchronize()

    def _inputs_unchanged(self) -> None:
        """Refused unless every input still holds what it held."""
        if changed := self._changed():
            what = f"it changes its input {', '.join(sorted(changed))}, which other arms read"
            raise Refused("wrong", f"{what}; outputs and workspaces belong to the set-up", spoiled=True)

    def _changed(self) -> set[str]:
        """The inputs that hold something else than before."""
        pairs = zip(self._marks, _marks(self.inputs), strict=True)
        return {repr(name) for before, now in pairs for name in before if before[name] != now[name]}

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
            if [t.data_ptr() for t in guards.tensors(before)] != [t.data_ptr() for t in guards.tensors(after)]:
                raise Refused(
                    "error",
                    f"backend {arm.name!r} returned another buffer than at its first call: write `return "
                    "functional(lambda: ...)` (from ridgeline.spec import functional) where a call makes its own, "
                    "or allocate the output in the set-up and write that buffer at every call",
                )


def _in_turn(calls: Sequence[Callable[[], Any]]) -> Callable[[], Any]:
    """Makes the next of some calls, and the first again after the last."""
    following = itertools.cycle(calls).__next__
    return calls[0] if len(calls) == 1 else lambda: following()()


def _marks(copies: Sequence[Any]) -> list[dict[str, int]]:
    """By copy of the inputs, a sum over the words of every tensor; one transfer to the host."""
    sums = {
        (copy, name): _words(tensor).sum(dtype=torch.int64)
        for copy, inputs in enumerate(copies)
        for name, tensor in (inputs.items() if isinstance(inputs, dict) else ())
        if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.element_size() in guards.WORDS
    }
    totals = torch.stack([one.to(next(iter(sums.values())).device) for one in sums.values()]).tolist() if sums else []
    found: list[dict[str, int]] = [{} for _ in copies]
    for (copy, name), total in zip(sums, totals, strict=True):
        found[copy][name] = total
    return found


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """Its bits as integers as wide as they can be: the sum of 700 MB took 9 ms as bytes (H200, 2026-11)."""
    flat = tensor.contiguous().reshape(-1)
    offset = flat.storage_offset() * flat.element_size()
    return flat.view(
        next(kind for size, kind in guards.WORDS.items() if flat.nbytes % size == 0 and offset % size == 0)
    )


def _copied(inputs: Any) -> Any:
    """The inputs in memory of their own, as drawing them once more gives; None unless they are whole plain tensors.

    Drawing rounds, packs and quantises again, and takes several times as long as a copy.
    """
    tensors = list(inputs.values()) if type(inputs) is dict else [None]
    plain = all(
        type(one) is torch.Tensor and one.is_contiguous() and one.untyped_storage().nbytes() == one.nbytes
        for one in tensors
    )
    if not plain or len({one.data_ptr() for one in tensors}) < len(tensors):
        return None
    return {name: one.clone() for name, one in inputs.items()}


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str, type(None))) else str(value)
