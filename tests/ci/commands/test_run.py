"""`ridgeline run --resume`: what is measured when a trial file is taken up again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.commands import run as module
from ci.harness import MeasurePlan
from tests.ci import made_trials
from tests.ci.made_trials import HEAD, trial


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[MeasurePlan]:
    """The plans that would be measured; nothing is."""
    plans: list[MeasurePlan] = []

    def measure(checkouts: Sequence[Any], plan: MeasurePlan, out: Path, console: Any) -> int:
        plans.append(plan)
        return 0

    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(module, "query", lambda *arguments: {"planned": {"gemm": {"1": 2}, "norm": {}}})
    return plans


def run(out: Path, *arguments: str) -> Result:
    words = ["run", "--commit", HEAD, "--commit-date", "0", "--out", str(out), "--trials", "3", *arguments]
    return CliRunner().invoke(main, words)


def what(plans: Sequence[MeasurePlan]) -> list[tuple[tuple[str, ...], int, int]]:
    return [(tuple(plan.kernels), plan.first_trial, plan.trials) for plan in plans]


def test_a_file_that_is_not_there_is_measured_whole(tmp_path: Path, planned: list[MeasurePlan]) -> None:
    assert run(tmp_path / "t.jsonl", "--resume", "--first-trial", "6").exit_code == 0
    assert what(planned) == [((), 6, 3)]


def test_what_is_there_is_not_measured_again(tmp_path: Path, planned: list[MeasurePlan]) -> None:
    out = made_trials.write(tmp_path / "t.jsonl", trial(), trial(number=1))
    run(out, "--resume")
    assert what(planned) == [(("gemm",), 2, 1)], "the first trial says what there is to measure"


def test_the_first_trial_may_be_incomplete(tmp_path: Path, planned: list[MeasurePlan]) -> None:
    run(made_trials.write(tmp_path / "t.jsonl", trial()), "--resume")
    assert what(planned) == [(("norm",), 0, 1), (("gemm", "norm"), 1, 2)]


def test_trials_of_another_commit_do_not_count(tmp_path: Path, planned: list[MeasurePlan]) -> None:
    other = trial(trees={"head": made_trials.tree("c" * 40)})
    run(made_trials.write(tmp_path / "t.jsonl", other), "--resume")
    assert what(planned) == [((), 0, 3)]


def test_a_whole_file_starts_nothing(tmp_path: Path, planned: list[MeasurePlan]) -> None:
    out = made_trials.write(tmp_path / "t.jsonl", *(trial(number=number) for number in range(3)))
    assert run(out, "--resume").exit_code == 0
    assert planned == []


def test_resuming_needs_a_file() -> None:
    done = CliRunner().invoke(main, ["run", "--resume"])
    assert (done.exit_code, "--resume needs the file" in done.output) == (3, True)


def test_a_folder_without_kernels_is_refused(tmp_path: Path) -> None:
    """Else the harness's own would be measured under the commit's name."""
    words = ["run", f"--tree={tmp_path}", f"--commit={'a' * 40}", f"--out={tmp_path}/t.jsonl", "--dry-run"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 3
    assert f"--tree {tmp_path} has none of the packages with kernels that it lists (kernels)" in done.output
    (tmp_path / "ridgeline.toml").write_text('kernels = ["shop.perf"]\n')
    assert "(shop.perf)" in CliRunner().invoke(main, words).output
    (tmp_path / "src/shop/perf").mkdir(parents=True)
    assert CliRunner().invoke(main, words).exit_code == 0
