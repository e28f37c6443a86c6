"""The composite action, and the workflows that `ridgeline init` writes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ci import newcomer
from ci.github import orders
from tests.github.actions import ROOT, Expressions, load
from tests.github.test_workflows import CALLED, actionlint, tool, zizmor

FOLDER = ROOT / ".github/actions/check"
ACTION = FOLDER / "action.yml"
PINNED = "OWNER/ridgeline@" + "0" * 40


def test_the_action_is_sound() -> None:
    run = zizmor(ACTION)
    assert run.returncode == 0, run.stdout + run.stderr
    schema = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", str(ACTION)]
    run = subprocess.run(schema, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize(
    ("fail_on", "codes"), [("regression", [0, 1, 0, 3, 137]), ("undecided", [0, 1, 2, 3, 137]), ("", [0, 1, 0, 3, 137])]
)
def test_what_makes_the_job_red(tmp_path: Path, fail_on: str, codes: list[int]) -> None:
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


def test_a_wrong_fail_on_is_refused_before_anything_is_installed(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho installed\n")
    python.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAIL_ON": "anything", "HERE": str(ROOT)}
    done = subprocess.run(["bash", str(FOLDER / "install.sh")], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "fail-on: 'anything' is not one of regression, undecided" in done.stderr


@pytest.fixture
def written(tmp_path: Path) -> dict[str, Path]:
    """The workflows of `ridgeline init`, by name."""
    newcomer.write(tmp_path, newcomer.planned(newcomer.SetUp(tmp_path, "theirs", "trunk", "perf", PINNED)), ())
    return {name: tmp_path / ".github/workflows" / name for name in newcomer.WORKFLOWS}


def parsed(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    return document | {"on": document[True]}


@pytest.mark.slow
def test_the_workflows_of_init_are_sound(expressions: Expressions, written: dict[str, Path]) -> None:
    for file in written.values():
        run = zizmor(file)
        assert run.returncode == 0, run.stdout + run.stderr
    schema = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-workflows", *map(str, written.values())]
    run = subprocess.run(schema, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert actionlint(expressions, *written.values()) == []


def test_each_is_one_call_at_a_full_commit_with_what_the_called_file_asks_for(written: dict[str, Path]) -> None:
    order = ["none", "read", "write"]
    for name, path in written.items():
        document = parsed(path)
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


def test_no_pull_request_reaches_a_runner_of_ones_own_or_a_token_that_writes(written: dict[str, Path]) -> None:
    starts = {name: set(parsed(path)["on"]) for name, path in written.items()}
    assert starts == {
        "ridgeline.yml": {"pull_request", "push"},
        "ridgeline_comment.yml": {"workflow_run"},
        "ridgeline_gpu.yml": {"workflow_dispatch"},
        "ridgeline_nightly.yml": {"schedule", "workflow_dispatch"},
    }
    check = parsed(written["ridgeline.yml"])
    assert check["jobs"]["check"]["permissions"] == {"contents": "read"}
    assert check["jobs"]["check"]["uses"].partition("@")[0].endswith("/check.yml"), "whose runner is GitHub's"
    assert "runs-on" not in str(check)
    assert parsed(written["ridgeline_comment.yml"])["on"]["workflow_run"]["workflows"] == [check["name"]]
    gpu = parsed(written["ridgeline_gpu.yml"])
    assert gpu["on"]["workflow_dispatch"]["inputs"]["sha"]["required"] is True
    assert gpu["jobs"]["gpu"]["with"]["sha"] == "${{ inputs.sha }}"
    assert orders.REF in written["ridgeline_gpu.yml"].read_text()
