"""The study as a page with tables (`ab_study.md.j2`) and as a plot."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2
import matplotlib
import numpy as np

from ci.judging.policy import Settings

matplotlib.use("svg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

Row = dict[str, Any]
"""One counted number with what it was counted for, as in ab_study.json."""

CASES = ("copy", "tgemm", "mm", "tgemm_m64", "mm_m16")

Promise = tuple[str, str, int]
"""(case, arm, trials) that must be found in 95 % of draws."""

EFFECTS = (
    (-1.0, 0.003, "A/A"),
    (0.003, 0.01, "0.3 to 1 %"),
    (0.01, 0.02, "1 to 2 %"),
    (0.02, 0.035, "2 to 3.5 %"),
    (0.035, 0.08, "3.5 to 8 %"),
)
"""(from, up to, name) of the columns in which effects are put together."""


def page(numbers: Row, settings: Settings, promises: Sequence[Promise]) -> str:
    """The page in Markdown."""
    source = (Path(__file__).parent / "ab_study.md.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    return environment.from_string(source).render({**_policy(settings), **_tables(numbers, promises)})


def _policy(settings: Settings) -> Row:
    return {
        "smallest_effect": f"{settings.smallest_effect:.1%}",
        "arm_bias": f"{settings.arm_bias:.2%}",
        "false_alarm": f"{settings.false_alarm:.1%}",
        "confidence": f"{settings.confidence:.0%}",
        "budget": settings.looks[-1],
        "look_list": ", ".join(map(str, settings.looks)),
        "confirming": settings.confirming,
    }


def _tables(numbers: Row, promises: Sequence[Promise]) -> Row:
    power = numbers["power"]
    return {
        "draws": numbers["draws"],
        "scatter": _scatter(numbers["scatter"]),
        "false_alarms": _false(numbers["false_alarms"], "gpu"),
        "separate_false_alarms": _false(numbers["separate_false_alarms"], "way", "sampling"),
        "coverage": _coverage(numbers["coverage"]),
        "promised": _table(("case", "arm", "effect", "trials", "found, by GPU"), _promised(power, promises)),
        "power": _power(power),
        "wrong_way": sum(row["faster"] > 0 for row in power),
        "power_rows": len(power),
        "rounds": _rounds(numbers["rounds"]),
        "stress": _grid(numbers["stress"], "noise", "trials", lambda row: _per_thousand(row["alarm"])),
        "looks": _looks(numbers["looks"]),
        "others": _others(numbers),
    }


def _mean(rows: Iterable[Row], key: str) -> float:
    return float(np.mean([row[key] for row in rows]))


def _per_thousand(share: float) -> str:
    return f"{1000 * share:.2f}"


def _change(effect: float) -> str:
    return f"{100 * effect:+.2f} %"


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows), ""])


def _scatter(rows: Sequence[Row]) -> str:
    shares = ("median_sd", "block_sd", "rounds_imply")
    lines = ((r["gpu"], r["case"], f"{r['base_us']:.1f}", *(_percent(r[k]) for k in shares)) for r in rows)
    return _table(("GPU", "case", "base, us", "median", "block shift", "implied"), lines)


def _false(rows: Sequence[Row], key: str, title: str = "") -> str:
    shares = ("alone", "worst", "together")
    lines = ((r[key], r["trials"], *(_per_thousand(r[k]) for k in shares), r["judged"]) for r in rows)
    return _table((title or key, "trials", "alone", "worst case", "together", "cases judged"), lines)


def _coverage(rows: Sequence[Row]) -> str:
    kinds, counts = list(dict.fromkeys(r["kind"] for r in rows)), sorted({r["trials"] for r in rows})
    lines = []
    for kind in kinds:
        held = (_mean((r for r in rows if (r["kind"], r["trials"]) == (kind, n)), "held") for n in counts)
        lines.append((kind, *(f"{share:.3f}" for share in held)))
    return _table(("", *(f"{n} trials" for n in counts)), lines)


def _promised(rows: Sequence[Row], promises: Sequence[Promise]) -> Iterable[Sequence[Any]]:
    for case, arm, trials in promises:
        mine = [r for r in rows if (r["case"], r["arm"], r["trials"]) == (case, arm, trials)]
        yield case, arm, _change(_mean(mine, "effect")), trials, ", ".join(f"{r['slower']:.3f}" for r in mine)


def _power(rows: Sequence[Row]) -> str:
    counts = sorted({r["trials"] for r in rows})
    lines = []
    for case in CASES:
        for arm in dict.fromkeys(r["arm"] for r in rows):
            mine = [r for r in rows if (r["case"], r["arm"]) == (case, arm)]
            shares = (_mean((r for r in mine if r["trials"] == n), "slower") for n in counts)
            lines.append((case, _change(_mean(mine, "effect")), *(f"{share:.3f}" for share in shares)))
    return _table(("case", "effect", *(f"{n} trials" for n in counts)), lines)


def _rounds(rows: Sequence[Row]) -> str:
    counts = sorted({r["rounds"] for r in rows})
    lines = []
    for key in dict.fromkeys((r["case"], r["arm"], r["trials"]) for r in rows):
        cells = []
        for n in counts:
            mine = [r for r in rows if (r["case"], r["arm"], r["trials"]) == key and r["rounds"] == n]
            cells.append(f"{_mean(mine, 'slower'):.3f} / {_per_thousand(_mean(mine, 'alarm'))}")
        lines.append((*key, *cells))
    return _table(("case", "arm", "trials", *(f"{n} rounds: found / false per 1,000" for n in counts)), lines)


def _grid(rows: Sequence[Row], down: str, across: str, cell: Callable[[Row], str]) -> str:
    columns = list(dict.fromkeys(r[across] for r in rows))
    found = {(r[down], r[across]): cell(r) for r in rows}
    lines = ((name, *(found[name, c] for c in columns)) for name in dict.fromkeys(r[down] for r in rows))
    return _table((down, *(f"{c} {across}" for c in columns)), lines)


def _looks(rows: Sequence[Row]) -> str:
    lines = []
    for case in CASES:
        for arm in dict.fromkeys(r["arm"] for r in rows):
            mine = [r for r in rows if (r["case"], r["arm"]) == (case, arm)]
            false, slower = f"{_per_thousand(_mean(mine, 'found'))} per 1,000 false", _mean(mine, "slower")
            outcome = false if arm == "same" else f"{slower:.3f} found"
            lines.append((case, _change(_mean(mine, "effect")), outcome, f"{_mean(mine, 'trials'):.1f}"))
    return _table(("case", "effect", "outcome", "mean trials spent on findings"), lines)


def _others(numbers: Row) -> str:
    power = (r for r in numbers["power"] if r["trials"] == 8)
    alarms = (r for r in numbers["false_alarms"] if r["trials"] == 8)
    ours = [{"effect": r["effect"], "found": r["slower"]} for r in power]
    ours += [{"effect": 0.0, "found": r["alone"]} for r in alarms]
    rows = [*({"rule": "this rule, 8 trials", **row} for row in ours), *numbers["others"]]
    lines = []
    for rule in dict.fromkeys(r["rule"] for r in rows):
        within = ([r for r in rows if r["rule"] == rule and low <= r["effect"] < high] for low, high, _ in EFFECTS)
        lines.append((rule, *(f"{_mean(mine, 'found'):.3f}" if mine else "-" for mine in within)))
    return _table(("rule", *(name for *_, name in EFFECTS)), lines)


def plot(numbers: Row, path: Path) -> None:
    """Share found against effect: left this rule with 4, 8 and 12 trials, right the other rules."""
    plt.rcParams["svg.hashsalt"] = "ridgeline"
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    _plot_ours(left, numbers)
    for rule, marker in zip(dict.fromkeys(r["rule"] for r in numbers["others"]), "+xvo^", strict=True):
        _points(right, [(r["effect"], r["found"]) for r in numbers["others"] if r["rule"] == rule], marker, rule)
    left.set(title="this rule, A/B in lock-step", ylabel="share of draws with a finding", ylim=(-0.03, 1.03))
    right.set(title="other rules, 8 trials or runs")
    for axes in (left, right):
        axes.axhline(0.95, color="grey", linewidth=0.8, linestyle=":")
        axes.set(xlabel="true effect, % of the time", xlim=(-0.3, 7))
        axes.legend(fontsize=8, loc="center right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def _plot_ours(axes: Axes, numbers: Row) -> None:
    for trials, marker in ((4, "v"), (8, "o"), (12, "^")):
        points = [(r["effect"], r["slower"]) for r in numbers["power"] if r["trials"] == trials]
        _points(axes, points, marker, f"{trials} trials")
    _points(axes, [(0.0, r["alone"]) for r in numbers["false_alarms"]], "s", "A/A: false alarms")


def _points(axes: Axes, points: Sequence[tuple[float, float]], marker: str, label: str) -> None:
    axes.plot([100 * effect for effect, _ in points], [share for _, share in points], marker, alpha=0.7, label=label)
