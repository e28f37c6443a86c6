"""One timed closure: its first calls, what it reads and writes, its samples, its outputs.

Every method leaves the device idle.  Calls whose outputs are compared start from one state: equal random numbers, and
inputs that the closure changes put back to what they held.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import random
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from types import FunctionType, MethodType
from typing import Any

import torch

from ...channel import first_line
from ...shapes import JsonObject, text_digest
from .. import clocks
from ..arms import harness_numerics
from . import executed
from .executed import digest
from .interception import Call, TimerCall
from .ranks import Ranks

MOST_BYTES = 4 << 30
"""Bytes of inputs or outputs that are kept to put them back, or to compare them; a closure with more is only timed."""


MOST_TIMES = 8
"""How often a sample of ranks is taken at most, until no host was late: each time the devices are kept busy for twice
as long before it, 50 us to 6 ms.  Rank 0 of 2 took 75 to 600 us in place of 14 to 200 where rank 1's host was late
(H200, 2026-11-28)."""

LATE_S, LATE_BYTES = 0.01, 1 << 30
"""How long a rank is late where it is looked at what the others read meanwhile, and of how many bytes of inputs."""

MOST_SLOTS = 3
"""Buffers that calls use in turn, at most: so many calls have other inputs before one is looked at."""

POISON = 113
"""Overwrites what a call returned before the next; all types of numbers hold it."""


class StaleResult(Exception):
    """A call returns what an earlier one computed: there is nothing to time."""


class ClosureBench:
    """A closure on its way to samples.

    make_clock: of a device or of the host, with the flush that was asked for.  owns: whether a file is the user's.

    Ranks make equally many calls: what decides on one more is decided by all.
    """

    def __init__(
        self,
        timed: TimerCall,
        seed: int,
        make_clock: Callable[[bool], Any],
        owns: Callable[[str], bool],
        checkout: str,
        ranks: Ranks,
    ) -> None:
        self._timed, self._seed, self._make_clock = timed, seed, make_clock
        self._owns, self._checkout, self._ranks = owns, checkout, ranks
        self._special = False
        self._held: dict[str, torch.Tensor] = {}
        self._leaves: list[torch.Tensor] = []
        self._grads: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        self._written: list[str] = []
        self._after: dict[str, str] = {}
        self._kept: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._also: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._graph: Any = None
        self._own: list[torch.Tensor] = []
        self._bits = ""
        self._first: executed.Watch | None = None
        self._launched = clocks.Timed(timed.call)
        self._starved, self._times = 0, MOST_TIMES if ranks.world > 1 else 1
        self.clock: Any = None
        self.samples_s: list[float] = []

    def meet(self) -> None:
        """Meet the other ranks as before a sample: at the first closure they make a group for that, in a second."""
        self._find_tensors()
        on_gpu = any(one.is_cuda for one in self._held.values())
        if barrier := self._ranks.barrier(on_gpu):
            barrier()
        if on_gpu:
            torch.cuda.synchronize()

    def examine(self, watch: bool = False, late: bool = False) -> JsonObject:
        """Call it a few times: tuning and compiling happen in the first, the others show what it does.

        Seconds of the first call and of one later; tensors as "float32[64, 64]".  changed: ways of inputs that every
        call changes further.  held: digest of what the others hold that it does not write.  repeats: two calls gave the
        same.  prepared: something is called before each call.  bits: digest of that, "" where it was not the same bit
        by bit.  watch: note which functions the first call runs, for `code`.  late: look what it reads where a rank is
        late.  Raises StaleResult.
        """
        self._find_tensors()
        self._find_leaves()
        on_gpu = any(one.is_cuda for one in self._held.values()) or (not self._held and torch.cuda.is_available())
        self.clock = self._make_clock(on_gpu)
        before = self._digests()
        with executed.watched(self._owns) if watch else contextlib.nullcontext() as self._first:
            first_s, _ = self._once()
        self._grads = [
            (one, was, held) for one, was, held in self._grads if not (one.grad is was and torch.equal(was, held))
        ]
        between = self._digests()
        expected_s, returned = self._once()
        after = self._after = self._digests()
        changed = [way for way in between if between[way] != after[way]]
        self._written = [way for way in before if before[way] != between[way] and way not in changed]
        held = sorted(after[way] for way in after if way not in (*changed, *self._written))
        self._keep(changed)
        returned = self._once()[1] if self._ranks.any(bool(changed)) else returned
        self._own = self._copied(self._outputs(returned))
        again = self._outputs(self._once_more(returned))
        bits = [digest(one) for one in self._own]
        self._bits = "/".join(bits) if all(bits) and bits == [digest(one) for one in again] else ""
        return {
            "first_call_s": first_s,
            "expected_s": expected_s,
            "inputs": described(self._held),
            "outputs": described(dict(enumerate(self._own))),  # type: ignore[arg-type]
            "changed": changed,
            "prepared": self._timed.before is not None,
            "held": text_digest("/".join(held)),
            "repeats": (repeats := not self._own or agree(self._own, again, True).right),
            "stale": late and self._reads_stale(again, repeats),
            "bits": self._bits,
            "on_gpu": on_gpu,
        }

    def code(self) -> JsonObject:
        """ran: which code a call runs, after `examine` (`executed.parts`); unseen: why that cannot be told, or ""."""
        try:
            ran, unseen = executed.parts(
                self._once, self._owns, self._checkout, self._bits, self._inputs(), self._first, self._ranks.any
            )
        except Exception as error:  # a call that fails when it is watched is timed like any other
            ran, unseen = {}, f"a call that fails when it is watched, {type(error).__name__}"
        return {"ran": ran, "unseen": unseen}

    def bundle(self, calls: int, graph: bool) -> str:
        """From now on a sample has so many calls, one after the other or in a graph; why it has no graph, or ""."""
        call, self._graph = self._timed.call, None
        many = 1 if self._special else calls
        self._launched = clocks.Timed(call if many == 1 else _repeated(call, many), many)
        if not graph:
            return ""
        try:
            self._graph, _ = clocks.capture([call] * calls)
            self.clock.synchronize()
        except Exception as error:
            return f"{type(error).__name__}: {first_line(error)}"
        self._launched = clocks.Timed(self._graph.replay, calls)
        return ""

    def samples(self, order: list[str], warm_up: bool, spot: None = None) -> JsonObject:
        """Samples of this closure, as many as it stands in the order; the answer of arms.CaseBench.samples."""
        seconds: list[float] = []
        for many in [1] * len(order) if self._special or self._ranks.world > 1 else [len(order)]:
            taken = self._timely_samples(many, warm_up)
            seconds += taken.seconds
            self._starved += 0 if warm_up else sum(taken.starved)
        self.samples_s += [] if warm_up else seconds
        return {"seconds": seconds, "starved": dict.fromkeys(order, self._starved), "spot": None}

    def _timely_samples(self, many: int, warm_up: bool) -> clocks.Samples:
        """So many samples.  Of ranks they are taken again where a device came to the call before its host had enqueued
        it: all others wait for that one, and its host's delay would be in their times.
        """
        for left in reversed(range(self._times)):  # all ranks have ended their last call, as one asks them of it
            self._put_back()
            taken: clocks.Samples = self.clock.run([self._launched] * many)
            late = self._ranks.any(any(taken.starved))
            if warm_up or late:
                for enqueue_s, starved in zip(taken.enqueue_s, taken.starved, strict=True):
                    self.clock.adapt(self._launched, enqueue_s, starved)
            if not late:
                return taken
            self._times = self._times if left else 1  # it waits for its device itself: no lead is long enough
        return taken

    def drop(self) -> None:
        """It failed: nothing of it is needed any more."""

    def keep_outputs(self, path: str) -> None:
        """Write the outputs of one call, and what the inputs hold, to a file for the other side."""
        torch.save({"outputs": [one.cpu() for one in self._own], "inputs": self._inputs()}, self._ranks.path(path))

    def compare(self, path: str) -> JsonObject:
        """Hold the outputs against those of the other side, and of the same rank."""
        theirs = torch.load(self._ranks.path(path), weights_only=True)
        moved = [other.to(one.device) for one, other in zip(self._own, theirs["outputs"], strict=False)]
        outputs = [*moved, *theirs["outputs"][len(moved) :]]
        return dataclasses.asdict(agree(self._own, outputs, self._inputs() == theirs["inputs"]))

    def check_after(self) -> JsonObject:
        """One more call, after timing, held against the first outputs."""
        if self._graph is not None:
            self._graph.replay()
            self.clock.synchronize()
        return dataclasses.asdict(agree(self._outputs(self._once()[1]), self._own, True))

    # ---- parts ---------------------------------------------------------------------------------------------------

    def _find_tensors(self) -> None:
        """Those that it can reach; their device becomes the current one."""
        self._held = tensors(self._timed.call, *self._timed.roots)
        self._ranks.use(one.device for one in self._held.values())

    def _find_leaves(self) -> None:
        """Leaves whose gradients each call may give anew, and those to whose gradients it may add; the second with the
        gradient and a copy.
        """
        cleared = list(map(id, self._timed.no_grad_of))
        found = leaves(self._held.values())
        self._leaves = [one for one in found if one.grad is None or id(one) in cleared]
        others = [(one, one.grad) for one in found if one.grad is not None and id(one) not in cleared]
        if _fit(grad for _, grad in others):
            self._grads = [(one, grad, grad.clone()) for one, grad in others if grad.layout is torch.strided]

    def _reset(self) -> None:
        """The same state before every call."""
        self._put_back()
        for one in self._leaves:
            one.grad = None
        with torch.no_grad():
            for one, grad, held in self._grads:
                one.grad = grad.copy_(held)
        seeded(self._seed)

    def _once(self, late: int | None = None) -> tuple[float, Any]:
        """Seconds of one call from the same state as every other, seen from the host, and what it returned.

        late: a rank that comes to this state, and to its call, later than the others; then copies of the outputs.
        """
        if late is None:
            self._reset()
        self.clock.synchronize()
        self._ranks.meet()
        if late is not None:
            time.sleep(LATE_S * (late == self._ranks.rank))
            self._reset()
        returned, failed = None, None
        begin = time.perf_counter()
        try:
            returned = self._timed.call()
            self.clock.synchronize()
            returned = returned if late is None else self._copied(self._outputs(returned))
        except Exception as error:
            self._ranks.say(error)  # where others wait for this one, nobody else will
            failed = error
        took_s = time.perf_counter() - begin
        if self._ranks.any(failed is not None):  # until then others may read and write what this one holds
            raise failed or RuntimeError("it fails on another rank")
        return took_s, returned

    def _once_more(self, returned: Any) -> Any:
        """What one more call returns, with what the last one returned overwritten before it.  Raises StaleResult where
        all of that comes back as it is: then a call computes nothing.
        """
        own = [] if "torch._inductor.cudagraph_trees" in sys.modules else self._given(returned)
        if self._ranks.all(not own):
            return self._once()[1]
        pairs = [(one, one.clone()) for one in own]
        for one in own:
            one.fill_(POISON)
        again = self._once()[1]
        places = set(map(_place, outputs(again)))
        back = [pair for pair in pairs if _place(pair[0]) in places]
        stale = [one for one, _ in back if torch.equal(one, torch.full_like(one, POISON))]
        whole = all(torch.equal(*pair) for pair in back)
        for one, was in pairs:
            one.copy_(was)
        if self._ranks.all(len(stale) == len(own)):
            raise StaleResult("a call computes nothing: it returns what an earlier one computed")
        return again if self._ranks.all(whole) else self._once()[1]  # it writes a part of what it returns

    def _reads_stale(self, returned: Sequence[torch.Tensor], repeats: bool) -> bool:
        """Whether a call reads what those before it left, with other inputs, on a rank that is late: without a barrier
        it does, and nothing shows it where every call has the same inputs.

        What a call writes is not put back, as it is where ranks send to each other.
        """
        own = {one.data_ptr() for one in returned}
        inputs = [one.data for one in self._held.values() if _can_change(one) and one.data_ptr() not in own]
        if not self._ranks.all(repeats and bool(self._own) and _fit(inputs, LATE_BYTES)):
            return False
        pairs = read = [(one, one.clone()) for one in inputs]
        stale = False
        with contextlib.suppress(Exception):
            self._also = _changed(read)
            self._once()
            unchanged = [digest(one) == digest(other) for one, other in self._also]
            read = list(itertools.compress(read, unchanged))
            for late in range(self._ranks.world):
                self._also = _changed([*self._kept, *read])
                for _ in range(MOST_SLOTS):
                    self._once()
                self._also = read
                stale |= not agree(self._once(late)[1], self._own, True).right
        self._also = read
        for _ in range(MOST_SLOTS):
            _, returned = self._once()
        settled = agree(self._outputs(returned), self._own, True).right
        if not self._ranks.all(settled):  # other values left more than that: nothing can be said
            self._also, stale = pairs, False
            self._put_back()
        self._also = []
        return stale

    def _given(self, returned: Any) -> list[torch.Tensor]:
        """The tensors that a call made, and not those that it holds; none where they cannot be overwritten."""
        try:
            inside = set(map(_place, self._held.values()))
            found = [one.detach() for one in outputs(returned) if one.numel() and one.dtype != torch.bool]
            made = [one for one in found if _place(one) not in inside and not one.is_inference()]
            return made if _fit(made) else []
        except (RuntimeError, TypeError):
            return []

    def _put_back(self) -> None:
        for tensor, copy in (*self._kept, *self._also):
            tensor.copy_(copy)
        for one in self._timed.no_grad_of:
            one.grad = None
        if self._timed.before:
            self._timed.before()

    def _keep(self, changed: Sequence[str]) -> None:
        """Copies of the inputs that calls change, as they are now."""
        tensors = [self._held[way].detach() for way in changed]
        if _fit(tensors):
            self._kept = [(one, one.clone()) for one in tensors]
        self._special = self._ranks.any(bool(self._kept or self._timed.no_grad_of or self._timed.before))

    def _digests(self) -> dict[str, str]:
        return {way: digest(one) for way, one in self._held.items()}

    def _inputs(self) -> list[str]:
        """Of what it holds, what it does not write."""
        return sorted(found for way, found in self._after.items() if found and way not in self._written)

    def _outputs(self, returned: Any) -> list[torch.Tensor]:
        """What a call gives: tensors that it returns, those that it writes, those that it changes, and gradients."""
        written = [self._held[way] for way in self._written]
        grown = [*self._leaves, *(one for one, *_ in self._grads)]
        grads = [one.grad for one in grown if one.grad is not None and one.grad.layout is torch.strided]
        found = {id(one): one for one in (*outputs(returned), *written, *(one for one, _ in self._kept), *grads)}
        return list(found.values())

    def _copied(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return [one.detach().clone() for one in (tensors if _fit(tensors) else ())]


def _fit(tensors: Iterable[torch.Tensor], most: int = MOST_BYTES) -> bool:
    """Whether copies of them are made."""
    return sum(one.nbytes for one in tensors) <= most


def _can_change(tensor: torch.Tensor) -> bool:
    """Whether it holds numbers of floating point: others can be indices, or flags that ranks wait for."""
    return tensor.is_floating_point() and tensor.itemsize > 1 and 0 not in tensor.stride()


def _changed(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Tensors with other values than those that they have, of which none is like another's."""
    return [(one, held / (2 + index)) for index, (one, held) in enumerate(pairs) if _can_change(held)]


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def seeded(seed: int) -> None:
    """Random numbers of Python, NumPy and torch start from the seed."""
    random.seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed % 2**32)
    torch.manual_seed(seed)


