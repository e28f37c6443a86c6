"""What a change of nothing but tables of tuned knobs measures."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.reach.operators import Reach
from ci.commands.common import measuring
from ci.git.repository import Commit, LocalCheckout
from ci.harness import MeasurePlan

WARPS = {"base": {"small": 8, "large": 8, "nightly": 8}, "head": {"small": 8, "large": 4, "nightly": 16}}
PLAN = MeasurePlan(kernels=("rms",))
TABLES = Reach(differing={"rms": ("perf/tuned.toml",)})


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The architectures that were asked for."""
    arches: list[str] = []

    def query(verb: str, *words: str) -> dict[str, object]:
        options = dict(zip(words[::2], words[1::2], strict=True))
        arches.append(options["--arch"])
        knobs = WARPS[Path(options["--tree"]).name]
        about = {"kernel": "rms", "backend": "triton"}
        return {"entries": [{**about, "case": case, "config": {"num_warps": warps}} for case, warps in knobs.items()]}

    for role, rows in WARPS.items():
        (tmp_path / role / "perf").mkdir(parents=True)
        table = f"[gfx950.large]\nnum_warps = {rows['large']}\n[sm_90.x]\na = 1\n"
        (tmp_path / role / "perf/tuned.toml").write_text(table)
    monkeypatch.setattr(measuring, "query", query)
    monkeypatch.setattr(measuring, "machine_kind", lambda: "cpu")
    return arches


def planned(folder: Path, reach: Reach, plan: MeasurePlan = PLAN) -> MeasurePlan:
    sides = [LocalCheckout(role, folder / role, Commit("1" * 40, 0, "")) for role in WARPS]
    return measuring.with_changed_rows(plan, reach, sides, Console(file=io.StringIO()))


def test_the_cases_whose_rows_changed_are_measured_of_whatever_tier(tmp_path: Path, asked: list[str]) -> None:
    found = planned(tmp_path, TABLES)
    assert (found.tier, found.cases) == ("sweep", ("large", "nightly"))
    assert set(asked) == {"gfx950"}, "the sections that differ say for which targets to ask"


@pytest.mark.parametrize(
    ("reach", "plan"),
    [
        (Reach(differing={"rms": ("perf/tuned.toml", "perf/rms.py")}), PLAN),
        (Reach(unknown="nobody knows"), PLAN),
        (TABLES, MeasurePlan(kernels=("rms",), cases=("small",))),
    ],
)
def test_other_changes_are_measured_as_ever(tmp_path: Path, asked: list[str], reach: Reach, plan: MeasurePlan) -> None:
    assert planned(tmp_path, reach, plan) == plan
    assert not asked


def test_rows_that_no_case_uses_leave_the_plan(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(WARPS, "head", WARPS["base"])
    assert planned(tmp_path, TABLES) == PLAN
