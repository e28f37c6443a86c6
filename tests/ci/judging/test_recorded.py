"""One recorded commit against another: paired where they ran together, beside the baseline where they did not."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pytest

from ci.judging import policy
from ci.judging import recorded as gate
from ci.judging.judge import judge
from ci.judging.types import Verdict, to_json
from ci.records import derived as derive
from ci.records import store as records
from ci.trials.comparisons import read_recording
from tests.ci import made_trials as trials


def times(factor, seed, rounds=40):
    return list(1e-3 * factor * np.exp(np.random.default_rng(seed).normal(0, 0.003, rounds)))


def session(commit, role="head", ours=1.0, wander=0.0, count=4, seed=0, **arm):
    """Trials of one commit; in each of them the clocks wander, for us and the baseline alike."""
    random = np.random.default_rng(seed)
    lines = []
    for number in range(count):
        clock = float(np.exp(random.normal(0, wander)))
        lines.append(
            trials.trial(
                {
                    "m16": {
                        f"{role}/triton": {**trials.ok(times(ours * clock, seed * 100 + number)), **arm},
                        f"{role}/blas": trials.ok(times(0.9 * clock, seed * 100 + 50 + number)),
                    }
                },
                number=number,
                session=f"{seed:016x}",
                trees={role: trials.tree(commit)},
            )
        )
    return lines


def recorded(tmp_path, *lines):
    results = tmp_path / "results"
    done = records.record([trials.write(tmp_path / "trials.jsonl", *lines)], results)
    assert not done.problems
    return results


def judged(results):
    found = gate.gate(results, trials.BASE, trials.HEAD, policy.load())
    assert len(found) == 1
    return found[0]


def test_a_slower_commit_recorded_apart_is_slower(tmp_path):
    results = recorded(
        tmp_path, *session(trials.BASE, seed=1, wander=0.02), *session(trials.HEAD, seed=2, ours=1.15, wander=0.02)
    )
    answer = judged(results)
    assert not answer.paired
    assert answer.judgement.verdict is Verdict.SLOWER
    assert answer.judgement.cases[0].ratio == pytest.approx(1.15, rel=0.01)


@pytest.mark.parametrize("seed", range(5))
def test_the_same_code_recorded_twice_is_same_however_the_clocks_wander(tmp_path, seed):
    results = recorded(
        tmp_path, *session(trials.BASE, seed=10 + seed, wander=0.03), *session(trials.HEAD, seed=20 + seed, wander=0.03)
    )
    assert judged(results).judgement.verdict is Verdict.SAME


def test_commits_that_ran_together_are_paired(tmp_path):
    def both(number, ours, theirs):
        return [trials.ok(times(factor, number + 100 * side)) for side, factor in enumerate((ours, theirs))]

    lines = [
        trials.paired({"m16": {"triton": both(n, 1.0, 1.01), "blas": both(200 + n, 0.9, 0.9)}}, n, minute=n)
        for n in range(6)
    ]
    answer = judged(recorded(tmp_path, *lines))
    assert answer.paired
    assert answer.judgement.verdict is Verdict.SLOWER


def test_a_head_that_is_wrong_is_broken(tmp_path):
    wrong = session(trials.HEAD, seed=6)
    for line in wrong:
        line["cases"]["m16"]["arms"]["head/triton"] = trials.failed("wrong", "norm 0.5 is over 0.01")
    results = recorded(tmp_path, *session(trials.BASE, seed=5), *wrong)
    assert judged(results).judgement.verdict is Verdict.BROKEN


def test_without_both_commits_the_message_says_what_is_there(tmp_path):
    results = recorded(tmp_path, *session(trials.BASE, seed=1))
    with pytest.raises(gate.GateError, match=r"bbbbbbbb.*ridgeline run"):
        gate.gate(results, trials.BASE, trials.HEAD, policy.load())
    with pytest.raises(gate.GateError, match="holds no records"):
        gate.gate(tmp_path / "nothing", trials.BASE, trials.HEAD, policy.load())


# What recorded trials come to, held to values that were stored before the house was rebuilt (4f183df, 2026-11-22).

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


def said(judgement):
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


def replays():
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
                yield f"h200/gpu{gpu}/{arm}", judge(read_recording(file).comparisons, rules)
    for file in (RECORDINGS / "examples" / "one_percent.jsonl", *sorted((RECORDINGS / "h200_gemm_pr").glob("*.gz"))):
        name = file.name.partition(".")[0]
        read = read_recording(file).comparisons
        yield name, judge(read, rules)
        yield f"{name}, by time", judge([dataclasses.replace(c, same_code=None) for c in read], rules)


def gates():
    """(name, judgement) of every pair of recorded commits of a machine."""
    rules = policy.load()
    frame = records.load(ROOT / "results")
    for machine, rows in frame[frame["machine"].str.startswith("h200")].groupby("machine", observed=True):
        recorded = sorted(commit for commit in rows["commit"].unique() if commit[:8] in COMMITS)
        for base, head in itertools.permutations(recorded, 2):
            for one in gate.gate(ROOT / "results", base, head, rules, str(machine)):
                yield f"{machine}/{base[:8]}..{head[:8]}", one.judgement


def frame():
    """The rows of the records, with what is derived from them."""
    derived = derive.derive(records.load(ROOT / "results"))
    derived = derived[derived["commit"].str[:8].isin(COMMITS) & derived["machine"].str.startswith("h200")]
    ordered = derived.sort_values(["machine", "commit", "env", "kernel", "backend", "case"])[FRAME_COLUMNS]
    return [
        {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
        for row in ordered.astype(object).to_dict("records")
    ]


def values(name):
    """What is compared, as plain JSON values."""
    found = {
        "replays": lambda: {name: said(j) for name, j in replays()},
        "gates": lambda: {name: said(j) for name, j in gates()},
        "frame": frame,
    }[name]()
    return json.loads(json.dumps(found, default=lambda value: value.item()))


MEANT = (("CANNOT TELL", "NEW"), ("GONE", "CANNOT TELL"))
"""(verdict now, verdict then) that may differ: NEW was said of a base that declares a case and was not measured in it,
too; since 2026-11-28 it is said where base's files declare nothing, and GONE where head's declare a case no more."""


def differences(now, then, where=""):
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


def _named_then(now, then):
    """Without cases that head no longer declares and that were not named then."""
    names = {case["case"] for case in then if isinstance(case, dict) and "case" in case}
    gone = [isinstance(case, dict) and case.get("verdict") == "GONE" and case["case"] not in names for case in now]
    return [case for case, is_gone in zip(now, gone, strict=True) if not is_gone]


def stored(name):
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
