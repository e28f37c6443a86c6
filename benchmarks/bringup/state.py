"""Finished steps, one JSON line each, so that the same command goes on where it was stopped.

One file may hold the steps of several machines and versions: a line says what it holds for, and others are ignored.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.bringup import vendor_packages
from benchmarks.bringup.rows import RowStatus, status_of
from benchmarks.bringup.steps import BACKENDS
from benchmarks.coordinator import fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.session.kept_lines import of_format
from benchmarks.reach.code import of_harness

FORMAT, VERSION = "ridgeline-bringup-step", 1

WORDS = {"machine": "another machine", "versions": "other versions", "tree": "other code"}
"""What it means that a part of `holds_for` differs."""


def holds_for(checkout: Checkout, devices: list[dict[str, Any]], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished step holds for: this machine, these versions, this code."""
    who = [platform.node(), fingerprint.cpu_name(), [[d["name"], d["uuid"], d["pci"]] for d in devices]]
    kept = ("python", "torch", "triton", "cuda", "hip", "nccl")
    versions = [{name: environment.get(name) for name in kept}, vendor_packages.installed()]
    tree = [checkout.code.digest(), checkout.code.environment(), of_harness()]
    return {"machine": _digest(who), "versions": _digest(versions), "tree": _digest(tree)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def line(name: str, seconds: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    """A finished step, as the report shows it.  found: its rows."""
    return {"step": name, "status": str(status_of(found)), "seconds": round(seconds, 2), "at": now(), "rows": found}


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def to_keep(finished: Mapping[str, Any], holds: Mapping[str, Any]) -> dict[str, Any]:
    """The line of the file for a finished step."""
    return {"format": FORMAT, "version": VERSION, "holds_for": dict(holds), **finished}


def finished(path: Path, holds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By step the newest line that holds and passed, as the report shows it.

    What failed or was not here is tried again, and so is a step whose part failed, for that part.
    """
    found: dict[str, dict[str, Any]] = {}
    for kept in of_format(path, FORMAT, VERSION):
        if kept["holds_for"] == holds:
            found[kept["step"]] = {key: kept[key] for key in ("step", "status", "seconds", "at", "rows")}
    again = {name for name, one in found.items() if one["status"] != RowStatus.PASS}
    again |= {BACKENDS.name for name in again if BACKENDS.has(name)}
    return {name: one for name, one in found.items() if name not in again}


def why_fresh(path: Path, holds: Mapping[str, Any]) -> str:
    """What the file knows of, if none of it holds; "" where something does or nothing is known."""
    kept = [line["holds_for"] for line in of_format(path, FORMAT, VERSION)]
    if not kept or any(one == holds for one in kept):
        return ""
    differs = [word for part, word in WORDS.items() if kept[-1].get(part) != holds[part]]
    return f"{path} knows of {' and '.join(differs)} only: starting afresh"
