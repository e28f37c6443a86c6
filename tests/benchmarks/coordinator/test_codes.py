"""An arm that runs other machine code than before is named; another knob, or no digest, is no change."""

from __future__ import annotations

from typing import Any

from benchmarks.coordinator.samples import CHANGED, CodesSeen


def looked(seen: CodesSeen, kernel: str, **arms: Any) -> list[str]:
    """The warnings of a trial of one case."""
    entry: dict[str, Any] = {"arms": arms, "warnings": []}
    seen.look(kernel, {"small": entry})
    return entry["warnings"]


def arm(code: str | None, **knobs: int) -> dict[str, Any]:
    return {"status": "ok", "code_hash": code, "knobs": knobs}


def test_the_arm_whose_code_is_another_is_named() -> None:
    seen = CodesSeen()
    assert looked(seen, "gemm", head=arm("a"), base=arm("a")) == []
    assert looked(seen, "gemm", head=arm("b"), base=arm("a")) == [f"head: {CHANGED}"]


def test_other_knobs_another_operator_and_an_unknown_code_are_no_change() -> None:
    seen = CodesSeen()
    for kernel, one in (("gemm", arm("a", warps=4)), ("gemm", arm("b", warps=8)), ("other", arm("c", warps=4))):
        assert looked(seen, kernel, head=one) == []
    assert looked(seen, "gemm", head=arm(None, warps=4), base={"status": "error"}) == []
