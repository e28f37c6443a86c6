"""Look, decide, write down, do; and again after a while.

The ledger is on the disk before anything is done, so a service that is killed between any two lines starts no second
Slurm job and forgets no runner: a job is found again by its name, a runner by its name, a repeated request by GitHub's
own answer.
"""

from __future__ import annotations

import dataclasses
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from ci.runner import state as handover
from ci.runner import state as memory
from ci.runner.hub import GitHubQueue
from ci.runner.slots import SlurmJobs, decide, paused, prefix
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

T = TypeVar("T")


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
        letters = {slot.token: handover.letters(self._state, slot.token) for slot in self.ledger.slots}
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
                handover.clear(self._state, token)

    def _submit(self, token: str) -> None:
        """A refused job leaves no slot, but a pause: the next look would submit it again."""
        slot = self._slot(token)
        try:
            job = self._cluster.submit(token, slot.offer)
        except Denied as error:
            self._keep(self._without(token))
            self._keep(paused(self.ledger, slot.offer, self._serving, self._clock()))
            handover.clear(self._state, token)
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
            self._set(dataclasses.replace(slot, leaving=f"GitHub makes no runner for it: {error}"))
            self._keep(paused(self.ledger, slot.offer, self._serving, self._clock()))
            raise Denied(f"{token}: GitHub makes no runner for it: {error}") from error
        handover.answer(self._state, token, secret)
        self._set(dataclasses.replace(slot, answered=self._clock()))
        self._say(f"{token}: runner {runner} registered for Slurm job {slot.slurm}")

    def _slot(self, token: str) -> Slot:
        return next(slot for slot in self.ledger.slots if slot.token == token)

    def _set(self, slot: Slot) -> None:
        slots = tuple(slot if one.token == slot.token else one for one in self.ledger.slots)
        self._keep(dataclasses.replace(self.ledger, slots=slots))

    def _without(self, token: str) -> Ledger:
        return dataclasses.replace(self.ledger, slots=tuple(slot for slot in self.ledger.slots if slot.token != token))

    def _keep(self, state: Ledger) -> None:
        memory.save(self._state, state)
        self.ledger = state
