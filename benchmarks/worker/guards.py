"""What keeps a time honest: checks that timed code cannot tell from timing.

settings      what one arm can set for all: threads, precision, the current stream, a mode that sees every operation
outputs       what an output must be: plain tensors, each element in a place of its own, in nobody else's memory
live inputs   a second set of values for inputs that every call reads anew
spot checks   a sample that is not kept: what the call should have done is compared afterwards
spans         the device's events against the host's clock, and whether the caches were flushed
known pair    whether the comparison still tells right from wrong

Beside them stands bound: what the harness calls to measure and to compare, held before any operator is imported, and
watched.  Python cannot keep out a program that means to deceive and shares its process.  What is published of such
programs is in tests/benchmarks/exploits, each with what refuses it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import random
import statistics
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import ModuleType
from typing import Any

import torch

from ..shapes import some_of
from . import bound

Settings = Mapping[str, Any]
"""Value by the name of what reads it."""

_READ: dict[str, Callable[[], Any]] = {
    "torch.get_num_threads()": torch.get_num_threads,
    "torch.get_default_dtype()": torch.get_default_dtype,
    "torch.get_float32_matmul_precision()": torch.get_float32_matmul_precision,
    "torch.backends.cuda.matmul.allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "torch.backends.cudnn.allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "torch.backends.cuda.matmul.allow_fp16_accumulation": lambda: torch.backends.cuda.matmul.allow_fp16_accumulation,
    "torch.backends.cudnn.benchmark": lambda: torch.backends.cudnn.benchmark,
    "torch.are_deterministic_algorithms_enabled()": torch.are_deterministic_algorithms_enabled,
    "torch.is_grad_enabled()": torch.is_grad_enabled,
    "torch.is_autocast_enabled()": torch.is_autocast_enabled,
    "torch.get_default_device()": torch.get_default_device,
    "the torch function modes in use": torch._C._len_torch_function_stack,
    "the torch dispatch modes in use": torch._C._len_torch_dispatch_stack,
    "gc.isenabled()": gc.isenabled,
    "gc.callbacks": lambda: len(gc.callbacks),
    "sys.gettrace()": sys.gettrace,
    "sys.getprofile()": sys.getprofile,
    "sys.getswitchinterval()": sys.getswitchinterval,
    "threading.settrace()": threading.gettrace,
    "the current stream": lambda: bound.current_stream().cuda_stream if torch.cuda.is_initialized() else None,
}


def settings_now() -> Settings:
    """Every setting.  One that this torch cannot read (two ways to set TF32 were mixed) is left out."""
    found = {}
    for name, read in _READ.items():
        with contextlib.suppress(RuntimeError, AttributeError):
            found[name] = read()
    return found


def settings_disturbed(before: Settings) -> str:
    """What is said if a function that the harness measures with was replaced, or a setting has another value now."""
    if names := bound.WATCH.replaced():
        return f"it replaces {some_of(names, 3)}, which the harness measures with"
    after = settings_now()
    changed = [f"{name} from {before[name]} to {after.get(name)}" for name in before if after.get(name) != before[name]]
    return f"it changes for the whole process {some_of(changed, 3)}" if changed else ""


# What an output must be: plain tensors, each element in a place of its own, in nobody else's memory, wide enough.
#
# Each function returns what is wrong, in words that follow the name of the backend, or "".


WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}
"""Least bytes of a floating-point element of the output of a case, by its dtype."""


def tensors(output: Any) -> tuple[Any, ...]:
    """The tensors of an output."""
    return tuple(output) if isinstance(output, (tuple, list)) else (output,)


def misshapen(output: Any) -> str:
    """An output is a tensor or a tuple of tensors, of no subclass: those can compute when they are read.

    One that is not strided, or has one place for several elements, is none either.
    """
    parts = tensors(output)
    if not parts or not all(isinstance(one, torch.Tensor) for one in parts):
        what = f"returned {type(output).__name__}"
        return f"{what}; its callable must return its output, a tensor or a tuple of tensors"
    for one in parts:
        if type(one) is not torch.Tensor or vars(one):
            plain = type(one) is torch.Tensor
            own = f"with attributes of its own ({', '.join(vars(one))})" if plain else "a subclass of torch.Tensor"
            return f"returned {type(one).__name__}, {own}, which can compute when it is read; return a plain tensor"
        if one.layout is not torch.strided or _shared_places(one):
            return f"returned a tensor whose elements share their place in memory (shape {tuple(one.shape)})"
    return ""


def unsuitable(output: Any, case: Any) -> str:
    """An output lies on the device of the case and is at least as wide as its dtype."""
    for one in tensors(output):
        if one.device.type != torch.device(case.place.device).type:
            return f"returned a tensor on {one.device}; the case is on {case.place.device}"
        if one.dtype.is_floating_point and one.element_size() < WIDTHS.get(case.dtype, 1):
            name = str(one.dtype).removeprefix("torch.")
            return f"returned {name} in a case of {case.dtype}: precision is part of the case"
    return ""


def shared(output: Any, others: Mapping[str, Iterable[Any]]) -> str:
    """An output shares memory with nothing else.  others: tensors by what they are, in words."""
    mine = [_reach(one) for one in tensors(output) if one.numel()]
    for what, known in others.items():
        reached = [_reach(one) for one in known if isinstance(one, torch.Tensor) and one.numel()]
        if any(_overlap(one, other) for one in mine for other in reached):
            return f"returned a tensor in the memory of {what}; it must allocate its own in the set-up"
    return ""


def _shared_places(tensor: torch.Tensor) -> bool:
    return any(stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True))


def _reach(tensor: torch.Tensor) -> tuple[str, int, int]:
    """Device, and addresses of the first byte and behind the last."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return str(tensor.device), tensor.data_ptr(), tensor.data_ptr() + (last + 1) * tensor.element_size()


