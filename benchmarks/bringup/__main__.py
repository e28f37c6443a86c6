"""First contact with a node: every step passes, fails with the next step, or says why it is not here.

    python -m benchmarks.bringup
    python -m benchmarks.bringup --only heap --only fences
    python -m benchmarks.bringup --dry-run

Exit codes: 0 nothing failed, 1 a step failed, 3 usage or infrastructure, 130 interrupted (the report has what is
finished).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import program, trial_file
from benchmarks.bringup.run import Bringup, StepResult
from benchmarks.bringup.steps import BACKEND, STEPS, BringupStep, RowStatus, chosen_steps
from benchmarks.coordinator.checkouts import Checkout
from benchmarks.coordinator.orders import CaseCounter
from benchmarks.machine import fingerprint

PASSED, FAILED = 0, 1
"""Exit codes beside those of benchmarks.program."""

REPORT = Path(".ridgeline/bringup.json")
FORMAT, VERSION = "ridgeline-bringup", 1


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""

    def command() -> int:
        arguments = parser().parse_args(argv)
        steps = chosen_steps(arguments.only, arguments.skip)
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
        print(f"{step.name:<10}{step.expected_s:>4.0f} s  {step.about}")
    print(f"{'together':<10}{sum(step.expected_s for step in steps):>4.0f} s  expected on 2 H200; deadlines are longer")
    return PASSED


def _bring_up(arguments: argparse.Namespace, steps: Sequence[BringupStep]) -> int:
    begin = time.monotonic()
    trial_file.check_writable(arguments.out)
    checkout = Checkout("head", arguments.tree.resolve())
    progress = CaseCounter(len(steps), program.reporter(arguments.progress))
    finished: list[BringupStep] = []
    with Bringup(checkout, lambda event: progress.start(f"{BACKEND}: {event['what']}")) as bringup:
        progress.start("looking at torch and the devices")
        results = [bringup.probe()]
        try:
            for step in steps:
                progress.start(step.name)
                results += bringup.run(step)
                finished.append(step)
                progress.done += 1
        finally:  # an interrupted bring-up has a report too, which says so
            report = {
                **report_of(bringup, results, time.monotonic() - begin),
                "complete": finished == list(steps),
                "not_run": [step.name for step in STEPS if step not in finished],
            }
            arguments.out.write_text(json.dumps(report, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    progress.finish()
    return FAILED if report["counts"][RowStatus.FAIL] else PASSED


# ---- the report: worth sending, nothing private ----------------------------------------------------------------------

SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
"""Variables with such names hold values that a report never shows."""

SHORTEST_PRIVATE = 4
"""Characters; a shorter text would blank ordinary words."""


def report_of(bringup: Bringup, results: list[StepResult], seconds: float) -> dict[str, Any]:
    """The machine, its versions, and what became of the steps."""
    counts = Counter(row["status"] for result in results for row in result["rows"])
    machine = fingerprint.fingerprint(bringup.devices)
    del machine["name"]
    report = {
        "format": FORMAT,
        "version": VERSION,
        "at": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "counts": {str(status): counts[status] for status in RowStatus},
        "machine": machine,
        "devices": [{key: device[key] for key in device if key != "uuid"} for device in bringup.devices],
        "environment": dict(bringup.environment),
        "steps": results,
    }
    cleaned: dict[str, Any] = without_private(report, private_texts())
    return cleaned


def without_private(value: Any, private: dict[str, str]) -> Any:
    """JSON values with every private text replaced."""
    if isinstance(value, dict):
        return {key: without_private(part, private) for key, part in value.items()}
    if isinstance(value, list):
        return [without_private(part, private) for part in value]
    if isinstance(value, str):
        for text, shown in private.items():
            value = value.replace(text, shown)
    return value


def private_texts() -> dict[str, str]:
    """Host name, home, checkout, Python's folder and values of secret variables, the longest first: what is shown."""
    folders = {str(Path.cwd()): "<here>", sys.prefix: "<python>", str(Path.home()): "<home>", platform.node(): "<host>"}
    secrets = {value: "<secret>" for name, value in os.environ.items() if SECRET.search(name) and len(value) > 5}
    texts = {**folders, **secrets}
    return {text: texts[text] for text in sorted(texts, key=len, reverse=True) if len(text) >= SHORTEST_PRIVATE}


if __name__ == "__main__":
    sys.exit(main())
