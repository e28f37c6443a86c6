"""Trials of an earlier check that a check of the same commit need not measure again."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable
from importlib import metadata

from ci.commands.common.checkouts import TRIALS
from ci.git.repository import LocalCheckout
from ci.harness import MeasurePlan, machine_kind
from ci.trials.file import TrialFile, read
from ci.trials.trial import Checkout, Machine, Trial
from kernels import project


def measured_before(head: LocalCheckout, plan: MeasurePlan, operators: Iterable[str]) -> TrialFile | None:
    """The newest file of a check in which this commit was measured alone and whole, as the plan would do it here and
    now; None if there is none.

    Only on a machine without a GPU, whose times are a smoke test, and for a plan of all cases of tier pr: which cases
    another plan has is not known without asking the checkout.
    """
    chosen = (plan.cases, plan.backends, plan.knobs, plan.pythons, plan.trials, plan.heap)
    if head.dirty or plan.tier != "pr" or any(chosen):
        return None
    wanted = set(plan.kernels or operators)
    names = project.place(TRIALS).glob(f"*-check-{head.commit.short}-*.jsonl")
    files = (read(path) for path in sorted(names, reverse=True))
    return next((one for one in files if _whole(one, wanted) and all(_fits(t, head, plan) for t in one.trials)), None)


def _whole(file: TrialFile, wanted: set[str]) -> bool:
    return bool(wanted) and not file.rejected and {trial.operator for trial in file.trials} == wanted


def _fits(trial: Trial, head: LocalCheckout, plan: MeasurePlan) -> bool:
    """Whether a trial was measured as it would be now: commit, tier, protocol, host and versions."""
    if trial.paired or "head" not in trial.checkouts:
        return False
    own, declared = trial.checkouts["head"], trial.declaration()
    protocol = json.loads(trial.text).get("protocol") or {}
    same_way = all(protocol.get(name) == getattr(plan, name) for name in ("rounds", "cache", "seed", "regime"))
    pr = declared is not None and all(declared.cases[name].tier == "pr" for name in trial.cases)
    return own.commit == head.commit.hash and not own.dirty and pr and same_way and _here(trial.machine, own)


def _here(machine: Machine, own: Checkout) -> bool:
    """Whether it was measured by this Python on a machine without a GPU like this one: a trial names no host."""
    system = f"{platform.system()} {'.'.join(platform.release().split('.')[:2])}"
    cpu = machine.kind == machine_kind() == "cpu" and machine.cpu_count == len(os.sched_getaffinity(0))
    python = own.environment.versions.get("python") == platform.python_version()
    return cpu and machine.os == system and python and own.environment.requirements == _versions()


def _versions() -> dict[str, str]:
    """Versions of torch and Triton as ci.trials.trial.Environment.requirements has them."""
    found = {}
    for name in ("torch", "triton"):
        try:
            found[name] = metadata.version(name).split("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return found
