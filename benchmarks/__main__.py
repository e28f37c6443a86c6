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
import json
import os
import platform
import sys
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import doctor, preflight, program, sweeping, trial_file, verify
from benchmarks.coordinator import orders, starting
from benchmarks.coordinator.checkouts import Checkout, kernel_files, refuse_unknown
from benchmarks.coordinator.orders import Sources
from benchmarks.coordinator.trial import Session, measure
from benchmarks.isa.__main__ import main as compiling
from benchmarks.plan import (
    BURST_ROUNDS,
    HEAP_VARIABLE,
    HEAPS,
    Protocol,
    Selection,
    UsageError,
    planned_worlds,
    some_gpus,
)
from benchmarks.points import PointsFile
from benchmarks.program import FAULTS, MEASURED, Tally
from benchmarks.sweeping import measure_points
from benchmarks.trial_file import REGIMES, ROLES
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
    run = _verb(verbs, "run", _run, "measure and append trial lines to a file", __doc__)
    _what_options(run, "trial file (.jsonl or .jsonl.gz); lines are appended")
    _how_options(run)
    _points_options(run)
    verifying = _verb(verbs, "verify", _verify, "call every backend and compare; nothing is timed", verify.__doc__)
    _what_options(verifying, "file of checks (.jsonl); lines are appended, and what it knows is not tried again")
    verifying.add_argument("--json", action="store_true", help="print the summary as JSON")
    listing = _verb(verbs, "list", _list, "what a checkout declares")
    many = {"action": "append", "default": []}
    listing.add_argument("--plan", choices=TIERS, help="count the cases that a run of this tier measures, by ranks")
    listing.add_argument("--gpus", type=program.positive, metavar="N", help="with --plan: on a machine with N GPUs")
    listing.add_argument("--kernel", **many, metavar="NAME", help="with --plan: only this kernel; repeatable")
    listing.add_argument("--case", **many, metavar="GLOB", help="with --plan: cases, by name or pattern; repeatable")
    trying = _verb(
        verbs, "candidates", _candidates, "what a sweep could try of a kernel", sweeping.ask_candidates.__doc__
    )
    trying.add_argument("--kernel", action="append", required=True, metavar="NAME", help="whose knobs; repeatable")
    trying.add_argument("--case", **many, metavar="GLOB", help="only these cases; repeatable")
    trying.add_argument("--backend", **many, metavar="NAME", help="only this backend; repeatable")
    trying.add_argument("--arch", metavar="ARCH", help="architecture (default: the first device here)")
    trying.add_argument(
        "--compute-units", type=program.positive, metavar="N", help="CUs or SMs (default: the device's)"
    )
    trying.add_argument("--out", type=Path, metavar="FILE", help="write it there, as JSON, in place of printing it")
    turns = "run commands of this package, of which each line on stdin is one as a JSON list, until there is none"
    _verb(verbs, "commands", _commands, turns, program.in_turn.__doc__)
    checking = _verb(verbs, "doctor", _doctor, "what this machine is and what can be measured on it")
    for verb in (listing, checking, trying):
        verb.add_argument("--tree", default=".", metavar="PATH", help="checkout (default: here)")
        verb.add_argument("--json", action="store_true", help="machine-readable, as `list` and `candidates` always are")
    help = "look at the disk of this folder too; repeatable"
    checking.add_argument("--folder", action="append", default=[], type=Path, metavar="PATH", help=help)
    checking.add_argument("--node", action="store_true", help="only whether the node is fit to measure; without torch")
    checking.add_argument("--product", default="", metavar="NAME", help="with --node: what its GPUs must be")
    checking.add_argument(
        "--gpus", type=program.positive, default=0, metavar="N", help="with --node: how many there must be"
    )
    return top


_AS_WRITTEN = argparse.RawDescriptionHelpFormatter


def _verb(
    verbs: Any, name: str, command: Callable[[argparse.Namespace], int], help: str, text: str | None = None
) -> argparse.ArgumentParser:
    verb = verbs.add_parser(name, help=help, description=text, formatter_class=_AS_WRITTEN)
    verb.set_defaults(command=command)
    return verb


