"""What to do next: a pure function of what was seen, what is remembered and what is allowed.

GitHub routes a job to any idle runner that has its labels, so nothing here ties a runner to the job it was started
for: queued jobs that we allow are counted by offer, runners that are not at work yet are counted against them, and
the difference is submitted or taken back.  A slot lives until neither Slurm nor GitHub has anything left of it.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator

from ci.runner.state import (
    LONGEST_PAUSE_S,
    Action,
    Answer,
    Clear,
    Hub,
    HubJob,
    HubRunner,
    Ledger,
    LostJob,
    Pause,
    RunAgain,
    Say,
    Serving,
    Sight,
    Slot,
    Stop,
    Submit,
    Unregister,
    offer_of,
    refusal,
)
from ci.slurm import QueueRow

DEPRECATED = 7
"""Exit code of the runner program whose version GitHub no longer accepts (actions/runner, Constants.cs, 2026-08)."""

LOST = ("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED")
"""States of squeue(1) in which nobody asked the job how it ended."""

NOT_NEEDED = "no queued job needs it any more"

LONGEST_S = 86_400.0
"""Seconds after which a lost job is given up: GitHub fails a queued job after a day (its documentation, 2026-11)."""

REMEMBERED = 1000
"""Jobs whose number of repetitions is remembered, the newest: far more than one day has lost nodes."""


@dataclasses.dataclass(frozen=True)
class Move:
    """The state to write down first, and then what to do, in this order."""

    state: Ledger
    actions: tuple[Action, ...]


def prefix(instance: str) -> str:
    """How every token of this service begins: short, for a runner's name has at most 64 characters."""
    return f"rl-{instance}-"


def decide(state: Ledger, seen: Sight, serving: Serving, now: float, fresh: Callable[[], str]) -> Move:
    """See the module.  now: seconds since 1970.  fresh: a text that it never returned before, for a new token."""
    begin = prefix(state.instance)
    state = _adopted(state, seen, now)
    after = tuple(followed(slot, seen, serving, now) for slot in state.slots)
    state, actions = _turned(dataclasses.replace(state, slots=after), state.slots, seen, serving, now)
    if seen.hub is not None:
        state, again = run_again(state, seen.hub, serving, now)
        actions += again
    if seen.hub is not None and seen.cluster is not None:
        state, wanted = met(state, seen.hub.jobs, serving, now, lambda offer: f"{begin}{offer}-{fresh()}")
        actions += wanted
    down = [action for slot in state.slots if (action := taken_down(slot, seen))]
    gone = {action.token for action in down if isinstance(action, Clear)}
    strangers = [Unregister(runner.name, runner.id) for runner in _strangers(state, seen)]
    state = dataclasses.replace(state, slots=tuple(slot for slot in state.slots if slot.token not in gone))
    answers = [Answer(slot.token) for slot in state.slots if _asks(slot, seen)]
    return Move(state, (*actions, *answers, *down, *strangers))


# ---- one slot: what was seen of it, and what that means --------------------------------------------------------------


def followed(slot: Slot, seen: Sight, serving: Serving, now: float) -> Slot:
    """The slot with everything that was seen of it.

    GitHub knows what it runs, and that it was answered even where a crash kept the answer from being noted.  It has
    ended where Slurm says that its job is over, or has not known it for some time.
    """
    row, runner, letters = seen.row(slot), seen.runner(slot), seen.letters_of(slot)
    if row is not None:
        slot = dataclasses.replace(slot, slurm=row.array_id, missing=0.0)
    elif seen.cluster is not None:
        slot = dataclasses.replace(slot, missing=slot.missing or now)
    jobs = seen.hub.jobs if seen.hub else ()
    run = slot.run or letters.run or next((job.run for job in jobs if job.runner == slot.token), 0)
    online = bool(run or (runner and (runner.online or runner.busy)))
    answered = online or (runner is not None and not letters.asked)
    slot = dataclasses.replace(
        slot, run=run, online=slot.online or now * online, answered=slot.answered or now * answered
    )
    over = row.ended if row else bool(slot.missing) and now - slot.missing >= serving.missing_s
    unwanted = slot.leaving or _leaves(slot, row, runner, serving, now)
    return dataclasses.replace(slot, ended=slot.ended or over, leaving=unwanted)


