"""A benchmark script of any repository under paired A/B: what is asked for, and what came of it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console

from benchmarks.shapes import built
from ci.calling import inherited_paths
from ci.git.repository import LocalCheckout, Repository
from ci.harness import (
    INTERRUPTED,
    NOTHING,
    USAGE,
    ChildExit,
    MeasureError,
    MeasurePlan,
    follow,
    of_checkout,
    options,
    program,
)
from ci.judging.live import NextOrders

# What a script times, as the measuring program tells it before anything is timed.


@dataclasses.dataclass(frozen=True)
class ScriptCase:
    """A closure of the script.  expected_s: seconds of a call.  why: it failed."""

    backend: str
    case: str
    timer: str
    expected_s: float
    why: str = ""

    @property
    def key(self) -> str:
        """Its name in the trial file."""
        return f"{self.backend}/{self.case}"


@dataclasses.dataclass(frozen=True)
class SeenScript:
    """What `python -m benchmarks.adopted --told FILE` writes.

    timed: keys of what would be timed.  left_out: by key, why another would not be.  trial_s: seconds of a trial.
    """

    operator: str
    timed: tuple[str, ...]
    left_out: Mapping[str, str]
    trial_s: float
    warnings: tuple[str, ...]
    closures: tuple[ScriptCase, ...]


# What is asked of a script, as the argument list of `python -m benchmarks.adopted`; and measuring by it.


PRINTED = "{out}.{role}.txt"
"""What the measuring program keeps beside a trial file: the end of what the script printed."""


class NothingToCompare(Exception):
    """The script ran and timed nothing that both sides have; the text says why."""


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """path: of the script below the top of the repository.  source: the file whose text runs on both sides.

    arguments: of the script.  folder: below the top, in which it runs.  paths: folders for imports, below the top of
    each checkout or absolute.  device: "cpu" or "".  ranks: that run it together; 0: as many as it starts itself.
    budget_min: minutes for survey and trials, which are divided over budget_trials.  all_cases: time what runs the same
    code on both sides, too.  own: a side that has the script runs its own text.
    """

    path: Path
    source: Path
    arguments: tuple[str, ...] = ()
    folder: Path = Path()
    paths: tuple[str, ...] = ()
    device: str = ""
    ranks: int = 0
    budget_min: float | None = None
    budget_trials: int = 7
    all_cases: bool = False
    own: bool = False

    def options(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path) -> list[str]:
        """The options of the measuring program, apart from progress."""
        script = {
            "path": str(self.path),
            "source": str(self.source.resolve()),
            "arguments": self.arguments,
            "folder": str(self.folder),
            "paths": self.paths,
            "device": self.device,
            "ranks": self.ranks,
            "seed": plan.seed,
            "budget_s": self.budget_min * 60 if self.budget_min else None,
            "budget_trials": self.budget_trials,
            "all_cases": self.all_cases,
        }
        argv = [word for side in checkouts for word in of_checkout(side, plan.pythons)]
        argv += options(script=json.dumps(script), out=out.resolve(), rounds=plan.rounds, trials=plan.trials or 1)
        return [*argv, *options(cache=plan.cache or None, deadline=plan.deadline_s)]

    def measure(
        self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console, told: NextOrders
    ) -> int:
        """Trials of the script into a file (a ci.judging.live.Measure); its exit code."""
        try:
            ended = self._followed(["--orders", *self.options(checkouts, plan, out)], out, console, told)
        except KeyboardInterrupt:
            return INTERRUPTED
        if ended.code == NOTHING and not out.exists():
            raise NothingToCompare(ended.last)
        if ended.code == USAGE or ended.code < 0:
            raise MeasureError(_reason(ended))
        return ended.code

    def seen(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> SeenScript:
        """What both sides time; nothing is timed."""
        told = Path(f"{out.resolve()}.told")
        ended = self._followed(["--told", str(told), *self.options(checkouts, plan, out)], out, console)
        if ended.code == NOTHING:
            raise NothingToCompare(ended.last)
        if not told.exists():
            raise MeasureError(_reason(ended))
        try:
            return built(SeenScript, json.loads(told.read_bytes()))
        finally:
            told.unlink(missing_ok=True)

    def _followed(self, words: Sequence[str], out: Path, console: Console, told: NextOrders | None = None) -> ChildExit:
        out.parent.mkdir(parents=True, exist_ok=True)
        argv = program("benchmarks.adopted", "--progress", "json", *words)
        return follow(argv, console, f"looking at {self.path.stem}", echo=False, told=told)


def _reason(ended: ChildExit) -> str:
    """The sentence that a program ended with; of a crash, how it ended."""
    return ended.last if ended.code >= 0 else f"the measuring program was {ended.how}; last it said: {ended.last}"


def import_paths(root: Path, named: Sequence[str]) -> tuple[str, ...]:
    """Folders that a side's imports search: those that were named, and those of PYTHONPATH.

    A folder of the repository is one of the checkout: else both sides would import the working tree.  One inside that
    git knows no file of, such as an environment of installed packages, is of both sides.
    """
    known = Repository(root)
    return tuple(dict.fromkeys(_below(known, root, one) for one in (*map(Path, named), *inherited_paths())))


def _below(known: Repository, root: Path, folder: Path) -> str:
    whole = (folder if folder.is_absolute() else root / folder).resolve()
    if not whole.is_relative_to(root):
        return str(whole)
    below = whole.relative_to(root)
    return str(below) if not whole.is_dir() or known.tracks(below) else str(whole)