def _what_options(verb: argparse.ArgumentParser, out: str) -> None:
    default, many = Protocol(), {"action": "append", "default": []}
    add = verb.add_argument
    add(
        "--tree", action="append", type=program.role_value, metavar="ROLE=PATH",
        help="checkout; ROLE is head or base (default: head=.)",
    )  # fmt: skip
    add("--out", type=Path, required=True, metavar="FILE", help=out)
    add("--kernel", **many, metavar="NAME", help="only this kernel; repeatable (default: all)")
    add("--case", **many, metavar="GLOB", help="cases, by name or pattern; repeatable")
    add("--backend", **many, metavar="NAME", help="backend or baseline; repeatable (default: all)")
    add("--tier", default="pr", choices=TIERS, help="the cases of this tier and of the quicker ones")
    add("--seed", type=program.seed, default=default.seed, metavar="N", help="of the inputs")
    knob = "a knob, over config(), of every checkout or as ROLE.KEY=VALUE of one; repeatable"
    add("--set", **many, type=program.knob, metavar="KEY=VALUE", help=knob)
    deadline = f"for one step of one arm, after which it counts as hanging (default {default.deadline_s:g}); "
    deadline += "the first use of a library that compiles itself has a limit of its own"
    add("--deadline", type=program.deadline, default=default.deadline_s, metavar="SECONDS", help=deadline)
    add("--commit", **many, type=program.role_value, metavar="ROLE=HASH", help="commit of a checkout")
    add("--date-ms", **many, type=program.role_date, metavar="ROLE=MS", help="its committer date")
    add("--dirty", **many, choices=ROLES, metavar="ROLE", help="the checkout has uncommitted changes")
    add("--env", **many, type=program.role_value, metavar="ROLE=PYTHON", help="Python that runs a checkout")
    home = f"home of the symmetric heap on GPUs: {', '.join(HEAPS)} (default: {HEAP_VARIABLE}, or auto, which measures)"
    add("--heap", type=program.heap, default=os.environ.get(HEAP_VARIABLE) or default.heap, metavar="HOME", help=home)
    add("--progress", choices=("json", "text", "none"), default="text", help="on stderr")


def _how_options(run: argparse.ArgumentParser) -> None:
    default = Protocol()
    add = run.add_argument
    add("--trials", type=program.positive, default=default.trials, metavar="N", help=f"default {default.trials}")
    add("--first-trial", type=program.seed, default=0, metavar="N", help="number of the first of them (default 0)")
    rounds = f"per trial (default {default.rounds}; {BURST_ROUNDS} bursts of every arm when sustained)"
    add("--rounds", type=program.positive, metavar="N", help=rounds)
    regime = "calls spaced by a flush of the caches, or back to back in bursts at settled power"
    add("--regime", choices=REGIMES, default=default.regime, help=f"{regime} (default {default.regime})")
    burst = f"least seconds of a burst when sustained (default {default.burst_s:g})"
    add("--burst", type=program.burst, default=default.burst_s, metavar="SECONDS", help=burst)
    add("--cache", choices=("cold", "hot"), default=default.cache, help="state of the caches before a sample")
    told = "ask on stderr for what to measure next, and read it from stdin (benchmarks/coordinator/orders.py)"
    add("--orders", action="store_true", help=told)
    add(
        "--schedule-seed",
        type=program.seed,
        default=default.schedule_seed,
        metavar="N",
        help="of the order of the arms",
    )


