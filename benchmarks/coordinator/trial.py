"""Measuring: trials of kernels on one or two source trees, as an iterator of trial lines.

for line in measure(["gemm"], [Tree("head", Path("."))], Protocol(trials=1)):
    notes.append(Path("trials.jsonl"), line)
"""

from __future__ import annotations

import contextlib
import datetime
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks import plan
from benchmarks import trial_file as notes
from benchmarks.coordinator import device_state as state
from benchmarks.coordinator import fingerprint as machine
from benchmarks.coordinator import host_cache as hostcache
from benchmarks.coordinator.case_run import CaseRun
from benchmarks.coordinator.checkouts import (
    Describer,
    Description,
    Tree,
    TreeError,
    kernels_digest,
    listed_packages,
    with_git_facts,
)
from benchmarks.coordinator.kernel_identity import kernel_digests
from benchmarks.coordinator.worker_pools import Crew, Setting, make_directories, remove_directories
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError

Progress = Callable[[Mapping[str, Any]], None]
"""Called with {"done": cases finished, "total": cases, "what": a few words}."""


def measure(
    kernels: Sequence[str],
    trees: Sequence[Tree],
    protocol: Protocol | None = None,
    on_progress: Progress | None = None,
    selection: Selection | None = None,
) -> Iterator[dict[str, Any]]:
    """One line per kernel and trial, trial by trial; no kernel named means all.

    Raises UsageError or TreeError before anything is measured.  However it is left (finished, closed, interrupted),
    no process of it stays.
    """
    session = Session(trees, protocol or Protocol(), selection or Selection(), on_progress)
    try:
        session.describe()
        yield from session.lines(session.choose(kernels))
    finally:
        session.close()


