"""GitHub and Slurm in memory, with everything that can go wrong, for the service under test.

The test moves the world on; the service sees it only through stand-ins of GitHub and Slurm, and the folders of slots.
"""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

from ci.runner import state
from ci.runner.service import RunnerService
from ci.runner.state import Away, Denied, Hub, HubJob, HubRunner, LostJob, Offer, Serving, offer_of
from ci.slurm import QueueRow

SERVING = Serving(
    repository="o/r",
    program="/opt/actions-runner/run.sh",
    workflows=(".github/workflows/gpu.yml",),
    refs=("refs/heads/main", "refs/heads/ridgeline/gpu-*"),
    offers=(
        Offer("mi300x-1", "mi300x", 1, ("linux", "mi300x", "mi300x-1"), "mi300x"),
        Offer("mi300x-8", "mi300x", 8, ("linux", "mi300x", "mi300x-8"), "mi300x"),
        Offer("mi355x-8", "mi355x", 8, ("linux", "mi355x", "mi355x-8"), "mi355x"),
    ),
    jobs=3,
)
ALLOWED = HubJob(
    *(0, 0, "measure", frozenset(["mi300x-1"]), "queued"),
    path=SERVING.workflows[0],
    ref="main",
    event="schedule",
    head="o/r",
)


class Killed(BaseException):
    """The service was killed here."""


