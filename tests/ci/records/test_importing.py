"""What others measured, in the history: the right side is charged, and no date tells the order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.programs.reader import readers
from ci.history import reading, triage
from ci.history.types import Direction, EventKind
from ci.records.importing import ImportOptions, bring
from tests.kit import commits_of_one_second, git, ridgeline

STEP = 12
"""The commit at which a side becomes faster, of twice as many."""


@pytest.mark.parametrize(("ours", "library"), [(1.0, 0.6), (0.6, 1.0)])
def test_the_side_that_became_faster_is_charged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: float, library: float
) -> None:
    folder = tmp_path / "clone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    drawn = random.Random(1)
    for number, commit in enumerate(commits_of_one_second(folder, 2 * STEP)):
        times = {
            "ours": 9e-6 * (ours if number >= STEP else 1.0) * drawn.gauss(1, 0.003),
            "rccl": 1e-5 * (library if number >= STEP else 1.0) * drawn.gauss(1, 0.003),
        }
        log = tmp_path / f"{number}.csv"
        log.write_text("case,backend,seconds\n" + "".join(f"a,{name},{time}\n" for name, time in times.items()))
        said = ImportOptions("csv", "m1", "copy", commit, baselines=("rccl",))
        assert bring([log], folder / "results", readers(), said).added == 1
    [event] = reading.history(folder / "results", None, triage.load(folder / "events.toml")).events
    side = EventKind.LIBRARY if library < 1 else EventKind.KERNEL
    assert (event.kind, event.direction) == (side, Direction.FASTER)
    assert event.first_bad.hash == git(folder, "rev-list", "--reverse", "HEAD").split()[STEP]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "America/Los_Angeles"])
def test_a_date_without_a_zone_is_the_same_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    (tmp_path / "log.csv").write_text("case,seconds\na,1\n")
    options = ("--reads", "csv", "--date", "2026-11-01T12:00:00", "--results", str(tmp_path / "results"))
    assert ridgeline("records", "import", str(tmp_path / "log.csv"), *options).exit_code == 0
    done = ridgeline("records", "export", "--results", str(tmp_path / "results"), "--out", str(tmp_path / "x.csv"))
    assert done.exit_code == 0
    assert "2026-11-01 12:00:00" in (tmp_path / "x.csv").read_text()
