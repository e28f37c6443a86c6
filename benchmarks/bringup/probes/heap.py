"""The symmetric heap: allocate, map, write to each peer, order of stores, rate per peer."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.probes import ranks
from benchmarks.bringup.rows import Row, failed, not_here, passed

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
    with ranks.group(context):
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
    heap, why = ranks.heap_of(context, 3 * size)
    if heap is None:
        yield failed("allocate", f"kernels.symmetric_heap.create failed: {why}", HEAP_HINT)
        return
    with heap:
        took = (max(ranks.gathered(time.monotonic() - begin)), "s")
        where = f"{3 * size >> 20} MiB on each of {context.world} ranks, mapped by all"
        yield passed("allocate", f"{where}; home: {heap.facts['home']}", took=took)
        if not context.gpu:
            yield _written(context, heap, *_buffers(context, heap))


OTHER_HOME = "nothing, if the step `heap` passes: another home is used; else see its next step"


def _home(context: StepContext) -> Iterator[Row]:
    """What one home can do; that it cannot be had is no fault as long as another can (step heap)."""
    home = context.part
    heap, why = ranks.heap_of(context, 3 * bytes_of(context), home)
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
        ranks.synchronize(context)
        heap.barrier()
        ranks.synchronize(context)
        if not torch.equal(target, pattern(torch.empty_like(target), sender, shift)):
            wrong.append(f"{sender}->{context.rank}")
        heap.barrier()
    lost = [one for each in ranks.gathered(wrong) for one in each]
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
        from benchmarks.bringup.probes import link_device
    except ImportError as error:
        yield not_here("order of stores", f"Triton cannot be imported: {error}")
        return
    programs = min(128, torch.cuda.get_device_properties(context.device).multi_processor_count)
    arguments = {
        "source": source, "target": target, "bases": heap.bases, "signals": heap.signals(context.world, programs),
        "count": source.numel(), "rank": context.rank, "PROGRAMS": programs, "BLOCK": 4096, "WORLD": context.world,
        "LANES": ranks.fewest(context), "AMD": context.amd, "num_warps": 8,
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
    wrong = sum(ranks.gathered(int(bad)))
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
    everything = {name: rate for one in ranks.gathered(rates) for name, rate in one.items()}
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
