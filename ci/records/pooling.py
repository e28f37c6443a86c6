"""From the trials of one commit in one environment to one number per kernel, backend and case."""

from __future__ import annotations

import dataclasses
import datetime
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from ci.trials.file import FAILED, TrialLine, env_name

FloatArray = npt.NDArray[np.float64]
Key = tuple[str, str, str]
"""Kernel, backend, case."""
Result = tuple[Mapping[str, Any], Mapping[str, Any], str]
"""A trial, one arm of one case in it, and the method of that case."""

CI_LEVEL = 0.99
"""asv's columns are called ci_99."""

CI_FLOOR = 1e-3
"""Least relative half-width of an interval.  asv weighs a point by 1 / width, without bound, and then misses steps
beside a point that happens to repeat exactly.  0.1 % is how well a paired ratio repeats (A/A on an H200, 2026-11)."""


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a number belongs: machine, commit (40 hex digits) and environment name."""

    machine: str
    commit: str
    env: str

    @property
    def stem(self) -> str:
        """What asv calls the result file, without its suffix."""
        return f"{self.commit[:8]}-{self.env}"


@dataclasses.dataclass(frozen=True, eq=False)
class Cell:
    """One (kernel, backend, case) at a place.  trials: seconds, one array for each trial; empty unless status is ok."""

    kernel: str
    backend: str
    case: str
    status: str
    why: str
    trials: tuple[FloatArray, ...]
    method: str
    yardstick: str
    case_yardstick: str

    @property
    def seconds(self) -> float:
        """Median over the samples of all trials, NaN without any."""
        return _middle(np.sort(np.concatenate(self.trials))) if self.trials else float("nan")


@dataclasses.dataclass(frozen=True, eq=False)
class Pool:
    """All that was measured at a place.  Newest trial first where they disagree about a kernel's declaration.

    declarations: by kernel.  started_ms, duration_s: by kernel, of its newest trial and of all.
    """

    place: Place
    cells: Mapping[Key, Cell]
    declarations: Mapping[str, Mapping[str, Any]]
    started_ms: Mapping[str, int]
    duration_s: Mapping[str, float]
    machine: Mapping[str, Any]
    environment: Mapping[str, Any]
    date_ms: int
    broken: Sequence[Mapping[str, Any]]


def role_at(data: Mapping[str, Any], place: Place) -> str | None:
    """Which tree of a trial is this commit in this environment; head before others, None if there is none."""
    for role in sorted(data["trees"], key=lambda name: (name != "head", name)):
        tree = data["trees"][role]
        if commit_of(tree) == place.commit and env_name(tree["environment"]) == place.env:
            return str(role)
    return None


def commit_of(tree: Mapping[str, Any]) -> str | None:
    """The commit a tree may be recorded as: the one it was given by name, else its own unless it has local changes."""
    commit = tree.get("recorded_as") or (None if tree.get("dirty") else tree.get("commit"))
    return str(commit) if commit else None


def pool(lines: Iterable[TrialLine], place: Place) -> Pool:
    """Pool the trials that belong to a place; ValueError if none does."""
    trials = [
        (line.data, role)
        for line in sorted(lines, key=lambda line: line.order)
        if line.data["machine"]["name"] == place.machine and (role := role_at(line.data, place))
    ]
    if not trials:
        raise ValueError(f"no trial of {place}")
    newest, role = trials[-1]
    declarations = {
        data["kernel"]: data["trees"][role]["declaration"]
        for data, role in trials
        if data["trees"][role].get("declaration")
    }
    started = {data["kernel"]: milliseconds(data["started_at"]) for data, _ in trials}
    durations = {
        name: sum(float(data.get("duration_s") or 0) for data, _ in trials if data["kernel"] == name)
        for name in declarations
    }
    tree = newest["trees"][role]
    return Pool(
        place,
        _cells(trials, declarations),
        declarations,
        started,
        durations,
        newest["machine"],
        tree["environment"],
        int(tree.get("date_ms") or max(started.values())),
        tree.get("broken") or (),
    )


def milliseconds(moment: str) -> int:
    """An ISO time as milliseconds since 1970 UTC."""
    return round(datetime.datetime.fromisoformat(moment).timestamp() * 1000)


def interval(trials: Sequence[FloatArray]) -> tuple[float, float]:
    """99 % interval of the median time, seconds.

    Over trials where there are two or more: Student's t on the logarithms of their medians, because a process start is
    the unit that varies.  One trial has only its samples: the order statistics whose coverage is at least 99 %
    (binomial, as asv does), least and greatest where it has fewer than 8.  Never narrower than CI_FLOOR.
    """
    samples = np.sort(np.concatenate(trials))
    median = _middle(samples)
    if len(trials) >= 2:
        logs = np.log([_middle(np.sort(trial)) for trial in trials])
        reach = _student(len(logs) - 1) * float(np.std(logs, ddof=1)) / np.sqrt(len(logs))
        low, high = np.exp(logs.mean() - reach), np.exp(logs.mean() + reach)
    else:
        below, above = _order_statistics(len(samples))
        low, high = samples[below], samples[above]
    return min(float(low), median * (1 - CI_FLOOR)), max(float(high), median * (1 + CI_FLOOR))


def _middle(ordered: FloatArray) -> float:
    """Median of sorted values: np.median without its checks, which take ten times as long for so few values."""
    half = len(ordered) // 2
    return float(ordered[half]) if len(ordered) % 2 else float(ordered[half - 1] + ordered[half]) / 2


@functools.cache
def _student(degrees: int) -> float:
    return float(special.stdtrit(degrees, 0.5 + CI_LEVEL / 2))


@functools.cache
def _order_statistics(count: int) -> tuple[int, int]:
    """Indices of the sorted samples that enclose the median with at least CI_LEVEL."""
    tail = special.bdtr(np.arange(count), count, 0.5)  # P(at most k samples lie below the median)
    below = max(int(np.searchsorted(tail, (1 - CI_LEVEL) / 2, side="right")) - 1, 0)
    return below, count - 1 - below


def _cells(
    trials: Sequence[tuple[Mapping[str, Any], str]], declarations: Mapping[str, Mapping[str, Any]]
) -> dict[Key, Cell]:
    seen: dict[Key, list[Result]] = {}
    for data, role in trials:
        declared = data["trees"][role].get("declaration")
        for case, measured in data["cases"].items():
            if not declared or not _same_yardstick(declared, declarations[data["kernel"]], case):
                continue
            for arm, result in measured.get("arms", {}).items():
                if arm.startswith(f"{role}/"):
                    key = (data["kernel"], arm[len(role) + 1 :], case)
                    seen.setdefault(key, []).append((data, result, str(measured.get("method", ""))))
    return {key: _cell(key, results, declarations[key[0]]) for key, results in sorted(seen.items())}


def _same_yardstick(one: Mapping[str, Any], other: Mapping[str, Any], case: str) -> bool:
    """Whether two declarations of a kernel measure a case alike; numbers by different yardsticks are never pooled."""
    return one.get("yardstick") == other.get("yardstick") and (one.get("case_yardsticks") or {}).get(case) == (
        other.get("case_yardsticks") or {}
    ).get(case)


def _cell(key: Key, results: Sequence[Result], declared: Mapping[str, Any]) -> Cell:
    """One cell of its results, oldest first.  The newest session decides the status, the worst of its trials counts."""
    last = results[-1][0]["session"]
    judged = min((result for data, result, _ in results if data["session"] == last), key=_badness)
    status = str(judged["status"])
    timed = tuple(np.asarray(result["seconds"], dtype=float) for _, result, _ in results if result["status"] == "ok")
    return Cell(
        *key,
        status=status,
        why=str(judged.get("why") or ""),
        trials=timed if status == "ok" else (),
        method=results[-1][2],
        yardstick=str(declared.get("yardstick") or ""),
        case_yardstick=str((declared.get("case_yardsticks") or {}).get(key[2]) or ""),
    )


def _badness(result: Mapping[str, Any]) -> int:
    """Failures first, then ok, then what was not tried."""
    order = (*FAILED, "ok", "unsupported", "skipped")
    return order.index(result["status"])