def _leaves(slot: Slot, row: QueueRow | None, runner: HubRunner | None, serving: Serving, now: float) -> str:
    """Why a runner that has no job is to be taken down."""
    if slot.run or slot.ended or (runner and runner.busy):
        return ""
    if row is not None and row.hopeless:
        return f"Slurm will not start its job: {trouble(row)}; look at time, partition and account of the pool"
    if slot.answered and not slot.online and now - slot.answered >= serving.online_s:
        return f"its runner was not online {serving.online_s:g} s after it got its configuration"
    if slot.online and now - slot.online >= serving.idle_s:
        return f"its runner was online for {serving.idle_s:g} s and got no job; does its group admit the workflow?"
    return ""


def trouble(row: QueueRow) -> str:
    """How a Slurm job ended, if not well, or why it will never start; "" for another one."""
    bad = row.hopeless or (row.ended and row.state != "COMPLETED")
    return ", ".join(filter(None, (row.state, row.reason))) if bad else ""


def taken_down(slot: Slot, seen: Sight) -> Action | None:
    """The next step of removing what is left of a slot: first GitHub's runner, which it keeps while it is at work.

    A runner whose node is lost counts as at work until GitHub gives its job up, about ten minutes later.
    """
    if not (slot.leaving or slot.ended) or seen.hub is None:
        return None
    row, runner = seen.row(slot), seen.runner(slot)
    if runner is not None:
        return None if runner.busy else Unregister(slot.token, runner.id)
    if row is not None and not row.ended:
        return Stop(slot.token, row.array_id)
    return Clear(slot.token) if slot.ended else None


def lost_its_node(slot: Slot, seen: Sight) -> bool:
    """It had a job, nobody stopped it, and the runner program never said how it ended."""
    row = seen.row(slot)
    return bool(slot.run) and (row is None or row.state in LOST) and seen.letters_of(slot).code is None


def no_runner_came(slot: Slot, seen: Sight) -> str:
    """Why a slot that has ended, or leaves, never ran a job: a fault of the node, the program or the serving."""
    row, letters = seen.row(slot), seen.letters_of(slot)
    if slot.run or letters.refused:
        return ""
    if letters.code == DEPRECATED:
        return "GitHub no longer accepts this version of the runner program; install a newer one"
    if slot.leaving or row is None or not trouble(row):
        return slot.leaving or "its job ended before it took a job of GitHub's"
    return f"its Slurm job ended on {row.nodes or 'no node'}: {trouble(row)}"


def _asks(slot: Slot, seen: Sight) -> bool:
    """Its job waits for a configuration, and it is the job that Slurm runs for us."""
    asked = seen.letters_of(slot).asked
    return seen.hub is not None and slot.waits and not slot.answered and bool(asked) and asked == slot.slurm


# ---- all slots -------------------------------------------------------------------------------------------------------


def _adopted(state: Ledger, seen: Sight, now: float) -> Ledger:
    """Jobs of ours that Slurm has and the state does not: the service died between the two."""
    known = {slot.token for slot in state.slots}
    living = [row for row in (seen.cluster or {}).values() if row.name not in known and not row.ended]
    new = [Slot(row.name, _offer_in(row.name, state), now, row.array_id) for row in living]
    return dataclasses.replace(state, slots=(*state.slots, *new))


def _offer_in(token: str, state: Ledger) -> str:
    return token.removeprefix(prefix(state.instance)).rpartition("-")[0]


def _strangers(state: Ledger, seen: Sight) -> Iterator[HubRunner]:
    """Runners with our prefix that no slot has: the service died after GitHub made them."""
    if seen.hub is not None and seen.cluster is not None:
        known = {slot.token for slot in state.slots} | set(seen.cluster)
        yield from (runner for runner in seen.hub.runners if runner.name not in known and not runner.busy)


def _turned(
    state: Ledger, before: tuple[Slot, ...], seen: Sight, serving: Serving, now: float
) -> tuple[Ledger, list[Action]]:
    """What follows from slots that have just ended or begun to leave: jobs to run again, pauses, lines for the log."""
    said: list[Action] = []
    for old, slot in zip(before, state.slots, strict=True):
        ended = slot.ended and not old.ended
        if slot.run and not old.run:
            state = _without_pause(state, slot.offer)
            said.append(Say(f"{slot.token}: runs a job of run {slot.run}"))
        if ended and (refused := seen.letters_of(slot).refused):
            said.append(Say(f"{slot.token}: GitHub gave it a job that is not ours, and the node refused it: {refused}"))
        if ended and lost_its_node(slot, seen):
            state = dataclasses.replace(state, lost=(*state.lost, LostJob(slot.token, slot.run, now)))
            said.append(Say(f"{slot.token}: its node was lost under a job of run {slot.run}"))
        turned = (slot.ended or slot.leaving) and not (old.ended or old.leaving)
        if turned and (why := no_runner_came(slot, seen)):
            state = paused(state, slot.offer, serving, now)
            wait = state.pauses[-1].until - now
            said.append(Say(f"{slot.token}: {why}; no new runner of {slot.offer} for {wait:.0f} s"))
    return state, said


