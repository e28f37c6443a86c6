"""What a run measured, as a table: time, rate, ratio to the baseline; then what is odd about the times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.records import rates
from ci.records.ledger import SUSTAINED
from ci.report.model import ReportWarning, costs_of, grouped, skips_of
from ci.report.words import duration, plain, rate, warning_line
from ci.stats import anomalies
from ci.stats.types import FloatArray
from ci.trials.trial import Trial

if TYPE_CHECKING:
    from ci.records.sustained import JoulesPerCall

Key = tuple[str, str, str]
"""Operator, case, backend."""

COLUMNS = {"kernel / case": "left", "backend": "left", "time": "right", "rate": "right", "baseline / ours": "right"}
JOULES = {"J per call (99 %)": "right"}


def show(trials: Sequence[Trial], console: Console) -> None:
    """Print one row per case and backend that has a time, then what is odd about the times and what has none."""
    samples = _samples(trials)
    if samples:
        console.print(_table(trials, {key: float(np.median(np.concatenate(s))) for key, s in samples.items()}))
    for group in grouped(odd(samples)):
        console.print(warning_line(group), style="yellow", markup=False, highlight=False)
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
    energy = _energy(trials)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (COLUMNS | (JOULES if energy else {})).items():
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
        joules = [_joules(energy.get((operator, case, backend)))] if energy else []
        table.add_row(Text(plain(f"{operator}/{case}")), Text(plain(backend)), duration(seconds), speed, ratio, *joules)
    return table


def _energy(trials: Sequence[Trial]) -> dict[Key, JoulesPerCall]:
    """Joules of every arm whose bursts were long enough for the counters."""
    sustained = [trial for trial in trials if trial.regime == SUSTAINED]
    if not sustained:
        return {}
    from ci.records.sustained import joules_of  # it needs scipy, which a node may lack

    found: dict[Key, JoulesPerCall] = {}
    for operator in dict.fromkeys(trial.operator for trial in sustained):
        own = joules_of([trial for trial in sustained if trial.operator == operator])
        found |= {(operator, case, backend): joules for (case, _, backend), joules in own.items()}
    return found


def _joules(found: JoulesPerCall | None) -> str:
    return f"{found.joules:.4g} ({found.low:.4g} to {found.high:.4g})" if found else ""


def _samples(trials: Iterable[Trial]) -> dict[Key, list[FloatArray]]:
    """Seconds of every arm that is right, one array per trial."""
    found: dict[Key, list[FloatArray]] = {}
    for trial in trials:
        for case, _, backend, arm in trial.arms():
            if arm.ok:
                found.setdefault((trial.operator, case, backend), []).append(arm.seconds)
    return found


def _ratio(baseline: float | None, seconds: float) -> Text:
    if baseline is None:
        return Text("")
    ratio = rates.baseline_ratio(baseline, seconds)
    return Text(f"{ratio:.3f}", "green" if ratio >= 1 else "yellow")
