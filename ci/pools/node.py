"""Is this node fit to measure for its pool?  The measuring program's preflight, and whether the node is drained."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping
from pathlib import Path

from ci import calling
from ci.doctor import Diagnosis, Finding
from ci.harness import MeasureError, query
from ci.pools import drained, file
from ci.pools.file import NO_GPU, Pool
from ci.trials.trial import NodeFault, faults_of

EXAMINE_S = 120.0
"""Seconds for the preflight: the driver of a loaded node takes some seconds, a hanging driver for ever."""

PASSING = {"in use", "disk", "product", "preflight", "drained"}
"""Kinds of faults that do not drain a node: they pass, or are of the pool's description."""

WHY: Mapping[bool, str] = {True: "no verdict rests on times of this node until then", False: "kept beside the times"}
"""Why a fault matters, by whether it is fatal."""


@dataclasses.dataclass(frozen=True)
class NodeCheck:
    """A node and what it is held to.  pool: None for any; gpus: of the job.  folder: where drained nodes are listed."""

    name: str
    folder: Path
    pool: Pool | None = None
    gpus: int = 0


def node_check(
    pool_name: str, gpus: int | None, path: Path | None = None, environ: Mapping[str, str] = os.environ
) -> NodeCheck:
    """What this node is to be held to: as asked, else as the pool that started us says in RIDGELINE_POOL and _GPUS."""
    name = node_name(environ)
    wanted = pool_name or environ.get("RIDGELINE_POOL", "")
    if not wanted:
        return NodeCheck(name, drained.folder_of(None, environ), None, gpus or 0)
    pools = file.load(path)
    pool = pools.pool(wanted)
    of_starter = environ.get("RIDGELINE_GPUS", "")
    if gpus is None and of_starter.isdecimal() and not pool_name:
        gpus = int(of_starter)
    return NodeCheck(name, drained.folder_of(pools.sites.get(pool.site), environ), pool, pool.size(gpus))


def node_name(environ: Mapping[str, str] = os.environ) -> str:
    """This node, as Slurm or the host of the container calls it."""
    return environ.get("RIDGELINE_NODE") or environ.get("SLURMD_NODENAME") or socket.gethostname()


def examine_node(held_to: NodeCheck, results: Path) -> NodeReport:
    """Run the preflight here; a node that gives no answer, or is drained, has a fault."""
    try:
        words = ["--product", held_to.pool.gpu] if held_to.pool and held_to.pool.gpu != NO_GPU else []
        words += ["--gpus", str(held_to.gpus)] if held_to.gpus else []
        answer = query("doctor", "--node", "--folder", str(results.absolute()), *words, limit_s=EXAMINE_S)
        faults, facts = faults_of(answer), answer["facts"]
    except (MeasureError, KeyError, TypeError) as error:
        started = " ".join(["python", *calling.program("benchmarks"), "doctor", "--node"])
        next_step = f"run `{started}` and correct what it reports"
        faults, facts = (NodeFault("preflight", f"the preflight gives no answer: {error}", next_step),), {}
    if reason := drained.drain_reason(held_to.name, held_to.folder):
        next_step = f"`ridgeline ci pools --resume {held_to.name}` once it is repaired"
        faults = (NodeFault("drained", reason, next_step), *faults)
    return NodeReport(held_to, tuple(sorted(faults, key=lambda fault: not fault.fatal)), facts)


@dataclasses.dataclass(frozen=True)
class NodeReport:
    """What was found, the worst first, and what the node told (see benchmarks.preflight.system.NodeFacts)."""

    held_to: NodeCheck
    faults: tuple[NodeFault, ...]
    facts: Mapping[str, object]

    @property
    def diagnosis(self) -> Diagnosis:
        """For the doctor to show."""
        findings = [
            Finding("error" if fault.fatal else "warning", fault.text, WHY[fault.fatal], fault.next_step)
            for fault in self.faults
        ]
        if not findings:
            gpus, pool = self.facts.get("gpus"), self.held_to.pool
            count = gpus.get("count", 0) if isinstance(gpus, dict) else 0
            for_pool = f" for pool {pool.name}" if pool else ""
            findings = [Finding("ok", f"{self.held_to.name} is fit to measure{for_pool}: {count} GPUs")]
        return Diagnosis(tuple(findings), self.facts)

    @property
    def lasting(self) -> list[str]:
        """Faults that stay until somebody repairs the node."""
        return [fault.text for fault in self.faults if fault.fatal and fault.kind not in PASSING]


def drain(report: NodeReport, dry_run: bool = False) -> str:
    """Drain a node with a lasting fault from our jobs; returns the reason, "" if it stays as it is."""
    held_to = report.held_to
    if not report.lasting or drained.drain_reason(held_to.name, held_to.folder):
        return ""
    reason = f"preflight: {'; '.join(report.lasting)}"
    drained.drain(held_to.name, reason, held_to.folder, dry_run)
    return reason
