"""What a declaration offers, as `python -m benchmarks candidates` prints it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from ci.harness import OneProgram
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
    assert ours.tuned.place.key
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


def test_operators_of_a_study_are_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def produce(argv: list[str], out: Path, *_: object) -> None:
        asked.append([word for flag, word in zip(argv, argv[1:], strict=False) if flag in ("--kernel", "--arch")])
        entries = [{"kernel": name, "case": "m16", "backend": name, "knobs": {}} for name in ("gemm", "norm")]
        arch = asked[-1][2] if len(asked[-1]) > 2 else "gfx942"
        out.write_text(json.dumps({"entries": entries, "arch": arch, "compute_units": 304}))

    monkeypatch.setattr(catalogue, "produce", produce)
    known = catalogue.Catalogues(ROOT, ["gemm", "norm", "gemm"], OneProgram(), Console(quiet=True))
    assert [known.of(name).backends for name in ("gemm", "norm")] == [["gemm"], ["norm"]]
    assert known.of("norm", "gfx942", 304) is known.of("norm"), "this machine's, by its name"
    assert known.of("norm", "gfx950").arch == "gfx950"
    assert asked == [["gemm", "norm"], ["gemm", "norm", "gfx950"]]


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [("int", 3, 3.0), ("bool", True, 1), ("str", "a", 1), ("float", 1, True), ("int | None", 3, "x"), ("", "x", None)],
)
def test_values_have_the_type_of_the_knob(kind: str, good: object, bad: object) -> None:
    assert KnobFact("k", None, kind).refusal(good) == ""
    assert bool(KnobFact("k", None, kind).refusal(bad)) == bool(kind)
