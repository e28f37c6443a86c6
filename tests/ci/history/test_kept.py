"""The gate's quality is counted from recorded answers, whatever else lies in their files."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from ci.history import kept
from ci.history.kept import CanaryCase, CanaryOutcome, CanaryRun


def run(number: int, planted: float, *verdicts: str, machine: str = "m", floor: float = 0.003) -> CanaryRun:
    cases = tuple(CanaryCase(f"c{n}", verdict, 1 + planted, 0.99, 1.02, 4) for n, verdict in enumerate(verdicts))
    at = f"2026-11-{number:02d}T02:23:00+00:00"
    return CanaryRun(f"{number}-{planted}", at, machine, "1 x MI300X", "a" * 40, planted, floor, cases)


@pytest.mark.parametrize(
    ("planted", "verdict", "outcome"),
    [
        (0.0, "SAME", CanaryOutcome.RIGHT),
        (0.0, "SLOWER", CanaryOutcome.FALSE),
        (0.0, "FASTER", CanaryOutcome.FALSE),
        (0.0, "CANNOT TELL", CanaryOutcome.UNDECIDED),
        (0.01, "SLOWER", CanaryOutcome.FOUND),
        (0.01, "FASTER", CanaryOutcome.FALSE),
        (0.01, "SAME", CanaryOutcome.MISSED),
        (0.01, "CANNOT TELL", CanaryOutcome.UNDECIDED),
        (0.002, "SAME", CanaryOutcome.BELOW),
    ],
)
def test_what_an_answer_is_worth(planted: float, verdict: str, outcome: CanaryOutcome) -> None:
    one = run(1, planted, verdict)
    assert one.outcome(one.cases[0]) is outcome


def test_quality_counts_every_answer_once() -> None:
    runs = [run(1, 0.0, "SAME", "SLOWER"), run(2, 0.0, "SAME", "CANNOT TELL"), run(1, 0.01, "SLOWER", "SAME")]
    none, one = kept.quality(runs)
    assert (none.planted, none.runs) == (0.0, 2)
    assert none.counts == {CanaryOutcome.RIGHT: 2, CanaryOutcome.FALSE: 1, CanaryOutcome.UNDECIDED: 1}
    assert one.counts == {CanaryOutcome.FOUND: 1, CanaryOutcome.MISSED: 1}
    assert one.worst == pytest.approx(0)
    assert math.isnan(kept.quality([run(1, 0.0)])[0].worst)


def add(folder: Path, runs: list[CanaryRun]) -> None:
    for one in runs:
        kept.CANARY.add(folder / "canary" / f"{one.machine}.jsonl", [one])


def test_runs_are_recorded_once_and_by_machine(tmp_path: Path) -> None:
    runs = [run(2, 0.0, "SAME"), run(1, 0.01, "SLOWER"), run(1, 0.0, "SAME", machine="other")]
    add(tmp_path, runs)
    add(tmp_path, runs)
    assert kept.canary_runs(tmp_path) == (sorted(runs, key=lambda one: (one.at, one.machine, one.planted)), [])
    assert sorted(path.name for path in (tmp_path / "canary").iterdir()) == ["m.jsonl", "other.jsonl"]


def test_lines_that_are_no_runs_are_told_and_stay(tmp_path: Path) -> None:
    add(tmp_path, [run(1, 0.0, "SAME")])
    path = tmp_path / "canary" / "m.jsonl"
    odd = [
        "{torn",
        "[]",
        '{"format": "else"}',
        kept.CANARY.line(run(5, 0.0)).replace('"planted": 0.0', '"planted": "1 %"'),
        kept.CANARY.line(run(6, 0.0)).replace('"version": 1', '"version": 2'),
    ]
    path.write_text(path.read_text() + "\n".join(odd))
    runs, problems = kept.canary_runs(tmp_path)
    assert [one.id for one in runs] == ["1-0.0"]
    assert [problem.split(": ")[0] for problem in problems] == [f"{path}:{n}" for n in range(2, 7)]
    add(tmp_path, [dataclasses.replace(runs[0], id="another")])
    assert all(line in path.read_text().splitlines() for line in odd)
    assert len(kept.canary_runs(tmp_path)[0]) == 2


def test_no_folder_is_no_run(tmp_path: Path) -> None:
    assert kept.canary_runs(tmp_path / "nowhere") == ([], [])
