"""What is kept between analyses changes nothing but the time."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ci.history import finding, series
from ci.history.analysis import analyse
from ci.records import store
from ci.records.derived import derive
from tests.ci.history.made import Line, commit, facts, frame, noisy, pair
from tests.study.history import planted


def lines(count: int) -> list[Line]:
    wide = [Line(f"k{n}", "c", noisy(n, 70, {30: 1.1} if n % 3 else {})) for n in range(9)]
    whole = [*wide, *pair(1, 70, ours={60: 1.1})]
    return [dataclasses.replace(line, seconds=line.seconds[:count]) for line in whole]


def test_one_commit_after_the_other_is_as_all_at_once(tmp_path: Path) -> None:
    for count in range(58, 70, 3):
        whole = frame(lines(count))
        assert analyse(whole, commits=facts(70), kept=tmp_path) == analyse(whole, commits=facts(70))


def test_the_recorded_history_grows_to_what_it_is(tmp_path: Path) -> None:
    whole = derive(store.load(Path(__file__).parents[3] / "results"))
    commits = whole["commit"].unique()
    assert len(commits) > 6
    for left_out in (4, 2, 0):
        part = whole[~whole["commit"].isin(commits[len(commits) - left_out :])]
        assert analyse(part, kept=tmp_path) == analyse(part)


def test_a_planted_history_grows_to_what_it_is(tmp_path: Path) -> None:
    plan = planted.PlantedPlan(series=150, commits=90, planted=50, sigma=0.02)
    for more in (0, 1):
        whole = planted.frame(dataclasses.replace(plan, more=more))
        assert analyse(whole, kept=tmp_path) == analyse(whole)


def test_what_was_seen_is_not_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frame(lines(70))
    before = analyse(whole, kept=tmp_path)
    asked = []
    monkeypatch.setattr(finding, "_detected", lambda arrays: asked.extend(arrays) or [[] for _ in arrays])
    assert analyse(whole, kept=tmp_path) == before
    assert asked == []
    other = [*lines(70), Line("k1", "other", noisy(99, 70), machine="h200x1-00000002")]
    analyse(frame(other), kept=tmp_path)
    assert [len(one) for one in asked] == [70]


@pytest.mark.parametrize("damage", [b"", b"PK\x03\x04torn", b"nonsense"])
def test_damage_only_costs_time(tmp_path: Path, damage: bytes) -> None:
    whole = frame(lines(70))
    for name in ("steps.npz", "first_told.npz"):
        (tmp_path / name).write_bytes(damage)
    assert analyse(whole, kept=tmp_path) == analyse(whole)
    (tmp_path / "a file").write_text("")
    assert analyse(whole, kept=tmp_path / "a file") == analyse(whole)


def test_another_detector_starts_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = frame(lines(70))
    analyse(whole, kept=tmp_path)
    monkeypatch.setattr(finding, "made_by", lambda: "another")
    monkeypatch.setattr(finding, "_detected", lambda arrays: [[] for _ in arrays])
    assert not analyse(whole, kept=tmp_path).steps


def test_only_tracks_with_an_early_step_need_to_be_asked_for_one() -> None:
    """The oracle asks all of them."""
    random = np.random.default_rng(0)
    lines = [line for n in range(60) for line in pair(10 * n, 1 + n % 12, {1 + n % 7: 1.06}, case=str(n))]
    for line in lines[::2]:
        line.seconds = line.seconds * np.where(random.random(len(line.seconds)) < 0.1, 1.3, 1.0)
    tracks = series.tracks(frame(lines), {commit(n): n for n in range(12)})
    values = tracks.arrays()
    all_of_them = [t for t in np.flatnonzero(tracks.by_ratio).tolist() if list(finding.early(values[t], 0.005))]
    asked = finding.stepping(tracks).tolist()
    assert set(all_of_them) <= set(asked)
    assert 5 < len(all_of_them) <= len(asked) < 55
