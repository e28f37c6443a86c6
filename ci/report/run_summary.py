"""What a run measured, as a table: time, rate, ratio to the baseline; then what is odd about the times."""

from __future__ import annotations

import dataclasses
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.judging.types import Judgement
from ci.records import rates
from ci.report.model import ReportWarning, costs_of, grouped, skips_of
from ci.report.words import duration, plain, plural, rate, told
from ci.stats import FloatArray, anomalies
from ci.trials.trial import Trial

Key = tuple[str, str, str]
"""Operator, case, backend."""

COLUMNS = {"kernel / case": "left", "backend": "left", "time": "right", "rate": "right", "baseline / ours": "right"}


def show(trials: Sequence[Trial], console: Console) -> None:
    """Print one row per case and backend that has a time, then what is odd about the times and what has none."""
    samples = _samples(trials)
    if samples:
        console.print(_table(trials, {key: float(np.median(np.concatenate(s))) for key, s in samples.items()}))
    for warning in grouped(odd(samples)):
        console.print(told(warning), style="yellow", markup=False, highlight=False)
    for skip in skips_of(trials):
        style = "dim" if skip.status in ("skipped", "unsupported") else "bold red"
        line = f"{plain(skip.what)}: {skip.status}: {plain(skip.why, 600)}"
        console.print(line, style=style, markup=False, highlight=False)


def odd(samples: Mapping[Key, Sequence[FloatArray]]) -> Iterator[ReportWarning]:
    """What a median hides, by arm: calls that collapse now and then, or two speeds."""
    for (operator, case, backend), seconds in samples.items():
        for anomaly in anomalies.of_arm(seconds):
            yield ReportWarning(anomaly.sentence, f"{operator}/{backend}/{case}")


def _table(trials: Sequence[Trial], medians: dict[Key, float]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in COLUMNS.items():
        names = column in ("kernel / case", "backend")  # a name is never cut: it is copied into the next command
        table.add_column(column, justify=justify, overflow="fold", no_wrap=not names)  # type: ignore[arg-type]
    costs = costs_of(trials)
    baselines = {trial.operator: declared.baselines for trial in trials if (declared := trial.declaration())}
    for (operator, case, backend), seconds in medians.items():
        own = baselines.get(operator, ())
        timed = [medians[operator, case, name] for name in own if (operator, case, name) in medians]
        baseline = min(timed, default=None)  # the fastest counts, as on the page
        ratio = Text("baseline", "dim") if backend in own else _ratio(baseline, seconds)
        speed = rate(costs.get(f"{operator}/{backend}/{case}"), seconds)
        table.add_row(Text(plain(f"{operator}/{case}")), Text(plain(backend)), duration(seconds), speed, ratio)
    return table


def _samples(trials: Iterable[Trial]) -> dict[Key, list[FloatArray]]:
    """Seconds of every arm that is right, one array per trial."""
    samples: dict[Key, list[FloatArray]] = {}
    for trial in trials:
        for case, _, backend, arm in trial.arms():
            if arm.ok:
                samples.setdefault((trial.operator, case, backend), []).append(arm.seconds)
    return samples


def _ratio(baseline: float | None, seconds: float) -> Text:
    if baseline is None:
        return Text("")
    ratio = rates.baseline_ratio(baseline, seconds)
    return Text(f"{ratio:.3f}", "green" if ratio >= 1 else "yellow")


# Where the seconds of a run went, as a line.


MEASURING = ("rounds", "whole calls")
"""Phases in which samples are taken; a warm-up is none."""

AHEAD, JUDGING = "before the trials", "outside of measuring"

SHOWN_S = 0.05
"""Shorter phases are not named in the sentence."""


@dataclasses.dataclass(frozen=True)
class RunSeconds:
    """Wall seconds of a command.  phases: of its trials, by name, with what lay before them and outside."""

    phases: dict[str, float]

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
        yield f"to decide {operator}: {plural(more, 'more trial')}{took}: `{again(kernel=operator, trials=whole)}`"


def minutes(seconds: float) -> str:
    """ "45 s", "3 min"."""
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def seconds_of(trials: Sequence[Trial], whole_s: float | None = None) -> RunSeconds | None:
    """Where the seconds of trials went, and with `whole_s` those of the command that measured them.

    None without trials.
    """
    if not trials:
        return None
    phases: dict[str, float] = defaultdict(float)
    for of_trial in trials:
        for name, seconds in (*of_trial.phases.items(), (AHEAD, of_trial.ahead_s)):
            phases[name] += seconds
    if whole_s is not None:
        phases[JUDGING] = max(0.0, whole_s - sum(phases.values()))
    return RunSeconds(dict(phases))
