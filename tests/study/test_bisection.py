"""The study of bisect: its table is committed, and a few searches of each kind come to the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.study.bisection import noises, pass_fail
from tests.study.bisection.__main__ import page
from tests.study.bisection.cells import CountedCell, SearchCell, cells, counted

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/recordings/h200"
TABLE = (ROOT / "tests/study/bisection/table.md").read_text(encoding="utf-8")
LINES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("|")]
ROWS = {name: numbers for name, *numbers in LINES}

LONG = "no step, recorded noise of tgemm_m64"
"""Its noise is twice the smallest step: some searches do not know after 200 trials, and say so.  None may be wrong."""

KINDS = {cell.name: cell for cell in cells(DATA)}


def test_the_table_has_every_line_and_keeps_the_promises() -> None:
    assert set(KINDS) < set(ROWS)
    for name in KINDS:
        right, wrong = (float(cell.removesuffix(" %")) for cell in ROWS[name][:2])
        assert right >= (99.0 if name != LONG else 90.0), name
        assert wrong <= 1.0, name
    for noise in ("normal noise", "t noise with 3 df"):
        assert float(ROWS[f"1 % step, {noise}"][3]) <= 30
        assert float(ROWS[f"1 % step, {noise}, 7 code classes"][3]) <= 20
        assert float(ROWS[f"ten trials per midpoint, {noise}"][3]) >= 90


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "1 % step, t noise with 3 df, 7 code classes",
        "no step, t noise with 3 df",
        "two steps of 3 % and 1 %, normal noise",
    ],
)
def test_a_few_searches_come_to_what_the_table_says(name: str) -> None:
    found = counted(KINDS[name], searches=4, seed=7)
    assert (found.right, found.undecided) == (4, 0)
    assert max(found.trials) <= 60, "what the command spends unless asked otherwise"


def test_the_same_seed_gives_the_same_searches() -> None:
    cell = SearchCell("", noises.of_t(0.004, 3.0), (0.02,), changes=9)
    assert counted(cell, 2, 1) == counted(cell, 2, 1)


def test_a_large_step_is_found_by_pass_and_fail_too() -> None:
    quiet = noises.of_t(0.0005, np.inf)
    assert pass_fail.plain(np.random.default_rng(0), 256, 77, 0.01, quiet) == (77, 90)
    found, trials = pass_fail.bayesian(np.random.default_rng(0), 256, 77, 0.01, quiet)
    assert found == 77
    assert trials <= 12


def test_recorded_noise_has_the_scatter_that_is_known_of_it() -> None:
    assert [100 * float(np.std(noises.shifts_of(DATA, case))) for case in noises.RECORDED] == [
        pytest.approx(0.4, abs=0.1),
        pytest.approx(0.6, abs=0.1),
    ]
    with pytest.raises(FileNotFoundError, match="give the folder of the H200 recordings"):
        noises.shifts_of(ROOT / "ci", "mm_m16")


def test_a_line_of_the_page_adds_up() -> None:
    text = page([CountedCell("made", 200, 197, 1, [10, 20, 30, 40])], [], 200)
    assert "| made | 98.5 % | 1.0 % | 0.5 % | 25.0 | 25 | 38 |" in text