def _overlap(one: tuple[str, int, int], other: tuple[str, int, int]) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]


# A second set of values for the inputs that every call reads anew, so that an earlier result is a wrong one.
#
# A kernel names such inputs (kernels.spec.Kernel, live). The second set is the first with one element in CHANGED
# drawn anew, from a seed that is chosen for the case and in no declaration: an output must follow, and a call that
# compares a few elements to find out whether the inputs are the old ones mostly sees no difference. Both sets and
# their references are made before any backend is built.


CHANGED = 256
"""One element in so many is drawn anew.  Of a GEMM this moves the output by sqrt(2 / 256) = 9 % (norm), 20 times the
widest tolerance of ours; a fingerprint of 16 elements sees it in 6 of 100 cases (2026-11-22)."""

MOST_BYTES = 1 << 30
"""Larger inputs keep their values: a second reference would take too much of the memory."""

Inputs = Mapping[str, Any]
Draw = Callable[[int], Inputs]
"""seed -> inputs, as the kernel declares them."""


class LiveInputs:
    """Which set of values every copy of the inputs holds: 0, the declared one, or 1."""

    def __init__(self, names: Sequence[str], copies: Sequence[Inputs], draw: Draw, secret: int) -> None:
        self.held = [0] * len(copies)
        self._copies = copies
        first = copies[0] if isinstance(copies[0], Mapping) else {}
        kept = {name: first[name] for name in names if isinstance(first.get(name), torch.Tensor)}
        self._sets: list[dict[str, torch.Tensor]] = []
        if kept and sum(one.nbytes for one in kept.values()) <= MOST_BYTES:
            drawn = draw(secret)
            own = {name: one.clone() for name, one in kept.items()}
            self._sets = [own, {name: _mixed(one, drawn[name], secret) for name, one in own.items()}]
            self._scatter(random.Random(secret))

    def __bool__(self) -> bool:
        """Whether there is a second set."""
        return bool(self._sets)

    def hold(self, copy: int, which: int) -> None:
        """Put a set of values into a copy, behind what was launched before."""
        if self.held[copy] != which:
            for name, values in self._sets[which].items():
                self._copies[copy][name].copy_(values)
            self.held[copy] = which

    def swap(self, copies: Iterable[int]) -> None:
        """Put the other set into each of these copies."""
        for copy in copies:
            self.hold(copy, 1 - self.held[copy])

    def _scatter(self, chance: random.Random) -> None:
        """Either set into every copy but the first, so that no copy can have the result of another by right."""
        for copy in range(1, len(self.held)):
            self.hold(copy, chance.randrange(2))


