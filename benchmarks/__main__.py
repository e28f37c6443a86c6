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

import argparse
import functools
import importlib
import json
import os
import platform
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import doctor, program, sweeping, trial_file, verify
from benchmarks.coordinator import orders
from benchmarks.coordinator.checkouts import Checkout, kernel_files, refuse_unknown
from benchmarks.coordinator.orders import Sources
from benchmarks.coordinator.trial import Session, measure
from benchmarks.machine import limits
from benchmarks.plan import BURST_ROUNDS, HEAP_VARIABLE, HEAPS, Protocol, Selection, UsageError
from benchmarks.points import PointsFile
from benchmarks.program import (
    BURST,
    CACHE,
    CHECKOUTS,
    COUNT,
    DEFAULT,
    FAULTS,
    FILE,
    FLAG,
    GLOBS,
    MEASURED,
    NAMES,
    NEEDED_FILE,
    SECONDS,
    SEED,
    Tally,
    several,
)
from benchmarks.shapes import JsonObject
from benchmarks.sweeping import measure_points
from benchmarks.trial_file import REGIMES, Status
from kernels.spec import TIERS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""

    def command() -> int:
        arguments = parser().parse_args(argv)
        return int(arguments.command(arguments))

    return program.run(command, "what is finished is kept")


# ---- options -----------------------------------------------------------------------------------------------------


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = program.StrictParser(prog="python -m benchmarks", description=__doc__, formatter_class=_AS_WRITTEN)
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=program.StrictParser)

    def verb(name: str, command: Any, about: str, text: str | None, *options: program.Option) -> None:
        made = verbs.add_parser(name, help=about, description=text, formatter_class=_AS_WRITTEN)
        made.set_defaults(command=command)
        program.add(made, *options)

    checks = "file of checks (.jsonl); lines are appended, and what it knows is not tried again"
    verb("run", _run, "measure and append trial lines to a file", __doc__, *WHAT, *HOW)
    verb(
        *("verify", _verify, "call every backend and compare; nothing is timed", verify.__doc__),
        *(*WHAT, ("out", NEEDED_FILE, checks), ("json", FLAG, "print the summary as JSON"), EMULATED),
    )
    verb("list", _list, "what a checkout declares", None, *ALONE)
    verb("candidates", _candidates, "what a sweep could try of a kernel", sweeping.ask_candidates.__doc__, *TRIED)
    verb("doctor", _doctor, "what this machine is and what can be measured on it", None, *EXAMINED)
    return top


_AS_WRITTEN = argparse.RawDescriptionHelpFormatter

ALONE: tuple[program.Option, ...] = (
    ("tree", {"default": ".", "metavar": "PATH"}, "checkout (default: here)"),
    ("json", FLAG, "as they always are"),
)
"""Of a verb that looks at one checkout."""

WHAT: tuple[program.Option, ...] = (
    *CHECKOUTS,
    ("kernel", NAMES, "only this kernel; repeatable (default: all)"),
    ("case", GLOBS, "cases, by name or pattern; repeatable"),
    ("backend", NAMES, "backend or baseline; repeatable (default: all)"),
    ("tier", {"default": "pr", "choices": TIERS}, "the cases of this tier and of the quicker ones"),
    ("seed", SEED, "of the inputs"),
    (
        *("set", several({"type": program.knob, "metavar": "KEY=VALUE"})),
        "a knob, over config(), of every checkout or as ROLE.KEY=VALUE of one; repeatable",
    ),
    (
        *("deadline", SECONDS | {"default": DEFAULT.deadline_s}),
        f"for one step of one arm, after which it counts as hanging (default {DEFAULT.deadline_s:g}); "
        "the first use of a library that compiles itself has a limit of its own",
    ),
    (
        *("heap", {"type": program.heap, "default": os.environ.get(HEAP_VARIABLE) or DEFAULT.heap, "metavar": "HOME"}),
        f"home of the heap on GPUs: {', '.join(HEAPS)} (default: {HEAP_VARIABLE}, or auto: the first that works)",
    ),
)

EMULATED: program.Option = (
    *("arch", several({"metavar": "ARCH"})),
    "execute small cases of what compiles for gfx942 or gfx950 on this CPU, in place of the GPU's cases; repeatable",
)

