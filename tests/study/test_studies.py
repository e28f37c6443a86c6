"""The studies are small commands: what they make, find and count; what is committed of them keeps its promises."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from ci.harness import HARNESS
from ci.judging import policy
from ci.records.sustained import BesideRow, JoulesPerCall, RegimeTime
from ci.trials.trial import Trial
from tests.ci.made_trials import ENVIRONMENT, declaration, parsed, tree
from tests.ci.made_trials import trial as made
from tests.study import bisection, cpu_times, curve, detectors, scoreboard, step_bar
from tests.study.bisection import CountedCell, SearchCell, cells, counted, page
from tests.study.budget import early_stop, starts
from tests.study.causes import __main__ as causes
from tests.study.causes.planting import Plant, has, plants, trees
from tests.study.causes.played import RecordedNoise
from tests.study.history import planted, ranges
from tests.study.history.limit import limit
from tests.study.history.planted import PlantedPlan
from tests.study.series_noise import KINDS, SIGMA

# The study of bisect: its table is committed, and a few searches of each kind come to the same.


ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests/recordings/h200"
TABLE = (ROOT / "tests/study/bisection.md").read_text(encoding="utf-8")
LINES = [[cell.strip() for cell in line.split("|")[1:-1]] for line in TABLE.splitlines() if line.startswith("|")]
ROWS = {name: numbers for name, *numbers in LINES}

LONG = "no step, recorded noise of tgemm_m64"
"""Its noise is twice the smallest step: some searches do not know after 200 trials, and say so.  None may be wrong."""

CELLS = {cell.name: cell for cell in cells(DATA)}


def test_the_table_has_every_line_and_keeps_the_promises() -> None:
    assert set(CELLS) < set(ROWS)
    for name in CELLS:
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
    found = counted(CELLS[name], searches=4, seed=7)
    assert (found.right, found.undecided) == (4, 0)
    assert max(found.trials) <= 60, "what the command spends unless asked otherwise"


def test_the_same_seed_gives_the_same_searches() -> None:
    cell = SearchCell("", bisection.of_t(0.004, 3.0), (0.02,), changes=9)
    assert counted(cell, 2, 1) == counted(cell, 2, 1)


def test_a_large_step_is_found_by_pass_and_fail_too() -> None:
    quiet = bisection.of_t(0.0005, np.inf)
    assert bisection.plain(np.random.default_rng(0), 256, 77, 0.01, quiet) == (77, 90)
    found, trials = bisection.bayesian(np.random.default_rng(0), 256, 77, 0.01, quiet)
    assert found == 77
    assert trials <= 12


def test_recorded_noise_has_the_scatter_that_is_known_of_it() -> None:
    assert [100 * float(np.std(bisection.shifts_of(DATA, case))) for case in bisection.RECORDED] == [
        pytest.approx(0.4, abs=0.1),
        pytest.approx(0.6, abs=0.1),
    ]
    with pytest.raises(FileNotFoundError, match="give the folder of the H200 recordings"):
        bisection.shifts_of(ROOT / "ci", "mm_m16")


def test_a_line_of_the_page_adds_up() -> None:
    text = page([CountedCell("made", 200, 197, 1, [10, 20, 30, 40])], [], 200)
    assert "| made | 98.5 % | 1.0 % | 0.5 % | 25.0 | 25 | 38 |" in text


# The study of causes: its plants apply, a few are explained here, and the committed table holds its promise.


COMMITTED = HARNESS / "tests" / "study" / "causes" / "causes.json"

PLANTED_KINDS = (
    "a knob",
    "a lost hint",
    "a reloaded base",
    "a spill",
    "a changed tile order",
    "one more barrier",
    "an extra copy",
    "a wrong cache modifier",
    "a compiler",
    "a launch parameter",
)


def plant(kind: str, number: int = 0) -> Plant:
    return [one for one in plants() if one.kind == kind][number]


def test_five_of_each_of_ten_kinds() -> None:
    assert Counter(one.kind for one in plants()) == dict.fromkeys(PLANTED_KINDS, 5)


@pytest.mark.parametrize("one", [p for p in plants() if p.file], ids=lambda p: f"{p.kind}: {p.operator} {p.arch}")
def test_every_plant_applies_to_the_kernels_as_they_are(one: Plant) -> None:
    text = (HARNESS / one.file).read_text()
    assert not any(one.present(text))
    assert all(one.present(one.planted(text)))


def test_a_plant_that_no_longer_applies_says_so() -> None:
    with pytest.raises(ValueError, match=r"kernels/gemm/config.py has no .*mend the plant in plants.toml"):
        plant("a knob").planted("nothing of it")


def test_the_two_trees_differ_by_the_plant_and_by_bystanders(tmp_path: Path) -> None:
    one = plant("one more barrier")
    base, head = trees(one, tmp_path)
    assert not any(has(one, base.path))
    assert all(has(one, head.path))
    assert "def spare" in (head.path / "kernels" / "gemm" / "__init__.py").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["a reloaded base", "an extra copy", "a compiler"])
def test_a_planted_regression_is_named(kind: str, tmp_path: Path) -> None:
    """Two edits that need each other, one edit on the host, none at all: the times alone name the cause."""
    said = causes.one_plant(plant(kind), 0.03, RecordedNoise.of(DATA, 1), tmp_path, compile_code=False)
    assert said.named, said.said


def test_the_committed_table_is_of_these_plants_and_has_enough_right() -> None:
    rows = json.loads(COMMITTED.read_text())
    planted = [(one.kind, one.operator, one.case, one.arch) for one in plants()]
    assert [(row["kind"], row["operator"], row["case"], row["arch"]) for row in rows] == planted
    assert all(row["right"] is (row["named"] and row["code_named"]) for row in rows)
    assert sum(row["right"] for row in rows) >= 45


def test_an_unknown_kind_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        causes.main(["--kind", "a ghost"])
    assert "no plant is of the kind a ghost; known: a knob, a lost hint" in capsys.readouterr().err


# The study of planted slow-downs on a CPU: its repository, and its table.


def test_each_change_is_one_commit_on_the_same_base(tmp_path: Path) -> None:
    heads = cpu_times._repository(tmp_path)
    assert list(heads) == list(cpu_times.CHANGES)
    shown = ["git", "-C", str(tmp_path), "diff", "--stat=200"]
    for change, head in heads.items():
        said = subprocess.run([*shown, f"{head}^", head], capture_output=True, text=True, check=True).stdout
        assert said.split()[0] == "work.py", change


def test_a_run_that_took_too_long_is_counted_beside_its_verdict() -> None:
    table = cpu_times.table({("ab", "equal"): [("SAME", 10.0), ("SAME", 30.0), ("CANNOT TELL", 70.0)]})
    assert "| ab | equal | 3 | 2 SAME, 1 CANNOT TELL | 2 | 30 | 70 |" in table


# Bandwidth against CUs, from trials.


def trial(count: int, seconds: float, case: str = "w4", channels: str | None = "same") -> Trial:
    variables = {} if channels is None else {"NCCL_MAX_NCHANNELS": str(count)}
    arms = {
        "head/triton": {"status": "ok", "seconds": [seconds] * 3, "knobs": {"programs": count}},
        "head/rccl": {"status": "ok", "seconds": [2 * seconds] * 3, "knobs": {}},
        "head/torch": {"status": "unsupported", "why": "on a CPU only"},
    }
    declared = declaration("all_gather", cases=[case], backends=["triton", "rccl", "torch"], link=10**9)
    environment = {**ENVIRONMENT, "variables": variables}
    head = tree(declared={**declared, "baselines": ["rccl"]}, environment=environment)
    return parsed(made({case: arms}, kernel="all_gather", trees={"head": head}))


def test_ours_by_their_knob_and_the_library_by_its_channels() -> None:
    found = curve.points([trial(16, 0.01), trial(4, 0.02)])
    assert found == {
        "triton": {16: pytest.approx(100), 4: pytest.approx(50)},
        "rccl": {16: pytest.approx(50), 4: pytest.approx(25)},
    }
    assert curve.table(found).splitlines() == [
        "| CUs | `triton`, GB/s | `rccl`, GB/s |",
        "|---:|---:|---:|",
        "| 4 | 50 | 25 |",
        "| 16 | 100 | 50 |",
    ]


def test_a_point_that_one_backend_lacks_is_empty_and_foreign_names_are_inert() -> None:
    shown = curve.table({"a|b": {4: 1.0}, "\x1b[31mred\u202e\ud800": {8: 2.0}})
    assert shown.splitlines()[0] == "| CUs | <code>a&#124;b</code>, GB/s | `[31mred`, GB/s |"
    assert shown.splitlines()[2:] == ["| 4 | 1 |  |", "| 8 |  | 2 |"]


def test_what_is_not_a_curve_is_refused() -> None:
    with pytest.raises(ValueError, match="of one case; these trials have all_gather/w2, all_gather/w4"):
        curve.points([trial(4, 0.1), trial(4, 0.1, "w2")])
    with pytest.raises(ValueError, match="these trials have none"):
        curve.points([])
    with pytest.raises(ValueError, match="rccl of w4 has no knob `programs`, and NCCL_MAX_NCHANNELS was not set"):
        curve.points([trial(4, 0.1, channels=None)])
    with pytest.raises(ValueError, match="^nothere: cannot be read: No such file"):
        curve.main(["nothere"])


# The studies of change points run and say what they say they do.


def test_noise_is_what_its_name_says():
    rng = np.random.default_rng(0)
    made = {kind: noise(rng, 200, 400) for kind, noise in KINDS.items()}
    for kind in ("gaussian", "t, 3 degrees", "AR(1) 0.5"):
        assert 0.8 * SIGMA < made[kind].std() < 1.2 * SIGMA
    one = made["AR(1) 0.5"]
    assert abs(np.mean(one[:, 1:] * one[:, :-1]) / one.var() - 0.5) < 0.03
    assert abs(np.mean(made["1 % outliers"] > 0.15) - 0.01) < 0.003


def test_every_detector_sees_a_plain_step_and_none_a_flat_series():
    step = detectors.Task("gaussian", 1.5, 0.005).series(1, 0)[0]
    flat = detectors.Task("gaussian").series(1, 0)[0]
    for name, detector in detectors.detectors().items():
        assert any(abs(index - 150) <= 2 for index in detector(step)), name
        assert detector(flat) == [], name


def test_a_detector_that_fails_is_counted():
    def failing(values):
        raise ValueError

    assert detectors.score(failing, np.ones((4, 300)), 150).failed == 1.0


def test_the_comparison_prints_and_repeats(monkeypatch):
    monkeypatch.setattr(detectors, "TASKS", (detectors.Task("gaussian"), detectors.Task("gaussian", 1.05)))
    run = [CliRunner().invoke(detectors.main, ["--trials", "3", "--json"]) for _ in range(2)]
    assert run[0].exit_code == 0, run[0].output
    assert run[0].stdout == run[1].stdout
    rows = json.loads(run[0].stdout)
    assert rows[1]["scores"]["ours"]["found"] == 1.0
    shown = CliRunner().invoke(detectors.main, ["--trials", "3"]).output
    assert "no step: gaussian" in shown


def test_the_bar_is_printed(monkeypatch):
    monkeypatch.setattr(step_bar, "LENGTHS", (20,))
    assert CliRunner().invoke(step_bar.main, ["--series", "100"]).stdout.strip().startswith("20: (")


# What stopping early costs, counted on recorded trials: nothing on quiet ones, few decisions on noisy ones.


@pytest.fixture(scope="module")
def looks() -> list[early_stop.OpenLook]:
    return list(early_stop.open_looks(DATA, draws=12, seed=15, stretches=(1.0, 10.0)))


@pytest.mark.slow
def test_no_case_of_the_recordings_as_they_are_is_stopped(looks: list[early_stop.OpenLook]) -> None:
    least = policy.load().settings().least_chance
    assert least == 0.05
    assert not [one for one in looks if one.stretch == 1.0 and one.chance < least]


def test_of_the_noisy_cases_that_are_stopped_few_would_have_been_decided(looks: list[early_stop.OpenLook]) -> None:
    stopped = [one for one in looks if one.chance < 0.05]
    assert len(stopped) > 100
    assert np.mean([one.decided for one in stopped]) < 0.05
    assert np.mean([one.saved for one in stopped]) > 4


def test_the_table_has_a_row_for_each_level(looks: list[early_stop.OpenLook]) -> None:
    assert len(list(early_stop.rows(looks))) == 1 + 2 * len(early_stop.LEVELS)


# The study of planted slow-downs, small: what it makes, finds and counts.


@pytest.mark.slow
def test_a_small_study_finds_what_it_planted(capsys: pytest.CaptureFixture[str]) -> None:
    assert planted.main(["--series", "120", "--commits", "120", "--planted", "12", "--sigma", "0.005"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["commits"], found["rows"]) == (120, 240 * 120)
    assert found["found"] == found["planted"] == {"4%": 6, "8%": 6}
    assert found["alarmed"] <= 1


def test_events_name_the_commit_of_a_step_in_a_range_that_was_measured_and_no_other() -> None:
    """The library's update, and 1 % of ours; all twenty take 20 s of CPU."""
    with ranges.repository() as (hashes, dates):
        scores = [ranges.score(ranges.planned(8, 1)[n], hashes, dates, n) for n in (1, 5)]
    assert [one.found for one in scores] == [one.planted.wanted for one in scores]
    assert [len(one.found) for one in scores] == [1, 1]


