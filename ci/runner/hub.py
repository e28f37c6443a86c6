"""GitHub as the service sees it: queued jobs, our runners, and what is done about them."""

from __future__ import annotations

import dataclasses
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from ci.github.client import API, GitHub, GitHubError
from ci.runner.state import (
    Action,
    Away,
    Denied,
    Hub,
    HubJob,
    HubRunner,
    Ledger,
    LostJob,
    Offer,
    RunAgain,
    Say,
    Serving,
    Slot,
    Submit,
    offer_of,
    refusal,
)

# Conditional requests: a GET whose answer has not changed costs nothing of GitHub's rate limit.
#
# docs.github.com, "Best practices for using the REST API" (read 2026-11-22): a conditional request that is answered 304
# does not count against the primary limit.


KEPT = 1000
"""Answers that are kept, the newest: a look asks for a few hundred pages of at most 100 entries."""


class ETags(httpx.BaseTransport):
    """Sends what `inner` sends; a GET that was answered before says so, and a 304 becomes the answer that was kept."""

    def __init__(self, inner: httpx.BaseTransport) -> None:
        self._inner = inner
        self._kept: OrderedDict[str, httpx.Response] = OrderedDict()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer of the server, or the kept one."""
        if request.method != "GET":
            return self._inner.handle_request(request)
        url = str(request.url)
        kept = self._kept.get(url)
        if kept is not None:
            request.headers["If-None-Match"] = kept.headers["etag"]
        answer = self._inner.handle_request(request)
        if answer.status_code == httpx.codes.NOT_MODIFIED and kept is not None:
            answer.close()
            return _copy(kept)
        return self._keep(url, answer) if answer.status_code == httpx.codes.OK else answer

    def _keep(self, url: str, answer: httpx.Response) -> httpx.Response:
        self._kept.pop(url, None)
        if "etag" not in answer.headers:
            return answer
        answer.read()
        self._kept[url] = _copy(answer)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return _copy(answer)

    def close(self) -> None:
        """Close the connections."""
        self._inner.close()


def _copy(answer: httpx.Response) -> httpx.Response:
    """The same answer with its body decoded."""
    coded = ("content-encoding", "content-length", "transfer-encoding")
    headers = [(key, value) for key, value in answer.headers.multi_items() if key.lower() not in coded]
    return httpx.Response(answer.status_code, headers=headers, content=answer.content)


ACTIVE = ("queued", "in_progress")
"""States of runs that can have queued jobs: a run is in progress while its first jobs run and others wait."""

CONFLICT = 409

Json = dict[str, Any]


class GitHubQueue:
    """GitHub's queue; each method raises Away, or Denied.

    token: asked before each look, for installation tokens are renewed every hour.

    No call sleeps: a pause that GitHub asks for is Away, and so is everything until it is over.
    """

    def __init__(
        self, serving: Serving, token: Callable[[], str], api: str = API, clock: Callable[[], float] = time.time
    ) -> None:
        self._serving, self._token, self._api, self._clock = serving, token, api, clock
        self._not_before = 0.0
        self._etags = ETags(httpx.HTTPTransport())
        self._github: GitHub | None = None
        self._github_token = ""

    def look(self, lost: tuple[LostJob, ...], prefix: str) -> Hub:
        """What is queued and running, and the runners whose names begin with `prefix`.

        Runners come first: one that looks idle then is idle or has a job in the jobs.
        """
        with self._asked() as github:
            runners = tuple(runner for runner in self._runners(github) if runner.name.startswith(prefix))
            runs = {run["id"]: run for state in ACTIVE for run in _runs(github, state)}
            jobs = tuple(job for run in runs.values() for job in _jobs(github, run))
            return Hub(jobs, runners, {one.token: _of_runner(github, one) for one in lost})

    def register(self, name: str, labels: tuple[str, ...]) -> tuple[int, str]:
        """A new runner for one job: its number and its secret configuration.

        A runner of this name is one whose configuration was lost in a crash: it is replaced.
        """
        value = {"name": name, "runner_group_id": self._serving.group, "labels": list(labels), "work_folder": "_work"}
        with self._asked() as github:
            path = f"{self._runners_path}/generate-jitconfig"
            try:
                made = github.post(path, value)
            except GitHubError as error:
                if error.status != CONFLICT:
                    raise
                for runner in self._runners(github):
                    if runner.name == name:
                        github.delete(f"{self._runners_path}/{runner.id}")
                made = github.post(path, value)
            return int(made["runner"]["id"]), str(made["encoded_jit_config"])

    def unregister(self, runner: int) -> None:
        """Delete a runner; one that is gone already is no error.  Denied while it is at work."""
        with self._asked() as github:
            github.delete(f"{self._runners_path}/{runner}")

    def again(self, job: int) -> None:
        """Run one job of a completed run again.  Denied while the run is not completed."""
        with self._asked() as github:
            github.post(f"actions/jobs/{job}/rerun")

    @property
    def _runners_path(self) -> str:
        owner = self._serving.organization
        return f"/orgs/{owner}/actions/runners" if owner else "actions/runners"

    def _runners(self, github: GitHub) -> Iterator[HubRunner]:
        for one in github.items(self._runners_path, "runners"):
            yield HubRunner(one["id"], one["name"], one["status"] == "online", bool(one["busy"]))

    @contextmanager
    def _asked(self) -> Iterator[GitHub]:
        """The client; its errors as Away or Denied."""
        left = self._not_before - self._clock()
        if left > 0:
            raise Away(f"GitHub asked for a pause; {left:.0f} s of it are left")
        try:
            yield self._client()
        except GitHubError as error:
            refused = 400 <= error.status < 500
            raise (Denied if refused else Away)(str(error)) from error

    def _client(self) -> GitHub:
        token = self._token()
        if self._github is None or token != self._github_token:
            self._github = GitHub(self._serving.repository, token, self._api, self._pause, transport=self._etags)
            self._github_token = token
        return self._github

    def _pause(self, seconds: float) -> None:
        self._not_before = self._clock() + seconds
        raise Away(f"GitHub answers with an error or a limit; it is not asked for {seconds:.0f} s")


def _runs(github: GitHub, state: str) -> Iterator[Json]:
    return github.items(f"actions/runs?status={state}", "workflow_runs")


def _jobs(github: GitHub, run: Json) -> Iterator[HubJob]:
    for job in github.items(f"actions/runs/{run['id']}/jobs?filter=latest", "jobs", none_for=(404,)):
        yield _job(job, run)


def _of_runner(github: GitHub, lost: LostJob) -> HubJob | None:
    """The newest try of the job that a runner had, if that try is still the one."""
    run = github.get(f"actions/runs/{lost.run}", none_for=(404,))
    return next((job for job in _jobs(github, run) if job.runner == lost.token), None) if run else None


def _job(job: Json, run: Json) -> HubJob:
    return HubJob(
        id=job["id"],
        run=run["id"],
        name=str(job.get("name", "")),
        labels=frozenset(job.get("labels") or ()),
        status=str(job["status"]),
        conclusion=job.get("conclusion") or "",
        runner=job.get("runner_name") or "",
        path=run.get("path") or "",
        ref=run.get("head_branch") or "",
        event=run.get("event") or "",
        head=(run.get("head_repository") or {}).get("full_name", ""),
        run_done=run["status"] == "completed",
    )


# How many runners are wanted, and which of those that wait are too many.


NOT_NEEDED = "no queued job needs it any more"


def met(
    state: Ledger, jobs: tuple[HubJob, ...], serving: Serving, now: float, token: Callable[[str], str]
) -> tuple[Ledger, list[Action]]:
    """New slots for queued jobs that are allowed, and slots that nobody needs on their way out.

    jobs: everything GitHub has queued or running.  token: of an offer's name, a new one.
    """
    state, said = _refusals(state, jobs, serving)
    wanted = Counter(offer.name for offer in _offers(jobs, serving))
    state = dataclasses.replace(state, slots=tuple(_without_surplus(state.slots, wanted)))
    new = _new(state, wanted, serving, now, token)
    return dataclasses.replace(state, slots=state.slots + new), [*said, *(Submit(slot.token) for slot in new)]


def _offers(jobs: tuple[HubJob, ...], serving: Serving) -> Iterator[Offer]:
    for job in jobs:
        offer = offer_of(job, serving.offers) if job.status == "queued" else None
        if offer and not refusal(job, serving):
            yield offer


def _refusals(state: Ledger, jobs: tuple[HubJob, ...], serving: Serving) -> tuple[Ledger, list[Action]]:
    """One line for each job that is not allowed; jobs that are gone are forgotten."""
    ours = [job for job in jobs if job.status == "queued" and offer_of(job, serving.offers)]
    whys = {job.id: refusal(job, serving) for job in ours}
    told = tuple(sorted(id for id, why in whys.items() if why))
    new = [job for job in ours if whys[job.id] and job.id not in state.told]
    lines = [Say(f"refused job {job.id} ({job.name!r} of run {job.run}): {whys[job.id]}") for job in new]
    return dataclasses.replace(state, told=told), list(lines)


def _without_surplus(slots: tuple[Slot, ...], wanted: Counter[str]) -> Iterator[Slot]:
    """The same slots; those that wait for a job that is no longer there leave, the least advanced first.

    A runner that has its configuration stays: it may be taking a job just now, and leaves when it has been idle.
    """
    kept: Counter[str] = Counter()
    keep = set()
    for slot in sorted((slot for slot in slots if slot.waits), key=_progress, reverse=True):
        kept[slot.offer] += 1
        if kept[slot.offer] <= wanted[slot.offer] or slot.answered:
            keep.add(slot.token)
    for slot in slots:
        yield slot if slot.token in keep or not slot.waits else dataclasses.replace(slot, leaving=NOT_NEEDED)


def _progress(slot: Slot) -> tuple[bool, bool, bool, float]:
    return bool(slot.online), bool(slot.answered), bool(slot.slurm), -slot.planned


def _new(
    state: Ledger, wanted: Counter[str], serving: Serving, now: float, token: Callable[[str], str]
) -> tuple[Slot, ...]:
    """As many slots as jobs lack a runner, within the bound of each partition."""
    waiting = Counter(slot.offer for slot in state.slots if slot.waits)
    paused = {pause.offer for pause in state.pauses if pause.until > now}
    rooms = _rooms(state, serving)
    new = []
    for offer in serving.offers:
        lacking = 0 if offer.name in paused else max(0, wanted[offer.name] - waiting[offer.name])
        granted = min(lacking, rooms[offer.partition])
        rooms[offer.partition] -= granted
        new += [Slot(token(offer.name), offer.name, now) for _ in range(granted)]
    return tuple(new)


def _rooms(state: Ledger, serving: Serving) -> dict[str, int]:
    """How many more Slurm jobs of ours each partition may hold."""
    partition = {offer.name: offer.partition for offer in serving.offers}
    used = Counter(partition.get(slot.offer, "") for slot in state.slots if not slot.ended)
    return {name: max(0, serving.most - used[name]) for name in set(partition.values())}


# GitHub jobs whose node was lost: each is run again, a bounded number of times.


LONGEST_S = 86_400.0
"""Seconds after which a lost job is given up: GitHub fails a queued job after a day (its documentation, 2026-11)."""

REMEMBERED = 1000
"""Jobs whose number of repetitions is remembered, the newest: far more than one day has lost nodes."""


def run_again(state: Ledger, hub: Hub, serving: Serving, now: float) -> tuple[Ledger, list[Action]]:
    """Ask for each lost job whose run is done.  One that GitHub shows with another runner was run again already."""
    kept: list[LostJob] = []
    actions: list[Action] = []
    reruns = dict(state.reruns)
    for lost in state.lost:
        if lost.token not in hub.lost:
            kept.append(lost)  # lost since GitHub was asked
            continue
        job = hub.lost[lost.token]
        if job is None or job.conclusion == "success":
            continue
        key = f"{job.run}/{job.name}"
        why = _given_up(lost, reruns.get(key, 0), serving, now)
        if why:
            actions.append(Say(f"job {job.id} ({job.name!r} of run {job.run}) lost its node and stays as it is: {why}"))
            continue
        kept.append(lost)
        if job.run_done:
            reruns[key] = reruns.get(key, 0) + 1
            actions.append(RunAgain(job.id))
    newest = dict(list(reruns.items())[-REMEMBERED:])
    return dataclasses.replace(state, lost=tuple(kept), reruns=newest), actions


def _given_up(lost: LostJob, times: int, serving: Serving, now: float) -> str:
    if now - lost.since > LONGEST_S:
        return "GitHub has not ended its run within a day"
    return f"it was run again {times} times already" if times >= serving.reruns else ""
