"""What recorded trials come to, held to values that were stored before the house was rebuilt (4f183df, 2026-11-22).

Every replay file, every trial file, every pair of recorded commits, the frame of all records:
numbers to twelve digits (libm's last digit differs between processors), verdicts to the letter.  The words around them
may change.  `python tests/ci/test_replayed_values.py` writes the values anew; only a change that is meant to change
verdicts may do that, and says why.
"""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.judging import policy
from ci.judging import recorded as gate
from ci.judging.judge import judge
from ci.judging.types import to_json
from ci.records import derived as derive
from ci.records import store as records
from ci.trials import replay

ROOT = Path(__file__).resolve().parents[3]
RECORDINGS = ROOT / "tests" / "recordings"
STORED = RECORDINGS / "replayed"

CASE_NUMBERS = ("ratio", "ci_low", "ci_high", "p_value", "trials", "rounds", "base_seconds", "head_seconds")
FRAME_COLUMNS = [
    "machine",
    "commit",
    "env",
    "kernel",
    "backend",
    "case",
    "baseline",
    "tier",
    "dtype",
    "world",
    "seconds",
    "seconds_low",
    "seconds_high",
    "samples",
    "trials",
    "flops",
    "hbm_bytes",
    "link_bytes",
    "payload_bytes",
    "status",
    "method",
    "tflops",
    "gbs",
    "algbw",
    "busbw",
    "peak_share",
    "baseline_ratio",
]
COMMITS = ("0bb5fe41", "ac225b37", "f3ad7fbf", "52e34d2c", "08f6730c", "484887d8", "7b3fd69e", "f67f474c")
"""Those whose records of H200s were there when the values were stored."""


def said(judgement: Any) -> dict[str, Any]:
    """The numbers and verdicts of a judgement, without its sentences."""
    document = to_json(judgement)
    cases = [
        {
            "case": c["case"],
            "verdict": c["verdict"],
            "wants_more": c["wants_more"],
            **{name: c[name] for name in CASE_NUMBERS},
        }
        for c in document["cases"]
    ]
    groups = [
        {name: g[name] for name in ("kernel", "backend", "direction", "cases", "ratio", "ci_low", "ci_high")}
        for g in document["groups"]
    ]
    floors = [
        {
            name: f[name]
            for name in ("case", "baseline", "bound", "state", "share", "share_low", "share_high", "base_share")
        }
        for f in document["floors"]
    ]
    return {"verdict": document["verdict"], "cases": cases, "groups": groups, "floors": floors}


def replays() -> Iterator[tuple[str, Any]]:
    """(name, judgement) of every recorded file, also by the times alone where code objects are known."""
    rules = policy.load()
    with tempfile.TemporaryDirectory() as folder:
        for gpu in (0, 1):
            packed = (RECORDINGS / "h200" / f"ab_trials_gpu{gpu}.jsonl.gz").read_bytes()
            lines = [json.loads(line) for line in gzip.decompress(packed).splitlines()]
            arms = [arm for arm in next(iter(lines[0]["cases"].values())) if arm != "base"]
            for arm in arms:
                file = Path(folder) / f"{gpu}-{arm}.jsonl"
                file.write_text(
                    "".join(
                        json.dumps(
                            {
                                "trial": line["trial"],
                                "unit": "us",
                                "cases": {
                                    case: {"base": found["base"], "head": found[arm]}
                                    for case, found in line["cases"].items()
                                    if arm in found
                                },
                            }
                        )
                        + "\n"
                        for line in lines
                    )
                )
                yield f"h200/gpu{gpu}/{arm}", judge(replay.read(file).comparisons, rules)
    for file in (RECORDINGS / "examples" / "one_percent.jsonl", *sorted((RECORDINGS / "h200_gemm_pr").glob("*.gz"))):
        name = file.name.partition(".")[0]
        read = replay.read(file).comparisons
        yield name, judge(read, rules)
        yield f"{name}, by time", judge([dataclasses.replace(c, same_code=None) for c in read], rules)


