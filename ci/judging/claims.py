"""What a trial says of itself, held against what we know of the run that should have produced it.

A trial that a stranger's code measured is a claim.  The platform knows which commits the run was started for and when;
the pool knows which GPU it has and how many; the default branch knows its benchmark definitions; arithmetic knows that
samples fit into the time and under the roof of the hardware.  A trial that contradicts one of them is refused by name.

What this cannot show: that the numbers are true.  Whoever runs code on the measuring host can write any file, with the
right commits, moments and digests.  `UNTRUSTED` is the sentence that says so in every such report.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.trial_file import identity
from ci.judging import live
from ci.judging.policy import Policy
from ci.judging.reach import doubted, with_left_out
from ci.judging.types import Judgement, Verdict
from ci.trials.comparisons import ExperimentLine
from ci.trials.file import TrialFile
from ci.trials.trial import Cost, Declaration, Trial
from kernels import hardware

# What the platform says of the job that measured: GitHub's answer to "list jobs for a workflow run", as a file.
#
# The measured code has no part in it, so it says when the job ran, and why there may be no trials.


class RunFileError(ValueError):
    """The file does not describe the job; the text says what is wrong and where such a file comes from."""


FAILED = ("failure", "cancelled", "timed_out")
"""Conclusions of a step after which the next ones do not run (REST API, workflow jobs, 2026-11)."""


@dataclasses.dataclass(frozen=True)
class MeasuringJob:
    """One job of a run.  started_ms, ended_ms: milliseconds since 1970 UTC, None where it has not got so far.

    runner: name of the machine that took it, "" if none did.  failed_step: the first step that did not succeed.
    """

    name: str
    status: str = ""
    conclusion: str = ""
    started_ms: int | None = None
    ended_ms: int | None = None
    runner: str = ""
    failed_step: str = ""

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> MeasuringJob:
        """From GitHub's JSON; a job that no runner took has no times."""
        runner = str(data.get("runner_name") or "")
        started, ended = (_moment(data.get(key)) if runner else None for key in ("started_at", "completed_at"))
        failed = (step["name"] for step in data.get("steps") or () if step.get("conclusion") in FAILED)
        status, conclusion = (str(data.get(key) or "") for key in ("status", "conclusion"))
        return cls(str(data["name"]), status, conclusion, started, ended, runner, str(next(failed, "")))

    def why_nothing(self, pool: str) -> str:
        """Why this job handed over no trials, in one sentence."""
        if not self.runner:
            return f"absent: no machine of pool {pool} took the job {self.name!r}"
        if self.failed_step:
            return f"did not start: the job {self.name!r} ended at its step {self.failed_step!r}"
        ended = self.conclusion or self.status or "unknown"
        return f"nothing was measured: the job {self.name!r} handed over no trials (it ended as {ended})"


ASK = "`gh api repos/OWNER/NAME/actions/runs/ID/jobs` prints one"


def read(path: Path, job: str = "") -> MeasuringJob:
    """The job of that name in the file, or its only one."""
    try:
        data = json.loads(path.read_bytes())
        jobs = [MeasuringJob.of(one) for one in data["jobs"]]
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}; {ASK}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise RunFileError(f"{path} does not hold the jobs of a run ({type(error).__name__}: {error}); {ASK}") from None
    return _chosen(jobs, job, path)


def _chosen(jobs: Sequence[MeasuringJob], name: str, path: Path) -> MeasuringJob:
    """The newest of that name: a job that was run again stands last."""
    found = [one for one in jobs if not name or is_called(one.name, name)]
    if not found or (not name and len(found) > 1):
        known = ", ".join(repr(one.name) for one in jobs[:20]) or "none"
        raise RunFileError(f"{path} has {len(found)} jobs called {name!r}; --job names one of: {known}")
    return found[-1]


def is_called(full: str, name: str) -> bool:
    """Whether a job has this name: that of a called workflow has the names of its callers before it, "GPU / Judge"."""
    return full == name or full.endswith(f" / {name}")


