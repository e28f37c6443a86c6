"""What became of the arms of a run or of a verification: counted once, for the exit code and for people."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.trial_file import FAILED, Status

LEFT_RUNNING = "left running"
"""In the warnings of a trial, about processes that had to be ended."""

MEASURED, FAULTS, NOTHING = 0, 1, 2
"""Exit codes: some arm is right and none is wrong, something is wrong, nothing was called."""


@dataclasses.dataclass(frozen=True)
class ArmFault:
    """An arm that ended as it must not.  arm: its name in the file, ROLE/BACKEND in a trial, BACKEND in a check."""

    kernel: str
    case: str
    arm: str
    status: Status
    why: str

    def in_words(self) -> str:
        """One line for people."""
        return f"{self.kernel} {self.case} {self.arm}: {self.status}: {self.why}"

    def as_json(self) -> dict[str, str]:
        """For machines."""
        return {"kernel": self.kernel, "case": self.case, "backend": self.arm, "status": self.status, "why": self.why}


@dataclasses.dataclass
class ArmTally:
    """What became of an arm's cases.  error: the largest against a reference, as a share of the reference's norm."""

    kernel: str
    name: str
    statuses: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    error: float | None = None

    def add(self, arm: Mapping[str, Any]) -> None:
        """Count one case."""
        self.statuses[arm["status"]] += 1
        if arm["status"] == Status.OK:
            self.error = max(arm["error"]["norm"], self.error or 0.0)

    def in_words(self) -> str:
        """One line for people."""
        counts = [f"{self.statuses[Status.OK]} of {self.statuses.total()} right"]
        others = (Status.WRONG, Status.ERROR, Status.HANG, Status.CRASH, Status.UNSUPPORTED, Status.SKIPPED)
        counts += [f"{self.statuses[status]} {status}" for status in others if status in self.statuses]
        error = f", error {self.error:.1e} at most" if self.error is not None else ""
        return f"{self.kernel}/{self.name}: {', '.join(counts)}{error}"


class Tally:
    """What became of all arms, and what is not right."""

    def __init__(self) -> None:
        self.arms: dict[tuple[str, str], ArmTally] = {}
        self.broken: dict[str, str] = {}
        self.reasons: collections.Counter[str] = collections.Counter()
        self.undeclared: list[str] = []
        self.left: list[str] = []
        self._faults: dict[tuple[str, ...], ArmFault] = {}

    @property
    def faults(self) -> list[ArmFault]:
        """Every arm that failed; if it did in several trials, as it did last."""
        return list(self._faults.values())

    def add_trial(self, line: Mapping[str, Any]) -> None:
        """Count the arms of a trial line."""
        for case, entry in line["cases"].items():
            for key, arm in entry["arms"].items():
                self._add(line["kernel"], case, key, arm)
        for role, checkout in line["trees"].items():
            self.broken.update({f"{role} {b['module']}": b["reason"] for b in checkout["broken"]})
        self.left += [f"{line['kernel']}: {one}" for one in line["warnings"] if LEFT_RUNNING in one]
        if not any(checkout["declaration"] for checkout in line["trees"].values()):
            self.undeclared.append(line["kernel"])

    def add_check(self, line: Mapping[str, Any]) -> list[str]:
        """Count the arms of a line of checks; returns a sentence for each that is not right."""
        machine = line.get("holds_for", {}).get("machine", "")
        found = [self._add(line["kernel"], line["case"], name, arm, machine) for name, arm in line["arms"].items()]
        self.broken.update({module["module"]: module["reason"] for module in line["broken"]})
        return [fault.in_words() for fault in found if fault]

    def _add(self, kernel: str, case: str, name: str, arm: Mapping[str, Any], machine: str = "") -> ArmFault | None:
        self.arms.setdefault((kernel, name), ArmTally(kernel, name)).add(arm)
        if arm["status"] not in FAILED:
            self.reasons.update([] if arm["status"] == Status.OK else [arm["why"]])
            return None
        fault = ArmFault(kernel, case, name, Status(arm["status"]), arm["why"])
        self._faults[kernel, case, name, machine] = fault
        return fault

    def count(self, status: Status) -> int:
        """Arms with a status."""
        return sum(arm.statuses[status] for arm in self.arms.values())

    def exit_code(self, asked: Sequence[str]) -> int:
        """A broken module is a fault unless the kernels asked for are all there."""
        if self._faults or self.undeclared or (self.broken and not asked):
            return FAULTS
        return MEASURED if self.count(Status.OK) else NOTHING

    def not_measured(self) -> list[str]:
        """What was not measured, and why, and what a backend left running; one sentence each."""
        found = [fault.in_words() for fault in self._faults.values()]
        found += [f"broken module, {module}: {why}" for module, why in self.broken.items()]
        found += self.left
        found += [f"no kernel {name!r} in any module that imports" for name in dict.fromkeys(self.undeclared)]
        if not self.count(Status.OK):
            counts = [f"{n} {status}" for status in sorted(Status) if (n := self.count(status))]
            found.append(f"nothing was measured: {', '.join(counts) or 'no case of this tier'}")
        return found

    def as_json(self) -> dict[str, Any]:
        """A verification, for machines."""
        arms = [
            {"kernel": arm.kernel, "backend": arm.name, "cases": arm.statuses, "largest_error": arm.error}
            for arm in self.arms.values()
        ]
        return {
            "right": self.count(Status.OK),
            "wrong": len(self._faults),
            "unsupported": self.count(Status.UNSUPPORTED),
            "skipped": self.count(Status.SKIPPED),
            "faults": [fault.as_json() for fault in self._faults.values()],
            "broken": self.broken,
            "reasons": self.reasons,
            "backends": arms,
        }

    def in_words(self) -> str:
        """A verification, for people."""
        lines = [arm.in_words() for arm in self.arms.values()]
        lines += [f"  {count} times: {why}" for why, count in self.reasons.items()]
        lines += [f"broken module {module}: {why}" for module, why in self.broken.items()]
        right, wrong = self.count(Status.OK), len(self._faults)
        unsupported, skipped = self.count(Status.UNSUPPORTED), self.count(Status.SKIPPED)
        lines.append(f"{right} right, {wrong} not right; {unsupported} unsupported and {skipped} not for this machine")
        return "\n".join(lines)
