"""`ridgeline ci pools`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("GITHUB_OUTPUT", raising=False)
    return tmp_path


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["pools", *arguments], standalone_mode=True)


def test_the_list_names_pools_and_drained_nodes() -> None:
    assert invoke("--drain", "n7", "--reason", "link 3 is down").exit_code == 0
    shown = invoke().output
    assert "mi300x" in shown
    assert "n7 is drained from our jobs since" in shown
    listed = json.loads(invoke("--json").stdout)
    assert [pool["name"] for pool in listed["pools"]] == ["mi300x", "mi325x", "mi355x", "h200"]
    assert [one["reason"] for one in listed["drained"]] == ["link 3 is down"]
    assert "n7 takes our jobs again" in invoke("--resume", "n7").output
    assert "n7 was not drained" in invoke("--resume", "n7").output


def test_a_dry_run_drains_nothing(own_state: Path) -> None:
    assert "n7 would be drained" in invoke("--drain", "n7", "--reason", "r", "--dry-run").output
    assert list(own_state.iterdir()) == []


def test_show_prints_how_a_pool_is_reached_and_what_runs() -> None:
    shown = invoke("--show", "mi300x", "--gpus", "8", "--", "echo", "a b").output
    assert "# GitHub: ['linux', 'mi300x', 'mi300x-8'].  Slurm: site cluster, partition mi300x, gpu:mi300x:8" in shown
    assert "command=(echo 'a b')" in shown
    document = json.loads(invoke("--show", "mi300x", "--json").stdout)
    assert [job["gpus"] for job in document["jobs"]] == [1, 8]


def test_the_matrix_is_one_line() -> None:
    line = invoke("--matrix", "--only", "h200").stdout
    assert [leg["name"] for leg in json.loads(line)] == ["h200-1"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--show", "moon"], "no pool 'moon'; ci/runners.toml has mi300x"),
        (["--show", "mi300x", "--gpus", "3"], "offers jobs of 1, 8 GPUs, not 3"),
        (["--drain", "n7"], "no reason to drain 'n7'; say it with --reason"),
        (["--drain", "../n7", "--reason", "r"], "is not the name of a node"),
        (["--resume", "n7", "--site", "moon"], "no site 'moon'"),
        (["--file", "/nowhere.toml"], "/nowhere.toml cannot be read"),
    ],
)
def test_what_is_wrong_leaves_with_3(words: list[str], message: str) -> None:
    done = invoke(*words)
    assert done.exit_code == 3
    assert message in done.output
