"""What a night's record job does with a trial file: what fits is kept, what does not is told, the rest is pushed."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner, Result

from ci.__main__ import main
from ci.trials import file
from tests.ci import made_trials as made
from tests.ci.commands.test_gate_trials import MACHINE, Scene
from tests.ci.commands.test_gate_trials import scene as scene
from tests.ci.git.test_repository import git
from tests.ci.judging.test_claims import sealed, times


def night(head: str, number: int = 0, **changes: Any) -> dict[str, Any]:
    line = made.trial(
        {"m16": {"head/triton": made.ok(times())}}, number, trees={"head": made.tree(head)}, machine=MACHINE
    )
    return sealed({**line, **changes})


def sift(scene: Scene, *lines: dict[str, Any], more: str = "") -> Result:
    folder = scene.clone / "incoming"
    folder.mkdir()
    path = made.write(folder / "trials.jsonl", *lines)
    path.write_text(path.read_text() + more)
    asked = ["sift", str(folder), "--head", scene.base, "--pool", "h200", "--out", "fit.jsonl"]
    return CliRunner().invoke(main, asked, catch_exceptions=False)


def kept(scene: Scene) -> list[int]:
    return [trial.number for trial in file.read(scene.clone / "fit.jsonl").trials]


def test_what_fits_is_kept(scene: Scene) -> None:
    assert sift(scene, night(scene.base), night(scene.base, 1)).exit_code == 0
    assert kept(scene) == [0, 1]


@pytest.mark.parametrize(
    "change", [{"machine": {**MACHINE, "market_name": "MI300X"}}, {"trees": {"head": made.tree()}}]
)
def test_what_does_not_fit_is_told_and_stops_nothing(scene: Scene, change: dict[str, Any]) -> None:
    done = sift(scene, night(scene.base), night(scene.base, 1, **change), more="a bad line\n")
    assert done.exit_code == 3
    assert done.output.count("left out: ") == 2
    assert kept(scene) == [0]


def test_nothing_handed_over(scene: Scene) -> None:
    assert sift(scene).exit_code == 3
    assert kept(scene) == []


def test_push_says_what_it_would_do_and_does_it(scene: Scene) -> None:
    (scene.clone / "results").mkdir()
    (scene.clone / "results/a.json").write_text("1")
    git(scene.hub, "checkout", "-q", "--detach")
    run = CliRunner().invoke
    assert run(main, ["push", "results", "main", "--dry-run"]).exit_code == 0
    assert git(scene.clone, "status", "--porcelain") == "?? results/"
    done = run(main, ["push", "results", "main"], catch_exceptions=False)
    assert "to main" in done.output
    assert git(scene.hub, "show", "main:results/a.json") == "1"
    assert "nothing new" in run(main, ["push", "results", "main"]).output
