"""Measure kernels and write trial files.  Needs Python, torch and triton; no git, no network.

    python -m benchmarks run --tree head=. --kernel gemm --tier pr --trials 3 --out trials.jsonl
    python -m benchmarks run --tree head=. --tree base=../main --out trials.jsonl
    python -m benchmarks verify --tier nightly --out checks.jsonl
    python -m benchmarks list --tree . --json
    python -m benchmarks doctor

Exit codes of run and verify: 0 all measured (right), 1 something is wrong, hangs, crashes or fails, 2 nothing was
measured, 3 usage or infrastructure, 130 interrupted (finished trials and checks are kept).
"""

from __future__ import annotations

import argparse
import ast
import dataclasses
import json
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import doctor, verify
from benchmarks import trial_file as notes
from benchmarks.coordinator.checkouts import ROLES, Tree, TreeError
from benchmarks.coordinator.ranks import Unkillable
from benchmarks.coordinator.trial import Session, measure
from benchmarks.plan import Protocol, Selection, UsageError
from benchmarks.verify import FAULTY
from kernels.spec import TIERS

MEASURED, FAULTS, NOTHING, USAGE, INTERRUPTED = 0, 1, 2, 3, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    arguments = parser().parse_args(argv)
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, _interrupted)
    try:
        return arguments.command(arguments)
    except (UsageError, TreeError, notes.OutputError, Unkillable, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print("interrupted; what is finished is kept", file=sys.stderr)
        return INTERRUPTED


def _interrupted(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"error: {message}\n")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = _Parser(
        prog="python -m benchmarks", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    run = verbs.add_parser(
        "run",
        help="measure and append trial lines to a file",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.set_defaults(command=_run)
    _what_options(run, "trial file (.jsonl or .jsonl.gz); lines are appended")
    _how_options(run)
    verifying = verbs.add_parser(
        "verify",
        help="call every backend and compare; nothing is timed",
        description=verify.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verifying.set_defaults(command=_verify)
    _what_options(verifying, "file of checks (.jsonl); lines are appended, and what it knows is not tried again")
    verifying.add_argument("--json", action="store_true", help="print the summary as JSON")
    listing = verbs.add_parser("list", help="what a tree declares")
    listing.set_defaults(command=_list)
    listing.add_argument("--tree", default=".", metavar="PATH", help="source tree (default: here)")
    listing.add_argument("--json", action="store_true", help="machine-readable")
    checking = verbs.add_parser("doctor", help="what this machine is and what can be measured on it")
    checking.set_defaults(command=_doctor)
    checking.add_argument("--tree", default=".", metavar="PATH", help="source tree (default: here)")
    checking.add_argument("--json", action="store_true", help="machine-readable")
    return top


def _what_options(verb: argparse.ArgumentParser, out: str) -> None:
    default = Protocol()
    add = verb.add_argument
    add(
        "--tree",
        action="append",
        type=_role_value,
        metavar="ROLE=PATH",
        help="source tree; ROLE is head or base (default: head=.)",
    )
    add("--out", type=Path, required=True, metavar="FILE", help=out)
    add("--kernel", action="append", default=[], metavar="NAME", help="only this kernel; repeatable (default: all)")
    add("--case", action="append", default=[], metavar="GLOB", help="cases, by name or pattern; repeatable")
    add("--backend", action="append", default=[], metavar="NAME", help="backend or baseline; repeatable (default: all)")
    add("--tier", default="pr", choices=TIERS, help="the cases of this tier and of the quicker ones")
    add("--seed", type=int, default=default.seed, metavar="N", help="of the inputs")
    add(
        "--set",
        action="append",
        default=[],
        type=_knob,
        metavar="KEY=VALUE",
        help="a knob, over config(), of every tree or as ROLE.KEY=VALUE of one; repeatable",
    )
    add(
        "--deadline",
        type=float,
        default=default.deadline_s,
        metavar="SECONDS",
        help=f"for one step of one arm, after which it counts as hanging (default {default.deadline_s:g})",
    )
    add("--commit", action="append", default=[], type=_role_value, metavar="ROLE=HASH", help="commit of a tree")
    add("--date-ms", action="append", default=[], type=_role_value, metavar="ROLE=MS", help="its committer date")
    add("--dirty", action="append", default=[], choices=ROLES, metavar="ROLE", help="the tree has uncommitted changes")
    add("--env", action="append", default=[], type=_role_value, metavar="ROLE=PYTHON", help="Python that runs a tree")
    add("--progress", choices=("json", "text", "none"), default="text", help="on stderr")
    add("--json-progress", dest="progress", action="store_const", const="json", help="the same as --progress json")


def _how_options(run: argparse.ArgumentParser) -> None:
    default = Protocol()
    add = run.add_argument
    add("--trials", type=_positive, default=default.trials, metavar="N", help=f"default {default.trials}")
    add("--rounds", type=_positive, default=default.rounds, metavar="N", help=f"per trial (default {default.rounds})")
    add("--cache", choices=("cold", "hot"), default=default.cache, help="state of the caches before a sample")
    add("--schedule-seed", type=int, default=default.schedule_seed, metavar="N", help="of the order of the arms")


def _run(arguments: argparse.Namespace) -> int:
    trees = _trees(arguments)
    protocol = Protocol(
        arguments.rounds, arguments.trials, arguments.cache, arguments.seed, arguments.schedule_seed, arguments.deadline
    )
    notes.check_writable(arguments.out)
    tally = Tally()
    lines = measure(arguments.kernel, trees, protocol, _progress(arguments.progress), _selection(arguments))
    try:
        for line in lines:
            notes.append(arguments.out, line)
            tally.add(line)
    finally:
        lines.close()
        notes.remove_if_empty(arguments.out)
    tally.explain(arguments.kernel)
    return tally.exit_code(arguments.kernel)


def _verify(arguments: argparse.Namespace) -> int:
    trees = _trees(arguments)
    if [tree.role for tree in trees] != ["head"]:
        raise UsageError("one tree is verified at a time: --tree head=PATH")
    if arguments.out.suffix == ".gz":
        raise UsageError(f"{arguments.out}: checks are not compressed; name a .jsonl file")
    notes.check_writable(arguments.out)
    lines = verify.verify(
        arguments.kernel,
        trees[0],
        arguments.out,
        _selection(arguments),
        arguments.seed,
        arguments.deadline,
        _progress(arguments.progress),
    )
    summary = verify.Summary()
    try:
        for line, new in lines:
            if new:
                notes.append(arguments.out, line)
            for sentence in summary.add(line):
                print(sentence, file=sys.stderr, flush=True)
    finally:
        lines.close()
        notes.remove_if_empty(arguments.out)
    print(json.dumps(summary.as_json(), allow_nan=False) if arguments.json else summary.in_words())
    if summary.faults or (summary.broken and not arguments.kernel):
        return FAULTS
    return MEASURED if summary.count("ok") else NOTHING


def _selection(arguments: argparse.Namespace) -> Selection:
    return Selection(arguments.tier, tuple(arguments.case), tuple(arguments.backend), dict(arguments.set))


@dataclasses.dataclass
class Tally:
    """What became of the arms of all lines."""

    statuses: dict[str, int] = dataclasses.field(default_factory=dict)
    faults: dict[str, str] = dataclasses.field(default_factory=dict)
    broken: dict[str, str] = dataclasses.field(default_factory=dict)
    undeclared: list[str] = dataclasses.field(default_factory=list)

    def add(self, line: Mapping[str, Any]) -> None:
        """Count the arms of a line."""
        for name, case in line["cases"].items():
            for key, arm in case["arms"].items():
                self.statuses[arm["status"]] = self.statuses.get(arm["status"], 0) + 1
                if arm["status"] in FAULTY:
                    self.faults[f"{line['kernel']} {name} {key}"] = f"{arm['status']}: {arm['why']}"
        for role, tree in line["trees"].items():
            self.broken.update({f"{role} {b['module']}": b["reason"] for b in tree["broken"]})
        if not any(tree["declaration"] for tree in line["trees"].values()):
            self.undeclared.append(line["kernel"])

    def explain(self, asked: Sequence[str]) -> None:
        """Say on stderr what was not measured, and why."""
        for where, why in {**self.faults, **{f"broken module, {k}": v for k, v in self.broken.items()}}.items():
            print(f"{where}: {why}", file=sys.stderr)
        for name in dict.fromkeys(self.undeclared):
            print(f"no kernel {name!r} in any module that imports", file=sys.stderr)
        if not self.statuses.get("ok"):
            print(
                "nothing was measured: "
                + (", ".join(f"{n} {s}" for s, n in sorted(self.statuses.items())) or "no case of this tier"),
                file=sys.stderr,
            )

    def exit_code(self, asked: Sequence[str]) -> int:
        """A broken module is a fault unless the kernels asked for are all there."""
        if self.faults or self.undeclared or (self.broken and not asked):
            return FAULTS
        return MEASURED if self.statuses.get("ok") else NOTHING


def _list(arguments: argparse.Namespace) -> int:
    session = Session([Tree("head", Path(arguments.tree).resolve())], Protocol(), Selection(), None)
    try:
        session.describe()
    finally:
        session.close()
    found = session.descriptions["head"]
    if arguments.json:
        print(json.dumps({"kernels": list(found.kernels.values()), "broken": found.broken}, allow_nan=False))
        return MEASURED
    for name, kernel in found.kernels.items():
        print(f"{name}: backends {', '.join(kernel['backends'])}; baselines {', '.join(kernel['baselines']) or 'none'}")
        for case in kernel["cases"]:
            print(f"  {case['name']} ({case['tier']}, world {case['world']}, {case['dtype']})")
    for module in found.broken:
        print(f"broken module {module['module']}: {module['reason']}")
    return MEASURED


def _doctor(arguments: argparse.Namespace) -> int:
    report = doctor.examine(Path(arguments.tree).resolve())
    print(json.dumps(report, allow_nan=False) if arguments.json else doctor.in_words(report))
    return MEASURED if not report["problems"] else FAULTS


def _trees(arguments: argparse.Namespace) -> list[Tree]:
    paths = dict(arguments.tree or [("head", ".")])
    facts = {"commit": dict(arguments.commit), "date_ms": dict(arguments.date_ms), "python": dict(arguments.env)}
    for option, values in facts.items():
        for role in values:
            if role not in paths:
                raise UsageError(f"there is no --tree {role}=PATH for the {option} of {role!r}")
    for value in facts["date_ms"].values():
        if not value.isdigit():
            raise UsageError(f"{value!r} is not a number of milliseconds since 1970")
    return [
        Tree(
            role,
            Path(path).resolve(),
            facts["commit"].get(role),
            int(facts["date_ms"][role]) if role in facts["date_ms"] else None,
            True if role in arguments.dirty else (False if role in facts["commit"] else None),
            facts["python"].get(role, sys.executable),
        )
        for role, path in paths.items()
    ]


def _progress(kind: str) -> Any:
    if kind == "none":
        return None
    if kind == "json":
        return lambda event: print(json.dumps(event), file=sys.stderr, flush=True)
    return lambda event: print(f"{event['done']}/{event['total'] or '?'} {event['what']}", file=sys.stderr, flush=True)


def _role_value(text: str) -> tuple[str, str]:
    role, equals, value = text.partition("=")
    if not equals or role not in ROLES or not value:
        raise argparse.ArgumentTypeError(f"{text!r}: expected ROLE=VALUE with ROLE one of {', '.join(ROLES)}")
    return role, value


def _knob(text: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    role, dot, name = key.rpartition(".")
    if not equals or not name.isidentifier() or (dot and role not in ROLES):
        raise argparse.ArgumentTypeError(f"{text!r}: expected KEY=VALUE")
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
