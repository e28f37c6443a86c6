"""A GPU run is started for one commit, on a ref of its own; and a machine that never comes is noticed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.github import orders
from ci.github.client import GitHub, GitHubError
from ci.github.orders import StartError
from tests.standins.github import StandIn

SHA, TRUSTED = "a" * 40, "7" * 40


@pytest.fixture
def there() -> Iterator[StandIn]:
    with StandIn() as standin:
        standin.refs["main"] = TRUSTED
        yield standin


def github(standin: StandIn) -> GitHub:
    return GitHub(standin.repository, "t0ken", standin.url, sleep=lambda seconds: None)


@pytest.mark.parametrize("before", [None, "1" * 40])
def test_a_run_has_the_files_of_the_default_branch_and_the_commit_as_data(there: StandIn, before: str | None) -> None:
    if before:
        there.refs[orders.REF] = before
    assert orders.start(github(there), SHA, {"pool": "mi300x", "gpus": ""}) == TRUSTED
    assert there.refs[orders.REF] == TRUSTED
    assert there.dispatches == [
        {"workflow": "gpu.yml", "ref": "ridgeline/gpu", "inputs": {"sha": SHA, "pool": "mi300x"}}
    ]


def test_nothing_runs_on_the_default_branch_or_on_the_forks_commit(there: StandIn) -> None:
    orders.start(github(there), SHA, {})
    assert SHA not in there.refs.values()
    assert there.default_branch not in {one["ref"] for one in there.dispatches}


@pytest.mark.parametrize("sha", ["main", "a" * 39, "A" * 40, "", "refs/pull/1/head", "a" * 40 + "\n"])
def test_a_run_is_for_exactly_one_commit(there: StandIn, sha: str) -> None:
    with pytest.raises(StartError, match="exactly one commit"):
        orders.start(github(there), sha, {})
    assert there.dispatches == []


def test_a_default_branch_of_that_name_is_refused(there: StandIn) -> None:
    there.default_branch = orders.REF
    with pytest.raises(StartError, match="ref of their own"):
        orders.start(github(there), SHA, {})


class Time:
    """Seconds that pass when somebody sleeps; at some moment a machine comes."""

    def __init__(self, standin: StandIn, comes_at: float) -> None:
        self.now, self.comes_at, self.standin = 0.0, comes_at, standin

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.now >= self.comes_at:
            self.standin.jobs[0] |= {"status": "in_progress", "runner_name": "node-1"}


@pytest.mark.parametrize(("comes_at", "taken"), [(60.0, True), (1e9, False)])
@pytest.mark.parametrize("caller", ["", "GPU / "])
def test_a_machine_that_does_not_come_is_noticed(there: StandIn, caller: str, comes_at: float, taken: bool) -> None:
    job = there.job(["mi300x"], name=f"{caller}mi300x-8 / Measure")
    time = Time(there, comes_at)
    asked = (github(there), job["run_id"], "mi300x-8 / Measure", 5, time.sleep, lambda: time.now)
    assert orders.taken(*asked) is taken
    assert time.now <= 300


def test_a_job_that_does_not_exist_yet_may_come(there: StandIn) -> None:
    run = there.run()["id"]

    def sleep(seconds: float) -> None:
        there.job(["x"], run, "completed", name="late / Measure")

    assert orders.taken(github(there), run, "late / Measure", 5, sleep, lambda: 0.0)


def test_the_verbs(there: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    monkeypatch.setenv("GITHUB_REPOSITORY", there.repository)
    monkeypatch.setenv("GITHUB_API_URL", there.url)
    run = CliRunner().invoke
    dry = run(main, ["start", SHA, "--dry-run"])
    assert dry.exit_code == 0
    assert there.calls == []
    assert "ridgeline/gpu" in dry.output
    assert run(main, ["start", SHA, "--pool", "mi300x"]).exit_code == 0
    assert run(main, ["start", "main"]).exit_code == 3
    job = there.job(["x"], name="a / Measure")
    absent = run(main, ["wait", "--run", str(job["run_id"]), "--job", "a / Measure", "--minutes", "0"])
    assert (absent.exit_code, absent.output) == (2, "absent: no machine took 'a / Measure' within 0 minutes\n")
    job["status"] = "in_progress"
    monkeypatch.setenv("GITHUB_RUN_ID", str(job["run_id"]))
    assert run(main, ["wait", "--job", "a / Measure", "--minutes", "0"]).exit_code == 0


def test_outside_a_workflow_the_run_must_be_named() -> None:
    with pytest.raises(GitHubError, match="--run ID"):
        orders.of_run({})
