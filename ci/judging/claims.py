"""What a trial says of itself, held against what we know of the run that should have produced it.

A trial that a stranger's code measured is a claim.  The platform knows which commits the run was started for and when;
the pool knows which GPU it has and how many; the default branch knows its benchmark definitions; the data sheet knows
how fast the hardware is at most.  A trial that contradicts one of them is refused by name.

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

from benchmarks.shapes import Unfit, built
from benchmarks.trial_file import identity
from ci.judging import live
from ci.judging.policy import Policy
from ci.judging.reach import doubted, with_left_out
from ci.judging.types import Judgement, Verdict
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
class JobStep:
    """A step of a job, in GitHub's words."""

    name: str
    conclusion: str | None = None


@dataclasses.dataclass(frozen=True)
class MeasuringJob:
    """One job of a run, in GitHub's words.  runner_name: of the machine that took it, "" or None if none did."""

    name: str
    status: str | None = None
    conclusion: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    runner_name: str | None = None
    steps: tuple[JobStep, ...] = ()

    @property
    def window_ms(self) -> tuple[int | None, int | None]:
        """When it ran, milliseconds since 1970 UTC; None where it has not got so far, or no runner took it."""
        start, end = (
            round(datetime.datetime.fromisoformat(text).timestamp() * 1000) if text and self.runner_name else None
            for text in (self.started_at, self.completed_at)
        )
        return start, end

    def why_nothing(self, pool: str) -> str:
        """Why this job handed over no trials, in one sentence."""
        if not self.runner_name:
            return f"absent: no machine of pool {pool} took the job {self.name!r}"
        for step in self.steps:
            if step.conclusion in FAILED:
                return f"did not start: the job {self.name!r} ended at its step {step.name!r}"
        ended = self.conclusion or self.status or "unknown"
        return f"nothing was measured: the job {self.name!r} handed over no trials (it ended as {ended})"


@dataclasses.dataclass(frozen=True)
class RunJobs:
    """GitHub's answer."""

    jobs: tuple[MeasuringJob, ...]


def read(path: Path, name: str = "") -> MeasuringJob:
    """The newest job of that name in the file, or its only one; a job that was run again stands last."""
    made_by = "`gh api repos/OWNER/NAME/actions/runs/ID/jobs` prints one"
    try:
        jobs = built(RunJobs, json.loads(path.read_bytes())).jobs
        chosen = [job for job in jobs if not name or is_called(job.name, name)]
        [job.window_ms for job in chosen]
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}; {made_by}") from error
    except (ValueError, Unfit) as error:
        raise RunFileError(f"{path} does not hold the jobs of a run ({error}); {made_by}") from None
    if not chosen or (not name and len(chosen) > 1):
        known = ", ".join(repr(job.name) for job in jobs[:20]) or "none"
        raise RunFileError(f"{path} has {len(chosen)} jobs called {name!r}; --job names one of: {known}")
    return chosen[-1]


