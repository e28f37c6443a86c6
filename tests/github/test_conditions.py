"""The conditions at the boundaries of trust, decided by GitHub's own evaluation: what a fork or a branch can start."""

from __future__ import annotations

import os
import re
import subprocess

import pytest

from ci.commands import github as orders
from ci.commands import init as newcomer
from tests.github.actions import ROOT, load
from tests.github.test_workflows import CALLED, actionlint, tool, zizmor

GPU = "refs/heads/ridgeline/gpu"


def github(event_name="workflow_dispatch", ref="refs/heads/main", **event):
    name = ref.removeprefix("refs/heads/")
    return {
        "event_name": event_name,
        "ref": ref,
        "ref_name": name,
        "event": {"repository": {"default_branch": "main"}, **event},
    }


def holds(expressions, file, job, given, status="success", **more):
    contexts = {"github": given, "inputs": {"tier": ""}, "needs": {}, **more}
    return expressions.holds(load(file)["jobs"][job].get("if"), contexts, status)


FOREIGN = {
    "a fork's pull request that calls the file": github("pull_request", "refs/pull/7/merge"),
    "pull_request_target": github("pull_request_target"),
    "a push to a branch": github("push", "refs/heads/topic"),
    "a push to the ref of GPU runs": github("push", GPU),
    "a comment": github("issue_comment"),
    "a finished run": github("workflow_run"),
    "a start by hand on the default branch": github(),
    "a start by hand on another branch": github(ref="refs/heads/ridgeline/gpu-2"),
    "a tag of the same name": github(ref="refs/tags/ridgeline/gpu"),
}


def started(expressions, file, job, **more):
    """What of the foreign attempts would start a job."""
    condition = load(file)["jobs"][job].get("if")
    asked = [(condition, {"github": given, "inputs": {}, "needs": {}, **more}, "success") for given in FOREIGN.values()]
    return [name for name, runs in zip(FOREIGN, expressions.hold(asked), strict=True) if runs]


@pytest.mark.slow
@pytest.mark.parametrize("job", ["measure", "wait", "judge"])
def test_a_leg_runs_for_a_start_on_its_own_ref(expressions, job):
    """(a), (c) No fork, and no run with the rights of the default branch, gets a machine."""
    given = github(ref=GPU)
    needs = {"measure": {"result": "failure"}}
    assert holds(expressions, "leg.yml", job, given, needs=needs)
    assert started(expressions, "leg.yml", job, needs=needs) == []


def test_legs_are_listed_for_a_start_on_their_ref_only(expressions):
    assert holds(expressions, "gpu.yml", "legs", github(ref=GPU))
    assert started(expressions, "gpu.yml", "legs") == []


def test_a_start_on_another_ref_is_red_and_says_how_to_start_it(expressions):
    assert not holds(expressions, "gpu.yml", "refuse", github(ref=GPU))
    assert "a start by hand on the default branch" in started(expressions, "gpu.yml", "refuse")


def test_a_leg_is_judged_after_a_fault_but_not_after_it_was_cancelled(expressions):
    assert holds(expressions, "leg.yml", "judge", github(ref=GPU), "failure")
    assert not holds(expressions, "leg.yml", "judge", github(ref=GPU), "cancelled")


@pytest.mark.parametrize(
    ("given", "runs"),
    [
        (github("schedule"), True),
        (github("workflow_dispatch"), True),
        (github("workflow_dispatch", "refs/heads/topic"), False),
        (github("pull_request", "refs/pull/7/merge"), False),
        (github("pull_request", "refs/heads/main"), False),
        (github("push"), False),
    ],
)
def test_a_night_is_of_the_default_branch(expressions, given, runs):
    assert holds(expressions, "night_leg.yml", "measure", given) is runs
    if given["event_name"] in load("nightly.yml")["on"]:
        assert holds(expressions, "nightly.yml", "legs", given) is runs
        assert holds(expressions, "nightly.yml", "code", given) is runs


@pytest.mark.parametrize("result", ["success", "failure"])
def test_a_night_that_broke_off_is_recorded_all_the_same(expressions, result):
    needs = {"measure": {"result": result}, "record": {"result": result}}
    assert holds(expressions, "night_leg.yml", "record", github("schedule"), result, needs=needs)
    assert holds(expressions, "night_leg.yml", "publish", github("schedule"), result, needs=needs)
    nothing = {"measure": {"result": "skipped"}, "record": {"result": "skipped"}}
    assert not holds(expressions, "night_leg.yml", "record", github("schedule"), needs=nothing)


@pytest.mark.parametrize(
    ("event", "conclusion", "runs"),
    [
        ("pull_request", "success", True),
        ("pull_request", "failure", True),
        ("pull_request", "cancelled", False),
        ("push", "success", False),
        ("workflow_dispatch", "success", False),
    ],
)
def test_what_is_commented_on(expressions, event, conclusion, runs):
    finished = github("workflow_run", workflow_run={"event": event, "conclusion": conclusion})
    assert holds(expressions, "comment.yml", "comment", finished) is runs


@pytest.mark.parametrize(
    ("issue", "body", "runs"),
    [
        ({"pull_request": {"url": "x"}}, "/ridgeline gpu " + "a" * 40, True),
        ({"pull_request": {"url": "x"}}, "please run /ridgeline gpu", False),
        ({}, "/ridgeline gpu " + "a" * 40, False),
    ],
)
def test_which_comments_are_read(expressions, issue, body, runs):
    said = github("issue_comment", issue=issue, comment={"body": body})
    assert holds(expressions, "command.yml", "read", said) is runs


