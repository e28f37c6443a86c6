"""Measuring: trials of kernels on one or two checkouts, as an iterator of trial lines.

for line in measure(["gemm"], [Checkout("head", Path("."))], Protocol(trials=1)):
    trial_file.append(Path("trials.jsonl"), line)
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from benchmarks import plan, trial_file
from benchmarks.coordinator import lanes, samples, starting, worker_pools
from benchmarks.coordinator.case_run import CaseRun
from benchmarks.coordinator.checkouts import (
    Checkout,
    CheckoutError,
    Description,
    called_libraries,
    describe,
    listed_packages,
)
from benchmarks.coordinator.lanes import Quiet, SecondsLedger
from benchmarks.coordinator.orders import CaseCounter, MeasureOrder, PlannedTrial, Report, in_turns, one_at_a_time
from benchmarks.coordinator.ranks import VARIABLES, Failure, WorkerPool, make_directories, remove_directories
from benchmarks.coordinator.worker_pools import CompiledAhead, WorkerPools, WorkerSetting
from benchmarks.machine import limits, system
from benchmarks.machine.gpus import Recorder, open_monitor
from benchmarks.plan import PlannedCase, Protocol, Selection, UsageError
from benchmarks.shapes import Json, JsonObject
from kernels import project


def measure(
    kernels: Sequence[str],
    checkouts: Sequence[Checkout],
    protocol: Protocol | None = None,
    on_progress: Report | None = None,
    selection: Selection | None = None,
    first_trial: int = 0,
    orders: Iterable[Sequence[MeasureOrder]] | None = None,
) -> Iterator[JsonObject]:
    """One line per kernel and trial, trial by trial; no kernel named means all.

    Trials are numbered from `first_trial`; the number decides the order of the arms in every round.
    orders: what is measured in place of `protocol.trials` trials of everything; each is asked for when the one before
    it is in the hands of the caller.

    Raises UsageError or CheckoutError before anything is measured.  However it is left (finished, closed,
    interrupted), none of its processes stays.
    """
    with Session(checkouts, protocol or Protocol(), selection or Selection(), on_progress, kernels) as session:
        session.refuse_unseen_gpu()
        plans = session.plans(session.choose(kernels))
        all_of_it = MeasureOrder("", (), first_trial, session.protocol.trials)
        for order in orders if orders is not None else [[all_of_it]]:
            yield from session.ordered(order, plans)


Measured = Callable[[JsonObject, list[str]], None]
"""Adds the cases of a trial, by name, and its warnings."""


class Session:
    """One command: its checkouts, their declarations, the machine, and what was learnt on the way.

    A context manager: on entering it asks all checkouts what they declare and finds out what machine this is.
    kernels: that are asked for; none: all.
    """

    def __init__(
        self,
        checkouts: Sequence[Checkout],
        protocol: Protocol,
        selection: Selection,
        on_progress: Report | None = None,
        kernels: Sequence[str] = (),
    ) -> None:
        roles = [checkout.role for checkout in checkouts]
        if not checkouts or len(set(roles)) < len(roles):
            raise UsageError(f"checkouts must have different roles, got: {', '.join(roles) or 'none'}")
        self.checkouts = _under_names_of_head(checkouts)
        self.protocol, self.selection, self._kernels = protocol, selection, kernels
        self.id = os.urandom(8).hex()
        self.descriptions: dict[str, Description] = {}
        self.machine: JsonObject = {}
        self.on_progress = one_at_a_time(on_progress or (lambda event: None))
        self._heaps: dict[int, JsonObject] = {}
        self._known: dict[str, dict[tuple[str, str], Failure]] = {}
        self._own_digests: dict[str, dict[str, str]] = {}
        self._ran: dict[tuple[str, str], dict[str, str]] = {}
        self._secrets: dict[tuple[str, str], int] = {}
        self._codes, self._directory = samples.CodesSeen(), make_directories()
        self._ledger, self._quiet = SecondsLedger(), Quiet()
        self._side_by_side = lanes.SideBySide(
            self._quiet, self._known, self._sound, self._ledger.lost, self._heap_undecided
        )
        self._ahead: CompiledAhead | None = None

    def __enter__(self) -> Self:
        try:
            self._describe()
        except BaseException:
            self.__exit__()
            raise
        return self

    def refuse_unseen_gpu(self) -> None:
        """UsageError if the machine has a GPU that a checkout's torch does not see."""
        for description in self.descriptions.values():
            if why := limits.unseen_gpu(description.devices, description.environment):
                raise UsageError(why)

    def __exit__(self, *_: object) -> None:
        """End what compiles, and remove what the session wrote beside its result."""
        if self._ahead:
            self._ahead.close()
        remove_directories(self._directory)

    def _describe(self) -> None:
        """Ask all checkouts what they declare."""
        for one in self.checkouts:
            starting.begin(one.python)
            listed_packages(one)
        self.on_progress({"done": 0, "total": None, "what": "importing the kernels"})
        terms, limit_s = self.protocol.definition_terms(), self.protocol.deadline_s
        self.descriptions = describe(self.checkouts, self._directory, terms, limit_s, self._kernels)
        _refuse_unknown_names(self.checkouts, self.descriptions, self._kernels)
        self._own_digests = {
            one.role: {name: one.code.digest(m) for name, m in self.descriptions[one.role].modules.items()}
            for one in self.checkouts
        }
        self._look_at_machine()

    def _look_at_machine(self) -> None:
        """The devices, which every checkout's Python must see alike, and what is known of them."""
        seen = {role: [(d["name"], d["arch"]) for d in one.devices] for role, one in self.descriptions.items()}
        first, *others = self.checkouts
        for other in others:
            if seen[other.role] != seen[first.role]:
                raise CheckoutError(
                    f"{first.python} ({first.role}) sees the devices {seen[first.role]}, {other.python} "
                    f"({other.role}) sees {seen[other.role]}; they cannot be compared, check both builds"
                )
        self.devices = self.descriptions[first.role].devices
        self._monitor, self._why_no_state = open_monitor(self.devices)
        self.machine = limits.fingerprint(self.devices, self._monitor.facts(0) if self._monitor else None)
        addresses = {device["pci"] for device in self.devices if device.get("pci")}
        self._preflight = limits.examined(limits.node_facts(addresses))

    def choose(self, asked: Sequence[str]) -> list[str]:
        """Names of the kernels to measure; UsageError for what does not exist."""
        declared = [description.kernels for description in self.descriptions.values()]
        broken = {m["module"]: m["reason"] for description in self.descriptions.values() for m in description.broken}
        names = plan.choose_kernels(asked, declared, list(broken))
        if broken and not names:
            said = "; ".join(f"{module} cannot be imported: {reason}" for module, reason in broken.items())
            raise UsageError(f"no kernel is declared: {said}")
        plan.check_selection(self.selection, declared, names)
        return names

    def plans(self, names: Sequence[str]) -> dict[str, list[PlannedCase]]:
        """The cases of each kernel, and how they are measured here."""
        found = {}
        for name in names:
            declared = {role: d.kernels[name] for role, d in self.descriptions.items() if name in d.kernels}
            how = self.protocol.cache, self.protocol.regime
            found[name] = plan.plan_kernel(declared, self.machine, self.selection, *how)
        return found

    def checks(self, plans: Mapping[str, Sequence[PlannedCase]]) -> Iterator[tuple[str, JsonObject]]:
        """(kernel, entry of one case), as they are done; with a protocol of no rounds, nothing is timed."""
        progress = CaseCounter(sum(map(len, plans.values())), self.on_progress)
        for name, cases in plans.items():
            skipped = [case for case in cases if case.skip]
            yield from ((name, {"case": case.name, **samples.skipped_entry(case)}) for case in skipped)
            progress.done += len(skipped)
            with contextlib.closing(self._runs(name, cases, 0, [])) as runs:
                for run in runs:
                    run.say = progress.telling(f"{name} {run.case.name}")
                    yield name, {"case": run.case.name, **run.run()}
                    progress.done += 1
        progress.finish()

    # ---- one trial -----------------------------------------------------------------------------------------------

    def ordered(
        self, orders: Sequence[MeasureOrder], plans: Mapping[str, Sequence[PlannedCase]]
    ) -> Iterator[JsonObject]:
        """The lines of some orders, trial by trial, so that the trials of each kernel are spread over the time."""
        wanted = in_turns(orders, plans)
        progress = CaseCounter(sum(len(one.cases) for one in wanted), self.on_progress)
        self._compile(wanted)

        def trial(one: PlannedTrial) -> JsonObject:
            return self.trial(one.kernel, one.cases, one.number, progress)

        self._quiet.lanes = count = min(self._lanes(wanted), len(wanted))
        lines = self._side_by_side.lines(trial, wanted, count) if count > 1 else map(trial, wanted)
        with contextlib.closing(lines) if count > 1 else contextlib.nullcontext():
            yield from lines
        progress.finish()

    def _compile(self, wanted: Sequence[PlannedTrial]) -> None:
        """Have what these trials launch compiled beside them."""
        if not self._ahead:
            count = worker_pools.processes(self.machine["kind"], lanes.free_cores(system.cpu_count()))
            device = {name: self.machine[name] for name in ("arch", "compute_units")}
            device["folder"] = str(self._directory / "compiled")
            about = {one.role: {**device, "renamed": dict(one.renamed)} for one in self.checkouts}
            self._ahead = CompiledAhead(self._compiling_process, about, count)
        modules = {role: found.modules for role, found in self.descriptions.items()}
        alike = not self.selection.knobs and len({one.python for one in self.checkouts}) == 1
        for one in wanted:
            homes = worker_pools.homes(one.kernel, modules, self._own_digests if alike else {})
            self._ahead.add(one.kernel, homes, one.cases)

    def _compiling_process(self, role: str, quiet: Quiet) -> WorkerPool:
        [checkout] = [one for one in self.checkouts if one.role == role]
        label = f"compiling.{os.urandom(4).hex()}"
        return WorkerPool(label, checkout.python, checkout.path, 1, self._directory, VARIABLES, quiet=quiet)

    def _heap_undecided(self, one: PlannedTrial) -> bool:
        """Whether a trial's ranks have to find out where the symmetric heap works."""
        worlds = {case.world for case in one.cases if case.world > 1 and not case.skip}
        return self.machine["kind"] == "gpu" and any(self._home(world) == "auto" for world in worlds)

    def _home(self, world: int) -> str:
        """Where the symmetric heap of so many ranks is, "auto" where they have to find out."""
        home: str = self._heaps.get(world, {}).get("home", self.protocol.heap)
        return home

    def _lanes(self, wanted: Sequence[PlannedTrial]) -> int:
        """How many trials are prepared side by side.  Bursts heat the device."""
        kind = self.machine["kind"]
        if self.protocol.sustained or not self.protocol.rounds:
            return 1
        self._quiet.room = lanes.SHARE * (self.machine["memory_bytes"] or 0)
        ranks = max((case.world for one in wanted for case in one.cases if not case.skip), default=1)
        return lanes.how_many(kind, system.cpu_count(), ranks * len(self.checkouts))

    def _sound(self, line: Json) -> bool:
        """Whether nothing in a trial could be another one's fault: no arm failed, and nothing was left running."""
        return samples.is_sound(line["cases"]) and line["warnings"] == self._warnings(line["kernel"])

    def trial(self, name: str, cases: Sequence[PlannedCase], trial: int, progress: CaseCounter) -> JsonObject:
        """The line of one trial of one kernel."""

        def measured(entries: JsonObject, warnings: list[str]) -> None:
            with contextlib.closing(self._runs(name, cases, trial, warnings)) as runs:
                for run in runs:
                    run.say = progress.telling(f"{name} {run.case.name} trial {trial + 1}")
                    entries[run.case.name] = run.run()
                    progress.done += 1

        progress.done += sum(1 for case in cases if case.skip)
        return self.line(name, cases, trial, measured)

    def line(self, name: str, cases: Sequence[PlannedCase], trial: int, measured: Measured, **more: Any) -> JsonObject:
        """The line of a trial.  measured: adds the cases that can be measured here; more: further fields."""
        ahead_s, started_at = self._ledger.open(), datetime.datetime.now(datetime.UTC)
        entries, warnings = (
            {case.name: samples.skipped_entry(case) for case in cases if case.skip},
            self._warnings(name),
        )
        used = max((case.world for case in cases if not case.skip), default=1)
        recorder = Recorder(self._monitor, self._why_no_state, used)
        with recorder.recording() as state_so_far:
            measured(entries, warnings)
            states = state_so_far()
        self._codes.look(name, entries)
        duration_s, spent_s = self._ledger.close(samples.compiling_s(entries))
        line = {
            "session": self.id,
            "trial": trial,
            "started_at": started_at.isoformat(timespec="seconds"),
            "duration_s": duration_s,
            "ahead_s": ahead_s,
            "spent_s": spent_s,
            "kernel": name,
            "machine": self.machine,
            "trees": self.checkout_entries(name),
            "protocol": {**self.protocol.describe(), "threads": self._threads(1)},
            "cases": {case.name: entries[case.name] for case in cases},
            "heap": {f"w{world}": self._heaps[world] for world in sorted(self._heaps) if self._heaps[world]},
            "preflight": self._preflight,
            "state": states,
            "side_by_side": self._quiet.lanes,
            "warnings": warnings,
            **more,
        }
        return trial_file.finished(line)

    def _runs(self, name: str, cases: Sequence[PlannedCase], trial: int, warnings: list[str]) -> Iterator[CaseRun]:
        """The cases that can be measured here, ready to run, each number of ranks in processes of its own."""
        for world in sorted({case.world for case in cases if not case.skip}):
            these = [case for case in cases if case.world == world and not case.skip]
            with self.pools(name, world, these) as workers:
                for case in these:
                    yield self.case_run(workers, name, case, trial)
            warnings += self.learn(workers)

    def pools(self, name: str, world: int, cases: Sequence[PlannedCase]) -> WorkerPools:
        """Processes for cases of one kernel and number of ranks."""
        declaring = [one for one in self.checkouts if name in self.descriptions[one.role].kernels]
        return WorkerPools(declaring, self._setting(name, world, cases))

    def case_run(
        self, workers: WorkerPools, name: str, case: PlannedCase, trial: int, part: str = "", keep_inputs: bool = False
    ) -> CaseRun:
        """A case, ready to run.  part: of the case, in a sweep; it decides the order of the arms as the trial does."""
        order = random.Random(f"{self.protocol.schedule_seed}/{trial}/{name}/{case.name}{part}")
        run = CaseRun(workers, case, self.protocol, order, self.known(name), keep_inputs)
        declared = [one.kernels[name] for one in self.descriptions.values() if name in one.kernels]
        run.secret = self._secrets.setdefault((name, case.name), samples.secret())
        run.floor = samples.floor_of(declared, case.name, self.machine)
        return run

    def known(self, name: str) -> dict[tuple[str, str], Failure]:
        """What hung in this run, by (case, arm) of a kernel."""
        return self._known.setdefault(name, {})

    def learn(self, workers: WorkerPools) -> list[str]:
        """Keep what processes found out about the machine; returns warnings."""
        for role, files in workers.ran.items():
            self._ran.setdefault((workers.setting.kernel, role), {}).update(files)
        for facts in workers.heaps.values():
            self._heaps.setdefault(workers.setting.world, {}).update(facts)
        return workers.notes

    def _setting(self, name: str, world: int, cases: Sequence[PlannedCase]) -> WorkerSetting:
        flushed = self.protocol.cache == "cold" and not self.protocol.sustained
        return WorkerSetting(
            kernel=name,
            world=world,
            gpu=self.machine["kind"] == "gpu",
            arch=self.machine["arch"],
            modules={role: d.modules[name] for role, d in self.descriptions.items() if name in d.modules},
            renamed={one.role: dict(one.renamed) for one in self.checkouts},
            compute_units=self.machine["compute_units"],
            threads=self._threads(world),
            cores=system.cores() if self.machine["kind"] == "cpu" else (),
            flush_bytes=self.flush_bytes() if flushed else 0,
            heap_bytes=max(case.heap_bytes for case in cases),
            directory=self._directory,
            heap=self._home(world),
            ledger=self._ledger,
            quiet=self._quiet,
            ahead=self._ahead,
        )

    def flush_bytes(self) -> int:
        """What is read between two samples so that the caches are cold."""
        return plan.flush_bytes(self.machine, self.devices, system.host_cache_bytes())

    def _threads(self, world: int) -> int:
        """Of a rank; on a CPU it has a core (worker.probe.settle_on)."""
        return 1 if self.machine["kind"] == "cpu" else max(1, system.cpu_count() // world)

    def _warnings(self, name: str) -> list[str]:
        found = [unknown] if (unknown := limits.unknown_warning(self.machine)) else []
        for role, description in self.descriptions.items():
            if name not in description.kernels:
                hidden = any(one["declares"] is None or name in one["declares"] for one in description.broken)
                found += [] if hidden else [f"{role} declares no kernel {name!r}"]
        return found

    def checkout_entries(self, name: str) -> JsonObject:
        """The `trees` of a trial line."""
        return {one.role: self._checkout_entry(one, name, self.descriptions[one.role]) for one in self.checkouts}

    def _checkout_entry(self, checkout: Checkout, name: str, found: Description) -> JsonObject:
        return {
            "commit": checkout.commit,
            "date_ms": checkout.date_ms,
            "dirty": checkout.dirty,
            "kernel_digest": self._own_digests.get(checkout.role, {}).get(name),
            "ran": self._ran.get((name, checkout.role), {}),
            "environment": {**found.environment, "libraries": called_libraries(found.kernels.get(name))},
            "declaration": found.kernels.get(name),
            "broken": [{key: one[key] for key in ("module", "reason", "declares")} for one in found.broken],
        }


def _under_names_of_head(checkouts: Sequence[Checkout]) -> list[Checkout]:
    """The checkouts, each but head with what head's settings say of its names.  Raises CheckoutError."""
    head = next((one for one in checkouts if one.role == "head"), None)
    try:
        renamed = project.layout(head.path).renamed if head and len(checkouts) > 1 else {}
    except project.ProjectError as error:
        raise CheckoutError(f"checkout head: {error}") from None
    return [one if one is head else dataclasses.replace(one, renamed=renamed) for one in checkouts]


def _refuse_unknown_names(
    checkouts: Sequence[Checkout], descriptions: Mapping[str, Description], asked: Sequence[str]
) -> None:
    """CheckoutError where the settings give a kernel, case or backend of base a name that head does not declare."""
    head = descriptions.get("head")
    if head is None or head.broken:
        return
    names = {
        name: [*(case["name"] for case in kernel["cases"]), *kernel["backends"]]
        for name, kernel in head.kernels.items()
    }
    for one in checkouts:
        renamed = {old: new for old, new in one.renamed.items() if not asked or new.partition("/")[0] in asked}
        if why := project.unknown_new_name(renamed, names):
            raise CheckoutError(f"checkout head: {why}")
