"""A stand-in for `python -m benchmarks` that measures small CPU functions: the contract of doctor, list and run.

A kernel is a file kernels/NAME.py of the tree with CASES (name -> size), BACKENDS (name -> function of size) and
YARDSTICK.  A function that raises NotImplementedError is unsupported, any other exception is an error.
"""

import argparse
import json
import os
import random
import runpy
from pathlib import Path

from tests.ci import made_trials

ABSENT = dict.fromkeys(("market_name", "compute_units", "power_cap_w", "chip_id", "driver"))
OWN = {"name": "toy-cpu2-0a1b2c3d", "kind": "cpu", "arch": "cpu", "device": "toy cpu", "count": 1, "cpu_count": 2}
MACHINE = made_trials.MACHINE | ABSENT | OWN
ENVIRONMENT = made_trials.ENVIRONMENT | {"cuda": None, "nccl": None}


def listing(tree):
    kernels, broken = {}, []
    for path in sorted((tree / "kernels").glob("*.py")):
        try:
            kernels[path.stem] = runpy.run_path(str(path))
        except Exception as error:
            broken.append({"module": f"kernels.{path.stem}", "reason": f"{type(error).__name__}: {error}"})
    return kernels, broken


def declaration(name, kernel):
    made = made_trials.declaration(name, kernel["YARDSTICK"], kernel["CASES"], kernel["BACKENDS"])
    for case in made["cases"]:
        size = kernel["CASES"][case["name"]]
        case |= {"n": size, "tier": "nightly" if case["name"].startswith("big") else "pr"}
        made["costs"][case["name"]]["flops"] = 2 * size
    return made | {"baselines": ["library"]}


def arm(function, size, rounds):
    try:
        return made_trials.ok([function(size) for _ in range(rounds)])
    except NotImplementedError as error:
        return made_trials.failed("unsupported", str(error))
    except Exception as error:
        return made_trials.failed("error", f"{type(error).__name__}: {error}")


def measure(options):
    side = json.loads(options.tree.partition("=")[2])
    tree = Path(side["path"])
    kernels, broken = listing(tree)
    kernel, name = kernels[options.kernel], options.kernel
    declared = declaration(name, kernel)
    with open(tree / ".." / "measured.log", "a") as log:
        log.write(f"{name} {side['commit'][:8]}\n")
    cases = {
        case["name"]: {
            f"head/{backend}": arm(function, case["n"], options.rounds)
            for backend, function in kernel["BACKENDS"].items()
        }
        for case in declared["cases"]
        if case["tier"] == "pr" or options.tier != "pr"
    }
    head = made_trials.tree(side["commit"], side["dirty"], declared, side["date_ms"], ENVIRONMENT, broken)
    session = f"{random.getrandbits(64):016x}"
    line = made_trials.trial(cases, session=session, kernel=name, trees={"head": head}, machine=MACHINE)
    with open(options.out, "a") as out:
        out.write(json.dumps(line) + "\n")


def main():
    assert "ASV" not in os.environ, "the measuring program must not think that it runs under asv"
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    for flag in ("--tree", "--tier", "--kernel", "--out"):
        parser.add_argument(flag)
    parser.add_argument("--trials", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if options.verb == "doctor":
        print(json.dumps({"machine": MACHINE, "environment": ENVIRONMENT}))
    elif options.verb == "list":
        kernels, broken = listing(Path(options.tree))
        print(json.dumps({"kernels": [declaration(n, k) for n, k in kernels.items()], "broken": broken}))
    else:
        measure(options)


if __name__ == "__main__":
    main()