def is_called(full: str, name: str) -> bool:
    """Whether a job has this name: that of a called workflow has the names of its callers before it, "GPU / Judge"."""
    return full == name or full.endswith(f" / {name}")


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
    window_ms: when the measuring job ran (`MeasuringJob.window_ms`).
    same_kernels: git says that both commits have the same kernel files, so that head alone is measured.
    unreached: operators that no changed file can reach, by the commits as git has them: they need no trial.
    reached: whether there is any other operator.
    declared: what base declares, by operator, from a tree of our own; None: not known.  python: its version, "3.12".
    past: earlier commits that the run may have measured too, each alone.
    programs: benchmark programs that a changed file can reach and that run on such a machine.
    """

    head: str
    base: str
    product: str | None
    counts: tuple[int, ...] = ()
    window_ms: tuple[int | None, int | None] = (None, None)
    same_kernels: bool = False
    unreached: tuple[str, ...] = ()
    reached: bool = True
    declared: Mapping[str, Declaration] | None = None
    python: str = ""
    past: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Sifted:
    """The trials of a file that fit their run, a sentence on each that does not, and on what is missing between."""

    trials: tuple[Trial, ...]
    refused: tuple[str, ...] = ()
    gaps: tuple[str, ...] = ()


def sift(trials: Sequence[Trial], expected: Expected) -> Sifted:
    """Hold every trial against what is expected, then the trials against each other."""
    fitting, refused = list[Trial](), list[str]()
    for trial in trials:
        reason = contradiction(trial, expected)
        if not reason and fitting and trial.machine.name != fitting[0].machine.name:
            reason = f"it says it ran on {trial.machine.name}, others of its leg on {fitting[0].machine.name}"
        if reason:
            refused.append(f"trial {trial.id} of {trial.operator} is refused: {reason}")
        else:
            fitting.append(trial)
    return Sifted(tuple(fitting), tuple(refused), tuple(_gaps(trials)))


def contradiction(trial: Trial, expected: Expected) -> str:
    """Why a trial cannot be of this run, "" if it can."""
    reasons = (check(trial, expected) for check in CHECKS)
    return next((reason for reason in reasons if reason), "")


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
    arch = hardware.by_market_name(expected.product).arch
    if machine.arch != arch:
        return f"it says its {expected.product} is of {machine.arch}; that product is of {arch}"
    if expected.counts and machine.count not in expected.counts:
        return f"it says it had {machine.count} GPUs; the leg was given {' or '.join(map(str, expected.counts))}"
    return ""


def _moment(trial: Trial, expected: Expected) -> str:
    slack, (first, last) = 1000 * CLOCK_SLACK_S, expected.window_ms
    if first is not None and trial.started_ms < first - slack:
        return f"it started at {trial.started_at}, before its run"
    if last is not None and trial.started_ms > last + slack:
        return f"it started at {trial.started_at}, after its run"
    if first is not None and last is not None and 1000 * trial.duration_s > last - first + slack:
        return f"it lasted {trial.duration_s:.3g} s, longer than its run"
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
    if ours is None and trial.operator in expected.programs:
        return ""  # its cases are the rows that it prints
    if ours is None or theirs is None:
        return "" if ours is theirs else f"base does not declare {trial.operator} as its commit does"
    if set(ours.baselines) != set(theirs.baselines) or ours.cases.keys() != theirs.cases.keys():
        return "it lists other cases or baselines of base than its commit declares"
    # Costs may depend on the machine, which is not ours; on a CPU digests cover the state of the caches, hot there
    # (ci.options.with_rounds), cold in a listing.
    unlike: dict[str, Any] = {"cost": Cost()} | ({"definition": None} if expected.product is None else {})
    for name in trial.cases.keys() & ours.cases.keys():
        one, other = (dataclasses.replace(declared.cases[name], **unlike) for declared in (ours, theirs))
        if one != other:
            return f"its benchmark definition of {name} in base is not that of the commit"
    return ""


def _roof(trial: Trial, expected: Expected) -> str:
    """No call beats the matrix units; the cost is what base declares, in our own tree of it where there is one."""
    declared = (expected.declared or {}).get(trial.operator) or trial.declaration()
    if expected.product is None or not declared:
        return ""
    peaks = hardware.by_market_name(expected.product).peak_flops
    for case, role, backend, arm in trial.arms():
        cost, peak = declared.cases.get(case), 0.0
        peak = peaks.get(cost.dtype, 0.0) if cost and arm.ok and cost.cost.flops else 0.0
        rate = cost.cost.flops / float(np.median(arm.seconds)) if cost and cost.cost.flops and peak else 0.0
        if rate > ROOF_SLACK * peak:
            has = f"{expected.product} has {peak / 1e12:.0f}"
            return f"{role}/{backend} of {case} runs at {rate / 1e12:.0f} TFLOPS; {has}"
    return ""


CHECKS: tuple[Callable[[Trial, Expected], str], ...] = (_sides, _commits, _machine, _moment, _id, _definition, _roof)
"""Each gives a reason against a trial, or ""."""


def _gaps(trials: Iterable[Trial]) -> Iterator[str]:
    """A session numbers its trials one after the other: one between that is not there was left out by somebody."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for trial in trials:
        numbers.setdefault((trial.session, trial.operator), set()).add(trial.number)
    for (session, operator), there in numbers.items():
        wanted = max(there) - min(there) + 1
        if len(there) < wanted:
            lost = f"{wanted - len(there)} of {wanted} trials"
            yield f"{lost} of {operator} in session {session} are not in the file"


# The judgement of a job that may be believed, on trials from a host that may not.
#
# Trials that fit their run are judged with this tree's code and policy. Nothing that is refused, left out or missing
# can make a pass: it makes CANNOT TELL, while a regression that is shown stays one.


SHOWN = 20
"""Refused trials and missing cases that a report names; the next ones are counted."""


@dataclasses.dataclass(frozen=True)
class TrustedOutcome:
    """The judgement, the trials it rests on, and the sentences on everything that was not used."""

    judgement: Judgement
    trials: tuple[Trial, ...] = ()
    remarks: tuple[str, ...] = ()


def decided(files: Sequence[TrialFile], expected: Expected, policy: Policy, tier: str = "pr") -> TrustedOutcome:
    """Judge the trials of a leg's files, as far as they fit what is expected of the run."""
    trials = sorted(
        {trial.id: trial for file in files for trial in file.trials}.values(), key=lambda trial: trial.order
    )
    sifted = sift(trials, expected)
    ran = {trial.operator for trial in sifted.trials}
    lacking = [*missing(sifted, expected, tier), *(name for name in expected.programs if name not in ran)]
    unmeasured = [f"{name} was not measured" for name in lacking]
    remarks = [*_few(rejected(files)), *_few(sifted.refused), *sifted.gaps, *_few(unmeasured)]
    judgement = _judged(sifted.trials, expected, policy)
    measured = {trial.operator for trial in trials}
    judgement = with_left_out(judgement, tuple(name for name in expected.unreached if name not in measured))
    judgement = doubted(judgement, remarks)
    return TrustedOutcome(judgement, sifted.trials, tuple(remarks))


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
    if not trials:
        if not expected.reached:
            return Judgement(Verdict.SAME, "nothing differs")
        return Judgement(Verdict.CANNOT_TELL, "no trial fits the run: nothing could be judged")
    paired = [trial for trial in trials if trial.paired]
    if paired or not expected.same_kernels:
        return live.judged(paired, policy, "cpu" if expected.product is None else "gpu")
    return live.mirrored(trials, expected.base, policy)


def rejected(files: Sequence[TrialFile]) -> list[str]:
    """A sentence on every line that is not a trial."""
    return [f"{line.at(Path(file.path.name))}: {line.why}" for file in files for line in file.rejected]


def _few(sentences: Sequence[str]) -> list[str]:
    more = len(sentences) - SHOWN
    return [*sentences] if more <= 0 else [*sentences[:SHOWN], f"and {more} more of this kind"]
