"""A litmus test of the primitives that our collectives rely on: message passing with release and acquire over links."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch

from benchmarks.bringup.context import StepContext
from benchmarks.bringup.probes import ranks
from benchmarks.bringup.probes.heap import ORDER_HINT, OTHER_HOME
from benchmarks.bringup.rows import Row, failed, not_here, passed
from kernels._shared.triton_needed import need_triton
from kernels.spec import Case, Place


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
    with ranks.group(context):
        rows = [row.as_json() for row in _rows(context, plans)]
    return rows if context.rank == 0 else []


def _rows(context: StepContext, plans: tuple[Litmus, ...]) -> Iterator[Row]:
    most = max(plan.programs * context.world * (8 * plan.block + 4) for plan in plans)
    home = context.part or None
    heap, why = ranks.heap_of(context, most + (1 << 20), home)
    if heap is None:
        yield not_here(home or "fences", f"kernels.symmetric_heap.create(home={home!r}) failed: {why}", OTHER_HOME)
        return
    with heap:
        for plan in plans:
            yield judge(plan, *_run(context, heap, plan))
            heap.reset()


def _run(context: StepContext, heap: Any, plan: Litmus) -> tuple[list[int], float]:
    """(violations by rank, seconds of the slowest rank)."""
    from benchmarks.bringup.probes import link_device

    data = heap.alloc((2, plan.programs, context.world, plan.block), torch.int32).zero_()
    signals = heap.signals(context.world, plan.programs)
    wrong = torch.zeros((plan.programs, plan.block), dtype=torch.int32, device=context.device)

    def launch(rounds: int) -> None:
        link_device.litmus[(plan.programs,)](
            data, signals, heap.bases, wrong, context.rank, rounds, PROGRAMS=plan.programs, BLOCK=plan.block,
            WORLD=context.world, LANES=ranks.fewest(context), AMD=context.amd, RELEASE=plan.release,
            ACQUIRE=plan.acquire, num_warps=4,
        )  # fmt: skip

    launch(2)  # compiles
    ranks.synchronize(context)
    heap.barrier()
    ranks.synchronize(context)
    begin = time.perf_counter()
    launch(plan.rounds)
    ranks.synchronize(context)
    seconds = time.perf_counter() - begin
    found = ranks.gathered((int((wrong > 0).sum()), int(wrong.sum(dtype=torch.int64)), seconds))
    return [elements for _, elements, _ in found], max(seconds for _, _, seconds in found)


def judge(plan: Litmus, wrong: list[int], seconds: float) -> Row:
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