class Session:
    """One command: its trees, their declarations, the machine, and what was learnt on the way."""

    def __init__(
        self, trees: Sequence[Tree], protocol: Protocol, selection: Selection, on_progress: Progress | None
    ) -> None:
        roles = [tree.role for tree in trees]
        if not trees or len(set(roles)) < len(roles):
            raise UsageError(f"trees must have different roles, got: {', '.join(roles) or 'none'}")
        self.trees = [with_git_facts(tree) for tree in trees]
        self.protocol, self.selection = protocol, selection
        self.id = os.urandom(8).hex()
        self.descriptions: dict[str, Description] = {}
        self.machine: dict[str, Any] = {}
        self._tell = on_progress or (lambda event: None)
        self._hangs: dict[str, dict[tuple[str, str], str]] = {}
        self._digests = {tree.role: kernels_digest(tree) for tree in self.trees}
        self._own_digests: dict[str, dict[str, str]] = {}
        self._directory = make_directories()

    def describe(self) -> None:
        """Ask all trees at once what they declare, and find out what machine this is."""
        self._tell({"done": 0, "total": None, "what": "importing the kernels"})
        asked = {
            tree.role: Describer(tree, self._directory, self.protocol.yardstick_terms(), self.protocol.deadline_s)
            for tree in self.trees
        }
        try:
            for describer in asked.values():
                describer.begin()
            self.descriptions = {role: describer.end() for role, describer in asked.items()}
        finally:
            for describer in asked.values():
                describer.kill()
        self._own_digests = {
            tree.role: kernel_digests(tree.path, listed_packages(tree), self.descriptions[tree.role].modules)
            for tree in self.trees
        }
        self._devices = self._same_devices()
        self._monitor, self._why_no_state = state.open_monitor(self._devices)
        static = self._monitor.static(0) if self._monitor else {}
        self.machine = machine.fingerprint(self._devices, static)

    def choose(self, asked: Sequence[str]) -> list[str]:
        """Names of the kernels to measure; UsageError for what does not exist."""
        declared = [description.kernels for description in self.descriptions.values()]
        broken = [module["module"] for description in self.descriptions.values() for module in description.broken]
        names = plan.choose_kernels(asked, declared, broken)
        plan.check_selection(self.selection, declared, names)
        return names

    def plans(self, names: Sequence[str]) -> dict[str, list[PlannedCase]]:
        """The cases of each kernel, and how they are measured here."""
        declared = {
            name: {role: d.kernels[name] for role, d in self.descriptions.items() if name in d.kernels}
            for name in names
        }
        return {
            name: plan.plan_kernel(found, self.machine, self.selection, self.protocol.cache)
            for name, found in declared.items()
        }

    def lines(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Every trial of every kernel."""
        plans = self.plans(names)
        total = self.protocol.trials * sum(len(cases) for cases in plans.values())
        done = 0
        for trial in range(self.protocol.trials):
            for name, cases in plans.items():
                yield self._trial(name, cases, trial, done, total)
                done += len(cases)
        self._tell({"done": total, "total": total, "what": "done"})

    def checks(self, plans: Mapping[str, Sequence[PlannedCase]]) -> Iterator[tuple[str, dict[str, Any]]]:
        """(kernel, entry of one case), as they are done; with a protocol of no rounds, nothing is timed."""
        done, total = 0, sum(len(cases) for cases in plans.values())
        for name, cases in plans.items():
            yield from ((name, {"case": case.name, **skipped(case)}) for case in cases if case.skip)
            done += sum(1 for case in cases if case.skip)
            with contextlib.closing(self._runs(name, cases, 0, [])) as runs:
                for run in runs:
                    self._tell({"done": done, "total": total, "what": f"{name} {run.case.name}"})
                    yield name, {"case": run.case.name, **run.run()}
                    done += 1
        self._tell({"done": total, "total": total, "what": "done"})

    def close(self) -> None:
        """Remove what the session wrote beside its result."""
        remove_directories(self._directory)

    # ---- one trial -----------------------------------------------------------------------------------------------

    def _trial(self, name: str, cases: Sequence[PlannedCase], trial: int, done: int, total: int) -> dict[str, Any]:
        begin, started_at = time.monotonic(), datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        recorder = state.Recorder(self._monitor, self._why_no_state, self._devices_used(cases))
        entries: dict[str, dict[str, Any]] = {case.name: skipped(case) for case in cases if case.skip}
        warnings = self._warnings(name)
        busy_s = wall_s = 0.0
        with recorder.recording() as state_so_far:
            with contextlib.closing(self._runs(name, cases, trial, warnings)) as runs:
                for run in runs:
                    self._tell(
                        {
                            "done": done + len(entries),
                            "total": total,
                            "what": f"{name} {run.case.name} trial {trial + 1}",
                        }
                    )
                    entries[run.case.name] = run.run()
                    busy_s, wall_s = busy_s + run.busy_s, wall_s + run.wall_s
            states = state_so_far()
        ordered = {case.name: entries[case.name] for case in cases}
        return notes.finished(
            {
                "session": self.id,
                "trial": trial,
                "started_at": started_at,
                "duration_s": time.monotonic() - begin,
                "kernel": name,
                "machine": self.machine,
                "trees": self.trees_entry(name),
                "protocol": {**self.protocol.describe(), "threads": self._threads(1)},
                "cases": ordered,
                "state": states,
                "busy_share": busy_s / wall_s if wall_s else None,
                "measuring_s": wall_s,
                "warnings": warnings,
            }
        )

    def _runs(self, name: str, cases: Sequence[PlannedCase], trial: int, warnings: list[str]) -> Iterator[CaseRun]:
        """The cases that can be measured here, ready to run, each number of ranks in processes of its own."""
        for world in sorted({case.world for case in cases if not case.skip}):
            these = [case for case in cases if case.world == world and not case.skip]
            with Crew(self._trees_with(name), self._setting(name, world, these)) as crew:
                for case in these:
                    order = random.Random(f"{self.protocol.schedule_seed}/{trial}/{name}/{case.name}")
                    yield CaseRun(crew, case, self.protocol, order, self._hangs.setdefault(name, {}))
            warnings += crew.notes

    def _trees_with(self, name: str) -> list[Tree]:
        return [tree for tree in self.trees if name in self.descriptions[tree.role].kernels]

    def _setting(self, name: str, world: int, cases: Sequence[PlannedCase]) -> Setting:
        cold = self.protocol.cache == "cold"
        return Setting(
            kernel=name,
            world=world,
            gpu=self.machine["kind"] == "gpu",
            arch=self.machine["arch"],
            modules={role: d.modules[name] for role, d in self.descriptions.items() if name in d.modules},
            compute_units=self.machine["compute_units"],
            threads=self._threads(world),
            sweep_bytes=plan.sweep_bytes(self.machine, self._devices, hostcache.host_cache_bytes()) if cold else 0,
            heap_bytes=max(case.heap_bytes for case in cases),
            directory=self._directory,
        )

    def _threads(self, world: int) -> int:
        return max(1, machine.cpu_count() // world)

    def _devices_used(self, cases: Sequence[PlannedCase]) -> int:
        return max((case.world for case in cases if not case.skip), default=1)

    def _same_devices(self) -> list[dict[str, Any]]:
        """The devices, which every tree's Python must see alike."""
        seen = {
            role: [(d["name"], d["arch"]) for d in description.devices]
            for role, description in self.descriptions.items()
        }
        first = self.trees[0]
        for tree in self.trees[1:]:
            if seen[tree.role] != seen[first.role]:
                raise TreeError(
                    f"{first.python} ({first.role}) sees the devices {seen[first.role]}, {tree.python} "
                    f"({tree.role}) sees {seen[tree.role]}; they cannot be compared, check both builds"
                )
        return self.descriptions[first.role].devices

    def _warnings(self, name: str) -> list[str]:
        unknown = machine.unknown_warning(self.machine)
        found = [unknown] if unknown else []
        for role, description in self.descriptions.items():
            if name not in description.kernels:
                broken = ", ".join(f"{b['module']} ({b['reason']})" for b in description.broken)
                found.append(f"{role} declares no kernel {name!r}" + (f"; broken modules: {broken}" if broken else ""))
        return found

    def trees_entry(self, name: str) -> dict[str, Any]:
        """The `trees` of a trial line."""
        return {tree.role: self._tree_entry(tree, name, self.descriptions[tree.role]) for tree in self.trees}

    def _tree_entry(self, tree: Tree, name: str, found: Description) -> dict[str, Any]:
        return {
            "commit": tree.commit,
            "date_ms": tree.date_ms,
            "dirty": tree.dirty,
            "kernels_digest": self._digests[tree.role],
            "kernel_digest": self._own_digests[tree.role].get(name),
            "environment": found.environment,
            "declaration": found.kernels.get(name),
            "broken": [{"module": b["module"], "reason": b["reason"]} for b in found.broken],
        }


def skipped(case: PlannedCase) -> dict[str, Any]:
    """The entry of a case that cannot be measured here."""
    return {
        "method": case.method,
        "warnings": [],
        "arms": {arm.key: {"status": "skipped", "why": case.skip, "detail": ""} for arm in case.arms},
    }
