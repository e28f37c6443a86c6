"""A benchmark program of any language under paired A/B: which one is meant, and measuring by it."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from benchmarks.programs.reader import Program, ReaderError, declared, tables
from benchmarks.reach import NO_CODE
from benchmarks.shapes import Json, Unfit, built, one_of
from ci.git.checkout import keep_built
from ci.git.command import git
from ci.git.repository import Commit, LocalCheckout, Repository
from ci.harness import (
    INTERRUPTED,
    NOTHING,
    USAGE,
    MeasureError,
    MeasurePlan,
    follow,
    machine_kind,
    of_checkout,
    options,
    program,
)
from ci.judging.policy import PROGRAM_ROUNDS, Policy
from ci.judging.types import Judgement, Verdict
from ci.trials.file import Followed
from kernels.project import Project, around, layout

if TYPE_CHECKING:
    from ci.judging.live import Outcome

DEADLINE_S = 3600.0
"""For a build, and for a run."""

BUILDS = ".ridgeline/builds"
"""Below the root of a project: which checkouts are built."""

OF_OPERATORS = {
    "span": "A..B", "kernels": "--kernel", "cases": "--case", "backends": "--backend", "knobs": "--set",
    "env_base": "--env-base", "env_head": "--env-head", "heap": "--heap", "burst_s": "--burst", "axis": "--axis",
    "tier": "--tier", "regime": "--regime", "first_trial": "--first-trial",
}  # fmt: skip
"""Options that choose within what a checkout declares, by the name of their value; a program runs whole."""
USUAL = {"tier": "pr", "regime": "spaced", "axis": "commits"}
"""What such an option says where nobody chose."""


class ProgramError(ValueError):
    """No program can be run; the text names the value, what is allowed and the next step."""


@dataclasses.dataclass(frozen=True)
class ProgramRequest:
    """A program as it is declared, and as a table for the measuring program.

    kept: the folder that says which checkouts are built.
    """

    program: Program
    table: Json
    kept: Path

    @property
    def name(self) -> str:
        """Its name, which is the operator's in trial files, records and reports."""
        return self.program.name

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
        argv += options(program=json.dumps(self.table), out=out.resolve(), kept=self.kept.resolve(), seed=plan.seed)
        argv += options(
            rounds=plan.rounds or PROGRAM_ROUNDS, trials=plan.trials or 1, deadline=plan.deadline_s or DEADLINE_S
        )
        try:
            ended = follow(argv, console, f"building {self.name}", echo=False, told=told)
        except KeyboardInterrupt:
            return INTERRUPTED
        for side in checkouts if self.program.build else ():
            if not side.dirty:
                keep_built(side.path)
        if ended.code == USAGE or ended.code < 0 or (ended.code == NOTHING and not out.exists()):
            raise MeasureError("\n".join(ended.said[-12:]) if ended.code > 0 else ended.reason)
        return ended.code


def declared_program(project: Project, name: str) -> ProgramRequest:
    """The program of a project's settings with that name.  Raises ProgramError."""
    where = project.file or project.root / "ridgeline.toml"
    table = next((one for one in project.programs if one["name"] == name), None)
    if table is None:
        known = ", ".join(str(one["name"]) for one in project.programs) or "none"
        raise ProgramError(f"{where} declares no program {name!r} (declared: {known}): add a table [[program]] with it")
    return _request(project, table, f"{where}: [[program]] {name}")


def program_of_words(project: Project, words: Sequence[str], reads: str) -> ProgramRequest:
    """A command line that no file declares, by its own name.  Raises ProgramError."""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", Path(words[0]).name) or "program"
    return _request(project, {"name": name, "run": shlex.join(words), "reads": reads}, "behind --")


def refuse_choices(given: Mapping[str, Any], but: Sequence[str] = ()) -> None:
    """ProgramError for an option of a verb that a program has no use for.  but: names of values that are of use."""
    values = {name: given.get(name) or USUAL.get(name) for name in OF_OPERATORS if name not in but}
    if wrong := [OF_OPERATORS[name] for name, value in values.items() if value != USUAL.get(name)]:
        raise ProgramError(f"a program runs whole, as its command says: leave out {', '.join(wrong)}")


