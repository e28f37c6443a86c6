"""The workflows: sound, pinned, one command a step, and out of reach of forks where a GPU or a token is."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.yml"))
NAMES = [path.name for path in FILES]
TRUSTED_TRIGGERS = {"workflow_dispatch", "schedule"}
"""Triggers that no fork can pull: they run the default branch's file, for people who may write."""
READ_ONLY = {"read", "none"}


def load(path: Path) -> dict[str, Any]:
    """A workflow; YAML 1.1 reads the key `on` as true, which is put right."""
    document = yaml.safe_load(path.read_text())
    document["on"] = document.pop(True, document.get("on"))
    return document


def triggers(document: dict[str, Any]) -> set[str]:
    on = document["on"]
    return {on} if isinstance(on, str) else set(on)


def jobs() -> list[tuple[str, str]]:
    return [(path.name, job) for path in FILES for job in load(path)["jobs"]]


def steps() -> list[tuple[str, dict[str, Any]]]:
    return [
        (f"{path.name}:{name}", step)
        for path in FILES
        for name, job in load(path)["jobs"].items()
        for step in job["steps"]
    ]


RUNS = [(where, step["run"]) for where, step in steps() if "run" in step]
USES = sorted({line.strip() for path in FILES for line in path.read_text().splitlines() if "uses:" in line})


def tool(name: str) -> str:
    return str(Path(sys.executable).parent / name)


def test_the_workflows_are_there() -> None:
    assert NAMES == ["comment.yml", "gpu.yml", "gpu_label.yml", "nightly.yml", "pull_request.yml"]


# ---- linters ----


