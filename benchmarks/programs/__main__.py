"""Run a benchmark program on two checkouts in turn and append trials to a file; no git of ours, no network.

    python -m benchmarks.programs --tree base=../main --tree head=. --program '{"name": "bench", "run": "./bench"}' \\
        --out t.jsonl --kept builds

Exit codes: 0 all rows are timed, 1 something is wrong, fails or is missing, 2 no side prints a row, 3 usage, 130
interrupted (finished trials are kept).
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence

from benchmarks import program, trial_file
from benchmarks.coordinator import orders
from benchmarks.plan import Protocol, UsageError
from benchmarks.program import NOTHING, Tally
from benchmarks.programs.reader import Program, ReaderError, declared
from benchmarks.programs.session import NothingToRun, ProgramSession
from benchmarks.shapes import Unfit, built


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    return program.run(lambda: _run(program.parse_options(MeasuredProgram, words)), "what is finished is kept")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredProgram(program.Measuring):
    """--program: JSON, the fields of benchmarks.programs.reader.Program.  --out: trial file; lines are appended.

    --kept: folder that says which checkouts are built.  --seed: of the order of the sides.
    --rounds: of a trial: runs of each side.  --trials: how many are measured, without orders.
    --orders: ask on stderr for what to measure next, and read it from stdin.
    --deadline: seconds for a build, and for a run.
    """

    program: str
    out: program.File
    kept: program.File
    seed: program.Seed = 0
    rounds: program.Count = 8
    trials: program.Count = 1
    orders: bool = False
    deadline: program.Seconds = 600.0


def _run(given: MeasuredProgram) -> int:
    asked = _program(given.program)
    trial_file.check_writable(given.out)
    protocol = Protocol(given.rounds, given.trials, "hot", given.seed, deadline_s=given.deadline)
    usual = program.next_trials(given.out, "", given.trials)
    tally = Tally()
    try:
        with ProgramSession(asked, given.checkouts, protocol, given.report, given.kept) as session:
            for line in session.trials(orders.read() if given.orders else usual):
                trial_file.append(given.out, line)
                tally.add_trial(line)
            program.keep_printed(given.out, session.printed)
    except NothingToRun as error:
        print(error, file=sys.stderr)
        return NOTHING
    finally:
        trial_file.remove_if_empty(given.out)
    return tally.exit_code([asked.name])


def _program(text: str) -> Program:
    try:
        table = json.loads(text)
        if table.get("reader"):
            declared(table["reader"])
        return built(Program, table)
    except (ValueError, TypeError, Unfit, ReaderError) as error:
        raise UsageError(f"--program: {error}") from None


if __name__ == "__main__":
    sys.exit(main())