def paused(state: Ledger, offer: str, serving: Serving, now: float) -> Ledger:
    """The state with a pause of this offer, its last one, twice as long as the one before."""
    failures = 1 + next((pause.failures for pause in state.pauses if pause.offer == offer), 0)
    seconds = min(serving.pause_s * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE_S)
    rest = _without_pause(state, offer).pauses
    return dataclasses.replace(state, pauses=(*rest, Pause(offer, failures, now + seconds)))


def _without_pause(state: Ledger, offer: str) -> Ledger:
    return dataclasses.replace(state, pauses=tuple(pause for pause in state.pauses if pause.offer != offer))


# ---- how many runners are wanted, and which of those that wait are too many ------------------------------------------


def met(
    state: Ledger, jobs: tuple[HubJob, ...], serving: Serving, now: float, token: Callable[[str], str]
) -> tuple[Ledger, list[Action]]:
    """New slots for queued jobs that are allowed, within the bound of each partition, and slots that nobody needs on
    their way out; one line for each job that is not allowed.

    jobs: everything GitHub has queued or running.  token: of an offer's name, a new one.
    """
    queued = [(job, offer) for job in jobs if job.status == "queued" and (offer := offer_of(job, serving.offers))]
    whys = {job.id: why for job, _ in queued if (why := refusal(job, serving))}
    refused = [job for job, _ in queued if job.id in whys and job.id not in state.told]
    said = [Say(f"refused job {job.id} ({job.name!r} of run {job.run}): {whys[job.id]}") for job in refused]
    wanted = Counter(offer.name for job, offer in queued if job.id not in whys)
    slots = _without_surplus(state.slots, wanted)
    new = _new(slots, {pause.offer for pause in state.pauses if pause.until > now}, wanted, serving)
    planned = tuple(Slot(token(offer), offer, now) for offer in new)
    state = dataclasses.replace(state, slots=slots + planned, told=tuple(sorted(whys)))
    return state, [*said, *(Submit(slot.token) for slot in planned)]


def _without_surplus(slots: tuple[Slot, ...], wanted: Counter[str]) -> tuple[Slot, ...]:
    """The same slots; those that wait for a job that is no longer there leave, the least advanced first.

    A runner that has its configuration stays: it may be taking a job just now, and leaves when it has been idle.
    """
    left, spare = Counter(wanted), set[str]()
    for slot in sorted((slot for slot in slots if slot.waits), key=_progress, reverse=True):
        left[slot.offer] -= 1
        if left[slot.offer] < 0 and not slot.answered:
            spare.add(slot.token)
    return tuple(dataclasses.replace(one, leaving=NOT_NEEDED) if one.token in spare else one for one in slots)


def _progress(slot: Slot) -> tuple[bool, bool, bool, float]:
    return bool(slot.online), bool(slot.answered), bool(slot.slurm), -slot.planned


def _new(slots: tuple[Slot, ...], paused: set[str], wanted: Counter[str], serving: Serving) -> list[str]:
    """The offers of as many slots as jobs lack a runner, within the bound of each partition."""
    waiting = Counter(slot.offer for slot in slots if slot.waits)
    partition = {offer.name: offer.partition for offer in serving.offers}
    used = Counter(partition.get(slot.offer, "") for slot in slots if not slot.ended)
    new: list[str] = []
    for offer in serving.offers:
        lacking = 0 if offer.name in paused else wanted[offer.name] - waiting[offer.name]
        granted = max(0, min(lacking, serving.jobs - used[offer.partition]))
        used[offer.partition] += granted
        new += [offer.name] * granted
    return new


# ---- GitHub jobs whose node was lost: each is run again, a bounded number of times -----------------------------------


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
        times = reruns.get(key, 0)
        late = "GitHub has not ended its run within a day" if now - lost.since > LONGEST_S else ""
        if why := late or (f"it was run again {times} times already" if times >= serving.reruns else ""):
            actions.append(Say(f"job {job.id} ({job.name!r} of run {job.run}) lost its node and stays as it is: {why}"))
            continue
        kept.append(lost)
        if job.run_done:
            reruns[key] = times + 1
            actions.append(RunAgain(job.id))
    newest = dict(list(reruns.items())[-REMEMBERED:])
    return dataclasses.replace(state, lost=tuple(kept), reruns=newest), actions
