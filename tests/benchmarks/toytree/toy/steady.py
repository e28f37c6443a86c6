"""Doubling, without any fault."""

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported
from toy import doubled, log

steady = Kernel(
    "steady",
    tolerance=Tolerance(1e-6, 1e-6),
    cases=[
        Case("small", tier="pr", n=64, dtype="fp32"),
        Case("other", tier="nightly", n=128, dtype="fp32"),
        Case("huge", tier="pr", n=10**9, dtype="fp32"),
        Case("crowd", tier="pr", n=64, world=512, dtype="fp32"),
        Case("costless", tier="sweep", n=-1, dtype="fp32"),
    ],
)


@steady.inputs
def inputs(case, seed):
    return {"x": torch.randn(case.n)}


@steady.cost
def cost(case):
    if case.n < 0:
        raise ValueError("no cost below zero")
    return Cost(flops=case.n, hbm_bytes=8 * case.n)


@steady.reference
def reference(case, inputs):
    log("reference", case.name, torch.initial_seed(), torch.empty(0).device.type, case.place.arch)
    return inputs["x"] * 2


@steady.backend("ours", config=lambda case, arch: {"tile": 16})
def ours(case, inputs, *, tile=8, order="rows"):
    log("knobs", tile, order)
    out, call = doubled(inputs)

    def logged():
        log("call", "ours")
        return call()

    return logged


@steady.baseline("library")
def library(case, inputs):
    out, call = doubled(inputs)

    def logged():
        log("call", "library")
        return call()

    return logged


@steady.backend("elsewhere")
def elsewhere(case, inputs):
    raise Unsupported("needs a device of the next decade")
