"""Measure kernels and write trial files.  Needs Python, torch and triton; no git, no network.

    python -m benchmarks run --tree head=. --kernel gemm --tier pr --trials 3 --out trials.jsonl
    python -m benchmarks run --tree head=. --tree base=../main --out trials.jsonl
    python -m benchmarks run --points points.json --out points.jsonl
    python -m benchmarks verify --tier nightly --out checks.jsonl
    python -m benchmarks list --tree . --json
    python -m benchmarks candidates --kernel gemm --arch gfx942
    python -m benchmarks doctor

Exit codes of run and verify: 0 all measured (right), 1 something is wrong, hangs, crashes or fails, 2 nothing was
measured, 3 usage or infrastructure, 130 interrupted (finished trials and checks are kept).
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import os
import platform
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

from benchmarks import doctor, points, program, sweeping, trial_file, verify
from benchmarks.coordinator import orders, starting
from benchmarks.coordinator.checkouts import Checkout, kernel_files, refuse_unknown
from benchmarks.coordinator.orders import Sources
from benchmarks.coordinator.trial import Session, measure
from benchmarks.machine import limits
from benchmarks.plan import BURST_ROUNDS, HEAP_VARIABLE, HEAPS, Protocol, Selection, UsageError
from benchmarks.points import PointsFile
from benchmarks.program import DEFAULT, FAULTS, MEASURED, Tally
from benchmarks.shapes import JsonObject, one_of
from benchmarks.sweeping import measure_points
from benchmarks.trial_file import REGIMES, Status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return program.run(lambda: _verb(sys.argv[1:] if argv is None else argv), "what is finished is kept")


def _verb(words: Sequence[str]) -> int:
    verb, *options = words or [""]
    if verb == "--help":
        print(__doc__)
        return MEASURED
    if verb not in VERBS:
        raise UsageError(f"{verb!r} is not a verb; known: {', '.join(VERBS)}")
    kind, command = VERBS[verb]
    return command(program.parse_options(kind, options))


# ---- options -----------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckedArms(program.Measuring):
    """What is called.  --out: a file of lines, which are appended.

    --kernel, --case, --backend: only these, repeatable (default: all); cases by name or pattern.
    --tier: the cases of this tier and of the quicker ones.  --seed: of the inputs.
    --set: a knob, over config(), KEY=VALUE of every checkout or ROLE.KEY=VALUE of one; repeatable.
    --deadline: seconds for one step of one arm, after which it counts as hanging; the first use of a library that
    compiles itself has a limit of its own.
    --heap: home of the heap on GPUs (default: RIDGELINE_HEAP, or auto: the first that works).
    """

    out: program.File
    kernel: tuple[str, ...] = ()
    case: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    tier: program.Tier = "pr"
    seed: program.Seed = 0
    set: tuple[str, ...] = ()
    deadline: program.Seconds = DEFAULT.deadline_s
    heap: str = os.environ.get(HEAP_VARIABLE) or DEFAULT.heap

    @property
    def selection(self) -> Selection:
        """Which cases and backends."""
        return Selection(self.tier, self.case, self.backend, dict(map(program.knob, self.set)))

    def refuse_early(self, checkouts: Sequence[Checkout]) -> None:
        """UsageError for what is known to be wrong before anything of a checkout is imported."""
        if self.heap not in HEAPS:
            raise UsageError(f"{self.heap!r} is not a home of the symmetric heap; known: {', '.join(HEAPS)}")
        for one in checkouts:
            starting.begin(one.python)  # it imports torch while the sources are read
        refuse_unknown(self.kernel, checkouts)
        trial_file.check_writable(self.out)
        trial_file.remove_if_empty(self.out)


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredArms(CheckedArms):
    """What is measured, with all options of `verify` but --arch and --json, into a trial file (.jsonl or .jsonl.gz).

    --trials, --first-trial: how many, and the number of the first.
    --rounds: per trial; of bursts of every arm when sustained.
    --regime: spaced (by a flush of the caches), or sustained: back to back in bursts, at settled power.
    --burst: least seconds of a burst when sustained.  --cache: its state before a sample, cold or hot.
    --orders: ask on stderr for what to measure next, and read it from stdin (benchmarks/coordinator/orders.py).
    --points: measure the points of this file (benchmarks/points.py), which names operator, cases, arms and rounds; what
    --out has of the sweep is not measured again.
    --point-deadline: seconds for one step of a point, which then counts as hanging.
    """

    trials: program.Count = DEFAULT.trials
    first_trial: program.Seed = 0
    rounds: program.Count | None = None
    regime: Annotated[str, one_of(*REGIMES)] = DEFAULT.regime
    burst: program.BurstSeconds = DEFAULT.burst_s
    cache: program.Cache = "cold"
    orders: bool = False
    points: program.File | None = None
    point_deadline: program.Seconds = DEFAULT.point_deadline_s

    @property
    def protocol(self) -> Protocol:
        """How samples are taken."""
        names = ("trials", "cache", "seed", "heap", "regime", "burst_s", "deadline_s", "point_deadline_s")
        values = {name: getattr(self, name.removesuffix("_s")) for name in names}
        usual = BURST_ROUNDS if self.regime == "sustained" else DEFAULT.rounds
        return Protocol(**values, rounds=self.rounds or usual)


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedArms(CheckedArms):
    """What is called and compared, into a file of checks (.jsonl); what it knows is not tried again.

    --arch: execute small cases of what compiles for gfx942 or gfx950 on this CPU, in place of the GPU's cases;
    repeatable.  --json: print the summary as JSON.
    """

    arch: tuple[str, ...] = ()
    json: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
    """What one checkout declares.  --tree: the checkout (default: here).  --json: as it always is."""

    tree: program.File = Path()
    json: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates(Declared):
    """What a sweep could try of a kernel, on an architecture and so many CUs or SMs (default: the first device here).

    --case, --backend: only these; repeatable.
    """

    kernel: str
    case: tuple[str, ...] = ()
    backend: tuple[str, ...] = ()
    arch: str | None = None
    compute_units: program.Count | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Examined(Declared):
    """What this machine is and what can be measured on it.  --folder: look at the disk of this folder, too; repeatable.

    --node: only whether the node is fit to measure, without torch.  --product, --gpus: what its GPUs must be, and how
    many.
    """

    folder: tuple[program.File, ...] = ()
    node: bool = False
    product: str = ""
    gpus: program.Count | None = None


# ---- verbs -------------------------------------------------------------------------------------------------------


def _run(asked: MeasuredArms) -> int:
    checkouts = asked.checkouts
    file = _points_file(asked, asked.points, checkouts) if asked.points else None
    asked.refuse_early(checkouts)
    if file:
        return _run_points(asked, file, checkouts[0])
    told = orders.read() if asked.orders else None
    lines = measure(asked.kernel, checkouts, asked.protocol, asked.report, asked.selection, asked.first_trial, told)
    return _write(asked.out, lines, asked.kernel, _sources(checkouts))


NAMED_BY_POINTS = ("kernel", "case", "backend", "set")
"""Options that say what a points file says."""


def _points_file(asked: MeasuredArms, path: Path, checkouts: Sequence[Checkout]) -> PointsFile:
    """The points that are asked for.  UsageError for options that say the same."""
    for option in NAMED_BY_POINTS:
        if getattr(asked, option):
            raise UsageError(f"--{option} beside --points: the points file names what is measured; leave one out")
    if [checkout.role for checkout in checkouts] != ["head"]:
        raise UsageError("the points of one checkout are measured at a time: --tree head=PATH")
    return points.read(path)


def _run_points(asked: MeasuredArms, file: PointsFile, checkout: Checkout) -> int:
    earlier = sweeping.earlier_points(asked.out, file)
    if not any(earlier.left(file, index) for index in range(len(file.batches))):
        print(f"nothing is left to measure: {asked.out} has every point of rung {file.rung}", file=sys.stderr)
        return MEASURED
    lines = measure_points(file, checkout, asked.protocol, earlier, asked.report)
    return _write(asked.out, lines, [file.operator], _sources([checkout]))


def _sources(checkouts: Sequence[Checkout]) -> Sources:
    """What is measured, as it is before the first line."""
    return Sources(functools.partial(kernel_files, checkouts), {one.python for one in checkouts})


def _write(out: Path, lines: Generator[JsonObject], kernels: Sequence[str], sources: Sources) -> int:
    """Append lines as they come; the exit code.  UsageError once what is measured has changed."""
    tally = Tally()
    try:
        for line in lines:
            sources.refuse_changed(line["kernel"])
            trial_file.append(out, line)
            tally.add_trial(line)
    finally:
        lines.close()
        trial_file.remove_if_empty(out)
    for sentence in tally.not_measured():
        print(sentence, file=sys.stderr)
    return tally.exit_code(kernels)


def _verify(asked: VerifiedArms) -> int:
    checkouts = asked.checkouts
    if [checkout.role for checkout in checkouts] != ["head"]:
        raise UsageError("one checkout is verified at a time: --tree head=PATH")
    if asked.out.suffix == ".gz":
        raise UsageError(f"{asked.out}: checks are not compressed; name a .jsonl file")
    asked.refuse_early(checkouts)
    what = (asked.kernel, checkouts[0], asked.out)
    report, sources = asked.report, _sources(checkouts)
    if asked.arch:
        if asked.set or asked.seed:
            raise UsageError("--set and --seed beside --arch: small cases have the knobs and the seed of their own")
        emulation = importlib.import_module("benchmarks.emulation.verify")
        lines = emulation.verify(*what, asked.arch, asked.case, asked.backend, report)
    else:
        how = (asked.selection, asked.seed, asked.deadline, report, asked.heap)
        lines = verify.verify(*what, *how)
    tally = Tally()
    try:
        for line, new in lines:
            if new:
                sources.refuse_changed(line["kernel"])
                trial_file.append(asked.out, line)
            for sentence in (*tally.add_check(line), *_of_emulator(line)):
                print(sentence, file=sys.stderr, flush=True)
    finally:
        lines.close()
        trial_file.remove_if_empty(asked.out)
    print(json.dumps(tally.as_json(), allow_nan=False) if asked.json else tally.in_words())
    return tally.exit_code(asked.kernel)


def _of_emulator(line: JsonObject) -> Iterator[str]:
    """What an emulator did not execute, and what it saw of wrong outputs: registers and instructions."""
    for name, arm in line["arms"].items() if "emulated" in line else ():
        if arm["status"] == Status.UNSUPPORTED:
            why = arm["why"].removeprefix("not executed, because ")
            yield f"not executed: {line['kernel']} {line['case']} {name} on {line['emulated']}: {why}"
        elif arm.get("detail"):
            yield arm["detail"]


def _list(asked: Declared) -> int:
    with Session([Checkout("head", asked.tree.resolve())], Protocol(), Selection()) as session:
        found = session.descriptions["head"]
    python = ".".join(platform.python_version_tuple()[:2])  # digests of two versions are not alike
    known = {"kernels": list(found.kernels.values()), "broken": found.broken, "python": python}
    print(json.dumps(known, allow_nan=False))
    return MEASURED


def _candidates(asked: Candidates) -> int:
    which = (asked.kernel, asked.case, asked.backend, asked.arch, asked.compute_units)
    found = sweeping.ask_candidates(Checkout("head", asked.tree.resolve()), *which)
    print(json.dumps(found, allow_nan=False))
    return MEASURED


def _doctor(asked: Examined) -> int:
    """With --node the preflight alone; see :mod:`benchmarks.machine.limits`.  Its warnings forbid no verdict."""
    tree = asked.tree.resolve()
    if asked.node:
        pool = {"product": asked.product, "gpu_count": asked.gpus or 0}
        report = limits.examined(limits.node_facts(None, [tree, *asked.folder], **pool))
        faults = [problem for problem in report["problems"] if problem["level"] == "error"]
    else:
        report = doctor.examine(tree, asked.folder)
        faults = report["problems"]
    print(json.dumps(report, indent=1, allow_nan=False))
    return FAULTS if faults else MEASURED


VERBS: dict[str, tuple[type[Any], Callable[[Any], int]]] = {
    "run": (MeasuredArms, _run),
    "verify": (VerifiedArms, _verify),
    "list": (Declared, _list),
    "candidates": (Candidates, _candidates),
    "doctor": (Examined, _doctor),
}


if __name__ == "__main__":
    sys.exit(main())