HOW: tuple[program.Option, ...] = (
    ("out", NEEDED_FILE, "trial file (.jsonl or .jsonl.gz); lines are appended"),
    ("trials", COUNT | {"default": DEFAULT.trials}, f"default {DEFAULT.trials}"),
    ("first-trial", SEED, "number of the first of them (default 0)"),
    ("rounds", COUNT, f"per trial (default {DEFAULT.rounds}; {BURST_ROUNDS} bursts of every arm when sustained)"),
    (
        *("regime", {"choices": REGIMES, "default": DEFAULT.regime}),
        f"calls spaced by a flush of the caches, or back to back in bursts at settled power (default {DEFAULT.regime})",
    ),
    (
        *("burst", BURST | {"default": DEFAULT.burst_s}),
        f"least seconds of a burst when sustained (default {DEFAULT.burst_s:g})",
    ),
    ("cache", CACHE, "state of the caches before a sample"),
    (
        *("orders", FLAG),
        "ask on stderr for what to measure next, and read it from stdin (benchmarks/coordinator/orders.py)",
    ),
    (
        *("points", FILE),
        "measure the points of this file (benchmarks/points.py), which names operator, cases, arms and rounds; "
        "what --out has of the sweep is not measured again",
    ),
    (
        *("point-deadline", SECONDS | {"default": DEFAULT.point_deadline_s}),
        f"for one step of a point, which then counts as hanging (default {DEFAULT.point_deadline_s:g})",
    ),
)

TRIED: tuple[program.Option, ...] = (
    *ALONE,
    ("kernel", {"metavar": "NAME", "required": True}, "whose knobs"),
    ("case", GLOBS, "only these cases; repeatable"),
    ("backend", NAMES, "only this backend; repeatable"),
    ("arch", {"metavar": "ARCH"}, "architecture (default: the first device here)"),
    ("compute-units", COUNT, "CUs or SMs (default: the device's)"),
)

EXAMINED: tuple[program.Option, ...] = (
    *ALONE,
    ("folder", several({"type": Path, "metavar": "PATH"}), "look at the disk of this folder too; repeatable"),
    ("node", FLAG, "only whether the node is fit to measure; without torch"),
    ("product", {"default": "", "metavar": "NAME"}, "with --node: what its GPUs must be"),
    ("gpus", COUNT | {"default": 0}, "with --node: how many there must be"),
)


# ---- verbs -------------------------------------------------------------------------------------------------------


def _run(arguments: argparse.Namespace) -> int:
    checkouts = program.checkouts(arguments)
    protocol = program.protocol(arguments)
    file = program.points_file(arguments, checkouts) if arguments.points else None
    _refuse_early(arguments, checkouts)
    if file:
        return _run_points(arguments, file, protocol, checkouts[0])
    chosen, report = _selection(arguments), program.reporter(arguments.progress)
    told = orders.read() if arguments.orders else None
    lines = measure(arguments.kernel, checkouts, protocol, report, chosen, arguments.first_trial, told)
    return _write(arguments, lines, arguments.kernel, _sources(checkouts))


def _run_points(arguments: argparse.Namespace, file: PointsFile, protocol: Protocol, checkout: Checkout) -> int:
    earlier = sweeping.earlier_points(arguments.out, file)
    if not any(earlier.left(file, index) for index in range(len(file.batches))):
        print(f"nothing is left to measure: {arguments.out} has every point of rung {file.rung}", file=sys.stderr)
        return MEASURED
    lines = measure_points(file, checkout, protocol, earlier, program.reporter(arguments.progress))
    return _write(arguments, lines, [file.operator], _sources([checkout]))


def _sources(checkouts: Sequence[Checkout]) -> Sources:
    """What is measured, as it is before the first line."""
    return Sources(functools.partial(kernel_files, checkouts), {one.python for one in checkouts})


def _write(arguments: argparse.Namespace, lines: Generator[JsonObject], asked: Sequence[str], sources: Sources) -> int:
    """Append lines as they come; the exit code.  UsageError once what is measured has changed."""
    tally = Tally()
    try:
        for line in lines:
            sources.refuse_changed(line["kernel"])
            trial_file.append(arguments.out, line)
            tally.add_trial(line)
    finally:
        lines.close()
        trial_file.remove_if_empty(arguments.out)
    for sentence in tally.not_measured():
        print(sentence, file=sys.stderr)
    return tally.exit_code(asked)