def test_the_same_seed_plants_the_same() -> None:
    plan = PlantedPlan(series=20, commits=30, planted=4)
    one, other = planted.frame(plan), planted.frame(plan)
    assert one.equals(other)
    assert {mark.series for mark in planted.planted(plan)} <= set(range(20))


@pytest.mark.slow
def test_what_can_be_told_of_a_place_is_bounded() -> None:
    """Of nearly normal values, a place is exact in 98.6 % of steps of 5 sigma and 76 % of 2.5 sigma (simulated)."""
    exact = [limit(size, 1.0, 1000.0, 0.0, 0.0, 0) for size in (5.0, 2.5, 1.0)]
    assert exact[:2] == pytest.approx([0.986, 0.76], abs=0.03)
    assert exact == sorted(exact, reverse=True)
    assert limit(2.5, 1.0, 1000.0, 0.0, 0.0, 2) > exact[1] + 0.1


# The table of the README, from records.


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    """Two commits of one kernel on one machine; the ratios are given, not derived."""
    rows = [
        {"commit": commit, "date": date, "case": case, "baseline_ratio": ratio}
        for commit, date, ratios in (("old", 1, (0.1, 0.1)), ("new", 2, (0.8, 1.25)))
        for case, ratio in zip("ab", ratios, strict=True)
    ]
    fixed = {"machine": "h200|x2", "device": "NVIDIA\x1b[1m H200", "count": 2, "kind": "gpu", "status": "ok"}
    frame = pd.DataFrame(rows).assign(**fixed, kernel="gemm", backend="tri`ton", baseline=False, baseline_name="blas")
    monkeypatch.setattr("tests.study.scoreboard.derive.derive", lambda records: records)
    return frame


