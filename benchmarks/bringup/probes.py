"""What the steps of the bring-up do, in a measuring process per rank: symmetric heap, fences, the library's all-gather.

Each takes the place of its rank and returns rows, which those of rank 0 are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.bringup import RankPlace, Row, RowStatus, row, verdict_row
from benchmarks.channel import first_line
from benchmarks.worker import probe
from kernels import symmetric_heap
from kernels._shared.libraries import need_triton
from kernels.spec import Case, Place
from kernels.symmetric_heap.meeting import gathered

IS_AMD = torch.version.hip is not None


@contextlib.contextmanager
def process_group(place: RankPlace) -> Iterator[None]:
    """The default process group of all ranks: RCCL or NCCL, gloo without a GPU.

    After an error it is left as it is: taking it down would wait for the others, and nobody would hear of the error.
    """
    if place.is_gpu:
        torch.cuda.set_device(torch.device(place.device))
    probe.make_process_group(place.rank, place.world, place.device, place.store)
    yield
    dist.destroy_process_group()


def heap_or_reason(place: RankPlace, size: int) -> tuple[Any, str]:
    """(symmetric heap, ""), or (None, why) on every rank as soon as one cannot make it."""
    heap, why = None, ""
    try:
        at = (place.rank, place.world, place.device)
        heap = symmetric_heap.create(*at, size, directory=place.heap_directory)
    except Exception as error:
        why = f"rank {place.rank}: {type(error).__name__}: {first_line(error)}"
    reasons = [reason for reason in gathered(why) if reason]
    return (None, reasons[0]) if reasons else (heap, "")


def synchronize(place: RankPlace) -> None:
    """Wait for this rank's device."""
    if place.is_gpu:
        torch.cuda.synchronize(place.device)


# The symmetric heap: peer access, allocate, map, write to each peer and check, rate per peer.


MIB, CPU_MIB = 64, 4
"""Written to a peer in one go: 0.2 ms over NVLink 4, 1.4 ms over one xGMI link of MI300X (48 GB/s); on a CPU."""

LINK_SHARE = 0.5
"""A link this much slower than the median of all is reported."""

HEAP_HINT = (
    "check peer access between the GPUs, --ipc=host and --shm-size of the container, and ulimit -l; `ridgeline doctor` "
    f"names the versions; {symmetric_heap.VARIABLE}=torch or =ipc chooses where the heap lies"
)


def heap(place: RankPlace) -> list[Row]:
    """Where `auto` has the heap, and what it can do there."""
    with process_group(place):
        return list(_heap_rows(place))


def _heap_rows(place: RankPlace) -> Iterator[Row]:
    if place.is_gpu:
        yield peer_access(place.world)
    size = (MIB if place.is_gpu else CPU_MIB) << 20
    begin = time.monotonic()
    heap, why = heap_or_reason(place, 2 * size)
    if heap is None:
        yield row("allocate", RowStatus.FAIL, f"kernels.symmetric_heap.create failed: {why}", HEAP_HINT)
        return
    with heap:
        took_s = max(gathered(time.monotonic() - begin))
        unusable = "".join(
            f"; {name}: {facts['why']}" for name, facts in heap.facts.get("homes", {}).items() if facts["why"]
        )
        where = f"{2 * size >> 20} MiB on each of {place.world} ranks, mapped by all"
        yield row("allocate", RowStatus.PASS, f"{where} in {took_s:.1f} s; home: {heap.facts['home']}{unusable}")
        try:
            yield rates_row(symmetric_heap.probe(heap, size), LINK_SHARE if place.is_gpu else 0.0)
        except symmetric_heap.HeapError as error:
            yield row("write", RowStatus.FAIL, str(error), HEAP_HINT)
        heap.barrier()


def peer_access(world: int) -> Row:
    """Which pairs of GPUs can reach each other's memory."""
    pairs = [(a, b) for a in range(world) for b in range(world) if a != b]
    return access_row([pair for pair in pairs if not torch.cuda.can_device_access_peer(*pair)], len(pairs))


def access_row(closed: list[tuple[int, int]], pairs: int) -> Row:
    """closed: pairs (from, to) without access."""
    next_step = (
        "check `amd-smi topology` (`nvidia-smi topo -p2p r`), IOMMU passthrough (iommu=pt), ACS, and that the "
        "container was given all GPUs; parts of a GPU under MIG have no peers"
    )
    problem = f"{len(closed)} have none ({', '.join(f'{a}->{b}' for a, b in closed[:6])})" if closed else ""
    return verdict_row("peer access", f"{pairs} pairs", problem, next_step)


