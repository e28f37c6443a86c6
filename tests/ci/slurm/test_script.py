"""The text of batch scripts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ci.slurm import script
from ci.slurm.script import Allocation, batch

SMALL = Allocation("mi300x", "60", "/jobs/output-%a.txt", "/clone")


def test_all_options(golden: Callable[[str, str], None]) -> None:
    everything = Allocation(
        partition="mi300x",
        time="2:00:00",
        output="/jobs/my folder/output-%a.txt",
        chdir="/home/a user/clone#1",
        account="amd-frameworks",
        gres="gpu:mi300x:8",
        constraint="gfx942&nps1",
        exclusive=True,
        exclude=("node-3", "node-7"),
        requeue=False,
        shards=(0, 1, 2, 5),
        options=("--qos=benchmark", "--reservation=night run"),
    )
    golden("slurm/all_options.sh", batch(everything, "#!/bin/bash\necho hello\n"))


def test_nothing_of_the_submitter_enters_and_output_is_kept() -> None:
    lines = SMALL.lines()
    assert {"--export=NONE", "--open-mode=append", "--requeue", "--nodes=1"} <= set(lines)
    assert not any(line.startswith(("--gres", "--array", "--account", "--dependency")) for line in lines)


@pytest.mark.parametrize(
    ("numbers", "text"), [((0,), "0"), ((0, 1, 2), "0-2"), ((5, 1, 2, 9), "1-2,5,9"), ((3, 3), "3")]
)
def test_ranges(numbers: tuple[int, ...], text: str) -> None:
    assert script.ranges(numbers) == text


@pytest.mark.parametrize(
    ("time", "wanted"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-12", 129_600), ("1-12:30", 131_400), ("0-0:0:7", 7)],
)
def test_time_limits(time: str, wanted: int) -> None:
    assert script.seconds(time) == wanted


@pytest.mark.parametrize(("seconds", "text"), [(1, "1"), (60, "1"), (60.1, "2"), (3600, "60")])
def test_minutes(seconds: float, text: str) -> None:
    assert script.minutes(seconds) == text
