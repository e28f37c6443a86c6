"""What the programs of this package share: what they are asked for, progress on stderr, exit codes, and the tally of
what became of the arms of a run or of a verification."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import inspect
import json
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, cast

from benchmarks import lifetime, trial_file
from benchmarks.coordinator.checkouts import Checkout, CheckoutError
from benchmarks.coordinator.orders import MeasureOrder, Report
from benchmarks.coordinator.ranks import Unkillable
from benchmarks.lifetime import ENDING
from benchmarks.plan import Protocol, UsageError
from benchmarks.points import knob_value
from benchmarks.shapes import Into, Json, JsonObject, Unfit, bounded, built, number, one_of, whole
from benchmarks.trial_file import FAILED, ROLES, UNTRIED, Status
from kernels.spec import TIERS

USAGE, INTERRUPTED = 3, 130
"""Exit codes; 3 is also that of a defect, which must never look like a fault of what is measured."""


def run(command: Callable[[], int], interrupted: str) -> int:
    """The exit code of a command; what ends it becomes a sentence on stderr and a code.  interrupted: what is kept."""
    lifetime.keep_orphans()
    lifetime.interrupt_on(*ENDING)
    try:
        return command()
    except (UsageError, CheckoutError, trial_file.OutputError, Unfit, Unkillable, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return USAGE
    except KeyboardInterrupt:
        print(f"interrupted; {interrupted}", file=sys.stderr)
        return INTERRUPTED
    except Exception as error:
        traceback.print_exc()
        print(f"Error: {type(error).__name__}: {error} (this is a defect of Ridgeline)", file=sys.stderr)
        return USAGE


def reporter(kind: str) -> Report:
    """What prints progress on stderr: `json` for a progress bar, `text` for a person, `none`."""
    if kind == "none":
        return lambda event: None
    if kind == "json":
        return lambda event: print(json.dumps(event), file=sys.stderr)
    return lambda event: print(
        f"{event['done']}/{event['total'] or '?'} {event['what'] or event['arch']}", file=sys.stderr
    )


# What a program is asked for: a dataclass, whose fields are its options.


Asked = TypeVar("Asked")


def parse_options(kind: type[Asked], words: Sequence[str]) -> Asked:
    """What options ask for: `--name VALUE` of a field, `--name` of one that is a bool, several times of a tuple.

    UsageError and Unfit name what is wrong.  --help prints the docstring of the class and leaves.
    """
    parser = argparse.ArgumentParser(
        usage=argparse.SUPPRESS,
        description=inspect.getdoc(kind),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
        exit_on_error=False,
    )
    options = {f"--{field.name.replace('_', '-')}": str(field.type) for field in dataclasses.fields(cast(Any, kind))}
    for option, wanted in options.items():
        several = "append" if wanted.startswith("tuple") else "store"
        parser.add_argument(option, action="store_true" if wanted == "bool" else several)
    try:
        values, unknown = parser.parse_known_args(words)
    except argparse.ArgumentError as error:
        raise UsageError(str(error)) from None
    if unknown:
        raise UsageError(f"unknown option {unknown[0]}; known: {', '.join(options)}")
    return built(kind, vars(values), closed=True)


def literal(text: str) -> Any:
    """A number as JSON writes it; anything else stays a text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


MOST_SEED = 2**63
"""torch.manual_seed takes 64-bit seeds; below this a seed is also a JSON integer of every reader."""

LEAST_DEADLINE_S, MOST_DEADLINE_S = 0.1, 86400.0
"""A step takes milliseconds at least, and a day is no deadline (2026-11)."""

SHORTEST_BURST_S, LONGEST_BURST_S = 0.001, 60.0
"""A shorter burst has no two calls worth the name; a minute is longer than any power control needs (2026-11)."""