def rates_row(rates: Sequence[Sequence[float]], least_share: float = LINK_SHARE) -> Row:
    """rates: GB/s by [from][to], of writes that arrived.  least_share: of their median; a CPU has no links."""
    links = {f"{a}->{b}": rate for a, of_rank in enumerate(rates) for b, rate in enumerate(of_rank) if a != b}
    ordered = sorted(links.values())
    median = ordered[len(ordered) // 2]
    slow = [f"{pair} {rate:.0f} GB/s" for pair, rate in links.items() if rate < least_share * median]
    spread = f"median of {len(links)} directions, {ordered[0]:.3g} to {ordered[-1]:.3g}"
    problem = f"much slower: {', '.join(slow[:6])}" if slow else ""
    next_step = "check this link: `amd-smi xgmi`, `nvidia-smi nvlink -s`"
    text = f"each rank to each peer, checked: {median:.3g} GB/s ({spread})"
    return verdict_row("write", text, problem, next_step)


ORDER_HINT = (
    "Ridgeline's collectives are not safe here: send us this report, trust no time of theirs; RCCL is not affected"
)


# A litmus test of the primitives that our collectives rely on: message passing with release and acquire over links.


@dataclasses.dataclass(frozen=True)
class Litmus:
    """programs x rounds messages per pair and direction, each of `block` int32."""

    name: str
    programs: int
    rounds: int
    block: int = 1024


MANY = Litmus("many programs", programs=32, rounds=32768)
"""1,048,576 messages per pair and direction, from programs on different CUs and dies."""

ONE = Litmus("one program", programs=1, rounds=65536)
"""The links are idle but for this message: gives the time of one exchange."""

PLANS = (MANY, ONE)


def fences(place: RankPlace, plans: tuple[Litmus, ...] = PLANS) -> list[Row]:
    """One row per plan."""
    need_triton(Case("fences", world=place.world, place=Place(device=place.device)))
    with process_group(place):
        return list(_litmus_rows(place, plans))


def _litmus_rows(place: RankPlace, plans: tuple[Litmus, ...]) -> Iterator[Row]:
    most = max(plan.programs * place.world * (8 * plan.block + 4) for plan in plans)
    heap, why = heap_or_reason(place, most + (1 << 20))
    if heap is None:
        yield row("fences", RowStatus.NOT_HERE, f"there is no symmetric heap: {why}", "see the step heap")
        return
    with heap:
        for plan in plans:
            yield litmus_row(plan, *_litmus_run(place, heap, plan))
            heap.reset()


def _litmus_run(place: RankPlace, heap: Any, plan: Litmus) -> tuple[list[int], float]:
    """(violations by rank, seconds of the slowest rank)."""
    from benchmarks.bringup import link_device

    data = heap.alloc((2, plan.programs, place.world, plan.block), torch.int32).zero_()
    signals = heap.signals(place.world, plan.programs)
    wrong = torch.zeros((plan.programs, plan.block), dtype=torch.int32, device=place.device)

    def launch(rounds: int) -> None:
        link_device.litmus[(plan.programs,)](
            data, signals, heap.bases, wrong, place.rank, rounds, PROGRAMS=plan.programs, BLOCK=plan.block,
            WORLD=place.world, LANES=max(2, 1 << (place.world - 1).bit_length()), AMD=IS_AMD,
            num_warps=4,
        )  # fmt: skip

    launch(2)  # compiles
    synchronize(place)
    heap.barrier()
    synchronize(place)
    begin = time.perf_counter()
    launch(plan.rounds)
    synchronize(place)
    seconds = time.perf_counter() - begin
    violations, times = zip(*gathered((int(wrong.sum(dtype=torch.int64)), seconds)), strict=True)
    return list(violations), max(times)


def litmus_row(plan: Litmus, wrong: list[int], seconds: float) -> Row:
    """wrong: elements by rank that were not those of the round when the flag was."""
    messages = plan.programs * plan.rounds
    text = f"{messages:,} messages of {4 * plan.block // 1024} KiB per pair and direction: {sum(wrong)} violations"
    exchange_us = seconds / plan.rounds * 1e6
    by_rank = ", ".join(f"rank {rank}: {count}" for rank, count in enumerate(wrong) if count)
    return verdict_row(plan.name, f"{text}, {exchange_us:.2f} us per exchange", by_rank, ORDER_HINT)


# The vendor's collectives: RCCL or NCCL (gloo without a GPU) can meet, move the right data, and how fast.


GATHERED_MIB, GATHERED_CPU_MIB = 128, 2
"""Per rank: large enough for the full rate of the links; small enough for gloo."""

CALLS = 10
"""Calls that the rate is taken from."""


def rccl(place: RankPlace) -> list[Row]:
    """One row."""
    with process_group(place):
        mib = GATHERED_MIB if place.is_gpu else GATHERED_CPU_MIB
        own = torch.full((mib << 18,), float(place.rank + 1), device=place.device)
        out = torch.zeros((place.world, mib << 18), device=place.device)
        dist.all_gather_into_tensor(out.view(-1), own)
        synchronize(place)
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(CALLS):
            dist.all_gather_into_tensor(out.view(-1), own)
        synchronize(place)
        seconds = max(gathered((time.perf_counter() - begin) / CALLS))
        is_right = all(gathered(all(bool((part == rank + 1).all()) for rank, part in enumerate(out))))
    library = f"{'RCCL' if IS_AMD else 'NCCL'} {probe.environment()['nccl']}" if place.is_gpu else "gloo"
    return [gather_row(library, place.world, mib, is_right, seconds)]


def gather_row(library: str, world: int, mib: int, is_right: bool, seconds: float) -> Row:
    """mib: per rank.  seconds: of a call.  busbw as nccl-tests has it."""
    busbw = (mib << 20) * (world - 1) / seconds / 1e9
    text = f"{library}, {world} ranks: all-gather of {mib} MiB per rank, busbw {busbw:.3g} GB/s"
    problem = "" if is_right else "the output is wrong"
    return verdict_row("all_gather", text, problem, "set NCCL_DEBUG=INFO and run this step again")
