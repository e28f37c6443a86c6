"""The composite action that other repositories call, and the workflow that `ridgeline init` writes for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ci.newcomer import files
from tests.github.actions import ROOT, Expressions
from tests.github.test_workflows import actionlint, tool, zizmor

ACTION = ROOT / files.PLACE / "action.yml"
PINNED = "OWNER/ridgeline@" + "0" * 40


def test_the_action_is_sound() -> None:
    run = zizmor(ACTION)
    assert run.returncode == 0, run.stdout + run.stderr
    schema = [tool("check-jsonschema"), "--builtin-schema", "vendor.github-actions", str(ACTION)]
    run = subprocess.run(schema, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_the_workflow_of_init_is_sound(expressions: Expressions, tmp_path: Path) -> None:
    for one in files.planned(files.SetUp(tmp_path, "theirs", "main", "perf", PINNED)):
        if one.path.name == "ridgeline.yml":
            file = tmp_path / one.path.name
            file.write_text(one.text)
    run = zizmor(file)
    assert run.returncode == 0, run.stdout + run.stderr
    assert actionlint(expressions, file) == []
    assert f"{PINNED.replace('@', f'/{files.PLACE}@')} # Ridgeline" in file.read_text()
