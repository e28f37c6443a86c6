"""Trials into comparisons, the input of judging: one per operator, backend and case of two checkouts."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.shapes import Unfit, anything, numbers, one_of, record, table, whole
from benchmarks.trial_file import FORMAT, WORST_FIRST, Status, not_looked_at
from ci.stats import PairedRounds, Role
from ci.trials.file import Rejected, parse, unpacked
from ci.trials.trial import Arm, CaseResult, Declaration, Json, Trial, ran_differently, unfit

__all__ = ["Comparison", "Status"]


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """Everything known about one case on both sides: the input of :func:`ci.judging.judge.judge`.

    case: permanent name, ``kernel/backend/case`` for our own trials.
    machine_kind: "gpu" or "cpu"; it chooses the policy section.
    by_program: the rows of a benchmark program, which the policy has settings of its own for.
    of_ranks: a closure of a script that several ranks run together.
    same_code: both sides ran the same code (code objects, or files of the kernel), or None where it is not known.
    base_status, head_status: how the arms ended; `*_why` is one sentence for a status other than ok.
    base_definition, head_definition: digest of the benchmark definition; None where it is not known.
    definition_changes: what differs in it, old and new value, a sentence each; () where only the digests are known.
    head_declares: head declares the kernel, if not this case of it.
    stands_in: a backend whose times on a CPU are shown and not judged.
    lock_step: the arms are known to have run in turn, in the same trials.
    baseline: name of the baseline in `PairedRounds.baseline_*`, None without one.
    problems: faults of the recorded data that forbid a verdict on this case, each one sentence.
    """

    case: str
    kernel: str
    backend: str = ""
    trials: tuple[PairedRounds, ...] = ()
    machine_kind: str = "gpu"
    machine: str = ""
    by_program: bool = False
    of_ranks: bool = False
    same_code: bool | None = None
    base_status: Status = Status.OK
    head_status: Status = Status.OK
    base_why: str = ""
    head_why: str = ""
    base_definition: str | None = None
    head_definition: str | None = None
    definition_changes: tuple[str, ...] = ()
    stands_in: bool = False
    head_declares: bool = True
    baseline: str | None = None
    problems: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    lock_step: bool = False


ROLES: tuple[Role, Role] = ("base", "head")


def comparisons(trials: Iterable[Trial], warnings: Iterable[str] = ()) -> list[Comparison]:
    """Compare base with head in every case that at least one of them can run.

    A baseline vouches for its operator and is not compared itself, except where the environments differ (then it is
    what changed) or nothing else is declared.  A trial of one checkout has nothing to compare.
    """
    paired = [trial for trial in trials if trial.paired]
    operators = {operator.newest.operator: operator for operator in _operators(paired)}
    arms = dict.fromkeys((trial.operator, backend, case) for trial in paired for case, _, backend, _ in trial.arms())
    compared = (_CaseTrials(operators[name], backend, case).comparison(tuple(warnings)) for name, backend, case in arms)
    return [comparison for comparison in compared if comparison is not None]


def undeclared(trials: Iterable[Trial]) -> list[Comparison]:
    """Base against head in the cases that base declares, head no longer does, and no trial has: of another tier."""
    gone = []
    for operator in _operators(trial for trial in trials if trial.paired):
        base, head = (operator.newest.checkouts[role].declaration for role in ROLES)
        known = {case for trial in operator.trials for case in trial.cases} | (head.cases.keys() if head else set())
        left = [(name, case) for name in base.backends for case in base.cases if case not in known] if base else []
        gone += [_CaseTrials(operator, backend, case).comparison(()) for backend, case in left]
    return [c for c in gone if c is not None and c.head_status is Status.MISSING]


def _operators(trials: Iterable[Trial]) -> list[_Operator]:
    by_name: dict[str, list[Trial]] = {}
    for trial in trials:
        by_name.setdefault(trial.operator, []).append(trial)
    return [_Operator(tuple(those)) for those in by_name.values()]


@dataclasses.dataclass(frozen=True)
class _Operator:
    """The trials of one operator; the newest says what is declared and in which environments."""

    trials: tuple[Trial, ...]

    @property
    def newest(self) -> Trial:
        return self.trials[-1]

    @cached_property
    def declared(self) -> list[Declaration]:
        by_side = (self.newest.checkouts[role].declaration for role in ROLES)
        return [declaration for declaration in by_side if declaration]

    @cached_property
    def baselines(self) -> dict[str, None]:
        return {baseline: None for declared in self.declared for baseline in declared.baselines}

    @cached_property
    def has_own_backends(self) -> bool:
        """Whether it declares a backend that is not a baseline."""
        return not all(backend in self.baselines for declared in self.declared for backend in declared.backends)

    @cached_property
    def stand_ins(self) -> set[str]:
        """The backends whose times on a CPU are not judged, by both sides: no change declares itself away."""
        return set.intersection(*(set(declared.stand_ins) for declared in self.declared)) if self.declared else set()

    @cached_property
    def environment_changed(self) -> bool:
        base, head = (self.newest.checkouts[role].environment for role in ROLES)
        return not base.same_as(head)

    @cached_property
    def same_files(self) -> bool:
        """Whether the operator's code comes from equal files on both sides."""
        base, head = (self.newest.checkouts[role].kernel_digest for role in ROLES)
        return base is not None and base == head

    @cached_property
    def compiled_elsewhere(self) -> bool:
        """Whether a file that differs and was run is no Python: what others compile of it is not known here."""
        return not all(path.endswith(".py") for path in ran_differently(self.trials))

    @cached_property
    def mixed(self) -> tuple[str, ...]:
        """Why the trials have no common time: they are of two regimes."""
        regimes = dict.fromkeys(trial.regime for trial in self.trials)
        if len(regimes) < 2:
            return ()
        two = f"its trials are of two regimes ({', '.join(regimes)}), whose times are never compared"
        return (f"{two}: give the trials of each a file of its own",)

    def definition(self, role: Role, case: str) -> str | None:
        """Digest of the benchmark definition of a case on one side."""
        declared = self.newest.checkouts[role].declaration
        return declared.cases[case].definition if declared and case in declared.cases else None

    def hidden_by(self, role: Role) -> str:
        """The modules of a side that may declare the operator and do not import, in a sentence; "" if there is none."""
        side = self.newest.checkouts[role]
        broken = [m for m in side.broken if side.declaration is None and m.may_declare(self.newest.operator)]
        return "; ".join(f"{module.module}: {module.reason}" for module in broken)

    def changes(self, case: str) -> tuple[str, ...]:
        """What differs in the benchmark definition of a case between the sides, with both values."""
        base, head = (terms_of(self.newest.checkouts[role].declaration, case) for role in ROLES)
        differing = (name for name in dict.fromkeys([*base, *head]) if base.get(name) != head.get(name))
        return tuple(f"{name} {base.get(name, 'none')} → {head.get(name, 'none')}" for name in differing)