def _verify(arguments: argparse.Namespace) -> int:
    checkouts = program.checkouts(arguments)
    if [checkout.role for checkout in checkouts] != ["head"]:
        raise UsageError("one checkout is verified at a time: --tree head=PATH")
    if arguments.out.suffix == ".gz":
        raise UsageError(f"{arguments.out}: checks are not compressed; name a .jsonl file")
    _refuse_early(arguments, checkouts)
    what = (arguments.kernel, checkouts[0], arguments.out)
    report, sources = program.reporter(arguments.progress), _sources(checkouts)
    if arguments.arch:
        if arguments.set or arguments.seed:
            raise UsageError("--set and --seed beside --arch: small cases have the knobs and the seed of their own")
        emulation = importlib.import_module("benchmarks.emulation.verify")
        lines = emulation.verify(*what, arguments.arch, arguments.case, arguments.backend, report)
    else:
        how = (_selection(arguments), arguments.seed, arguments.deadline, report, arguments.heap)
        lines = verify.verify(*what, *how)
    tally = Tally()
    try:
        for line, new in lines:
            if new:
                sources.refuse_changed(line["kernel"])
                trial_file.append(arguments.out, line)
            for sentence in (*tally.add_check(line), *_not_executed(line)):
                print(sentence, file=sys.stderr, flush=True)
            for detail in _details(line):
                print(detail, file=sys.stderr, flush=True)
    finally:
        lines.close()
        trial_file.remove_if_empty(arguments.out)
    print(json.dumps(tally.as_json(), allow_nan=False) if arguments.json else tally.in_words())
    return tally.exit_code(arguments.kernel)


def _not_executed(line: JsonObject) -> list[str]:
    """Sentences on the arms of a line that an emulator did not execute."""
    left = [(name, arm) for name, arm in line["arms"].items() if arm["status"] == Status.UNSUPPORTED]
    about = f"{line['kernel']} {line['case']}"
    whys = [(name, arm["why"].removeprefix("not executed, because ")) for name, arm in left]
    return [f"not executed: {about} {name} on {line['emulated']}: {why}" for name, why in whys if "emulated" in line]


def _details(line: JsonObject) -> list[str]:
    """What an emulator saw of wrong outputs: registers and instructions."""
    return [arm["detail"] for arm in line["arms"].values() if line.get("emulated") and arm.get("detail")]


def _refuse_early(arguments: argparse.Namespace, checkouts: Sequence[Checkout]) -> None:
    """What is known to be wrong before a process is started."""
    refuse_unknown(arguments.kernel, checkouts)
    trial_file.check_writable(arguments.out)
    trial_file.remove_if_empty(arguments.out)


def _list(arguments: argparse.Namespace) -> int:
    with Session([Checkout("head", Path(arguments.tree).resolve())], Protocol(), Selection()) as session:
        found = session.descriptions["head"]
    python = ".".join(platform.python_version_tuple()[:2])  # digests of two versions are not alike
    known = {"kernels": list(found.kernels.values()), "broken": found.broken, "python": python}
    print(json.dumps(known, allow_nan=False))
    return MEASURED


def _candidates(arguments: argparse.Namespace) -> int:
    which = (arguments.kernel, arguments.case, arguments.backend, arguments.arch, arguments.compute_units)
    found = sweeping.ask_candidates(Checkout("head", Path(arguments.tree).resolve()), *which)
    print(json.dumps(found, allow_nan=False))
    return MEASURED


def _doctor(arguments: argparse.Namespace) -> int:
    """With --node the preflight alone; see :mod:`benchmarks.machine.limits`.  Its warnings forbid no verdict."""
    tree = Path(arguments.tree).resolve()
    if arguments.node:
        pool = {"product": arguments.product, "gpu_count": arguments.gpus}
        report = limits.examined(limits.node_facts(None, [tree, *arguments.folder], **pool))
        faults = [problem for problem in report["problems"] if problem["level"] == "error"]
    else:
        report = doctor.examine(tree, arguments.folder)
        faults = report["problems"]
    print(json.dumps(report, indent=1, allow_nan=False))
    return FAULTS if faults else MEASURED


def _selection(arguments: argparse.Namespace) -> Selection:
    return Selection(arguments.tier, tuple(arguments.case), tuple(arguments.backend), dict(arguments.set))


if __name__ == "__main__":
    sys.exit(main())
