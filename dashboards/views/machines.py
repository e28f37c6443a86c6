"""Machines: whether one is as its peers are, how good the gate is, what was verified there, and how speed scales."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from ci.history import kept, readings
from ci.history.health import HealthFinding, MachineHealth, SessionHealth, machines
from ci.history.kept import CanaryRun, CaseCheck, CurvePoint, Verified
from ci.records import ledger as regimes
from ci.records import rates, sustained
from ci.records.rates import Rate
from ci.records.sustained import BesideRow
from dashboards.lanes import KEY, natural, slug, timed, without_ranks
from dashboards.values import CostRow, costs, count, in_rate, minute, newest_stated, told
from dashboards.views import CHARTS, Made, SiteInput, View, beside

FIELDS = ("clock_mhz", "power_w", "temperature_c", "capped", "throttled", "link_gbs", "pace")
"""Of a device in a session, in this order (`ci.history.readings.DeviceHealth`)."""


def machines_data(found: Sequence[MachineHealth], runs: Sequence[CanaryRun], others: Iterable[str]) -> dict[str, Any]:
    """The list of all machines, which static/views/machines.js reads.

    {"machines": [{"machine", "path", "product", "last": ms or null, "behind_days", "unseen", "noise", "standing":
    [text], "gate": [{"planted", "runs", "counts": {outcome: cases}, "worst"}]}]}; others: machines without notes.
    """
    health = {one.machine: one for one in found}
    names = sorted({*health, *(run.machine for run in runs), *others})
    return {"machines": [_summary(name, health.get(name), [r for r in runs if r.machine == name]) for name in names]}


def _summary(name: str, health: MachineHealth | None, runs: Sequence[CanaryRun]) -> dict[str, Any]:
    noise = [session.noise for session in health.sessions if session.noise is not None] if health else []
    return {
        "machine": name,
        "path": f"views/machine-{slug(name)}",
        "product": health.product if health else next((run.product for run in runs), ""),
        "last": health.last_seen_ms if health else None,
        "behind_days": round(health.behind_days, 2) if health else None,
        "unseen": bool(health and health.unseen),
        "noise": noise[-1] if noise else None,
        "standing": [f.text for f in health.standing] if health else [],
        "gate": [
            {name: getattr(one, name) for name in ("planted", "runs", "counts", "worst")} for one in kept.quality(runs)
        ],
    }


def machine_data(
    name: str, health: MachineHealth | None, runs: Sequence[CanaryRun], verified: Sequence[kept.Verified]
) -> dict[str, Any]:
    """All of one machine.

    {"machine", "devices": count, "sessions": [[ms, commit, trials, noise, [[FIELDS of a device]]]],
     "findings": [{"who", "measure", "text", "since", "commit", "ended", "slower"}],
     "canary": [{"at", "commit", "planted", "floor", "case", "verdict", "outcome", "ratio", "low", "high", "trials"}],
     "verified": [{"kernel", "backend", "world", "counts", "last", "commit", "worst"}]}
    """
    sessions = health.sessions if health else ()
    return {
        "machine": name,
        "devices": max((len(session.devices) for session in sessions), default=0),
        "sessions": [_session(session) for session in sessions],
        "findings": [_finding(one) for one in (health.findings if health else ())],
        "canary": [answer for run in runs for answer in _answers(run)],
        "verified": [verified_row(row) for row in verified],
    }


def _session(session: SessionHealth) -> list[Any]:
    devices = [[getattr(device, field) for field in FIELDS] for device in session.devices]
    return [session.at_ms, session.commit, session.trials, session.noise, devices]


def _finding(found: HealthFinding) -> dict[str, Any]:
    return {
        "who": found.who,
        "measure": found.measure,
        "text": found.text,
        "since": found.since.at_ms,
        "commit": found.since.commit,
        "ended": found.ended.at_ms if found.ended else None,
        "slower": found.ratio - 1,
    }


def _answers(run: CanaryRun) -> Iterator[dict[str, Any]]:
    at = int(datetime.datetime.fromisoformat(run.at).timestamp() * 1000)
    of_run = {"at": at, "commit": run.commit, "planted": run.planted, "floor": run.floor}
    for case in run.cases:
        yield of_run | vars(case) | {"outcome": run.outcome(case)}


def verified_row(row: kept.Verified) -> dict[str, Any]:
    """A row of the table of checks, on this page and on that of the records."""
    own = {name: getattr(row, name) for name in ("machine", "kernel", "backend", "world", "counts", "last")}
    return own | {"commit": row.commits[0], "worst": row.worst}


def _machines(site: SiteInput) -> Made:
    peers = site.history.peers
    found = machines(readings.load(site.results), peers if len(peers) else None)
    runs = kept.canary_runs(site.results)[0]
    rows = kept.verified(site.checks[0])
    health = {one.machine: one for one in found}
    listed = machines_data(found, runs, (lane.machine for lane in site.lanes))
    yield "views/machines", listed
    for entry in listed["machines"]:
        name = entry["machine"]
        own = [run for run in runs if run.machine == name]
        yield entry["path"], machine_data(name, health.get(name), own, [row for row in rows if row.machine == name])
    for seen in found:
        sessions = [
            {"at_ms": session.at_ms, "commit": session.commit, "trials": session.trials, "noise": session.noise}
            | {"gpu": place, **{name: getattr(device, name) for name in FIELDS}}
            for session in seen.sessions
            for place, device in enumerate(session.devices)
        ]
        yield from beside(f"views/machine-{slug(seen.machine)}", sessions)


VIEW = View(
    "machines",
    "Machines",
    _machines,
    scripts=(*CHARTS, "views/checks.js", "views/machines.js"),
    styles=("views/views.css", "views/machines.css"),
    of_history=True,
)


# What was verified: every backend of every kernel, on how many ranks, when, at which commit, and what failed.


def records_data(rows: Sequence[Verified], problems: Sequence[str]) -> dict[str, Any]:
    """{"rows": [verified row], "failures": [{"machine", "kernel", "backend", "case", "status", "why", "at"}],
    "problems": [text]}, which static/views/records.js reads."""
    said = ("machine", "kernel", "backend", "case", "status", "why", "at")
    failures = [{name: getattr(one, name) for name in said} for row in rows for one in row.failures]
    return {"rows": [verified_row(row) for row in rows], "failures": failures, "problems": list(problems)}


def _checks(site: SiteInput) -> Made:
    found, problems = site.checks
    verified = kept.verified([*found, *_of_trials(site)])
    data = told(records_data(verified, [text.replace(f"{site.results}/", "") for text in problems]))
    yield "views/checks", data
    statuses = (kept.GOOD, *kept.FAILED, "unsupported", "skipped")  # all of them: every row has the same columns
    flat = [row | {status: row["counts"].get(status, 0) for status in statuses} for row in data["rows"]]
    yield from beside("views/checks", [{name: row[name] for name in row if name != "counts"} for row in flat])


def _of_trials(site: SiteInput) -> Iterator[CaseCheck]:
    """A trial compares all that it times with the reference: the newest record of every arm is a check of it."""
    for lane in site.lanes:
        rows = lane.frame.drop_duplicates(KEY, keep="last")
        names = ("commit", "kernel", "case", "world", "dtype", "backend", "status", "why")
        dates = (moment.isoformat(timespec="seconds") for moment in rows["date"])
        for at, *texts in zip(dates, *(rows[name].tolist() for name in names), strict=True):
            commit, kernel, case, world, *others = texts
            yield CaseCheck(at, lane.machine, commit, kernel, case, int(world) if world == world else 1, *others, None)


CHECKS = View(
    "checks",
    "Checks",
    _checks,
    scripts=("views/checks.js", "views/records.js"),
    styles=("views/views.css", "views/machines.css"),
)


# Scaling: speed over the number of ranks on machines of one product, and over the number of CUs a collective takes.


def scaling_data(rows: pd.DataFrame) -> dict[str, Any]:
    """Points of one product, which static/views/scaling.js reads.  rows: newest of each lane, with ranks and times.

    {"device", "points": [{"kernel", "shape", "case", "world", "per_rank": payload bytes / ranks, "rate", "backend",
    "baseline", "us", "value", "busbw", "machine", "commit", "date"}]}
    """
    newest = rows.sort_values(["date", "machine"], kind="stable")
    points = _points(newest.drop_duplicates(["kernel", "case", "backend"], keep="last"))
    points.sort(key=lambda point: (point["kernel"], natural(point["shape"]), point["backend"], point["world"]))
    return {"device": str(rows["device"].iloc[0]), "points": points}


def _points(rows: pd.DataFrame) -> list[dict[str, Any]]:
    """The newest number of each backend in each case, on whichever machine it was measured."""
    found: dict[tuple[str, str], list[CostRow]] = {}
    names = list(zip(rows["kernel"], rows["case"], strict=True))
    for name, cost in zip(names, costs(rows), strict=True):
        found.setdefault(name, []).append(cost)
    headlines = {name: rates.headline(newest_stated(those)) for name, those in found.items()}
    quoted = [headlines[name] for name in names]
    in_each = {rate: in_rate(rows, rate).tolist() for rate in {*quoted, Rate.BUSBW}}
    columns = {
        "kernel": rows["kernel"],
        "shape": [without_ranks(case, int(world)) for case, world in zip(rows["case"], rows["world"], strict=True)],
        "case": rows["case"],
        "world": map(count, rows["world"]),
        "per_rank": map(count, rows["payload_bytes"] / rows["world"]),
        "rate": quoted,
        "backend": rows["backend"],
        "baseline": map(bool, rows["baseline"]),
        "us": rows["seconds"] * 1e6,
        "value": [in_each[rate][n] for n, rate in enumerate(quoted)],
        "busbw": in_each[Rate.BUSBW],
        "machine": rows["machine"],
        "commit": rows["commit"],
        "date": map(minute, rows["date"]),
    }
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


def curves_data(points: list[CurvePoint], chosen: dict[tuple[str, str, str, str], int]) -> list[dict[str, Any]]:
    """Curves over CUs: [{"machine", "device", "kernel", "case", "world", "backends": [{"name", "baseline", "chosen",
    "points": [[CUs, busbw in GB/s, commit]]}]}]; chosen: CUs that the newest record uses, where it tells."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for point in points:
        key = (point.machine, point.kernel, point.case)
        facts = {"machine": point.machine, "device": point.device, "kernel": point.kernel, "case": point.case}
        curve = found.setdefault(key, {**facts, "world": point.world, "backends": {}})
        backend = {"name": point.backend, "baseline": point.baseline, "chosen": chosen.get((*key, point.backend))}
        line = curve["backends"].setdefault(point.backend, {**backend, "points": []})
        line["points"].append([point.programs, point.busbw, point.commit])
    return [{**curve, "backends": list(curve["backends"].values())} for curve in found.values()]


