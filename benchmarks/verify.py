"""Is every backend right in every case on this machine?  Each is called and compared; nothing is timed.

One line of JSON per case, written as soon as it is done, so that the same command continues where it was stopped: what
was right with the same code of the kernel and of Ridgeline, in the same environment and on the same machine, is not
tried again.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import Report, of_format
from benchmarks.coordinator.trial import Session
from benchmarks.plan import PlannedCase, Protocol, Selection
from benchmarks.reach import of_harness
from benchmarks.shapes import Json, JsonObject, clean
from benchmarks.trial_file import Status

FORMAT, VERSION = "ridgeline-check", 1

SETTLED = (Status.OK, Status.UNSUPPORTED, Status.SKIPPED)
"""Statuses of an arm that another try would repeat."""


def verify(
    kernels: Sequence[str],
    checkout: Checkout,
    out: Path,
    selection: Selection,
    seed: int = 0,
    deadline_s: float = Protocol.deadline_s,
    on_progress: Report | None = None,
    heap: str = Protocol.heap,
) -> Iterator[tuple[JsonObject, bool]]:
    """(line of a case, whether it is new): what `out` knows already, then what is left, for the caller to append.

    A line: kernel, case, tier, world, dtype; `arms` by backend (status, why, norm and peak of the error, knobs,
    code_hash); `holds_for`: kernel_digest, the environment variables that the code looks at, the state of Ridgeline,
    the modules that were broken, environment, machine, seed, knobs.  Raises UsageError or CheckoutError before anything
    runs.
    """
    protocol = Protocol(rounds=0, trials=1, cache="hot", seed=seed, deadline_s=deadline_s, heap=heap)
    with Session([checkout], protocol, selection, on_progress, kernels) as session:
        session.refuse_unseen_gpu()
        plans = session.plans(session.choose(kernels))
        about = {name: _about(session, name, seed) for name in plans}
        known = settled(of_format(out, FORMAT, VERSION), {name: facts["holds_for"] for name, facts in about.items()})
        left: dict[str, list[PlannedCase]] = {}
        for name, case in ((name, case) for name, cases in plans.items() for case in cases):
            wanted = [arm.backend for arm in case.arms]
            line = known.get((name, case.name), {"arms": {}})
            if line["arms"].keys() >= set(wanted):
                yield {**line, "arms": {backend: line["arms"][backend] for backend in wanted}}, False
            else:
                left.setdefault(name, []).append(case)
        for name, entry in session.checks(left):
            yield _line(session, name, entry, about[name]), True


def settled(lines: Iterable[Json], holds_for: Mapping[str, Json]) -> dict[tuple[str, str], JsonObject]:
    """By (kernel, case) the newest line that holds for the same, with the settled arms of all such lines."""
    found: dict[tuple[str, str], JsonObject] = {}
    for line in lines:
        if line["holds_for"] == holds_for.get(line["kernel"]):
            key = (line["kernel"], line["case"])
            arms = {**found.get(key, {"arms": {}})["arms"], **line["arms"]}
            found[key] = {**line, "arms": {name: arm for name, arm in arms.items() if arm["status"] in SETTLED}}
    return found


def _about(session: Session, name: str, seed: int) -> JsonObject:
    checkout = session.checkout_entries(name)["head"]
    holds_for = {
        "kernel_digest": checkout["kernel_digest"],
        "looks_at": session.checkouts[0].code.environment(session.descriptions["head"].modules[name]),
        "ridgeline": of_harness(),
        "broken": checkout["broken"],
        "environment": checkout["environment"],
        "machine": session.machine["name"],
        "seed": seed,
        "knobs": dict(session.selection.knobs),
    }
    known = {key: checkout[key] for key in ("commit", "dirty", "broken")}
    return {**known, "device": session.machine["device"], "holds_for": clean(holds_for)}


def _line(session: Session, name: str, entry: Json, about: Json) -> JsonObject:
    declared = session.descriptions["head"].kernels[name]
    case = next(case for case in declared["cases"] if case["name"] == entry["case"])
    arms = {
        key.partition("/")[2]: {field: value for field, value in arm.items() if field != "detail" or value}
        for key, arm in entry["arms"].items()
    }
    return line({**case, "kernel": name}, entry["case"], declared["baselines"], arms, about)


def line(case: Json, name: str, baselines: Sequence[str], arms: Json, about: Json) -> JsonObject:
    """A line of a case that has just been checked, under its name.  about: what others of its run share."""
    return clean(
        {
            "format": FORMAT,
            "version": VERSION,
            "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{key: case[key] for key in ("kernel", "tier", "world", "dtype")},
            "case": name,
            "baselines": baselines,
            "arms": arms,
            **about,
        }
    )
