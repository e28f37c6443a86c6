"""What the steps of the bring-up do, in a measuring process: symmetric heap, fences, the library's all-gather."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.bringup.steps import Row, StepContext, failed, not_here, passed
from benchmarks.worker import probe
from benchmarks.worker.failures import first_line
from kernels import symmetric_heap
from kernels._shared.triton_needed import need_triton
from kernels.spec import Case, Place
from kernels.symmetric_heap.meeting import gathered


@contextlib.contextmanager
def group(context: StepContext) -> Iterator[None]:
    """The default process group of all ranks: RCCL or NCCL, gloo without a GPU.

    After an error it is left as it is: taking it down would wait for the others, and nobody would hear of the error.
    """
    if context.gpu:
        torch.cuda.set_device(torch.device(context.device))
    probe.make_process_group(context.rank, context.world, context.device, context.store)
    yield
    dist.destroy_process_group()


def heap_of(context: StepContext, size: int, home: str | None = None) -> tuple[Any, str]:
    """(symmetric heap, ""), or (None, why) on every rank as soon as one cannot make it.  home: None for `auto`."""
    heap, why = None, ""
    try:
        place = (context.rank, context.world, context.device)
        heap = symmetric_heap.create(*place, size, directory=context.heap_directory, home=home)
    except Exception as error:
        why = f"rank {context.rank}: {type(error).__name__}: {first_line(error)}"
    reasons = [reason for reason in gathered(why) if reason]
    return (None, reasons[0]) if reasons else (heap, "")


def synchronize(context: StepContext) -> None:
    """Wait for this rank's device."""
    if context.gpu:
        torch.cuda.synchronize(context.device)


def fewest(context: StepContext) -> int:
    """Lanes of a kernel that has one lane per rank: a power of two."""
    return max(2, 1 << (context.world - 1).bit_length())


# The symmetric heap: allocate, map, write to each peer, order of stores, rate per peer.


MIB = 64
"""Sent to a peer in one go: 0.2 ms over NVLink 4, 1.4 ms over one xGMI link of MI300X (48 GB/s)."""

CPU_MIB = 4
"""The same, on a CPU."""

ORDER_ROUNDS, RATE_LAUNCHES = 20, 10
"""Rounds of the order test per peer; launches that one rate is taken from."""

LINK_SHARE = 0.5
"""A link this much slower than the median of all is reported."""


def heap(context: StepContext) -> list[dict[str, Any]]:
    """Rows of rank 0; the others take part.  The step heap/HOME tries one home, the step heap what `auto` takes."""
    steps = _home if "/" in context.step else _auto
    with group(context):
        rows = [row.as_json() for row in steps(context)]
    return rows if context.rank == 0 else []


HEAP_HINT = (
    "check peer access between the GPUs, --ipc=host and --shm-size of the container, and ulimit -l; "
    "`ridgeline doctor` names the versions"
)


def _auto(context: StepContext) -> Iterator[Row]:
    """Peer access, and which home is taken; on a CPU, where there is one only, what it can do."""
    if context.gpu:
        yield peer_access(context)
    size = bytes_of(context)
    begin = time.monotonic()
    heap, why = heap_of(context, 3 * size)
    if heap is None:
        yield failed("allocate", f"kernels.symmetric_heap.create failed: {why}", HEAP_HINT)
        return
    with heap:
        took = (max(gathered(time.monotonic() - begin)), "s")
        where = f"{3 * size >> 20} MiB on each of {context.world} ranks, mapped by all"
        yield passed("allocate", f"{where}; home: {heap.facts['home']}", took=took)
        if not context.gpu:
            yield _written(context, heap, *_buffers(context, heap))


OTHER_HOME = "nothing, if the step `heap` passes: another home is used; else see its next step"


def _home(context: StepContext) -> Iterator[Row]:
    """What one home can do; that it cannot be had is no fault as long as another can (step heap)."""
    home = context.part
    heap, why = heap_of(context, 3 * bytes_of(context), home)
    if heap is None:
        yield not_here(home, f"kernels.symmetric_heap.create(home={home!r}) failed: {why}", OTHER_HOME)
        return
    with heap:
        buffers = _buffers(context, heap)
        yield _written(context, heap, *buffers)
        yield from _pushed(context, heap, *buffers)
        heap.barrier()


