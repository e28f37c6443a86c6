"""Machines: what each is, what its GPUs reported at work, and what was verified on it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ci.records.devices import DeviceAtWork, combined, devices_in
from ci.records.ledger import CaseCheck, Verified, case_checks, verified
from ci.trials.trial import Checkout, Trial
from dashboards import charts, table
from dashboards.frame import FEW_TRIALS, KEY, Commit, Lane, Site, minute
from dashboards.table import BACKEND, COMMIT, OPERATOR, Column, Piece, Table

FINGERPRINT = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes", "chip_id")
"""Columns of the frame that describe a machine."""

SOFTWARE = {"torch": "torch", "Triton": "triton", "CUDA": "cuda", "HIP": "hip", "NCCL/RCCL": "nccl", "Python": "python"}
"""What the page calls each entry of a trial's `environment`."""

MEASURES = {
    "clock_mhz": ("clock at work", "MHz", 1.0),
    "power_w": ("power at work", "W", 1.0),
    "temperature_c": ("highest temperature", "°C", 1.0),
    "held_back": ("held back by heat or a fault", "%", 100.0),
}
"""By field of a DeviceAtWork: label, unit, factor."""


# ---- what a machine is ----------------------------------------------------------------------------------------------


def _newest(site: Site, lane: Lane) -> tuple[Trial | None, Checkout | None]:
    """The newest trial of a lane, and its checkout of the newest commit (an A/B trial has two)."""
    commit = lane.commits[-1].hash
    env = next(str(env) for env, one in zip(lane.columns["env"], lane.columns["commit"], strict=True) if one == commit)
    trials = site.notes_of(lane.machine, commit, env)
    if not trials:
        return None, None
    checkouts = list(trials[-1].checkouts.values())
    return trials[-1], next((one for one in checkouts if commit in (one.commit, one.named)), checkouts[-1])


def title(lane: Lane) -> str:
    """ "4 × NVIDIA H200"."""
    newest = lane.newest
    name = str(newest.get("device") or lane.machine)
    return f"{int(newest['count'])} × {name}" if newest.get("count", 1) > 1 else name


def broken_modules(site: Site, lane: Lane) -> list[tuple[str, str]]:
    """Modules that did not import at the newest commit, and why."""
    _, checkout = _newest(site, lane)
    return [(one.module, one.reason) for one in (checkout.broken if checkout else ())]


def machine_facts(site: Site, lane: Lane) -> list[tuple[str, str]]:
    """The fingerprint and the software of a lane at its newest commit, as (name, value)."""
    trial, checkout = _newest(site, lane)
    row = lane.newest
    seen = {name: row.get(name) for name in FINGERPRINT if pd.notna(row.get(name)) and row.get(name) != ""}
    seen |= {key: value for key, value in (trial.machine.facts if trial else {}).items() if value not in (None, "")}
    arch = str(seen.get("arch", ""))
    units = "CUs" if arch.startswith("gfx") else "SMs" if arch.startswith("sm_") else "compute units"
    versions = checkout.environment.versions if checkout else {}
    product = seen.get("market_name")
    rows = [
        ("machine", lane.machine),
        ("device", title(lane)),
        ("product", product if product != seen.get("device") else None),
        ("arch", arch),
        (units, _rounded(seen.get("compute_units"), 1, "")),
        ("chip", seen.get("chip_id")),
        ("partition", seen.get("partition")),
        ("memory", _rounded(seen.get("memory_bytes"), 2**30, " GiB")),
        ("power cap", _rounded(seen.get("power_cap_w"), 1, " W")),
        ("driver", seen.get("driver")),
        *((name, versions.get(key)) for name, key in SOFTWARE.items()),
        ("environment", None if versions else row.get("env")),
    ]
    return [(name, str(value)) for name, value in rows if value not in (None, "")]


def _rounded(value: Any, scale: float, unit: str) -> str | None:
    return None if value is None else f"{round(float(value) / scale)}{unit}"


# ---- the page -------------------------------------------------------------------------------------------------------


def machines_page(site: Site) -> dict[str, Any]:
    """A choice of machines, and of each its facts, its GPUs commit by commit, and what was verified."""
    checks, problems = case_checks(site.results)
    by_machine = {
        name: list(rows)
        for name, rows in itertools.groupby(verified([*checks, *_of_trials(site)]), key=lambda row: row.machine)
    }
    of_lane = {lane.machine: lane for lane in reversed(site.lanes)}
    at_work = devices_by_commit(site.frame)
    names = sorted({*of_lane, *by_machine})
    pieces: dict[str, list[Piece]] = {
        name: [
            *([table.facts(machine_facts(site, of_lane[name]))] if name in of_lane else []),
            *_devices(name, at_work.get(name, {})),
            *_verified(by_machine.get(name, [])),
        ]
        for name in names
    }
    notices = [table.text(words.replace(f"{site.results}/", ""), "problem") for words in problems]
    summary = _summary(names, of_lane, at_work)
    listed = table.choice("machine", "machine", [[name, name] for name in names], pieces)
    return {"title": "Machines", "pieces": [summary.piece(), listed, *notices] if names else notices}


