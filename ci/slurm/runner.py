"""Short-lived GitHub runners on Slurm: one Slurm job, with a runner for one job, for each queued GitHub job of ours.

Nothing is remembered.  Each round asks GitHub for the jobs with our labels and Slurm for the jobs named `rl-<job id>`,
submits what lacks a runner and cancels what nobody wants.  So it may be killed at any moment and goes on by looking.

GitHub gives a job to any idle runner that has its labels: a runner may run another job than the one it is named for.
So runners that are not at work are counted against queued jobs of the same size, and those at work are left alone.
A runner at GitHub that never had a Slurm job, because the service was killed in between, is removed when its name is
used again, and else by GitHub after a day.

Who may run is asked twice: before a job is submitted (`refusal`), and on the node before anything of a job runs
(node/guard.sh).  Jobs run as the user of the service: code that is not trusted must run in its pool's container.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.pools.file import Pool, Pools, RunnerSettings
from ci.slurm.client import QueueRow, Slurm, SlurmError, batch_script
from ci.slurm.jobs import PREFIX

EVENTS = ("push", "repository_dispatch", "schedule", "workflow_dispatch")
"""What may have started a run: events whose workflow file and commit somebody with write access chose.  A run of
pull_request or pull_request_target brings, or can be made to bring, a stranger's code."""
ACTIVE = ("queued", "in_progress")
"""States of runs that can have queued jobs: a run is in progress while its first jobs run and others wait."""
NODE = Path(__file__).parent / "node"
PATH = "actions/runners"
"""Of runners in GitHub's API."""
OURS = re.compile(rf"{PREFIX}\d+")
"""Names of runners and their Slurm jobs."""
EXTRA_MINUTES = 15
"""For the copy of the program and the end of the runner, beyond the minutes that a job of GitHub's may take."""


class RunnerError(Exception):
    """The service cannot start; the text says what to change."""


@dataclasses.dataclass(frozen=True)
class Offer:
    """Jobs of one size of a pool that has labels."""

    pool: Pool
    gpus: int

    @property
    def name(self) -> str:
        """POOL-GPUS."""
        return f"{self.pool.name}-{self.gpus}"

    @property
    def labels(self) -> tuple[str, ...]:
        """What jobs of this size ask for."""
        return self.pool.runs_on.sized(self.gpus).labels if self.pool.runs_on else ()


@dataclasses.dataclass(frozen=True)
class HubJob:
    """A job of a workflow run at GitHub.  refusal: why it may not run here, "" where it may."""

    id: int
    labels: tuple[str, ...]
    status: str
    refusal: str = ""


@dataclasses.dataclass(frozen=True)
class Sight:
    """GitHub and Slurm at one moment.  runners: ids of ours at GitHub by name; at_work: names of those with a job."""

    jobs: tuple[HubJob, ...]
    runners: Mapping[str, int]
    at_work: frozenset[str]
    rows: tuple[QueueRow, ...]


def offers_of(pools: Pools, site: str) -> list[Offer]:
    """What a site serves: its pools that have labels."""
    of_site = [pool for pool in pools.pools.values() if pool.site == site and pool.runs_on]
    return [Offer(pool, gpus) for pool in of_site for gpus in pool.gpus]


def offer_of(job: HubJob, offers: Sequence[Offer]) -> Offer | None:
    """The offer with every label that the job asks for, and as few others as possible; GitHub ignores case."""
    labels = {label.lower() for label in job.labels}
    fitting = [offer for offer in offers if labels and labels <= {label.lower() for label in offer.labels}]
    return min(fitting, key=lambda offer: len(offer.labels), default=None)


def refusal(run: Mapping[str, Any], settings: RunnerSettings) -> str:
    """Why jobs of a run may not run on our machines, by what started it, and whose code, workflow and branch it is;
    "" where they may.  The node asks the same again (guard.sh)."""
    event, path, ref = run["event"], run["path"], f"refs/heads/{run['head_branch']}"
    head = (run["head_repository"] or {}).get("full_name", "a deleted repository")
    if (
        event in EVENTS
        and head.lower() == settings.repository.lower()
        and path.partition("@")[0] in settings.workflows
        and any(fnmatch.fnmatchcase(ref, pattern) for pattern in settings.refs)
    ):
        return ""
    return f"{event} of {path} at {ref}, with code of {head}, is not what [site.NAME.runner] allows"


def plan_round(seen: Sight, offers: Sequence[Offer], most: int) -> dict[str, Offer | None]:
    """What a round does, by name of the runner: submit it for an offer, or cancel it (None).

    A pure function.  most: Slurm jobs at a time.  A name is used once while Slurm remembers it (MinJobAge, 5 minutes by
    default): a runner that ends at once is not started again in every round.
    """
    remembered, living = {row.name for row in seen.rows}, [row for row in seen.rows if not row.has_ended]
    plan: dict[str, Offer | None] = {}
    for offer in offers:
        # Names of runners for our jobs of this offer; whether the job is queued.
        mine = [job for job in seen.jobs if not job.refusal and offer_of(job, offers) == offer]
        names = {f"{PREFIX}{job.id}": job.status == "queued" for job in mine}
        # A runner that has done its job is gone from GitHub before its Slurm job ends.
        coming = [row for row in living if row.is_waiting or row.name in seen.runners]
        idle = [row for row in coming if row.comment == offer.name and row.name not in seen.at_work]
        idle.sort(key=lambda row: not row.is_waiting)
        lacking = sum(names.values()) - len(idle)
        plan |= dict.fromkeys([row.name for row in idle[: max(0, -lacking)]])
        # As many names are free as jobs lack a runner, if not of these jobs then of those that took their runners.
        free = sorted((name for name in names if name not in remembered), key=lambda name: not names[name])
        room = most - len(living) - sum(map(bool, plan.values()))
        plan |= dict.fromkeys(free[: max(0, min(lacking, room))], offer)
    return plan


