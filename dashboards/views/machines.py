"""Machine health: is a machine, or one GPU of it, as its peers are; when it was last seen; and how good the gate is."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ci.history import kept, readings
from ci.history.health import HealthFinding, MachineHealth, SessionHealth, machines
from ci.history.kept import CanaryRun, CaseCheck, Verified
from dashboards.lanes import KEY, slug
from dashboards.values import one
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
        "noise": one(noise[-1]) if noise else None,
        "standing": [f.text for f in health.standing] if health else [],
        "gate": [
            {"planted": q.planted, "runs": q.runs, "counts": dict(q.counts), "worst": one(q.worst)}
            for q in kept.quality(runs)
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
    devices = [[_rounded(getattr(device, field)) for field in FIELDS] for device in session.devices]
    return [session.at_ms, session.commit, session.trials, _rounded(session.noise), devices]


def _rounded(value: float | None) -> float | None:
    return None if value is None else one(value)


def _finding(found: HealthFinding) -> dict[str, Any]:
    return {
        "who": found.who,
        "measure": str(found.measure),
        "text": found.text,
        "since": found.since.at_ms,
        "commit": found.since.commit,
        "ended": found.ended.at_ms if found.ended else None,
        "slower": one(found.ratio - 1),
    }


def _answers(run: CanaryRun) -> Iterator[dict[str, Any]]:
    at = int(datetime.datetime.fromisoformat(run.at).timestamp() * 1000)
    for case in run.cases:
        numbers = {name: _rounded(getattr(case, name)) for name in ("ratio", "low", "high")}
        yield {
            "at": at,
            "commit": run.commit,
            "planted": run.planted,
            "floor": run.floor,
            "case": case.case,
            "verdict": case.verdict,
            "outcome": str(run.outcome(case)),
            **numbers,
            "trials": case.trials,
        }


def verified_row(row: kept.Verified) -> dict[str, Any]:
    """A row of the table of checks, on this page and on that of the records."""
    return {
        "machine": row.machine,
        "kernel": row.kernel,
        "backend": row.backend,
        "world": row.world,
        "counts": dict(row.counts),
        "last": row.last,
        "commit": row.commits[0],
        "worst": _rounded(row.worst),
    }


def _machines(site: SiteInput) -> Made:
    """From the folder of records; nothing but names where a site is built of a bare frame."""
    found: list[MachineHealth] = []
    runs: list[CanaryRun] = []
    rows: list[kept.Verified] = []
    if site.results_dir is not None:
        frame = site.frame if site.peers is None else site.peers()
        found = machines(readings.load(site.results_dir), frame if len(frame) else None)
        runs = kept.canary_runs(site.results_dir)[0]
        rows = kept.verified(kept.case_checks(site.results_dir)[0])
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
    failures = [
        {"machine": one.machine, "kernel": one.kernel, "backend": one.backend, "case": one.case}
        | {"status": one.status, "why": one.why, "at": one.at}
        for row in rows
        for one in row.failures
    ]
    return {"rows": [verified_row(row) for row in rows], "failures": failures, "problems": list(problems)}


def _checks(site: SiteInput) -> Made:
    found, problems = kept.case_checks(site.results_dir) if site.results_dir else ([], [])
    verified = kept.verified([*found, *_of_trials(site)])
    data = records_data(verified, [text.replace(f"{site.results_dir}/", "") for text in problems])
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
