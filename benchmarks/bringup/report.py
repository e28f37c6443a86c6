"""Finished steps, kept so that the same command goes on, and the report: worth sending, bounded, nothing private."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import platform
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.bringup.steps import BACKENDS, RowStatus, installed_packages, status_of
from benchmarks.coordinator import fingerprint
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import of_format
from benchmarks.reach.code import of_harness

FORMAT, VERSION = "ridgeline-bringup", 1

LARGEST_BYTES = 400_000
"""A report above this loses its details: it should fit in a mail or an issue."""

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""Variables with such names hold values that a report never shows."""

SHORTEST_PRIVATE = 4
"""Characters; a shorter text would blank ordinary words."""


def document(
    facts: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], seconds: float, missing: Sequence[str]
) -> dict[str, Any]:
    """The report.  facts: machine, devices, versions.  missing: steps that were not run (--only, --skip)."""
    counts = Counter(row["status"] for step in steps for row in step["rows"])
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "at": now(),
        "seconds": round(seconds, 1),
        "counts": {str(status): counts[status] for status in RowStatus},
        **facts,
        "steps": list(steps),
        "not_run": list(missing),
    }
    return _bounded(without_private(whole))


def without_private(value: Any) -> Any:
    """JSON values without host name, home, checkout, Python's folder, or the values of secret variables."""
    private = _private()

    def clean(part: Any) -> Any:
        if isinstance(part, Mapping):
            return {key: clean(one) for key, one in part.items()}
        if isinstance(part, list | tuple):
            return [clean(one) for one in part]
        if isinstance(part, str):
            for text, shown in private:
                part = part.replace(text, shown)
        return part

    return clean(value)


def _private() -> list[tuple[str, str]]:
    """What is replaced and by what, longest first."""
    secrets = [(value, "<secret>") for name, value in os.environ.items() if SECRET.search(name) and len(value) > 5]
    folders = [(str(Path.cwd()), "<here>"), (sys.prefix, "<python>"), (str(Path.home()), "<home>")]
    known = [*secrets, *folders, (platform.node(), "<host>")]
    return sorted((one for one in known if len(one[0]) >= SHORTEST_PRIVATE), key=lambda one: -len(one[0]))


def _bounded(whole: dict[str, Any]) -> dict[str, Any]:
    if len(json.dumps(whole)) > LARGEST_BYTES:
        for row in (row for step in whole["steps"] for row in step["rows"]):
            row["detail"] = ""
    return whole


# Finished steps, one JSON line each, so that the same command goes on where it was stopped.
#
# One file may hold the steps of several machines and versions: a line says what it holds for, and others are ignored.


KEPT_FORMAT, KEPT_VERSION = "ridgeline-bringup-step", 1

WORDS = {"machine": "another machine", "versions": "other versions", "tree": "other code"}
"""What it means that a part of `holds_for` differs."""


def holds_for(checkout: Checkout, devices: list[dict[str, Any]], environment: Mapping[str, Any]) -> dict[str, Any]:
    """What a finished step holds for: this machine, these versions, this code."""
    who = [platform.node(), fingerprint.cpu_name(), [[d["name"], d["uuid"], d["pci"]] for d in devices]]
    kept = ("python", "torch", "triton", "cuda", "hip", "nccl")
    versions = [{name: environment.get(name) for name in kept}, installed_packages()]
    tree = [checkout.code.digest(), checkout.code.environment(), of_harness()]
    return {"machine": _digest(who), "versions": _digest(versions), "tree": _digest(tree)}


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


def step_line(name: str, seconds: float, found: list[dict[str, Any]]) -> dict[str, Any]:
    """A finished step, as the report shows it.  found: its rows."""
    return {"step": name, "status": str(status_of(found)), "seconds": round(seconds, 2), "at": now(), "rows": found}


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def kept_line(finished: Mapping[str, Any], holds: Mapping[str, Any]) -> dict[str, Any]:
    """The line of the file for a finished step."""
    return {"format": KEPT_FORMAT, "version": KEPT_VERSION, "holds_for": dict(holds), **finished}


def kept_steps(path: Path, holds: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """By step the newest line that holds and passed, as the report shows it.

    What failed or was not here is tried again, and so is a step whose part failed, for that part.
    """
    found: dict[str, dict[str, Any]] = {}
    for kept in of_format(path, KEPT_FORMAT, KEPT_VERSION):
        if kept["holds_for"] == holds:
            found[kept["step"]] = {key: kept[key] for key in ("step", "status", "seconds", "at", "rows")}
    again = {name for name, one in found.items() if one["status"] != RowStatus.PASS}
    again |= {BACKENDS.name for name in again if BACKENDS.has(name)}
    return {name: one for name, one in found.items() if name not in again}


def why_fresh(path: Path, holds: Mapping[str, Any]) -> str:
    """What the file knows of, if none of it holds; "" where something does or nothing is known."""
    kept = [line["holds_for"] for line in of_format(path, KEPT_FORMAT, KEPT_VERSION)]
    if not kept or any(one == holds for one in kept):
        return ""
    differs = [word for part, word in WORDS.items() if kept[-1].get(part) != holds[part]]
    return f"{path} knows of {' and '.join(differs)} only: starting afresh"
