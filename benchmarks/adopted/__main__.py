"""Time a benchmark script on two checkouts in lock-step and append trials to a file; no git, no network.

    python -m benchmarks.adopted --tree base=../main --tree head=. --out t.jsonl \\
        --script '{"path": "bench/gemm.py", "source": "bench/gemm.py", "arguments": ["--size", "1024"]}'

Exit codes: 0 all is timed or the same code, 1 something is wrong, hangs, crashes or fails, 2 the script times nothing
that can be compared, 3 the script cannot be run, or usage, 130 interrupted (finished trials are kept).
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks import program, trial_file
from benchmarks.adopted.session import SAME, ScriptSession
from benchmarks.adopted.survey import CannotRun, NothingTimed, ScriptRun, refuse, warnings
from benchmarks.coordinator import orders
from benchmarks.coordinator.orders import MeasureOrder
from benchmarks.coordinator.starting import START_VARIABLE, WAITING
from benchmarks.plan import Protocol, UsageError
from benchmarks.program import MEASURED, NOTHING, Tally
from benchmarks.shapes import built
from benchmarks.trial_file import ROLES, Status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    words = sys.argv[1:] if argv is None else argv
    return program.run(lambda: _run(program.parse_options(MeasuredScript, words)), "what is finished is kept")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredScript(program.Measuring):
    """--script: JSON, the fields of benchmarks.adopted.survey.ScriptRun.  --out: trial file; lines are appended.

    --rounds: of a trial.  --trials: how many are measured, without orders.
    --orders: ask on stderr for what to measure next, and read it from stdin.
    --cache: its state before a sample, cold or hot.  --deadline: seconds for one step, and between two timers.
    --told: write what the script times to this file, and time nothing.
    """

    script: str
    out: program.File
    rounds: program.Count = program.DEFAULT.rounds
    trials: program.Count = 1
    orders: bool = False
    cache: program.Cache = "cold"
    deadline: program.Seconds = 600.0
    told: program.File | None = None


def _run(given: MeasuredScript) -> int:
    checkouts = given.checkouts
    if sorted(one.role for one in checkouts) != sorted(ROLES):
        raise UsageError("a script is compared on two checkouts: --tree base=PATH --tree head=PATH")
    script = built(ScriptRun, program.literal(given.script), "--script", closed=True)
    if not Path(script.source).is_file():
        raise UsageError(f"there is no script {script.source}")
    if script.needs_fresh_python:  # what processes, and a fork server, read as they start
        os.environ[START_VARIABLE] = "spawn"
    if script.device == "cpu":
        os.environ.setdefault(*WAITING)
    trial_file.check_writable(given.out)
    protocol = Protocol(given.rounds, given.trials, given.cache, script.seed, deadline_s=given.deadline)
    try:
        with ScriptSession(script, checkouts, protocol, given.report) as session:
            refuse(session.survey(), script.path)
            session.warnings += warnings(session.seen)
            if given.told:
                return _tell(session, given.told)
            usual = program.next_trials(given.out, script.operator, given.trials)
            return _measure(session, orders.read() if given.orders else usual, given.out)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return program.USAGE
    except NothingTimed as error:
        print(f"{error}", file=sys.stderr)
        return NOTHING
    finally:
        trial_file.remove_if_empty(given.out)


def _measure(session: ScriptSession, told: Iterable[Sequence[MeasureOrder]], out: Path) -> int:
    tally = Tally()
    for line in session.trials(told):
        trial_file.append(out, line)
        tally.add_trial(line)
        program.keep_printed(
            out, session.printed or {role: side.end.printed for role, side in session.seen.sides.items()}
        )
    code = tally.exit_code([session.script.operator])
    return MEASURED if code == NOTHING and tally.count(Status.UNTIMED) else code


def _tell(session: ScriptSession, file: Path) -> int:
    """What would be timed, and what was seen."""
    chosen = session.closures_to_time()
    told = {
        "operator": session.script.operator,
        "timed": list(chosen.timed),
        "left_out": {**dict.fromkeys(session.same, SAME), **chosen.left_out, **session.seen.unpaired()},
        "trial_s": chosen.trial_s,
        "warnings": session.warnings,
        "closures": [dataclasses.asdict(one) for one in session.seen.sides["head"].closures],
    }
    file.write_text(json.dumps(told, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
