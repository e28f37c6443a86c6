"""Time a benchmark script on two checkouts in lock-step and append trials to a file; no git, no network.

    python -m benchmarks.adopted --tree base=../main --tree head=. --script bench/gemm.py --out t.jsonl -- --size 1024
    python -m benchmarks.adopted ... --told seen.json

Exit codes: 0 all timed, 1 something is wrong, hangs, crashes or fails, 2 the script times nothing that can be compared,
3 the script cannot be run, or usage, 130 interrupted (finished trials are kept).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import program, trial_file
from benchmarks import program as of
from benchmarks.adopted.session import ScriptSampling, ScriptSession
from benchmarks.adopted.survey import CannotRun, NothingTimed, ScriptRun, Survey, refuse, warnings
from benchmarks.coordinator.starting import START_VARIABLE, WAITING
from benchmarks.plan import UsageError
from benchmarks.program import NOTHING, Tally
from benchmarks.trial_file import ROLES

PRINTED = "{out}.{role}.txt"
"""Where the end of what a script printed in the last whole trial is kept, beside the trial file."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""

    def command() -> int:
        given = list(sys.argv[1:] if argv is None else argv)
        cut = given.index("--") if "--" in given else len(given)
        return _run(_parser().parse_args(given[:cut]), tuple(given[cut + 1 :]))

    return program.run(command, "what is finished is kept")


def _parser() -> argparse.ArgumentParser:
    parser = program.StrictParser(
        prog="python -m benchmarks.adopted", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--tree", action="append", type=of.role_value, metavar="ROLE=PATH", required=True, help="checkout of a side")
    add("--script", required=True, metavar="PATH", help="the script, below the top of a checkout")
    add("--source", type=Path, metavar="FILE", help="the file whose text runs on both sides (default: head's)")
    add("--out", type=Path, required=True, metavar="FILE", help="trial file; lines are appended")
    add("--folder", default=".", metavar="FOLDER", help="of a checkout, in which the script runs (default: its top)")
    add("--path", action="append", default=[], metavar="FOLDER", help="of a checkout, for imports; repeatable")
    add("--case", action="append", default=[], metavar="NAME", help="time only this case; repeatable")
    add("--device", choices=("", "cpu"), default="", help="cpu: what the script wants on a GPU runs on the CPU")
    add("--seed", type=of.seed, default=0, metavar="N", help="of all random numbers")
    add("--rounds", type=of.positive, default=40, metavar="N", help="of a trial")
    add("--trials", type=of.positive, default=1, metavar="N", help="how many are measured now")
    add("--most-trials", type=of.positive, default=12, metavar="N", help="over which the budget is divided")
    add("--budget", type=of.deadline, metavar="SECONDS", help="for all trials together; what does not fit is left out")
    add("--cache", choices=("cold", "hot"), default="cold", help="state of the caches before a sample")
    add("--deadline", type=of.deadline, default=600.0, metavar="SECONDS", help="for one step, and between two timers")
    add("--told", type=Path, metavar="FILE", help="write what the script times to this file, and time nothing")
    add("--progress", choices=("json", "text", "none"), default="text", help="on stderr")
    many = {"action": "append", "default": []}
    add("--commit", **many, type=of.role_value, metavar="ROLE=HASH", help="commit of a checkout")
    add("--date-ms", **many, type=of.role_date, metavar="ROLE=MS", help="its committer date")
    add("--dirty", **many, choices=ROLES, metavar="ROLE", help="the checkout has uncommitted changes")
    add("--env", **many, type=of.role_value, metavar="ROLE=PYTHON", help="Python that runs a checkout")
    return parser


def _run(given: argparse.Namespace, arguments: tuple[str, ...]) -> int:
    checkouts = of.checkouts(given)
    if sorted(one.role for one in checkouts) != sorted(ROLES):
        raise UsageError("a script is compared on two checkouts: --tree base=PATH --tree head=PATH")
    head = next(one for one in checkouts if one.role == "head")
    source = given.source or head.path / given.script
    if not source.is_file():
        raise UsageError(f"there is no script {source}")
    script = ScriptRun(given.script, source, arguments, tuple(given.path), given.device, given.seed, given.folder)
    _prepare_environment(script)
    trial_file.check_writable(given.out)
    asked = ScriptSampling(
        given.rounds,
        given.trials,
        _lines(given.out),
        given.cache,
        given.deadline,
        given.budget,
        tuple(given.case),
        given.out.with_name(f"{given.out.name}.survey.json"),
        given.most_trials,
    )
    try:
        with ScriptSession(script, checkouts, asked, program.reporter(given.progress)) as session:
            survey = session.survey()
            refuse(survey, script.path, script.text)
            session.warnings += warnings(survey)
            if given.told:
                return _tell(session, survey, given.told)
            return _measure(session, survey, given.out)
    except CannotRun as error:
        print(f"error: {error}", file=sys.stderr)
        return program.USAGE
    except NothingTimed as error:
        print(f"{error}", file=sys.stderr)
        return NOTHING
    finally:
        trial_file.remove_if_empty(given.out)


def _prepare_environment(script: ScriptRun) -> None:
    """What processes, and a fork server, read as they start."""
    if script.needs_fresh_python:
        os.environ[START_VARIABLE] = "spawn"
    if script.device == "cpu":
        os.environ.setdefault(*WAITING)


def _lines(file: Path) -> int:
    """Trials that a file has already: the next one has this number."""
    return file.read_bytes().count(b"\n") if file.exists() and file.suffix != ".gz" else 0


def _measure(session: ScriptSession, survey: Survey, out: Path) -> int:
    tally = Tally()
    for line in session.trials(survey):
        trial_file.append(out, line)
        tally.add_trial(line)
        for role, text in ({} if session.asked.cases else session.printed).items():
            Path(PRINTED.format(out=out, role=role)).write_text(text)
    return tally.exit_code([session.script.operator])


def _tell(session: ScriptSession, survey: Survey, file: Path) -> int:
    """What would be timed, and what was seen."""
    chosen = session.chosen(survey)
    closures = [dataclasses.asdict(one) for one in survey.sides["head"].closures]
    told = {
        "operator": session.script.operator,
        "timed": list(chosen.timed),
        "left_out": {**chosen.left_out, **survey.unpaired()},
        "trial_s": chosen.trial_s,
        "warnings": session.warnings,
        "closures": closures,
    }
    file.write_text(json.dumps(told, allow_nan=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
