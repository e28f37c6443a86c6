"""One slot: what was seen of it, and what that means."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ci.pools.types import Pools
from ci.runner import hub
from ci.runner import state as handover
from ci.runner.state import (
    LONGEST_PAUSE_S,
    Action,
    Answer,
    Away,
    Clear,
    ClusterJob,
    Denied,
    End,
    HubRunner,
    Ledger,
    Letters,
    LostJob,
    Pause,
    Say,
    Serving,
    Sight,
    Slot,
    Stop,
    Unregister,
)
from ci.slurm import Allocation, QueueRow, Slurm, SlurmAway, SlurmError

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
    runner, job = at_hub(slot, seen), in_slurm(slot, seen)
    if slot.run or slot.ended or (runner and runner.busy):
        return ""
    if job is not None and job.end is End.PENDING and job.why:
        return f"Slurm will not start its job: {job.why}; look at time, partition and account of the pool"
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
    if slot.leaving or job is None or not job.why:
        return slot.leaving or "its job ended before it took a job of GitHub's"
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


# Slurm as the service sees it: one job for each slot, found by its name.


ENDS = {
    **dict.fromkeys(("BOOT_FAIL", "NODE_FAIL", "PREEMPTED", "REVOKED"), End.LOST),
    **dict.fromkeys(("CANCELLED", "DEADLINE", "TIMEOUT"), End.STOPPED),
}
"""States of squeue(1) in which nobody asked the job how it ended; any other final state is OVER."""

EXTRA_MINUTES = 15
"""What a job of GitHub's may not take of its own minutes: the wait for a configuration (handover.PATIENCE_S), the copy
of the program, the end of the runner."""


class SlurmJobs:
    """Slurm on one site.  Each method raises Away, or Denied."""

    def __init__(self, serving: Serving, pools: Pools, state: Path, slurm: Slurm) -> None:
        self._serving, self._pools, self._state, self._slurm = serving, pools, state, slurm

    def look(self, prefix: str) -> dict[str, ClusterJob]:
        """Every job that Slurm knows of whose name begins with `prefix`, by name.

        Slurm forgets a job some minutes after its end (MinJobAge).
        """
        with _asked():
            return {row.name: _job(row) for row in self._slurm.mine(prefix)}

    def submit(self, token: str, offer: str) -> str:
        """Start the job of a slot; returns its id."""
        script = handover.prepare(self._state, token, self.script(token), self._serving)
        with _asked():
            return self._slurm.sbatch(script, token, self.options(token, offer))

    def cancel(self, slurm: str, token: str) -> None:
        """End a job if it is still the one with this token."""
        with _asked():
            self._slurm.scancel(slurm, token)

    def script(self, token: str) -> str:
        """The job: start.sh on the bare node.

        A leg of our workflows enters its pool's container itself (`ci.pools.command`), so that the code under test
        runs inside and the runner's credentials stay outside; a runner in the container could not start another.
        """
        command = shlex.join(handover.command(self._state, token, self._serving))
        return f"#!/bin/bash\n# A runner for one job of GitHub's; see ci/runner of Ridgeline.\nexec {command}\n"

    def options(self, token: str, offer: str) -> list[str]:
        """How sbatch is called.  Nothing here is secret: Slurm shows options, script and environment to others."""
        found = self._serving.offer(offer)
        if found is None:
            raise Denied(f"the pool of {offer} is no longer in ci/runners.toml")
        pool = self._pools.pool(found.pool)
        asked = Allocation.of_pool(
            self._pools,
            pool,
            found.gpus,
            time=pool.time or str(pool.minutes + EXTRA_MINUTES),
            chdir=str(handover.folder(self._state, token)),
            output=str(handover.log(self._state, token)),
            requeue=False,
        )
        return asked.lines()


@contextmanager
def _asked() -> Iterator[None]:
    try:
        yield
    except SlurmAway as error:
        raise Away(str(error)) from error
    except SlurmError as error:
        raise Denied(str(error)) from error


def _job(row: QueueRow) -> ClusterJob:
    why = f"{row.state}, {row.reason}" if row.reason else row.state
    ended_badly = row.ended and row.state != "COMPLETED"
    return ClusterJob(row.array_id, row.name, _end(row), row.nodes, why if ended_badly or row.hopeless else "")


def _end(row: QueueRow) -> End:
    if row.ended:
        return ENDS.get(row.state, End.OVER)
    return End.PENDING if row.waiting else End.RUNNING


# What to do next: a pure function of what was seen, what is remembered and what is allowed.
#
# GitHub routes a job to any idle runner that has its labels, so nothing here ties a runner to the job it was started
# for: queued jobs that we allow are counted by offer, runners that are not at work yet are counted against them, and
# the difference is submitted or taken back. A slot lives until neither Slurm nor GitHub has anything left of it.


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
    state, said = _turned(dataclasses.replace(state, slots=after), state.slots, seen, serving, now)
    actions: list[Action] = []
    if seen.hub is not None:
        state, moved = hub.run_again(state, seen.hub, serving, now)
        actions += moved
    if seen.hub is not None and seen.cluster is not None:
        state, wanted = hub.met(state, seen.hub.jobs, serving, now, lambda offer: f"{begin}{offer}-{fresh()}")
        actions += wanted
    down = [action for slot in state.slots if (action := taken_down(slot, seen))]
    gone = {action.token for action in down if isinstance(action, Clear)}
    strangers = [Unregister(runner.name, runner.id) for runner in _strangers(state, seen)]
    state = dataclasses.replace(state, slots=tuple(slot for slot in state.slots if slot.token not in gone))
    answers = [Answer(slot.token) for slot in state.slots if _asks(slot, seen)]
    return Move(state, (*said, *actions, *answers, *down, *strangers))


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
        if slot.ended and not old.ended and (refused := letters_of(slot, seen).refused):
            said.append(Say(f"{slot.token}: GitHub gave it a job that is not ours, and the node refused it: {refused}"))
        if slot.ended and not old.ended and lost_its_node(slot, seen):
            state = dataclasses.replace(state, lost=(*state.lost, LostJob(slot.token, slot.run, now)))
            said.append(Say(f"{slot.token}: its node was lost under a job of run {slot.run}"))
        turned = (slot.ended, slot.leaving) != (old.ended, old.leaving)
        if turned and not (old.ended or old.leaving) and (why := no_runner_came(slot, seen)):
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
    asked = letters_of(slot, seen).asked
    return seen.hub is not None and slot.waits and not slot.answered and bool(asked) and asked == slot.slurm


def _strangers(state: Ledger, seen: Sight) -> Iterator[HubRunner]:
    """Runners with our prefix that no slot has: the service died after GitHub made them."""
    if seen.hub is None or seen.cluster is None:
        return
    known = {slot.token for slot in state.slots} | set(seen.cluster)
    yield from (runner for runner in seen.hub.runners if runner.name not in known and not runner.busy)