def terms_of(declared: Declaration | None, case: str) -> dict[str, str]:
    """What the benchmark definition of a case consists of, as far as it is declared, as text by name."""
    if not declared or case not in declared.cases:
        return {}
    own = declared.cases[case]
    cost = {f"cost: {name}": value for name, value in dataclasses.asdict(own.cost).items() if value is not None}
    values = {**own.shape, "dtype": own.dtype, "world": own.world, **cost}
    texts = {name: f"{value:,}" if isinstance(value, int) else str(value) for name, value in values.items()}
    return {**texts, **declared.terms}


@dataclasses.dataclass(frozen=True)
class _CaseTrials:
    """One backend in one case of an operator, over all its trials."""

    operator: _Operator
    backend: str
    case: str

    @cached_property
    def tried(self) -> list[tuple[int, CaseResult]]:
        """(position of the trial, result) wherever the case was tried."""
        results = ((number, trial.cases.get(self.case)) for number, trial in enumerate(self.operator.trials))
        return [(number, result) for number, result in results if result and result.arms]

    @cached_property
    def having(self) -> list[tuple[int, CaseResult]]:
        """Those of nodes that were fit, or all where none was."""
        fit = [(number, result) for number, result in self.tried if not unfit(self.operator.trials[number].faults)]
        return fit or self.tried

    @cached_property
    def unfit(self) -> tuple[str, ...]:
        """What failed the nodes of the trials, each reason once."""
        reasons = (unfit(self.operator.trials[number].faults) for number, _ in self.tried)
        return tuple(f"the node failed its preflight: {why}" for why in dict.fromkeys(reasons) if why)

    def arms(self, role: Role) -> list[Arm]:
        """What became of the backend on one side, trial by trial."""
        arms = (result.arms.get((role, self.backend)) for _, result in self.having)
        return [arm for arm in arms if arm]

    def comparison(self, shared: tuple[str, ...]) -> Comparison | None:
        """None for a baseline that vouches for the others, and for what neither side can run."""
        operator, newest = self.operator, self.operator.newest
        if self.backend in operator.baselines and not operator.environment_changed and operator.has_own_backends:
            return None
        base, head = (self.status(role) for role in ROLES)
        if not_looked_at(base, head):
            return None
        machine, name = newest.machine, f"{newest.operator}/{self.backend}/{self.case}"
        untold = Comparison(
            *(name, newest.operator, self.backend),
            machine_kind=machine.kind,
            machine=machine.name,
            by_program=newest.by_program,
            of_ranks=newest.of_ranks,
            same_code=self.same_code(),
            warnings=shared,
        )
        if self.unfit and self.having == self.tried:  # neither a time nor a result of such nodes says anything
            if untold.same_code:
                return dataclasses.replace(untold, warnings=shared + self.unfit)
            return dataclasses.replace(untold, problems=self.unfit)
        timed, problems = self.paired_rounds() if not operator.mixed else ((), operator.mixed)
        return dataclasses.replace(
            untold,
            trials=timed,
            base_status=base,
            head_status=head,
            base_why=self.why("base", base),
            head_why=self.why("head", head),
            base_definition=operator.definition("base", self.case),
            head_definition=operator.definition("head", self.case),
            definition_changes=operator.changes(self.case),
            head_declares=newest.checkouts["head"].declaration is not None,
            stands_in=machine.kind == "cpu" and self.backend in operator.stand_ins,
            baseline=self.baseline,
            problems=problems,
            warnings=shared + self.lost(timed),
            lock_step=True,
        )

    @cached_property
    def baseline(self) -> str | None:
        """The baseline that was timed beside the backend on both sides."""
        if self.operator.environment_changed:
            return None
        others = (name for name in self.operator.baselines if name != self.backend)
        return next((name for name in others if any(_both_ok(result, name) for _, result in self.having)), None)

    def status(self, role: Role) -> Status:
        """How the backend ended on one side; where no trial has it, what the side declares says why."""
        ended, operator = _status(self.arms(role)), self.operator
        declared = operator.newest.checkouts[role].declaration
        if ended is not Status.MISSING:
            return ended
        if declared and self.backend in declared.backends and self.case in declared.cases:
            return Status.SKIPPED
        return Status.UNIMPORTED if operator.hidden_by(role) else ended

    def why(self, role: Role, status: Status) -> str:
        """One sentence for a status other than ok."""
        if status is Status.UNIMPORTED:
            return self.operator.hidden_by(role)
        return next((arm.why for arm in self.arms(role) if arm.status is status and not arm.ok), "")

    def paired_rounds(self) -> tuple[tuple[PairedRounds, ...], tuple[str, ...]]:
        """The trials in which both arms ran, and what makes one of them unusable."""
        timed, problems = [], []
        for number, result in self.having:
            if not _both_ok(result, self.backend):
                continue
            base, head = (result.arms[role, self.backend].seconds for role in ROLES)
            if len(base) != len(head):
                counts = f"base has {len(base)} rounds and head {len(head)}"
                problems.append(f"trial {number}: {counts}; a trial has equally many")
                continue
            baseline = self.baseline_rounds(result, len(base))
            timed.append(PairedRounds(number, base, head, *baseline, _clocks_mhz(self.operator.trials[number])))
        return tuple(timed), tuple(problems)

    def baseline_rounds(self, result: CaseResult, rounds: int) -> tuple[np.ndarray | None, np.ndarray | None]:
        """The baseline's samples on both sides, in the same rounds."""
        if self.baseline is None or not _both_ok(result, self.baseline):
            return None, None
        base, head = (result.arms[role, self.baseline].seconds for role in ROLES)
        return (base, head) if len(base) == len(head) == rounds else (None, None)

    def same_code(self) -> bool | None:
        """Whether both sides launched the same code objects with the same knobs in every trial; None if not known.

        Where no code objects are known (on a CPU), equal files of the operator in equal environments are the same code.
        """
        results = (result.arms for _, result in self.having)
        pairs = [(arms.get(("base", self.backend)), arms.get(("head", self.backend))) for arms in results]
        facts = [(base, head) for base, head in pairs if base and head]
        if not facts:
            return None
        same_knobs = all(base.knobs == head.knobs for base, head in facts)
        hashed = all(base.code_hash and head.code_hash for base, head in facts)
        if not hashed or self.operator.compiled_elsewhere:
            same = same_knobs and self.operator.same_files and not self.operator.environment_changed
            return True if same else None
        return same_knobs and all(base.code_hash == head.code_hash for base, head in facts)

    def lost(self, timed: Sequence[PairedRounds]) -> tuple[str, ...]:
        """A trial without this case is no loss (only open cases are measured further); a lost arm is."""
        lost, away = len(self.having) - len(timed), len(self.tried) - len(self.having)
        sentences = [f"{away} of {len(self.tried)} trials left out: {why}" for why in self.unfit]
        if timed and lost:
            sentences.append(f"{lost} of {len(self.having)} trials have no time on one side; the others are used")
        return tuple(sentences)


