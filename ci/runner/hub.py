"""GitHub as the service sees it: queued jobs, our runners, and what is done about them."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from ci.github.client import API, GitHub, GitHubError
from ci.runner.state import Away, Denied, Hub, HubJob, HubRunner, LostJob, Serving

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
        url = str(request.url)
        kept = self._kept.get(url) if request.method == "GET" else None
        if kept is not None:
            request.headers["If-None-Match"] = kept.headers["etag"]
        answer = self._inner.handle_request(request)
        if kept is not None and answer.status_code == httpx.codes.NOT_MODIFIED:
            answer.close()
            answer = _copy(kept)
        elif request.method != "GET" or answer.status_code != httpx.codes.OK or "etag" not in answer.headers:
            return answer
        answer.read()
        self._kept[url] = _copy(answer)
        self._kept.move_to_end(url)
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
        self._clients: dict[str, GitHub] = {}

    def look(self, lost: tuple[LostJob, ...], prefix: str) -> Hub:
        """What is queued and running, and the runners whose names begin with `prefix`.

        Runners come first: one that looks idle then is idle or has a job in the jobs.
        """
        with self._asked() as github:
            runners = tuple(runner for runner in self._runners(github) if runner.name.startswith(prefix))
            asked = (github.items(f"actions/runs?status={state}", "workflow_runs") for state in ACTIVE)
            runs = {run["id"]: run for found in asked for run in found}
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
        if token not in self._clients:
            one = GitHub(self._serving.repository, token, self._api, self._pause, transport=self._etags)
            self._clients = {token: one}
        return self._clients[token]

    def _pause(self, seconds: float) -> None:
        self._not_before = self._clock() + seconds
        raise Away(f"GitHub answers with an error or a limit; it is not asked for {seconds:.0f} s")


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
