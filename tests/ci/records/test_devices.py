"""What each GPU reported while it measured, read of trials and kept with their rows."""

from __future__ import annotations

from pathlib import Path

from ci.records import store
from ci.records.devices import DeviceAtWork, combined, devices_at_work, devices_in, devices_text
from tests.ci import made_trials


def reading(clock: float, power: float, throttle: str) -> dict[str, object]:
    """Of two devices, the second 100 MHz slower."""
    first = {"sm_clock_mhz": clock, "power_w": power, "temperature_c": power / 10, "throttle": throttle}
    return {**first, "others": [{**first, "sm_clock_mhz": clock - 100}]}


DURING = [
    reading(345, 80, "idle"),
    reading(1980, 120, "none"),
    reading(1500, 690, "software power cap"),
    reading(1400, 695, "software power cap, hardware thermal"),
]


def line(**facts: object) -> dict[str, object]:
    return {**made_trials.trial(), "state": {"during": DURING}, **facts}


def test_devices_are_read_at_work_only() -> None:
    first, second = devices_at_work([made_trials.parsed(line())])
    assert first == DeviceAtWork(1450.0, 692.5, 69.5, 0.5)
    assert second == first._replace(clock_mhz=1350.0)
    assert devices_at_work([made_trials.parsed(line(state={}))]) == []


def test_several_trials_keep_the_median_and_the_worst_of_heat() -> None:
    trials = [[DeviceAtWork(1000.0 + n, 700.0, 60.0 + n, None)] for n in range(3)]
    assert combined([*trials, []]) == [DeviceAtWork(1001.0, 700.0, 62.0, None)]


def test_the_rows_of_a_record_say_what_its_gpus_did(tmp_path: Path) -> None:
    store.record([made_trials.write(tmp_path / "trials.jsonl", line())], tmp_path / "results")
    texts = set(store.load(tmp_path / "results")["devices"])
    assert [devices_in(text) for text in texts] == [devices_at_work([made_trials.parsed(line())])]
    assert devices_text([]) == ""
    assert devices_in("") == []