def _both_ok(result: CaseResult, backend: str) -> bool:
    return all((role, backend) in result.arms and result.arms[role, backend].ok for role in ROLES)


def _status(arms: Sequence[Arm]) -> Status:
    """How the arm ended over all trials: the worst that happened, missing if no trial has it."""
    ended = {arm.status for arm in arms}
    return next((status for status in WORST_FIRST if status in ended), Status.MISSING)


def _clocks_mhz(trial: Trial) -> tuple[float, float] | None:
    """Median SM clock while base, and head, was at work; None unless the readings say it of both."""
    base, head = ([r.sm_clock_mhz for r in trial.state.during if r.role == role and r.sm_clock_mhz] for role in ROLES)
    return (median(base), median(head)) if base and head else None


# Recorded trials: trial files, and replay files (.github/ARCHITECTURE.md), plain or gzip.
#
# A line of a replay file is {"trial": 0, "unit": "us", "cases": {CASE: {"base": [...], "head": [...]}}}, where sample i
# of both arms is from round i.  Other arms and keys are ignored, except `"machine_kind": "cpu"`.  A fault of one case
# makes that case CANNOT TELL and leaves the others alone; a file that is not what it claims to be is a ReplayError.


UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
"""Seconds per unit."""

KINDS = ("gpu", "cpu")

