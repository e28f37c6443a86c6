"""Entries of the cases of a trial line, by name: what can be read off them, and that of a case that is not measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from benchmarks.plan import PlannedCase
from benchmarks.trial_file import Status


def failed(status: Status, why: str, detail: str = "") -> dict[str, Any]:
    """The entry of an arm that has no samples."""
    return {"status": status, "why": why, "detail": detail}


def skipped(case: PlannedCase) -> dict[str, Any]:
    """The entry of a case that cannot be measured here."""
    arms = {arm.key: failed(Status.SKIPPED, case.skip) for arm in case.arms}
    return {"method": case.method, "warnings": [], "arms": arms}


def compiling_s(cases: Mapping[str, Any]) -> float:
    """Seconds in which first calls compiled, or loaded what was compiled before."""
    return float(sum(arm.get("compile_s", 0.0) for arm in _arms(cases)))


def sound(cases: Mapping[str, Any]) -> bool:
    """Whether no arm failed; one that is skipped or not supported did not."""
    return not any(Status(arm["status"]).failed for arm in _arms(cases))


def _arms(cases: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    return (arm for case in cases.values() for arm in case["arms"].values())