def test_the_newest_commit_counts_and_names_are_inert(derived: pd.DataFrame) -> None:
    machine = "2 x NVIDIA&#91;1m H200 (h200&#124;x2)"
    assert list(scoreboard.rows(derived)) == [
        f"| {machine} | `gemm` | <code>tri&#96;ton</code> | 2 | 1.00 | 0.80 | 1.25 |"
    ]


def test_what_has_no_ratio_has_no_row(derived: pd.DataFrame) -> None:
    assert list(scoreboard.rows(derived.assign(baseline_ratio=np.nan))) == []


def test_what_is_no_peer_is_no_comparison(derived: pd.DataFrame) -> None:
    assert list(scoreboard.rows(derived.assign(baseline_name=scoreboard.NO_PEERS[0]))) == []


def test_both_regimes_over_the_cases_that_have_both():
    def row(case, backend, spaced, sustained, joules):
        times = [RegimeTime("a" * 40, "py", 1e-3, one, one, one) if one else None for one in (spaced, sustained)]
        own = JoulesPerCall(joules, joules, joules, 8, 1.0) if joules else None
        named = "h200x1", "NVIDIA H200", "gemm", case, backend, backend == "blas"
        return BesideRow(*named, times[1], times[0], own)

    nan = float("nan")
    rows = [row("a", "blas", nan, nan, 0.5), row("a", "triton", 1.0, 2.0, 0.4), row("b", "triton", 4.0, 0.5, None)]
    rows += [row("c", "triton", None, 9.0, None)]
    assert list(scoreboard.sustained_rows(rows)) == [
        "| NVIDIA H200 (h200x1) | `gemm` | `triton` | 2 | 2.000 | 1.000 | 0.800 |"
    ]


