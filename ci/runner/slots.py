"""One slot: what was seen of it, and what that means."""

from __future__ import annotations

import dataclasses

from ci.runner.settings import Serving
from ci.runner.types import Action, Clear, ClusterJob, End, HubRunner, Letters, Sight, Slot, Stop, Unregister

DEPRECATED = 7
"""Exit code of the runner program whose version GitHub no longer accepts (actions/runner, Constants.cs, 2026-08)."""


def followed(slot: Slot, seen: Sight, serving: Serving, now: float) -> Slot:
    """The slot with everything that was seen of it."""
    slot = _seen_at_hub(_seen_in_slurm(slot, seen, now), seen, now)
    ended = slot.ended or _ended(slot, seen, serving, now)
    return dataclasses.replace(slot, ended=ended, leaving=slot.leaving or _leaves(slot, seen, serving, now))


def _seen_in_slurm(slot: Slot, seen: Sight, now: float) -> Slot:
    job = in_slurm(slot, seen)
    if job is not None:
        return dataclasses.replace(slot, slurm=job.id, missing=0.0)
    if seen.cluster is not None:
        return dataclasses.replace(slot, missing=slot.missing or now)
    return slot


def _seen_at_hub(slot: Slot, seen: Sight, now: float) -> Slot:
    """GitHub knows what it runs, and that it was answered even where a crash kept the answer from being noted."""
    runner, letters = at_hub(slot, seen), letters_of(slot, seen)
    jobs = seen.hub.jobs if seen.hub else ()
    run = slot.run or letters.run or next((job.run for job in jobs if job.runner == slot.token), 0)
    online = bool(run or (runner and (runner.online or runner.busy)))
    answered = online or (runner is not None and not letters.asked)
    return dataclasses.replace(
        slot, run=run, online=slot.online or now * online, answered=slot.answered or now * answered
    )


def _ended(slot: Slot, seen: Sight, serving: Serving, now: float) -> bool:
    """Slurm says that the job is over, or has not known it for some time."""
    job = in_slurm(slot, seen)
    if job is not None:
        return job.end not in (End.PENDING, End.RUNNING)
    return bool(slot.missing) and now - slot.missing >= serving.missing_s


def _leaves(slot: Slot, seen: Sight, serving: Serving, now: float) -> str:
    """Why a runner that has no job is to be taken down."""
    runner = at_hub(slot, seen)
    if slot.run or slot.ended or (runner and runner.busy):
        return ""
    if slot.answered and not slot.online and now - slot.answered >= serving.online_s:
        return f"its runner was not online {serving.online_s:g} s after it got its configuration"
    if slot.online and now - slot.online >= serving.idle_s:
        return f"its runner was online for {serving.idle_s:g} s and got no job; does its group admit the workflow?"
    return ""


def taken_down(slot: Slot, seen: Sight) -> Action | None:
    """The next step of removing what is left of a slot: first GitHub's runner, which it keeps while it is at work.

    A runner whose node is lost counts as at work until GitHub gives its job up, about ten minutes later.
    """
    if not (slot.leaving or slot.ended) or seen.hub is None:
        return None
    runner, job = at_hub(slot, seen), in_slurm(slot, seen)
    if runner is not None:
        return None if runner.busy else Unregister(slot.token, runner.id)
    if job is not None and job.end in (End.PENDING, End.RUNNING):
        return Stop(slot.token, job.id)
    return Clear(slot.token) if slot.ended else None


def lost_its_node(slot: Slot, seen: Sight) -> bool:
    """It had a job, nobody stopped it, and the runner program never said how it ended."""
    job = in_slurm(slot, seen)
    gone = job is None or job.end is End.LOST
    return bool(slot.run) and gone and letters_of(slot, seen).code is None


def no_runner_came(slot: Slot, seen: Sight) -> str:
    """Why a slot that has ended, or leaves, never ran a job: a fault of the node, the program or the serving."""
    job, letters = in_slurm(slot, seen), letters_of(slot, seen)
    if slot.run or letters.refused:
        return ""
    if letters.code == DEPRECATED:
        return "GitHub no longer accepts this version of the runner program; install a newer one"
    if job is None or not job.why:
        return "its job ended before it took a job of GitHub's" if slot.ended else slot.leaving
    return f"its Slurm job ended on {job.node or 'no node'}: {job.why}"


def in_slurm(slot: Slot, seen: Sight) -> ClusterJob | None:
    """Its job, if Slurm knows it."""
    return (seen.cluster or {}).get(slot.token)


def at_hub(slot: Slot, seen: Sight) -> HubRunner | None:
    """Its runner, if GitHub has one."""
    runners = seen.hub.runners if seen.hub else ()
    return next((runner for runner in runners if runner.name == slot.token), None)


def letters_of(slot: Slot, seen: Sight) -> Letters:
    """What its job wrote into its folder."""
    return seen.letters.get(slot.token, Letters())