def gates() -> Iterator[tuple[str, Any]]:
    """(name, judgement) of every pair of recorded commits of a machine."""
    rules = policy.load()
    frame = records.load(ROOT / "results")
    for machine, rows in frame[frame["machine"].str.startswith("h200")].groupby("machine", observed=True):
        recorded = sorted(commit for commit in rows["commit"].unique() if commit[:8] in COMMITS)
        for base, head in itertools.permutations(recorded, 2):
            for one in gate.gate(ROOT / "results", base, head, rules, str(machine)):
                yield f"{machine}/{base[:8]}..{head[:8]}", one.judgement


def frame() -> list[dict[str, Any]]:
    """The rows of the records, with what is derived from them."""
    derived = derive.derive(records.load(ROOT / "results"))
    derived = derived[derived["commit"].str[:8].isin(COMMITS) & derived["machine"].str.startswith("h200")]
    ordered = derived.sort_values(["machine", "commit", "env", "kernel", "backend", "case"])[FRAME_COLUMNS]
    return [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
        for row in ordered.astype(object).to_dict("records")
    ]


def values(name: str) -> Any:
    """What is compared, as plain JSON values."""
    found: Any = {
        "replays": lambda: {name: said(j) for name, j in replays()},
        "gates": lambda: {name: said(j) for name, j in gates()},
        "frame": frame,
    }[name]()
    return json.loads(json.dumps(found, default=lambda value: value.item()))


MEANT = (("CANNOT TELL", "NEW"), ("GONE", "CANNOT TELL"))
"""(verdict now, verdict then) that may differ: NEW was said of a base that declares a case and was not measured in it,
too; since 2026-11-28 it is said where base's files declare nothing, and GONE where head's declare a case no more."""


def differences(now: Any, then: Any, where: str = "") -> Iterator[str]:
    """Paths of the values that differ."""
    if isinstance(now, dict) and isinstance(then, dict):
        for key in {**now, **then}:
            yield from differences(now.get(key), then.get(key), f"{where}/{key}")
    elif isinstance(now, list) and isinstance(then, list) and len(now := _named_then(now, then)) == len(then):
        for index, pair in enumerate(zip(now, then, strict=True)):
            yield from differences(*pair, f"{where}/{index}")
    elif isinstance(now, float) and isinstance(then, float):
        if not math.isclose(now, then, rel_tol=1e-12, abs_tol=1e-20):  # p-values of 1e-13 differ by the CPU's vectors
            yield f"{where}: {now!r}, was {then!r}"
    elif now != then and (now, then) not in MEANT:
        yield f"{where}: {now!r}, was {then!r}"


def _named_then(now: list[Any], then: list[Any]) -> list[Any]:
    """Without cases that head no longer declares and that were not named then."""
    names = {case["case"] for case in then if isinstance(case, dict) and "case" in case}
    gone = [isinstance(case, dict) and case.get("verdict") == "GONE" and case["case"] not in names for case in now]
    return [case for case, is_gone in zip(now, gone, strict=True) if not is_gone]


def stored(name: str) -> Path:
    return STORED / f"{name}.json.gz"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["replays", "gates", "frame"])
def test_what_recorded_trials_come_to_has_not_changed(name):
    content = gzip.decompress(stored(name).read_bytes())
    then = json.loads(content.replace(b"YARDSTICK CHANGED", b"NOT COMPARABLE"))  # its name until 2026-11-22
    assert then, "nothing is stored, so nothing would be held"
    assert list(itertools.islice(differences(values(name), then), 5)) == []


if __name__ == "__main__":
    for name in ("replays", "gates", "frame"):
        stored(name).write_bytes(gzip.compress(json.dumps(values(name)).encode(), mtime=0))
        print(stored(name), stored(name).stat().st_size)
