"""What a machine is, as its newest record describes it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.trials.trial import Checkout, Trial

NotesOf = Callable[[str, str, str], Sequence[Trial]]
"""(machine, commit, env) -> the trials of that record, oldest first (`ci.records.store.notes`)."""


FINGERPRINT = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes", "chip_id")
"""Columns of the frame that describe a machine."""

SOFTWARE = {"torch": "torch", "Triton": "triton", "CUDA": "cuda", "HIP": "hip", "NCCL/RCCL": "nccl", "Python": "python"}
"""What the page calls each entry of a trial's `environment`."""


@dataclasses.dataclass(frozen=True)
class MachineFacts:
    """title: for the selector; rows: (name, value) of the fingerprint; broken: modules that did not import."""

    title: str
    rows: list[tuple[str, str]]
    broken: list[dict[str, str]]


def no_notes(machine: str, commit: str, env: str) -> Sequence[Trial]:
    """For frames that have no results folder behind them."""
    return []


def describe(frame: pd.DataFrame, notes_of: NotesOf) -> MachineFacts:
    """Facts of the lane whose tidy rows these are, at its newest commit."""
    newest = frame.iloc[-1]
    notes = notes_of(newest["machine"], newest["commit"], newest["env"])
    trial = notes[-1] if notes else None
    checkout = _checkout(trial, newest["commit"]) if trial else None
    noted = trial.machine.facts if trial else {}
    seen = _from_frame(newest) | {key: value for key, value in noted.items() if value not in (None, "")}
    name = str(seen.get("device") or newest["machine"])
    title = f"{seen['count']} × {name}" if seen.get("count", 1) > 1 else name
    rows = [("device", title), *_hardware(seen), *_software(seen, checkout, newest["env"]), *_samples(trial)]
    return MachineFacts(title, rows, _broken(checkout))


def _checkout(trial: Trial, commit: str) -> Checkout:
    """The checkout of a trial that was at this commit (an A/B trial has two)."""
    checkouts = list(trial.checkouts.values())
    return next((one for one in checkouts if commit in (one.commit, one.named)), checkouts[-1])


def _broken(checkout: Checkout | None) -> list[dict[str, str]]:
    return [{"module": one.module, "why": one.reason} for one in (checkout.broken if checkout else ())]


def _from_frame(row: pd.Series) -> dict[str, Any]:
    return {key: row.get(key) for key in FINGERPRINT if pd.notna(row.get(key)) and row.get(key) != ""}


def _hardware(seen: Mapping[str, Any]) -> list[tuple[str, str]]:
    arch = str(seen.get("arch", ""))
    units = "CUs" if arch.startswith("gfx") else "SMs" if arch.startswith("sm_") else "compute units"
    rows = [
        ("product", seen.get("market_name") if seen.get("market_name") != seen.get("device") else None),
        ("arch", arch),
        (units, _whole(seen.get("compute_units"))),
        ("chip", seen.get("chip_id")),
        ("partition", seen.get("partition")),
        ("memory", _with_unit(seen.get("memory_bytes"), 2**30, "GiB")),
        ("power cap", _with_unit(seen.get("power_cap_w"), 1, "W")),
        ("cores", _whole(seen.get("cpu_count")) if seen.get("kind") == "cpu" else None),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _software(seen: Mapping[str, Any], checkout: Checkout | None, env: str) -> list[tuple[str, str]]:
    versions = checkout.environment.versions if checkout else {}
    rows = [("driver", seen.get("driver")), *((name, versions.get(key)) for name, key in SOFTWARE.items())]
    known = [(name, str(value)) for name, value in rows if value]
    return known if versions else [*known, ("environment", env)]


def _samples(trial: Trial | None) -> list[tuple[str, str]]:
    """Where the samples of the newest record are, where it does not hold them itself."""
    return [("samples", trial.samples.path.rpartition("/")[0])] if trial and trial.samples else []


def _whole(value: Any) -> str | None:
    return None if value is None else str(int(value))


def _with_unit(value: Any, scale: float, unit: str) -> str | None:
    return None if value is None else f"{round(float(value) / scale)} {unit}"
