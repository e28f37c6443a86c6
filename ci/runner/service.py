"""Look, decide, write down, do; and again after a while.

The ledger is on the disk before anything is done, so a service that is killed between any two lines starts no second
Slurm job and forgets no runner: a job is found again by its name, a runner by its name, a repeated request by GitHub's
own answer.
"""

from __future__ import annotations

import dataclasses
import secrets
import shlex
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from ci.pools.file import Pools
from ci.runner import state as memory
from ci.runner.decide import decide, paused, prefix
from ci.runner.hub import GitHubQueue
from ci.runner.state import (
    Action,
    Answer,
    Away,
    Clear,
    Denied,
    Ledger,
    RunAgain,
    Say,
    Serving,
    Sight,
    Slot,
    Stop,
    Submit,
    Unregister,
)
from ci.slurm import Allocation, QueueRow, Slurm, SlurmAway, SlurmError

EXTRA_MINUTES = 15
"""What a job of GitHub's may not take of its own minutes: the wait for a configuration (memory.PATIENCE_S), the copy
of the program, the end of the runner."""

T = TypeVar("T")


class SlurmJobs:
    """Slurm on one site: one job for each slot, found by its name.  Each method raises Away, or Denied."""

    def __init__(self, serving: Serving, pools: Pools, state: Path, slurm: Slurm) -> None:
        self._serving, self._pools, self._state, self._slurm = serving, pools, state, slurm

    def look(self, prefix: str) -> dict[str, QueueRow]:
        """Every job that Slurm knows of whose name begins with `prefix`, by name.

        Slurm forgets a job some minutes after its end (MinJobAge).
        """
        with _asked():
            return {row.name: row for row in self._slurm.mine(prefix)}

    def submit(self, token: str, offer: str) -> str:
        """Start the job of a slot; returns its id."""
        script = memory.prepare(self._state, token, self.script(token), self._serving)
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
        command = shlex.join(memory.command(self._state, token, self._serving))
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
            chdir=str(memory.folder(self._state, token)),
            output=str(memory.log(self._state, token)),
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


class RunnerService:
    """The runners of one site.  state: its folder, held by `memory.held`.  say: takes each line of the log.

    ledger: what it knows.  away: which of GitHub and Slurm did not answer at the last look.
    clock, fresh: for tests; the time in seconds since 1970, and a text that is new each time.
    """

    def __init__(
        self,
        serving: Serving,
        state: Path,
        hub: GitHubQueue,
        cluster: SlurmJobs,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.time,
        fresh: Callable[[], str] = lambda: secrets.token_hex(3),
    ) -> None:
        self._serving, self._state, self._hub, self._cluster = serving, state, hub, cluster
        self._say, self._clock, self._fresh = say, clock, fresh
        self.ledger = memory.seen(state)
        self.away: set[str] = set()

    def look(self) -> Sight:
        """What there is to see now; None for GitHub or Slurm where it is away, which is said once."""
        begin = prefix(self.ledger.instance)
        hub = self._unless_away("GitHub", lambda: self._hub.look(self.ledger.lost, begin))
        cluster = self._unless_away("Slurm", lambda: self._cluster.look(begin))
        letters = {slot.token: memory.letters(self._state, slot.token) for slot in self.ledger.slots}
        return Sight(hub, cluster, letters)

    def plan(self) -> tuple[Action, ...]:
        """What would be done now; nothing is written or done."""
        return decide(self.ledger, self.look(), self._serving, self._clock(), self._fresh).actions

    def round(self) -> int:
        """One look and everything that follows from it; returns how many slots there are."""
        seen = self.look()
        move = decide(self.ledger, seen, self._serving, self._clock(), self._fresh)
        self._keep(move.state)
        for action in move.actions:
            self._act(action)
        return len(self.ledger.slots)

    def _unless_away(self, who: str, question: Callable[[], T]) -> T | None:
        try:
            answer = question()
        except (Away, Denied) as error:
            self._not_there(who, error)
            return None
        if who in self.away:
            self.away.remove(who)
            self._say(f"{who} is back")
        return answer

    def _not_there(self, who: str, error: Exception) -> None:
        """Said once; what could not be done is decided again at the next look."""
        if who not in self.away:
            self._say(f"{who} is away: {error}")
        self.away.add(who)

    def _act(self, action: Action) -> None:
        try:
            self._do(action)
        except Away as error:
            self._not_there("Slurm" if isinstance(action, Submit | Stop) else "GitHub", error)
        except Denied as error:
            self._say(str(error))

    def _do(self, action: Action) -> None:
        match action:
            case Say(text):
                self._say(text)
            case Submit(token):
                self._submit(token)
            case Answer(token):
                self._answer(token)
            case Stop(token, slurm):
                self._cluster.cancel(slurm, token)
                self._say(f"{token}: Slurm job {slurm} cancelled")
            case Unregister(name, runner):
                self._hub.unregister(runner)
                self._say(f"{name}: its runner is deleted at GitHub")
            case RunAgain(job):
                self._hub.again(job)
                self._say(f"job {job} runs again: its node was lost")
            case Clear(token):
                memory.clear(self._state, token)

    def _submit(self, token: str) -> None:
        """A refused job leaves no slot, but a pause: the next look would submit it again."""
        slot = self._slot(token)
        try:
            job = self._cluster.submit(token, slot.offer)
        except Denied as error:
            left = tuple(one for one in self.ledger.slots if one.token != token)
            self._pause(dataclasses.replace(self.ledger, slots=left), slot)
            memory.clear(self._state, token)
            raise Denied(f"{token}: Slurm refuses its job: {error}") from error
        self._set(dataclasses.replace(slot, slurm=job))
        self._say(f"{token}: Slurm job {job} submitted")

    def _answer(self, token: str) -> None:
        """Register the runner and hand its configuration over; where GitHub refuses, the job is told to leave."""
        slot = self._slot(token)
        offer = self._serving.offer(slot.offer)
        labels = offer.labels if offer else ()
        try:
            runner, secret = self._hub.register(token, labels)
        except Denied as error:
            why = f"GitHub makes no runner for it: {error}"
            self._set(dataclasses.replace(slot, leaving=why))
            self._pause(self.ledger, slot)
            raise Denied(f"{token}: {why}") from error
        memory.answer(self._state, token, secret)
        self._set(dataclasses.replace(slot, answered=self._clock()))
        self._say(f"{token}: runner {runner} registered for Slurm job {slot.slurm}")

    def _slot(self, token: str) -> Slot:
        return next(slot for slot in self.ledger.slots if slot.token == token)

    def _set(self, slot: Slot) -> None:
        slots = tuple(slot if one.token == slot.token else one for one in self.ledger.slots)
        self._keep(dataclasses.replace(self.ledger, slots=slots))

    def _pause(self, state: Ledger, slot: Slot) -> None:
        self._keep(paused(state, slot.offer, self._serving, self._clock()))

    def _keep(self, state: Ledger) -> None:
        memory.save(self._state, state)
        self.ledger = state