@pytest.mark.parametrize(("action", "runs"), [("gpu", True), ("", False), ("refused", False)])
def test_a_run_is_started_only_where_the_first_job_says_so(expressions, action, runs):
    needs = {"read": {"outputs": {"action": action}}}
    assert holds(expressions, "command.yml", "start", github("issue_comment"), needs=needs) is runs
    assert not holds(expressions, "command.yml", "start", github("issue_comment"), "failure", needs=needs)


# The composite action, and the workflows that `ridgeline init` writes.


FOLDER = ROOT / ".github/actions/check"
ACTION = FOLDER / "action.yml"
PINNED = "OWNER/ridgeline@" + "0" * 40


def test_the_action_is_sound():
    run = zizmor(ACTION)
    assert run.returncode == 0, run.stdout + run.stderr
    schema = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", str(ACTION)]
    run = subprocess.run(schema, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("fail_on", "codes"), [("regression", [0, 1, 0, 3, 137]), ("undecided", [0, 1, 2, 3, 137]), ("", [0, 1, 0, 3, 137])]
)
def test_what_makes_the_job_red(tmp_path, fail_on, codes):
    program = tmp_path / "ridgeline"
    program.write_text('#!/bin/sh\n[ "$1 $2" = "check --tier" ] || exit 9\nexit "$3"\n')
    program.chmod(0o755)
    found = []
    for code in (0, 1, 2, 3, 137):
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ARGUMENTS": f"--tier {code}", "FAIL_ON": fail_on}
        done = subprocess.run(["bash", str(FOLDER / "check.sh")], env=env, capture_output=True, text=True)
        found.append(done.returncode)
        assert ("::notice" in done.stdout) is (code == 2 and fail_on != "undecided")
    assert found == codes


def test_a_command_is_emulated_as_it_is_written(tmp_path):
    program = tmp_path / "ridgeline"
    program.write_text('#!/bin/sh\nprintf "%s|" "$@"\nexit 1\n')
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "EMULATE": 'pytest -k "not slow"', "ARCH": "gfx950"}
    done = subprocess.run(["bash", str(FOLDER / "emulate.sh")], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "emulate|--arch|gfx950|--|pytest|-k|not slow|")


def test_a_wrong_fail_on_is_refused_before_anything_is_installed(tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho installed\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAIL_ON": "anything", "HERE": str(ROOT)}
    done = subprocess.run(["bash", str(FOLDER / "install.sh")], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "fail-on: 'anything' is not one of regression, undecided" in done.stderr


@pytest.fixture
def written(tmp_path):
    """The workflows of `ridgeline init`, by name."""
    newcomer.write(tmp_path, newcomer.planned(tmp_path, "trunk", "perf", PINNED), ())
    return {name: tmp_path / ".github/workflows" / name for name in newcomer.CALLS}


@pytest.mark.slow
def test_the_workflows_of_init_are_sound(expressions, written):
    for file in written.values():
        run = zizmor(file)
        assert run.returncode == 0, run.stdout + run.stderr
    schema = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *map(str, written.values())]
    run = subprocess.run(schema, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert actionlint(expressions, *written.values()) == []


def test_each_is_one_call_at_a_full_commit_with_what_the_called_file_asks_for(written):
    order = ["none", "read", "write"]
    for name, path in written.items():
        document = load(path)
        (job,) = document["jobs"].values()
        called = re.fullmatch(r"OWNER/ridgeline/\.github/workflows/(\w+\.yml)@0{40}", job["uses"])
        assert called, name
        assert called[1] in CALLED
        assert f"{job['uses']} # Ridgeline " in path.read_text()
        call = load(called[1])["on"]["workflow_call"] or {}
        assert set(job.get("with", {})) <= set(call.get("inputs", {}))
        assert document["permissions"] == {}
        for inner in load(called[1])["jobs"].values():
            for right, level in inner["permissions"].items():
                assert order.index(job["permissions"].get(right, "none")) >= order.index(level), (name, right)


def test_no_pull_request_reaches_a_runner_of_ones_own_or_a_token_that_writes(written):
    starts = {name: set(load(path)["on"]) for name, path in written.items()}
    assert starts == {
        "ridgeline.yml": {"pull_request", "push"},
        "ridgeline_comment.yml": {"workflow_run"},
        "ridgeline_gpu.yml": {"workflow_dispatch"},
        "ridgeline_nightly.yml": {"schedule", "workflow_dispatch"},
    }
    check = load(written["ridgeline.yml"])
    assert check["jobs"]["check"]["permissions"] == {"contents": "read"}
    assert check["jobs"]["check"]["uses"].partition("@")[0].endswith("/check.yml"), "whose runner is GitHub's"
    assert "runs-on" not in str(check)
    assert load(written["ridgeline_comment.yml"])["on"]["workflow_run"]["workflows"] == [check["name"]]
    gpu = load(written["ridgeline_gpu.yml"])
    assert gpu["on"]["workflow_dispatch"]["inputs"]["sha"]["required"] is True
    assert gpu["jobs"]["gpu"]["with"]["sha"] == "${{ inputs.sha }}"
    assert orders.REF in written["ridgeline_gpu.yml"].read_text()