def _summary(names: Sequence[str], lanes: Mapping[str, Lane], at_work: Mapping[str, DevicesByCommit]) -> Table:
    columns = [
        Column("machine", "machine", "case"),
        Column("device", "device"),
        Column("commits", "measured commits", "number"),
        Column("newest", "newest", "commit"),
        Column("repeats", "a ratio repeats to", "share", REPEATS_HELP),
        Column("clock", "slowest clock at work, MHz", "number", "Of its GPUs at the newest commit that has readings."),
        Column("held_back", "held back", "share", "Largest share of readings that heat or a fault slowed."),
    ]
    rows = []
    for name in names:
        lane, newest = lanes.get(name), list(at_work.get(name, {}).values())[-1:]
        devices = newest[0] if newest else []
        clocks = [device.clock_mhz for device in devices if device.clock_mhz is not None]
        held_back = [device.held_back for device in devices if device.held_back is not None]
        about = [title(lane), len(lane.commits), lane.commits[-1], _repeats(lane)] if lane else ["", None, None, None]
        rows.append([[name, f"#machine={name}"], *about, min(clocks, default=None), max(held_back, default=None)])
    return Table("machines", "all machines", columns, rows)


REPEATS_HELP = f"Half the 99 % interval of a ratio, the median over its newest ratios of {FEW_TRIALS} trials or more."


def _repeats(lane: Lane) -> float | None:
    rows, newest = lane.columns, [int(series.good[-1]) for series in lane.series if len(series.good)]
    half = [np.log(rows["ratio_high"][n] / rows["ratio_low"][n]) / 2 for n in newest if rows["trials"][n] >= FEW_TRIALS]
    return float(np.median(known)) if (known := [width for width in half if np.isfinite(width)]) else None


DevicesByCommit = dict[Commit, list[DeviceAtWork]]


def devices_by_commit(frame: pd.DataFrame) -> dict[str, DevicesByCommit]:
    """By machine and commit, oldest first: each GPU over the trials of that commit."""
    read = frame.loc[frame["devices"] != "", ["machine", "commit", "date", "devices"]] if len(frame) else frame
    found: dict[str, dict[Commit, list[list[DeviceAtWork]]]] = {}
    for machine, commit, date, text in read.drop_duplicates().itertuples(index=False):
        found.setdefault(machine, {}).setdefault(Commit(commit, minute(date)), []).append(devices_in(text))
    return {machine: {at: combined(those) for at, those in commits.items()} for machine, commits in found.items()}


def _devices(machine: str, by_commit: DevicesByCommit) -> Iterator[Piece]:
    """What each GPU reported at work."""
    if by_commit:
        yield table.heading("Its GPUs at work, commit by commit")
        yield devices_chart(machine, by_commit)


def devices_chart(machine: str, by_commit: DevicesByCommit) -> Piece:
    """Each measure of each GPU over the commits."""
    names = [f"{commit.date}\n{commit.hash[:8]}" for commit in by_commit]
    looks = charts.looks([f"GPU {n}" for n in range(max(map(len, by_commit.values())))], [])
    units = {}
    for field, (label, unit, factor) in MEASURES.items():
        values_of = zip(looks.items(), _over_commits(by_commit, field, factor), strict=True)
        lines = [charts.line(name, values, look) for (name, look), values in values_of if set(values) != {None}]
        if lines:
            y = {"name": f"{label}, {unit}", "unit": unit, "scale": True}
            axis = {"type": "category", "data": names}
            units[label] = {"xAxis": axis, "yAxis": y, "series": lines}
    return charts.chart(f"GPUs of {machine}", units, 260, key="measure")


def _over_commits(by_commit: DevicesByCommit, field: str, factor: float) -> list[list[float | None]]:
    """A measure of each GPU, commit by commit; None where it was not read."""
    values = [[getattr(device, field) for device in devices] for devices in by_commit.values()]
    rows = [[None if value is None else value * factor for value in row] for row in values]
    return [list(column) for column in itertools.zip_longest(*rows)]


def _verified(rows: Sequence[Verified]) -> Iterator[Piece]:
    if not rows:
        return
    columns = [
        OPERATOR,
        BACKEND,
        Column("ranks", "ranks", "number"),
        Column("answers", "cases"),
        Column("worst", "largest error", "number", "As a share of what the operator's tolerance allows."),
        Column("last", "last checked", "date"),
        COMMIT,
    ]
    cells = [
        [
            row.kernel,
            row.backend,
            row.world,
            ", ".join(f"{count} {status}" for status, count in row.counts.items()),
            row.worst,
            row.last.at[:16].replace("T", " "),
            [row.last.commit, ""],
        ]
        for row in rows
    ]
    failures = [[one.kernel, one.case, one.backend, [one.status, one.why]] for row in rows for one in row.failures]
    yield table.heading("What was verified against the reference")
    if failures:
        named = [OPERATOR, Column("case", "case"), BACKEND]
        failed = Table(
            f"{rows[0].machine}-failed", "what failed", [*named, Column("status", "why", "status")], failures
        )
        yield failed.folded(f"{len(failures)} failed", "problem")
    shown = Table(f"{rows[0].machine}-verified", "what was verified", columns, cells)
    yield shown.folded(f"{len(rows)} backends of {len({row.kernel for row in rows})} operators")


def _of_trials(site: Site) -> Iterable[CaseCheck]:
    """A trial compares all that it times with the reference: the newest record of every arm is a check of it."""
    for lane in site.lanes:
        rows = lane.columns
        for one in lane.series:
            at = one.newest
            texts = (rows[name][at] for name in ("commit", *KEY[:2]))
            more = (rows[name][at] for name in ("dtype", "backend", "status", "why"))
            world = rows["world"][at]
            date = lane.commit(at).date.replace(" ", "T") + ":00+00:00"
            yield CaseCheck(date, lane.machine, *texts, int(world) if world == world else 1, *more, None)