def test_zizmor_finds_nothing() -> None:
    run = subprocess.run(
        [tool("zizmor"), "--offline", "--no-progress", "--strict-collection", "--persona", "auditor", str(FOLDER)],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_schema(schema: str) -> None:
    run = subprocess.run(
        [tool("check-jsonschema"), "--builtin-schema", schema, *map(str, FILES)], capture_output=True, text=True
    )
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_linter_can_find_something(tmp_path: Path) -> None:
    file = tmp_path / "bad.yml"
    file.write_text(re.sub(r"(actions/checkout)@\w+", r"\1@v7", (FOLDER / "pull_request.yml").read_text()))
    run = subprocess.run(
        [tool("zizmor"), "--offline", "--no-progress", "--strict-collection", str(file)], capture_output=True, text=True
    )
    assert run.returncode != 0
    assert "unpinned-uses" in run.stdout


# ---- one command a step ----


@pytest.mark.parametrize(("where", "run"), RUNS)
def test_a_step_is_one_command(where: str, run: str) -> None:
    """`ridgeline` or `make`; `gh` only where nothing of a pull request is checked out."""
    words = shlex.split(run)
    assert "\n" not in run.strip()
    assert not set(words) & {"&&", "||", ";", "|", "&"}
    allowed = {"make", ".venv/bin/ridgeline"} | ({"gh"} if where.startswith("gpu_label.yml") else set())
    assert words[0] in allowed
    assert "${{" not in run, "an expression inside a command is an injection; pass it through env"


@pytest.mark.parametrize(("where", "run"), [(w, r) for w, r in RUNS if "ridgeline" in r])
def test_the_ridgeline_command_exists(where: str, run: str) -> None:
    from ci.__main__ import main  # here, so that a fault of the command takes down no other test

    verb, *arguments = shlex.split(run)[1:]
    command = main.get_command(click.Context(main), verb)
    assert command is not None, f"no verb {verb}"
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    unknown = [word for word in arguments if word.startswith("--") and word.partition("=")[0] not in known]
    assert not unknown, f"ridgeline {verb} does not know {unknown}"


@pytest.mark.parametrize("run", sorted({run for _, run in RUNS if run.startswith("make")}))
def test_the_make_target_exists(run: str) -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(run.split()[1:]) <= set(targets)


def test_github_can_name_a_machine() -> None:
    """`make machines` is what both matrix workflows start with; the variable MACHINE comes from their input."""
    run = subprocess.run(
        ["make", "--silent", "machines", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        text=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "MACHINE": "mi355x"},
    )
    assert '"name": "mi355x"' in run.stdout
    assert '"name": "h200"' not in run.stdout


# ---- what may run where ----


@pytest.mark.parametrize(("file", "job"), jobs())
def test_every_job_has_a_timeout_and_says_its_permissions(file: str, job: str) -> None:
    document = load(FOLDER / file)
    assert document["permissions"] == {}
    assert isinstance(document["jobs"][job]["permissions"], dict)
    assert 0 < document["jobs"][job]["timeout-minutes"] <= 240
    assert "concurrency" in document


def self_hosted(job: dict[str, Any]) -> bool:
    return "ubuntu" not in str(job["runs-on"])


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_gpu_runners_are_out_of_reach_of_forks(path: Path) -> None:
    document = load(path)
    if any(self_hosted(job) for job in document["jobs"].values()):
        assert triggers(document) <= TRUSTED_TRIGGERS


def test_there_are_gpu_workflows() -> None:
    assert [path.name for path in FILES if any(self_hosted(job) for job in load(path)["jobs"].values())] == [
        "gpu.yml",
        "nightly.yml",
    ]


@pytest.mark.parametrize(("file", "job"), [(f, j) for f, j in jobs() if self_hosted(load(FOLDER / f)["jobs"][j])])
def test_what_runs_measured_code_has_a_read_only_token_and_no_secret(file: str, job: str) -> None:
    body = load(FOLDER / file)["jobs"][job]
    assert set(body["permissions"].values()) <= READ_ONLY
    assert "secrets." not in str(body)
    assert "github.token" not in str(body)
    assert all("actions/cache" not in step.get("uses", "") for step in body["steps"])


def test_a_pull_request_job_can_write_nothing() -> None:
    for path in FILES:
        document = load(path)
        if "pull_request" in triggers(document):
            for job in document["jobs"].values():
                assert set(job["permissions"].values()) <= READ_ONLY
            assert "secrets." not in path.read_text()
            assert "github.token" not in path.read_text()


def test_privileged_triggers_never_check_out_the_pull_request() -> None:
    for path in FILES:
        document = load(path)
        for job in document["jobs"].values():
            checkouts = [step for step in job["steps"] if "actions/checkout" in step.get("uses", "")]
            if "pull_request_target" in triggers(document):
                assert not checkouts
            if "workflow_run" in triggers(document):
                assert all("ref" not in step.get("with", {}) for step in checkouts)


def test_the_label_starts_the_labelled_commit_and_is_withdrawn() -> None:
    document = load(FOLDER / "gpu_label.yml")
    assert document["on"]["pull_request_target"]["types"] == ["labeled", "synchronize"]
    start, withdraw = document["jobs"]["start"], document["jobs"]["withdraw"]
    assert "github.event.label.name == 'gpu:run'" in start["if"]
    assert start["steps"][0]["env"]["SHA"] == "${{ github.event.pull_request.head.sha }}"
    assert "synchronize" in withdraw["if"]
    assert "labels/gpu:run" in withdraw["steps"][0]["run"]
    gpu = load(FOLDER / "gpu.yml")
    assert gpu["on"]["workflow_dispatch"]["inputs"]["sha"]["required"] is True
    assert gpu["jobs"]["measure"]["steps"][0]["with"]["ref"] == "${{ inputs.sha }}"


def test_the_pull_request_is_never_read_from_the_report() -> None:
    posts = [(where, step) for where, step in steps() if "--post" in step.get("run", "")]
    assert [where for where, _ in posts] == ["comment.yml:comment", "gpu.yml:comment"]
    assert {step["env"]["SHA"] for _, step in posts} == {
        "${{ github.event.workflow_run.head_sha }}",
        "${{ inputs.sha }}",
    }


@pytest.mark.parametrize("line", USES)
def test_actions_are_githubs_own_and_pinned(line: str) -> None:
    assert re.fullmatch(r"(- )?uses: actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line)


def test_an_action_has_one_pin() -> None:
    pins = {re.search(r"(actions/[\w-]+)@(\w+)", line).groups() for line in USES}  # type: ignore[union-attr]
    assert len(pins) == len({action for action, _ in pins})


def test_checkouts_keep_no_token() -> None:
    for where, step in steps():
        if "actions/checkout" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False, where


def test_the_comment_follows_the_pull_request_workflow() -> None:
    followed = load(FOLDER / "comment.yml")["on"]["workflow_run"]["workflows"]
    assert followed == [load(FOLDER / "pull_request.yml")["name"]]