def declared_programs(project: Project, *, on_gpu: bool = True) -> list[ProgramRequest]:
    """The programs of a project's settings that run on a machine with a GPU, or without one.  Raises ProgramError."""
    every = [declared_program(project, str(table["name"])) for table in project.programs]
    return [one for one in every if on_gpu or not one.program.gpu]


def _request(project: Project, table: Json, where: str) -> ProgramRequest:
    known = tables(project.readers)
    try:
        program = built(Program, table, where, closed=True)
        if program.reads:
            one_of(*known)(program.reads, f"{where}: reads")
        reader = known[program.reads] if program.reads else table.get("reader")
        if reader:
            declared(reader)
    except (Unfit, ReaderError) as error:
        raise ProgramError(str(error)) from None
    return ProgramRequest(program, {**table, "reader": reader}, project.root / BUILDS)


# ---- what a change can reach -----------------------------------------------------------------------------------------


def changed_files(program: Program, root: Path, base: str, head: str | None) -> list[str]:
    """The files that can change the times of a program and that differ between two commits.

    head: None for the files of the working tree, new ones too.
    """
    paths = _pathspecs(program, root)
    changed = git(root, "diff", "--name-only", "-z", base, *([head] if head else []), "--", *paths)
    new = "" if head else git(root, "ls-files", "--others", "--exclude-standard", "-z", "--", *paths)
    return sorted({path for path in f"{changed}\0{new}".split("\0") if path})


def reached(root: Path, base: str, head: str, *, on_gpu: bool) -> list[str]:
    """The programs that the settings here declare, that run on such a machine, and that a changed file can reach."""
    asked = declared_programs(around(root), on_gpu=on_gpu)
    return [one.name for one in asked if changed_files(one.program, root, base, head)]


def labels(program: Program, repository: Repository, commits: Sequence[Commit]) -> list[str]:
    """Of each commit of a line of first parents a label that changes where a file of the program does."""
    paths = _pathspecs(program, repository.root)
    span = f"{commits[0].hash}..{commits[-1].hash}"
    changing = set(git(repository.root, "rev-list", "--first-parent", span, "--", *paths).split())
    found = [commits[0].hash]
    for commit in commits[1:]:
        found.append(commit.hash if commit.hash in changing else found[-1])
    return found


def _pathspecs(program: Program, root: Path) -> list[str]:
    """What git is asked for: all but records, settings and texts for people, where the program names nothing."""
    aside = (*layout(root).aside, *(f"*{ending}" for ending in NO_CODE))
    return list(program.paths) or [".", *(f":(exclude){one}" for one in aside)]


def compared_by(
    request: ProgramRequest,
    checkouts: tuple[LocalCheckout, LocalCheckout],
    plan: MeasurePlan,
    rules: Policy,
    file: Path,
    console: Console,
    all_cases: bool,
) -> Outcome:
    """The outcome of a comparison by a program; nothing is run where no changed file can reach it.

    plan.rounds: 0 for the usual number.  all_cases: run it whatever the files say.
    """
    from ci.judging.live import Outcome, compare  # scipy, which a node that only runs programs may lack

    if request.program.gpu and machine_kind() == "cpu":
        raise MeasureError(f"{request.name} needs a GPU (gpu = true), and this machine has none")
    base, head = checkouts
    changed = changed_files(request.program, head.path, base.commit.hash, None if head.dirty else head.commit.hash)
    if not (changed or all_cases):
        console.print(f"no changed file can reach {request.name}, which is not run (--all-cases does)", markup=False)
        nothing = Judgement(Verdict.SAME, f"no changed file can reach {request.name}", unreached=(request.name,))
        return Outcome(nothing, Followed(file).read())
    asked = dataclasses.replace(plan, rounds=plan.rounds or PROGRAM_ROUNDS, kernels=(), cases=())
    measuring = (rules, machine_kind(), file, console, request.measure, request.name)
    return compare(checkouts, asked, *measuring)
