"""Where the seconds of a run went: a line always, a table where it is asked for."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from rich.table import Table

from ci.judging.types import Judgement
from ci.trials.trial import Trial

MEASURING = ("rounds", "whole calls")
"""Phases in which samples are taken; a warm-up is none."""

AHEAD, JUDGING = "before the trials", "outside of measuring"

ORDER = (
    *("start", "inputs", "set-up", "first calls", "compiling", "checks", "warm-up"),
    *(*MEASURING, "ran", "end", "between", AHEAD, JUDGING),
)
"""The order of a trial; phases that are not named here come last."""

EXPLAINED = {
    "start": "processes take their place, open their device, import the operator",
    "inputs": "inputs and reference",
    "set-up": "backends are set up, graphs captured",
    "first calls": "first call of every arm, without compiling",
    "compiling": "Triton compiles, or loads what it compiled before; waiting for what is compiled ahead",
    "checks": "every output against the reference, before and after timing",
    "warm-up": "samples that are not kept",
    "rounds": "samples",
    "whole calls": "single calls as the host sees them",
    "ran": "which files of the repository the processes ran",
    "end": "processes clean up and end",
    "between": "the coordinator itself; processes are forked and reaped",
    AHEAD: "importing torch, what the checkouts declare, the machine, and waiting for orders",
    JUDGING: "starting the measuring program, judging, machine code, records, page",
}


SHOWN_S = 0.05
"""Shorter phases are not named in the sentence."""


@dataclasses.dataclass(frozen=True)
class RunSeconds:
    """Wall seconds of a command.  phases: of its trials, by name, with what lay before them and outside.

    side_by_side: trials that were prepared at the same time, at most.
    """

    phases: dict[str, float]
    side_by_side: int = 1

    @property
    def whole_s(self) -> float:
        """All of them."""
        return sum(self.phases.values())

    @property
    def measuring_s(self) -> float:
        """Those in which samples were taken."""
        return sum(self.phases.get(name, 0.0) for name in MEASURING)

    def sentence(self) -> str:
        """ "measuring: 17.3 of 42.3 s (41 %); most of the rest: checks 15.2 s, before the trials 9.1 s"."""
        share = 100 * self.measuring_s / self.whole_s
        rest = sorted((name for name in self.phases if name not in MEASURING), key=lambda name: -self.phases[name])
        most = ", ".join(f"{name} {self.phases[name]:.1f} s" for name in rest[:3] if self.phases[name] >= SHOWN_S)
        measuring = f"measuring: {self.measuring_s:.1f} of {self.whole_s:.1f} s ({share:.0f} %)"
        return f"{measuring}; most of the rest: {most}" if most else measuring

    def table(self) -> Table:
        """A row for each phase, in the order of a trial."""
        beside = f"; {self.side_by_side} trials were prepared side by side, each was timed alone"
        title = f"where the seconds went{beside if self.side_by_side > 1 else ''}"
        shown = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
        shown.add_column("phase")
        shown.add_column("s", justify="right")
        shown.add_column("%", justify="right")
        shown.add_column("what it is", style="dim")
        for name, seconds in self.phases.items():
            shown.add_row(name, f"{seconds:.1f}", f"{100 * seconds / self.whole_s:.0f}", EXPLAINED.get(name, ""))
        shown.add_row("all", f"{self.whole_s:.1f}", "100", "")
        return shown

    def as_json(self) -> dict[str, object]:
        """For machines."""
        rounded = {name: round(seconds, 3) for name, seconds in self.phases.items()}
        return {"whole_s": round(self.whole_s, 3), "measuring_s": round(self.measuring_s, 3), "phases": rounded}


def to_decide(judgement: Judgement, trials: Sequence[Trial], again: Callable[..., str]) -> Iterator[str]:
    """For each operator with cases that are not decided: how many more trials, and about how long they take.

    again: the command that goes on with the trial file, with these options.
    """
    wanted: dict[str, int] = {}
    for case in judgement.cases:
        if case.more_trials:
            wanted[case.kernel] = max(wanted.get(case.kernel, 0), case.more_trials)
    for operator, more in wanted.items():
        lasted = [trial.duration_s for trial in trials if trial.operator == operator and trial.paired]
        whole = max(case.trials for case in judgement.cases if case.kernel == operator) + more
        took = f", about {minutes(more * statistics.median(lasted))}" if lasted else ""
        yield f"to decide {operator}: {more} more trials{took}: `{again(kernel=operator, trials=whole)}`"


def minutes(seconds: float) -> str:
    """ "45 s", "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def seconds_of(trials: Sequence[Trial], whole_s: float | None = None) -> RunSeconds | None:
    """Where the seconds of trials went, and with `whole_s` those of the command that measured them.

    None where the trials do not say so: those before 2026-11-22.
    """
    told = [trial.spent for trial in trials if trial.spent is not None]
    if not told or len(told) < len(trials):
        return None
    found: dict[str, float] = defaultdict(float)
    for one in told:
        for name, seconds in (*one.phases.items(), (AHEAD, one.ahead_s)):
            found[name] += seconds
    if whole_s is not None:
        found[JUDGING] = max(0.0, whole_s - sum(found.values()))
    places = {name: place for place, name in enumerate(ORDER)}
    ordered = sorted(found, key=lambda name: places.get(name, len(places)))
    return RunSeconds({name: found[name] for name in ordered}, max(one.side_by_side for one in told))