REPLAYED = record(
    {"unit": one_of(*UNITS), "cases": table(anything, anything)}, {"trial": whole(), "machine_kind": one_of(*KINDS)}
)
PAIR = record(dict.fromkeys(ROLES, numbers(sys.float_info.min, sys.float_info.max, fewest=1)), {})

TRIAL_FORMAT = re.compile(rb'"format":\s*"%b"' % FORMAT.encode())
"""What stands in a trial file, and in no replay file."""

MAX_PROBLEMS = 5
"""Faults of a case that are named."""


class ReplayError(ValueError):
    """A file cannot be judged; the text names file, line, value, and what is allowed."""


@dataclasses.dataclass(frozen=True)
class Recording:
    """What a file of recorded trials holds, read once.

    trials: whole trials, with machine and versions; none for a replay file.  rejected: lines that are not used.
    """

    comparisons: list[Comparison]
    trials: tuple[Trial, ...] = ()
    rejected: tuple[Rejected, ...] = ()


def read_recording(path: Path) -> Recording:
    """What a file holds, its comparisons in the order of their first appearance.  Raises ReplayError."""
    try:
        content, damage = unpacked(path.read_bytes())
    except OSError as error:
        why = f"cannot be read: {error.strerror or error}; give a file of recorded trials (.jsonl or .jsonl.gz)"
        raise ReplayError(f"{path}: {why}") from None
    if damage and not content:
        raise ReplayError(f"{path}: {damage[0].why}; nothing in it can be unpacked")
    if not TRIAL_FORMAT.search(content):
        lines, warnings = _replay_lines(path, content)
        warnings = [*(f"{path}: {fault.why}" for fault in damage), *warnings]
        names = dict.fromkeys(name for _, line in lines for name in line["cases"])
        return Recording([_replayed_case(name, lines, warnings) for name in names], rejected=damage)
    file = parse(content.split(b"\n"), 1)
    rejected = (*damage, *file.rejected)
    if rejected and not file.trials:
        raise ReplayError(f"{rejected[0].at(path)}: {rejected[0].why}; no line of the file is a trial")
    warnings = [f"{line.at(path)}: {line.why}; the other trials count" for line in rejected]
    return Recording(comparisons(file.trials, warnings), file.trials, rejected)