def _moment(text: object) -> int | None:
    return round(datetime.datetime.fromisoformat(str(text)).timestamp() * 1000) if text else None


UNTRUSTED = (
    "these trials come from an untrusted tree ({head} is not in the history of this branch): its code ran on the host "
    "that measured. Commits, machine, moments and benchmark definition fit the run; that the times themselves are not "
    "made up cannot be shown from outside the host"
)

CLOCK_SLACK_S = 300.0
"""Seconds that the clock of a host may differ from the platform's (RFC 4120 allows Kerberos as much)."""

ROOF_SLACK = 1.25
"""Times the peak of kernels/hardware.py that a rate may reach: boost above the clock of the data sheet, 8 % on H200
(1,980 against 1,830 MHz), and declared costs that count masked work."""


@dataclasses.dataclass(frozen=True)
class Expected:
    """What is known of a run from sources that its measured code cannot write.

    head, base: 40 hex digits.  product: of `kernels.hardware`, None for a CPU.  counts: GPUs it may have, empty: any.
    started_ms, ended_ms: of the measuring job, milliseconds since 1970 UTC; None: not known.
    same_kernels: git says that both commits have the same kernel files, so that head alone is measured.
    unreached: operators that no changed file can reach, by the commits as git has them: they need no trial.
    reached: whether there is any other operator.
    declared: what base declares, by operator, from a tree of our own; None: not known.  python: its version, "3.12".
    past: earlier commits that the run may have measured too, each alone.
    """

    head: str
    base: str
    product: str | None
    counts: tuple[int, ...] = ()
    started_ms: int | None = None
    ended_ms: int | None = None
    same_kernels: bool = False
    unreached: tuple[str, ...] = ()
    reached: bool = True
    declared: Mapping[str, Declaration] | None = None
    python: str = ""
    past: frozenset[str] = frozenset()


@dataclasses.dataclass(frozen=True)
class RefusedTrial:
    """A trial that does not fit its run, and the first reason."""

    id: str
    operator: str
    why: str

    def __str__(self) -> str:
        return f"trial {self.id} of {self.operator} is refused: {self.why}"


@dataclasses.dataclass(frozen=True)
class Sifted:
    """The trials of a file that fit their run, those that do not, and what is missing between them."""

    trials: tuple[Trial, ...]
    refused: tuple[RefusedTrial, ...] = ()
    gaps: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ExperimentsSifted:
    """The experiments that fit their run, and a sentence on each kind of those that do not."""

    lines: tuple[ExperimentLine, ...] = ()
    left_out: tuple[str, ...] = ()


def sift(trials: Sequence[Trial], expected: Expected) -> Sifted:
    """Hold every trial against what is expected, then the trials against each other."""
    reasons = {trial.id: why for trial in trials if (why := contradiction(trial, expected))}
    reasons |= dict(_between([trial for trial in trials if trial.id not in reasons]))
    fitting = tuple(trial for trial in trials if trial.id not in reasons)
    refused = tuple(RefusedTrial(t.id, t.operator, reasons[t.id]) for t in trials if t.id in reasons)
    return Sifted(fitting, refused, tuple(_gaps(trials)))


def contradiction(trial: Trial, expected: Expected) -> str:
    """Why a trial cannot be of this run, "" if it can."""
    found = (check(trial, expected) for check in CHECKS)
    return next((why for why in found if why), "")


def of_experiments(lines: Sequence[ExperimentLine], expected: Expected, machine: str) -> ExperimentsSifted:
    """Those whose trials fit the run but for one thing: head is changed, for something is put back.

    machine: the name of the one that the other trials are of.
    """
    checked = [(line, _of_experiment(line, expected, machine)) for line in lines]
    said = dict.fromkeys(f"an experiment on {line.case} is left out: {why}" for line, why in checked if why)
    return ExperimentsSifted(tuple(line for line, why in checked if not why), tuple(said))