def chosen_programs(site: SiteInput, points: list[CurvePoint]) -> dict[tuple[str, str, str, str], int]:
    """The knob `programs` in the newest record of each case that has a curve."""
    found: dict[tuple[str, str, str, str], int] = {}
    for machine, kernel, case in sorted({(point.machine, point.kernel, point.case) for point in points}):
        rows = site.frame[(site.frame["machine"] == machine) & (site.frame["kernel"] == kernel)]
        rows = rows[rows["case"] == case].sort_values("date", kind="stable")
        for name, backend, arm in site.arms_at(rows.iloc[-1:]):
            if name == case and isinstance(arm.knobs.get("programs"), int):
                found[machine, kernel, case, backend] = int(arm.knobs["programs"])
    return found


def _scaling(site: SiteInput) -> Made:
    """Points of measured rows of several ranks by product, whatever the number of its devices; curves over CUs."""
    rows = pd.concat([*site.newest.values(), site.frame[:0]])
    rows = rows[(rows["world"] > 1) & timed(rows)]
    products = [scaling_data(part) for _, part in rows.groupby("device", sort=True, observed=True)]
    listed = [{"device": one["device"], "path": f"views/scaling-{slug(one['device'])}"} for one in products]
    points = kept.curve_points(site.results)[0]
    yield "views/scaling", {"products": listed, "curves": curves_data(points, chosen_programs(site, points))}
    for product, entry in zip(products, listed, strict=True):
        yield entry["path"], product
        yield from beside(entry["path"], product["points"])