def bytes_of(context: StepContext) -> int:
    """What is sent to a peer in one go."""
    return (MIB if context.gpu else CPU_MIB) << 20


def _buffers(context: StepContext, heap: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """(what is sent, where on the heap it arrives)."""
    count = bytes_of(context) // 4
    return torch.zeros(count, dtype=torch.int32, device=context.device), heap.alloc(count, torch.int32)


def peer_access(context: StepContext) -> Row:
    """Which pairs of GPUs can reach each other's memory."""
    pairs = [(a, b) for a in range(context.world) for b in range(context.world) if a != b]
    return judge_access([pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)], len(pairs))


def judge_access(closed: list[tuple[int, int]], pairs: int) -> Row:
    """closed: pairs (from, to) without access."""
    if not closed:
        return passed("peer access", f"all {pairs} pairs")
    shown = ", ".join(f"{a}->{b}" for a, b in closed[:6]) + (" ..." if len(closed) > 6 else "")
    next_step = (
        "check `amd-smi topology` (`nvidia-smi topo -p2p r`), IOMMU passthrough (iommu=pt), ACS, and that the "
        "container was given all GPUs; parts of a GPU under MIG have no peers"
    )
    return failed("peer access", f"no peer access for {len(closed)} of {pairs} pairs: {shown}", next_step)


def _written(context: StepContext, heap: Any, source: torch.Tensor, target: torch.Tensor) -> Row:
    """Each rank copies its numbers to each peer in turn, and checks what it was sent."""
    wrong = []
    for shift in range(1, context.world):
        peer, sender = (context.rank + shift) % context.world, (context.rank - shift) % context.world
        pattern(source, context.rank, shift)
        heap.peer(peer, target).copy_(source)
        synchronize(context)
        heap.barrier()
        synchronize(context)
        if not torch.equal(target, pattern(torch.empty_like(target), sender, shift)):
            wrong.append(f"{sender}->{context.rank}")
        heap.barrier()
    lost = [one for each in gathered(wrong) for one in each]
    if lost:
        return failed("write", f"what was written did not arrive: {', '.join(lost[:6])}", HEAP_HINT)
    return passed("write", f"each of {context.world} ranks to each peer, and checked")


def pattern(out: torch.Tensor, rank: int, turn: int) -> torch.Tensor:
    """Numbers that tell rank, turn and place apart."""
    torch.arange(out.numel(), dtype=torch.int32, device=out.device, out=out)
    return out.mul_(64).add_(rank).add_(turn * 7919)


def _pushed(context: StepContext, heap: Any, source: torch.Tensor, target: torch.Tensor) -> Iterator[Row]:
    """Triton stores, then flags: whether all stores are seen behind the flags, and how fast they go."""
    try:
        from benchmarks.bringup import link_device
    except ImportError as error:
        yield not_here("order of stores", f"Triton cannot be imported: {error}")
        return
    programs = min(128, torch.cuda.get_device_properties(context.device).multi_processor_count)
    arguments = {
        "source": source, "target": target, "bases": heap.bases, "signals": heap.signals(context.world, programs),
        "count": source.numel(), "rank": context.rank, "PROGRAMS": programs, "BLOCK": 4096, "WORLD": context.world,
        "LANES": fewest(context), "AMD": context.amd, "num_warps": 8,
    }  # fmt: skip

    def launch(peer: int) -> None:
        link_device.push[(programs,)](**arguments, peer=peer)

    launch((context.rank + 1) % context.world)  # compiles
    yield _ordered(context, heap, launch, source, target)
    yield _rated(context, heap, launch, source.numel() * 4)


ORDER_HINT = (
    "Ridgeline's collectives are not safe here: send us this report, trust no time of theirs; RCCL is not affected"
)


def _ordered(context: StepContext, heap: Any, launch: Any, source: torch.Tensor, target: torch.Tensor) -> Row:
    """A push, and at once, on the same stream, a look at what was received: no other barrier in between."""
    bad = torch.zeros((), dtype=torch.int64, device=context.device)
    expected = torch.empty_like(target)
    for turn in range(ORDER_ROUNDS):
        for shift in range(1, context.world):
            pattern(source, context.rank, turn)
            pattern(expected, (context.rank - shift) % context.world, turn)
            heap.barrier()
            launch((context.rank + shift) % context.world)
            bad += (target != expected).sum()
    wrong = sum(gathered(int(bad)))
    done = ORDER_ROUNDS * (context.world - 1)
    said = f"{done} pushes of {source.numel() * 4 >> 20} MiB per rank: {wrong} elements not there when the flags were"
    numbers = {"wrong": (wrong, "elements")}
    return (
        failed("order of stores", said, ORDER_HINT, **numbers) if wrong else passed("order of stores", said, **numbers)
    )


