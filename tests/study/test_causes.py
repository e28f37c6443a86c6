"""The study of causes: its plants apply, a few are explained here, and the committed table holds its promise."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from ci.harness import HARNESS
from tests.study.causes import __main__ as causes
from tests.study.causes.planting import Plant, has, plants, trees
from tests.study.causes.played import RecordedNoise

RECORDINGS = Path(__file__).parents[1] / "recordings" / "h200"
COMMITTED = HARNESS / "tests" / "study" / "causes" / "causes.json"

KINDS = (
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
    assert Counter(one.kind for one in plants()) == dict.fromkeys(KINDS, 5)


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
    said = causes.one_plant(plant(kind), 0.03, RecordedNoise.of(RECORDINGS, 1), tmp_path, compile_code=False)
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
