"""An arm that runs other machine code than before is named; another knob, or no digest, is no change."""

from __future__ import annotations

from typing import Any

from benchmarks.coordinator.samples.codes import CodesSeen


def entries(**arms: Any) -> dict[str, Any]:
    return {"small": {"arms": arms}}


def arm(code: str | None, **knobs: int) -> dict[str, Any]:
    return {"status": "ok", "code_hash": code, "knobs": knobs}


def test_the_arm_whose_code_is_another_is_named() -> None:
    seen = CodesSeen()
    assert list(seen.changed("gemm", entries(head=arm("a"), base=arm("a")))) == []
    [said] = seen.changed("gemm", entries(head=arm("b"), base=arm("a")))
    assert said.startswith("small head: runs other machine code than in an earlier trial")


def test_other_knobs_another_operator_and_an_unknown_code_are_no_change() -> None:
    seen = CodesSeen()
    for kernel, one in (("gemm", arm("a", warps=4)), ("gemm", arm("b", warps=8)), ("other", arm("c", warps=4))):
        assert list(seen.changed(kernel, entries(head=one))) == []
    assert list(seen.changed("gemm", entries(head=arm(None, warps=4), base={"status": "error"}))) == []
