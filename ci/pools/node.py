"""Is this node fit to measure for its pool?  The measuring program's preflight, held to what the pool promises."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

from ci import calling
from ci.doctor import Diagnosis, Finding
from ci.harness import MeasureError, query
from ci.pools import file
from ci.pools.file import NO_GPU, Pool
from ci.trials.trial import faults_of

EXAMINE_S = 120.0
"""Seconds for the preflight: the driver of a loaded node takes some seconds, a hanging driver for ever."""

WHY: Mapping[bool, str] = {True: "no verdict rests on times of this node until then", False: "kept beside the times"}
"""Why a fault matters, by whether it is fatal."""


def diagnose_node(pool_name: str, gpus: int | None, results: Path) -> Diagnosis:
    """What the preflight finds here, the worst first; a node that gives no answer has a fault.  PoolsError."""
    pool, count = promised(pool_name, gpus)
    words = ["--product", pool.gpu] if pool and pool.gpu != NO_GPU else []
    words += ["--gpus", str(count)] if count else []
    try:
        answer = query("doctor", "--node", "--folder", str(results.absolute()), *words, limit_s=EXAMINE_S)
        faults, facts = faults_of(answer), answer["facts"]
    except (MeasureError, KeyError, TypeError) as error:
        started = " ".join(["python", *calling.program("benchmarks"), "doctor", "--node"])
        text = f"the preflight gives no answer: {error}"
        return Diagnosis((Finding("error", text, WHY[True], f"run `{started}` and correct what it reports"),), {})
    findings = [
        Finding("error" if fault.fatal else "warning", fault.text, WHY[fault.fatal], fault.next_step)
        for fault in sorted(faults, key=lambda fault: not fault.fatal)
    ]
    if not findings:
        for_pool = f" for pool {pool.name}" if pool else ""
        findings = [Finding("ok", f"{node_name()} is fit to measure{for_pool}: {facts['gpus']['count']} GPUs")]
    return Diagnosis(tuple(findings), facts)


def promised(
    pool_name: str, gpus: int | None, path: Path | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[Pool | None, int]:
    """The pool and the GPUs that this node is held to: as named, else as the pool that started us says in
    RIDGELINE_POOL and RIDGELINE_GPUS; (None, GPUs) for no pool."""
    name = pool_name or environ.get("RIDGELINE_POOL", "")
    if not name:
        return None, gpus or 0
    pool, of_starter = file.load(path).pool(name), environ.get("RIDGELINE_GPUS", "")
    if gpus is None and of_starter.isdecimal() and not pool_name:
        gpus = int(of_starter)
    return pool, pool.size(gpus)


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """This node, as Slurm or the host of the container calls it."""
    return environ.get("RIDGELINE_NODE") or environ.get("SLURMD_NODENAME") or socket.gethostname()