def _repeated(call: Call, calls: int) -> Callable[[], None]:
    def launch() -> None:
        for _ in range(calls):
            call()

    return launch


# Whether the outputs of two sides agree: base is the reference.


NUMERICS = harness_numerics()
Tolerance = NUMERICS.Tolerance

_HALF = Tolerance(norm=2e-3, peak=5e-2)
TOLERANCES = {
    torch.float64: Tolerance(norm=1e-10, peak=1e-8),
    torch.float32: Tolerance(norm=1e-3, peak=1e-2),
    torch.float16: _HALF,
    torch.bfloat16: Tolerance(norm=1e-2, peak=0.2),
}
"""How far two right kernels may be apart, by type of the output.  fp32, fp16 and bf16: what our own operators allow
against fp32 or fp64 references (kernels/grouped_gemm, gemm, all_reduce; 2026-11), doubled where both sides round;
fp32 is that of a product whose inputs TF32 rounds."""

FEW_BITS = Tolerance(norm=5e-2, peak=1.0)
"""For types of 8 bits and fewer: fp8 rounds to 2**-4, so two right results are up to 6 % of a value apart."""

EXACT = Tolerance()
"""For whole numbers and booleans."""


@dataclasses.dataclass(frozen=True)
class Agreement:
    """compared: there was something to compare.  norm, peak: as in kernels.spec.Tolerance.  why: one sentence."""

    compared: bool
    right: bool = True
    why: str = ""
    norm: float = 0.0
    peak: float = 0.0


