"""The canary: work that is the same on every machine, and a share of it that `ridgeline ci canary` plants.

The gate is asked about known changes: none, and one of exactly so much more work.  `ridgeline ci canary` writes
two source trees with this module in them; they differ in `SHARE` alone, as two commits differ in one line.

`stream` adds two vectors, which memory bounds; `special` takes logarithms of the gamma function, which arithmetic
bounds.  Both are one call of torch that works through its elements in turn, so a share of additional elements is that
share of additional work for the device, on any device that torch knows.  The additional results are thrown away.
"""

from __future__ import annotations

import torch

from kernels.spec import Case, Cost, Kernel, Tolerance

SHARE = 0.0
"""How much more work head does than base: the one line in which the two trees differ."""

SIZES = {"cpu": 1 << 21, "gpu": 1 << 27}
"""Elements, fp32, by kind of machine: 25 MB and 1.6 GB are moved by `stream`.

A CPU's cases end at 40 MB (benchmarks.coordinator).  A GPU has to have many more blocks than it can hold at once, or
1 % more of them are not 1 % more time: 2^27 are 124 times what 132 SMs hold (16 blocks of 512)."""

canary = Kernel(
    "canary",
    tolerance=Tolerance(1e-6, 1e-5),
    cases=[
        Case(f"{function}_{kind}", tier="pr", function=function, n=n, dtype="fp32")
        for kind, n in SIZES.items()
        for function in ("stream", "special")
    ],
)


BLOCK = 1 << 20
"""Elements of a block of the reference."""


@canary.inputs
def inputs(case: Case, seed: int) -> dict[str, torch.Tensor]:
    """x, y [n], uniform in 1 to 5: the logarithm of the gamma function is well-behaved there."""
    return {name: 1 + 4 * torch.rand(case.n) for name in "xy"}


@canary.cost
def cost(case: Case) -> Cost:
    """One addition, or one function value, per element; each operand is moved once."""
    return Cost(flops=case.n, hbm_bytes=4 * case.n * (3 if case.function == "stream" else 2))


@canary.reference
def reference(case: Case, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """In blocks, so that it is not the one call that is timed."""
    blocks = zip(inputs["x"].split(BLOCK), inputs["y"].split(BLOCK), strict=True)
    return torch.cat([x + y if case.function == "stream" else torch.lgamma(x) for x, y in blocks])


@canary.backend("torch")
def work(case: Case, inputs: dict[str, torch.Tensor]):
    """The planted share of the elements is appended to the inputs and left off the result."""
    extra = round(SHARE * case.n)
    x, y = (torch.cat([inputs[name], inputs[name][:extra]]) for name in "xy")
    out = torch.empty_like(x)
    if case.function == "stream":
        return lambda: torch.add(x, y, out=out)[: case.n]
    return lambda: torch.lgamma(x, out=out)[: case.n]