def _rated(context: StepContext, heap: Any, launch: Any, size: int) -> Row:
    """GB/s of a push to each peer, all ranks at once, each to another one."""
    rates = {}
    for shift in range(1, context.world):
        peer = (context.rank + shift) % context.world
        rates[f"{context.rank}->{peer}"] = size / _seconds(heap, launch, peer) / 1e9
    everything = {name: rate for one in gathered(rates) for name, rate in one.items()}
    dist.barrier()
    return judge_rates(everything)


def _seconds(heap: Any, launch: Any, peer: int) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    launch(peer)
    heap.barrier()
    start.record()
    for _ in range(RATE_LAUNCHES):
        launch(peer)
    end.record()
    end.synchronize()
    return start.elapsed_time(end) * 1e-3 / RATE_LAUNCHES


def judge_rates(rates: dict[str, float]) -> Row:
    """rates: GB/s by "from->to"."""
    ordered = sorted(rates.values())
    median = ordered[len(ordered) // 2]
    slow = [f"{pair} {rate:.0f} GB/s" for pair, rate in rates.items() if rate < LINK_SHARE * median]
    numbers = {"median": (median, "GB/s"), "slowest": (ordered[0], "GB/s")}
    numbers |= {pair: (rate, "GB/s") for pair, rate in rates.items()}
    said = f"{median:.0f} GB/s per peer (median of {len(rates)} directions, {ordered[0]:.0f} to {ordered[-1]:.0f})"
    if slow:
        next_step = "check this link: `amd-smi xgmi`, `nvidia-smi nvlink -s`"
        return failed("rate", f"{said}; much slower: {', '.join(slow[:6])}", next_step, **numbers)
    return passed("rate", said, **numbers)


# A litmus test of the primitives that our collectives rely on: message passing with release and acquire over links.


@dataclasses.dataclass(frozen=True)
class Litmus:
    """programs x rounds messages per pair and direction, each of `block` int32.  Not both fences: a control."""

    name: str
    programs: int
    rounds: int
    release: bool = True
    acquire: bool = True
    block: int = 1024

    @property
    def messages(self) -> int:
        """Per pair of ranks and direction."""
        return self.programs * self.rounds


MANY = Litmus("many programs", programs=32, rounds=32768)
"""1,048,576 messages per pair and direction, from programs on different CUs and dies."""

ONE = Litmus("one program", programs=1, rounds=65536)
"""The links are idle but for this message: gives the time of one exchange."""

CONTROLS = (
    Litmus("control, no release", programs=32, rounds=32768, release=False),
    Litmus("control, no acquire", programs=32, rounds=32768, acquire=False),
)
"""The same with one fence less; what they see is what the fences prevent."""

PLANS = (MANY, ONE, *CONTROLS)


def fences(context: StepContext, plans: tuple[Litmus, ...] = PLANS) -> list[dict[str, Any]]:
    """Rows of rank 0; the others take part."""
    need_triton(Case("fences", world=context.world, place=Place(device=context.device)))
    with group(context):
        rows = [row.as_json() for row in _litmus_rows(context, plans)]
    return rows if context.rank == 0 else []


def _litmus_rows(context: StepContext, plans: tuple[Litmus, ...]) -> Iterator[Row]:
    most = max(plan.programs * context.world * (8 * plan.block + 4) for plan in plans)
    home = context.part or None
    heap, why = heap_of(context, most + (1 << 20), home)
    if heap is None:
        yield not_here(home or "fences", f"kernels.symmetric_heap.create(home={home!r}) failed: {why}", OTHER_HOME)
        return
    with heap:
        for plan in plans:
            yield judge_litmus(plan, *_litmus_run(context, heap, plan))
            heap.reset()


def _litmus_run(context: StepContext, heap: Any, plan: Litmus) -> tuple[list[int], float]:
    """(violations by rank, seconds of the slowest rank)."""
    from benchmarks.bringup import link_device

    data = heap.alloc((2, plan.programs, context.world, plan.block), torch.int32).zero_()
    signals = heap.signals(context.world, plan.programs)
    wrong = torch.zeros((plan.programs, plan.block), dtype=torch.int32, device=context.device)

    def launch(rounds: int) -> None:
        link_device.litmus[(plan.programs,)](
            data, signals, heap.bases, wrong, context.rank, rounds, PROGRAMS=plan.programs, BLOCK=plan.block,
            WORLD=context.world, LANES=fewest(context), AMD=context.amd, RELEASE=plan.release,
            ACQUIRE=plan.acquire, num_warps=4,
        )  # fmt: skip

    launch(2)  # compiles
    synchronize(context)
    heap.barrier()
    synchronize(context)
    begin = time.perf_counter()
    launch(plan.rounds)
    synchronize(context)
    seconds = time.perf_counter() - begin
    found = gathered((int((wrong > 0).sum()), int(wrong.sum(dtype=torch.int64)), seconds))
    return [elements for _, elements, _ in found], max(seconds for _, _, seconds in found)


def judge_litmus(plan: Litmus, wrong: list[int], seconds: float) -> Row:
    """wrong: elements by rank that were not those of the round when the flag was."""
    said = f"{plan.messages:,} messages of {4 * plan.block // 1024} KiB per pair and direction: {sum(wrong)} violations"
    numbers = {
        "messages": (plan.messages, "per pair"),
        "violations": (sum(wrong), "elements"),
        "exchange": (seconds / plan.rounds * 1e6, "us"),
    }
    if not (plan.release and plan.acquire):
        share = 100 * sum(wrong) / (plan.messages * plan.block * len(wrong) * (len(wrong) - 1))
        return passed(plan.name, f"{said} ({share:.3g} % of what was sent; this is what the fence prevents)", **numbers)
    if any(wrong):
        by_rank = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(wrong) if count)
        return failed(plan.name, f"{said} ({by_rank})", ORDER_HINT, **numbers)
    return passed(plan.name, f"{said}, {seconds / plan.rounds * 1e6:.2f} us per exchange", **numbers)