def agree(ours: Sequence[torch.Tensor], reference: Sequence[torch.Tensor], same_inputs: bool) -> Agreement:
    """Hold outputs against a reference.  Where the inputs differ too, a difference says nothing: not compared."""
    if not ours and not reference:
        return Agreement(False, why="not compared: it returns no tensors and writes none that can be seen")
    if [one.shape for one in ours] != [one.shape for one in reference]:
        return Agreement(
            False, why=f"not compared: its outputs are {_shapes(ours)} here and {_shapes(reference)} in base"
        )
    worst = Agreement(True)
    for index, (one, other) in enumerate(zip(ours, reference, strict=True)):
        bits = digest(one)
        if bits and bits == digest(other):  # equal also where values are not finite
            continue
        found = NUMERICS.compare(one, other, tolerance(one, other))
        if not found.ok and not same_inputs:
            return Agreement(
                False, why="not compared: its inputs hold other values than in base, and so do its outputs"
            )
        if not found.ok:
            return Agreement(True, False, f"output {index} differs from base: {found.why}")
        worst = dataclasses.replace(worst, norm=max(worst.norm, found.norm), peak=max(worst.peak, found.peak))
    return worst


def tolerance(one: torch.Tensor, other: torch.Tensor) -> Any:
    """Of the coarser of two types."""
    kinds = (one.dtype, other.dtype)
    if not all(kind.is_floating_point or kind.is_complex for kind in kinds):
        return EXACT
    if any(kind.itemsize == 1 for kind in kinds):
        return FEW_BITS
    found = [TOLERANCES.get(kind, TOLERANCES[torch.float32]) for kind in kinds]
    return max(found, key=lambda one: one.norm)


