"""Compact trials: the same line with each list of samples replaced by what is kept of it, and a note of where they are.

    full     {"format": "ridgeline-trial", ..., "arms": {"head/triton": {"seconds": [1.1e-3, ...], ...}}}
    compact  {"format": "ridgeline-compact-trial", ..., "arms": {"head/triton": {"seconds": {"rounds": 40, ...}, ...}},
              "samples": {"path": "machine=.../part-....parquet", "digest": "..."}}

All else stays as it was, in its order: :func:`restored` gives back the value that the line had, and checks the digest.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks import trial_file
from benchmarks.shapes import Unfit, built, maybe, name, number, record, table, whole
from benchmarks.trial_file import LONGEST_S, SHORTEST_S
from ci.stats.anomalies import COLLAPSE_FACTOR
from ci.stats.types import FloatArray
from ci.trials.pooled import KeptTimes, SamplesAt
from ci.trials.trial import Json, Trial

FORMAT, VERSION = "ridgeline-compact-trial", 1

_TIME = number(SHORTEST_S, LONGEST_S)
_TIMES = record(
    {"rounds": whole(1), **dict.fromkeys(("median", "q25", "q75", "longest"), _TIME)},
    {"collapsed": whole(), "log_ratio": table(name, number(-100.0, 100.0))},
)
_SKEW = record({"median": number(0.0, LONGEST_S), "longest": number(0.0, LONGEST_S)}, {})
_FRAME = record(
    {
        "samples": record({"path": name, "digest": name}, {}),
        "cases": table(name, record({}, {"arms": table(name, record({}, {}))})),
    },
    {},
)


class Altered(ValueError):
    """Samples are not those that a compact trial was made of."""


@dataclasses.dataclass(frozen=True, eq=False)
class ArmSamples:
    """The samples of one arm, round by round.  seconds, skew_s: shape (rounds,); skew_s is empty but for collectives.

    skew_s: by how much the ranks of a collective started apart.
    """

    case: str
    role: str
    backend: str
    seconds: FloatArray
    skew_s: FloatArray


def samples_of(trial: Trial) -> list[ArmSamples]:
    """The samples of a full trial, in the order of its line."""
    return list(_samples(json.loads(trial.text)))


def digest(samples: Sequence[ArmSamples]) -> str:
    """Over every sample and the arm it belongs to, 32 hex digits."""
    found = hashlib.blake2b(digest_size=16)
    for one in samples:
        head = [one.case, one.role, one.backend, len(one.seconds), len(one.skew_s)]
        times = one.seconds.astype("<f8").tobytes() + one.skew_s.astype("<f8").tobytes()
        found.update(json.dumps(head).encode() + times)
    return found.hexdigest()


def compacted(trial: Trial, path: str) -> Trial:
    """The trial without its samples, which are at `path` below the place for samples."""
    data = json.loads(trial.text)
    where = {"path": path, "digest": digest(list(_samples(data)))}
    for case in data["cases"].values():
        seconds = {key: np.array(arm["seconds"]) for key, arm in case.get("arms", {}).items() if "seconds" in arm}
        for key, times in seconds.items():
            arm = case["arms"][key]
            arm["seconds"] = dataclasses.asdict(_kept(times, dict(_beside(data, key, seconds))))
            if arm.get("skew_s"):
                arm["skew_s"] = {"median": float(np.median(arm["skew_s"])), "longest": float(max(arm["skew_s"]))}
    line = {**data, "format": FORMAT, "version": VERSION, "samples": where}
    return of_line(line, json.dumps(line, allow_nan=False, separators=(",", ":")))


def of_line(data: Any, text: str) -> Trial:
    """A compact trial from the JSON value of its line.  Raises Unfit."""
    if data.get("version") != VERSION:
        raise Unfit("version", data.get("version"), f"{VERSION}; for a newer one update Ridgeline")
    _FRAME(data, "")
    kept: dict[tuple[str, str], KeptTimes] = {}
    filled = json.loads(text)
    for own, key, arm in _arms(filled):
        if "seconds" in arm:
            _TIMES(arm["seconds"], f"cases.{own}.arms.{key}.seconds")
            maybe(_SKEW)(arm.get("skew_s") or None, f"cases.{own}.arms.{key}.skew_s")
            kept[own, key] = built(KeptTimes, arm["seconds"])
            arm.update(seconds=[arm["seconds"]["median"]], skew_s=None)
    trial = Trial.of(filled | {"format": trial_file.FORMAT, "version": trial_file.VERSION}, text)
    cases = dict(trial.cases)
    for (own, key), times in kept.items():
        role, _, backend = key.partition("/")
        arms = {**cases[own].arms}
        arms[role, backend] = dataclasses.replace(arms[role, backend], seconds=np.empty(0), kept=times)
        cases[own] = dataclasses.replace(cases[own], arms=arms)
    return dataclasses.replace(
        trial, cases=cases, samples=SamplesAt(data["samples"]["path"], data["samples"]["digest"])
    )


def restored(trial: Trial, samples: Sequence[ArmSamples]) -> Trial:
    """The full trial that a compact one was made of.  Raises Altered unless these are its samples, in any order."""
    assert trial.samples is not None
    data = json.loads(trial.text)
    own = {(one.case, f"{one.role}/{one.backend}"): one for one in samples}
    for case, key, arm in _arms(data):
        if "seconds" in arm and (case, key) in own:
            arm["seconds"] = own[case, key].seconds.tolist()
            if arm.get("skew_s"):
                arm["skew_s"] = own[case, key].skew_s.tolist()
    del data["samples"]
    data |= {"format": trial_file.FORMAT, "version": trial_file.VERSION}
    try:
        found = digest(list(_samples(data)))
    except TypeError:  # the samples of an arm are missing
        found = "incomplete"
    if found != trial.samples.digest:
        raise Altered(f"the samples of trial {trial.id} at {trial.samples.path} are not those that were recorded")
    return Trial.of(data, json.dumps(data, allow_nan=False, separators=(",", ":")))


def same_results(one: Trial, other: Trial) -> bool:
    """Whether both lines hold the same cases and samples, whatever commit they were recorded as."""
    return one.text == other.text or _results(one) == _results(other)


def _results(trial: Trial) -> tuple[str, Any]:
    """Digest of the samples, and the cases without them."""
    data = json.loads(trial.text)
    there = trial.samples.digest if trial.samples else digest(list(_samples(data)))
    for _, _, arm in _arms(data):
        if "seconds" in arm:
            arm.update(seconds=None, skew_s=None)
    return there, data["cases"]


def _arms(data: Json) -> Iterator[tuple[str, str, Any]]:
    """(case, ROLE/BACKEND, arm) of a line."""
    for case, found in data["cases"].items():
        for key, arm in found.get("arms", {}).items():
            yield case, key, arm


def _samples(data: Json) -> Iterator[ArmSamples]:
    for case, key, arm in _arms(data):
        if "seconds" in arm:
            role, _, backend = key.partition("/")
            seconds, skew = (np.array(arm.get(field) or (), np.float64) for field in ("seconds", "skew_s"))
            yield ArmSamples(case, role, backend, seconds, skew)


def _beside(data: Json, key: str, seconds: Mapping[str, FloatArray]) -> Iterator[tuple[str, FloatArray]]:
    """Seconds of the baselines that ran in the rounds of an arm, by name; none for a baseline itself."""
    role, _, backend = key.partition("/")
    baselines = (data["trees"][role].get("declaration") or {}).get("baselines", ())
    for baseline in baselines if backend not in baselines else ():
        times = seconds.get(f"{role}/{baseline}")
        if times is not None and len(times) == len(seconds[key]):
            yield baseline, times


def _kept(seconds: FloatArray, beside: Mapping[str, FloatArray]) -> KeptTimes:
    q25, median, q75 = map(float, np.percentile(seconds, [25, 50, 75]))
    ratios = {baseline: float(np.median(np.log(times / seconds))) for baseline, times in beside.items()}
    collapsed = int(np.sum(seconds >= COLLAPSE_FACTOR * median))
    return KeptTimes(len(seconds), median, q25, q75, float(np.max(seconds)), collapsed, ratios)
