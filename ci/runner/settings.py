"""What may run here, and how many at once: [site.NAME.runner] of runners.toml, and the pools that have labels."""

from __future__ import annotations

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence

from ci.pools.types import Pools
from ci.runner.types import HubJob, RunnerError

ONLINE_S = 180.0
"""Seconds from a configuration to a runner that is online: it copies itself and asks GitHub for a session, 10 to 30 s
from a cold file system; GitHub gives a job to another runner after 60 s (GitHub's documentation, 2026-11)."""

IDLE_S = 120.0
"""Seconds that a runner may be online without a job: GitHub assigns a queued job within seconds; twice the 60 s after
which it offers a job again."""

MISSING_S = 60.0
"""Seconds that Slurm must not know a job before it counts as lost: longer than one call of sbatch may take."""

PAUSE_S, LONGEST_PAUSE_S = 30.0, 1800.0
"""Seconds without a new runner after one that did not come up; doubled each time up to half an hour."""

EVENTS = ("push", "repository_dispatch", "schedule", "workflow_dispatch")
"""What may have started a run: events whose workflow file and commit somebody with write access chose.  A run of
pull_request or pull_request_target brings, or can be made to bring, a stranger's code."""


@dataclasses.dataclass(frozen=True)
class Offer:
    """Runners of one pool and size.  partition: whose bound they count against."""

    name: str
    pool: str
    gpus: int
    labels: tuple[str, ...]
    partition: str


@dataclasses.dataclass(frozen=True)
class Serving:
    """What one site serves, and how.  most: Slurm jobs of ours at once in one partition.

    workflows, refs: files and patterns of full git refs that jobs may come from.
    organization: where runners are registered, "" for the repository itself.  group: number of their runner group.
    """

    repository: str
    program: str
    workflows: tuple[str, ...]
    refs: tuple[str, ...]
    offers: tuple[Offer, ...]
    organization: str = ""
    group: int = 1
    most: int = 4
    reruns: int = 2
    online_s: float = ONLINE_S
    idle_s: float = IDLE_S
    missing_s: float = MISSING_S
    pause_s: float = PAUSE_S

    def offer(self, name: str) -> Offer | None:
        """The offer of this name, None if it is gone from the file."""
        return next((offer for offer in self.offers if offer.name == name), None)


def offer_of(job: HubJob, offers: Sequence[Offer]) -> Offer | None:
    """The offer that runs a job: it has every label the job asks for, and as few others as possible.

    GitHub compares labels without regard to case.
    """
    asked = {label.lower() for label in job.labels}
    fitting = [offer for offer in offers if asked and asked <= {label.lower() for label in offer.labels}]
    return min(fitting, key=lambda offer: len(offer.labels), default=None)


def refusal(job: HubJob, serving: Serving) -> str:
    """Why this job may not run on our machines; "" if it may.  The node asks the same again (guard.sh)."""
    if job.event not in EVENTS:
        return f"a run of {job.event or 'an unknown event'} may bring a stranger's code; allowed: {', '.join(EVENTS)}"
    if job.head.lower() != serving.repository.lower():
        return f"its code comes from {job.head or 'a deleted repository'}, not from {serving.repository}"
    if job.path.partition("@")[0] not in serving.workflows:
        return f"its workflow {job.path!r} is not one of {', '.join(serving.workflows)}"
    if not any(fnmatch.fnmatchcase(f"refs/heads/{job.ref}", pattern) for pattern in serving.refs):
        return f"its branch {job.ref!r} is none of {', '.join(serving.refs)}"
    return ""


def serving(pools: Pools, site: str, only: Sequence[str] = ()) -> Serving:
    """What one site serves: all of its pools that have labels, or those named.  Raises RunnerError, PoolsError."""
    named = pools.sites.get(site)
    if named is None or named.runner is None:
        served = ", ".join(one.name for one in pools.sites.values() if one.runner) or "none"
        raise RunnerError(
            f"site {site!r} is not served: ci/runners.toml has no [site.{site}.runner]; sites that have one: {served}"
        )
    for name in only:
        _check_served(pools, site, name)
    runner = named.runner
    return Serving(
        repository=runner.repository,
        program=runner.program,
        workflows=runner.workflows,
        refs=runner.refs,
        offers=tuple(_offers(pools, site, only)),
        organization=runner.organization,
        group=runner.group,
        most=runner.jobs,
        reruns=runner.reruns,
    )


def _check_served(pools: Pools, site: str, name: str) -> None:
    pool = pools.pool(name)
    if pool.site != site or pool.runs_on is None:
        why = "no runs_on" if pool.runs_on is None else f"the site {pool.site or 'none'!r}"
        raise RunnerError(f"pool {name!r} has {why}: the runners of site {site!r} cannot serve it; name another pool")


def _offers(pools: Pools, site: str, only: Sequence[str]) -> Iterator[Offer]:
    for pool in pools.pools.values():
        if pool.site == site and pool.runs_on and pool.runs_on.labels and (not only or pool.name in only):
            for gpus in pool.gpus:
                yield Offer(f"{pool.name}-{gpus}", pool.name, gpus, pool.runs_on.sized(gpus).labels, pool.partition)
