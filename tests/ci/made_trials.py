"""Trial lines made by hand, for tests of what is recorded."""

from __future__ import annotations

import copy
import hashlib
import json

from ci.trials.trial import Trial

BASE, HEAD = "b" * 40, "a" * 40
SIDES = ("base", "head")
MACHINE = {
    "name": "h200x2-1a2b3c4d",
    "kind": "gpu",
    "arch": "sm_90",
    "device": "NVIDIA H200",
    "market_name": "H200 SXM",
    "count": 2,
    "compute_units": 132,
    "memory_bytes": 150 * 10**9,
    "power_cap_w": 700,
    "chip_id": "2335",
    "partition": None,
    "driver": "570.1",
    "cpu": "EPYC",
    "cpu_count": 64,
    "ram_bytes": 10**12,
    "os": "Linux 6.1",
    "host": None,
}
ENVIRONMENT = {
    "python": "3.12.3",
    "torch": "2.11.0+cu130",
    "triton": "3.6.0",
    "cuda": "13.0",
    "hip": None,
    "nccl": "2.28",
    "executable": None,
}
ENV = "py3.12-torch2.11.0-triton3.6.0"
TIMES = [1.00e-3, 1.01e-3, 0.99e-3, 1.02e-3, 1.00e-3, 0.98e-3, 1.00e-3, 1.01e-3]


def ok(seconds=TIMES):
    return {
        "status": "ok",
        "seconds": list(seconds),
        "skew_s": None,
        "knobs": {"BLOCK_M": 128},
        "code_hash": None,
        "error": {"norm": 1e-4, "peak": 1e-3},
        "calls_per_sample": 1,
    }


def failed(status, why="one sentence"):
    return {"status": status, "why": why, "detail": ""}


def declaration(kernel="gemm", yardstick="1" * 16, cases=("m16", "m64"), backends=("triton", "blas"), link=0):
    return {
        "kernel": kernel,
        "doc": "A product.",
        "backends": list(backends),
        "baselines": ["blas"],
        "yardstick": yardstick,
        "cases": [
            {"name": c, "world": 1, "dtype": "fp16", "distribution": "normal", "M": 16, "tier": "pr"} for c in cases
        ],
        "case_yardsticks": {c: f"{yardstick}/{c}" for c in cases},
        "costs": {
            c: {"flops": 10**9, "hbm_bytes": 10**6, "link_bytes": link, "payload_bytes": 2 * link} for c in cases
        },
    }


def tree(commit=HEAD, dirty=False, declared=None, date_ms=1_790_000_000_000, environment=ENVIRONMENT, broken=()):
    return {
        "commit": commit,
        "date_ms": date_ms,
        "dirty": dirty,
        "kernels_digest": "0" * 16,
        "environment": dict(environment),
        "declaration": declared or declaration(),
        "broken": list(broken),
    }


def trial(cases=None, number=0, session="5" * 16, minute=0, kernel="gemm", trees=None, machine=MACHINE):
    """cases: {case: {arm: result}}."""
    cases = cases or {"m16": {"head/triton": ok(), "head/blas": ok([t / 2 for t in TIMES])}}
    line = {
        "format": "ridgeline-trial",
        "version": 1,
        "session": session,
        "trial": number,
        "duration_s": 12.5,
        "started_at": f"2026-11-20T12:{minute:02d}:{number:02d}+00:00",
        "kernel": kernel,
        "machine": dict(machine),
        "trees": dict(trees or {"head": tree(declared=declaration(kernel))}),
        "protocol": {"rounds": 8, "cache": "cold", "seed": 0, "schedule_seed": 0},
        "cases": {c: {"method": "events", "arms": dict(arms), "warnings": []} for c, arms in cases.items()},
        "state": {},
        "busy_share": 0.8,
        "warnings": [],
    }
    return {"id": hashlib.sha256(json.dumps(line, sort_keys=True).encode()).hexdigest()[:16], **line}


def paired(cases=None, number=0, **more):
    """A trial in which base and head ran side by side.  cases: {case: {backend: (base's result, head's result)}}."""
    cases = cases or {"m16": {"triton": (ok(), ok()), "blas": (ok(), ok())}}
    arms = {
        case: {f"{role}/{name}": both[side] for name, both in backends.items() for side, role in enumerate(SIDES)}
        for case, backends in cases.items()
    }
    arms = {case: {key: result for key, result in own.items() if result} for case, own in arms.items()}
    declared = declaration(more.get("kernel", "gemm"))
    trees = {"base": tree(BASE, declared=declared), "head": tree(HEAD, declared=declared), **more.pop("trees", {})}
    return trial(arms, number, trees=trees, **more)


GONE = Ellipsis
"""Stands for a value that is taken away; in the name of a test it reads the same in every process."""


def changed(line, path, value):
    """A copy of a line with another value at a path of keys and places, such as "machine count"."""
    made = place = copy.deepcopy(dict(line))
    *way, last = (int(key) if key.isdigit() else key for key in path.split(" "))
    for key in way:
        place = place[key]
    if value is GONE:
        del place[last]
    else:
        place[last] = value
    return made


def parsed(line):
    """The line as readers see it."""
    return Trial.of(line, lambda: json.dumps(line))


def write(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path
