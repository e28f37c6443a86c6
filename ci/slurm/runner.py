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
import shlex
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ci.github.client import GitHub, GitHubError
from ci.pools.file import Pool, Pools, RunnerSettings, Site
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
OURS = rf"{PREFIX}\d+"
"""Names of runners and their Slurm jobs."""
EXTRA_MINUTES = 15
"""For the copy of the program and the end of the runner, beyond the minutes that a job of GitHub's may take."""


@dataclasses.dataclass(frozen=True)
class Offer:
    """Jobs of one size of a pool.  name: POOL-GPUS.  labels: what they may ask for, in lower case."""

    name: str
    pool: Pool
    gpus: int
    labels: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class HubJob:
    """An active job of a workflow run at GitHub that asks for an offer.  refusal: why it may not run here, or ""."""

    id: int
    offer: Offer
    is_queued: bool
    refusal: str = ""


def offers_of(pools: Pools, site: str) -> list[Offer]:
    """What a site serves: its pools that have labels; the offer with the fewest labels first."""
    offers = [
        Offer(f"{pool.name}-{gpus}", pool, gpus, tuple(map(str.lower, pool.runs_on.sized(gpus).labels)))
        for pool in pools.pools.values()
        if pool.site == site and pool.runs_on
        for gpus in pool.gpus
    ]
    return sorted(offers, key=lambda offer: len(offer.labels))


def offer_of(labels: Collection[str], offers: Sequence[Offer]) -> Offer | None:
    """The offer with every label that a job asks for, and as few others as possible; GitHub ignores case."""
    wanted = {label.lower() for label in labels}
    return next((offer for offer in offers if wanted and wanted.issubset(offer.labels)), None)


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


def plan_round(
    jobs: Sequence[HubJob], idle: Collection[str], rows: Sequence[QueueRow], offers: Sequence[Offer], most: int
) -> dict[str, Offer | None]:
    """What a round does, by name of the runner: submit it for an offer, or cancel it (None).

    A pure function.  idle: names of runners at GitHub that have no job.  rows: of Slurm.  most: Slurm jobs at a time.
    A name is used once while Slurm remembers it (MinJobAge, 5 minutes by default): a runner that ends at once is not
    started again in every round.
    """
    remembered, living = {row.name for row in rows}, [row for row in rows if not row.has_ended]
    plan: dict[str, Offer | None] = {}
    room = most - len(living)
    for offer in offers:
        # Names of runners for our jobs of this offer; whether the job is queued.
        names = {f"{PREFIX}{job.id}": job.is_queued for job in jobs if job.offer == offer and not job.refusal}
        queued = sum(names.values())
        # A runner that has done its job is gone from GitHub before its Slurm job ends.
        coming = [row for row in living if row.comment == offer.name and (row.is_waiting or row.name in idle)]
        coming.sort(key=lambda row: row.is_waiting)
        # As many names are free as jobs lack a runner, if not of these jobs then of those that took their runners.
        free = sorted((name for name in names if name not in remembered), key=lambda name: not names[name])
        free = free[: max(0, min(queued - len(coming), room))]
        room -= len(free)
        plan |= dict.fromkeys([row.name for row in coming[queued:]]) | dict.fromkeys(free, offer)
    return plan


@dataclasses.dataclass(frozen=True)
class RunnerService:
    """The rounds of one site.  folder: seen by every node; it has a folder for each job that is to start."""

    site: Site
    settings: RunnerSettings
    offers: Sequence[Offer]
    folder: Path
    github: GitHub
    slurm: Slurm

    def look(self) -> tuple[list[HubJob], dict[str, int], list[QueueRow]]:
        """GitHub and Slurm now: jobs, ids of runners that have none by name, Slurm jobs.  GitHubError, SlurmError.

        Jobs come first: one that was queued then and whose runner is at work since is seen as such.
        """
        runs = {
            run["id"]: run
            for state in ACTIVE
            for run in self.github.items(f"actions/runs?status={state}", "workflow_runs")
        }
        jobs = [
            HubJob(job["id"], offer, job["status"] == "queued", refusal(run, self.settings))
            for number, run in runs.items()
            for job in self.github.items(f"actions/runs/{number}/jobs?filter=latest", "jobs", none_for=(404,))
            if job["status"] in ACTIVE and (offer := offer_of(job["labels"], self.offers))
        ]
        idle = {runner["name"]: runner["id"] for runner in self.github.items(PATH, "runners") if not runner["busy"]}
        return jobs, idle, self.slurm.mine(OURS)

    def do_round(self, dry_run: bool = False) -> tuple[list[str], bool]:
        """One round: what is to be logged, and whether something failed, which the next round decides again.

        A runner without a job is removed at GitHub before its Slurm job is cancelled: GitHub refuses where it has got
        one meanwhile, and then it goes on.  So is one whose configuration was lost with a service that was killed,
        before its name is used again.
        """
        try:
            jobs, idle, rows = self.look()
        except (GitHubError, SlurmError) as error:
            return [f"nothing is done until the next round: {error}"], True
        living = {row.name for row in rows if not row.has_ended}
        for place in self.folder.glob(f"{PREFIX}*/"):  # what was killed or never submitted leaves its secret there
            if place.name not in living and not dry_run:
                shutil.rmtree(place, ignore_errors=True)
        lines = [f"job {job.id} gets no runner: {job.refusal}" for job in jobs if job.refusal and job.is_queued]
        failed = False
        for name, offer in plan_round(jobs, idle, rows, self.offers, self.settings.jobs).items():
            lines.append(f"{name}: submit for {offer.name}" if offer else f"{name}: cancel, no queued job needs it")
            if dry_run:
                continue
            try:
                if name in idle:
                    self.github.delete(f"{PATH}/{idle[name]}")
                if offer:
                    self.submit(name, offer)
                else:
                    self.slurm.scancel(name)
            except (GitHubError, SlurmError) as error:
                lines.append(f"{name}: {error}")
                failed = True
        return lines or ["nothing to do"], failed

    def submit(self, name: str, offer: Offer) -> None:
        """Register a runner and submit its Slurm job.

        Its folder is for this user only; the job removes it in the end, or a round after it.  start.sh and guard.sh;
        allowed: what guard.sh lets run; config: the secret, which the job deletes as it starts; job.sh.

        A leg of our workflows enters its pool's container itself (`ci.pools.command`), so that the code under test runs
        inside and the runner's credentials stay outside.
        """
        registered = self.github.post(
            f"{PATH}/generate-jitconfig",
            {"name": name, "runner_group_id": 1, "labels": offer.labels, "work_folder": "_work"},
        )
        place = self.folder / name
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # what jobs print lies there, too
        shutil.copytree(NODE, place)
        place.chmod(0o700)
        rows = itertools.product([self.settings.repository], self.settings.workflows, self.settings.refs, EVENTS)
        (place / "allowed").write_text("".join("\t".join(row) + "\n" for row in rows))
        (place / "config").touch(mode=0o600)
        (place / "config").write_text(registered["encoded_jit_config"])
        script = batch_script(
            self.site,
            offer.pool,
            offer.gpus,
            shlex.join(["exec", "bash", f"{place}/start.sh", self.settings.program]),
            name=name,
            time=offer.pool.time or str(offer.pool.minutes + EXTRA_MINUTES),
            chdir=str(self.folder),
            output=f"{name}.txt",
            requeue=False,
            comment=offer.name,
        )
        (place / "job.sh").write_text(script)
        self.slurm.sbatch(place / "job.sh", name)