Count = Annotated[int, Into(literal), whole(1, 10**9)]
Seed = Annotated[int, Into(literal), whole(0, MOST_SEED - 1)]
Seconds = Annotated[float, Into(literal), number(LEAST_DEADLINE_S, MOST_DEADLINE_S)]
BurstSeconds = Annotated[float, Into(literal), number(SHORTEST_BURST_S, LONGEST_BURST_S)]
File = Annotated[Path, Into(Path)]
Cache = Literal["cold", "hot"]
Tier = Annotated[str, one_of(*TIERS)]
DEFAULT = Protocol()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measuring:
    """--tree: a checkout as ROLE=PATH (default: head=.), ROLE is head or base, or ROLE=JSON with fields of Checkout.

    --progress: on stderr, as json, text or none.
    """

    tree: tuple[str, ...] = ()
    progress: Literal["json", "text", "none"] = "text"

    @property
    def checkouts(self) -> list[Checkout]:
        """The checkouts that the options describe; of a role the last."""
        return list({one.role: one for one in map(side, self.tree or ("head=.",))}.values())

    @property
    def report(self) -> Report:
        """What prints progress on stderr: `json` for a progress bar, `text` for a person, `none`."""
        return reporter(self.progress)


def side(text: str) -> Checkout:
    """ROLE=PATH, or ROLE=JSON with the fields of Checkout."""
    role, _, value = text.partition("=")
    if role not in ROLES or not value:
        raise UsageError(f"--tree {text!r}: expected ROLE=PATH with ROLE one of {', '.join(ROLES)}")
    fields = literal(value) if value.startswith("{") else {"path": value}
    known = {"role": role, **fields} if isinstance(fields, dict) else fields
    return built(Checkout, known, role, closed=True)


def knob(text: str) -> tuple[str, Any]:
    """KEY=VALUE or ROLE.KEY=VALUE; a value is one of points.knob_value that a trial file can hold."""
    key, equals, value = text.partition("=")
    role, dot, name = key.rpartition(".")
    if not equals or not name.isidentifier() or (dot and role not in ROLES):
        raise UsageError(f"--set {text!r}: expected KEY=VALUE")
    setting = knob_value(value)
    bounded(setting, f"--set {key}")
    return key, setting


PRINTED = "{out}.{role}.txt"
"""Where the end of what a script or a program printed at first is kept, beside the trial file."""


def keep_printed(out: Path, printed: Mapping[str, str]) -> None:
    """Write what each side printed.  printed: by role."""
    for role, text in printed.items():
        Path(PRINTED.format(out=out, role=role)).write_text(text)


def next_trials(out: Path, operator: str, count: int) -> list[list[MeasureOrder]]:
    """The order of so many trials after those that a file has."""
    first = out.read_bytes().count(b"\n") if out.exists() and out.suffix != ".gz" else 0
    return [[MeasureOrder(operator, (), first, count)]]


# What became of the arms of a run or of a verification: counted once, for the exit code and for people.


LEFT_RUNNING = "left running"
"""In the warnings of a trial, about processes that had to be ended."""

MEASURED, FAULTS, NOTHING = 0, 1, 2
"""Exit codes: some arm is right and none is wrong, something is wrong, nothing was called."""


@dataclasses.dataclass(frozen=True)
class ArmFault:
    """An arm that ended as it must not.  backend: its name in the file, ROLE/BACKEND in a trial, BACKEND in a check.

    emulated: the target, of a case that was executed on a CPU.
    """

    kernel: str
    case: str
    backend: str
    status: Status
    why: str
    emulated: str = ""

    def in_words(self) -> str:
        """One line for people."""
        target = f" on {self.emulated}" if self.emulated else ""
        return f"{self.kernel} {self.case} {self.backend}{target}: {self.status}: {self.why}"


@dataclasses.dataclass
class ArmTally:
    """What became of an arm.  cases: by status.  largest_error: against a reference, as a share of its norm.

    emulated: the target, where cases were executed on a CPU: instructions by its waves, in so many CPU seconds.
    """

    kernel: str
    backend: str
    emulated: str = ""
    cases: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    largest_error: float | None = None
    instructions: int = 0
    cpu_s: float = 0.0

    def add(self, arm: Json) -> None:
        """Count one case."""
        self.cases[arm["status"]] += 1
        self.instructions += arm.get("instructions", 0)
        self.cpu_s += arm.get("cpu_s", 0.0)
        if arm["status"] == Status.OK:
            self.largest_error = max(arm["error"]["norm"], self.largest_error or 0.0)

    def in_words(self) -> str:
        """One line for people."""
        counts = [f"{self.cases[Status.OK]} of {self.cases.total()} right"]
        counts += [f"{self.cases[status]} {status}" for status in (*FAILED, *UNTRIED) if status in self.cases]
        error = f", error {self.largest_error:.1e} at most" if self.largest_error is not None else ""
        where, executed = f"{self.kernel}/{self.backend}", ""
        if self.emulated:
            where += f" on {self.emulated}"
            executed = f"; {self.instructions:,} instructions executed in {self.cpu_s:.1f} s of a CPU"
        return f"{where}: {', '.join(counts)}{error}{executed}"


