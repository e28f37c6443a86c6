"""Machine health on made machines: one slow GPU of eight, a capped clock, noise, a machine that dropped out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from ci.history import readings
from ci.history.health import (
    DAY_MS,
    PERSISTENT,
    RULES,
    HealthPoint,
    HealthSeries,
    Measure,
    all_findings,
    all_series,
    findings,
    machines,
)
from ci.history.readings import DeviceHealth, HealthRecord, SessionNoise, TrialHealth
from ci.history.types import CommitFacts
from tests.ci import made_trials

COMMITS = [f"{n:040x}" for n in range(400)]
FACTS = {commit: CommitFacts(commit, n * DAY_MS, "A. Author", f"change {n}") for n, commit in enumerate(COMMITS)}


def night(
    day: int, clocks: list[float], machine: str = "mi300x-8", operator: str = "gemm", **facts: list[float]
) -> TrialHealth:
    devices = tuple(
        DeviceHealth(clock, 700.0, facts.get("temperature", [60.0] * len(clocks))[n], 0.2, 0.0, 48.0)
        for n, clock in enumerate(clocks)
    )
    return TrialHealth(machine, "8 x MI300X", day * DAY_MS, COMMITS[day], f"s{day}", operator, devices)


def eight(rng: np.random.Generator, slow: float = 0.0) -> list[float]:
    """Clocks of eight GPUs, 0.5 % apart by chance; number 3 is slower."""
    clocks = 1900 * (1 + 0.005 * rng.standard_normal(8))
    clocks[3] *= 1 - slow
    return [float(clock) for clock in clocks]


def test_eight_equal_gpus_have_no_event_in_a_year() -> None:
    rng = np.random.default_rng(2)
    assert all_findings(HealthRecord(tuple(night(day, eight(rng)) for day in range(365)))) == []


def test_a_machine_with_a_capped_clock_is_found_beside_its_peers() -> None:
    rng = np.random.default_rng(4)
    trials = []
    for day in range(30):
        trials += [night(day, eight(rng), machine) for machine in ("mi300x-a", "mi300x-b", "mi300x-c")]
        capped = [clock * (0.9 if day >= 10 else 1.0) for clock in eight(rng)]
        trials.append(night(day, capped, "mi300x-d"))
    found = all_findings(HealthRecord(tuple(trials)))
    assert [(one.machine, one.who, one.measure, one.since.commit) for one in found] == [
        ("mi300x-d", "machine", Measure.CLOCK, COMMITS[10])
    ]


def frame_of(slow_from: int, machines_: tuple[str, ...] = ("m-a", "m-b", "m-c")) -> pd.DataFrame:
    """Baselines of 8 cases on machines of a product, 30 commits; the last is 5 % slower from a day on."""
    rng = np.random.default_rng(5)
    rows = [
        {
            "machine": machine,
            "kind": "gpu",
            "device": "MI300X",
            "count": 1,
            "env": "e",
            "kernel": "gemm",
            "backend": "blas",
            "baseline": True,
            "case": f"c{case}",
            "case_yardstick": "y",
            "status": "ok",
            "commit": COMMITS[day],
            "date": pd.Timestamp(day * DAY_MS, unit="ms", tz="UTC"),
            "seconds": 1e-3
            * (case + 1)
            * (1.05 if machine == machines_[-1] and day >= slow_from else 1.0)
            * (1 + 0.003 * rng.standard_normal()),
        }
        for day in range(30)
        for machine in machines_
        for case in range(8)
    ]
    return pd.DataFrame(rows)


def test_a_machine_whose_library_is_slower_than_on_its_peers() -> None:
    found = all_findings(HealthRecord(), frame_of(slow_from=12))
    assert [(one.machine, one.measure, one.since.commit) for one in found] == [("m-c", Measure.BASELINES, COMMITS[12])]
    assert found[0].ratio == pytest.approx(1.05, abs=0.005)
    assert all_findings(HealthRecord(), frame_of(slow_from=99)) == []
    assert all_series(HealthRecord(), frame_of(slow_from=0, machines_=("alone",))) == []


def test_a_noisy_machine_is_told_but_is_no_event() -> None:
    rng = np.random.default_rng(6)
    noise = [0.004 * (1 + 0.2 * rng.standard_normal()) * (4 if day >= 15 else 1) for day in range(30)]
    sessions = tuple(
        SessionNoise("m", day * DAY_MS, COMMITS[day], f"s{day}", value, 9) for day, value in enumerate(noise)
    )
    found = all_findings(HealthRecord((), sessions))
    assert [(one.measure, one.since.commit, one.ended) for one in found] == [(Measure.NOISE, COMMITS[15], None)]


def test_a_machine_not_seen_for_nine_days_is_told_by_the_others() -> None:
    trials = [night(day, [1900.0] * 8, "here") for day in range(20)]
    trials += [night(day, [1900.0] * 8, "gone") for day in range(11)]
    seen = {one.machine: (one.behind_days, one.unseen) for one in machines(HealthRecord(tuple(trials)))}
    assert seen == {"gone": (9.0, True), "here": (0.0, False)}


@pytest.mark.parametrize("measure", list(Measure))
def test_findings_equal_a_slow_search_for_runs(measure: Measure) -> None:
    """The oracle looks at every window of PERSISTENT points from every place."""
    rng = np.random.default_rng(7)
    rule = RULES[measure]
    for _ in range(40):
        peers = 100.0
        away = rng.choice([0.0, 0.3, 0.7, 1.2, 3.0], 30)  # none on a limit, where rounding decides
        values = [peers * (1 + rule.worse * rule.least * a) if rule.relative else peers + rule.least * a for a in away]
        series = HealthSeries.of("m", "machine", measure, (HealthPoint(n, "", v, peers) for n, v in enumerate(values)))
        found = [(one.since.at_ms, one.ended.at_ms if one.ended else None) for one in findings(series)]
        assert found == _runs(list(rule.apart(series.values, series.peers)))


def _runs(apart: list[float]) -> list[tuple[int, int | None]]:
    found: list[tuple[int, int | None]] = []
    place = 0
    while True:
        windows = [n for n in range(place, len(apart) - PERSISTENT + 1) if min(apart[n : n + PERSISTENT]) >= 1]
        if not windows:
            return found
        begin = windows[0]
        ends = [
            n for n in range(begin + PERSISTENT, len(apart) - PERSISTENT + 1) if max(apart[n : n + PERSISTENT]) <= 0.5
        ]
        found.append((begin, ends[0] if ends else None))
        if not ends:
            return found
        place = ends[0] + PERSISTENT


# ---- what is read of a trial -----------------------------------------------------------------------------------------


def reading(clock: float, power: float, throttle: str, others: int = 1) -> dict[str, object]:
    one = {"sm_clock_mhz": clock, "power_w": power, "temperature_c": power / 10, "throttle": throttle}
    return {**one, "others": [{**one, "sm_clock_mhz": clock - 100}] * others}


def line(day: int = 0, **facts: object) -> dict[str, object]:
    during = [
        reading(345, 80, "idle"),
        reading(1980, 120, "none"),
        reading(1500, 690, "software power cap"),
        reading(1400, 695, "software power cap, hardware thermal"),
    ]
    return {**made_trials.trial(minute=day), "state": {"during": during}, **facts}


def test_devices_are_read_at_work_only() -> None:
    health = readings.of_trial(made_trials.parsed(line()))
    first, second = health.devices
    assert (first.clock_mhz, second.clock_mhz) == (1450.0, 1350.0)
    assert (first.power_w, first.temperature_c, first.capped, first.throttled) == (692.5, 69.5, 1.0, 0.5)
    assert (health.product, health.commit) == ("2 × NVIDIA H200", made_trials.HEAD)


def test_links_are_of_the_home_that_was_used() -> None:
    homes = {"ipc": {"gbs": [[0.0, 10.0], [20.0, 0.0]]}, "torch": {"gbs": [[0.0, 1.0], [1.0, 0.0]]}}
    found = readings.of_trial(made_trials.parsed(line(heap={"w2": {"home": "ipc", "homes": homes}})))
    assert [device.link_gbs for device in found.devices] == [10.0, 10.0]


def test_a_gpu_that_takes_longer_than_the_others_shows_in_its_rank() -> None:
    arms = {name: {**made_trials.ok([1.1] * 4), "rank_s": [1.0, 1.1]} for name in ("head/blas", "head/triton")}
    part = {"head/triton": {**made_trials.ok([9.0] * 4), "rank_s": [9.0]}}  # of fewer ranks than devices: not counted
    found = readings.of_trial(
        made_trials.parsed({**made_trials.trial({"m16": arms, "m64": part}), "state": line()["state"]})
    )
    assert found.devices[1].pace / found.devices[0].pace == pytest.approx(1.1)
    assert readings.of_trial(made_trials.parsed(line())).devices[0].pace is None


def test_noise_is_the_deviation_between_trials() -> None:
    rng = np.random.default_rng(8)
    trials = []
    for number in range(40):
        level = float(1e-3 * np.exp(0.01 * rng.standard_normal()))
        arms = {"head/blas": made_trials.ok([level] * 8), "head/triton": made_trials.ok([1e-3 * (1 + number)] * 8)}
        trials.append(made_trials.parsed(made_trials.trial({"m16": arms}, number=number)))
    (found,) = readings.noise_of(trials)
    assert found.noise == pytest.approx(0.01, rel=0.25)  # 40 trials: +-11 % is one standard error
    assert readings.noise_of(trials[:1]) == []


def test_notes_are_read_once_and_again_when_they_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "h200x2-1a2b3c4d"
    folder.mkdir()
    notes = made_trials.write(folder / "aaaaaaaa-env.notes.jsonl", line())
    fresh = readings.load(tmp_path)
    reads: list[Path] = []
    read = readings.read
    monkeypatch.setattr(readings, "read", lambda path: reads.append(path) or read(path))
    assert readings.load(tmp_path) == fresh
    assert reads == []
    made_trials.write(notes, line(), line(1))
    assert len(readings.load(tmp_path).trials) == 2
    assert reads == [notes]
    (tmp_path / ".cache" / f"health-{folder.name}.note").write_text("{torn")
    assert len(readings.load(tmp_path).trials) == 2
    assert readings.load(tmp_path / "nowhere") == HealthRecord()
