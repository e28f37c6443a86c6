"""Sum over two ranks, with the faults that only ranks have."""

import os

import torch
import torch.distributed as dist

from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported
from toy import log

pairs = Kernel("pairs", tolerance=Tolerance(), cases=[Case("two", tier="pr", n=64, world=2, dtype="fp32")])


@pairs.inputs
def inputs(case, seed):
    return {"x": torch.full((case.n,), float(case.place.rank + 1))}


@pairs.cost
def cost(case):
    return Cost(hbm_bytes=8 * case.n, link_bytes=4 * case.n, payload_bytes=4 * case.n)


@pairs.reference
def reference(case, inputs):
    return torch.full((case.n,), 3.0)


def with_fault(fault):
    """A sum in which one rank may misbehave before the ranks meet."""

    def build(case, inputs):
        out = torch.empty_like(inputs["x"])

        def call():
            log("call", case.place.rank)
            fault(case.place.rank)
            out.copy_(inputs["x"])
            dist.all_reduce(out)
            return out

        return call

    return build


def one_raises(rank):
    if rank == 1:
        raise ValueError("rank 1 has no plan")


def one_dies(rank):
    if rank == 1:
        os._exit(9)


pairs.baseline("library")(with_fault(lambda rank: None))
pairs.backend("one_raises")(with_fault(one_raises))
pairs.backend("one_dies")(with_fault(one_dies))


@pairs.backend("heap")
def heap(case, inputs):
    place = case.place
    mine = place.heap.alloc((case.n,), torch.float32)
    out = torch.empty(case.n)

    def call():
        place.heap.barrier()
        mine.copy_(inputs["x"])
        place.heap.barrier()
        torch.add(place.heap.peer(0, mine), place.heap.peer(1, mine), out=out)
        return out

    return call


@pairs.backend("one_unsupported")
def one_unsupported(case, inputs):
    if case.place.rank == 1:
        raise Unsupported("rank 1 has no such unit")
    place = case.place
    place.heap.alloc((case.n,), torch.float32)
    return lambda: None


@pairs.backend("one_wrong")
def one_wrong(case, inputs):
    out = torch.empty_like(inputs["x"])

    def call():
        out.copy_(inputs["x"])
        dist.all_reduce(out)
        return out.add_(case.place.rank)

    return call
