"""Machines: what each is, whether it is as its peers are, how good the gate is there, and what was verified."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ci.history import health, kept, readings
from ci.history.health import MachineHealth
from ci.history.kept import CanaryRun, CaseCheck, Verified
from ci.trials.trial import Checkout, Trial
from dashboards import charts, table
from dashboards.frame import KEY, Lane, Site
from dashboards.table import Column, Piece, Table

FINGERPRINT = ("kind", "arch", "device", "market_name", "count", "compute_units", "memory_bytes", "chip_id")
"""Columns of the frame that describe a machine."""

SOFTWARE = {"torch": "torch", "Triton": "triton", "CUDA": "cuda", "HIP": "hip", "NCCL/RCCL": "nccl", "Python": "python"}
"""What the page calls each entry of a trial's `environment`."""

MEASURES = {
    "clock_mhz": ("clock at work", "MHz", 1.0),
    "power_w": ("power at work", "W", 1.0),
    "temperature_c": ("highest temperature", "°C", 1.0),
    "throttled": ("held back", "%", 100.0),
    "link_gbs": ("slowest link", "GB/s", 1.0),
}
"""Field of a device in a session: label, unit, factor."""


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
    """A choice of machines, and of each its facts, its sessions, the gate's canaries and what was verified."""
    found = {one.machine: one for one in health.machines(readings.load(site.results), _peers(site))}
    runs, run_problems = kept.canary_runs(site.results)
    checks, problems = kept.case_checks(site.results)
    verified = kept.verified([*checks, *_of_trials(site)])
    of_lane = {lane.machine: lane for lane in reversed(site.lanes)}
    names = sorted({*of_lane, *found, *(run.machine for run in runs), *(row.machine for row in verified)})
    pieces: dict[str, list[Piece]] = {}
    for name in names:
        own = [row for row in verified if row.machine == name]
        lane = of_lane.get(name)
        pieces[name] = [
            *([table.facts(machine_facts(site, lane))] if lane else []),
            *_health(found.get(name)),
            *_gate([run for run in runs if run.machine == name]),
            *_verified(own),
        ]
    summary = _summary(names, of_lane, found)
    said = [*run_problems, *problems]
    notices = [table.text(words.replace(f"{site.results}/", ""), "problem") for words in said]
    listed = table.choice("machine", "machine", [[name, name] for name in names], pieces)
    return {"title": "Machines", "pieces": [summary.piece(), listed, *notices] if names else notices}


def _peers(site: Site) -> pd.DataFrame | None:
    peers = health.peers(site.frame) if len(site.frame) else site.frame
    return peers if len(peers) else None


def _summary(names: Sequence[str], lanes: Mapping[str, Lane], found: Mapping[str, MachineHealth]) -> Table:
    columns = [
        Column("machine", "machine", "case"),
        Column("device", "device"),
        Column("seen", "last seen", "date"),
        Column("noise", "noise between trials", "share", "Standard deviation of the logarithm of a repeated time."),
        Column("apart", "apart from its peers"),
    ]
    rows = []
    for name in names:
        one, lane = found.get(name), lanes.get(name)
        noise = [session.noise for session in one.sessions if session.noise is not None] if one else []
        apart = "; ".join(finding.text for finding in one.standing) if one else ""
        device = title(lane) if lane else one.product if one else ""
        seen = _date(one.last_seen_ms) if one else ""
        rows.append([[name, f"#machine={name}"], device, seen, noise[-1] if noise else None, apart or "nothing"])
    return Table("machines", "all machines", columns, rows)


def _date(at_ms: int) -> str:
    return f"{datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC):%Y-%m-%d %H:%M}"


def _health(found: MachineHealth | None) -> Iterator[Piece]:
    """Findings in words, and the sessions as charts."""
    if not found:
        return
    yield table.heading("Its GPUs, session by session")
    for one in found.findings:
        ended = f", until {_date(one.ended.at_ms)}" if one.ended else ""
        yield table.text(f"{one.text}, since {_date(one.since.at_ms)}{ended}", "problem" if not one.ended else "")
    days = [f"{_date(one.at_ms)} {one.commit[:8]}" for one in found.sessions]
    count = max(len(one.devices) for one in found.sessions)
    looks = charts.looks([f"GPU {n}" for n in range(count)], [])
    units = {}
    for field, (label, unit, factor) in MEASURES.items():
        lines = []
        for n, (name, look) in enumerate(looks.items()):
            values = [getattr(one.devices[n], field) if n < len(one.devices) else None for one in found.sessions]
            if any(value is not None for value in values):
                lines.append(charts.line(name, [None if v is None else v * factor for v in values], look))
        if lines:
            units[label] = _over_sessions(days, lines, label, unit)
    noise = [None if one.noise is None else 100 * one.noise for one in found.sessions]
    if any(value is not None for value in noise):
        look = {"color": "--series-0", "dash": "solid"}
        units["noise between trials"] = _over_sessions(days, [charts.line("noise", noise, look)], "noise", "%")
    if units:
        yield charts.chart(f"sessions of {found.machine}", units, 260, key="measure")


def _over_sessions(days: Sequence[str], lines: Sequence[charts.Option], label: str, unit: str) -> charts.Option:
    y = {"name": f"{label}, {unit}", "unit": unit, "scale": True}
    return {"xAxis": {"type": "category", "data": days, "name": "session"}, "yAxis": y, "series": lines}


def _gate(runs: Sequence[CanaryRun]) -> Iterator[Piece]:
    """How often the gate said what was planted."""
    if not runs:
        return
    rows = []
    for one in kept.quality(runs):
        answers = ", ".join(f"{count} {outcome}" for outcome, count in one.counts.items())
        rows.append([f"{one.planted:+.1%}" if one.planted else "nothing (A/A)", one.runs, answers, one.worst])
    columns = [
        Column("planted", "planted"),
        Column("runs", "runs", "number"),
        Column("answers", "the gate's answers, case by case"),
        Column("worst", "farthest of a ratio from what was planted", "share"),
    ]
    yield table.heading("What the gate said of planted changes")
    yield Table(f"{runs[0].machine}-gate", "planted changes", columns, rows).piece()


def _verified(rows: Sequence[Verified]) -> Iterator[Piece]:
    if not rows:
        return
    columns = [
        Column("kernel", "operator"),
        Column("backend", "backend"),
        Column("ranks", "ranks", "number"),
        Column("answers", "cases"),
        Column("worst", "largest error", "number", "As a share of what the operator's tolerance allows."),
        Column("last", "last checked", "date"),
        Column("commit", "commit", "commit"),
    ]
    cells = [
        [
            row.kernel,
            row.backend,
            row.world,
            ", ".join(f"{count} {status}" for status, count in row.counts.items()),
            row.worst,
            row.last[:16].replace("T", " "),
            [row.commits[0], ""],
        ]
        for row in rows
    ]
    failures = [[one.kernel, one.case, one.backend, [one.status, one.why]] for row in rows for one in row.failures]
    yield table.heading("What was verified against the reference")
    if failures:
        named = [Column("kernel", "operator"), Column("case", "case"), Column("backend", "backend")]
        failed = Table(
            f"{rows[0].machine}-failed", "what failed", [*named, Column("status", "why", "status")], failures
        )
        yield table.fold([f"{len(failures)} failed"], [failed.piece(filter=True)], "problem")
    yield Table(f"{rows[0].machine}-verified", "what was verified", columns, cells).piece(filter=True)


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
