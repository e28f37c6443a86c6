"""Two commits that ran side by side: `ab`, `gate`, the events and the page have the same words and numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from ci.report import words
from tests import kit
from tests.ci import made_trials as made
from tests.ci.judging import recorded_trials

RECORDED = kit.ROOT / "tests/recordings/h200"
CASES = {
    "slower": (1.03, "SLOWER"), "faster": (0.97, "FASTER"), "same": (1.0, "SAME"), "open": (1.0, "CANNOT TELL"),
    "redefined": (1.0, "NOT COMPARABLE"),
}  # fmt: skip
"""By case: head's time / base's beside recorded noise, and what is to be said of it."""
TRIALS, RESTLESS = 8, 0.05
"""Trials; standard deviation (log) of the case that cannot be told."""


def lines(base, head):
    """Lock-stepped trials of an H200, an A/A pair of which is both sides of every case."""
    (first, *_), rng = recorded_trials.trial_files(RECORDED), np.random.default_rng(3)
    trees = {}
    for number, (role, commit) in enumerate((("base", base), ("head", head))):
        declared = made.declaration(cases=list(CASES))
        declared["case_yardsticks"]["redefined"] = role
        trees[role] = made.tree(commit, declared=declared, date_ms=1_790_000_000_000 + 60_000 * number)
    found = []
    for number, drawn in enumerate(recorded_trials.recorded(first)[:TRIALS]):
        cases = {}
        for name, (factor, said) in CASES.items():
            restless = np.exp(RESTLESS * rng.standard_normal()) if said == "CANNOT TELL" else 1.0
            ours, theirs = (
                [recorded_trials.US * np.array(drawn["cases"][case][arm]) for arm in ("base", "same")]
                for case in ("tgemm", "mm")
            )
            ours[1] = ours[1] * factor * restless
            arms = {"triton": ours, "blas": theirs}
            cases[name] = {backend: [made.ok(one.tolist()) for one in both] for backend, both in arms.items()}
        found.append(made.paired(cases, number, trees=trees))
    return found


@pytest.mark.slow
def test_all_that_look_at_two_commits_say_the_same(tmp_path, monkeypatch):
    config = {"ridgeline.toml": 'kernels = ["kernels"]\n', "kernels/gemm.py": "STEPS = 1\n"}
    folder = kit.repository(tmp_path / "repository", **config)
    base, head = kit.git(folder, "rev-parse", "HEAD"), kit.commit(folder, **{"kernels/gemm.py": "STEPS = 2\n"})
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "200")
    made.write(folder / "trials.jsonl", *lines(base, head))
    live = json.loads(kit.ridgeline("ab", "--replay", "trials.jsonl", "--json").stdout)
    assert kit.ridgeline("records", "add", "trials.jsonl").exit_code == 0
    (gate,) = json.loads(kit.ridgeline("gate", base, head, "--json").stdout)
    numbers = ("verdict", "ratio", "ci_low", "ci_high", "p_value", "evidence")
    assert {one["case"]: one["verdict"] for one in live["cases"]} == {
        f"gemm/triton/{name}": said for name, (_, said) in CASES.items()
    }
    assert [[one[name] for name in numbers] for one in gate["cases"]] == [
        [one[name] for name in numbers] for one in live["cases"]
    ]
    assert gate["verdict"] == live["verdict"] == "SLOWER"

    events = json.loads(kit.ridgeline("events", "list", "--json").stdout)["events"]
    known = {one["case"]: [one["verdict"].lower(), *(one[name] for name in numbers[1:4])] for one in live["cases"]}
    moved = {"/".join(one["key"][1:]): one for event in events for one in event["moved"]}
    assert {name for name, (said, *_) in known.items() if said in ("slower", "faster")} == set(moved)
    for name, one in moved.items():
        step = one["step"]
        assert [one["direction"], step["ratio"], step["ratio_low"], step["ratio_high"]] == known[name]
        assert (one["judged_by"], one["last_good"], one["first_bad"]) == ("pairs", base, head)

    assert kit.ridgeline("site").exit_code == 0
    shown = {event["id"]: event for event in json.loads((folder / "site/events.json").read_text())["events"]}
    assert {event["id"]: event["ratio"] for event in events} == {name: one["ratio"] for name, one in shown.items()}

    assert kit.ridgeline("gate", base, head, "--report", "report").exit_code == 1
    reports = {suffix: (folder / f"report{suffix}").read_text() for suffix in (".md", ".html")}
    reports |= {verb: printed(*verb.split()) for verb in ("ab --replay trials.jsonl", f"gate {base} {head}")}
    data = folder / "site/data" / str(events[0]["machine"])
    histories = {"events": printed("events", "list"), "page": (folder / "site/data/events.js").read_text()}
    histories["front page"] = (data / "front.js").read_text()
    for case in live["cases"]:
        size = words.percent(case["ratio"]), words.interval(case["ci_low"], case["ci_high"])
        for where, text in reports.items():
            assert case["verdict"] in text, where
            if case["verdict"] in ("SLOWER", "FASTER"):
                assert all(part in text for part in size), (where, size)
        for where, text in histories.items():
            assert (f"{case['verdict'].lower()}: {' '.join(size)}" in text) is (
                case["verdict"] in ("SLOWER", "FASTER")
            ), where


def printed(*argv):
    """What a command prints."""
    return kit.ridgeline(*argv).stdout
