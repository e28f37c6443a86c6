"""How many runners are wanted, and which of those that wait are too many."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from ci.runner.settings import Offer, Serving, offer_of, refusal
from ci.runner.types import Action, HubJob, Ledger, Say, Slot, Submit

NOT_NEEDED = "no queued job needs it any more"


def met(
    state: Ledger, jobs: tuple[HubJob, ...], serving: Serving, now: float, token: Callable[[str], str]
) -> tuple[Ledger, list[Action]]:
    """New slots for queued jobs that are allowed, and slots that nobody needs on their way out.

    jobs: everything GitHub has queued or running.  token: of an offer's name, a new one.
    """
    state, said = _refusals(state, jobs, serving)
    wanted = Counter(offer.name for offer in _offers(jobs, serving))
    state = dataclasses.replace(state, slots=tuple(_without_surplus(state.slots, wanted)))
    new = _new(state, wanted, serving, now, token)
    return dataclasses.replace(state, slots=state.slots + new), [*said, *(Submit(slot.token) for slot in new)]


def _offers(jobs: tuple[HubJob, ...], serving: Serving) -> Iterator[Offer]:
    for job in jobs:
        offer = offer_of(job, serving.offers) if job.status == "queued" else None
        if offer and not refusal(job, serving):
            yield offer


def _refusals(state: Ledger, jobs: tuple[HubJob, ...], serving: Serving) -> tuple[Ledger, list[Action]]:
    """One line for each job that is not allowed; jobs that are gone are forgotten."""
    ours = [job for job in jobs if job.status == "queued" and offer_of(job, serving.offers)]
    whys = {job.id: refusal(job, serving) for job in ours}
    told = tuple(sorted(id for id, why in whys.items() if why))
    new = [job for job in ours if whys[job.id] and job.id not in state.told]
    lines = [Say(f"refused job {job.id} ({job.name!r} of run {job.run}): {whys[job.id]}") for job in new]
    return dataclasses.replace(state, told=told), list(lines)


def _without_surplus(slots: tuple[Slot, ...], wanted: Counter[str]) -> Iterator[Slot]:
    """The same slots; those that wait for a job that is no longer there leave, the least advanced first.

    A runner that has its configuration stays: it may be taking a job just now, and leaves when it has been idle.
    """
    kept: Counter[str] = Counter()
    keep = set()
    for slot in sorted((slot for slot in slots if slot.waits), key=_progress, reverse=True):
        kept[slot.offer] += 1
        if kept[slot.offer] <= wanted[slot.offer] or slot.answered:
            keep.add(slot.token)
    for slot in slots:
        yield slot if slot.token in keep or not slot.waits else dataclasses.replace(slot, leaving=NOT_NEEDED)


def _progress(slot: Slot) -> tuple[bool, bool, bool, float]:
    return bool(slot.online), bool(slot.answered), bool(slot.slurm), -slot.planned


def _new(
    state: Ledger, wanted: Counter[str], serving: Serving, now: float, token: Callable[[str], str]
) -> tuple[Slot, ...]:
    """As many slots as jobs lack a runner, within the bound of each partition."""
    waiting = Counter(slot.offer for slot in state.slots if slot.waits)
    paused = {pause.offer for pause in state.pauses if pause.until > now}
    rooms = _rooms(state, serving)
    new = []
    for offer in serving.offers:
        lacking = 0 if offer.name in paused else max(0, wanted[offer.name] - waiting[offer.name])
        granted = min(lacking, rooms[offer.partition])
        rooms[offer.partition] -= granted
        new += [Slot(token(offer.name), offer.name, now) for _ in range(granted)]
    return tuple(new)


def _rooms(state: Ledger, serving: Serving) -> dict[str, int]:
    """How many more Slurm jobs of ours each partition may hold."""
    partition = {offer.name: offer.partition for offer in serving.offers}
    used = Counter(partition.get(slot.offer, "") for slot in state.slots if not slot.ended)
    return {name: max(0, serving.most - used[name]) for name in set(partition.values())}