class Tally:
    """What became of all arms, and what is not right."""

    def __init__(self) -> None:
        self.arms: dict[tuple[str, ...], ArmTally] = {}
        self.broken: dict[str, str] = {}
        self.reasons: collections.Counter[str] = collections.Counter()
        self.undeclared: list[str] = []
        self.left: list[str] = []
        self.faults: dict[tuple[str, ...], ArmFault] = {}

    def add_trial(self, line: Json) -> None:
        """Count the arms of a trial line."""
        for case, entry in line["cases"].items():
            for key, arm in entry["arms"].items():
                self._add(line["kernel"], case, key, arm)
        for role, checkout in line["trees"].items():
            self.broken.update({f"{role} {b['module']}": b["reason"] for b in checkout["broken"]})
        self.left += [f"{line['kernel']}: {one}" for one in line["warnings"] if LEFT_RUNNING in one]
        if not any(checkout["declaration"] for checkout in line["trees"].values()):
            self.undeclared.append(line["kernel"])

    def add_check(self, line: Json) -> list[str]:
        """Count the arms of a line of checks; returns a sentence for each that is not right."""
        about = line["kernel"], line["case"]
        found = [self._add(*about, name, arm, line.get("emulated", "")) for name, arm in line["arms"].items()]
        self.broken.update({module["module"]: module["reason"] for module in line["broken"]})
        return [fault.in_words() for fault in found if fault]

    def _add(self, kernel: str, case: str, name: str, arm: Json, emulated: str = "") -> ArmFault | None:
        self.arms.setdefault((kernel, name, emulated), ArmTally(kernel, name, emulated)).add(arm)
        if arm["status"] not in FAILED:
            self.reasons.update([] if arm["status"] == Status.OK else [arm["why"]])
            return None
        fault = ArmFault(kernel, case, name, Status(arm["status"]), arm["why"], emulated)
        self.faults[kernel, case, name, emulated] = fault
        return fault

    def count(self, status: Status) -> int:
        """Arms with a status."""
        return sum(arm.cases[status] for arm in self.arms.values())

    def exit_code(self, asked: Sequence[str]) -> int:
        """A broken module is a fault unless the kernels asked for are all there."""
        if self.faults or self.undeclared or (self.broken and not asked):
            return FAULTS
        return MEASURED if self.count(Status.OK) else NOTHING

    def not_measured(self) -> list[str]:
        """What was not measured, and why, and what a backend left running; one sentence each."""
        found = [fault.in_words() for fault in self.faults.values()]
        found += [f"broken module, {module}: {why}" for module, why in self.broken.items()]
        found += self.left
        found += [f"no kernel {name!r} in any module that imports" for name in dict.fromkeys(self.undeclared)]
        if not self.count(Status.OK):
            counts = [f"{n} {status}" for status in sorted(Status) if (n := self.count(status))]
            if counts or not self.undeclared:  # else it is said
                found.append(f"nothing was measured: {', '.join(counts) or 'no case of this tier'}")
        return found

    def as_json(self) -> JsonObject:
        """A verification, for machines."""
        return {
            "right": self.count(Status.OK),
            "wrong": len(self.faults),
            "unsupported": self.count(Status.UNSUPPORTED),
            "skipped": self.count(Status.SKIPPED),
            "faults": list(map(vars, self.faults.values())),
            "broken": self.broken,
            "reasons": self.reasons,
            "backends": list(map(vars, self.arms.values())),
        }

    def in_words(self) -> str:
        """A verification, for people."""
        lines = [arm.in_words() for arm in self.arms.values()]
        lines += [f"  {count} times: {why}" for why, count in self.reasons.items()]
        lines += [f"broken module {module}: {why}" for module, why in self.broken.items()]
        right, wrong = self.count(Status.OK), len(self.faults)
        unsupported, skipped = self.count(Status.UNSUPPORTED), self.count(Status.SKIPPED)
        lines.append(f"{right} right, {wrong} not right; {unsupported} unsupported and {skipped} not for this machine")
        return "\n".join(lines)