def _mixed(values: torch.Tensor, drawn: torch.Tensor, secret: int) -> torch.Tensor:
    """The values with one in CHANGED, at least one, from `drawn`."""
    generator = torch.Generator(device=values.device).manual_seed(secret ^ 0x5EED)
    mask = torch.rand(values.shape, generator=generator, device=values.device) < 1 / CHANGED
    mask.view(-1)[random.Random(secret).randrange(max(1, values.numel()))] = True
    return torch.where(mask, drawn, values)


# A sample like all others, which is not kept: what the call did in it is compared afterwards.
#
# Right before the call its outputs are overwritten, or its inputs get other values; right behind it, in the order of
# the stream, a part of its outputs is copied. The timed code sees the same host code in the same order, and what lies
# in the outputs are results in the wrong places, so nothing tells it that this sample is another. Then
#
# - the copy must be what the outputs hold once the device is idle: else the call was not finished when its time ended
#   (work on a stream that is not waited for, in a thread or another process, or put off until somebody reads);
# - the outputs must be right for what the inputs held.


WINDOW_BYTES = 64 << 20
"""Of a larger output so much is overwritten and copied, in a place chosen each time."""

WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
"""Integers by their bytes."""


class SpotCheck:
    """One sample of an arm.  timed: what is timed, a clocks.Timed.  kind: what is changed before the call, "outputs" or
    "inputs".

    held: the arm's outputs so far, by copy of the inputs that is launched.  fixed: they are written by every call, else
    it makes its own (kernels.spec.functional) and may give back an earlier one, which is overwritten as well.
    """

    def __init__(
        self,
        timed: Any,
        held: Mapping[int, Any],
        fixed: bool,
        kind: str,
        secret: int,
        values: LiveInputs,
        poison: Callable[[torch.Tensor], torch.Tensor],
    ) -> None:
        self.kind, self._values, self.held, self._fixed, self._poison = kind, values, held, fixed, poison
        self._random = random.Random(secret)
        self.timed = dataclasses.replace(timed, before=self._before, after=self._after)
        self.outputs: list[Any] = []
        self.misshapen = ""
        self._windows = [self._window(one) for output in held.values() for one in tensors(output)]
        self._decoys = [self._decoy(one) for one in self._windows] if kind == "outputs" else []
        self._snapshots = [torch.empty_like(one) for one in self._windows] if fixed else []

    @property
    def late(self) -> bool:
        """Whether the outputs changed after the timed span."""
        pairs = zip(self._snapshots, self._windows, strict=True)
        return not all(torch.equal(_bits(before), _bits(after)) for before, after in pairs)

    @property
    def left(self) -> bool:
        """Whether an output still holds what it held before the call."""
        pairs = zip(self._decoys, self._windows, strict=False)
        return any(torch.equal(_bits(before), _bits(after)) for before, after in pairs)

    def restore(self) -> None:
        """Give the inputs the values that they had."""
        self._change_inputs()

    def _change_inputs(self) -> None:
        """Of two sets of values each is the other one's other."""
        if self.kind == "inputs":
            self._values.swap(self.held)

    def _before(self) -> None:
        self._change_inputs()
        for window, decoy in zip(self._windows, self._decoys, strict=False):
            window.copy_(decoy)

    def _after(self, result: Any) -> None:
        """The call has been launched and its end marked."""
        self.outputs = list(self.held.values()) if self._fixed else [result]
        self.misshapen = next(filter(None, map(misshapen, self.outputs)), "")
        if self._fixed:
            for snapshot, window in zip(self._snapshots, self._windows, strict=True):
                snapshot.copy_(window)
        else:
            parts = () if self.misshapen else tensors(result)
            self._windows = [self._window(one) for one in parts]
            self._snapshots = [one.clone() for one in self._windows]

    def _window(self, tensor: torch.Tensor) -> torch.Tensor:
        """A part of a tensor, in a random place; all of it, if it is small or not contiguous."""
        most = WINDOW_BYTES // tensor.element_size()
        if not tensor.is_contiguous() or tensor.numel() <= most:
            return tensor
        start = self._random.randrange(tensor.numel() - most + 1)
        return tensor.view(-1)[start : start + most]

    def _decoy(self, window: torch.Tensor) -> torch.Tensor:
        """What looks like a result and is none: all values, or a tenth of them, in other places.

        Poison where that changes nothing: all values are the same.
        """
        part = window.reshape(-1).clone()
        length = part.numel() if self._random.random() < 0.5 else -(-part.numel() // 10)
        start = self._random.randrange(part.numel() - length + 1)
        other = part[start : start + length].roll(self._random.randrange(1, max(2, length)))
        if torch.equal(_bits(other), _bits(part[start : start + length])):
            return self._poison(part).view(window.shape)
        part[start : start + length] = other
        return part.view(window.shape)


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype is torch.bool:
        return tensor.view(torch.uint8)
    return tensor.view(WORDS[tensor.element_size()]) if tensor.element_size() in WORDS else tensor


# The device's clock against the host's, and whether the caches were flushed: checks that need no kernel to be known.
#
# Events and the host's clock are two clocks. From the first event of a filled queue to its last the device's clock
# must go as far as the host's does from before the first is enqueued until the device is idle, but for what
# enqueueing and waiting take at both ends.


ENDS_S = 300e-6
"""What enqueueing the first event and noticing the last may take; 20 to 60 us on H200."""

SHORTEST_S, FEWEST = 2e-3, 4
"""Spans of the host below this say nothing, nor do fewer of them: a host that others use may notice an end late."""

KEPT = 64
"""Most recent spans and flushes that are looked at."""

SLOWEST, FASTEST = 0.6, 1.1
"""The device's seconds of one of the host; halved times have been seen (`elapsed_time` patched).  Both clocks count to
some 1e-5 (2026-11-22)."""

FLUSHED = 0.3
"""Least share of the time of a flush, measured before any operator was imported, that every later one takes."""


Span = tuple[float, float]
"""Seconds of one filled queue by the clock of the device, and by that of the host."""


def disagreement(spans: Sequence[Span]) -> str:
    """What is said if the clocks disagree in most of the spans that are long enough; "" if not, or with too few."""
    long = [(device_s, host_s) for device_s, host_s in spans if host_s >= SHORTEST_S]
    off = [
        (device_s, host_s)
        for device_s, host_s in long
        if not SLOWEST * (host_s - ENDS_S) <= device_s <= FASTEST * host_s
    ]
    if len(long) < FEWEST or 2 * len(off) <= len(long):
        return ""
    device_ms, host_ms = (1e3 * sum(by_clock) for by_clock in zip(*off, strict=True))
    return (
        f"the events of the device say {device_ms:.3g} ms where the host's clock says {host_ms:.3g} ms "
        f"({len(off)} of {len(long)} spans): the time of this process cannot be trusted"
    )


def unflushed(flushes_s: Sequence[float], usual_s: float) -> str:
    """What is said if flushes take less time than they can.  usual_s: what one took at first; 0 where there is none."""
    if not usual_s or len(flushes_s) < FEWEST or statistics.median(flushes_s) >= FLUSHED * usual_s:
        return ""
    now_us, usual_us = 1e6 * statistics.median(flushes_s), 1e6 * usual_s
    return f"the caches are not flushed between calls: a flush takes {now_us:.3g} us, at first {usual_us:.3g} us"


# Whether the comparison still tells right from wrong: tried on two tensors whose difference was known before.
#
# What an operator changes below Python (an operation of torch's dispatcher that it implements anew) has no name that
# could be watched; the comparison of these two rests on the same operations.


COMPARED_OTHERWISE = (
    "it changes what torch computes: the harness's comparison of two known tensors comes out otherwise than before"
)


class KnownPair:
    """Two tensors on a device, and what their comparison gave before an operator was imported."""

    def __init__(self, numerics: ModuleType, device: str) -> None:
        drawn = torch.randn(2, 64, generator=torch.Generator().manual_seed(2026)).to(device)
        self._pairs = [(drawn[0], drawn[1]), (drawn[0], drawn[0].clone())]
        self._compare, self._tolerance = numerics.compare_all, numerics.Tolerance(1e-6, 1e-6)
        self._was = self._found()

    def disturbed(self) -> str:
        """What is said if it gives something else now."""
        return "" if self._found() == self._was else COMPARED_OTHERWISE

    def _found(self) -> list[tuple[bool, float]]:
        return [(one.ok, round(one.norm, 6)) for one in self._compare(self._pairs, self._tolerance)]
