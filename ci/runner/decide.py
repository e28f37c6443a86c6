"""What to do next: a pure function of what was seen, what is remembered and what is allowed.

GitHub routes a job to any idle runner that has its labels, so nothing here ties a runner to the job it was started
for: queued jobs that we allow are counted by offer, runners that are not at work yet are counted against them, and the
difference is submitted or taken back.  A slot lives until neither Slurm nor GitHub has anything left of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

from ci.runner import again, demand, slots
from ci.runner.settings import LONGEST_PAUSE_S, Serving
from ci.runner.types import Action, Answer, Clear, End, HubRunner, Ledger, LostJob, Pause, Say, Sight, Slot, Unregister


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
    state = _adopted(state, seen, now)
    after = tuple(slots.followed(slot, seen, serving, now) for slot in state.slots)
    state, said = _turned(dataclasses.replace(state, slots=after), state.slots, seen, serving, now)
    actions: list[Action] = []
    if seen.hub is not None:
        state, moved = again.run_again(state, seen.hub, serving, now)
        actions += moved
    if seen.hub is not None and seen.cluster is not None:
        state, wanted = demand.met(state, seen.hub.jobs, serving, now, _tokens(state, fresh))
        actions += wanted
    down = [action for slot in state.slots if (action := slots.taken_down(slot, seen))]
    gone = {action.token for action in down if isinstance(action, Clear)}
    strangers = [Unregister(runner.name, runner.id) for runner in _strangers(state, seen)]
    state = dataclasses.replace(state, slots=tuple(slot for slot in state.slots if slot.token not in gone))
    answers = [Answer(slot.token) for slot in state.slots if _asks(slot, seen)]
    return Move(state, (*said, *actions, *answers, *down, *strangers))


def _tokens(state: Ledger, fresh: Callable[[], str]) -> Callable[[str], str]:
    return lambda offer: f"{prefix(state.instance)}{offer}-{fresh()}"


def _adopted(state: Ledger, seen: Sight, now: float) -> Ledger:
    """Jobs of ours that Slurm has and the state does not: the service died between the two."""
    known = {slot.token for slot in state.slots}
    jobs = (seen.cluster or {}).values()
    living = [job for job in jobs if job.token not in known and job.end in (End.PENDING, End.RUNNING)]
    new = tuple(Slot(job.token, _offer_in(job.token, state), now, job.id) for job in living)
    return dataclasses.replace(state, slots=state.slots + new)


def _offer_in(token: str, state: Ledger) -> str:
    return token.removeprefix(prefix(state.instance)).rpartition("-")[0]


def _turned(
    state: Ledger, before: tuple[Slot, ...], seen: Sight, serving: Serving, now: float
) -> tuple[Ledger, list[Action]]:
    """What follows from slots that have just ended or begun to leave: jobs to run again, pauses, lines for the log."""
    said: list[Action] = []
    for old, slot in zip(before, state.slots, strict=True):
        if slot.run and not old.run:
            state = _without_pause(state, slot.offer)
            said.append(Say(f"{slot.token}: runs a job of run {slot.run}"))
        if slot.ended and not old.ended and (refused := slots.letters_of(slot, seen).refused):
            said.append(Say(f"{slot.token}: GitHub gave it a job that is not ours, and the node refused it: {refused}"))
        if slot.ended and not old.ended and slots.lost_its_node(slot, seen):
            state = dataclasses.replace(state, lost=(*state.lost, LostJob(slot.token, slot.run, now)))
            said.append(Say(f"{slot.token}: its node was lost under a job of run {slot.run}"))
        turned = (slot.ended, slot.leaving) != (old.ended, old.leaving)
        if turned and not (old.ended or old.leaving) and (why := slots.no_runner_came(slot, seen)):
            state = paused(state, slot.offer, serving, now)
            said.append(Say(f"{slot.token}: {why}; no new runner of {slot.offer} {_until(state, slot.offer, now)}"))
    return state, said


def paused(state: Ledger, offer: str, serving: Serving, now: float) -> Ledger:
    """The state with a pause of this offer, twice as long as its last one."""
    failures = 1 + next((pause.failures for pause in state.pauses if pause.offer == offer), 0)
    seconds = min(serving.pause_s * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE_S)
    rest = _without_pause(state, offer).pauses
    return dataclasses.replace(state, pauses=(*rest, Pause(offer, failures, now + seconds)))


def _without_pause(state: Ledger, offer: str) -> Ledger:
    return dataclasses.replace(state, pauses=tuple(pause for pause in state.pauses if pause.offer != offer))


def _until(state: Ledger, offer: str, now: float) -> str:
    until = next(pause.until for pause in state.pauses if pause.offer == offer)
    return f"for {until - now:.0f} s"


def _asks(slot: Slot, seen: Sight) -> bool:
    """Its job waits for a configuration, and it is the job that Slurm runs for us."""
    asked = slots.letters_of(slot, seen).asked
    return seen.hub is not None and slot.waits and not slot.answered and bool(asked) and asked == slot.slurm


def _strangers(state: Ledger, seen: Sight) -> Iterator[HubRunner]:
    """Runners with our prefix that no slot has: the service died after GitHub made them."""
    if seen.hub is None or seen.cluster is None:
        return
    known = {slot.token for slot in state.slots} | set(seen.cluster)
    yield from (runner for runner in seen.hub.runners if runner.name not in known and not runner.busy)