def _points_options(run: argparse.ArgumentParser) -> None:
    default = Protocol()
    points = "measure the points of this file (benchmarks/points.py), which names operator, cases, arms and rounds; "
    points += "what --out has of the sweep is not measured again"
    run.add_argument("--points", type=Path, metavar="FILE", help=points)
    deadline = f"for one step of a point, which then counts as hanging (default {default.point_deadline_s:g})"
    run.add_argument(
        "--point-deadline", type=program.deadline, default=default.point_deadline_s, metavar="SECONDS", help=deadline
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


def _write(
    arguments: argparse.Namespace, lines: Generator[dict[str, Any]], asked: Sequence[str], sources: Sources
) -> int:
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
    what = (arguments.kernel, checkouts[0], arguments.out, _selection(arguments))
    how = (arguments.seed, arguments.deadline, program.reporter(arguments.progress), arguments.heap)
    lines, sources = verify.verify(*what, *how), _sources(checkouts)
    tally = Tally()
    try:
        for line, new in lines:
            if new:
                sources.refuse_changed(line["kernel"])
                trial_file.append(arguments.out, line)
            for sentence in tally.add_check(line):
                print(sentence, file=sys.stderr, flush=True)
    finally:
        lines.close()
        trial_file.remove_if_empty(arguments.out)
    print(json.dumps(tally.as_json(), allow_nan=False) if arguments.json else tally.in_words())
    return tally.exit_code(arguments.kernel)


def _refuse_early(arguments: argparse.Namespace, checkouts: Sequence[Checkout]) -> None:
    """What is known to be wrong before a process is started."""
    refuse_unknown(arguments.kernel, checkouts)
    trial_file.check_writable(arguments.out)
    trial_file.remove_if_empty(arguments.out)


def _list(arguments: argparse.Namespace) -> int:
    with Session([Checkout("head", Path(arguments.tree).resolve())], Protocol(), Selection()) as session:
        found = session.descriptions["head"]
        names = session.choose(arguments.kernel)
        machine = some_gpus(arguments.gpus) if arguments.gpus else session.machine
    chosen = Selection(arguments.plan or "pr", tuple(arguments.case))
    planned = planned_worlds({name: found.kernels[name] for name in names}, machine, chosen) if arguments.plan else {}
    python = ".".join(platform.python_version_tuple()[:2])  # digests of two versions are not alike
    known = {"kernels": list(found.kernels.values()), "broken": found.broken, "planned": planned, "python": python}
    print(json.dumps(known, allow_nan=False))
    return MEASURED


def _candidates(arguments: argparse.Namespace) -> int:
    named = (arguments.kernel, arguments.case, arguments.backend)
    wanted = sweeping.CandidateRequest(*named, arguments.arch, arguments.compute_units)
    found = sweeping.ask_candidates(Checkout("head", Path(arguments.tree).resolve()), wanted)
    text = json.dumps(found, allow_nan=False)
    if arguments.out:
        arguments.out.write_text(text)
    else:
        print(text)
    return MEASURED


def _commands(arguments: argparse.Namespace) -> int:
    """Commands of this program and of `benchmarks.isa`, by the name of the module."""
    modules = {"benchmarks": main, "benchmarks.isa": compiling}
    commands = program.given()
    starting.prepare(sys.executable)
    return program.in_turn(lambda argv: modules[argv[0]](list(argv[1:])), commands)


def _doctor(arguments: argparse.Namespace) -> int:
    if arguments.node:
        return _node(arguments)
    report = doctor.examine(Path(arguments.tree).resolve(), arguments.folder)
    print(json.dumps(report, allow_nan=False) if arguments.json else preflight.in_words(report["problems"]))
    return FAULTS if report["problems"] else MEASURED


def _node(arguments: argparse.Namespace) -> int:
    """The preflight alone; see :mod:`benchmarks.preflight`."""
    demand = preflight.Demand(arguments.product, arguments.gpus)
    report = preflight.examine(None, demand, [Path(arguments.tree).resolve(), *arguments.folder])
    print(json.dumps(report, allow_nan=False) if arguments.json else preflight.in_words(report["problems"]))
    return FAULTS if any(one["level"] == "error" for one in report["problems"]) else MEASURED


def _selection(arguments: argparse.Namespace) -> Selection:
    return Selection(arguments.tier, tuple(arguments.case), tuple(arguments.backend), dict(arguments.set))


if __name__ == "__main__":
    sys.exit(main())
