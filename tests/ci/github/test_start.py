"""A GPU run is started for one commit, on a ref of its own; and a machine that never comes is noticed."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from ci.__main__ import main
from ci.github import orders
from ci.github.client import GitHub
from tests.standins.github import StandIn

SHA = "0123456789abcdef0123456789abcdef01234567"
TRUSTED = "0" * 40


@pytest.mark.parametrize("before", [None, "1" * 40])
def test_a_run_has_the_files_of_the_default_branch_and_the_commit_as_data(
    github: StandIn, client: GitHub, before: str | None
) -> None:
    if before:
        github.refs[orders.REF] = before
    assert orders.start(client, SHA, {"pool": "mi300x", "gpus": ""}) == TRUSTED
    assert github.refs[orders.REF] == TRUSTED
    assert github.dispatches == [
        {"workflow": "gpu.yml", "ref": "ridgeline/gpu", "inputs": {"sha": SHA, "pool": "mi300x"}}
    ]


@pytest.mark.parametrize("sha", ["main", "a" * 39, "A" * 40, "", "refs/pull/1/head", "a" * 40 + "\n"])
def test_a_run_is_for_exactly_one_commit(github: StandIn, environ: None, sha: str) -> None:
    done = CliRunner().invoke(main, ["start", sha])
    assert (done.exit_code, "is not a full commit hash" in done.output) == (3, True)
    assert github.calls == []


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
def test_a_machine_that_does_not_come_is_noticed(
    github: StandIn, client: GitHub, caller: str, comes_at: float, taken: bool
) -> None:
    job = github.job(["mi300x"], name=f"{caller}mi300x-8 / Measure")
    time = Time(github, comes_at)
    asked = (client, job["run_id"], "mi300x-8 / Measure", 5, time.sleep, lambda: time.now)
    assert orders.machine_took_job(*asked) is taken
    assert time.now <= 300


def test_the_verbs(github: StandIn, environ: None, monkeypatch: pytest.MonkeyPatch) -> None:
    run = CliRunner().invoke
    dry = run(main, ["start", SHA, "--dry-run"])
    assert dry.exit_code == 0
    assert github.calls == []
    assert "ridgeline/gpu" in dry.output
    assert run(main, ["start", SHA, "--pool", "mi300x"]).exit_code == 0
    assert run(main, ["start", "main"]).exit_code == 3
    job = github.job(["x"], name="a / Measure")
    absent = run(main, ["wait", "--run", str(job["run_id"]), "--job", "a / Measure", "--minutes", "0"])
    assert (absent.exit_code, absent.output) == (2, "absent: no machine took 'a / Measure' within 0 minutes\n")
    job["status"] = "in_progress"
    monkeypatch.setenv("GITHUB_RUN_ID", str(job["run_id"]))
    assert run(main, ["wait", "--job", "a / Measure", "--minutes", "0"]).exit_code == 0