def _of_experiment(line: ExperimentLine, expected: Expected, machine: str) -> str:
    """Why a line cannot be of this run, "" if it can."""
    for trial in line.trials:
        sides = dict(trial.checkouts)
        if "head" in sides:
            sides["head"] = dataclasses.replace(sides["head"], dirty=False)
        if why := contradiction(dataclasses.replace(trial, checkouts=sides), expected):
            return why
        if trial.machine.name != machine:
            return f"it says it ran on {trial.machine.name}, the trials that it explains on {machine}"
    return ""


# ---- one trial -------------------------------------------------------------------------------------------------------


def _sides(trial: Trial, expected: Expected) -> str:
    if trial.paired:
        return ""
    alone = "head alone was measured" if "head" in trial.checkouts else "its head was not measured"
    return "" if expected.same_kernels and "head" in trial.checkouts else f"{alone}; base and head run in lock-step"


def _commits(trial: Trial, expected: Expected) -> str:
    for role, commit in (("head", expected.head), ("base", expected.base)):
        checkout = trial.checkouts.get(role)
        if checkout is None:
            continue
        if checkout.named:
            return f"its {role} was renamed to {checkout.named}; a run measures commits under their own names"
        if checkout.dirty:
            return f"its {role} has uncommitted changes"
        if checkout.commit != commit and (trial.paired or checkout.commit not in expected.past):
            return f"it says its {role} is {checkout.commit}; the run was started for {commit}"
    return ""


def _machine(trial: Trial, expected: Expected) -> str:
    machine = trial.machine
    if expected.product is None:
        return "" if machine.kind == "cpu" else f"it says it ran on {machine.market_name}; the pool has no GPU"
    if machine.kind != "gpu" or machine.market_name != expected.product:
        said = machine.market_name or machine.device or "a machine without a known GPU"
        return f"it says it ran on {said}; the pool has {expected.product}"
    known = hardware.by_market_name(expected.product)
    if machine.arch != known.arch:
        return f"it says its {expected.product} is of {machine.arch}; that product is of {known.arch}"
    if expected.counts and machine.count not in expected.counts:
        allowed = " or ".join(map(str, expected.counts))
        return f"it says it had {machine.count} GPUs; the leg was given {allowed}"
    return ""


def _out_of_time(trial: Trial, expected: Expected) -> str:
    slack, first, last = 1000 * CLOCK_SLACK_S, expected.started_ms, expected.ended_ms
    if first is not None and trial.started_ms < first - slack:
        return f"it started at {trial.started_at}, before its run"
    if last is not None and trial.started_ms > last + slack:
        return f"it started at {trial.started_at}, after its run"
    return ""


def _id(trial: Trial, expected: Expected) -> str:
    body = json.loads(trial.text)
    body.pop("id")
    try:
        digest = identity(body)
    except ValueError:
        return "it holds a number that JSON has not: the line was edited"
    return "" if trial.id == digest else f"its id is not that of its content, {digest}: the line was edited"


def _definition(trial: Trial, expected: Expected) -> str:
    """Whether base declares what our own tree of it declares.  Digests of two versions of Python are not alike."""
    base = trial.checkouts.get("base") or trial.checkouts["head"]
    if expected.declared is None or base.environment.python != expected.python:
        return ""
    ours, theirs = expected.declared.get(trial.operator), base.declaration
    if ours is None or theirs is None:
        return "" if ours is theirs else f"base does not declare {trial.operator} as its commit does"
    if set(ours.baselines) != set(theirs.baselines) or ours.cases.keys() != theirs.cases.keys():
        return "it lists other cases or baselines of base than its commit declares"
    cpu = expected.product is None
    changed = (name for name in trial.cases.keys() & ours.cases.keys() if _differs(ours, theirs, name, cpu))
    return next((f"its benchmark definition of {name} in base is not that of the commit" for name in changed), "")


