"""What the service sees of GitHub and Slurm, what it remembers, and what it can do."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Protocol


class RunnerError(Exception):
    """The service cannot start or go on; the text says what to change."""


class Away(Exception):
    """GitHub or Slurm does not answer now; the text says which, and how.  It is asked again later."""


class Denied(Exception):
    """GitHub or Slurm answered, and the answer is no; the text says why."""


@dataclasses.dataclass(frozen=True)
class HubJob:
    """A job of a workflow run, as GitHub tells of it, with the facts about its run that trust depends on.

    path: the run's workflow file.  ref: the branch or tag it runs on.  head: the repository its code comes from.
    run_done: the whole run has completed; only then does GitHub run one of its jobs again.
    """

    id: int
    run: int
    name: str
    labels: frozenset[str]
    status: str
    conclusion: str = ""
    runner: str = ""
    path: str = ""
    ref: str = ""
    event: str = ""
    head: str = ""
    run_done: bool = False


@dataclasses.dataclass(frozen=True)
class HubRunner:
    """A runner that is registered at GitHub."""

    id: int
    name: str
    online: bool
    busy: bool


@dataclasses.dataclass(frozen=True)
class Hub:
    """GitHub at one moment, its runners seen before its jobs.

    jobs: of every run that is not done.  lost: for each of Ledger.lost, by token, the newest try of that job, if it is
    still the one that was lost; None once it was run again.
    """

    jobs: tuple[HubJob, ...] = ()
    runners: tuple[HubRunner, ...] = ()
    lost: Mapping[str, HubJob | None] = dataclasses.field(default_factory=dict)


class End(enum.StrEnum):
    """Where a Slurm job is, as far as it matters here.  LOST: its node is gone.  STOPPED: cancelled or out of time."""

    PENDING = "pending"
    RUNNING = "running"
    OVER = "over"
    STOPPED = "stopped"
    LOST = "lost"


@dataclasses.dataclass(frozen=True)
class ClusterJob:
    """A Slurm job of ours.  token: its name.  node, why: of Slurm, "" where it does not say."""

    id: str
    token: str
    end: End
    node: str = ""
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Letters:
    """What a job wrote into its folder.

    asked: the Slurm id that wants a configuration now.  run: the workflow run of the job that its runner took, 0 for
    none.  refused: the job it took is not one of ours.  code: of the runner program, once that has ended.
    """

    asked: str = ""
    run: int = 0
    refused: str = ""
    code: int | None = None


@dataclasses.dataclass(frozen=True)
class Sight:
    """Everything seen at one moment; None where GitHub or Slurm was away.  letters: by token."""

    hub: Hub | None = None
    cluster: Mapping[str, ClusterJob] | None = None
    letters: Mapping[str, Letters] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Slot:
    """One Slurm job of ours, from before it is submitted until nothing of it is left anywhere.

    token: its name in Slurm, of its runner at GitHub and of its folder; never used twice.  Times: seconds since 1970,
    0 for "not yet".  run: the workflow run whose job it runs or ran.  missing: since when Slurm does not know it.
    leaving: why it is being taken down, "" while it is wanted.  ended: its Slurm job is over.
    """

    token: str
    offer: str
    planned: float
    slurm: str = ""
    answered: float = 0.0
    online: float = 0.0
    run: int = 0
    missing: float = 0.0
    leaving: str = ""
    ended: bool = False

    @property
    def waits(self) -> bool:
        """It can still take a job."""
        return not (self.run or self.leaving or self.ended)


@dataclasses.dataclass(frozen=True)
class LostJob:
    """A GitHub job whose node was lost, named by the runner that had it.  It is run again once its run is done."""

    token: str
    run: int
    since: float


@dataclasses.dataclass(frozen=True)
class Pause:
    """An offer whose runners do not come up: no new one before `until` (seconds since 1970)."""

    offer: str
    failures: int
    until: float


@dataclasses.dataclass(frozen=True)
class Ledger:
    """What the service must not forget.  instance: of this state folder; part of every token, so that several services
    share a cluster and a repository.  reruns: "run/name of the job" -> how often it was run again.
    told: jobs whose refusal was said."""

    instance: str
    slots: tuple[Slot, ...] = ()
    lost: tuple[LostJob, ...] = ()
    reruns: Mapping[str, int] = dataclasses.field(default_factory=dict)
    pauses: tuple[Pause, ...] = ()
    told: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True)
class Submit:
    """Start a Slurm job for this slot, which Ledger holds already."""

    token: str


@dataclasses.dataclass(frozen=True)
class Answer:
    """Register a runner and write its configuration: the job waits for it."""

    token: str


@dataclasses.dataclass(frozen=True)
class Stop:
    """Cancel the Slurm job of this slot."""

    token: str
    slurm: str


@dataclasses.dataclass(frozen=True)
class Unregister:
    """Delete a runner at GitHub.  GitHub refuses while the runner is at work."""

    name: str
    runner: int


@dataclasses.dataclass(frozen=True)
class RunAgain:
    """Let GitHub run this job again."""

    job: int


@dataclasses.dataclass(frozen=True)
class Clear:
    """Remove the folder of a slot that has ended."""

    token: str


@dataclasses.dataclass(frozen=True)
class Say:
    """One line for the log."""

    text: str


Action = Submit | Answer | Stop | Unregister | RunAgain | Clear | Say


class Hubs(Protocol):
    """GitHub, as far as the service needs it.  Each method raises Away, or Denied."""

    def look(self, lost: tuple[LostJob, ...], prefix: str) -> Hub:
        """What is queued and running, and the runners whose names begin with `prefix`."""

    def register(self, name: str, labels: tuple[str, ...]) -> tuple[int, str]:
        """A new runner for one job: its number and its secret configuration."""

    def unregister(self, runner: int) -> None:
        """Delete a runner; one that is gone already is no error.  Denied while it is at work."""

    def again(self, job: int) -> None:
        """Run one job of a completed run again.  Denied while the run is not completed."""


class Clusters(Protocol):
    """Slurm, as far as the service needs it.  Each method raises Away, or Denied."""

    def look(self, prefix: str) -> dict[str, ClusterJob]:
        """Every job that Slurm knows of whose name begins with `prefix`, by name."""

    def submit(self, token: str, offer: str) -> str:
        """Start the job of a slot; returns its id."""

    def cancel(self, slurm: str, token: str) -> None:
        """End a job if it is still the one with this token."""