@dataclasses.dataclass(frozen=True)
class RunnerService:
    """The rounds of one site.  folder: seen by every node; it has a folder for each job that is to start."""

    pools: Pools
    site: str
    settings: RunnerSettings
    folder: Path
    github: GitHub
    slurm: Slurm

    def look(self) -> Sight:
        """GitHub and Slurm now.  GitHubError, SlurmError.

        Jobs come first: one that was queued then and whose runner is at work since is seen as such.
        """
        listed = (self.github.items(f"actions/runs?status={state}", "workflow_runs") for state in ACTIVE)
        runs = {run["id"]: run for run in itertools.chain.from_iterable(listed)}
        jobs = tuple(
            HubJob(job["id"], tuple(job["labels"]), job["status"], refusal(run, self.settings))
            for run in runs.values()
            for job in self.github.items(f"actions/runs/{run['id']}/jobs?filter=latest", "jobs", none_for=(404,))
            if job["status"] in ACTIVE
        )
        runners = [runner for runner in self.github.items(PATH, "runners") if OURS.fullmatch(runner["name"])]
        at_work = frozenset(runner["name"] for runner in runners if runner["busy"])
        rows = tuple(row for row in self.slurm.mine(PREFIX) if OURS.fullmatch(row.name))
        return Sight(jobs, {runner["name"]: runner["id"] for runner in runners}, at_work, rows)

    def do_round(self, dry_run: bool = False) -> tuple[list[str], bool]:
        """One round: what is to be logged, and whether something failed, which the next round decides again."""
        try:
            seen = self.look()
        except (GitHubError, SlurmError) as error:
            return [f"nothing is done until the next round: {error}"], True
        if not dry_run:
            self.remove_folders(seen)
        offers = offers_of(self.pools, self.site)
        refused = [job for job in seen.jobs if job.refusal and job.status == "queued" and offer_of(job, offers)]
        lines, failed = [f"job {job.id} gets no runner: {job.refusal}" for job in refused], False
        for name, offer in plan_round(seen, offers, self.settings.jobs).items():
            done = f"submitted for {offer.name}" if offer else "cancelled: no queued job needs it"
            try:
                if not dry_run:
                    self.remove(name, seen)
                    if offer:
                        self.submit(name, offer)
                lines.append(f"{name}: {'to be ' * dry_run}{done}")
            except (GitHubError, SlurmError) as error:
                lines.append(f"{name}: {error}")
                failed = True
        return lines, failed

    def submit(self, name: str, offer: Offer) -> None:
        """Register a runner and submit its Slurm job.

        A leg of our workflows enters its pool's container itself (`ci.pools.command`), so that the code under test runs
        inside and the runner's credentials stay outside.
        """
        value = {"name": name, "runner_group_id": 1, "labels": offer.labels, "work_folder": "_work"}
        registered = self.github.post(f"{PATH}/generate-jitconfig", value)
        place = self.folder / name
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what jobs print lies there, too
        prepare_folder(place, registered["encoded_jit_config"], self.settings)
        command = shlex.join(["bash", str(place / "start.sh"), str(place), self.settings.program])
        script = batch_script(
            self.pools,
            offer.pool,
            offer.gpus,
            f"exec {command}\n",
            name=name,
            time=offer.pool.time or str(offer.pool.minutes + EXTRA_MINUTES),
            chdir=str(self.folder),
            output=f"{self.folder}/{name}.txt",
            requeue=False,
            comment=offer.name,
        )
        (place / "job.sh").write_text(script)
        self.slurm.sbatch(place / "job.sh", name)

    def remove(self, name: str, seen: Sight) -> None:
        """End a runner that has no job, with its Slurm job if there is one; before it is submitted, one whose
        configuration was lost with a service that was killed.  GitHub refuses where it has a job, and then it goes on.
        """
        if name in seen.runners:
            self.github.delete(f"{PATH}/{seen.runners[name]}")
        self.slurm.scancel(name)

    def remove_folders(self, seen: Sight) -> None:
        """Remove the folders of jobs that are over or were never submitted: what was killed leaves its secret there."""
        living = {row.name for row in seen.rows if not row.has_ended}
        for place in self.folder.glob(f"{PREFIX}*/"):
            if place.name not in living:
                shutil.rmtree(place, ignore_errors=True)


def prepare_folder(place: Path, secret: str, settings: RunnerSettings) -> None:
    """Make the folder of a job, for its user only; the job removes it in the end, or a round after it.

    start.sh and guard.sh; allowed: what guard.sh lets run; config: the secret, which the job deletes as it starts.
    """
    place.mkdir(mode=0o700)
    for name in ("start.sh", "guard.sh"):
        shutil.copy(NODE / name, place)
    rows = itertools.product([settings.repository], settings.workflows, settings.refs, EVENTS)
    (place / "allowed").write_text("".join("\t".join(row) + "\n" for row in rows))
    (place / "config").touch(mode=0o600)
    (place / "config").write_text(secret)