class World:
    """One GitHub, one Slurm.  kill_in: the service is killed at that call from now on, 0 for never; half of the time
    after the call was carried out."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.now, self.kill_in, self.kill_after = folder, 1e9, 0, False
        self.hub_away = self.cluster_away = False
        self.jobs: dict[int, HubJob] = {}
        self.runners: dict[int, HubRunner] = {}
        self.slurm: dict[str, QueueRow] = {}
        self.offers: dict[str, str] = {}
        self.log: list[str] = []
        self.submitted: list[str] = []
        self.reruns: dict[str, int] = {}
        self._ids = itertools.count(1)
        self._fresh = itertools.count(1)
        self.service = self.start()

    # ---- the service ----

    def start(self) -> RunnerService:
        """A service on the state folder, as after a restart."""
        self.service = RunnerService(
            SERVING, self.folder, self, self, self.log.append, lambda: self.now, lambda: f"{next(self._fresh):06x}"
        )
        self.service.ledger = state.load(self.folder)
        return self.service

    def round(self) -> None:
        """One round; a service that is killed in it is started again."""
        try:
            self.service.round()
        except Killed:
            self.kill_in = 0
            self.start()

    def _called(self, away: bool) -> None:
        if away:
            raise Away("away")
        self._may_die(False)

    def _may_die(self, after: bool) -> None:
        if self.kill_in and after is self.kill_after:
            self.kill_in -= 1
            if not self.kill_in:
                raise Killed

    # ---- GitHub, for the service ----

    def look(self, *what: object) -> object:
        """Of GitHub and of Slurm: told apart by what they are asked."""
        return self._look_at_hub(*what) if len(what) == 2 else self._look_at_slurm(*what)

    def _look_at_hub(self, lost: tuple[LostJob, ...], prefix: str) -> Hub:
        self._called(self.hub_away)
        running = {job.run for job in self.jobs.values() if job.status != "completed"}
        jobs = tuple(job for job in self.jobs.values() if job.run in running)
        runners = tuple(runner for runner in self.runners.values() if runner.name.startswith(prefix))
        return Hub(jobs, runners, {one.token: self._newest(one) for one in lost})

    def _newest(self, lost: LostJob) -> HubJob | None:
        jobs = [job for job in self.jobs.values() if job.run == lost.run]
        done = all(job.status == "completed" for job in jobs)
        mine = [job for job in jobs if job.runner == lost.token]
        return dataclasses.replace(mine[-1], run_done=done) if mine else None

    def register(self, name: str, labels: tuple[str, ...]) -> tuple[int, str]:
        self._called(self.hub_away)
        old = [runner for runner in self.runners.values() if runner.name == name]
        if any(runner.busy for runner in old):
            raise Denied("422 at work")
        for runner in old:
            del self.runners[runner.id]
        number = next(self._ids)
        self.runners[number] = HubRunner(number, name, False, False)
        self._may_die(True)
        return number, f"secret-{number}"

    def unregister(self, runner: int) -> None:
        self._called(self.hub_away)
        if runner in self.runners and self.runners[runner].busy:
            raise Denied("422 at work")
        self.runners.pop(runner, None)
        self._may_die(True)

    def again(self, job: int) -> None:
        self._called(self.hub_away)
        old = self.jobs[job]
        if any(one.status != "completed" for one in self.jobs.values() if one.run == old.run):
            raise Denied("403 already running")
        del self.jobs[job]
        number = next(self._ids)
        self.jobs[number] = dataclasses.replace(old, id=number, status="queued", conclusion="", runner="")
        key = f"{old.run}/{old.name}"
        self.reruns[key] = self.reruns.get(key, 0) + 1
        self._may_die(True)

    # ---- Slurm, for the service ----

    def _look_at_slurm(self, prefix: str) -> dict[str, QueueRow]:
        self._called(self.cluster_away)
        return {token: job for token, job in self.slurm.items() if token.startswith(prefix)}

    def submit(self, token: str, offer: str) -> str:
        self._called(self.cluster_away)
        state.prepare(self.folder, token, "#!/bin/bash\n", SERVING)
        self.submitted.append(token)
        number = str(next(self._ids))
        self.slurm[token] = QueueRow(number, number, token, "PENDING", "", "gpu", "", token)
        self.offers[token] = offer
        self._may_die(True)
        return number

    def cancel(self, slurm: str, token: str) -> None:
        self._called(self.cluster_away)
        self.end(token, "CANCELLED")
        self._may_die(True)

    # ---- what happens in the world ----

    def queue(self, **given: object) -> HubJob:
        """A queued job of a run of its own."""
        number = next(self._ids)
        self.jobs[number] = dataclasses.replace(ALLOWED, **{"id": number, "run": number, **given})
        return self.jobs[number]

    def begin(self, token: str) -> None:
        """Slurm starts a job; it asks for its configuration."""
        self.slurm[token] = dataclasses.replace(self.slurm[token], state="RUNNING", nodes="n0")
        (state.folder(self.folder, token) / "asked").write_text(self.slurm[token].id)

    def read(self, token: str) -> None:
        """A job that has its configuration reads it; its runner comes online and takes a job that it may run."""
        place = state.folder(self.folder, token)
        (place / "config").unlink()
        (place / "asked").unlink()
        runner = next((one for one in self.runners.values() if one.name == token), None)
        if runner is None:
            self.leave(token, 1)  # it was deleted or replaced meanwhile
            return
        self.runners[runner.id] = dataclasses.replace(runner, online=True)
        self.take(token)

    def take(self, token: str) -> None:
        """GitHub gives an online runner the oldest queued job that has its labels; guard.sh lets it pass or not."""
        runner = next(one for one in self.runners.values() if one.name == token)
        fitting = (job for job in self.jobs.values() if job.status == "queued" and self._fits(job, token))
        job = next(fitting, None)
        if job is None:
            return
        self.runners[runner.id] = dataclasses.replace(runner, busy=True)
        self.jobs[job.id] = dataclasses.replace(job, status="in_progress", runner=token)
        letter = "run" if job.event == "schedule" else "refused"
        (state.folder(self.folder, token) / letter).write_text(str(job.run))
        if letter == "refused":
            self.finish(token, "failure")

    def _fits(self, job: HubJob, token: str) -> bool:
        offer = SERVING.offer(self.offers[token])
        return offer is not None and offer_of(job, [offer]) is not None

    def finish(self, token: str, conclusion: str = "success") -> None:
        """The job that a runner has ends, and so do the runner and its Slurm job."""
        self._conclude(token, conclusion)
        self.leave(token, 0)

    def _conclude(self, token: str, conclusion: str) -> None:
        for job in list(self.jobs.values()):
            if job.runner == token and job.status == "in_progress":
                self.jobs[job.id] = dataclasses.replace(job, status="completed", conclusion=conclusion)
        self.runners = {number: one for number, one in self.runners.items() if one.name != token}

    def leave(self, token: str, code: int) -> None:
        """The runner program has ended."""
        place = state.folder(self.folder, token)
        if place.exists():
            (place / "code").write_text(str(code))
        self.end(token, "COMPLETED")

    def end(self, token: str, state: str) -> None:
        """The Slurm job is over; a runner without its job goes offline."""
        if not self.slurm[token].ended:
            self.slurm[token] = dataclasses.replace(self.slurm[token], state=state)
        for number, one in list(self.runners.items()):
            if one.name == token:
                self.runners[number] = dataclasses.replace(one, online=False)

    def notice(self, token: str) -> None:
        """GitHub gives up a job whose runner it has not heard of."""
        self._conclude(token, "failure")

    def forget(self, token: str) -> None:
        """Slurm no longer knows a job: it lost it, or it ended long ago."""
        self.end(token, "NODE_FAIL")
        del self.slurm[token]

    # ---- for assertions ----

    def living(self) -> list[str]:
        """Tokens of jobs that are queued or running in Slurm."""
        return [token for token, row in self.slurm.items() if not row.ended]

    def waiting(self) -> list[HubJob]:
        """Queued jobs that are allowed."""
        return [job for job in self.jobs.values() if job.status == "queued" and job.event == "schedule"]
