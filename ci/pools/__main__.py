"""`python3 -m ci.pools`: the matrix of the workflows, before anything is installed.

    python3 -m ci.pools --matrix [--only NAME] [--gpus N] -- python -m ci run --out trials.jsonl

Prints one line of JSON: a list of legs (ci.pools.command.Leg), whose `script` runs what stands after `--`.  In a
workflow it also sets the step's output `legs`.  `ridgeline ci pools` does more.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from ci.pools import command, file
from ci.pools.file import PoolsError

USAGE = 3


def main(argv: Sequence[str], environ: Mapping[str, str] = os.environ) -> int:
    """Print the matrix and, in a workflow, make it the step's output `legs`; 3 for a bad file, name or option."""
    parser = _Parser("python3 -m ci.pools", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--matrix", action="store_true", required=True, help="print the legs as JSON")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="only this pool; repeatable")
    parser.add_argument("--gpus", default="", type=_count, metavar="N", help="only legs of N GPUs")
    parser.add_argument("--file", default=None, type=Path, metavar="FILE", help="default: ci/runners.toml")
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="what a leg runs, after --")
    asked = parser.parse_args(argv)
    only = [name for name in asked.only if name]  # an input of a workflow, left empty
    try:
        line = command.legs_json(command.legs(file.load(asked.file), asked.command, only, asked.gpus))
    except PoolsError as error:
        print(f"Error: {error}", file=sys.stderr)
        return USAGE
    print(line)
    if environ.get("GITHUB_OUTPUT"):
        with open(environ["GITHUB_OUTPUT"], "a", encoding="utf-8") as output:
            output.write(f"legs={line}\n")
    return 0


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """A wrong option has the exit code of wrong usage, which argparse's own 2 is not here."""
        self.exit(USAGE, f"Error: {message}; see --help\n")


def _count(text: str) -> int | None:
    if text and not (text.isdecimal() and len(text) < 4):
        raise argparse.ArgumentTypeError(f"{text!r:.40} is not a number of GPUs")
    return int(text) if text else None  # "": an input of a workflow, left empty


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
