"""GitHub jobs whose node was lost: each is run again, a bounded number of times."""

from __future__ import annotations

import dataclasses

from ci.runner.settings import Serving
from ci.runner.types import Action, Hub, Ledger, LostJob, RunAgain, Say

LONGEST_S = 86_400.0
"""Seconds after which a lost job is given up: GitHub fails a queued job after a day (its documentation, 2026-11)."""

REMEMBERED = 1000
"""Jobs whose number of repetitions is remembered, the newest: far more than one day has lost nodes."""


def run_again(state: Ledger, hub: Hub, serving: Serving, now: float) -> tuple[Ledger, list[Action]]:
    """Ask for each lost job whose run is done.  One that GitHub shows with another runner was run again already."""
    kept: list[LostJob] = []
    actions: list[Action] = []
    reruns = dict(state.reruns)
    for lost in state.lost:
        if lost.token not in hub.lost:
            kept.append(lost)  # lost since GitHub was asked
            continue
        job = hub.lost[lost.token]
        if job is None or job.conclusion == "success":
            continue
        key = f"{job.run}/{job.name}"
        why = _given_up(lost, reruns.get(key, 0), serving, now)
        if why:
            actions.append(Say(f"job {job.id} ({job.name!r} of run {job.run}) lost its node and stays as it is: {why}"))
            continue
        kept.append(lost)
        if job.run_done:
            reruns[key] = reruns.get(key, 0) + 1
            actions.append(RunAgain(job.id))
    newest = dict(list(reruns.items())[-REMEMBERED:])
    return dataclasses.replace(state, lost=tuple(kept), reruns=newest), actions


def _given_up(lost: LostJob, times: int, serving: Serving, now: float) -> str:
    if now - lost.since > LONGEST_S:
        return "GitHub has not ended its run within a day"
    return f"it was run again {times} times already" if times >= serving.reruns else ""