SCALING = View(
    "scaling",
    "Scaling",
    _scaling,
    scripts=(*CHARTS, "views/scaling.js"),
    styles=("views/views.css", "views/machines.css"),
)


# Sustained calls beside spaced ones: time, ratio to the vendor library in either regime, joules.


def sustained_row(row: BesideRow) -> dict[str, Any]:
    """A row of the table, which static/views/sustained.js reads; times in microseconds, null where there is none."""
    told = {name: getattr(row, name) for name in ("machine", "kernel", "case", "backend", "baseline")}
    told |= {"commit": row.sustained.commit, "spaced_commit": row.spaced.commit if row.spaced else ""}
    for regime, time in (("spaced", row.spaced), ("sustained", row.sustained)):
        told[f"{regime}_us"] = 1e6 * time.seconds if time else None
        told |= {f"{regime}_{name}": getattr(time, name, None) for name in ("ratio", "low", "high")}
    names = {"joules": "joules", "joules_low": "low", "joules_high": "high"}
    return told | {name: getattr(row.joules, field, None) for name, field in names.items()}


def _sustained(site: SiteInput) -> Made:
    rows = [sustained_row(row) for row in sustained.beside(site.results, site.frame)]
    yield "views/sustained", {"rows": rows}
    yield from beside("views/sustained", rows)


SUSTAINED = View(
    "sustained",
    "Sustained",
    _sustained,
    scripts=("views/sustained.js",),
    styles=("views/views.css",),
    shown=lambda site: regimes.folder_of(site.results, regimes.SUSTAINED).is_dir(),
)
