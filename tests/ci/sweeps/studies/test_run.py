"""Measuring the parts of a study: one after the other, from its points to its times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.types import Drawn, Listed, Study, StudyPart
from ci.harness import OneProgram
from ci.sweeps.catalogue import Catalogue
from ci.sweeps.pruning import Pruned
from ci.sweeps.run import Progressed, SweepPlan
from ci.sweeps.rungs import Rungs
from ci.sweeps.studies import run
from ci.sweeps.studies.run import ReadyPart, StudyAsked
from tests.ci.sweeps import driver


def test_a_part_is_compiled_ahead_when_the_one_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parts = tuple(StudyPart(name, ("*",)) for name in ("gemm", "norm"))
    study = Study("s", "S", "?", "", parts, Listed(("M",), ("us",)), (Drawn("f", "curve", "F"),))
    done: list[str] = []

    def ready(part: StudyPart) -> ReadyPart:
        points = {"m16": [Point("m16", "triton", {"num_warps": 2})]}
        return ReadyPart(part, Catalogue(part.operator, "gfx942", 304, ()), points, None, Rungs((8,)))

    def prune(catalogue: Catalogue, asked: Mapping[str, Sequence[Point]], *_: object) -> Pruned:
        done.append(f"{catalogue.operator} compiled")
        return Pruned(asked)

    def go_on(plan: SweepPlan, console: Console, follow: object) -> Progressed:
        done.append(f"{plan.operator} measured by {getattr(follow, '__self__', None) is program}")
        return Progressed(None, None)

    monkeypatch.setattr("ci.sweeps.studies.run.prune", prune)
    monkeypatch.setattr(run, "go_on", go_on)
    monkeypatch.setattr(run, "sweep_id", lambda *_: "f3a9")
    checkout = driver.plan(tmp_path / "x").checkout
    with OneProgram() as program:
        made = [ready(part) for part in parts]
        left = run.measured(study, made, checkout, StudyAsked(Path()), tmp_path / "x", program, Console(quiet=True))
    assert left == []
    assert done == ["gemm compiled", "gemm measured by True", "norm compiled", "norm measured by True"]
