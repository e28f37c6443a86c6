"""What the service sees of GitHub and Slurm, what it remembers, and what it can do."""

from __future__ import annotations

import dataclasses
import fnmatch
import itertools
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from benchmarks.shapes import built
from ci import whole_files
from ci.pools.file import Pools, RunnerSettings
from ci.slurm import QueueRow


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
    """Everything seen at one moment; None where GitHub or Slurm was away.  cluster, letters: by token."""

    hub: Hub | None = None
    cluster: Mapping[str, QueueRow] | None = None
    letters: Mapping[str, Letters] = dataclasses.field(default_factory=dict)

    def row(self, slot: Slot) -> QueueRow | None:
        """Its job, if Slurm knows it."""
        return (self.cluster or {}).get(slot.token)

    def runner(self, slot: Slot) -> HubRunner | None:
        """Its runner, if GitHub has one."""
        runners = self.hub.runners if self.hub else ()
        return next((runner for runner in runners if runner.name == slot.token), None)

    def letters_of(self, slot: Slot) -> Letters:
        """What its job wrote into its folder."""
        return self.letters.get(slot.token, Letters())


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

# What may run here, and how many at once: [site.NAME.runner] of runners.toml, and the pools that have labels.


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
class Serving(RunnerSettings):
    """What one site serves, and how: its settings, the offers of its pools, and seconds to wait for things."""

    offers: tuple[Offer, ...] = ()
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
        pool = pools.pool(name)
        if pool.site != site or pool.runs_on is None:
            why = "no runs_on" if pool.runs_on is None else f"the site {pool.site or 'none'!r}"
            raise RunnerError(
                f"pool {name!r} has {why}: the runners of site {site!r} cannot serve it; name another pool"
            )
    ours = [one for one in pools.pools.values() if one.site == site and (not only or one.name in only)]
    offers = (
        Offer(f"{one.name}-{gpus}", one.name, gpus, one.runs_on.sized(gpus).labels, one.partition)
        for one in ours
        if one.runs_on and one.runs_on.labels
        for gpus in one.gpus
    )
    return Serving(**dataclasses.asdict(named.runner), offers=tuple(offers))


# The state folder: state.json, one folder for each slot, and the lock that keeps a second service out.
#
# It lies on a file system that the nodes see too; jobs and the service talk through the folders of the slots.


