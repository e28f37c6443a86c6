"""Is every backend right in every case on this machine?  Each is called and compared; nothing is timed.

One line of JSON for each case, as soon as it is done, so that the same command goes on where it was stopped: what was
right with the same files of the kernel, in the same environment and on the same machine, is not tried again.

    python -m benchmarks.verify results/checks/h200.jsonl.gz

says again what such files hold, of each case and machine the last line.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.coordinator.checkouts import Tree
from benchmarks.coordinator.trial import Progress, Session
from benchmarks.plan import PlannedCase, Protocol, Selection
from benchmarks.trial_file import clean

FORMAT, VERSION = "ridgeline-check", 1

FAULTY = ("wrong", "error", "hang", "crash")
"""Statuses of an arm that is not right."""

SETTLED = ("ok", "unsupported", "skipped")
"""Statuses of an arm that another try would give again."""


def verify(
    kernels: Sequence[str],
    tree: Tree,
    out: Path,
    selection: Selection,
    seed: int = 0,
    deadline_s: float = Protocol.deadline_s,
    on_progress: Progress | None = None,
) -> Iterator[tuple[dict[str, Any], bool]]:
    """(line of a case, whether it is new): what `out` knows already, then what is left, for the caller to append.

    A line: kernel, case, tier, world, dtype; `arms` by backend (status, why, norm and peak of the error, knobs,
    code_hash); `holds_for`: kernel_digest, environment, machine, seed, knobs.  Raises UsageError or TreeError before
    anything runs.
    """
    protocol = Protocol(rounds=0, trials=1, cache="hot", seed=seed, deadline_s=deadline_s)
    session = Session([tree], protocol, selection, on_progress)
    try:
        session.describe()
        plans = session.plans(session.choose(kernels))
        about = {name: _about(session, name, seed) for name in plans}
        known = settled(_lines(out), {name: facts["holds_for"] for name, facts in about.items()})
        left: dict[str, list[PlannedCase]] = {}
        for name, cases in plans.items():
            for case in cases:
                wanted = [arm.backend for arm in case.arms]
                line = known.get((name, case.name), {"arms": {}})
                if line["arms"].keys() >= set(wanted):
                    yield {**line, "arms": {backend: line["arms"][backend] for backend in wanted}}, False
                else:
                    left.setdefault(name, []).append(case)
        for name, entry in session.checks(left):
            yield _line(session, name, entry, about[name]), True
    finally:
        session.close()


@dataclasses.dataclass
class Backend:
    """What became of a backend's cases.  error: the largest against a reference, as a share of the reference's norm."""

    kernel: str
    name: str
    statuses: dict[str, int] = dataclasses.field(default_factory=dict)
    error: float | None = None

    def add(self, arm: Mapping[str, Any]) -> None:
        """Count one case."""
        self.statuses[arm["status"]] = self.statuses.get(arm["status"], 0) + 1
        if arm["status"] == "ok":
            self.error = max(arm["error"]["norm"], self.error or 0.0)

    def in_words(self) -> str:
        """A line for a terminal."""
        counts = [f"{self.statuses.get('ok', 0)} of {sum(self.statuses.values())} right"]
        counts += [
            f"{self.statuses[name]} {name}" for name in (*FAULTY, "unsupported", "skipped") if name in self.statuses
        ]
        error = f", error {self.error:.1e} at most" if self.error is not None else ""
        return f"{self.kernel}/{self.name}: {', '.join(counts)}{error}"


class Summary:
    """What became of every backend, and what is not right."""

    def __init__(self) -> None:
        self.backends: dict[tuple[str, str], Backend] = {}
        self.faults: list[dict[str, str]] = []
        self.broken: dict[str, str] = {}
        self.reasons: dict[str, int] = {}

    def add(self, line: Mapping[str, Any]) -> list[str]:
        """Count the arms of a line; returns a sentence for each that is not right."""
        kernel, case, found = line["kernel"], line["case"], []
        for name, arm in line["arms"].items():
            self.backends.setdefault((kernel, name), Backend(kernel, name)).add(arm)
            if arm["status"] in FAULTY:
                self.faults.append(
                    {"kernel": kernel, "case": case, "backend": name, "status": arm["status"], "why": arm["why"]}
                )
                found.append(f"{kernel} {case} {name}: {arm['status']}: {arm['why']}")
            elif arm["status"] != "ok":
                self.reasons[arm["why"]] = self.reasons.get(arm["why"], 0) + 1
        self.broken.update({module["module"]: module["reason"] for module in line["broken"]})
        return found

    def count(self, *statuses: str) -> int:
        """Arms with one of these statuses."""
        return sum(backend.statuses.get(status, 0) for backend in self.backends.values() for status in statuses)

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        return {
            "right": self.count("ok"),
            "wrong": len(self.faults),
            "unsupported": self.count("unsupported"),
            "skipped": self.count("skipped"),
            "faults": self.faults,
            "broken": self.broken,
            "reasons": self.reasons,
            "backends": [
                {"kernel": b.kernel, "backend": b.name, "cases": b.statuses, "largest_error": b.error}
                for b in self.backends.values()
            ],
        }

    def in_words(self) -> str:
        """For people."""
        lines = [backend.in_words() for backend in self.backends.values()]
        lines += [f"  {count} times: {why}" for why, count in self.reasons.items()]
        lines += [f"broken module {module}: {why}" for module, why in self.broken.items()]
        return "\n".join(
            [
                *lines,
                f"{self.count('ok')} right, {len(self.faults)} not right; "
                f"{self.count('unsupported')} unsupported and {self.count('skipped')} not for this machine",
            ]
        )


def settled(
    lines: Iterable[Mapping[str, Any]], holds_for: Mapping[str, Mapping[str, Any]]
) -> dict[tuple[str, str], dict[str, Any]]:
    """By (kernel, case) the newest line that holds for the same, with the settled arms of all such lines."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        if line["holds_for"] == holds_for.get(line["kernel"]):
            key = (line["kernel"], line["case"])
            arms = {**found.get(key, {"arms": {}})["arms"], **line["arms"]}
            found[key] = {**line, "arms": {name: arm for name, arm in arms.items() if arm["status"] in SETTLED}}
    return found


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a file of ours, compressed or not; a torn or foreign one is none."""
    opened = gzip.open if path.suffix == ".gz" else open
    if not path.exists():
        return
    with opened(path, "rt", encoding="utf-8", errors="replace") as file:
        for text in file:
            try:
                line = json.loads(text)
            except ValueError:
                continue
            if isinstance(line, dict) and (line.get("format"), line.get("version")) == (FORMAT, VERSION):
                yield line


def _about(session: Session, name: str, seed: int) -> dict[str, Any]:
    tree = session.trees_entry(name)["head"]
    holds_for = {
        "kernel_digest": tree["kernel_digest"],
        "environment": tree["environment"],
        "machine": session.machine["name"],
        "seed": seed,
        "knobs": dict(session.selection.knobs),
    }
    return {
        "commit": tree["commit"],
        "dirty": tree["dirty"],
        "device": session.machine["device"],
        "broken": tree["broken"],
        "holds_for": clean(holds_for),
    }


def _line(session: Session, name: str, entry: Mapping[str, Any], about: Mapping[str, Any]) -> dict[str, Any]:
    declared = session.descriptions["head"].kernels[name]
    case = next(case for case in declared["cases"] if case["name"] == entry["case"])
    arms = {
        key.partition("/")[2]: {field: value for field, value in arm.items() if field != "detail" or value}
        for key, arm in entry["arms"].items()
    }
    return clean(
        {
            "format": FORMAT,
            "version": VERSION,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "kernel": name,
            **{key: case[key] for key in ("tier", "world", "dtype")},
            "case": entry["case"],
            "baselines": declared["baselines"],
            "arms": arms,
            **about,
        }
    )


def main(names: Sequence[str]) -> str:
    """What files of checks say, in words.  ValueError names a file without a line of ours."""
    last: dict[tuple[str, str, str], dict[str, Any]] = {}
    for name in names:
        try:
            lines = list(_lines(Path(name)))
        except (OSError, EOFError) as error:
            raise ValueError(f"{name} cannot be read to its end: {error}") from error
        if not lines:
            raise ValueError(f"{name} holds no checks; make one with `ridgeline verify --out checks.jsonl`")
        last.update({(line["kernel"], line["case"], line["holds_for"]["machine"]): line for line in lines})
    summary = Summary()
    for line in last.values():
        summary.add(line)
    return summary.in_words()


if __name__ == "__main__":
    try:
        print(main(sys.argv[1:]) if sys.argv[1:] else __doc__)
    except ValueError as error:
        sys.exit(str(error))
