"""What a declaration offers, as `python -m benchmarks candidates` prints it."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.sweeps import catalogue
from ci.sweeps.catalogue import KnobFact
from ci.sweeps.measured import SweepError

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def gemm() -> catalogue.Catalogue:
    return catalogue.ask("gemm", ROOT, ["n4096_k4096_m16_fp16"], "gfx942")


def test_the_program_and_its_reader_agree(gemm: catalogue.Catalogue) -> None:
    assert (gemm.arch, gemm.backends) == ("gfx942", ["blas", "torch", "triton"])
    ours = gemm.of("n4096_k4096_m16_fp16", "triton")
    assert ours.knobs["num_warps"].kind == "int"
    assert ours.config.keys() == ours.knobs.keys()
    assert ours.cost.flops == 2 * 16 * 4096 * 4096
    assert ours.key
    assert not ours.baseline
    changes = [ours.overrides(one) for one in ours.candidates]
    assert changes[0] == {}, "the present choice comes first"
    assert all(ours.whole(change) == dict(one) for change, one in zip(changes, ours.candidates, strict=True))
    assert gemm.of("n4096_k4096_m16_fp16", "blas").baseline


def test_cases_are_chosen_by_pattern_or_tier(gemm: catalogue.Catalogue) -> None:
    assert gemm.chosen(["*_m16_*"], ["triton"], ()).backends == ["triton"]
    assert gemm.chosen([], [], ("pr",)).cases == ["n4096_k4096_m16_fp16"]
    assert gemm.chosen([], [], ("sweep",)).offers == ()
    with pytest.raises(SweepError, match="no case of gemm fits 'm17'; it has n4096"):
        gemm.chosen(["m17"], [], ())


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [("int", 3, 3.0), ("bool", True, 1), ("str", "a", 1), ("float", 1, True), ("int | None", 3, "x"), ("", "x", None)],
)
def test_values_have_the_type_of_the_knob(kind: str, good: object, bad: object) -> None:
    assert KnobFact("k", None, kind).refusal(good) == ""
    assert bool(KnobFact("k", None, kind).refusal(bad)) == bool(kind)