def _differs(ours: Declaration, theirs: Declaration, case: str, cpu: bool) -> bool:
    """Costs are left out: they may depend on the machine, which is not ours.

    So are digests on a CPU: they cover the state of the caches, hot there (ci.options.with_rounds), cold in a listing.
    """
    one, other = (dataclasses.replace(declared.cases[case], cost=Cost()) for declared in (ours, theirs))
    if cpu:
        one, other = (dataclasses.replace(side, definition=None) for side in (one, other))
    return one != other


def _arithmetic(trial: Trial, expected: Expected) -> str:
    """Samples are taken one after the other, so they fit into their trial, and the trial into its run."""
    spent = float(sum(arm.seconds.sum() for _, _, _, arm in trial.arms()))
    if spent > trial.duration_s:
        return f"its samples add up to {spent:.3g} s and it lasted {trial.duration_s:.3g} s"
    if expected.started_ms is None or expected.ended_ms is None:
        return ""
    run_s = (expected.ended_ms - expected.started_ms) / 1000 + CLOCK_SLACK_S
    return f"it lasted {trial.duration_s:.3g} s, longer than its run" if trial.duration_s > run_s else ""


def _roof(trial: Trial, expected: Expected) -> str:
    """No call beats the matrix units; the cost is what base declares, in our own tree of it where there is one."""
    if expected.product is None:
        return ""
    declared = (expected.declared or {}).get(trial.operator) or trial.declaration()
    device = hardware.by_market_name(expected.product)
    for case, role, backend, arm in trial.arms():
        one = declared.cases.get(case) if declared else None
        if one is None or not arm.ok or not one.cost.flops or one.dtype not in device.peak_flops:
            continue
        rate = one.cost.flops / float(np.median(arm.seconds))
        if rate > ROOF_SLACK * device.peak_flops[one.dtype]:
            most = device.peak_flops[one.dtype] / 1e12
            return f"{role}/{backend} of {case} runs at {rate / 1e12:.0f} TFLOPS; {expected.product} has {most:.0f}"
    return ""


Contradiction = Callable[[Trial, Expected], str]
CHECKS: tuple[Contradiction, ...] = (_sides, _commits, _machine, _out_of_time, _id, _definition, _arithmetic, _roof)
"""Each gives a reason against a trial, or ""."""


# ---- trials beside each other ----------------------------------------------------------------------------------------


def _between(trials: Sequence[Trial]) -> Iterator[tuple[str, str]]:
    """(id, reason) of trials that do not go together with earlier ones: another machine, or a copy."""
    seen: dict[tuple[str, str, str, bytes], str] = {}
    for trial in trials:
        if trial.machine.name != trials[0].machine.name:
            yield trial.id, f"it says it ran on {trial.machine.name}, others of its leg on {trials[0].machine.name}"
        for key in _samples(trial):
            if seen.setdefault(key, trial.id) != trial.id:
                yield trial.id, f"its samples of {key[0]} are those of trial {seen[key]}"


FEWEST_TO_COPY = 8
"""Different samples from which an equal row is a copy.  None of 6,492 recorded rows on H200 equals another one;
single samples repeat, for clocks have few digits (results/ and tests/recordings, 2026-11-22)."""


def _samples(trial: Trial) -> Iterator[tuple[str, str, str, bytes]]:
    """The samples of every arm that has several different ones; two runs never agree in all of them."""
    for case, role, backend, arm in trial.arms():
        if len(set(arm.seconds.tolist())) >= FEWEST_TO_COPY:
            yield f"{trial.operator}/{case}", role, backend, arm.seconds.tobytes()


