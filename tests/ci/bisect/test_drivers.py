"""Which driver, from records: paired by the code that they ran, the newest ones held back to see a step again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from ci.__main__ import USAGE, main
from ci.bisect import outcomes as drivers
from ci.bisect.axes import BisectError
from ci.harness import MeasurePlan
from ci.options import NO_VERDICT, PASS
from tests.ci.history import made

OLD, MIDDLE, NEW = "580.159.04", "580.65.06", "595.3.1"
IN_ORDER = [MIDDLE, OLD, NEW]
SAME = {"kind": "gpu", "torch": "2.11", "triton": "3.6", "library": "", "method": "events", "case_yardstick": "1"}
PLAN = MeasurePlan(kernels=("gemm",), cases=("gemm/m64",))


def lines(slower: float, codes: Sequence[str] = ("c1", "c1", "c1"), count: int = 6) -> list[made.Line]:
    """`count` records of gemm under each driver, at times that are not in the order of the drivers."""
    rng = np.random.default_rng(3)
    return [
        made.Line(
            "gemm", "m64",
            [5e-5 * (slower if driver == NEW else 1.0) * float(np.exp(0.003 * rng.normal())) for _ in range(count)],
            at=[3 * n + (1, 0, 2)[place] for n in range(count)],
            more={**SAME, "driver": driver, "code": codes[place]},
        )
        for place, driver in enumerate(IN_ORDER)
    ]  # fmt: skip


@pytest.fixture
def recorded(monkeypatch):
    """What the records are."""
    return lambda some: monkeypatch.setattr(drivers.store, "load", lambda results: made.frame(some))


def run(*words: object):
    return CliRunner().invoke(main, ["bisect", "--axis", "driver", "--case", "gemm/m64", *map(str, words)])


def test_the_driver_is_found_and_the_versions_are_in_the_order_of_their_numbers(recorded) -> None:
    recorded(lines(1.06))
    done = run("--json")
    assert done.exit_code == PASS, done.output
    found = json.loads(done.stdout)
    assert (found["verdict"], found["first_bad"], found["axis"]) == ("FOUND", NEW, "driver")
    assert (found["good"], found["bad"]) == (MIDDLE, NEW)
    assert found["culprits"][0]["ratio"] == pytest.approx(1.06, abs=0.01)
    assert found["trials"] == 6 + 5 + 1, "the newest record of the last driver is against that of the one before it"
    shown = run().stdout
    assert f"first bad driver: {NEW}: +6" in shown
    assert "after 12 records" in shown


def test_the_drivers_that_are_named_are_compared_in_their_order(recorded) -> None:
    recorded(lines(1.06))
    done = run(NEW, OLD, "--json")
    assert done.exit_code == PASS, done.output
    assert json.loads(done.stdout)["culprits"][0]["ratio"] == pytest.approx(1 / 1.06, abs=0.01)
    unknown = run(OLD, "590.1")
    assert unknown.exit_code == USAGE
    said = " ".join(unknown.stderr.split())
    assert f"is of driver '590.1'; recorded are {MIDDLE}, {OLD}, {NEW}" in said


def test_one_record_of_each_decides_nothing(recorded) -> None:
    recorded(lines(1.06, count=1))
    done = run()
    assert done.exit_code == NO_VERDICT
    assert "it takes more records of these drivers" in done.stdout


def test_no_step_is_an_answer(recorded) -> None:
    recorded(lines(1.0, count=30))
    done = run()
    assert done.exit_code == PASS, done.output
    assert done.stdout.startswith(f"no step of 2 % or more between {MIDDLE} and {NEW}")


def test_records_of_other_code_are_not_compared(recorded) -> None:
    recorded(lines(1.06, codes=("c1", "c1", "c2")))
    with pytest.raises(BisectError, match=f"{NEW} has no record of the code, torch and Triton that {MIDDLE} has"):
        drivers.of_records(Path("results"), PLAN)
    other = made.Line("gemm", "m16", [1e-5], more={**SAME, "driver": "1.0", "code": "c1"})
    recorded([*lines(1.06)[:1], other])
    with pytest.raises(BisectError, match=f"are of {MIDDLE} alone; two drivers are compared"):
        drivers.of_records(Path("results"), PLAN)
    recorded([made.Line("gemm", "m64", [1e-5], more={**SAME, "driver": "", "code": "c1"})])
    with pytest.raises(BisectError, match="no record of it has a driver"):
        drivers.of_records(Path("results"), PLAN)