# The vendor's collectives: RCCL or NCCL (gloo without a GPU) can meet, move the right data, and how fast.


GATHERED_MIB, GATHERED_CPU_MIB = 128, 2
"""Per rank: large enough for the full rate of the links; small enough for gloo."""

CALLS = 10
"""Calls that the rate is taken from."""


def all_gather(context: StepContext) -> list[dict[str, Any]]:
    """Row of rank 0; the others take part."""
    begin = time.monotonic()
    with group(context):
        dist.all_reduce(torch.zeros(1, device=context.device))  # connects
        synchronize(context)
        row = _gather(context, time.monotonic() - begin)
    return [row.as_json()] if context.rank == 0 else []


def _gather(context: StepContext, connecting_s: float) -> Row:
    count = (GATHERED_MIB if context.gpu else GATHERED_CPU_MIB) << 18
    own = torch.full((count,), float(context.rank + 1), device=context.device)
    out = torch.zeros(count * context.world, device=context.device)
    dist.all_gather_into_tensor(out, own)
    synchronize(context)
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(CALLS):
        dist.all_gather_into_tensor(out, own)
    synchronize(context)
    seconds = max(gathered((time.perf_counter() - begin) / CALLS))
    right = all(bool((part == rank + 1).all()) for rank, part in enumerate(out.view(context.world, count)))
    return judge_gather(context, all(gathered(right)), count * 4 * context.world / seconds / 1e9, connecting_s)


def judge_gather(context: StepContext, right: bool, algbw: float, connecting_s: float) -> Row:
    """algbw: GB/s of the whole output; busbw as nccl-tests has it, times (world - 1) / world."""
    library = f"{'RCCL' if context.amd else 'NCCL'} {context.environment.get('nccl')}" if context.gpu else "gloo"
    size = GATHERED_MIB if context.gpu else GATHERED_CPU_MIB
    said = f"{library}, {context.world} ranks: all-gather of {size} MiB per rank"
    busbw = algbw * (context.world - 1) / context.world
    numbers = {"algbw": (algbw, "GB/s"), "busbw": (busbw, "GB/s"), "connect": (connecting_s, "s")}
    if not right:
        return failed("all_gather", f"{said} is wrong", "set NCCL_DEBUG=INFO and run this step again", **numbers)
    return passed("all_gather", f"{said} is right, busbw {busbw:.3g} GB/s", **numbers)
