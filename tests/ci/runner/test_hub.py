"""GitHub's queue as the service sees it: conditional requests, pauses, and what a repeated request finds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from werkzeug import Response

from ci.runner.hub import GitHubQueue
from ci.runner.state import Away, Denied, LostJob
from tests.ci.runner.world import SERVING
from tests.standins.github import DROP
from tests.standins.runner import RunnerHub

LABELS = ("linux", "mi300x-1")


@pytest.fixture
def hub() -> Iterator[RunnerHub]:
    with RunnerHub() as one:
        yield one


class Clock:
    now = 1e9

    def __call__(self) -> float:
        return self.now


def queue(hub: RunnerHub, clock: Clock | None = None, **changed: object) -> GitHubQueue:
    return GitHubQueue(dataclasses.replace(SERVING, **changed), lambda: "token", hub.url, clock or Clock())


def test_a_look_has_jobs_with_the_facts_of_their_runs(hub: RunnerHub) -> None:
    made = hub.queue(["linux"], [], head_branch="ridgeline/gpu", event="workflow_dispatch")
    hub.run(status="completed")
    (job,) = queue(hub).look((), "rl-").jobs
    assert (job.id, job.run, job.labels) == (made["id"], made["run_id"], frozenset(["linux"]))
    assert (job.path, job.ref, job.event, job.head) == (
        SERVING.workflows[0],
        "ridgeline/gpu",
        "workflow_dispatch",
        "o/r",
    )


def test_a_second_look_costs_nothing_where_nothing_changed_and_sees_what_did(hub: RunnerHub) -> None:
    one = queue(hub)
    hub.queue(["linux"], [])
    first = one.look((), "rl-")
    calls = len(hub.calls)
    assert one.look((), "rl-") == first
    assert hub.not_modified == len(hub.calls) - calls == 4  # runners, two lists of runs, the jobs of one
    hub.queue(["linux"], [])
    assert len(one.look((), "rl-").jobs) == 2


def test_only_our_runners_are_seen(hub: RunnerHub) -> None:
    one = queue(hub)
    number, secret = one.register("rl-aaaaaa-mi300x-1-000001", LABELS)
    one.register("somebody", LABELS)
    (runner,) = one.look((), "rl-aaaaaa-").runners
    assert (runner.id, runner.online, runner.busy) == (number, False, False)
    assert secret in hub.secrets


def test_a_configuration_that_was_lost_is_made_again_and_a_runner_at_work_is_not(hub: RunnerHub) -> None:
    one = queue(hub)
    first, _ = one.register("rl-a", LABELS)
    second, _ = one.register("rl-a", LABELS)
    assert [runner["id"] for runner in hub.runners] == [second]
    assert first != second
    hub.queue(list(LABELS), [])
    hub.take_job(second)
    with pytest.raises(Denied, match="cannot be deleted"):
        one.register("rl-a", LABELS)
    with pytest.raises(Denied, match="cannot be deleted"):
        one.unregister(second)


def test_an_answer_that_got_lost_is_away_and_the_next_request_repairs_it(hub: RunnerHub) -> None:
    one, clock = queue(hub), Clock()
    hub.fault("POST", "generate-jitconfig", DROP, after=True)
    with pytest.raises(Away):
        one.register("rl-a", LABELS)
    number, _ = queue(hub, clock).register("rl-a", LABELS)
    assert [runner["id"] for runner in hub.runners] == [number]


def test_a_pause_that_github_asks_for_is_kept_without_sleeping(hub: RunnerHub) -> None:
    clock = Clock()
    one = queue(hub, clock)
    hub.fault("GET", "actions/runners", Response("", 429, {"Retry-After": "700"}))
    with pytest.raises(Away, match="700 s"):
        one.look((), "rl-")
    calls = len(hub.calls)
    clock.now += 690
    with pytest.raises(Away, match="10 s of it are left"):
        one.look((), "rl-")
    assert len(hub.calls) == calls, "GitHub was not asked"
    clock.now += 11
    one.look((), "rl-")


def test_runners_of_an_organization_are_registered_there(hub: RunnerHub) -> None:
    one = queue(hub, organization="o")
    number, _ = one.register("rl-a", LABELS)
    one.unregister(number)
    assert [call.path for call in hub.told("POST")] == ["orgs/o/actions/runners/generate-jitconfig"]
    assert hub.runners == []


def test_a_lost_job_is_found_by_its_runner_until_it_was_run_again(hub: RunnerHub) -> None:
    one = queue(hub)
    number, _ = one.register("rl-a", LABELS)
    job = hub.queue(list(LABELS), [])
    hub.take_job(number)
    lost = (LostJob("rl-a", job["run_id"], 0.0),)
    found = one.look(lost, "rl-").lost["rl-a"]
    assert found is not None
    assert not found.run_done
    with pytest.raises(Denied, match="already running"):
        one.again(job["id"])
    hub.give_up(job["id"])
    found = one.look(lost, "rl-").lost["rl-a"]
    assert found is not None
    assert found.run_done
    one.again(job["id"])
    assert one.look(lost, "rl-").lost == {"rl-a": None}
    assert one.look((LostJob("rl-b", 4711, 0.0),), "rl-").lost == {"rl-b": None}, "a run that was deleted"


def test_a_new_token_is_used_at_once(hub: RunnerHub, tmp_path: Path) -> None:
    tokens = iter(["first", "second"])
    one = GitHubQueue(SERVING, lambda: next(tokens), hub.url, Clock())
    one.look((), "rl-")
    one.look((), "rl-")
    assert {call.token for call in hub.calls} == {"first", "second"}
