"""A benchmark program of any language under paired A/B: which one is meant, and measuring by it."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.programs.reader import ReaderError, declared, tables
from ci.git.repository import LocalCheckout
from ci.harness import NOTHING, USAGE, MeasureError, MeasurePlan, follow, machine_kind, of_checkout, options, program
from ci.judging.policy import Policy
from kernels.project import Project

ROUNDS = 3
"""Runs of each side in a trial.  Each is a fresh process, so that trials differ by no more than rounds do, and of as
many runs more trials tell more; 3 still have a median where one run was disturbed."""

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "gpu": {"same_within": 0.02},
    "cpu": {"same_within": 0.03, "smallest_effect": 0.02, "arm_bias": 0.005, "trial_noise": 0.003},
}
"""What the policy says of a program by kind of machine, unless it has a section of its own for it.  Rows of programs of
a second differ by 0.5 to 1.5 % from run to run, so that SAME within 1 % takes minutes; a CPU program is what is meant
to be measured, no stand-in for a GPU, and 3 % of it are to be seen (2026-11-28)."""

LOOKS = {"min_rounds": ROUNDS, "confirming": 2, "looks": (4, 6, 9, 16)}
"""The same on every machine: 4 trials of a program of a second take 24 s, 9 take 54 s."""

DEADLINE_S = 3600.0
"""For a build, and for a run."""

BUILDS = ".ridgeline/builds"
"""Below the root of a project: which checkouts are built."""

KEYS = ("name", "build", "run", "reads", "output", "unit", "baselines")


class ProgramError(ValueError):
    """No program can be run; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class ProgramRequest:
    """A program as the measuring program takes it (benchmarks.programs.session.Program).

    kept: the folder that says which checkouts are built.
    """

    fields: Mapping[str, Any]
    kept: Path

    @property
    def name(self) -> str:
        """Its name, which is the operator's in trial files, records and reports."""
        return str(self.fields["name"])

    def measure(
        self,
        checkouts: Sequence[LocalCheckout],
        plan: MeasurePlan,
        out: Path,
        console: Console,
        told: Callable[[], str] | None = None,
    ) -> int:
        """Trials into a file; the exit code.  told: the next orders (ci.judging.live.Measure), None for plan.trials."""
        out.parent.mkdir(parents=True, exist_ok=True)
        argv = program("benchmarks.programs", "--progress", "json", *(["--orders"] if told else []))
        argv += [word for side in checkouts for word in of_checkout(side)]
        argv += options(program=json.dumps(self.fields), out=out.resolve(), kept=self.kept.resolve(), seed=plan.seed)
        argv += options(rounds=plan.rounds or ROUNDS, trials=plan.trials or 1, deadline=plan.deadline_s or DEADLINE_S)
        ended = follow(argv, console, f"building {self.name}", echo=False, told=told)
        if ended.code == USAGE or ended.code < 0 or (ended.code == NOTHING and not out.exists()):
            raise MeasureError("\n".join(ended.said[-12:]) if ended.code >= 0 else f"{ended.how}: {ended.last}")
        return ended.code


def rules_for(rules: Policy, name: str) -> Policy:
    """The policy of a comparison by one program; a section [kernel.NAME] for it counts as for an operator."""
    kind = machine_kind()
    here, own = rules.sections.get(("machine", kind), {}), rules.sections.get(("kernel", name), {})
    section = {**here, **LOOKS, **SETTINGS[kind], **own}
    return dataclasses.replace(rules, sections={**rules.sections, ("machine", kind): section})


def declared_program(project: Project, name: str) -> ProgramRequest:
    """The program of a project's settings with that name.  Raises ProgramError."""
    where = project.file or project.root / "ridgeline.toml"
    found = next((one for one in project.programs if one["name"] == name), None)
    if found is None:
        known = ", ".join(str(one["name"]) for one in project.programs) or "none"
        raise ProgramError(f"{where} declares no program {name!r} (declared: {known}): add a table [[program]] with it")
    return _request(project, found, f"{where}: [[program]] {name}")


def program_of_words(project: Project, words: Sequence[str], reads: str) -> ProgramRequest:
    """A command line that no file declares, by its own name.  Raises ProgramError."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(words[0]).name) or "program"
    return _request(project, {"name": name, "run": shlex.join(words), "reads": reads}, "behind --")


def _request(project: Project, table: Mapping[str, Any], where: str) -> ProgramRequest:
    for key, value in table.items():
        if key not in KEYS:
            raise ProgramError(f"{where}: unknown key {key!r}; known: {', '.join(KEYS)}")
        right = isinstance(value, list) if key == "baselines" else isinstance(value, str)
        if not right:
            raise ProgramError(f"{where}: {key} is {value!r}; a {'list' if key == 'baselines' else 'text'} is expected")
    if not str(table.get("run", "")).strip():
        raise ProgramError(f'{where} says no command: run = "./bench --size 4096"')
    known, reads = tables(project.readers), table.get("reads", "")
    if reads and reads not in known:
        raise ProgramError(f"{where}: there is no reader {reads!r}; there are: {', '.join(known)}")
    try:
        reader = dict(known[reads]) if reads else None
        if reader:
            declared(reader)
    except ReaderError as error:
        raise ProgramError(str(error)) from None
    fields = {key: value for key, value in table.items() if key != "reads"}
    return ProgramRequest({**fields, **({"reader": reader} if reader else {})}, project.root / BUILDS)
