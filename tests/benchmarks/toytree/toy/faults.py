"""Doubling with every fault there is, one backend each."""

import ctypes
import os
import time

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance, Unsupported, functional
from toy import doubled

CALLS_BEFORE_TIMING = 30
"""More than the harness makes before it starts to take samples, fewer than it makes in all."""

faults = Kernel(
    "faults",
    tolerance=Tolerance(1e-6, 1e-6),
    cases=[Case("one", tier="pr", n=64, dtype="fp32"), Case("endless", tier="nightly", n=64, dtype="fp32")],
)


@faults.inputs
def inputs(case, seed):
    return {"x": torch.randn(case.n)}


@faults.cost
def cost(case):
    return Cost(flops=case.n, hbm_bytes=8 * case.n)


@faults.reference
def reference(case, inputs):
    return inputs["x"] * 2


def with_fault(fault, calls_before=0):
    """A backend that is right until its fault sets in."""

    def build(case, inputs):
        if (fault is hang and not calls_before) != (case.name == "endless"):
            raise Unsupported("hanging at once has a case of its own")
        out, call = doubled(inputs)
        done = 0

        def faulty():
            nonlocal done
            done += 1
            call()
            if done > calls_before:
                fault(out, inputs)
            return out

        return faulty

    return build


def raise_chain(out, inputs):
    try:
        raise KeyError("the first cause")
    except KeyError as error:
        raise RuntimeError("what it led to") from error


def hang(out, inputs):
    time.sleep(3600)


def die(out, inputs):
    os._exit(7)


def fall(out, inputs):
    ctypes.string_at(0)


def spoil(out, inputs):
    out[-1] += 1


faults.backend("good")(with_fault(lambda out, inputs: None))
faults.backend("wrong")(with_fault(spoil))
faults.backend("wrong_later")(with_fault(spoil, CALLS_BEFORE_TIMING))
faults.backend("raises")(with_fault(raise_chain))
faults.backend("hangs")(with_fault(hang))
faults.backend("hangs_later")(with_fault(hang, CALLS_BEFORE_TIMING))
faults.backend("dies_later")(with_fault(die, CALLS_BEFORE_TIMING))
faults.backend("falls")(with_fault(fall))


@faults.backend("fails_to_build")
def fails_to_build(case, inputs):
    raise ValueError("no such tile")


@faults.backend("not_callable")
def not_callable(case, inputs):
    return 3


@faults.backend("allocates")
def allocates(case, inputs):
    kept = []

    def call():
        kept.append(inputs["x"] * 2)
        return kept[-1]

    return call


@faults.backend("functional")
def functional_library(case, inputs):
    return functional(lambda: inputs["x"] * 2)


@faults.backend("functional_wrong")
def functional_wrong(case, inputs):
    return functional(lambda: inputs["x"] * 3)


@faults.backend("searches")
def searches(case, inputs):
    out, call = doubled(inputs)
    found = []

    def slow_at_first():
        if not found:
            time.sleep(0.8)
            found.append(True)
        return call()

    return slow_at_first
