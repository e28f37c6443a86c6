"""A stand-in for `python -m benchmarks` that measures small CPU functions: the contract of doctor, list and run.

A kernel is a file kernels/NAME.py of the tree with CASES (name -> size), BACKENDS (name -> function of size) and
YARDSTICK.  A function that raises NotImplementedError is unsupported, any other exception is an error.
"""

import argparse
import hashlib
import json
import os
import random
import runpy
import sys
import time
from pathlib import Path

MACHINE = {
    "name": "toy-cpu2-0a1b2c3d",
    "kind": "cpu",
    "arch": "cpu",
    "device": "toy cpu",
    "market_name": None,
    "count": 1,
    "compute_units": None,
    "memory_bytes": 1 << 30,
    "power_cap_w": None,
    "chip_id": None,
    "partition": None,
    "driver": None,
    "cpu": "toy cpu",
    "cpu_count": 2,
    "ram_bytes": 1 << 30,
    "os": "Linux 6.1",
    "host": None,
}
ENVIRONMENT = {
    "python": "3.12.3",
    "torch": "2.11.0+cpu",
    "triton": "3.6.0",
    "cuda": None,
    "hip": None,
    "nccl": None,
    "executable": sys.executable,
}


def listing(tree):
    kernels, broken = {}, []
    for path in sorted((tree / "kernels").glob("*.py")):
        try:
            kernels[path.stem] = runpy.run_path(str(path))
        except Exception as error:
            broken.append({"module": f"kernels.{path.stem}", "reason": f"{type(error).__name__}: {error}"})
    return kernels, broken


def declaration(name, kernel):
    cases = [
        {
            "name": case,
            "world": 1,
            "dtype": "fp32",
            "distribution": "normal",
            "n": size,
            "tier": "nightly" if case.startswith("big") else "pr",
        }
        for case, size in kernel["CASES"].items()
    ]
    return {
        "kernel": name,
        "doc": "",
        "backends": list(kernel["BACKENDS"]),
        "baselines": ["library"],
        "cases": cases,
        "yardstick": kernel["YARDSTICK"],
        "case_yardsticks": {c: f"{kernel['YARDSTICK']}{n}" for c, n in kernel["CASES"].items()},
        "costs": {
            c: {"flops": 2 * n, "hbm_bytes": 8 * n, "link_bytes": 0, "payload_bytes": 0}
            for c, n in kernel["CASES"].items()
        },
    }


def arm(function, size, rounds):
    try:
        function(size)
        seconds = [function(size) for _ in range(rounds)]
        return {
            "status": "ok",
            "seconds": seconds,
            "skew_s": None,
            "knobs": {},
            "code_hash": None,
            "calls_per_sample": 1,
        }
    except NotImplementedError as error:
        return {"status": "unsupported", "why": str(error), "detail": ""}
    except Exception as error:
        return {"status": "error", "why": f"{type(error).__name__}: {error}", "detail": ""}


def measure(options):
    side = json.loads(options.tree.partition("=")[2])
    tree = Path(side["path"])
    kernels, broken = listing(tree)
    kernel, name = kernels[options.kernel], options.kernel
    declared = declaration(name, kernel)
    with open(tree / ".." / "measured.log", "a") as log:
        log.write(f"{name} {side['commit'][:8]}\n")
    cases = {
        c["name"]: {
            "method": "clock",
            "warnings": [],
            "arms": {
                f"head/{backend}": arm(function, c["n"], options.rounds)
                for backend, function in kernel["BACKENDS"].items()
            },
        }
        for c in declared["cases"]
        if c["tier"] == "pr" or options.tier != "pr"
    }
    tree_facts = {
        **{key: side[key] for key in ("commit", "date_ms", "dirty")},
        "kernels_digest": "0" * 16,
        "environment": ENVIRONMENT,
        "declaration": declared,
        "broken": broken,
    }
    line = {
        "format": "ridgeline-trial",
        "version": 1,
        "session": f"{random.getrandbits(64):016x}",
        "trial": 0,
        "started_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
        "duration_s": 0.1,
        "kernel": name,
        "machine": MACHINE,
        "trees": {"head": tree_facts},
        "protocol": {"rounds": options.rounds},
        "cases": cases,
        "state": {},
        "busy_share": None,
        "warnings": [],
    }
    line["id"] = hashlib.sha256(json.dumps(line).encode()).hexdigest()[:16]
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
