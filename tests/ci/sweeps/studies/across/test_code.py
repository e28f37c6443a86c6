"""Machine code that was compiled with a study is kept, and read again as it was."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from benchmarks.points import Point
from benchmarks.studies.types import Drawn, Listed, Study, StudyPart
from ci.sweeps.pruning import PointCompiler
from ci.sweeps.studies import changes, folder

STUDY = Study("s", "S", "?", "", (StudyPart("op", ("*",)),), Listed(("M",), ("us",)), (Drawn("f", "curve", "F"),))
COMPILER = PointCompiler(Path(), Console())
METRICS = {"vgpr": 12, "vgpr_spills": 0, "instructions": 100, "bytes_per_store": 16.0}


def answer():
    """What the compiling program writes: one point of AMD's, one of NVIDIA's names, one without anything to compile."""
    told = {"case": "m1", "status": "ok"}
    points = [
        {**told, "backend": "triton", "knobs": {}, "metrics": METRICS},
        {**told, "backend": "triton", "knobs": {"hint": False}, "metrics": {"registers": 9, "scratch_bytes": 4}},
        {**told, "backend": "gluon", "knobs": {}, "status": "failed", "why": "no", "metrics": None},
        {**told, "backend": "rccl", "knobs": {}, "status": "undeclared", "why": "nothing to compile"},
    ]
    return {"points": points}


@pytest.fixture
def compiled(monkeypatch):
    asked = []

    def told(self, operator, batches, arch, units, title):
        asked.append((arch, units, [one.label for one in batches[0].points]))
        return answer()

    monkeypatch.setattr(PointCompiler, "told", told)
    points = {"m1": [Point("m1", "triton"), Point("m1", "triton", {"hint": False})]}
    found = changes.compiled(STUDY, lambda part, arch, units: points, "sm_90", 132, COMPILER)
    return asked, found


def test_every_point_is_compiled_for_the_device_and_for_amd(compiled):
    asked, found = compiled
    assert [(arch, units) for arch, units, _ in asked] == [("gfx942", None), ("gfx950", None), ("sm_90", 132)]
    assert len(asked[0][2]) == 2
    assert len(found) == 9
    assert found[0].numbers == {"registers": 12, "spills": 0, "instructions": 100, "store_bytes": 16}
    assert found[1].numbers == {"registers": 9, "spills": 4}
    assert found[2].why == "failed: no"


def test_it_is_kept_beside_the_trial_file_and_taken_over(compiled, tmp_path):
    file, place = tmp_path / "s.jsonl", tmp_path / "place"
    changes.beside(file).write_text(changes.text_of(compiled[1]))
    assert changes.beside(file).name == "s.code.json"
    assert changes.read(place) == []
    folder.keep_code(place, [file, tmp_path / "other.jsonl"])
    assert changes.read(place) == compiled[1]


def test_nothing_is_compiled_for_a_cpu(monkeypatch):
    monkeypatch.setattr(PointCompiler, "told", lambda *_: {"points": []})
    asked = []
    changes.compiled(STUDY, lambda part, arch, units: asked.append(arch) or {}, "cpu", None, COMPILER)
    assert asked == ["gfx942", "gfx950"]