FORMAT, VERSION = "ridgeline-runner", 1


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The state folder for this process alone; the lock of a killed process is free at once."""
    folder.mkdir(parents=True, exist_ok=True)
    os.chmod(folder, 0o700)
    try:
        with FileLock(folder / "lock", timeout=0):
            yield
    except Timeout:
        raise RunnerError(f"another `ridgeline ci runner` uses {folder}; end it, or give another --state") from None


def load(folder: Path) -> Ledger:
    """What the last service knew; where there was none, the folder gets a name.  RunnerError as of `seen`."""
    path = folder / "instance"
    if not path.exists():
        whole_files.replace(path, secrets.token_hex(3) + "\n")
    return seen(folder)


def seen(folder: Path) -> Ledger:
    """What the last service knew, nothing where there was none; nothing is written.

    RunnerError for files that are not ours.
    """
    path = folder / "state.json"
    if not path.exists():
        return Ledger(_instance(folder))
    try:
        found = json.loads(path.read_text())
        if (found["format"], found["version"]) != (FORMAT, VERSION):
            raise ValueError(f"it says format {found['format']!r}, version {found['version']!r}")
        return built(Ledger, found["state"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunnerError(
            f"{path} is not a state of `ridgeline ci runner`: {error}; move it away: jobs are found by their names"
        ) from error


def _instance(folder: Path) -> str:
    """The name of this state folder, in a file of its own: jobs and runners are found by it if the state is lost."""
    path = folder / "instance"
    name = path.read_text().strip() if path.exists() else "000000"
    if not re.fullmatch(r"[0-9a-f]{6}", name):
        raise RunnerError(f"{path} holds {name!r:.40}; it must be 6 of 0-9 and a-f; remove it if no runner is left")
    return name


def save(folder: Path, state: Ledger) -> None:
    """Write the state whole, and to the disk."""
    value = {"format": FORMAT, "version": VERSION, "state": dataclasses.asdict(state)}
    whole_files.replace(folder / "state.json", json.dumps(value, indent=1) + "\n")


# The folder of a slot: what the service and the job on the node tell each other.
#
#     service -> job   start.sh, guard.sh, allowed, script.sh; config: the secret, 0600, read once and deleted
#     job -> service   asked (its Slurm id: it waits for `config`), run (of the job it took), refused, code
#
# A configuration is made when the job asks, not before: GitHub forgets one that waits in a queue, a Slurm job may wait
# for days, and a runner that never comes up need not be deleted where its container did not even start.  A file answers
# a file rather than squeue's RUNNING, so that it also works while the Slurm controller is away, and the secret lies on
# the disk for one look of the job.  What a job writes is not trusted: short, and no links.


PATIENCE_S = 600
"""Seconds that a job waits for its configuration: GitHub's client waits as long for GitHub (ci.github.client), and
the service may be restarted; all that time the job holds GPUs."""

LONGEST = 4096
"""Bytes of a letter that are read."""

LOGS_KEPT = 200
"""Logs of ended jobs that stay, the newest."""

NODE = Path(__file__).parent / "node"


def folder(state: Path, token: str) -> Path:
    """Where a slot and its job meet."""
    return state / "slots" / token


def log(state: Path, token: str) -> Path:
    """Where Slurm writes what the job prints."""
    return state / "logs" / f"{token}.log"


def prepare(state: Path, token: str, script: str, serving: Serving) -> Path:
    """Make the folder of a slot, for its user only; returns its Slurm script."""
    place = folder(state, token)
    place.mkdir(parents=True, exist_ok=True)
    log(state, token).parent.mkdir(exist_ok=True)
    os.chmod(place, 0o700)
    for name in ("start.sh", "guard.sh"):
        shutil.copyfile(NODE / name, place / name)
        os.chmod(place / name, 0o700)
    (place / "allowed").write_text(allowed(serving))
    (place / "script.sh").write_text(script)
    return place / "script.sh"


def allowed(serving: Serving) -> str:
    """What guard.sh reads: one line for each repository, workflow, branch pattern and event."""
    rows = itertools.product([serving.repository], serving.workflows, serving.refs, EVENTS)
    return "".join("\t".join(row) + "\n" for row in rows)


def command(state: Path, token: str, serving: Serving) -> list[str]:
    """What runs on the node, inside the pool's environment."""
    place = folder(state, token)
    return ["bash", str(place / "start.sh"), str(place), serving.program, str(PATIENCE_S)]


def answer(state: Path, token: str, secret: str) -> None:
    """Hand the configuration over: whole, readable for this user only, from its first byte on."""
    place = folder(state, token)
    draft = place / ".config"
    draft.unlink(missing_ok=True)
    try:
        handle = os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secret)
        draft.rename(place / "config")
    except OSError as error:
        raise RunnerError(f"{place / 'config'} cannot be written: {error.strerror}") from error


def letters(state: Path, token: str) -> Letters:
    """What the job wrote so far."""
    place = folder(state, token)
    run, code = _letter(place / "run"), _letter(place / "code")
    return Letters(
        asked=_letter(place / "asked"),
        run=int(run) if run.isdecimal() and len(run) < 20 else 0,
        refused=_letter(place / "refused"),
        code=int(code) if code.isdecimal() and len(code) < 4 else None,
    )


def _letter(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        return file.read(LONGEST).decode("ascii", "replace").strip()


def clear(state: Path, token: str) -> None:
    """Remove the folder of a slot that has ended, and logs beyond the newest."""
    shutil.rmtree(folder(state, token), ignore_errors=True)
    logs = sorted((state / "logs").glob("*.log"), key=lambda path: path.stat().st_mtime)
    for path in logs[: max(0, len(logs) - LOGS_KEPT)]:
        path.unlink(missing_ok=True)
