"""`ridgeline plot`: every kind is drawn of these records, the same bytes each time; errors say what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboards import figures
from dashboards.frame import lanes
from tests.dashboards import synthetic
from tests.dashboards.made_history import MI300X

FRAME = synthetic.lively(20)
ASKED = {
    "history": ["--kernel", "gemm", "--case", "llm_up_m4096"],
    "backends": ["--kernel", "all_gather"],
    "shapes": ["--kernel", "all_gather"],
    "roofline": [],
}


@pytest.fixture(autouse=True)
def records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(figures.Chosen, "lanes", lambda self: lanes(FRAME))


@pytest.mark.parametrize("kind", ASKED)
def test_the_same_records_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{n}.svg" for n in range(2)]
    for path in paths:
        assert figures.main([kind, *ASKED[kind], "--machine", MI300X, "--out", str(path)]) == 0
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert b"<svg" in paths[0].read_bytes()
    assert sorted(tmp_path.iterdir()) == sorted(paths)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["history", "--kernel", "gemm"], "a figure 'history' needs --case"),
        (
            ["backends", "--kernel", "gone", "--machine", MI300X],
            f"there are no records of gone on {MI300X}; there is: ",
        ),
        (["backends", "--kernel", "gemm"], "several machines have records of gemm; name one with --machine"),
        (
            ["history", "--kernel", "gemm", "--machine", MI300X, "--case", "x"],
            "gemm has no case 'x'; it has: llm_down_m64",
        ),
        (["scaling", "--kernel", "gemm"], "no problem of gemm was measured with two numbers of ranks"),
    ],
)
def test_an_error_says_what_there_is(
    asked: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert figures.main([*asked, "--out", str(tmp_path / "x.svg")]) == 3
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_without_records_the_next_step_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures.Chosen, "lanes", lambda self: [])
    assert figures.main(["roofline", "--results", "here", "--out", str(tmp_path / "x.svg")]) == 3
    assert "here holds no records; `ridgeline run` measures" in capsys.readouterr().err