# On recorded trials: a start of the processes counts for as much as rounds, and kernels that share it are not tied.


FILES = sorted(DATA.glob("ab_trials_*.jsonl.gz"))


def starts_made(tau: float, of_round: float, common: float = 0.0) -> starts.Pairs:
    """Three cases of 200 starts; common: a shift that all cases of a start share."""
    random = np.random.default_rng(3)
    shared = random.normal(0.0, common, (200, 1)) if common else 0.0

    def pair() -> tuple[np.ndarray, np.ndarray]:
        base = np.exp(random.normal(0.0, of_round, (200, 40)))
        own = random.normal(0.0, tau, (200, 1)) + shared
        return base, np.exp(random.normal(0.0, of_round, (200, 40)) + own)

    return {name: pair() for name in "abc"}


def test_what_a_start_adds_is_found_again():
    for tau in (0.0, 0.002, 0.01):
        found = starts.between_starts(*starts_made(tau, 0.01)["a"])
        assert found == pytest.approx(tau, abs=0.0007, rel=0.1)


def test_kernels_that_are_tied_are_seen(monkeypatch):
    for common, is_tied in ((0.0, False), (0.01, True)):
        monkeypatch.setattr(starts, "pairs", lambda file, common=common: starts_made(0.004, 0.01, common))
        mean, _, spread = starts.tied([Path()])
        assert (mean > 0.5) == is_tied
        assert (spread > 3) == is_tied


def test_kernels_of_one_start_are_not_tied_on_an_h200():
    mean, error, spread = starts.tied(FILES)
    assert abs(mean) < 2 * error < 0.1
    assert 0.7 < spread < 1.35


def test_a_start_is_worth_tens_of_rounds_on_an_h200(capsys):
    for file in FILES:
        found = starts.pairs(file)
        for base, head in found.values():
            tau = starts.between_starts(base, head)
            assert 0.0003 < tau < 0.006
        assert len(list(starts.rows(found))) == 1 + len(found)
