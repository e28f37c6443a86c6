"""What `check` makes of executing the changed operators in an emulator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from ci.git.repository import Commit, LocalCheckout
from ci.harness import FAULTS, MEASURED, NOTHING, USAGE, ChildExit
from ci.isa import check
from ci.judging.types import Judgement, Verdict
from kernels.project import Layout

BASE, HEAD = (LocalCheckout(role, Path(role), Commit("0" * 40, 0, "")) for role in ("base", "head"))
PASSED = Judgement(Verdict.SAME, "equal code", machine_code=("SAME: equal",))
WRONG = "gemm m21_n88@12 triton on gfx942: wrong: the error is norm 0.1; written by BUFFER_STORE_SHORT"
ON_BOTH = WRONG.replace("gfx942", "gfx942, gfx950")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """How the child ends that looks at head ("exit") and at base ("base"), and head's command line ("argv")."""
    told: dict[str, Any] = {"exit": ChildExit(MEASURED), "base": ChildExit(MEASURED)}

    def follow(argv: list[str], *given: Any, **more: Any) -> ChildExit:
        if "head=base" in argv:
            of_base: ChildExit = told["base"]
            return of_base
        told["argv"] = argv
        exited: ChildExit = told["exit"]
        return exited

    monkeypatch.setattr(check, "follow", follow)
    monkeypatch.setattr(check.project, "place", lambda name: tmp_path / name)
    monkeypatch.setattr(check, "find_spec", lambda name: object())
    return told


def of(*kernels: str) -> Judgement:
    return check.executed(PASSED, BASE, HEAD, kernels, Console(quiet=True))


def test_right_operators_leave_the_verdict_and_are_named(program: dict[str, Any]) -> None:
    found = of("gemm", "rows")
    assert (found.verdict, found.why) == (Verdict.SAME, "equal code")
    assert found.machine_code[1:] == (
        "executed for gfx942 and gfx950 in an emulator: gemm, rows: every small case is right",
    )
    words = " ".join(program["argv"])
    assert "--kernel gemm --kernel rows" in words
    assert "--arch gfx942 --arch gfx950" in words


def test_a_wrong_output_is_broken_and_says_what_to_run(program: dict[str, Any]) -> None:
    program["exit"] = ChildExit(FAULTS, (WRONG, "registers of the wave", "s0=0x1"))
    found = of("gemm")
    assert found.verdict is Verdict.BROKEN
    assert found.why.startswith(WRONG)
    assert "`ridgeline verify --arch gfx942 --arch gfx950 --kernel gemm`" in found.why
    assert found.machine_code[-1] == WRONG


def test_a_fault_on_both_targets_is_one_line_that_names_them(program: dict[str, Any]) -> None:
    program["exit"] = ChildExit(FAULTS, (WRONG, WRONG.replace("gfx942", "gfx950")))
    found = of("gemm")
    assert found.why.startswith(ON_BOTH)
    assert found.machine_code[1:] == ("executed for gfx942 and gfx950 in an emulator: gemm: 1 not right", ON_BOTH)


def test_a_fault_that_base_has_too_is_told_and_is_no_pass(program: dict[str, Any]) -> None:
    program["exit"] = program["base"] = ChildExit(FAULTS, (WRONG,))
    found = of("gemm")
    assert found.verdict is Verdict.CANNOT_TELL
    assert found.why.startswith(f"not right in base either: {WRONG}")
    assert found.warnings == (f"not right in base either: {WRONG}",)
    on_950 = WRONG.replace("gfx942", "gfx950")
    program["exit"] = ChildExit(FAULTS, (WRONG, on_950))
    assert of("gemm").why.startswith(on_950)


def test_a_fault_that_base_has_under_an_older_name_is_not_head_s(
    program: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check.project, "layout", lambda path: Layout((), renamed={"old": "gemm"}))
    program["exit"] = ChildExit(FAULTS, (WRONG,))
    program["base"] = ChildExit(FAULTS, (WRONG.replace("gemm", "old"),))
    assert of("gemm").verdict is Verdict.CANNOT_TELL


def test_what_the_emulator_cannot_execute_is_said_and_never_broken(program: dict[str, Any]) -> None:
    left = "not executed: gemm m1 triton on gfx942: V_DOT9 cannot be executed"
    program["exit"] = ChildExit(MEASURED, (left,))
    found = of("gemm")
    assert found.verdict is Verdict.SAME
    assert found.machine_code[1:] == (
        "executed for gfx942 and gfx950 in an emulator: gemm: what was executed is right",
        left,
    )
    program["exit"] = ChildExit(NOTHING, (left,))
    assert of("gemm").machine_code[1:] == (left,)


@pytest.mark.parametrize(
    ("exit", "warned"),
    [(ChildExit(NOTHING), ()), (ChildExit(USAGE, ("error: no room",)), ("no room",)), (ChildExit(FAULTS), ("broken",))],
)
def test_what_was_not_executed_leaves_the_verdict(program: dict[str, Any], exit: ChildExit, warned: Any) -> None:
    program["exit"] = exit
    found = of("gemm")
    assert found.verdict is Verdict.SAME
    assert len(found.warnings) == len(warned)
    assert all(word in said for word, said in zip(warned, found.warnings, strict=True))


def test_without_the_extra_one_sentence_says_how(program: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "find_spec", lambda name: None)
    assert of("gemm").machine_code[-1].endswith("`pip install 'ridgeline[emulate]'` makes it so")
    assert "argv" not in program