def _shapes(tensors: Sequence[torch.Tensor]) -> str:
    return ", ".join(str(list(one.shape)) for one in tensors) or "none"


# The tensors that a closure can read or write, and what they hold.


DEEPEST, MOST = 5, 64
"""Steps from the closure to a tensor, and tensors that are followed."""

MOST_NODES = 10_000
"""Of a graph of gradients that are followed to its leaves."""


def leaves(held: Collection[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors into which a backward pass may add gradients: those among the held, and those that they are made of."""
    found = {id(one): one for one in held if one.requires_grad and one.is_leaf}
    nodes = dict.fromkeys(one.grad_fn for one in held if one.grad_fn is not None)
    waiting = list(nodes)
    while waiting and len(nodes) < MOST_NODES:
        node = waiting.pop()
        if type(node).__name__ == "AccumulateGrad":
            found[id(node.variable)] = node.variable  # type: ignore[attr-defined]
        new = [one for one, _ in node.next_functions if one is not None and one not in nodes]
        nodes.update(dict.fromkeys(new))
        waiting += new
    return list(found.values())


def tensors(*roots: Any) -> dict[str, torch.Tensor]:
    """The tensors that can be reached, by way: of closures, partials, methods, containers, modules and objects."""
    found: dict[str, torch.Tensor] = {}
    seen: set[int] = set()
    for index, root in enumerate(roots):
        _follow(root, str(index), 0, found, seen)
    return found


def outputs(value: Any) -> list[torch.Tensor]:
    """The tensors in what a call returned, in order."""
    found: dict[str, torch.Tensor] = {}
    _follow(value, "", DEEPEST - 3, found, set(), calls=False)
    return list(found.values())


def described(found: dict[str, torch.Tensor]) -> list[str]:
    """Type and shape of every tensor, sorted: "bf16[64,4096]"."""
    return sorted(f"{str(one.dtype).removeprefix('torch.')}{list(one.shape)}" for one in found.values())


def _follow(
    value: Any, way: str, depth: int, found: dict[str, torch.Tensor], seen: set[int], calls: bool = True
) -> None:
    if len(found) >= MOST or depth > DEEPEST or id(value) in seen:
        return
    if isinstance(value, torch.Tensor):
        seen.add(id(value))
        if value.layout is torch.strided and value.device.type != "meta":
            found[way] = value
        return
    if value is None or isinstance(value, (str, bytes, int, float, type)):
        return
    seen.add(id(value))
    for name, part in _parts(value, calls):
        _follow(part, f"{way}.{name}", depth + 1, found, seen, calls)


def _parts(value: Any, calls: bool) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (list, tuple)):
        yield from ((str(index), one) for index, one in enumerate(value[:MOST]))
    elif isinstance(value, dict):
        yield from ((str(name), one) for name, one in list(value.items())[:MOST])
    elif isinstance(value, torch.nn.Module):
        yield from value.named_parameters()
        yield from value.named_buffers()
    elif calls and isinstance(value, (functools.partial, MethodType)):
        names = ("__self__", "__func__") if isinstance(value, MethodType) else ("func", "args", "keywords")
        yield from ((name, getattr(value, name)) for name in names)
    elif calls and isinstance(value, FunctionType):
        yield from _of_function(value)
    elif hasattr(value, "__dict__") and type(value).__module__.partition(".")[0] not in ("torch", "builtins", "triton"):
        yield from list(vars(value).items())[:MOST]


_HOLDERS = (torch.Tensor, torch.nn.Module, list, tuple, dict, FunctionType, functools.partial)
"""Globals of these kinds are followed; others are modules and constants."""


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Cells, defaults, and the globals that its code names."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=False):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue  # a variable that is not set yet
    yield "defaults", function.__defaults__
    held = function.__globals__
    yield from ((name, held[name]) for name in function.__code__.co_names if isinstance(held.get(name), _HOLDERS))