def _gaps(trials: Iterable[Trial]) -> Iterator[str]:
    """A session numbers its trials one after the other: one between that is not there was left out by somebody."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for trial in trials:
        numbers.setdefault((trial.session, trial.operator), set()).add(trial.number)
    for (session, operator), found in numbers.items():
        wanted = max(found) - min(found) + 1
        if len(found) < wanted:
            lost = f"{wanted - len(found)} of {wanted} trials"
            yield f"{lost} of {operator} in session {session} are not in the file"


# The judgement of a job that may be believed, on trials from a host that may not.
#
# Trials that fit their run are judged with this tree's code and policy. Nothing that is refused, left out or missing
# can make a pass: it makes CANNOT TELL, while a regression that is shown stays one.


SHOWN = 20
"""Refused trials and missing cases that a report names; the next ones are counted."""


@dataclasses.dataclass(frozen=True)
class TrustedOutcome:
    """The judgement, the trials it rests on, and the sentences on everything that was not used.

    experiments: what was measured to find out why a case is slower; no verdict rests on it.
    """

    judgement: Judgement
    trials: tuple[Trial, ...]
    remarks: tuple[str, ...] = ()
    experiments: tuple[ExperimentLine, ...] = ()


def decided(files: Sequence[TrialFile], expected: Expected, policy: Policy, tier: str = "pr") -> TrustedOutcome:
    """Judge the trials of a leg's files, as far as they fit what is expected of the run."""
    trials = sorted({trial.id: trial for file in files for trial in file.trials}.values(), key=lambda one: one.order)
    sifted = sift(trials, expected)
    doubts = [*_few(rejected(files)), *_few(list(map(str, sifted.refused))), *sifted.gaps]
    doubts += _few([f"{case} was not measured" for case in missing(sifted, expected, tier)])
    judgement = _judged(sifted.trials, expected, policy) if sifted.trials else _nothing(expected)
    measured = {trial.operator for trial in trials}
    judgement = with_left_out(judgement, tuple(name for name in expected.unreached if name not in measured))
    judgement = doubted(judgement, doubts)
    machine = sifted.trials[0].machine.name if sifted.trials else ""
    found = of_experiments([line for file in files for line in file.experiments], expected, machine)
    judgement = dataclasses.replace(judgement, warnings=(*judgement.warnings, *_few(list(found.left_out))))
    return TrustedOutcome(judgement, sifted.trials, tuple(doubts), found.lines)


ALWAYS = 2
"""Ranks up to which a machine with as many GPUs measures every case of its tier."""


def missing(sifted: Sifted, expected: Expected, tier: str) -> list[str]:
    """Cases of the tier that base declares and no trial has, "gemm/m64".  Those of more ranks than GPUs need none.

    With eight GPUs the pr tier leaves cases of four ranks to the night, with fewer those of eight (benchmarks.plan), so
    only cases of one and two ranks are asked for.
    """
    measured = {f"{trial.operator}/{case}" for trial in sifted.trials for case in trial.cases}
    wanted = (
        f"{operator}/{case.name}"
        for operator, declared in (expected.declared or {}).items()
        if operator not in expected.unreached
        for case in declared.cases.values()
        if case.tier == tier and case.world <= min((ALWAYS, *expected.counts))
    )
    return [name for name in wanted if name not in measured]


def _judged(trials: Sequence[Trial], expected: Expected, policy: Policy) -> Judgement:
    kind = "cpu" if expected.product is None else "gpu"
    paired = [trial for trial in trials if trial.paired]
    if paired or not expected.same_kernels:
        return live.judged(paired, policy, kind)
    return live.mirrored(trials, expected.base, policy)


def _nothing(expected: Expected) -> Judgement:
    """What no trial says: SAME where no operator needed one."""
    if not expected.reached:
        return Judgement(Verdict.SAME, "nothing differs")
    return Judgement(Verdict.CANNOT_TELL, "no trial fits the run: nothing could be judged")


def rejected(files: Sequence[TrialFile]) -> list[str]:
    """A sentence on every line that is not a trial."""
    return [f"{one.at(Path(file.path.name))}: {one.why}" for file in files for one in file.rejected]


def _few(sentences: list[str]) -> list[str]:
    more = len(sentences) - SHOWN
    return sentences if more <= 0 else [*sentences[:SHOWN], f"and {more} more of this kind"]
