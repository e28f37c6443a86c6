"""First contact with a node: every step passes, fails with the next step, or says why it is not here.

    python -m benchmarks.bringup
    python -m benchmarks.bringup --only heap --only fences
    python -m benchmarks.bringup --dry-run

Exit codes: 0 nothing failed, 1 a step failed, 3 usage or infrastructure, 130 interrupted (the report has what is
finished).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import program, trial_file
from benchmarks.bringup import report
from benchmarks.bringup.run import Bringup, Seen
from benchmarks.bringup.steps import BACKENDS, BringupStep, RowStatus, all_steps, choose
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import CaseCounter
from benchmarks.machine import fingerprint

PASSED, FAILED = 0, 1
"""Exit codes beside those of benchmarks.program."""

REPORT = Path(".ridgeline/bringup.json")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""

    def command() -> int:
        arguments = parser().parse_args(argv)
        steps = choose(arguments.only, arguments.skip)
        return _list(steps) if arguments.dry_run else _bring_up(arguments, steps)

    return program.run(command, "the report has what is finished")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    as_written = argparse.RawDescriptionHelpFormatter
    top = program.StrictParser(prog="python -m benchmarks.bringup", description=__doc__, formatter_class=as_written)
    add, many = top.add_argument, {"action": "append", "default": [], "metavar": "STEP"}
    add("--only", **many, help="this step alone; repeatable")
    add("--skip", **many, help="without this step; repeatable")
    add("--dry-run", action="store_true", help="list the steps and their expected seconds")
    add("--tree", type=Path, default=Path("."), metavar="PATH", help="checkout whose kernels are tried (default: here)")
    add("--out", type=Path, default=REPORT, metavar="FILE", help=f"the report, JSON (default: {REPORT})")
    add("--progress", choices=("json", "text"), default="text", help="on stderr")
    return top


def _list(steps: Sequence[BringupStep]) -> int:
    for step in steps:
        print(f"{step.name:<24}{step.expected_s:>4.0f} s  {step.about}")
    print(f"{'together':<24}{sum(step.expected_s for step in steps):>4.0f} s  expected on 2 H200; deadlines are longer")
    return PASSED


# ---- running -----------------------------------------------------------------------------------------------------


def _bring_up(arguments: argparse.Namespace, steps: Sequence[BringupStep]) -> int:
    begin = time.monotonic()
    trial_file.check_writable(arguments.out)
    checkout = Checkout("head", arguments.tree.resolve())
    progress = CaseCounter(len(steps), program.reporter(arguments.progress))
    with Bringup(checkout, lambda event: progress.start(f"{BACKENDS.name}: {event['what']}")) as bringup:
        progress.start("looking at torch and the devices")
        seen, results, complete = bringup.look(), bringup.results, False
        try:
            for step in steps:
                progress.start(step.name)
                for line in bringup.run(step):
                    results[line["step"]] = line
                progress.done += 1
            complete = True
        finally:  # an interrupted bring-up has a report too, which says so
            facts = {**_facts(seen), "complete": complete}
            missing = [step.name for step in all_steps() if not any(map(step.has, results))]
            whole = report.document(facts, list(results.values()), time.monotonic() - begin, missing)
            arguments.out.write_text(json.dumps(whole, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    progress.finish()
    return FAILED if whole["counts"][RowStatus.FAIL] else PASSED


def _facts(seen: Seen) -> dict[str, Any]:
    """What the report says of the machine and its versions."""
    machine = fingerprint.fingerprint(seen.devices)
    devices = [{key: value for key, value in one.items() if key != "uuid"} for one in seen.devices]
    named = {key: value for key, value in machine.items() if key != "name"}
    return {"machine": named, "devices": devices, "environment": dict(seen.environment)}


if __name__ == "__main__":
    sys.exit(main())
