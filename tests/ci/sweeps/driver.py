"""A sweep measured by the stand-in, as a process that a test can kill: python -m tests.ci.sweeps.driver OUT"""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from benchmarks.points import Point
from ci import harness
from ci.git.repository import Commit, LocalCheckout
from ci.sweeps import run
from ci.sweeps.pruning import Pruned, Rungs
from ci.sweeps.run import SweepPlan
from tests.ci.made_trials import HEAD

WARPS = range(1, 13)


def plan(out, **more):
    points = [Point("m16", "triton", {"num_warps": warps}) for warps in WARPS]
    checkout = LocalCheckout("head", Path(), Commit(HEAD, 1_790_000_000_000, ""))
    given = {"rungs": Rungs((8, 20, 20)), "batch": 1, **more}
    return SweepPlan("f3a9", "gemm", checkout, Pruned({"m16": points}), {"m16": "triton"}, out, **given)


def command(plan, asked):
    argv = harness.program("tests.ci.sweeps.fake_measuring")
    return argv + harness.options(points=asked.resolve(), out=plan.out.resolve())


def main():
    run.command = command
    ended = run.measure(plan(Path(sys.argv[1])), Console(stderr=True))
    print("left" if ended.left else "complete")


if __name__ == "__main__":
    main()
