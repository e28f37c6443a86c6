"""Doubling with knobs, one of which is a fault: the operator of these tests, copied into a toy tree."""

import os
import time

import torch
from toy import doubled, log

from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported

swept = Kernel(
    "swept",
    tolerance=Tolerance(1e-6, 1e-6),
    cases=[
        Case("one", tier="pr", n=64, dtype="fp32"),
        Case("two", tier="sweep", n=128, dtype="fp32"),
        Case("crowd", tier="pr", n=64, world=512, dtype="fp32"),
    ],
)


@swept.inputs
def inputs(case, seed):
    log("inputs", case.name)
    return {"x": torch.randn(case.n)}


@swept.cost
def cost(case):
    return Cost(flops=case.n, hbm_bytes=8 * case.n)


@swept.reference
def reference(case, inputs):
    return inputs["x"] * 2


@swept.backend("ours", config=lambda case, arch: {"tile": 16})
def ours(case, inputs, *, tile=8, fault=""):
    log("built", case.name, tile, fault or "sound")
    if fault == "unsupported":
        raise Unsupported("tiles of the next decade")
    out, call = doubled(inputs)

    def timed():
        call()
        if fault == "wrong":
            out[-1] += 1
        elif fault == "dies":
            os._exit(7)
        elif fault == "hangs":
            time.sleep(3600)
        elif fault == "slow":
            time.sleep(0.02)
        return out

    return timed


@swept.baseline("library")
def library(case, inputs):
    return doubled(inputs)[1]
