"""What a run measured, as a table: time, rate, share of the peak, and how it stands against the vendor baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.report.build import costs_of, skips_of
from ci.report.words import duration, rate
from ci.trials.file import TrialLine


def show(lines: Sequence[TrialLine], console: Console) -> None:
    """Print one row per case and backend that has a time, then what has none, with the reason."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column, justify in (
        ("kernel / case", "left"),
        ("backend", "left"),
        ("time", "right"),
        ("rate", "right"),
        ("baseline / ours", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    medians, costs = _medians(lines), costs_of(lines)
    baselines = {line.data["kernel"]: _declared(line.data)["baselines"] for line in lines}
    for (kernel, case, backend), seconds in medians.items():
        own = baselines.get(kernel, [])
        control = next((medians[kernel, case, b] for b in own if (kernel, case, b) in medians), None)
        ratio = Text("baseline", "dim") if backend in own else _ratio(control, seconds)
        table.add_row(
            f"{kernel}/{case}",
            backend,
            duration(seconds),
            rate(costs.get(f"{kernel}/{backend}/{case}"), seconds),
            ratio,
        )
    if medians:
        console.print(table)
    for skip in skips_of(lines):
        console.print(
            f"{skip.what}: {skip.status}: {skip.why}",
            style="dim" if skip.status in ("skipped", "unsupported") else "bold red",
            markup=False,
            highlight=False,
        )


def _medians(lines: Sequence[TrialLine]) -> dict[tuple[str, str, str], float]:
    samples: dict[tuple[str, str, str], list[float]] = {}
    for line in lines:
        for case, entry in line.data["cases"].items():
            for arm, result in entry["arms"].items():
                if result["status"] == "ok":
                    samples.setdefault((line.data["kernel"], case, arm.partition("/")[2]), []).extend(result["seconds"])
    return {key: float(np.median(values)) for key, values in samples.items()}


def _declared(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((t["declaration"] for t in data["trees"].values() if t.get("declaration")), {"baselines": []})


def _ratio(control: float | None, seconds: float) -> Text:
    if control is None:
        return Text("")
    share = control / seconds
    return Text(f"{share:.3f}", "green" if share >= 1 else "yellow")