Line = tuple[str, Json]
"""Where an object stands in its file, and the object."""


def _replay_lines(path: Path, content: bytes) -> tuple[list[Line], list[str]]:
    """The trials of a replay file, each once, and warnings; a line that is none is an error, except a torn last one."""
    lines, warnings = dict[str, Line](), list[str]()
    texts = content.rstrip().split(b"\n")
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        where = f"{path}:{number}"
        try:
            line = json.loads(text)
            REPLAYED(line, "")
        except Unfit as error:
            raise ReplayError(f"{where}: {error}") from None
        except (ValueError, RecursionError) as error:
            if not lines or number < len(texts) or not text.startswith(b"{"):
                raise ReplayError(f"{where}: not JSON ({error}); a line is one trial") from None
            warnings.append(f"{where}: the last line is torn, its writer was interrupted; {len(lines)} trials count")
            break
        kind, first = line.get("machine_kind"), next(iter(lines.values()), (where, line))[1].get("machine_kind")
        if kind != first:
            known = f"the lines before have {first!r}; a file has one: judge two files"
            raise ReplayError(f"{where}: machine_kind {kind!r}, but {known}")
        if line["cases"] and (earlier := lines.setdefault(repr(line["cases"]), (where, line)))[0] != where:
            warnings.append(f"{where}: repeats the samples of {earlier[0]}; it counts once")
    return list(lines.values()), warnings


def _replayed_case(name: str, lines: Sequence[Line], shared: Sequence[str]) -> Comparison:
    """One case of a replay file; what is wrong with it is its problem and nobody else's."""
    own = [(number, where, line) for number, (where, line) in enumerate(lines) if name in line["cases"]]
    trials, problems, warnings = list[PairedRounds](), list[str](), [*shared]
    for number, where, line in own:
        arms, what = line["cases"][name], f"{where}: case {name!r}"
        try:
            if isinstance(arms, dict) and not arms.keys() >= set(ROLES):
                raise Unfit(what, [*arms], "base and head among its arms")
            PAIR(arms, what)
            base, head = (np.array(arms[role], np.float64) * UNITS[line["unit"]] for role in ROLES)
            if len(base) != len(head):
                raise Unfit(f"{what}: samples of base and head", [len(base), len(head)], "equally many")
            trials.append(PairedRounds(number, base, head))
        except Unfit as error:
            problems.append(str(error))
    if len(own) < len(lines):
        warnings.append(f"missing in {len(lines) - len(own)} of {len(lines)} trials; the others are used")
    if trials and all(np.array_equal(t.base, t.head) for t in trials):
        warnings.append("base and head are the same numbers in every trial: one recording twice?")
    kernel, _, rest = name.partition("/")
    return Comparison(
        *(name, kernel, rest.rpartition("/")[0].partition("/")[0], tuple(trials)),
        machine_kind=own[0][2].get("machine_kind", KINDS[0]),
        problems=tuple(problems[:MAX_PROBLEMS]),
        warnings=tuple(warnings),
    )
