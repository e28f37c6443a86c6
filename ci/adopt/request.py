"""What is asked of a script, as the argument list of `python -m benchmarks.adopted`; and measuring by it."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ci.adopt.seen import SeenScript
from ci.calling import inherited_paths
from ci.git.repository import LocalCheckout
from ci.harness import NOTHING, USAGE, ChildExit, MeasureError, MeasurePlan, follow, of_checkout, options, program

PRINTED = "{out}.{role}.txt"
"""What the measuring program keeps beside a trial file: the end of what the script printed."""


class NothingToCompare(Exception):
    """The script ran and timed nothing that both sides have; the text says why."""


@dataclasses.dataclass(frozen=True)
class ScriptRequest:
    """path: of the script below the top of the repository.  source: the file whose text runs on both sides.

    arguments: of the script.  folder: below the top, in which it runs.  paths: folders for imports, below the top of
    each checkout or absolute.  device: "cpu" or "".  budget_min: minutes for all trials.  most_trials: of a comparison.
    """

    path: Path
    source: Path
    arguments: tuple[str, ...] = ()
    folder: Path = Path()
    paths: tuple[str, ...] = ()
    device: str = ""
    budget_min: float | None = None
    most_trials: int = 12

    @property
    def operator(self) -> str:
        """Its name in the trial file."""
        return self.path.stem

    def options(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path) -> list[str]:
        """The options of the measuring program, apart from progress; the script's own arguments last."""
        budget_s = self.budget_min * 60 if self.budget_min else None
        cases = [case.partition("/")[2] for case in plan.cases]
        pythons = [f"{role}={python}" for role, python in plan.pythons.items()]
        argv = [one for side in checkouts for one in of_checkout(side)]
        argv += options(script=self.path, source=self.source.resolve(), out=out.resolve(), folder=self.folder)
        argv += options(path=self.paths, case=cases, env=pythons, device=self.device or None, budget=budget_s)
        argv += options(seed=plan.seed, rounds=plan.rounds, trials=plan.trials or 1, most_trials=self.most_trials)
        return [*argv, *options(cache=plan.cache or None, deadline=plan.deadline_s), "--", *self.arguments]

    def measure(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> int:
        """Trials of the script into a file (the form of ci.harness.measure); its exit code."""
        out.parent.mkdir(parents=True, exist_ok=True)
        argv = ["--progress", "json", *self.options(checkouts, plan, out)]
        ended = follow(program("benchmarks.adopted", *argv), console, f"looking at {self.operator}", echo=False)
        if ended.code == NOTHING and not out.exists():
            raise NothingToCompare(ended.last)
        if ended.code == USAGE or ended.code < 0:
            raise MeasureError(_reason(ended))
        return ended.code

    def seen(self, checkouts: Sequence[LocalCheckout], plan: MeasurePlan, out: Path, console: Console) -> SeenScript:
        """What both sides time; nothing is timed."""
        out.parent.mkdir(parents=True, exist_ok=True)
        told = Path(f"{out.resolve()}.told")
        argv = ["--progress", "json", "--told", str(told), *self.options(checkouts, plan, out)]
        ended = follow(program("benchmarks.adopted", *argv), console, f"looking at {self.operator}", echo=False)
        if ended.code == NOTHING:
            raise NothingToCompare(ended.last)
        if not told.exists():
            raise MeasureError(_reason(ended))
        try:
            return SeenScript.of(json.loads(told.read_bytes()))
        finally:
            told.unlink(missing_ok=True)


def _reason(ended: ChildExit) -> str:
    """The sentence that a program ended with; of a crash, how it ended."""
    return ended.last if ended.code >= 0 else f"the measuring program was {ended.how}; last it said: {ended.last}"


def import_paths(root: Path, named: Sequence[str]) -> tuple[str, ...]:
    """Folders that a side's imports search: those that were named, and those of PYTHONPATH.

    A folder inside the repository is one of the checkout: else both sides would import the working tree.
    """
    return tuple(dict.fromkeys(_below(root, one) for one in (*map(Path, named), *inherited_paths())))


def _below(root: Path, folder: Path) -> str:
    whole = folder if folder.is_absolute() else root / folder
    return str(whole.resolve().relative_to(root)) if whole.resolve().is_relative_to(root) else str(whole)
