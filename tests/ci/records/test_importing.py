"""What others measured, in the history: the right side is charged, and no date tells the order."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from benchmarks.programs.reader import readers
from ci.history import reading, triage
from ci.history.types import Direction, EventKind
from ci.records.importing import ImportOptions, bring
from tests.kit import commits_of_one_second, git

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
