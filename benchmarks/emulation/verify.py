"""Is every backend right on MI300X and MI355X, as far as an emulator on a CPU can say?  No GPU, and no times.

The code that a launch compiles to is executed in small cases (cases.py), and compared as `ridgeline verify` does on a
GPU.  What came of a case is kept as there, by the digests of its code and of ours.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import Report, of_format
from benchmarks.emulation.code_object import TARGETS
from benchmarks.emulation.installed import missing
from benchmarks.emulation.pool import ENDED, Pool
from benchmarks.plan import UsageError, unknown_kernel
from benchmarks.shapes import JsonObject
from benchmarks.verify import FORMAT, VERSION, line, settled


def verify(
    kernels: Sequence[str],
    checkout: Checkout,
    out: Path,
    arches: Sequence[str],
    cases: Sequence[str] = (),
    backends: Sequence[str] = (),
    on_progress: Report | None = None,
) -> Iterator[tuple[JsonObject, bool]]:
    """(line of a case, whether it is new): what `out` knows already, then what is left, for the caller to append.

    Lines as of benchmarks.verify, with `emulated` (the target) beside them and, in each arm, what worker.Cases.execute
    adds.  cases: patterns.  Raises UsageError or CheckoutError before anything is executed.
    """
    if why := missing():
        raise UsageError(why)
    if unknown := [arch for arch in arches if arch not in TARGETS.values()]:
        raise UsageError(f"--arch {unknown[0]}: executed are {', '.join(TARGETS.values())}")
    report = on_progress or (lambda event: None)
    report({"done": 0, "total": 0, "what": "listing small cases"})
    asked = {"kernels": list(kernels), "backends": list(backends), "arches": list(arches), "counted": False}
    with Pool(checkout, asked) as pool:
        listing = pool.listing
        for name in kernels:
            if name not in listing["known"] and not listing["broken"]:
                raise unknown_kernel(name, listing["known"])
        for name, why in listing["without"].items():
            print(f"not executed: {name}: {why}", file=sys.stderr)
        chosen = [
            (index, case)
            for index, case in enumerate(listing["cases"])
            if not cases or any(fnmatch(case["case"], pattern) for pattern in cases)
        ]
        names = {case["kernel"] for _, case in chosen}
        decides = {arch: {name: pool.holds_for(name, arch) for name in names} for arch in arches}
        known = {arch: settled(of_format(out, FORMAT, VERSION), decides[arch]) for arch in arches}
        left = []
        for index, case in chosen:
            known_line = known[case["arch"]].get((case["kernel"], case["case"]), {"arms": {}})
            if arm := known_line["arms"].get(case["backend"]):
                yield {**known_line, "arms": {case["backend"]: arm}}, False
            else:
                left.append(index)
        for number, (case, arm) in enumerate(pool.executed(left), 1):
            what = f"{case['kernel']}/{case['backend']} on {case['arch']}"
            report({"done": number, "total": len(left), "what": what})
            about = {
                "emulated": case["arch"],
                "commit": checkout.commit,
                "dirty": checkout.dirty,
                "broken": listing["broken"],
                "device": f"an emulator of {case['arch']} on a CPU",
                "holds_for": decides[case["arch"]][case["kernel"]],
            }
            baselines = listing["kernels"][case["kernel"]]["baselines"]
            settled_now = not arm.pop(ENDED, False)
            yield line(case, case["case"], baselines, {case["backend"]: arm}, about), settled_now
